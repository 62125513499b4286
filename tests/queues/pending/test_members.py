"""The members of a pending queue: each is in its class or parked alone, and can be asked about."""

from __future__ import annotations

import pytest

from api.reasons import PendingReason
from api.workload import WorkloadKey
from queues.pending.entries import Pending
from queues.pending.equivalence_classes import EquivalenceClasses
from queues.pending.members import Members
from queues.pending.parked_alone import ParkedAlone
from tests.builders import make_workload

REASON = PendingReason.WAITING_FOR_QUOTA, "couldn't fit"


def make_pending(name: str, *, shape: bytes = b"small") -> Pending:
    return Pending(workload=make_workload(name), requests=(), shape=shape, queued_at=0.0)


class Queue:
    """Members: one of the class `large`, which is parked with a reason, two of another, one parked alone."""

    def __init__(self) -> None:
        self.classes, self.alone = EquivalenceClasses(), ParkedAlone("queue", set())
        self.members = Members(self.classes, self.alone)
        self.large = make_pending("large", shape=b"large")
        self.first, self.second = make_pending("first"), make_pending("second")
        self.backing_off = make_pending("backing off")
        for pending in (self.large, self.first, self.second):
            self.members.add(pending)
        self.members.park(self.backing_off)
        self.classes.park(self.large)
        self.classes.set_reason(self.large, REASON)


def test_members_are_known_by_key() -> None:
    queue = Queue()

    assert len(queue.members) == 4
    assert list(queue.members.values()) == [queue.large, queue.first, queue.second, queue.backing_off]
    assert queue.members.get(queue.first.key) is queue.first
    assert queue.first.key in queue.members
    assert queue.members.get(WorkloadKey("team", "other")) is None
    assert WorkloadKey("team", "other") not in queue.members
    queue.members.validate()


@pytest.mark.parametrize(
    ("name", "is_active", "reason"),
    [
        pytest.param("large", False, REASON, id="not where its class is parked, for the reason of the class"),
        pytest.param("first", True, None, id="where its class is not parked"),
        pytest.param(
            "backing_off", False, None, id="not where it is parked alone, without a reason of a class"
        ),
    ],
)
def test_a_member_will_be_tried(name: str, is_active: bool, reason: object) -> None:
    queue = Queue()
    pending = getattr(queue, name)

    assert queue.members.is_active(pending) is is_active
    assert queue.members.is_parked(pending.key) is not is_active
    assert queue.members.reason_of(pending.key) == reason


def test_a_workload_that_is_not_here_is_not_parked_and_has_no_reason() -> None:
    members = Queue().members

    assert not members.is_parked(WorkloadKey("team", "other"))
    assert members.reason_of(WorkloadKey("team", "other")) is None


def test_a_workload_that_is_added_to_a_parked_class_is_parked_with_it() -> None:
    queue = Queue()
    equal = make_pending("equal", shape=b"large")

    queue.members.add(equal)

    assert queue.members.is_parked(equal.key)
    assert queue.members.parked_count() == 3
    queue.members.validate()


def test_the_groups_are_the_classes_and_then_each_that_is_parked_alone() -> None:
    queue = Queue()

    assert list(queue.members.groups()) == [
        (queue.large, 1, True),
        (queue.first, 2, False),
        (queue.backing_off, 1, True),
    ]
    assert queue.members.parked_count() == 2


@pytest.mark.parametrize("name", ["large", "first", "backing_off"])
def test_a_member_that_is_removed_is_nowhere(name: str) -> None:
    queue = Queue()
    pending = getattr(queue, name)

    queue.members.remove(pending)

    assert pending.key not in queue.members
    assert pending not in [first for first, _, _ in queue.members.groups()]
    assert len(queue.members) == 3
    queue.members.validate()


def test_the_first_active_members_are_taken_and_no_parked_one() -> None:
    queue = Queue()

    assert [queue.members.pop() for _ in range(3)] == [queue.first, queue.second, None]
    assert list(queue.members.values()) == [queue.large, queue.backing_off]
    queue.members.validate()


def test_a_member_in_no_bucket_is_noticed() -> None:
    queue = Queue()
    queue.alone.discard(queue.backing_off.key)

    with pytest.raises(AssertionError, match="backing off is in 0 buckets, not 1"):
        queue.members.validate()


def test_a_workload_in_a_bucket_that_is_no_member_is_noticed() -> None:
    queue = Queue()
    queue.alone.add(make_pending("stray"))

    with pytest.raises(AssertionError, match="classes hold 3 of 4"):
        queue.members.validate()
