"""Pending queues: order, parking, waking, back-off, the sticky preemptor.

Rules are those of Kueue's documentation of queueing strategies and of its pkg/cache/queue/cluster_queue.go.
"""

from __future__ import annotations

from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from api.jobs.resource_requests import PodSetRequests
from api.queueing import QueueingStrategy
from api.workload import Workload, WorkloadKey
from queues.pending.lanes import ShapeClass
from queues.pending.least_attained import FIRST
from queues.pending.pending_queue import FlavorScan, Pending, PendingQueue, RequeueCause
from tests.builders import NAMESPACE, make_workload
from tests.queues.popping import pop_all

STRICT = QueueingStrategy.STRICT_FIFO
BEST_EFFORT = QueueingStrategy.BEST_EFFORT_FIFO
NO_FIT = RequeueCause.NO_FIT
TOO_LONG = RequeueCause.TOO_LONG


def make_pending(
    name: str, *, at: float = 0.0, priority: int = 0, shape: str = "", retry_at: float = 0.0, **fields: Any
) -> Pending:
    """Return an entry; the shape is its own name unless given."""
    return Pending(
        workload=make_workload(name, at=at, priority=priority, **fields),
        requests=(PodSetRequests(name="main", count=1, per_pod={"gpu": 1}),),
        shape=(shape or name).encode(),
        queued_at=at,
        retry_at=retry_at,
    )


def make_queue(*entries: Pending, strategy: QueueingStrategy = BEST_EFFORT, now: float = 0.0) -> PendingQueue:
    queue = PendingQueue("queue", strategy)
    for entry in entries:
        queue.push_or_update(entry, now=now)
        queue.validate()
    return queue


def any_namespace(workload: Workload) -> bool:
    del workload
    return True


def fail_head(queue: PendingQueue, reason: RequeueCause = NO_FIT, *, now: float = 0.0) -> str:
    """Pop the head and put it back for the reason."""
    head = queue.pop()
    assert head is not None
    queue.requeue(head, reason, now=now)
    queue.validate()
    return head.key.name


def test_higher_priority_goes_first_then_the_older_then_the_uid() -> None:
    queue = make_queue(
        make_pending("young", at=2),
        make_pending("old", at=1),
        make_pending("b", at=1, priority=-1),
        make_pending("a", at=1, priority=-1),
        make_pending("important", at=9, priority=5),
        make_pending("large", at=9, priority=4, shape="large"),
    )

    want = ["important", "large", "old", "young", "a", "b"]
    assert [one.key.name for one in queue.in_order()] == want
    assert pop_all(queue) == want


def test_entries_of_equal_shape_keep_their_order_among_others() -> None:
    queue = make_queue(
        make_pending("s1", at=1, shape="small"),
        make_pending("large", at=2),
        make_pending("s2", at=3, shape="small"),
    )

    assert pop_all(queue) == ["s1", "large", "s2"]


def test_an_update_moves_the_entry() -> None:
    queue = make_queue(make_pending("a", at=1), make_pending("b", at=2))

    queue.push_or_update(make_pending("b", at=2, priority=9), now=0)

    assert pop_all(queue) == ["b", "a"]


def test_best_effort_parks_what_does_not_fit_and_goes_on() -> None:
    queue = make_queue(make_pending("a", at=1), make_pending("b", at=2))

    assert fail_head(queue) == "a"

    assert queue.members.is_parked(WorkloadKey(NAMESPACE, "a"))
    assert pop_all(queue) == ["b"]


def test_strict_fifo_puts_the_head_back_on_top() -> None:
    queue = make_queue(make_pending("a", at=1), make_pending("b", at=2), strategy=STRICT)

    assert fail_head(queue) == "a"
    assert fail_head(queue) == "a"
    assert queue.statistics().parked == 0


def test_strict_fifo_lets_others_pass_a_head_of_the_wrong_namespace() -> None:
    queue = make_queue(make_pending("a", at=1), make_pending("b", at=2), strategy=STRICT)

    fail_head(queue, RequeueCause.NAMESPACE_MISMATCH)

    assert pop_all(queue) == ["b"]


def test_what_does_not_fit_for_one_is_not_tried_for_equal_workloads() -> None:
    queue = make_queue(
        make_pending("l1", at=1, shape="large"),
        make_pending("l2", at=2, shape="large"),
        make_pending("l3", at=3, shape="large", priority=0),
        make_pending("small", at=4),
    )

    fail_head(queue)

    assert (queue.statistics().active, queue.statistics().parked) == (1, 3)
    assert pop_all(queue) == ["small"]


