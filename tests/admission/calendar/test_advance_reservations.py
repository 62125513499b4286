"""Advance reservations in decisions: what is kept for which Workloads, what runs before, what is evicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from api.keys import OPPORTUNISTIC, RESERVATION, WORKLOAD_TYPE
from api.policy import AdmissionPolicy, Backfill, BackfillMode, CapacityReservation
from api.queueing import LocalQueue
from api.reasons import PendingReason
from tests.admission.calendar.test_quota_windows import window
from tests.admission.timed import TimedWorld
from tests.builders import NAMESPACE, make_cluster_queue, make_cohort
from tests.examples import trying

T = 1000.0
JOINS = {RESERVATION: "big"}


def keep(
    gpus: int, start: float, end: float, *, name: str = "big", queue: str = "queue"
) -> CapacityReservation:
    """Return a reservation of GPUs for LocalQueue `queue`, by seconds after T."""
    return CapacityReservation(
        name=name,
        local_queue=(NAMESPACE, queue),
        start_at=T + start,
        end_at=T + end,
        amounts={("default", "gpu"): gpus},
    )


def make_policy(*reservations: CapacityReservation, **fields: Any) -> AdmissionPolicy:
    return AdmissionPolicy(name="policy", reservations=reservations, **fields)


def make_world(*reservations: CapacityReservation, quota: int = 8, **fields: Any) -> TimedWorld:
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=quota), make_policy(*reservations, **fields))
    return world


def problems(world: TimedWorld) -> tuple[str, ...]:
    view = world.engine.queues.policy_view("policy")
    assert view is not None
    return view.calendar_problems


def test_what_is_kept_is_free_for_its_members_at_its_start() -> None:
    world = make_world(keep(6, 100, 500))
    world.submit("member", 6, runs=50, annotations=JOINS)
    world.submit("long", 4, runs=300, at=T + 1)
    world.submit("short", 4, runs=50, at=T + 2)

    world.run()

    assert world.started == {"short": T + 2, "member": T + 100, "long": T + 500}
    assert world.evicted == {}


def test_a_workload_that_ends_in_time_or_leaves_it_free_starts_and_one_without_an_estimate_waits() -> None:
    world = make_world(keep(6, 100, 500))
    world.submit("beside", 2, runs=900)
    world.submit("silent", 1, runs=10, says=0, at=T + 1)
    world.submit("in-time", 5, runs=80, at=T + 2)
    world.submit("too-late", 1, runs=99, at=T + 3)

    world.run(until=T + 450)

    assert world.started == {"beside": T, "in-time": T + 2}
    assert world.said["too-late"][0] == (
        "fits now, but may still run when reservation big keeps 6 gpu of flavor default from "
        "1970-01-01T00:18:20Z until 1970-01-01T00:25:00Z"
    )


def test_it_is_kept_while_it_is_unused_and_freed_at_its_end() -> None:
    world = make_world(keep(6, 100, 200))
    world.submit("other", 4, runs=10, at=T + 120)

    world.run()

    assert world.started == {"other": T + 200}


def test_members_use_it_up_and_what_they_leave_stays_kept() -> None:
    world = make_world(keep(6, 100, 500))
    world.submit("first", 3, runs=300, annotations=JOINS, at=T + 110)
    world.submit("other", 3, runs=10, at=T + 120)
    world.submit("small", 2, runs=10, at=T + 121)
    world.submit("second", 3, runs=50, annotations=JOINS, at=T + 130)

    world.run()

    assert world.started["first"] == T + 110
    assert world.started["small"] == T + 121
    assert world.started["second"] == T + 130
    assert world.started["other"] == T + 500


def test_members_that_end_leave_it_to_other_members_alone() -> None:
    world = make_world(keep(8, 100, 500))
    world.submit("first", 8, runs=50, annotations=JOINS, at=T + 100)
    world.submit("other", 1, runs=10, at=T + 120)
    world.submit("second", 8, runs=50, annotations=JOINS, at=T + 300)

    world.run()

    assert world.started == {"first": T + 100, "second": T + 300, "other": T + 500}


def test_a_member_may_run_past_the_end_like_any_other() -> None:
    world = make_world(keep(8, 100, 200))
    world.submit("member", 8, runs=500, annotations=JOINS)
    world.submit("other", 8, runs=10, at=T + 150)

    world.run()

    assert world.started == {"member": T + 100, "other": T + 600}


def test_a_workload_that_outruns_its_estimate_is_evicted_before_the_start() -> None:
    world = make_world(keep(8, 100, 500))
    world.submit("liar", 4, runs=900, says=50)
    world.submit("member", 8, runs=50, annotations=JOINS)

    world.run(until=T + 480)

    assert world.evicted == {"liar": [T + 90]}
    assert world.started["member"] == T + 100


def test_only_workloads_whose_room_is_needed_are_evicted_the_last_started_first() -> None:
    world = make_world(keep(4, 100, 500))
    for number in range(4):
        world.submit(f"liar-{number}", 2, runs=900, says=40, at=T + number)
    world.submit("member", 4, runs=50, annotations=JOINS)

    world.run(until=T + 150)

    assert set(world.evicted) == {"liar-2", "liar-3"}
    assert world.started["member"] == T + 100


def test_opportunistic_work_runs_there_whatever_its_length_and_is_evicted() -> None:
    world = make_world(keep(8, 100, 500))
    world.submit("gap", 8, runs=900, says=0, annotations={OPPORTUNISTIC: "true"})
    world.submit("late", 8, runs=900, annotations={OPPORTUNISTIC: "true"}, at=T + 95)
    world.submit("member", 8, runs=50, annotations=JOINS)

    world.run(until=T + 300)

    assert world.started == {"gap": T, "member": T + 100}
    assert world.evicted == {"gap": [T + 90]}


def test_what_may_not_be_stopped_starts_only_on_an_enforced_limit() -> None:
    world = make_world(keep(8, 100, 500))
    inference = {WORKLOAD_TYPE: "inference"}
    world.submit("serving", 1, runs=50, annotations=inference)
    world.submit("limited", 1, runs=50, annotations=inference, maximum_execution_time_seconds=60)

    world.run(until=T + 60)

    assert world.started == {"limited": T}


def test_a_workload_that_ran_before_the_reservation_was_made_stays() -> None:
    world = make_world()
    world.submit("before", 8, runs=300)
    world.run(until=T + 10)

    world.put(make_policy(keep(8, 100, 500)))
    world.submit("member", 8, runs=50, annotations=JOINS)
    world.run()

    assert world.evicted == {}
    assert world.started["member"] == T + 300


def test_others_of_the_cohort_leave_it_free_too() -> None:
    world = TimedWorld(now=T)
    world.put(
        make_cohort("all"),
        make_cluster_queue(quota=4, cohort="all"),
        make_cluster_queue("other", quota=4, cohort="all"),
        make_policy(keep(8, 100, 200)),
    )
    world.submit("borrower", 2, runs=300, queue="other")
    world.submit("member", 8, runs=50, annotations=JOINS)

    world.run()

    assert world.started == {"member": T + 100, "borrower": T + 200}


def test_promises_are_made_around_it() -> None:
    rules = Backfill(mode=BackfillMode.EASY, resolution_seconds=1, ending_seconds=0)
    world = make_world(keep(8, 100, 200), backfill=rules)
    world.submit("running", 8, runs=70)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("short", 8, runs=20, at=T + 2)

    world.run()

    assert world.promised("head") == [T + 200]
    assert world.started["short"] == T + 70
    assert world.started["head"] == T + 200


@pytest.mark.parametrize(
    ("annotation", "queue", "now", "want"),
    [
        ("none", "queue", 0, (PendingReason.MISCONFIGURED, "policy policy has no such reservation")),
        ("big", "second", 0, (PendingReason.MISCONFIGURED, "it is kept for LocalQueue team/queue")),
        ("big", "queue", 600, (PendingReason.MISCONFIGURED, "it ended at 1970-01-01T00:25:00Z")),
        ("big", "queue", 50, (PendingReason.WAITING_FOR_QUOTA, "starts at 1970-01-01T00:18:20Z")),
        ("big", "queue", 100, None),
    ],
)
def test_a_workload_that_names_a_reservation_it_cannot_use_now_gets_a_reason(
    annotation: str, queue: str, now: float, want: tuple[PendingReason, str] | None
) -> None:
    world = make_world(keep(4, 100, 500))
    world.put(LocalQueue(namespace=NAMESPACE, name="second", cluster_queue="queue"))
    world.now = T + now
    world.submit("w", 1, runs=10, queue=queue, annotations={RESERVATION: annotation})

    world.run(until=world.now)

    problem = world.engine.workloads.queue_problem(world.get("w"))
    if want is None:
        assert problem is None
        assert world.started == {"w": T + now}
        return
    assert problem is not None
    assert problem[0] is want[0]
    assert problem[1].endswith(want[1])
    assert world.started == {}


def test_a_member_is_expected_at_the_start_of_its_reservation() -> None:
    world = make_world(keep(4, 100, 500))
    world.submit("member", 4, runs=10, annotations=JOINS)
    world.submit("other", 4, runs=10, annotations={RESERVATION: "none"})
    world.run(until=T + 5)

    assert world.engine.promises.expected_start(world.get("member").key) == T + 100
    assert world.engine.promises.expected_start(world.get("other").key) is None


def test_a_workload_without_any_policy_gets_a_reason_too() -> None:
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=4))
    world.submit("w", 1, runs=10, annotations=JOINS)

    world.run()

    assert world.started == {}
    assert world.engine.workloads.queue_problem(world.get("w")) == (
        PendingReason.MISCONFIGURED,
        'berth.dev/reservation is "big": there is no such reservation',
    )


@pytest.mark.parametrize(
    ("reservations", "want"),
    [
        pytest.param(
            [keep(9, 100, 200)],
            "spec.reservations[0].resources[0].amount is 9: ClusterQueue queue can have 8 gpu of flavor "
            "default at 1970-01-01T00:18:20Z; nothing is reserved",
            id="more than the quota",
        ),
        pytest.param(
            [keep(5, 100, 200), keep(4, 150, 300, name="second")],
            "spec.reservations[1].resources[0].amount is 4: ClusterQueue queue can have 3 gpu of flavor "
            "default at 1970-01-01T00:19:10Z beside other reservations; nothing is reserved",
            id="more than another reservation leaves",
        ),
        pytest.param(
            [keep(4, 100, 200, queue="gone")],
            'spec.reservations[0].localQueue is "gone": there is no such LocalQueue in namespace team',
            id="no such LocalQueue",
        ),
        pytest.param(
            [replace(keep(4, 100, 200), amounts={("gold", "gpu"): 1})],
            'spec.reservations[0].resources[0] is "gold/gpu": ClusterQueue queue has quota for default/gpu',
            id="no such flavor",
        ),
    ],
)
def test_one_that_cannot_be_met_is_reported_and_keeps_nothing(
    reservations: list[CapacityReservation], want: str
) -> None:
    world = make_world(*reservations)
    (problem,) = problems(world)
    assert problem == want

    world.submit("w", 3, runs=10, at=T + 160)
    world.run(until=T + 170)

    assert world.started == {"w": T + 160}


def test_one_that_a_quota_window_cuts_short_cannot_be_met() -> None:
    world = make_world(keep(8, 100, 500), quota_windows=(window("less", 200, 300, 4),))

    (problem,) = problems(world)

    assert problem.startswith(
        "spec.reservations[0].resources[0].amount is 8: ClusterQueue queue can have 4 gpu"
    )


def test_one_comes_into_force_with_its_local_queue_and_goes_with_it() -> None:
    world = make_world(keep(8, 0, 500, queue="later"))
    assert len(problems(world)) == 1

    world.put(LocalQueue(namespace=NAMESPACE, name="later", cluster_queue="queue"))
    assert problems(world) == ()
    world.submit("other", 1, runs=10)
    world.run(until=T + 5)
    assert world.started == {}

    world.remove(LocalQueue, (NAMESPACE, "later"))
    world.run(until=T + 10)
    assert world.started == {"other": T + 5}


def test_a_controller_that_starts_within_a_reservation_knows_its_members() -> None:
    first = make_world(keep(8, 0, 500))
    first.submit("member", 5, runs=300, annotations=JOINS)
    first.run(until=T + 10)

    second = TimedWorld(now=T + 10)
    second.put(make_cluster_queue(quota=8), make_policy(keep(8, 0, 500)), first.get("member"))
    second.submit("other", 1, runs=10)
    second.submit("member-2", 3, runs=10, annotations=JOINS)
    second.run(until=T + 20)

    assert second.started == {"member-2": T + 10}


@trying(80)
@given(
    amount=st.integers(1, 8),
    jobs=st.lists(
        st.tuples(
            st.integers(0, 130), st.integers(1, 6), st.integers(1, 150), st.sampled_from([None, 0, 5, 20])
        ),
        max_size=8,
    ),
    backfill=st.booleans(),
)
@example(amount=1, jobs=[(27, 3, 34, 5), (31, 5, 30, 20)], backfill=False)
def test_whatever_the_others_say_of_themselves_what_is_kept_is_there_at_its_start(
    amount: int, jobs: list[tuple[int, int, int, int | None]], backfill: bool
) -> None:
    rules = Backfill(mode=BackfillMode.EASY, resolution_seconds=1, ending_seconds=0) if backfill else None
    world = make_world(keep(amount, 60, 120), backfill=rules)
    world.submit("member", amount, runs=20, annotations=JOINS)
    for number, (at, gpus, runs, says) in enumerate(jobs):
        world.submit(f"job-{number}", gpus, runs=runs, says=says, at=T + at)

    world.run(until=T + 400)

    assert world.started["member"] == T + 60
