"""Consequences of deletions, evictions, CRDs that are added and removed, and restarts of the server.

In a real cluster, controllers do most of this. The embedded server does it itself, so only it is tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api.kube.client import KubeClient
from api.kube.embedded import store
from api.kube.embedded.server import EmbeddedServer
from api.kube.informer import Informer, Listener, ListWatch
from api.kube.resources import CONFIG_MAPS
from api.objects.common import NamedObject

from .conftest import CRDS, define
from .raw import JsonObject, RawApi, config_map, definition, job, pod

PATIENCE_SECONDS = 30.0


async def until(holds: Callable[[], Any]) -> None:
    """Return once an awaited condition is true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await holds():
            await asyncio.sleep(0.01)


async def is_gone(api: RawApi, path: str) -> bool:
    return (await api.get(path)).status == 404


def owned_by(owner: JsonObject, body: JsonObject, *, blocks: bool = False) -> JsonObject:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": blocks,
    }
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [reference]}}


async def family(api: RawApi, *, blocks: bool = False) -> tuple[str, str]:
    """Create a Job and a pod of it; return their paths."""
    owner = await api.create(api.jobs(), job("j"))
    await api.create(api.path("pods"), owned_by(owner, pod("p"), blocks=blocks))
    return api.jobs("j"), api.path("pods", "p")


# Garbage


async def test_dependents_go_after_their_owner(embedded: RawApi) -> None:
    owner, dependent = await family(embedded)

    await embedded.call("DELETE", owner, propagationPolicy="Background")

    assert await is_gone(embedded, owner)
    await until(lambda: is_gone(embedded, dependent))


async def test_in_the_foreground_dependents_go_first(embedded: RawApi) -> None:
    owner, dependent = await family(embedded, blocks=True)
    await embedded.merge(dependent, {"metadata": {"finalizers": ["life.berth.dev/hold"]}})

    answer = await embedded.call("DELETE", owner, propagationPolicy="Foreground")
    waiting = await embedded.get(owner)
    await embedded.merge(dependent, {"metadata": {"finalizers": None}})

    assert answer.status == 202
    assert waiting.metadata["finalizers"] == ["foregroundDeletion"]
    await until(lambda: is_gone(embedded, owner))
    assert await is_gone(embedded, dependent)


async def test_orphans_stay_without_their_owner(embedded: RawApi) -> None:
    owner, dependent = await family(embedded)

    await embedded.call("DELETE", owner, propagationPolicy="Orphan")

    await until(lambda: is_gone(embedded, owner))
    assert "ownerReferences" not in (await embedded.get(dependent)).metadata


async def test_a_plain_delete_of_a_job_leaves_its_pods(embedded: RawApi) -> None:
    """As on the real server, for compatibility with old clients of batch/v1."""
    owner, dependent = await family(embedded)

    await embedded.call("DELETE", owner)

    await until(lambda: is_gone(embedded, owner))
    assert (await embedded.get(dependent)).status == 200


async def test_an_object_with_two_owners_stays_with_the_other(embedded: RawApi) -> None:
    first = await embedded.create(embedded.jobs(), job("first"))
    second = await embedded.create(embedded.jobs(), job("second"))
    body = owned_by(first, pod("p"))
    other = owned_by(second, pod("p"))["metadata"]["ownerReferences"][0] | {"controller": False}
    body["metadata"]["ownerReferences"].append(other)
    await embedded.create(embedded.path("pods"), body)

    await embedded.call("DELETE", embedded.jobs("first"), propagationPolicy="Background")

    async def has_one_owner() -> bool:
        owners = (await embedded.get(embedded.path("pods", "p"))).metadata["ownerReferences"]
        return [owner["name"] for owner in owners] == ["second"]

    await until(has_one_owner)


async def test_an_object_whose_owner_is_gone_already_goes_too(embedded: RawApi) -> None:
    owner = await embedded.create(embedded.jobs(), job("j"))
    await embedded.call("DELETE", embedded.jobs("j"), propagationPolicy="Background")

    await embedded.create(embedded.path("pods"), owned_by(owner, pod("late")))

    await until(lambda: is_gone(embedded, embedded.path("pods", "late")))


