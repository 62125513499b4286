"""The visibility API as kube-apiserver, kubectl and kueuectl meet it."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from admission.controller.http.client_authority import ClientAuthority, Clients
from admission.controller.http.front_proxy import find_front_proxy
from admission.controller.http.visibility import Visibility, render_error
from admission.controller.runtime.large_reads import LargeReads
from api.http.certificates import KeyPair, ServingTls, make_authority, make_leaf
from api.http.server import HttpServer
from api.kube import resources
from api.kube.client import KubeClient
from api.wire import training_jobs
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.known import (
    Known,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)
from tests.admission.controller.proxying import make_client
from tests.embedded import EmbeddedCluster

GROUP = "visibility.kueue.x-k8s.io"
ROOT = f"/apis/{GROUP}/v1beta2"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}


def make_known() -> Known:
    """Return two tenants that wait in one ClusterQueue without quota, by LocalQueues of the same name."""
    return Known(
        namespace_object("a"),
        namespace_object("b"),
        made("ResourceFlavor", "f"),
        cluster_queue_object("cq"),
        cluster_queue_object("empty"),
        local_queue_object("lq", "a", "cq"),
        local_queue_object("lq", "b", "cq"),
        local_queue_object("idle", "a", "cq"),
        local_queue_object("lost", "a", "missing"),
        workload_object("first", "a", "lq", priority=9, created="2026-01-02T00:00:00Z", owners=[OWNER]),
        workload_object("second", "b", "lq", created="2026-01-01T00:00:00Z"),
        workload_object("third", "a", "lq", created="2026-01-03T00:00:00Z"),
    )


@asynccontextmanager
async def serving(visibility: Visibility, tls: ServingTls | None = None) -> AsyncIterator[str]:
    """Serve; yield the URL."""
    async with HttpServer(visibility.routes(), render_error=render_error, tls=tls) as server:
        yield server.url


@pytest.fixture
async def url() -> AsyncIterator[str]:
    """Give the URL of a visibility API on loopback."""
    async with serving(Visibility(make_known().cluster_state, LargeReads(FakeClock()), lambda: True)) as url:
        yield url


async def ask(url: str, path: str, **options: Any) -> tuple[int, Any]:
    """Return status and answer."""
    async with aiohttp.ClientSession() as session, session.get(url + path, **options) as answer:
        return answer.status, await answer.json()


async def names(url: str, path: str) -> list[str]:
    """Return the names in the list."""
    status, answer = await ask(url, path)
    assert status == 200, answer
    return [item["metadata"]["name"] for item in answer["items"]]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_cluster_queue_shows_its_pending_workloads_in_order(url: str, version: str) -> None:
    path = f"/apis/{GROUP}/{version}/clusterqueues/cq/pendingworkloads"

    assert await ask(url, path) == (
        200,
        {
            "kind": "PendingWorkloadsSummary",
            "apiVersion": f"{GROUP}/{version}",
            "metadata": {},
            "items": [
                {
                    "metadata": {
                        "name": "first",
                        "namespace": "a",
                        "creationTimestamp": "2026-01-02T00:00:00Z",
                        "ownerReferences": [
                            {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1"}
                        ],
                    },
                    "priority": 9,
                    "localQueueName": "lq",
                    "positionInClusterQueue": 0,
                    "positionInLocalQueue": 0,
                },
                {
                    "metadata": {
                        "name": "second",
                        "namespace": "b",
                        "creationTimestamp": "2026-01-01T00:00:00Z",
                    },
                    "priority": 0,
                    "localQueueName": "lq",
                    "positionInClusterQueue": 1,
                    "positionInLocalQueue": 0,
                },
                {
                    "metadata": {
                        "name": "third",
                        "namespace": "a",
                        "creationTimestamp": "2026-01-03T00:00:00Z",
                    },
                    "priority": 0,
                    "localQueueName": "lq",
                    "positionInClusterQueue": 2,
                    "positionInLocalQueue": 1,
                },
            ],
        },
    )


async def test_a_local_queue_shows_its_own_and_their_places_in_both_queues(url: str) -> None:
    _, answer = await ask(url, f"{ROOT}/namespaces/a/localqueues/lq/pendingworkloads")

    places = ("positionInLocalQueue", "positionInClusterQueue")
    assert [(item["metadata"]["name"], *(item[place] for place in places)) for item in answer["items"]] == [
        ("first", 0, 0),
        ("third", 1, 2),
    ]


async def test_workloads_that_fit_nowhere_are_shown_in_their_place() -> None:
    known = make_known()
    assert known.cluster_state.engine.cycle(now=2_000_000_000.0)

    async with serving(Visibility(known.cluster_state, LargeReads(FakeClock()), lambda: True)) as url:
        assert any(one.is_parked for one in known.cluster_state.engine.queues.pending("cq"))
        assert await names(url, f"{ROOT}/clusterqueues/cq/pendingworkloads") == ["first", "second", "third"]


@pytest.mark.parametrize(
    ("query", "want"),
    [
        ("", ["first", "second", "third"]),
        ("?limit=2", ["first", "second"]),
        ("?offset=1", ["second", "third"]),
        ("?offset=1&limit=1", ["second"]),
        ("?offset=3", []),
        ("?limit=0", []),
        ("?limit=100001", ["first", "second", "third"]),
        ("?offset=&limit=", ["first", "second", "third"]),
    ],
)
async def test_offset_and_limit_cut_a_page_out(url: str, query: str, want: list[str]) -> None:
    assert await names(url, f"{ROOT}/clusterqueues/cq/pendingworkloads{query}") == want


async def test_a_page_of_a_local_queue_keeps_its_positions(url: str) -> None:
    _, answer = await ask(url, f"{ROOT}/namespaces/a/localqueues/lq/pendingworkloads?offset=1")

    assert [item["positionInLocalQueue"] for item in answer["items"]] == [1]


@pytest.mark.parametrize(
    "query",
    ["offset=-1", "limit=-1", "limit=many", "limit=1.5", "limit=1000000000000000000", "offset=%C2%B2"],
)
async def test_other_numbers_are_refused(url: str, query: str) -> None:
    status, answer = await ask(url, f"{ROOT}/clusterqueues/cq/pendingworkloads?{query}")

    assert (status, answer["reason"]) == (400, "BadRequest")
    assert answer["message"].endswith("must be a whole number that is not negative")


@pytest.mark.parametrize(
    "path",
    [
        "clusterqueues/empty",
        "namespaces/a/localqueues/idle",
        pytest.param("namespaces/a/localqueues/lost", id="a LocalQueue whose ClusterQueue is missing"),
    ],
)
async def test_no_pending_workloads_is_an_empty_list(url: str, path: str) -> None:
    assert await names(url, f"{ROOT}/{path}/pendingworkloads") == []


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("clusterqueues/none/pendingworkloads", f'clusterqueue.{GROUP} "none" not found'),
        ("namespaces/a/localqueues/none/pendingworkloads", f'localqueue.{GROUP} "none" not found'),
        ("namespaces/b/localqueues/idle/pendingworkloads", f'localqueue.{GROUP} "idle" not found'),
        ("clusterqueues/cq", f"there is nothing at {ROOT}/clusterqueues/cq"),
    ],
)
async def test_what_is_not_there_is_a_status_of_404(url: str, path: str, want: str) -> None:
    status, answer = await ask(url, f"{ROOT}/{path}")

    assert status == 404
    assert (answer["kind"], answer["reason"], answer["code"]) == ("Status", "NotFound", 404)
    assert answer["message"] == want


async def test_nothing_is_shown_before_the_caches_have_synced() -> None:
    async with serving(Visibility(make_known().cluster_state, LargeReads(FakeClock()), lambda: False)) as url:
        status, answer = await ask(url, f"{ROOT}/clusterqueues/cq/pendingworkloads")
        assert (status, answer["reason"]) == (503, "ServiceUnavailable")
        assert (await ask(url, ROOT))[0] == 200


# --- discovery -----------------------------------------------------------------------------------


async def test_discovery_leads_from_the_group_to_its_resources(url: str) -> None:
    _, groups = await ask(url, "/apis")
    _, group = await ask(url, f"/apis/{GROUP}")
    preferred = group["preferredVersion"]
    _, listed = await ask(url, f"/apis/{preferred['groupVersion']}")

    own = {key: value for key, value in group.items() if key not in ("kind", "apiVersion")}
    assert groups["groups"] == [own, training_jobs.group_entry()]
    assert preferred == {"groupVersion": f"{GROUP}/v1beta2", "version": "v1beta2"}
    assert listed["groupVersion"] == f"{GROUP}/v1beta2"
    assert {one["name"]: (one["namespaced"], one["verbs"]) for one in listed["resources"]} == {
        "clusterqueues": (False, []),
        "clusterqueues/pendingworkloads": (False, ["get"]),
        "localqueues": (True, []),
        "localqueues/pendingworkloads": (True, ["get"]),
    }


# --- which clients may ask ---------------------------------------------------------------------------------


@asynccontextmanager
async def behind_a_proxy(proxy: ClientAuthority, authority: KeyPair) -> AsyncIterator[str]:
    tls = ServingTls(make_leaf(authority, ["127.0.0.1"], now=NOW))
    clients = Clients(proxy, tls, is_required=True)
    async with serving(
        Visibility(make_known().cluster_state, LargeReads(FakeClock()), lambda: True, clients), tls
    ) as url:
        yield url


NOW = time.time()
PATH = f"{ROOT}/clusterqueues/empty/pendingworkloads"


def client_tls(folder: Path, trusted: KeyPair, own: KeyPair | None) -> ssl.SSLContext:
    """Return the TLS of a client that trusts one authority and may show a certificate of its own."""
    context = ssl.create_default_context(cadata=trusted.certificate.decode())
    if own is not None:
        chain = folder / "client.pem"
        chain.write_bytes(own.certificate + own.key)
        context.load_cert_chain(chain)
    return context


async def test_a_proxy_of_an_allowed_name_may_ask(tmp_path: Path) -> None:
    authority = make_authority(now=NOW)
    proxy = ClientAuthority(authority=authority.certificate.decode(), allowed_names=("front-proxy-client",))
    own = make_client("front-proxy-client", authority)

    async with behind_a_proxy(proxy, authority) as url:
        status, _ = await ask(url, PATH, ssl=client_tls(tmp_path, authority, own))

    assert status == 200


async def test_another_name_of_the_same_authority_may_not(tmp_path: Path) -> None:
    authority = make_authority(now=NOW)
    proxy = ClientAuthority(authority=authority.certificate.decode(), allowed_names=("front-proxy-client",))

    async with behind_a_proxy(proxy, authority) as url:
        answer = await ask(url, PATH, ssl=client_tls(tmp_path, authority, make_client("eve", authority)))

    assert (answer[0], answer[1]["message"]) == (403, "eve may not call this API")


@pytest.mark.parametrize("shows", ["no certificate", "one of another authority"])
async def test_a_client_other_than_the_proxy_cannot_even_connect(tmp_path: Path, shows: str) -> None:
    authority, other = make_authority(now=NOW), make_authority(now=NOW)
    own = make_client("front-proxy-client", other) if "other" in shows else None

    async with behind_a_proxy(ClientAuthority(authority=authority.certificate.decode()), authority) as url:
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            await ask(url, PATH, ssl=client_tls(tmp_path, authority, own))


AUTHORITY = make_authority(now=NOW).certificate.decode().strip()


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(None, None, id="no such object"),
        pytest.param({}, None, id="an empty one"),
        pytest.param({"requestheader-client-ca-file": "PEM"}, None, id="no authority"),
        pytest.param(
            {"requestheader-client-ca-file": AUTHORITY, "requestheader-allowed-names": "a"},
            None,
            id="names that are no list",
        ),
        pytest.param(
            {"requestheader-client-ca-file": AUTHORITY}, ClientAuthority(authority=AUTHORITY), id="any name"
        ),
        pytest.param(
            {"requestheader-client-ca-file": AUTHORITY, "requestheader-allowed-names": '["a","b"]'},
            ClientAuthority(authority=AUTHORITY, allowed_names=("a", "b")),
            id="some names",
        ),
    ],
)
async def test_the_proxy_is_found_where_the_cluster_publishes_it(
    embedded_server: EmbeddedCluster, data: dict[str, str] | None, want: ClientAuthority | None
) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        if data is not None:
            body = {"metadata": {"name": "extension-apiserver-authentication"}, "data": data}
            await client.create(resources.CONFIG_MAPS, msgspec.json.encode(body), "kube-system")
        assert await find_front_proxy(client) == want
