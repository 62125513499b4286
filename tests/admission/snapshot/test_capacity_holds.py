"""Capacity holds by the Workload that each is for: how long they last and what prolongs them."""

from __future__ import annotations

import pytest

from admission.snapshot.capacity_holds import CapacityHolds
from admission.snapshot.hold_totals import HeldRoom
from api.workload import Admission
from queues.profile.holds import Hold
from tests.admission.snapshot.small_cluster import GPU, key_of
from tests.builders import World, make_cluster_queue, make_workload


def make_room(
    *victims: str, until: float = 100.0, uid: str = "uid of w", name: str = "w", used: int = 1
) -> HeldRoom:
    hold = Hold(
        key=key_of(name),
        uid=uid,
        cluster_queue="queue",
        priority=0,
        admission=Admission(cluster_queue="queue", pod_sets=()),
        victims=tuple(map(key_of, victims)),
        until=until,
    )
    return HeldRoom(hold=hold, usage={GPU: used}, places=())


@pytest.mark.parametrize(
    ("second", "want_victims", "want_until"),
    [
        pytest.param(make_room("v2", until=200), ["v1", "v2"], 200, id="a further victim prolongs it"),
        pytest.param(make_room("v0", until=50), ["v0", "v1"], 100, id="a further victim never shortens it"),
        pytest.param(make_room("v1", until=200), ["v1"], 100, id="the same victim does not prolong it"),
        pytest.param(make_room(until=200), ["v1"], 100, id="an attempt without a victim does not either"),
        pytest.param(
            make_room("v2", until=200, uid="another"),
            ["v2"],
            200,
            id="a new Workload of the same name replaces it",
        ),
    ],
)
def test_a_second_hold_of_a_workload(second: HeldRoom, want_victims: list[str], want_until: float) -> None:
    holds = CapacityHolds()

    assert holds.put(make_room("v1"))
    assert holds.put(second)

    hold = holds.kept[key_of("w")].hold
    assert ([key.name for key in hold.victims], hold.until) == (want_victims, want_until)


def expired(*victims: str) -> CapacityHolds:
    """Return the holds after that of a Workload, which still waits, has expired."""
    world = World().put(make_cluster_queue(quota=4), make_workload("w"))
    queues = world.engine._cache.snapshot().queues
    pending = queues["queue"].pending.members.get(key_of("w"))
    assert pending is not None
    holds = CapacityHolds()
    holds.put(make_room(*victims, uid=pending.workload.uid))
    assert [room.hold.key for room in holds.take_ended(queues, now=100.0)] == [key_of("w")]
    assert not holds.kept
    assert not holds.is_empty
    return holds


def uid_of_w() -> str:
    return make_workload("w").uid


@pytest.mark.parametrize(
    ("room", "is_fresh", "is_kept"),
    [
        pytest.param(make_room("v1", uid=uid_of_w()), False, False, id="not again for one of its victims"),
        pytest.param(make_room("v1", "v3", uid=uid_of_w()), False, True, id="again for a further victim"),
        pytest.param(make_room("v1", uid="another"), False, True, id="for a new Workload of the same name"),
        pytest.param(
            make_room("v1", uid=uid_of_w()), True, True, id="again where it evicted victims in this cycle"
        ),
    ],
)
def test_once_a_hold_has_expired_capacity_is_kept(room: HeldRoom, is_fresh: bool, is_kept: bool) -> None:
    holds = expired("v1", "v2")

    assert holds.put(room, is_fresh=is_fresh) is is_kept
    assert (key_of("w") in holds.kept) is is_kept


def test_a_hold_is_dropped_whether_it_is_kept_expired_or_unknown() -> None:
    holds = expired("v1")
    holds.drop(key_of("w"))
    assert holds.is_empty

    holds.put(make_room("v1"))
    holds.drop(key_of("w"))
    holds.drop(key_of("w"))
    assert holds.is_empty


def test_the_next_end_is_that_of_the_hold_that_expires_first() -> None:
    holds = CapacityHolds()
    assert holds.next_end_at() is None

    for name, until in (("w", 100.0), ("x", 50.0), ("y", 70.0)):
        holds.put(make_room(name=name, until=until))
    assert holds.next_end_at() == 50.0

    holds.drop(key_of("x"))
    assert holds.next_end_at() == 70.0