async def test_an_owner_of_an_unknown_kind_is_not_judged(embedded: RawApi) -> None:
    owner = {"apiVersion": "other.dev/v1", "kind": "Thing", "metadata": {"name": "t", "uid": "u"}}
    await embedded.create(embedded.path("pods"), owned_by(owner, pod("p")))

    await embedded.create(embedded.path("pods"), pod("later"))

    assert (await embedded.get(embedded.path("pods", "p"))).status == 200


async def test_a_namespace_goes_when_its_contents_have_gone(embedded: RawApi) -> None:
    await embedded.create("/api/v1/namespaces", {"metadata": {"name": "team"}})
    embedded.namespace = "team"
    body = config_map("held")
    body["metadata"]["finalizers"] = ["life.berth.dev/hold"]
    await embedded.create(embedded.path("configmaps"), body)
    await embedded.create(embedded.path("pods"), pod("p", nodeName="n1"))

    answer = await embedded.call("DELETE", "/api/v1/namespaces/team")
    await until(lambda: is_gone(embedded, embedded.path("pods", "p")))
    refused = await embedded.call("POST", embedded.path("configmaps"), config_map("late"))
    await embedded.merge(embedded.path("configmaps", "held"), {"metadata": {"finalizers": None}})

    assert answer.body["status"]["phase"] == "Terminating"
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "because it is being terminated" in refused.message
    await until(lambda: is_gone(embedded, "/api/v1/namespaces/team"))


# Evictions


async def running_pods(api: RawApi, count: int) -> None:
    """Create `count` running pods of a Deployment."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    deployment = await created(api, "deployments", "Deployment", count)
    replica_set = await created(api, "replicasets", "ReplicaSet", 7, ownerReferences=[deployment])
    for number in range(count):
        body = pod(f"p{number}", nodeName="n1")
        body["metadata"] |= {"labels": {"app": "web"}, "ownerReferences": [replica_set]}
        await api.create(api.path("pods"), body)
        await api.merge(api.path("pods", f"p{number}", subresource="status"), {"status": ready})


async def created(api: RawApi, plural: str, kind: str, replicas: int, **metadata: object) -> JsonObject:
    """Create an object that keeps `replicas` pods up, and return the reference to it."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("p")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", **metadata}, "spec": spec}
    made = await api.create(api.path(plural, api="apis/apps/v1"), body)
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": made["metadata"]["uid"]}
    return {**reference, "controller": True}


async def evict(api: RawApi, name: str) -> int:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    answer = await api.call("POST", api.path("pods", name, subresource="eviction"), body)
    return answer.status


@pytest.mark.parametrize(
    ("budget", "want"),
    [
        pytest.param({"minAvailable": 2}, [201, 429, 429], id="two must stay"),
        pytest.param({"maxUnavailable": 2}, [201, 201, 429], id="two may be away"),
        pytest.param({"minAvailable": "50%"}, [201, 429, 429], id="half, rounded up, must stay"),
        pytest.param({"maxUnavailable": 0}, [429, 429, 429], id="none may be away"),
    ],
)
async def test_evictions_keep_to_the_budget(
    embedded: RawApi, budget: Mapping[str, object], want: list[int]
) -> None:
    await running_pods(embedded, 3)
    spec = {"selector": {"matchLabels": {"app": "web"}}, **budget}
    await embedded.create(
        embedded.path("poddisruptionbudgets", api="apis/policy/v1"),
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec},
    )

    assert [await evict(embedded, f"p{number}") for number in range(3)] == want


async def test_an_eviction_beyond_the_budget_says_why(embedded: RawApi) -> None:
    await running_pods(embedded, 1)
    spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1}
    await embedded.create(
        embedded.path("poddisruptionbudgets", api="apis/policy/v1"),
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec},
    )

    answer = await embedded.call("POST", embedded.path("pods", "p0", subresource="eviction"), {})

    assert (answer.status, answer.reason) == (429, "TooManyRequests")
    assert answer.message == "Cannot evict pod as it would violate the pod's disruption budget."
    (cause,) = answer.body["details"]["causes"]
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"