def test_a_newcomer_of_a_parked_class_is_parked_with_it() -> None:
    queue = make_queue(make_pending("l1", shape="large"))
    fail_head(queue)

    moved = queue.push_or_update(make_pending("l2", shape="large"), now=0)

    assert not moved
    assert queue.statistics().parked == 2
    assert not queue.has_head()


def test_equal_requests_of_another_priority_are_another_class() -> None:
    queue = make_queue(make_pending("a", shape="x", priority=1), make_pending("b", shape="x"))

    fail_head(queue)

    assert pop_all(queue) == ["b"]


def test_a_failure_for_other_reasons_parks_the_one_alone() -> None:
    queue = make_queue(make_pending("a", at=1, shape="x"), make_pending("b", at=2, shape="x"))

    fail_head(queue, RequeueCause.GENERIC)

    assert pop_all(queue) == ["b"]


@pytest.mark.parametrize(
    "reason",
    [
        RequeueCause.FAILED_AFTER_NOMINATION,
        RequeueCause.PENDING_PREEMPTION,
        RequeueCause.PREEMPTION_FAILED,
    ],
)
def test_a_passing_failure_leaves_it_active(reason: RequeueCause) -> None:
    queue = make_queue(make_pending("a"))

    fail_head(queue, reason)

    assert queue.statistics().parked == 0


def test_waking_brings_all_parked_ones_back_in_order() -> None:
    queue = make_queue(
        make_pending("a", at=1, shape="x"), make_pending("b", at=2, shape="x"), make_pending("c", at=3)
    )
    fail_head(queue)
    fail_head(queue, RequeueCause.GENERIC)

    assert queue.wake(now=0, may_enter=any_namespace)

    assert pop_all(queue) == ["a", "b", "c"]


def test_waking_leaves_workloads_of_other_namespaces_parked() -> None:
    queue = make_queue(make_pending("a"))
    fail_head(queue, RequeueCause.NAMESPACE_MISMATCH)

    assert not queue.wake(now=0, may_enter=lambda workload: False)
    assert queue.statistics().parked == 1


def test_a_queue_woken_while_the_head_was_tried_keeps_it_active() -> None:
    queue = make_queue(make_pending("a"))
    head = queue.pop()
    assert head is not None

    queue.wake(now=0, may_enter=any_namespace)
    queue.requeue(head, NO_FIT, now=0)

    assert queue.statistics().parked == 0


def test_one_with_flavors_left_to_try_stays_active() -> None:
    queue = make_queue(make_pending("a"))
    head = queue.pop()
    assert head is not None
    head.scan = FlavorScan(tried=({"gpu": 0},), generation=1, cycle=1, shape=head.shape)

    assert not queue.requeue(head, NO_FIT, now=0)


def test_one_that_backs_off_is_parked_until_its_time() -> None:
    queue = make_queue(make_pending("a", retry_at=60.0), now=10.0)

    assert queue.parked_alone.next_retry_at() == 60.0
    assert not queue.release_due(now=59.0)
    assert queue.release_due(now=60.0)

    assert pop_all(queue) == ["a"]
    assert queue.parked_alone.next_retry_at() is None


def test_one_that_may_not_requeue_waits_until_it_may() -> None:
    queue = make_queue(make_pending("a", retry_at=inf))
    queue.wake(now=1e9, may_enter=any_namespace)
    assert queue.statistics().parked == 1
    assert queue.parked_alone.next_retry_at() is None

    queue.push_or_update(make_pending("a"), now=0)

    assert pop_all(queue) == ["a"]


def test_a_status_update_of_a_parked_one_does_not_wake_it_but_a_change_of_its_spec_does() -> None:
    queue = make_queue(make_pending("a", generation=1))
    fail_head(queue, RequeueCause.GENERIC)

    assert not queue.push_or_update(make_pending("a", generation=1, resource_version="2"), now=0)
    assert queue.statistics().parked == 1
    assert queue.push_or_update(make_pending("a", generation=2), now=0)
    assert queue.statistics().parked == 0


