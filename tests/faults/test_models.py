"""The models of API server and Redis do what the faults rest on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import msgspec
import pytest

from api.kube import resources
from api.kube.client import Body
from api.kube.errors import Conflict, ServerError, Timeout
from queues.store.faults import StoreLocation
from queues.store.redis_store import RedisReservationStore
from tests.admission.controller.tenancy import make_object
from tests.faults.apiserver import ApiServer, Hitch, HitchKind
from tests.faults.client import ModelClient
from tests.faults.etcd import Etcd, Key
from tests.faults.loop import ShuffledLoop
from tests.faults.redis import ModelRedis

FLAVOR = Key("resourceflavors", "", "default")


@pytest.fixture
def loop() -> Iterator[ShuffledLoop]:
    made = ShuffledLoop(None)
    yield made
    made.abandon()


def make_server(loop: ShuffledLoop) -> ApiServer:
    """Return a server with one flavor."""
    etcd = Etcd()
    etcd.create(FLAVOR, make_object("ResourceFlavor", "default", {}), at="")
    return ApiServer(etcd, loop, random.Random(1), on_send=lambda _: None, on_commit=lambda _: None)


def label(server: ApiServer, value: str) -> Body:
    """Return a write of the flavor as it is now."""
    item = msgspec.json.decode(server.etcd.objects[FLAVOR].raw)
    item["metadata"]["labels"] = {"x": value}
    return Body(msgspec.json.encode(item))


def labels(server: ApiServer) -> dict[str, str]:
    return dict(server.etcd.objects[FLAVOR].item["metadata"].get("labels") or {})


def test_a_write_takes_effect_after_its_sender_has_given_it_up(loop: ShuffledLoop) -> None:
    server = make_server(loop)
    client = ModelClient(server, loop, "a")
    server.hitches.append(Hitch(kind=HitchKind.LATE, left=1, seconds=30.0))
    path = resources.RESOURCE_FLAVORS.path(None, "default")

    with pytest.raises(Timeout):
        loop.run_until_complete(client.request("PUT", path, body=label(server, "late"), timeout_seconds=5.0))
    assert labels(server) == {}
    loop.run_for(30.0)

    assert labels(server) == {"x": "late"}


def test_a_late_write_meets_a_conflict_if_the_object_has_changed(loop: ShuffledLoop) -> None:
    server = make_server(loop)
    client = ModelClient(server, loop, "a")
    server.hitches.append(Hitch(kind=HitchKind.LATE, left=1, seconds=5.0))
    path = resources.RESOURCE_FLAVORS.path(None, "default")

    late = loop.create_task(client.request("PUT", path, body=label(server, "late"), timeout_seconds=10.0))
    loop.run_for(1.0)
    loop.run_until_complete(client.request("PUT", path, body=label(server, "first"), timeout_seconds=1.0))

    with pytest.raises(Conflict):
        loop.run_until_complete(late)
    assert labels(server) == {"x": "first"}


def test_an_error_after_the_effect_has_the_effect(loop: ShuffledLoop) -> None:
    server = make_server(loop)
    client = ModelClient(server, loop, "a")
    server.hitches.append(Hitch(kind=HitchKind.ERROR_AFTER, left=1))
    path = resources.RESOURCE_FLAVORS.path(None, "default")

    with pytest.raises(ServerError):
        loop.run_until_complete(client.request("PUT", path, body=label(server, "1"), timeout_seconds=5.0))

    assert labels(server) == {"x": "1"}


def test_a_restored_etcd_numbers_its_changes_from_the_snapshot_on(loop: ShuffledLoop) -> None:
    etcd = make_server(loop).etcd
    snapshot = etcd.snapshot()
    etcd.edit(FLAVOR, lambda one: one["metadata"].update(labels={"x": "1"}))
    after = etcd.version

    etcd.restore(snapshot)
    etcd.edit(FLAVOR, lambda one: one["metadata"].update(labels={"x": "2"}))

    assert etcd.version == after
    assert etcd.objects[FLAVOR].item["metadata"]["labels"] == {"x": "2"}


def test_an_object_with_finalizers_outlives_its_deletion(loop: ShuffledLoop) -> None:
    etcd = make_server(loop).etcd
    etcd.edit(FLAVOR, lambda one: one["metadata"].update(finalizers=["kept"]))

    etcd.delete(FLAVOR, at="now")
    assert etcd.objects[FLAVOR].item["metadata"]["deletionTimestamp"] == "now"
    etcd.edit(FLAVOR, lambda one: one["metadata"].pop("finalizers"))

    assert FLAVOR not in etcd.objects


def make_redis(loop: ShuffledLoop) -> tuple[ModelRedis, RedisReservationStore]:
    model = ModelRedis(loop, random.Random(1), on_call=lambda *_: None)
    store = RedisReservationStore(model.client_of("a"), place=StoreLocation(address="model"))
    return model, store


def test_redis_loses_what_was_written_in_its_last_second_and_nothing_else(loop: ShuffledLoop) -> None:
    model, store = make_redis(loop)
    loop.run_until_complete(store.seed_fence(3))
    loop.run_for(5.0)
    loop.run_until_complete(store.seed_fence(4))
    loop.run_for(0.5)

    model.restart(loses_seconds=1.0, takes_seconds=0.0)

    assert loop.run_until_complete(store.highest_fence()) == 3


def test_a_hung_redis_carries_out_later_what_was_given_up(loop: ShuffledLoop) -> None:
    model, store = make_redis(loop)
    loop.run_until_complete(store.seed_fence(3))
    model.hung_until = loop.time() + 2.0

    given_up = loop.create_task(asyncio.wait_for(store.seed_fence(5), 0.1))
    loop.run_until_complete(asyncio.wait([given_up]))
    assert given_up.exception() is not None
    loop.run_for(3.0)

    assert loop.run_until_complete(store.highest_fence()) == 5
