"""The client side on real and embedded servers: the same sequences on each."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.kube import errors
from api.kube.client import Body, KubeClient
from api.kube.events import EventRecorder
from api.kube.informer import Change, ChangeType, Informer, InformerTiming, Listener, ListWatch
from api.kube.leadership import Leadership, LeaseTiming
from api.kube.lease import Elector, LeaseLock
from api.kube.report_budget import WriteLoad
from api.kube.resources import (
    ADMISSION_POLICIES,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    Resource,
)
from api.object_events import EventType, ObjectRef
from tests.controlplane import ControlPlane
from tests.embedded import EmbeddedCluster

from .widgets import Widget

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """A server, a client of it, and a namespace of the test's own."""

    client: KubeClient
    namespace: str


def body(resource: Resource, name: str, **fields: object) -> bytes:
    whole = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}
    return json.dumps(whole).encode()


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """Give each kind of server in turn."""
    async with AsyncExitStack() as stack:
        if request.param == "real":
            kubeconfig: str = request.getfixturevalue("control_plane").kubeconfig
        else:
            kubeconfig = (await stack.enter_async_context(EmbeddedCluster(tmp_path))).kubeconfig
        client = await KubeClient.connect(kubeconfig, user_agent="berth-test")
        namespace = await stack.enter_async_context(own_namespace(await stack.enter_async_context(client)))
        yield Place(client, namespace)


@asynccontextmanager
async def own_namespace(client: KubeClient) -> AsyncIterator[str]:
    made = await client.create(
        NAMESPACES, b'{"apiVersion":"v1","kind":"Namespace","metadata":{"generateName":"kube-client-"}}'
    )
    name: str = json.loads(made)["metadata"]["name"]
    try:
        yield name
    finally:
        await client.delete(NAMESPACES, name)


async def test_a_server_reports_its_version(place: Place) -> None:
    assert (await place.client.server_version()).startswith("v1.")


async def test_an_object_through_its_life(place: Place) -> None:
    client, namespace = place.client, place.namespace

    made = json.loads(await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a", data={"x": "1"}), namespace))
    with pytest.raises(errors.AlreadyExists):
        await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a"), namespace)
    patched = json.loads(await client.merge_patch(CONFIG_MAPS, "a", b'{"data":{"y":"2"}}', namespace))
    assert patched["data"] == {"x": "1", "y": "2"}
    with pytest.raises(errors.Conflict):
        await client.replace(CONFIG_MAPS, "a", json.dumps({**made, "data": {}}).encode(), namespace)
    replaced = json.loads(
        await client.replace(
            CONFIG_MAPS, "a", json.dumps({**patched, "data": {"z": "3"}}).encode(), namespace
        )
    )
    assert replaced["data"] == {"z": "3"}
    applied = json.loads(
        await client.request(
            "PATCH",
            CONFIG_MAPS.path(namespace, "a"),
            params={"fieldManager": "berth", "force": "true"},
            body=Body(body(CONFIG_MAPS, "a", data={"w": "4"}), "application/apply-patch+yaml"),
        )
    )
    assert applied["data"] == {"w": "4", "z": "3"}
    assert json.loads(await client.get(CONFIG_MAPS, "a", namespace)) == applied
    await client.delete(CONFIG_MAPS, "a", namespace)
    with pytest.raises(errors.NotFound, match='"a" not found'):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_an_object_that_validation_refuses(place: Place) -> None:
    with pytest.raises(errors.Invalid) as caught:
        await place.client.create(CONFIG_MAPS, body(CONFIG_MAPS, "Not_A_Name"), place.namespace)

    assert (caught.value.status, caught.value.reason) == (422, "Invalid")


async def test_an_old_patch_with_a_version_is_a_conflict(place: Place) -> None:
    client, namespace = place.client, place.namespace
    made = json.loads(await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a"), namespace))
    await client.merge_patch(CONFIG_MAPS, "a", b'{"data":{"y":"2"}}', namespace)
    patch = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}, "data": {"y": "3"}}

    with pytest.raises(errors.Conflict):
        await client.merge_patch(CONFIG_MAPS, "a", json.dumps(patch).encode(), namespace)


async def test_a_delete_with_preconditions_spares_another_object_of_the_name(place: Place) -> None:
    client, namespace = place.client, place.namespace
    await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a"), namespace)

    with pytest.raises(errors.Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace, body=b'{"preconditions":{"uid":"another"}}')

    await client.get(CONFIG_MAPS, "a", namespace)


