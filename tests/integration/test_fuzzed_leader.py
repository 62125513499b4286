"""A whole leader under objects, annotations and Redis values that break rules: it leads and decides on.

HTTP bodies are in test_malformed.py, the same objects without a controller around them in `tests/fuzz/`.
"""

from __future__ import annotations

import http.client
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis
from hypothesis import strategies as st

from api.kube import resources
from api.kube.resources import Resource
from queues.reservations.plan import PlanTable
from queues.store.keys import Keys
from tests.fuzz.__main__ import search
from tests.fuzz.inputs import broken_bytes, changed, texts, to_json
from tests.fuzz.samples import cluster
from tests.fuzz.target import Target
from tests.integration.conftest import LONE_LEASE, Cluster, Controllers
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_malformed import MOST_GROWN_BYTES, resident_bytes
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("fuzzed-leader")]

OBJECTS, VALUES, SEED = 250, 150, 17
# Of each kind. More by hand: BERTH_OBJECTS=2000.
PER_KIND = int(os.environ.get("BERTH_OBJECTS", "40"))
# A few of the inputs may keep one of them busy for long; the leader answers for its own time by its lease.
MOST_SECONDS = 30.0
RESOURCES = {one.kind: one for one in vars(resources).values() if isinstance(one, Resource)}
FIXED = (("kind",), ("apiVersion",), ("metadata", "name"), ("metadata", "namespace"))
KEYS = Keys("default")


class Writer:
    """Writes objects as they are, bytes that are no JSON included, and counts what the server says."""

    def __init__(self, server: str) -> None:
        address = urlsplit(server)
        self._address = address.hostname or "", address.port
        self.statuses: Counter[int] = Counter()

    def write(self, obj: Any) -> None:
        """Write an object and its status; create it if it is new."""
        resource, metadata = RESOURCES[obj["kind"]], obj["metadata"]
        place = metadata.get("namespace") if resource.namespaced else None
        body, name = to_json(obj), metadata["name"]
        if self._send("POST", resource.path(place), "application/json", body) == http.client.CONFLICT:
            patch = "application/merge-patch+json"
            self._send("PATCH", resource.path(place, name), patch, body)
            self._send("PATCH", resource.path(place, name, "status"), patch, body)

    def _send(self, method: str, path: str, kind: str, body: bytes) -> int:
        connection = http.client.HTTPConnection(*self._address, timeout=30.0)
        try:
            connection.request(method, path, body, {"Content-Type": kind})
            status = connection.getresponse().status
        finally:
            connection.close()
        self.statuses[status] += 1
        return status


def assert_leads_on(leader: Replica, terms: Any) -> None:
    """Check that the leader has kept its lease and met no error of its own.

    The lease is one for which a machine that halts for seconds is no loss, and an input that holds it up is.
    """
    assert leader.child.is_running()
    assert terms() == 1, "it has led more than once"
    assert "Traceback" not in leader.log()
    assert leader.metric("berth_control_loop_errors_total") == 0


def test_a_leader_decides_on_whatever_objects_and_redis_values_say(
    embedded_cluster: Cluster, controllers: Controllers, redis_server: RedisServer
) -> None:
    # The controller's own namespace is never managed.
    scene, own = embedded_cluster.new_scene(), embedded_cluster.new_scene().namespace
    scene.create_queue("good")
    flags = "--redis", redis_server.url, "--namespace", own
    leader = controllers.start(embedded_cluster.kubeconfig, *flags, config=LONE_LEASE)
    leader.wait_leading()
    writer = Writer(embedded_cluster.rest.server)
    for obj in cluster():
        writer.write(obj)

    samples = changed(cluster(), fixed=FIXED)
    before = resident_bytes(leader)
    search(
        Target(name="objects", inputs=samples, check=writer.write, most_seconds=MOST_SECONDS),
        seed=SEED,
        examples=OBJECTS,
        shrinks=False,
    )()
    places = [KEYS.reservations, *map(KEYS.table, PlanTable)]
    with redis.Redis.from_url(redis_server.url) as other:

        def plant(given: tuple[str, str, bytes]) -> None:
            place, field, value = given
            other.hset(place, field.encode(errors="surrogatepass"), value)

        junk = st.one_of(st.binary(max_size=64), broken_bytes(samples.map(to_json)))
        values = st.tuples(st.sampled_from(places), texts, junk)
        search(
            Target(name="values", inputs=values, check=plant, most_seconds=MOST_SECONDS),
            seed=SEED,
            examples=VALUES,
            shrinks=False,
        )()

    scene.create_job("after", queue="good", cpus=1)
    scene.wait_admitted("after")
    # The server took enough of them for this to mean something.
    assert writer.statuses[200] + writer.statuses[201] > OBJECTS // 4, writer.statuses
    assert_leads_on(leader, lambda: leader.log().count(" deciding "))
    assert resident_bytes(leader) - before < MOST_GROWN_BYTES


@pytest.fixture(scope="module")
def kind_leader(
    embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Scene, Replica]]:
    """Give a leader that meets malformed objects of one kind after another, and a scene with a good queue."""
    controllers = Controllers(tmp_path_factory.mktemp("fuzzed"))
    scene, own = embedded_cluster.new_scene(), embedded_cluster.new_scene().namespace
    scene.create_queue("good")
    flags = "--namespace", own, "--log-level", "info"
    leader = controllers.start(embedded_cluster.kubeconfig, *flags, config=LONE_LEASE)
    leader.wait_leading()
    yield scene, leader
    controllers.stop()


@pytest.mark.parametrize("kind", sorted({obj["kind"] for obj in cluster()}))
def test_a_leader_decides_on_beside_malformed_objects_of_each_kind(
    embedded_cluster: Cluster, kind_leader: tuple[Scene, Replica], kind: str
) -> None:
    scene, leader = kind_leader
    writer = Writer(embedded_cluster.rest.server)
    for obj in cluster():
        writer.write(obj)
    samples = [obj for obj in cluster() if obj["kind"] == kind]
    before, written = resident_bytes(leader), writer.statuses.total()

    search(
        Target(
            name=kind, inputs=changed(samples, fixed=FIXED), check=writer.write, most_seconds=MOST_SECONDS
        ),
        seed=SEED,
        examples=PER_KIND,
        shrinks=False,
    )()

    job = f"after-{kind.lower()}"
    scene.create_job(job, queue="good", cpus=1)
    scene.wait_admitted(job)
    scene.delete_job(job)
    assert writer.statuses.total() - written >= PER_KIND
    assert_leads_on(leader, lambda: leader.log().count(" deciding "))
    grown = resident_bytes(leader) - before
    print(
        f"{kind}: {dict(writer.statuses)}, memory {grown >> 20:+} MiB to {resident_bytes(leader) >> 20} MiB"
    )
    assert grown < MOST_GROWN_BYTES
