"""Promised starts and backfill, on clusters of 8 GPUs where time passes from event to event."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from api.keys import EXPECTED_COMPLETION_TIME, EXPECTED_RUNTIME_SECONDS, JOB_DEADLINE_SECONDS, OPPORTUNISTIC
from api.node import NodeInfo
from api.objects.common import WireTaint
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, BackfillMode, Estimates, OnOverrun, Ordering, OrderingMode
from api.queueing import (
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    Topology,
)
from queues.estimates.estimator import Estimator, runtime_problem
from queues.estimates.runtime_estimate import Source
from queues.profile.planned_start import MoveCause
from tests.admission.timed import TimedWorld, key, make_policy, template
from tests.builders import (
    NAMESPACE,
    finished,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_quota,
    make_workload,
)

T = 1000.0
HOST = "kubernetes.io/hostname"


def make_world(mode: BackfillMode = BackfillMode.EASY, *, nominal: int = 8, **fields: Any) -> TimedWorld:
    """Return a world of one ClusterQueue; `strategy` is its queueing strategy."""
    strategy = fields.pop("strategy", QueueingStrategy.BEST_EFFORT_FIFO)
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=nominal, queueing_strategy=strategy), make_policy(mode, **fields))
    return world


@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_a_blocked_head_is_promised_the_end_of_what_it_waits_for_and_starts_then(
    strategy: QueueingStrategy,
) -> None:
    world = make_world(strategy=strategy)
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)

    world.run()

    assert world.promised("head") == [T + 100]
    assert world.started["head"] == T + 100


@pytest.mark.parametrize("strategy", list(QueueingStrategy))
def test_what_ends_before_the_promise_starts_at_once_and_what_does_not_waits(
    strategy: QueueingStrategy,
) -> None:
    world = make_world(strategy=strategy)
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("long", 1, runs=500, at=T + 2)
    world.submit("short", 1, runs=50, at=T + 3)

    world.run()

    assert world.started["short"] == T + 3
    assert world.started["head"] == T + 100
    assert world.started["long"] == T + 150
    assert world.said["long"][0].startswith("fits now, but would delay team/head, which is promised")
    assert world.evicted == {}


def test_a_team_does_not_read_the_name_of_another_teams_workload_that_it_would_delay() -> None:
    world = make_world()
    world.put(LocalQueue(namespace="other", name="queue", cluster_queue="queue"))
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("long", 1, runs=500, at=T + 2, namespace="other")

    world.run(until=T + 10)

    assert world.said["long"][0].startswith(
        "fits now, but would delay a Workload of another namespace, which is promised to start at"
    )


def test_what_leaves_the_promised_capacity_free_starts_however_long_it_runs() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 7, runs=50, at=T + 1)
    world.submit("beside", 1, runs=5000, at=T + 2)
    world.submit("too-much", 1, runs=5000, at=T + 3)

    world.run(until=T + 120)

    assert world.started["beside"] == T + 2
    assert world.started["head"] == T + 100
    assert "too-much" not in world.started


def test_a_workload_that_outruns_its_estimate_is_evicted_before_the_promised_start() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("liar", 1, runs=5000, says=50, at=T + 2)

    world.run(until=T + 1000)

    assert world.evicted["liar"] == [T + 90]
    assert world.started["head"] == T + 100
    assert world.promised("head") == [T + 100]
    assert world.started["liar"] == T + 150


def test_one_created_in_the_same_second_as_a_promised_one_is_evicted_like_any_other() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    # At equal age the lower uid goes first, but only before a promise is made.
    world.submit("a-liar", 1, runs=5000, says=50, at=T + 1.5, created_at=T + 1)
    world.submit("a-rival", 2, runs=150, at=T + 1.7, created_at=T + 1)

    world.run(until=T + 1000)

    assert world.evicted["a-liar"] == [T + 90]
    assert world.promised("head") == [T + 100]
    assert world.started["head"] == T + 100
    assert world.started["a-rival"] == T + 150


def test_one_created_in_the_same_second_counts_as_behind_for_the_depth_as_well() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("a-second", 8, runs=50, at=T + 1.5, created_at=T + 1)

    world.run(until=T + 50)

    # EASY promises a start to the first alone.
    assert world.promised("head") == [T + 100]
    assert world.promised("a-second") == []


def test_a_workload_that_outruns_its_lease_may_stay_where_the_policy_extends_it() -> None:
    world = make_world(on_overrun=OnOverrun.EXTEND)
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("liar", 1, runs=170, says=50, at=T + 2)

    world.run()

    assert world.evicted == {}
    assert world.started["head"] == T + 172
    assert set(world.causes("head")) == {MoveCause.OVERRUN}


def test_a_promise_that_ranks_behind_an_overrun_lease_moves_earlier_when_its_holder_ends() -> None:
    world = make_world()
    world.submit("running", 6, runs=100, priority=1)
    world.submit("head", 7, runs=50, at=T + 1, priority=1)
    # It overtakes `head` and fits beside it.
    world.submit("liar", 1, runs=170, says=50, at=T + 2, priority=1)
    world.submit("low", 8, runs=50, at=T + 160)

    world.run()

    assert world.promised("low") == [T + 182]
    assert world.started["low"] == T + 172


def test_another_look_at_promises_assumes_the_same_end_of_an_overrun_lease_that_ranks_before_them() -> None:
    world = make_world()
    world.submit("running", 6, runs=100, priority=1)
    world.submit("head", 7, runs=50, at=T + 1, priority=1)
    # It overtakes `head` and fits beside it, and is over by T+62 with its eviction.
    world.submit("liar", 1, runs=400, says=50, at=T + 2, priority=1)
    world.submit("low", 8, runs=50, at=T + 160)
    for at in (T + 165, T + 175):
        world.run(until=at)
        # Every promise is looked at again.
        world.put(make_policy(eta_depth=int(at)))
    world.run(until=T + 176)

    assert world.promised("low") == [T + 182]
    world.run(until=T + 183)
    assert world.promised("low") == [T + 182, T + 242]
    assert world.causes("low") == [MoveCause.OVERRUN]


def test_a_promise_that_ranks_behind_a_lease_moves_while_its_holder_outruns_it() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 6, runs=100, priority=1)
    world.submit("head", 7, runs=50, at=T + 1, priority=1)
    # It overtakes `head` and fits beside it; it goes before `low`, which may not have it evicted.
    world.submit("liar", 1, runs=400, says=50, at=T + 2, priority=1)
    world.submit("low", 8, runs=50, at=T + 3)
    world.submit("small", 1, runs=10, at=T + 160)

    world.run()

    assert world.promised("low")[0] == T + 150
    assert set(world.causes("low")) == {MoveCause.OVERRUN}
    assert world.started["small"] == T + 160
    assert world.started["low"] == T + 402
    assert world.evicted == {}


def test_a_promise_moves_earlier_when_work_ends_early() -> None:
    world = make_world()
    world.submit("running", 6, runs=40, says=100)
    world.submit("other", 2, runs=60)
    world.submit("head", 8, runs=50, at=T + 1)

    world.run()

    assert world.promised("head") == [T + 100, T + 60]
    assert world.started["head"] == T + 60
    assert world.causes("head") == []


def test_a_promise_moves_earlier_though_one_of_equal_requests_in_another_queue_cannot() -> None:
    world = TimedWorld(now=T)
    for name in ("left", "right"):
        own = make_group(default=make_quota(4, borrowing=0))
        world.put(make_cluster_queue(name, groups=(own,), cohort="both"))
    world.put(make_policy())
    world.submit("left-runs", 4, runs=100, queue="left")
    world.submit("right-ends-early", 4, runs=40, says=100, queue="right")
    world.submit("left-head", 4, runs=50, at=T + 1, queue="left")
    world.submit("right-head", 4, runs=50, at=T + 2, queue="right")

    world.run()

    assert world.started["right-head"] == T + 40
    assert world.started["left-head"] == T + 100


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_look_at_promises_that_a_change_ends_is_started_again(steps: int) -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 8, runs=40, says=100)
    for number in range(3):
        world.submit(f"w{number}", 8, runs=50, at=T + 1 + number)
    world.run(until=T + 39)
    world.now = T + 40
    world.put(finished(world.get("running")))

    for _ in range(steps):
        assert world.engine.settle(now=world.now)
    world.put(Namespace(name="another"))
    world.ends.pop("running")
    world.run()

    assert [world.started[f"w{number}"] for number in range(3)] == [T + 40, T + 90, T + 140]
    assert world.promised("w2")[-1] == T + 140


def test_a_look_in_steps_is_repeated_once_the_quota_has_changed() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.run(until=T + 10)
    while world.engine.settle(now=world.now):
        pass
    world.put(make_cluster_queue(quota=16))

    world.run(until=T + 11)

    assert world.started["head"] == T + 10


def test_work_that_overruns_moves_the_promise_with_its_cause() -> None:
    world = make_world()
    world.submit("running", 6, runs=170, says=100)
    world.submit("head", 8, runs=50, at=T + 1)

    world.run()

    assert world.causes("head") == [MoveCause.OVERRUN, MoveCause.OVERRUN]
    assert world.promised("head") == [T + 100, T + 160, T + 240]
    assert world.started["head"] == T + 170


@pytest.mark.parametrize("late", [0.0, 0.3, 2.5, 4.9])
def test_work_that_ends_as_declared_moves_no_promise_to_a_later_start(late: float) -> None:
    world = make_world(ending_seconds=5)
    world.submit("running", 6, runs=100 + late, says=100)
    world.submit("head", 8, runs=50, at=T + 1)

    world.run()

    assert world.promised("head")[0] == T + 105
    assert world.causes("head") == []
    assert T + 100 + late <= world.started["head"] <= T + 105


def test_a_higher_priority_that_comes_later_moves_the_promise_with_its_cause() -> None:
    world = make_world()
    world.submit("running", 8, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("urgent", 8, runs=30, at=T + 2, priority=10)

    world.run()

    assert world.started["urgent"] == T + 100
    assert world.causes("head") == [MoveCause.HIGHER_PRIORITY]
    assert world.promised("head") == [T + 100, T + 130]
    assert world.started["head"] == T + 130


def test_a_cut_quota_moves_the_promise_with_its_cause() -> None:
    world = make_world()
    world.submit("first", 4, runs=100)
    world.submit("second", 2, runs=200)
    world.submit("head", 5, runs=50, at=T + 1)
    world.run(until=T + 50)

    world.put(make_cluster_queue(quota=6))
    world.run()

    assert world.promised("head") == [T + 100, T + 200]
    assert world.causes("head") == [MoveCause.QUOTA_CUT]
    assert world.started["head"] == T + 200


def test_as_many_are_promised_a_start_as_the_depth_says() -> None:
    starts = {}
    for depth in (1, 2):
        world = make_world(BackfillMode.CONSERVATIVE, reservation_depth=depth)
        world.submit("running", 8, runs=100)
        for index in range(3):
            world.submit(f"w{index}", 8, runs=50, at=T + 1 + index)
        world.run(until=T + 50)
        starts[depth] = {name: world.promised(name) for name in ("w0", "w1", "w2") if world.promised(name)}

    assert starts == {1: {"w0": [T + 100]}, 2: {"w0": [T + 100], "w1": [T + 150]}}


def test_conservative_promises_to_all_and_moves_them_up_when_work_ends_early() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 8, runs=70, says=100)
    for index in range(3):
        world.submit(f"w{index}", 8, runs=50, at=T + 1 + index)

    world.run()

    # One that has others before it gets the time of its own eviction on top of its estimate.
    assert [world.promised(f"w{index}")[0] for index in range(3)] == [T + 100, T + 150, T + 210]
    assert [world.started[f"w{index}"] for index in range(3)] == [T + 70, T + 120, T + 170]


def test_a_later_workload_takes_a_hole_between_two_promises() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 6, runs=100)
    world.submit("wide", 8, runs=50, at=T + 1)
    world.submit("next", 8, runs=50, at=T + 2)
    world.submit("filler", 2, runs=80, at=T + 3)

    world.run()

    assert world.started == {
        "running": T,
        "filler": T + 3,
        "wide": T + 100,
        "next": T + 150,
    }


def test_opportunistic_work_runs_in_the_hold_and_is_evicted_when_the_promised_is_ready() -> None:
    world = make_world(BackfillMode.OPPORTUNISTIC)
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1, priority=5)
    world.submit("lower", 1, runs=5000, at=T + 2)
    world.submit("same", 1, runs=5000, at=T + 3, priority=5)
    world.submit("willing", 1, runs=5000, at=T + 4, priority=5, annotations={OPPORTUNISTIC: "true"})

    world.run(until=T + 120)

    assert world.started["lower"] == T + 2
    assert world.started["willing"] == T + 4
    assert "same" not in world.started
    assert world.started["head"] == T + 100
    assert world.evicted == {"lower": [T + 90], "willing": [T + 90]}


def test_work_of_unknown_length_never_starts_ahead_of_a_promise_that_it_would_reach() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("silent", 1, runs=10, says=0, at=T + 2)

    world.run()

    assert world.started["silent"] == T + 150


def test_work_that_may_not_be_evicted_is_backfilled_on_an_enforced_limit_alone() -> None:
    world = make_world()
    inference = {"berth.dev/workload-type": "inference"}
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("says", 1, runs=20, at=T + 2, annotations=inference)
    world.submit("limited", 1, runs=20, at=T + 3, annotations=inference, maximum_execution_time_seconds=30)

    world.run()

    assert world.started["limited"] == T + 3
    assert world.started["says"] == T + 150


def test_a_promise_is_withdrawn_when_its_workload_is_deleted() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("next", 2, runs=500, at=T + 2)
    world.run(until=T + 50)
    assert "next" not in world.started

    world.remove(type(world.get("head")), ("team", "head"))
    world.run(until=T + 60)

    assert world.started["next"] == T + 50


def test_nothing_is_promised_without_a_policy() -> None:
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=8))
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("long", 1, runs=500, at=T + 2)

    world.run(until=T + 50)

    assert world.plans == {}
    assert world.started["long"] == T + 2
    assert len(world.engine._cache.schedule_plan.profile) == 0


def make_cohort() -> TimedWorld:
    """Return a world of two ClusterQueues with 4 GPUs each, which lend to one another."""
    world = TimedWorld(now=T)
    for name in ("left", "right"):
        world.put(make_cluster_queue(name, quota=4, cohort="both"))
    world.put(make_policy(BackfillMode.CONSERVATIVE))
    return world


def test_a_workload_that_would_borrow_less_breaks_no_promise_of_its_own_clusterqueue() -> None:
    world = make_cohort()
    world.submit("running", 8, runs=100, queue="left")
    world.submit("first", 1, runs=50, at=T + 1, queue="left")
    # One pod of it would not borrow beside `first`, where `younger` does.
    parts = (make_pod_set(count=4, template=template(2), min_count=1),)
    world.submit("older", runs=50, at=T + 2, queue="left", pod_sets=parts)
    world.submit("younger", 7, runs=20, at=T + 3, queue="left")

    world.run()

    assert world.promised("younger") == [T + 100]
    assert world.started["younger"] == T + 100
    assert world.started["older"] == T + 120


def test_an_early_start_that_borrows_breaks_no_promise_of_a_queue_within_its_own_quota() -> None:
    world = make_cohort()
    world.submit("right-runs", 4, runs=100, queue="right")
    world.submit("left-runs", 2, runs=60, queue="left")
    world.submit("left-ends-early", 2, runs=30, says=60, queue="left")
    world.submit("owner", 4, runs=60, at=T + 2, queue="left")
    # It is older than `owner` and promised to start whole on its own quota. In part it could start at T+30,
    # but then it would borrow what `owner` is promised.
    parts = (make_pod_set(count=4, template=template(1), min_count=1),)
    world.submit("borrower", runs=100, at=T + 3, created_at=T + 1, queue="right", pod_sets=parts)

    world.run()

    assert world.promised("owner") == [T + 60]
    assert world.started["owner"] == T + 60
    assert world.started["borrower"] == T + 100


def test_a_workload_that_fits_beside_each_of_two_promises_waits_where_it_does_not_fit_beside_both() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 4, runs=100)
    world.submit("ends-early", 4, runs=40, says=100)
    world.submit("first", 5, runs=50, at=T + 1)
    world.submit("younger", 3, runs=100, at=T + 3)
    # It is older than `younger` but comes later, and at T+40 it would fit beside either promise alone.
    parts = (make_pod_set(template=template(1), min_count=1),)
    world.submit("between", runs=200, at=T + 4, created_at=T + 2, pod_sets=parts)

    world.run()

    assert world.causes("first") == world.causes("younger") == []
    assert world.started["first"] == T + 100
    assert world.started["younger"] <= T + 100
    assert world.started["between"] >= T + 140


def test_a_queue_that_takes_its_own_quota_back_moves_the_promise_of_a_borrower_with_its_cause() -> None:
    world = make_cohort()
    world.submit("left-runs", 4, runs=100, says=200, queue="left")
    world.submit("borrower", 8, runs=50, at=T + 1, queue="right")
    # Because it would accept fewer pods, it is tried before its promised start.
    parts = (make_pod_set(template=template(1), min_count=1),)
    world.submit("owner", runs=300, at=T + 2, queue="left", pod_sets=parts)
    # It is merely behind `owner` and has nothing to do with the move.
    world.submit("behind", 1, runs=300, at=T + 3, queue="left")

    world.run()

    assert world.started["owner"] == T + 100
    assert world.causes("borrower") == [MoveCause.RECLAIM]


def test_a_due_start_is_tried_although_an_equal_workload_before_it_was_just_held_back() -> None:
    world = make_world()
    world.submit("running", 6, runs=40, says=100)
    world.submit("promised", 8, runs=150, at=T + 1)
    # Both are older but come later. The first takes the only further promise, the second gets none.
    world.submit("small", 1, runs=500, at=T + 2, created_at=T - 60)
    world.submit("equal", 8, runs=50, at=T + 3, created_at=T - 50)

    world.run()

    assert world.started["promised"] == T + 40
    assert world.causes("promised") == []


def make_two_flavors(*, has_nodes: bool) -> TimedWorld:
    """Return a world where `due` is promised flavor `b` at T+60, and `wide` all of flavor `a` at T+100.

    Half of `a` comes free at T+40, which is not for long enough for `due`.
    """
    world = TimedWorld(now=T)
    if has_nodes:
        world.put(Topology(name="t", levels=(HOST,)), *(make_node(name) for name in ("a-0", "a-1", "b-0")))
    for name in ("a", "b"):
        topology = "t" if has_nodes else None
        world.put(ResourceFlavor(name=name, node_labels={"pool": name}, topology_name=topology))
    world.put(make_cluster_queue(groups=(make_group("a", "b", a=8, b=4),)))
    world.put(make_policy(BackfillMode.CONSERVATIVE))
    world.submit("a-runs", 4, runs=100)
    world.submit("a-ends-early", 4, runs=40, says=100)
    world.submit("b-runs", 4, runs=60)
    world.submit("due", 4, runs=80, at=T + 1)
    world.submit("wide", runs=50, at=T + 2, pod_sets=(make_pod_set(count=2, template=template(4)),))
    return world


def make_node(name: str, **fields: Any) -> NodeInfo:
    """Return a node of 4 GPUs in the pool that its name begins with."""
    labels = {HOST: name, "pool": name[0]}
    return NodeInfo(name=name, labels=labels, allocatable={"gpu": 4, "pods": 100}, **fields)


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
def test_a_due_start_takes_the_flavor_it_was_promised_and_not_a_free_one_promised_to_another(
    has_nodes: bool,
) -> None:
    world = make_two_flavors(has_nodes=has_nodes)

    world.run(until=T + 61)

    assert world.promised("due") == [T + 60]
    assert world.started["due"] == T + 60
    admission = dict(world.engine.workloads.admissions())[key("due")]
    assert admission.pod_sets[0].flavors == {"gpu": "b"}
    world.run()
    assert world.causes("wide") == []
    assert world.started["wide"] == T + 100


def test_a_due_start_whose_promised_node_takes_no_pods_any_more_breaks_no_other_promise() -> None:
    world = make_two_flavors(has_nodes=True)
    world.run(until=T + 50)
    world.put(make_node("b-0", taints=(WireTaint(key="broken", effect="NoSchedule"),)))

    world.run()

    assert world.causes("wide") == []
    assert world.started["wide"] == T + 100
    assert world.started["due"] == T + 150


def test_a_due_start_leaves_a_promise_made_for_its_end_to_a_younger_one_when_an_older_one_came() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 6, runs=100)
    world.submit("small", 2, runs=120)
    world.submit("due", 6, runs=50, at=T + 1)
    world.submit("younger", 8, runs=50, at=T + 2)
    # It is promised a start beside `due`, and so `due` starts ahead of a promise that ranks before its own.
    world.submit("older", 2, runs=20, at=T + 3, created_at=T)
    world.run(until=T + 105)
    # All promises are looked at again.
    world.put(make_cluster_queue(quota=9))

    world.run()

    assert world.promised("older") == [T + 120]
    assert world.started["due"] == T + 100
    assert world.promised("younger") == [T + 150]
    assert world.leased == set()


def test_a_start_ahead_of_one_promise_leaves_another_the_time_that_its_own_eviction_takes() -> None:
    world = make_world(BackfillMode.CONSERVATIVE)
    world.submit("running", 6, runs=100)
    world.submit("first", 7, runs=50, at=T + 1)
    world.submit("younger", 8, runs=50, at=T + 3)
    # It fits beside `first`, and would end when `younger` is promised to start.
    world.submit("between", 1, runs=145, at=T + 5, created_at=T + 2)
    world.run(until=T + 10)
    # All promises are looked at again.
    world.put(make_policy(BackfillMode.CONSERVATIVE, eta_depth=3))

    world.run()

    assert world.promised("younger") == [T + 150]
    assert world.started["between"] == T + 200


# --- expected starts -------------------------------------------------------------------------------------


def forecast(world: TimedWorld) -> dict[str, float]:
    """Work out when the pending Workloads are expected to start."""
    found = world.engine.forecasts.begin(now=world.now)
    assert found is not None
    while found.step():
        pass
    assert not found.is_outdated
    world.engine.validate()
    world.engine.forecasts.take(found, most=100, now=world.now)
    starts = {name: world.engine.promises.expected_start(key(name)) for name in world.lengths}
    return {name: at for name, at in starts.items() if at is not None}


def test_every_pending_workload_has_an_expected_start() -> None:
    world = make_world()
    world.submit("running", 8, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("next", 4, runs=20, at=T + 2)
    world.submit("beside", 4, runs=500, at=T + 3)
    world.submit("last", 8, runs=10, at=T + 4)
    world.run(until=T + 10)

    assert forecast(world) == {"head": T + 100, "next": T + 150, "beside": T + 150, "last": T + 650}


def test_a_workload_behind_the_forecast_gets_the_last_start_before_it() -> None:
    world = make_world(eta_depth=2)
    world.submit("running", 8, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("next", 8, runs=20, at=T + 2)
    world.submit("behind", 8, runs=500, at=T + 3)
    world.run(until=T + 10)

    assert forecast(world) == {"head": T + 100, "next": T + 150}
    after = {name: world.engine.promises.expected_after(key(name)) for name in world.lengths}
    assert after == {"running": None, "head": None, "next": None, "behind": T + 150}


def test_an_expected_start_is_reported_again_after_five_minutes_at_the_earliest() -> None:
    world = make_world()
    world.submit("running", 8, runs=5000)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("next", 8, runs=50, at=T + 2)
    world.run(until=T + 10)
    assert forecast(world)["next"] == T + 5050

    world.submit("urgent", 8, runs=1000, at=T + 20, priority=5)
    world.run(until=T + 30)
    assert forecast(world)["next"] == T + 5050
    world.run(until=T + 400)

    # The head has one before it now, and with it the time of its own eviction.
    assert forecast(world)["next"] == T + 6060


def test_a_promised_workload_names_the_workloads_whose_end_it_waits_for() -> None:
    world = make_world()
    world.submit("soon", 3, runs=40)
    world.submit("late", 3, runs=100)
    world.submit("beyond", 2, runs=500)
    world.submit("head", 6, runs=50, at=T + 1)
    world.run(until=T + 10)

    assert world.engine.promises.waits_for(key("head"), 10) == ((key("soon"), T + 40), (key("late"), T + 100))


# --- run times -------------------------------------------------------------------------------------------


def test_run_times_are_learned_from_earlier_runs_of_the_same_name() -> None:
    world = make_world(estimates=Estimates(min_observations=2))
    for index, length in enumerate((30, 40)):
        world.submit(f"train-{index}", 1, runs=length, says=0)
    world.run()
    world.submit("running", 6, runs=100)
    at = world.now
    world.submit("head", 8, runs=50, at=at + 1)
    world.submit("train-7", 1, runs=35, says=0, at=at + 2)
    world.submit("other-7", 1, runs=35, says=0, at=at + 2)

    world.run(until=at + 20)

    assert world.started["train-7"] == at + 2
    assert "other-7" not in world.started


def test_a_pending_workload_takes_the_length_that_a_run_of_its_kind_has_just_shown() -> None:
    """Though that run was in another cohort, and so freed nothing here."""
    world = make_world(estimates=Estimates(min_observations=1, default_seconds=1000))
    world.put(make_cluster_queue("elsewhere", quota=1))
    world.put(LocalQueue(namespace=NAMESPACE, name="elsewhere", cluster_queue="elsewhere"))
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("train-1", 1, runs=20, says=0, at=T + 2, queue="elsewhere")
    world.submit("train-2", 1, runs=20, says=0, at=T + 3)
    world.submit("train-3", 1, runs=20, says=0, at=T + 4)

    world.run(until=T + 30)

    assert world.started == {"running": T, "train-1": T + 2, "train-2": T + 22, "train-3": T + 22}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("0", id="zero"),
        pytest.param("-5", id="negative"),
        pytest.param("1.5", id="a fraction"),
        pytest.param("1h", id="a unit"),
        pytest.param("", id="empty"),
        pytest.param("9" * 40, id="more digits than any number of seconds"),
        pytest.param("nan", id="no number"),
        pytest.param("٣٠", id="digits of another script"),
    ],
)
def test_a_declared_run_time_that_cannot_be_is_named_and_counts_as_absent(text: str) -> None:
    workload = make_workload("w", annotations={EXPECTED_RUNTIME_SECONDS: text})

    assert Estimator().estimate(workload, AdmissionPolicy(name="p")) is None
    assert f"is {text!r}, but must be a whole number of seconds above 0" in str(runtime_problem(text))


def test_estimates_of_centuries_end_at_the_last_date_and_delay_no_other() -> None:
    """Expected one after the other such work comes to years that no date can be written of."""
    world, limit = make_world(BackfillMode.CONSERVATIVE), {JOB_DEADLINE_SECONDS: "9999999999"}
    for number in range(40):
        # A limit that is enforced is believed whatever it says.
        world.submit(f"eternal-{number}", 8, runs=50, says=0, at=T + number, annotations=limit)
    world.submit("short", 8, runs=20, at=T + 100)

    world.run(until=T + 110)

    last = forecast(world)["eternal-39"]
    assert last > 9_999_999_999 * 30
    assert to_rfc3339(last) == "9999-12-31T23:59:59Z"
    world.run()
    assert world.ended.keys() == world.lengths.keys()


def say(world: TimedWorld, name: str, **annotations: str) -> None:
    """Let a Workload say something of itself."""
    known = world.get(name)
    world.put(replace(known, annotations={**known.annotations, **annotations}))


def test_running_work_that_says_when_it_will_be_complete_moves_the_promise_behind_it() -> None:
    world = make_world()
    world.submit("running", 8, runs=300, says=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.run(until=T + 10)

    say(world, "running", **{EXPECTED_COMPLETION_TIME: to_rfc3339(T + 300)})
    world.run(until=T + 20)
    say(world, "running", **{EXPECTED_COMPLETION_TIME: to_rfc3339(T + 200)})
    world.run(until=T + 30)

    assert world.promised("head") == [T + 100, T + 300, T + 200]
    assert world.causes("head") == [MoveCause.OVERRUN]


def test_a_backfilled_workload_cannot_put_off_its_end() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("small", 1, runs=900, says=50, at=T + 2)
    world.run(until=T + 10)

    say(world, "small", **{EXPECTED_COMPLETION_TIME: to_rfc3339(T + 900)})
    world.run(until=T + 120)

    assert set(world.evicted) == {"small"}
    assert world.started["head"] == T + 100


@pytest.mark.parametrize(
    ("annotations", "fields", "want"),
    [
        pytest.param(
            {EXPECTED_COMPLETION_TIME: to_rfc3339(T + 70)}, {}, (70, Source.COMPLETION_TIME), id="its word"
        ),
        pytest.param({EXPECTED_COMPLETION_TIME: "7 h"}, {}, None, id="what is no time counts not"),
        pytest.param({EXPECTED_COMPLETION_TIME: to_rfc3339(T - 5)}, {}, None, id="an end before the start"),
        pytest.param(
            {EXPECTED_COMPLETION_TIME: to_rfc3339(T + 70), EXPECTED_RUNTIME_SECONDS: "60"},
            {},
            (70, Source.COMPLETION_TIME),
            id="before what was said of it at first",
        ),
        pytest.param(
            {EXPECTED_COMPLETION_TIME: to_rfc3339(T + 70), JOB_DEADLINE_SECONDS: "60"},
            {},
            (60, Source.JOB_DEADLINE),
            id="not beyond its Job's deadline",
        ),
        pytest.param(
            {EXPECTED_COMPLETION_TIME: to_rfc3339(T + 70)},
            {"maximum_execution_time_seconds": 80},
            (70, Source.COMPLETION_TIME),
            id="within an enforced limit",
        ),
    ],
)
def test_of_running_work_the_latest_estimate_counts(
    annotations: dict[str, str], fields: dict[str, Any], want: tuple[float, Source] | None
) -> None:
    workload = make_workload("w", annotations=annotations, **fields)

    found = Estimator().running_estimate(workload, AdmissionPolicy(name="p"), started_at=T)

    assert (found and (found.seconds, found.source)) == want


@pytest.mark.parametrize(
    ("annotations", "fields", "want"),
    [
        pytest.param({}, {}, None, id="a Workload that says nothing has no estimate"),
        pytest.param({EXPECTED_RUNTIME_SECONDS: "60"}, {}, (60, Source.DECLARED), id="its own word"),
        pytest.param({EXPECTED_RUNTIME_SECONDS: "soon"}, {}, None, id="a word that is no number counts not"),
        pytest.param(
            {EXPECTED_RUNTIME_SECONDS: "60", JOB_DEADLINE_SECONDS: "90"},
            {},
            (90, Source.JOB_DEADLINE),
            id="the Job's deadline before its word",
        ),
        pytest.param(
            {JOB_DEADLINE_SECONDS: "90"},
            {"maximum_execution_time_seconds": 100, "accumulated_execution_seconds": 30},
            (70, Source.EXECUTION_LIMIT),
            id="what is left of the limit before the deadline",
        ),
    ],
)
def test_of_the_sources_of_an_estimate_the_first_counts(
    annotations: dict[str, str], fields: dict[str, Any], want: tuple[float, Source] | None
) -> None:
    workload = make_workload(annotations=annotations, **fields)

    found = Estimator().estimate(workload, make_policy())

    assert (found and (found.seconds, found.source)) == want


# --- the shortest first ----------------------------------------------------------------------------------


def shortest_first(*, age_seconds: int | None = 86400) -> TimedWorld:
    """Return a world of one ClusterQueue of a GPU where the shortest goes first."""
    ordering = Ordering(mode=OrderingMode.SHORTEST_PREDICTED, age_seconds=age_seconds)
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=1), AdmissionPolicy(name="p", ordering=ordering))
    return world


def test_of_equal_priority_the_shortest_goes_first_and_one_without_an_estimate_last() -> None:
    world = shortest_first()
    world.submit("running", 1, runs=10)
    world.submit("silent", 1, runs=10, says=0, at=T + 1)
    world.submit("long", 1, runs=500, at=T + 2)
    world.submit("short", 1, runs=20, at=T + 3)
    world.submit("important", 1, runs=900, at=T + 4, priority=1)

    world.run()

    assert sorted(world.started, key=world.started.__getitem__) == [
        "running",
        "important",
        "short",
        "long",
        "silent",
    ]


def test_a_workload_that_has_waited_too_long_goes_before_shorter_ones() -> None:
    world = shortest_first(age_seconds=100)
    world.submit("running", 1, runs=150)
    world.submit("long", 1, runs=500, at=T + 1)
    world.submit("short", 1, runs=20, at=T + 120)

    world.run()

    assert world.started["long"] == T + 150
    assert world.started["short"] == T + 650


def test_a_refusal_counts_for_all_of_equal_requests_however_long_they_run() -> None:
    world = shortest_first()
    world.submit("running", 1, runs=10)
    for number in range(20):
        world.submit(f"w{number}", 1, runs=100 + number, at=T + 1)

    world.run(until=T + 11)

    # Three cycles for the first, three for those that came, three for the end: admitted, refused once.
    assert world.engine.statistics().cycles <= 9


def test_a_longer_one_that_is_older_may_evict_a_victim_that_the_shortest_may_not() -> None:
    world = shortest_first()
    by_age = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    world.put(make_cluster_queue(quota=1, preemption=by_age))
    world.submit("running", 1, runs=1000, at=T + 5)
    world.submit("brief", 1, runs=20, at=T + 6)
    world.submit("older", 1, runs=500, at=T + 7, created_at=T + 1)

    world.run(until=T + 8)

    assert list(world.evicted) == ["running"]


def test_promises_follow_the_order_of_the_shortest_first() -> None:
    ordering = Ordering(mode=OrderingMode.SHORTEST_PREDICTED)
    world = make_world()
    policy = replace(make_policy(), ordering=ordering)
    world.put(policy)
    world.submit("running", 8, runs=100)
    world.submit("long", 8, runs=50, at=T + 1)
    world.submit("short", 8, runs=20, at=T + 2)

    world.run()

    assert world.started["short"] == T + 100
    assert world.causes("long") == [MoveCause.HIGHER_PRIORITY]
    assert world.started["long"] == T + 120


def test_an_admission_says_whether_it_is_on_a_lease() -> None:
    world = make_world()
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("short", 1, runs=50, at=T + 3)

    world.run()

    assert world.leased == {"short"}


@pytest.mark.parametrize(
    ("cohort", "leased"),
    [
        pytest.param(None, set(), id="whose quota is its own has overtaken no other"),
        pytest.param("both", {"other"}, id="which could have lent has overtaken it"),
    ],
)
def test_a_start_in_another_queue_while_a_start_is_promised(cohort: str | None, leased: set[str]) -> None:
    world = make_world()
    world.put(make_cluster_queue(quota=8, cohort=cohort), make_cluster_queue("other", quota=2, cohort=cohort))
    world.put(LocalQueue(namespace=NAMESPACE, name="other", cluster_queue="other"))
    world.submit("running", 6, runs=100)
    world.submit("head", 8, runs=50, at=T + 1)
    world.submit("other", 1, runs=5000, at=T + 3, queue="other")

    world.run(until=T + 10)

    assert (world.started["other"], world.leased) == (T + 3, leased)


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({EXPECTED_RUNTIME_SECONDS: "9999999999"}, id="it says that it runs for centuries"),
        pytest.param({EXPECTED_RUNTIME_SECONDS: "0"}, id="it says that it runs for no time"),
        pytest.param({EXPECTED_RUNTIME_SECONDS: "-100"}, id="it says less than nothing"),
        pytest.param({EXPECTED_RUNTIME_SECONDS: "an hour"}, id="it says so in words"),
        pytest.param(
            {EXPECTED_COMPLETION_TIME: "9999-12-31T23:59:59Z"}, id="it completes at the end of time"
        ),
        pytest.param({EXPECTED_COMPLETION_TIME: "0001-01-01T00:00:00Z"}, id="it completed before it began"),
        pytest.param({EXPECTED_COMPLETION_TIME: "soon"}, id="it completes some time"),
    ],
)
def test_an_absurd_estimate_counts_as_none(annotations: dict[str, str]) -> None:
    """Work of unknown length is taken to run as long as the queue looks ahead, here an hour."""
    world = make_world(window_seconds=3600)
    world.submit("running", 6, runs=100, says=0, annotations=annotations)
    world.submit("head", 8, runs=50, at=T + 1)

    world.run()

    assert world.promised("head")[0] == T + 3600
    assert world.started["head"] == T + 100


@pytest.mark.parametrize("mode", [BackfillMode.EASY, BackfillMode.CONSERVATIVE, BackfillMode.OPPORTUNISTIC])
def test_a_workload_that_has_used_up_its_time_limit_is_promised_a_start(mode: BackfillMode) -> None:
    world = make_world(mode)
    spent: dict[str, Any] = {"maximum_execution_time_seconds": 10, "accumulated_execution_seconds": 10}
    world.submit("running", 6, runs=100)
    world.submit("spent", 8, runs=5, says=0, at=T + 1, **spent)
    world.submit("behind", 2, runs=50, at=T + 2)

    world.run()

    assert world.promised("spent") == [T + 100]
    assert world.started == {"running": T, "behind": T + 2, "spent": T + 100}


@pytest.mark.parametrize("mode", list(OrderingMode))
@pytest.mark.parametrize("skew", [-600.0, 600.0])
def test_another_clock_at_the_api_server_changes_no_start(mode: OrderingMode, skew: float) -> None:
    """Workloads are created by the API server's clock, and are aged by the leader's."""
    world = make_world()
    world.put(replace(make_policy(), ordering=Ordering(mode=mode)))
    world.submit("running", 6, runs=100, created_at=T + skew)
    world.submit("head", 8, runs=50, at=T + 1, created_at=T + skew + 1)
    world.submit("short", 2, runs=50, at=T + 2, created_at=T + skew + 2)

    world.run()

    assert world.started["running"] == T
    assert world.started["head"] == T + 100
    assert world.promised("head") == [T + 100]