async def test_a_list_of_several_pages(place: Place) -> None:
    client, namespace = place.client, place.namespace
    for number in range(7):
        await client.create(CONFIG_MAPS, body(CONFIG_MAPS, f"c{number}"), namespace)

    informer = Informer(
        client,
        ListWatch(resource=CONFIG_MAPS, type_=Widget, namespace=namespace),
        Listener(on_change=lambda _: None),
        timing=InformerTiming(page_size=3),
    )
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await informer.synced.wait()
    task.cancel()
    listed = await client.list(CONFIG_MAPS, namespace, type_=Widget)

    names = {f"c{number}" for number in range(7)}
    assert names <= {name for _, name in informer.store}
    assert names <= {item.metadata.name for item in listed.items}


class Watcher:
    """An informer at work and what it reports."""

    def __init__(self, client: KubeClient, what: ListWatch[Widget], *, keep_raw: bool = False) -> None:
        self._reports: asyncio.Queue[Change[Widget]] = asyncio.Queue()
        listener = Listener(on_change=self._reports.put_nowait)
        self.informer = Informer(client, what, listener, keep_raw=keep_raw)
        self._task = asyncio.create_task(self.informer.run())

    async def __aenter__(self) -> Watcher:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self.informer.synced.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def next(self, accepts: Callable[[Change[Widget]], bool]) -> Change[Widget]:
        """Return the next report that is accepted, dropping those before it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not accepts(change := await self._reports.get()):
                pass
        return change


async def test_the_local_copy_follows_an_object(place: Place) -> None:
    client, namespace = place.client, place.namespace
    what = ListWatch(resource=CONFIG_MAPS, type_=Widget, namespace=namespace)
    async with Watcher(client, what, keep_raw=True) as watcher:
        await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a", data={"x": "1"}), namespace)
        added = await watcher.next(lambda c: c.object.metadata.name == "a")
        await client.merge_patch(CONFIG_MAPS, "a", b'{"data":{"x":"2"}}', namespace)
        modified = await watcher.next(lambda c: c.object.metadata.name == "a")
        await client.delete(CONFIG_MAPS, "a", namespace)
        deleted = await watcher.next(lambda c: c.object.metadata.name == "a")

    assert [c.type for c in (added, modified, deleted)] == list(ChangeType)
    assert modified.previous == added.object
    assert modified.raw is not None
    kept = json.loads(modified.raw)
    assert (kept["kind"], kept["data"], "managedFields" in kept["metadata"]) == (
        "ConfigMap",
        {"x": "2"},
        False,
    )
    assert (namespace, "a") not in watcher.informer.store


async def test_an_object_is_put_back_from_its_kept_bytes(place: Place) -> None:
    client, namespace = place.client, place.namespace
    await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "a", data={"x": "1"}), namespace)
    what = ListWatch(resource=CONFIG_MAPS, type_=Widget, namespace=namespace)
    async with Watcher(client, what, keep_raw=True) as watcher:
        kept = watcher.informer.raw[namespace, "a"]

        stored = json.loads(await client.replace(CONFIG_MAPS, "a", kept, namespace))

    assert stored["data"] == {"x": "1"}
    assert stored["metadata"]["managedFields"], "the server keeps what a write leaves out"


async def test_a_kind_that_is_not_installed_is_empty(place: Place) -> None:
    what = ListWatch(resource=ADMISSION_POLICIES, type_=Widget, optional=True)
    async with Watcher(place.client, what) as watcher:
        assert watcher.informer.store == {}


async def test_a_candidate_takes_the_lease_and_gives_it_back(place: Place) -> None:
    fences = []

    async def lead(leadership: Leadership) -> None:
        await leadership.wait_renewed_after(time.monotonic())
        fences.append((leadership.fence, await leadership.raise_fence(leadership.fence + 4)))

    elector = Elector(
        place.client,
        LeaseLock(name="berth-main", namespace=place.namespace, identity="me"),
        LeaseTiming(),
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        await elector.run(lead)
        await elector.run(lead)

    lease = json.loads(await place.client.get(LEASES, "berth-main", place.namespace))
    assert fences == [(1, 6), (7, 12)]
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 12)


async def test_an_event_is_stored_and_its_count_is_raised(place: Place) -> None:
    client, namespace = place.client, place.namespace
    node = ObjectRef(api_version="v1", kind="Node", name="n1", uid="u")
    job = ObjectRef(api_version="batch/v1", kind="Job", namespace=namespace, name="train", uid="u")
    recorder = EventRecorder(client, WriteLoad(), instance="me")
    task = asyncio.create_task(recorder.run())

    recorder.record(job, EventType.NORMAL, "Pending", "first")
    recorder.record(job, EventType.NORMAL, "Pending", "first")
    await recorder.drain(PATIENCE_SECONDS)
    recorder.record(job, EventType.NORMAL, "Pending", "first")
    recorder.record(node, EventType.WARNING, "Full", "x" * 5000)
    await recorder.drain(PATIENCE_SECONDS)
    task.cancel()

    assert (recorder.sent, recorder.dropped) == (3, 0)
    path = EVENTS.path(namespace)
    (event,) = json.loads(await client.request("GET", path))["items"]
    assert (event["note"], event["series"]["count"], event["regarding"]["name"]) == ("first", 3, "train")


async def test_a_cluster_scoped_object(place: Place) -> None:
    name = f"node-{place.namespace}"
    await place.client.create(NODES, body(NODES, name))

    async with Watcher(place.client, ListWatch(resource=NODES, type_=Widget)) as watcher:
        assert ("", name) in watcher.informer.store
        await place.client.delete(NODES, name)
        gone = await watcher.next(lambda c: c.type is ChangeType.DELETED and c.object.metadata.name == name)

    assert gone.previous is not None


# What only the real server does


def with_wrong_token(plane: ControlPlane, folder: Path) -> Path:
    path = folder / "config"
    path.write_text(Path(plane.kubeconfig).read_text().replace(plane.token, "wrong"))
    return path


async def test_wrong_credentials_name_the_file(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = with_wrong_token(control_plane, tmp_path)

    async with await KubeClient.connect(str(path)) as client:
        with pytest.raises(errors.Unauthorized, match=f"does not accept the credentials of {path}"):
            await client.list(JOBS, type_=Widget)


async def test_missing_rights_are_named(control_plane: ControlPlane) -> None:
    async with await KubeClient.connect(control_plane.user_kubeconfig) as client:
        with pytest.raises(errors.Forbidden, match='User "low" cannot list resource "jobs"'):
            await client.list(JOBS, type_=Widget)


async def test_an_untrusted_server_is_named(control_plane: ControlPlane, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}],"
        f" clusters: [{{name: c, cluster: {{server: '{control_plane.server}'}}}}]}}"
    )

    async with await KubeClient.connect(str(path)) as client:
        with pytest.raises(
            errors.Unreachable, match=r"certificate is not trusted .*check the certificate-auth"
        ):
            await client.server_version()


@pytest.mark.slow
async def test_a_restart_of_the_server_loses_nothing_and_never_makes_two_leaders(
    fresh_control_plane: ControlPlane,
) -> None:
    """The copy is right afterwards, and two candidates never lead at once, not even during the outage."""
    leading: set[str] = set()
    most = 0

    def candidate(client: KubeClient, name: str) -> Elector:
        return Elector(
            client,
            LeaseLock(name="berth-main", namespace="default", identity=name),
            # Short enough for the outage to cost the leader its lease.
            LeaseTiming(duration_seconds=4.0, renew_seconds=1.0, deadline_seconds=2.5),
        )

    async def lead(leadership: Leadership) -> None:
        nonlocal most
        leading.add(str(leadership.fence))
        most = max(most, len(leading))
        try:
            await asyncio.Event().wait()
        finally:
            leading.discard(str(leadership.fence))

    async with await KubeClient.connect(fresh_control_plane.kubeconfig) as client:
        tasks = [asyncio.create_task(candidate(client, name).run(lead)) for name in "ab"]
        what = ListWatch(resource=CONFIG_MAPS, type_=Widget, namespace="default")
        async with Watcher(client, what) as watcher:
            await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "before"), "default")
            await watcher.next(lambda c: c.object.metadata.name == "before")
            await asyncio.to_thread(fresh_control_plane.restart_apiserver)
            await client.create(CONFIG_MAPS, body(CONFIG_MAPS, "after"), "default")
            await watcher.next(lambda c: c.object.metadata.name == "after")
            held = {name for _, name in watcher.informer.store}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    assert {"before", "after"} <= held
    assert most == 1