async def test_a_budget_counts_again_when_its_pods_their_owner_or_it_itself_change(embedded: RawApi) -> None:
    await running_pods(embedded, 3)
    budgets = embedded.path("poddisruptionbudgets", api="apis/policy/v1")
    metadata, spec = {"name": "b"}, {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    await embedded.create(budgets, body)

    async def allows(count: int) -> bool:
        status = (await embedded.get(f"{budgets}/b")).body["status"]
        return bool(status.get("disruptionsAllowed") == count)

    await until(lambda: allows(1))
    assert await evict(embedded, "p0") == 201
    await until(lambda: allows(0))
    await embedded.merge(embedded.path("deployments", "web", api="apis/apps/v1"), {"spec": {"replicas": 2}})
    await until(lambda: allows(1))
    await embedded.merge(f"{budgets}/b", {"spec": {"maxUnavailable": 2}})
    await until(lambda: allows(2))


async def test_a_budget_over_pods_of_an_owner_without_a_known_size_allows_no_eviction(
    embedded: RawApi,
) -> None:
    await running_pods(embedded, 1)
    owner = {"apiVersion": "x.dev/v1", "kind": "Fleet", "name": "f", "uid": "u", "controller": True}
    await embedded.merge(embedded.path("pods", "p0"), {"metadata": {"ownerReferences": [owner]}})
    budgets = embedded.path("poddisruptionbudgets", api="apis/policy/v1")
    metadata, spec = {"name": "b"}, {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
    await embedded.create(budgets, body)

    answer = await embedded.call("POST", embedded.path("pods", "p0", subresource="eviction"), {})

    assert answer.status == 429
    (cause,) = answer.body["details"]["causes"]
    assert cause["message"].endswith('because it failed sync: found no controllers for pod "p0"')


async def test_pods_without_a_budget_are_evicted(embedded: RawApi) -> None:
    await running_pods(embedded, 1)

    assert await evict(embedded, "p0") == 201
    assert (await embedded.get(embedded.path("pods", "p0"))).metadata["deletionTimestamp"]


# Custom kinds


def things() -> JsonObject:
    properties = {"spec": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    return definition("things", "Thing", properties, group="life.berth.dev")


THING = {"apiVersion": "life.berth.dev/v1", "kind": "Thing", "metadata": {"name": "t"}}


async def test_a_deleted_definition_takes_kind_and_objects_along(embedded: RawApi) -> None:
    await define(embedded, things())
    path = embedded.path("things", api="apis/life.berth.dev/v1")
    await embedded.create(path, THING | {"spec": {"a": 1}})

    async with embedded.watch(path) as events:
        first = await anext(events)
        await embedded.call("DELETE", f"{CRDS}/things.life.berth.dev")
        # The watch ends with its kind: one of the same name may come, and is another.
        (last,) = [event async for event in events]
    await define(embedded, things())

    assert (first["type"], last["type"]) == ("ADDED", "DELETED")
    assert (await embedded.get(path)).body["items"] == []


async def test_a_definition_can_be_changed_under_its_objects(embedded: RawApi) -> None:
    await define(embedded, things())
    path = embedded.path("things", api="apis/life.berth.dev/v1")
    await embedded.create(path, THING | {"spec": {"a": 1}})

    new = things()
    new["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["b"] = {
        "type": "integer",
        "default": 7,
    }
    await embedded.merge(f"{CRDS}/things.life.berth.dev", {"spec": new["spec"]})
    answer = await embedded.merge(f"{path}/t", {"spec": {"a": 2}})

    assert answer.body["spec"] == {"a": 2, "b": 7}


# The server


async def test_a_watcher_that_falls_behind_is_sent_back_to_list(
    embedded: RawApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_LOG_EVENTS", 3)
    version = (await embedded.get(embedded.path("configmaps"))).metadata["resourceVersion"]
    for number in range(5):
        await embedded.create(embedded.path("configmaps"), config_map(f"c{number}"))

    (event,) = await embedded.watched(embedded.path("configmaps"), resourceVersion=version)

    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")


async def test_a_watch_from_a_version_of_the_future_is_sent_back_to_list(embedded: RawApi) -> None:
    """A server that restarted within its clock has lower versions than its clients remember."""
    version = int((await embedded.get(embedded.path("configmaps"))).metadata["resourceVersion"])

    (event,) = await embedded.watched(embedded.path("configmaps"), resourceVersion=str(version + 1000))

    assert event["object"]["code"] == 410


async def test_quiet_watches_are_sent_the_current_version(
    embedded: RawApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.kube.embedded.watching._BOOKMARK_SECONDS", 0.02)
    version = (await embedded.get(embedded.jobs())).metadata["resourceVersion"]

    async with embedded.watch(embedded.jobs(), resourceVersion=version, allowWatchBookmarks="true") as events:
        await embedded.create(embedded.path("configmaps"), config_map("elsewhere"))
        seen = [await anext(events), await anext(events)]

    assert {event["type"] for event in seen} == {"BOOKMARK"}
    assert int(seen[-1]["object"]["metadata"]["resourceVersion"]) > int(version)


async def test_bodies_are_taken_up_to_eight_mebibytes(embedded: RawApi) -> None:
    await define(embedded, definition("blobs", "Blob", {"spec": {"type": "string"}}, group="life.berth.dev"))
    path = embedded.path("blobs", api="apis/life.berth.dev/v1")
    body = {"apiVersion": "life.berth.dev/v1", "kind": "Blob", "metadata": {"name": "b"}}

    fits = await embedded.call("POST", path, body | {"spec": "x" * (8 * 1024 * 1024 - 1000)})
    too_large = await embedded.call("POST", path, body | {"spec": "x" * (8 * 1024 * 1024)})

    assert (fits.status, too_large.status) == (201, 413)


async def test_binary_bodies_are_refused(embedded: RawApi) -> None:
    answer = await embedded.call(
        "POST", embedded.path("configmaps"), b"k8s\0", content_type="application/vnd.kubernetes.protobuf"
    )

    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_clients_that_read_only_binary_are_refused(embedded: RawApi) -> None:
    answer = await embedded.call(
        "GET", embedded.path("configmaps"), accept="application/vnd.kubernetes.protobuf"
    )

    assert (answer.status, answer.reason) == (406, "NotAcceptable")


async def test_stopping_ends_watches_and_frees_the_port(tmp_path: Path) -> None:
    server = EmbeddedServer()
    url = await server.start()
    async with aiohttp.ClientSession(url) as session:
        response = await session.get("/api/v1/pods", params={"watch": "true"})
        await server.stop()
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await response.content.read() == b""
    again = EmbeddedServer()
    await again.start(port=int(url.rpartition(":")[2]))
    await again.stop()


async def test_a_taken_port_is_an_error(embedded: RawApi) -> None:
    port = int(str(embedded.session._base_url).rpartition(":")[2].strip("/"))

    with pytest.raises(OSError, match="address already in use"):
        await EmbeddedServer().start(port=port)


@pytest.fixture
async def names(tmp_path: Path) -> AsyncIterator[tuple[str, int, Callable[[], set[str]]]]:
    """Give the kubeconfig and port of a server to come, and the names that an informer of it has."""
    server = EmbeddedServer()
    port = int((await server.start()).rpartition(":")[2])
    kubeconfig = str(tmp_path / "kubeconfig")
    server.write_kubeconfig(kubeconfig)
    async with await KubeClient.connect(kubeconfig) as client:
        informer = Informer(
            client,
            ListWatch(resource=CONFIG_MAPS, type_=NamedObject),
            Listener(on_change=lambda change: None),
        )
        running = asyncio.create_task(informer.run())
        await informer.synced.wait()
        await client.create(CONFIG_MAPS, b'{"metadata": {"name": "old"}}', "default")
        await server.stop()
        yield kubeconfig, port, lambda: {name for _, name in informer.store}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_client_that_outlives_the_server_sees_the_new_one(
    names: tuple[str, int, Callable[[], set[str]]],
) -> None:
    kubeconfig, port, seen = names
    server = EmbeddedServer()
    await server.start(port=port)
    async with await KubeClient.connect(kubeconfig) as client:
        await client.create(CONFIG_MAPS, b'{"metadata": {"name": "new"}}', "default")

        async def is_seen() -> bool:
            return seen() == {"new"}

        await until(is_seen)
    await server.stop()