def test_best_effort_keeps_the_one_that_evicted_others_first() -> None:
    queue = make_queue(make_pending("a", at=1), make_pending("b", at=2))
    fail_head(queue, RequeueCause.PENDING_PREEMPTION)
    queue.push_or_update(make_pending("important", priority=9), now=0)

    assert [one.key.name for one in queue.in_order()] == ["a", "important", "b"]
    assert pop_all(queue) == ["a", "important", "b"]


def test_strict_fifo_does_not_prefer_the_one_that_evicted_others() -> None:
    queue = make_queue(make_pending("a", at=1), strategy=STRICT)
    fail_head(queue, RequeueCause.PENDING_PREEMPTION)
    queue.push_or_update(make_pending("important", priority=9), now=0)

    assert pop_all(queue) == ["important", "a"]


def test_the_preemptor_is_forgotten_once_it_fails_otherwise_or_leaves() -> None:
    queue = make_queue(make_pending("a", at=1))
    fail_head(queue, RequeueCause.PENDING_PREEMPTION)
    assert queue.precedence.preemptor == WorkloadKey(NAMESPACE, "a")
    fail_head(queue, RequeueCause.FAILED_AFTER_NOMINATION)
    assert queue.precedence.preemptor is None

    fail_head(queue, RequeueCause.PENDING_PREEMPTION)
    queue.discard(WorkloadKey(NAMESPACE, "a"))

    assert queue.precedence.preemptor is None
    assert len(queue) == 0


def test_an_emptied_parked_class_still_parks_newcomers_until_the_queue_is_woken() -> None:
    queue = make_queue(make_pending("a", shape="x"))
    fail_head(queue)
    queue.discard(WorkloadKey(NAMESPACE, "a"))

    assert not queue.push_or_update(make_pending("b", shape="x"), now=0)
    queue.wake(now=0, may_enter=any_namespace)

    assert pop_all(queue) == ["b"]


def test_entries_that_left_do_not_pile_up() -> None:
    queue = make_queue(make_pending("first", at=0, priority=1, shape="x"))
    fail_head(queue)
    for index in range(1000):
        queue.push_or_update(make_pending(f"w{index}", at=index, priority=1, shape="x"), now=0)
        queue.discard(WorkloadKey(NAMESPACE, f"w{index}"))
    queue.validate()

    lanes = queue._classes._lanes.values()
    held = sum(len(class_._all.entries) for lane in lanes for class_ in lane.classes.values())
    assert held < 200


# --- levels ----------------------------------------------------------------------------------------------


def leveled(name: str, level: int, *, is_apart: bool = False) -> Pending:
    pending = make_pending(name, shape="x")
    pending.level, pending.is_apart = level, is_apart
    return pending


@pytest.mark.parametrize(
    ("is_apart", "want_tried"),
    [
        pytest.param(False, ["brief", "other"], id="where levels only order, for those of equal requests"),
        pytest.param(True, ["brief", "longer", "other"], id="where they preempt others, for its own"),
    ],
)
def test_a_refusal_counts_for_other_levels(is_apart: bool, want_tried: list[str]) -> None:
    other = make_pending("other")
    other.level = 9
    queue = make_queue(leveled("longer", 8, is_apart=is_apart), leveled("brief", 7, is_apart=is_apart), other)

    tried = [fail_head(queue) for _ in want_tried]

    assert tried == want_tried
    assert queue.head() is None


def test_a_refusal_of_a_workload_that_has_waited_too_long_counts_for_it_alone() -> None:
    queue = make_queue(leveled("waited", FIRST), leveled("brief", 7))

    assert [fail_head(queue), fail_head(queue)] == ["waited", "brief"]


@given(
    places=st.lists(st.tuples(st.integers(FIRST, 5), st.integers(0, 9), st.booleans()), max_size=20),
    gone=st.sets(st.integers(0, 19)),
)
def test_the_order_is_by_level_and_age_whether_levels_are_kept_apart_or_not(
    places: list[tuple[int, int, bool]], gone: set[int]
) -> None:
    entries = [make_pending(f"w{index:02}", at=at, shape="x") for index, (_, at, _) in enumerate(places)]
    for entry, (level, _, is_apart) in zip(entries, places, strict=True):
        entry.level, entry.is_apart = level, is_apart
    queue = make_queue(*entries)
    for index in sorted(gone):
        queue.discard(WorkloadKey(NAMESPACE, f"w{index:02}"))
    left = [entry for index, entry in enumerate(entries) if index not in gone]

    assert pop_all(queue) == [
        one.key.name for one in sorted(left, key=lambda one: (one.level, one.queued_at, one.key.name))
    ]


