"""The levels of pending and running Workloads under LeastAttained, and when time alone changes them."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from admission.preemption.least_attained import (
    LeastAttained,
    ages,
    ages_at,
    expected_end_level,
    pending_level,
    predicted_level,
    waiting_since,
)
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.jobs.resource_requests import PodSetRequests
from api.policy import AdmissionPolicy, Ordering, OrderingMode, PreemptionRules
from api.workload import Workload
from queues.estimates.runtime_estimate import Estimate, Source
from queues.pending.least_attained import FIRST
from tests.builders import (
    World,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_workload,
    released,
    reserved,
)

GPU = "nvidia.com/gpu"
AGEING = Ordering(age_seconds=100, level_ends=(1000.0, 5000.0))
NEVER = Ordering(age_seconds=None, level_ends=(1000.0, 5000.0))
NEW = make_workload("new", at=1000.0)
PREEMPTED = replace(released(reserved(NEW), at=1500.0), accumulated_execution_seconds=60)


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(NEW, 1000.0, id="its creation"),
        pytest.param(PREEMPTED, 1500.0, id="its eviction, once it has run"),
        pytest.param(
            replace(PREEMPTED, accumulated_execution_seconds=0),
            1000.0,
            id="its creation, if it has never run",
        ),
    ],
)
def test_a_workload_is_pending_since(workload: Workload, want: float) -> None:
    assert waiting_since(workload) == want


@pytest.mark.parametrize(
    ("ordering", "now", "want", "want_at"),
    [
        pytest.param(AGEING, 1000.0, 0, 1100.0, id="none yet"),
        pytest.param(AGEING, 1099.0, 0, 1100.0, id="none just before"),
        pytest.param(AGEING, 1100.0, 1, 1200.0, id="one at its very end"),
        pytest.param(AGEING, 1250.0, 2, 1300.0, id="two"),
        pytest.param(NEVER, 99_999.0, 0, inf, id="none without ageing, ever"),
    ],
)
def test_the_ages_that_a_workload_has_waited(
    ordering: Ordering, now: float, want: int, want_at: float
) -> None:
    assert ages(NEW, ordering, now=now) == want
    assert ages_at(NEW, ordering, now=now) == want_at


@pytest.mark.parametrize(
    ("ran", "now", "want"),
    [
        pytest.param(0, 1000.0, 0, id="the lowest that is served, without service"),
        pytest.param(124, 1000.0, 0, id="the same until its end"),
        pytest.param(125, 1000.0, 1, id="the next with 1000 device-seconds on eight devices"),
        pytest.param(625, 1000.0, 2, id="the last with 5000"),
        pytest.param(625, 1100.0, 1, id="one less for each age"),
        pytest.param(625, 1300.0, FIRST, id="first of all after three"),
        pytest.param(625, 9000.0, FIRST, id="and no less after many"),
    ],
)
def test_the_level_of_a_pending_workload(ran: int, now: float, want: int) -> None:
    workload = replace(NEW, accumulated_execution_seconds=ran)
    # Eight devices in two pod sets, whose requests are summed.
    requests = tuple(
        PodSetRequests(name=name, count=2, per_pod={GPU: 2, "cpu": 1000}) for name in ("driver", "workers")
    )

    assert pending_level(workload, requests, AGEING, now=now) == want


@pytest.mark.parametrize(
    ("seconds", "now", "want"),
    [
        pytest.param(60.0, 1000.0, 60, id="its estimate"),
        pytest.param(60.5, 1000.0, 61, id="its estimate in whole seconds, rounded up"),
        pytest.param(1e12, 1000.0, 2**31 - 1, id="the last, however long it is"),
        pytest.param(None, 1000.0, 2**31 - 1, id="the last, without an estimate"),
        pytest.param(60.0, 1100.0, FIRST, id="first of all, once it has waited for an age"),
    ],
)
def test_where_the_shortest_goes_first_the_level_is(seconds: float | None, now: float, want: int) -> None:
    estimate = None if seconds is None else Estimate(seconds=seconds, source=Source.JOB_DEADLINE)

    assert predicted_level(NEW, estimate, AGEING, now=now) == want


@pytest.mark.parametrize(
    ("seconds", "age_seconds", "unknown_seconds", "want"),
    [
        pytest.param(60.5, 100, 20, 1061, id="when it was queued and its estimate, in whole seconds"),
        pytest.param(500.0, 100, 20, 1100, id="no later than an age after that"),
        pytest.param(None, 100, None, 1100, id="an age after that, without an estimate"),
        pytest.param(None, 100, 20, 1020, id="what unknown run times count as, without an estimate"),
        pytest.param(None, 100, 500, 1100, id="no later than an age, without an estimate"),
        pytest.param(None, None, 20, 1020, id="what unknown run times count as, without an age"),
        pytest.param(500.0, None, 20, 1500, id="as late as it is, without an age"),
        pytest.param(None, None, None, 2**53, id="the last, without estimate, age and that"),
    ],
)
def test_where_the_earliest_expected_end_goes_first_the_level_is(
    seconds: float | None, age_seconds: int | None, unknown_seconds: int | None, want: int
) -> None:
    estimate = None if seconds is None else Estimate(seconds=seconds, source=Source.JOB_DEADLINE)
    ordering = Ordering(
        mode=OrderingMode.EARLIEST_EXPECTED_END, age_seconds=age_seconds, unknown_seconds=unknown_seconds
    )

    assert expected_end_level(1000.0, estimate, ordering) == want


@pytest.mark.parametrize(
    ("seconds", "unknown_seconds", "want"),
    [
        pytest.param(10.0, 20, 1010, id="its own end, if shorter than what unknown run times count as"),
        pytest.param(60.0, 20, 1020, id="that of an unknown run time, if longer"),
        pytest.param(60.0, None, 1060, id="its own end, where unknown run times count as an age"),
    ],
)
def test_where_the_earliest_expected_end_goes_first_a_learned_time_gives(
    seconds: float, unknown_seconds: int | None, want: int
) -> None:
    estimate = Estimate(seconds=seconds, source=Source.LEARNED)
    ordering = Ordering(
        mode=OrderingMode.EARLIEST_EXPECTED_END, age_seconds=100, unknown_seconds=unknown_seconds
    )

    assert expected_end_level(1000.0, estimate, ordering) == want


POLICY = AdmissionPolicy(
    name="turns",
    ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED, age_seconds=7200, level_ends=(1000.0, 5000.0)),
    # Levels are looked at once a minute.
    preemption=PreemptionRules(
        minimum_runtime_seconds=600, default_save_seconds=40, default_restart_seconds=20
    ),
)
# A full minute.
NOW = 120_000.0


def held_in(
    policy: AdmissionPolicy, *, gpus: int, ran: float, before: int = 0
) -> tuple[HeldWorkload, QueueState]:
    """Return a Workload that has run for `ran` seconds, and `before` in earlier attempts, with its queue."""
    queue = make_cluster_queue(groups=(make_group(default=64, resource=GPU),))
    pods = (make_pod_set(requests={GPU: gpus, "cpu": 4}),)
    workload = replace(make_workload("w", pod_sets=pods, at=500.0), accumulated_execution_seconds=before)
    world = World(now=NOW).put(policy, queue, reserved(workload, at=NOW - ran))
    cache = world.engine._cache
    return cache.held[workload.key], cache.queues["queue"]


@pytest.mark.parametrize(
    ("gpus", "ran", "before", "want_level", "want_next"),
    [
        pytest.param(1, 599, 0, None, NOW + 60, id="in none before its minimum run time"),
        pytest.param(1, 0, 9999, None, NOW + 600, id="in none then, whatever it received before"),
        pytest.param(1, 600, 0, 0, NOW + 420, id="the lowest that it has not left"),
        pytest.param(8, 600, 0, 1, NOW + 60, id="by devices times seconds"),
        pytest.param(1, 601, 400, 1, NOW + 4020, id="with what it received in earlier attempts"),
        pytest.param(8, 600, 25, 2, None, id="the last one, which it never leaves"),
        pytest.param(0, 600, 9999, 0, None, id="the lowest for ever without devices"),
    ],
)
def test_the_level_of_a_running_workload_and_the_next_look_at_it(
    gpus: int, ran: float, before: int, want_level: int | None, want_next: float | None
) -> None:
    held, queue = held_in(POLICY, gpus=gpus, ran=ran, before=before)
    index = LeastAttained()

    index.watch_running(held, queue, now=NOW)

    assert list(index.books["queue"].above(FIRST)) == ([] if want_level is None else [held])
    if want_level is not None:
        # It would be asked to save: 40 s for that and 20 s to restart.
        want_loss = max(1, gpus) * 60
        assert index.books["queue"].level_and_loss(held.key) == (want_level, want_loss)
    assert index.next_at(iter(["queue"])) == want_next


def test_a_look_moves_a_workload_up_only_when_it_is_due() -> None:
    held, queue = held_in(POLICY, gpus=1, ran=700)
    index = LeastAttained()
    index.watch_running(held, queue, now=NOW)

    assert not index.look(queue, now=NOW + 299)
    assert index.books["queue"].level_and_loss(held.key)[0] == 0
    assert index.look(queue, now=NOW + 300)
    assert index.books["queue"].level_and_loss(held.key)[0] == 1
    # It has been looked at, so it is not news any more.
    assert not index.look(queue, now=NOW + 300)


@pytest.mark.parametrize("change", ["released", "started again"])
def test_a_look_that_was_due_for_an_earlier_attempt_is_void(change: str) -> None:
    held, queue = held_in(POLICY, gpus=1, ran=700)
    index = LeastAttained()
    index.watch_running(held, queue, now=NOW)
    if change == "released":
        del queue.held[held.key]
    else:
        held.reserved_at = NOW + 1

    assert not index.look(queue, now=NOW + 300)


def test_a_released_workload_is_in_no_level() -> None:
    held, queue = held_in(POLICY, gpus=1, ran=700)
    index = LeastAttained()
    # Releasing what was never entered is no error.
    index.release(held)
    index.watch_running(held, queue, now=NOW)

    index.release(held)

    assert list(index.books["queue"].above(FIRST)) == []


def test_without_the_policy_no_queue_has_an_index() -> None:
    held, queue = held_in(AdmissionPolicy(name="plain", ordering=Ordering()), gpus=1, ran=700)
    index = LeastAttained()

    index.watch_running(held, queue, now=NOW)

    assert index.books == {}
    assert not index.look(queue, now=NOW + 9999)
    assert index.next_at(iter(["queue"])) is None


def test_the_next_instant_counts_ages_and_the_running_of_queues_with_pending_workloads() -> None:
    held, queue = held_in(POLICY, gpus=1, ran=700)
    index = LeastAttained()
    index.watch_running(held, queue, now=NOW)
    assert index.next_at(iter([])) is None

    index.watch_waiting(make_workload("first", at=NOW - 7100), AGEING, now=NOW)
    index.watch_waiting(make_workload("second", at=NOW - 7050), AGEING, now=NOW)
    index.watch_waiting(make_workload("never", at=NOW), NEVER, now=NOW)

    assert index.next_at(iter([])) == NOW + 50
    assert [key.name for key in index.aged(now=NOW + 49)] == []
    assert [key.name for key in index.aged(now=NOW + 50)] == ["second"]
    assert index.next_at(iter(["queue"])) == NOW + 100
    assert [key.name for key in index.aged(now=NOW + 100)] == ["first"]
    assert index.next_at(iter(["queue", "unknown"])) == NOW + 300