# --- lengths ---------------------------------------------------------------------------------------------


def lasting(name: str, seconds: float, *, at: float, **fields: Any) -> Pending:
    pending = make_pending(name, at=at, shape="x", **fields)
    pending.seconds = seconds
    return pending


def test_of_those_that_would_delay_a_promise_only_the_shorter_are_tried() -> None:
    queue = make_queue(
        lasting("long", 900, at=1),
        lasting("longer", 1000, at=2),
        lasting("short", 60, at=3),
        lasting("middling", 800, at=4),
        lasting("as-long", 900, at=5),
        make_pending("other", at=6),
    )

    tried = [fail_head(queue, TOO_LONG) for _ in range(3)]

    assert tried == ["long", "short", "other"]
    assert queue.head() is None
    assert queue.statistics().parked == 6
    assert queue.members.is_parked(WorkloadKey(NAMESPACE, "longer"))


def test_the_limit_of_length_holds_until_the_queue_is_woken() -> None:
    queue = make_queue(lasting("long", 900, at=1), lasting("longer", 1000, at=2))
    fail_head(queue, TOO_LONG)
    queue.push_or_update(lasting("older", 950, at=0), now=0)
    assert queue.head() is None
    queue.push_or_update(lasting("brief", 10, at=3), now=0)
    assert pop_all(queue) == ["brief"]

    assert queue.wake(now=0, may_enter=any_namespace)

    assert pop_all(queue) == ["older", "long", "longer"]


def test_a_length_that_has_become_known_counts_at_once() -> None:
    queue = make_queue(lasting("long", 900, at=1), lasting("next", 1000, at=2))
    fail_head(queue, TOO_LONG)

    assert queue.push_or_update(lasting("next", 500, at=2), now=0)

    assert queue.head() == WorkloadKey(NAMESPACE, "next")


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=30),
    gone=st.sets(st.integers(0, 29)),
    limits=st.lists(st.integers(1, 300), min_size=1, max_size=4),
)
def test_the_first_below_any_limit_is_the_oldest_that_is_shorter(
    lengths: list[int], gone: set[int], limits: list[int]
) -> None:
    class_ = ShapeClass((0, 0, b"x"))
    members = [lasting(f"w{index}", length, at=index) for index, length in enumerate(lengths)]
    for ticket, member in enumerate(members, start=1):
        member.ticket = ticket
        class_.add(member)
    for limit in limits:
        class_.set_limit(limit)
        for index in sorted(gone)[: len(gone) // 2]:
            if index < len(members) and members[index].ticket:
                class_.discard(members[index])
        want = [one for one in members if one.ticket and one.seconds < limit]
        top = class_.top()
        assert (top[5] if top is not None else None) is (want[0] if want else None)


def test_what_has_no_room_stays_parked_and_the_rest_is_woken() -> None:
    queue = make_queue(make_pending("large", at=1), make_pending("small", at=2))
    fail_head(queue)
    fail_head(queue)

    queue.wake(now=0, may_enter=any_namespace, is_hopeless=lambda one: one.key.name == "large")

    assert pop_all(queue) == ["small"]
    assert queue.members.is_parked(WorkloadKey(NAMESPACE, "large"))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("tried", id="it was tried and failed in this cycle"),
        pytest.param("level", id="its level has changed"),
        pytest.param("woken", id="the queue was woken while it was tried"),
    ],
)
def test_a_workload_with_room_kept_comes_first_whatever_has_become_of_its_place(change: str) -> None:
    kept, other = leveled("kept", 5), leveled("other", 1)
    queue = make_queue(kept)
    assert queue.pop() is kept
    queue.precedence.prefer_holder(kept.workload)
    if change == "woken":
        queue.wake(now=0.0, may_enter=any_namespace)
    queue.requeue(kept, RequeueCause.ROOM_KEPT, now=0.0)
    queue.push_or_update(other, now=0.0)
    if change != "woken":
        queue.wake(now=0.0, may_enter=any_namespace)
    if change == "tried":
        assert queue.pop() is kept
        queue.requeue(kept, RequeueCause.FAILED_AFTER_NOMINATION, now=0.0)
    if change == "level":
        queue.push_or_update(leveled("kept", 4), now=0.0)

    assert pop_all(queue)[0] == "kept"
