"""Of equal priority, the Workload goes first that would end first if it had started when it was created."""

from __future__ import annotations

import pytest

from api.policy import AdmissionPolicy, Ordering, OrderingMode
from api.queueing import Preemption, PreemptionPolicy
from api.reasons import ConditionType, EvictionReason
from tests.admission.timed import TimedWorld
from tests.builders import make_cluster_queue, make_condition, make_workload, with_conditions

T = 1000.0
AGE_SECONDS = 1000
ORDERING = Ordering(mode=OrderingMode.EARLIEST_EXPECTED_END, age_seconds=AGE_SECONDS)


def make_world(preemption: Preemption | None = None) -> TimedWorld:
    """Return a world of one GPU, which is in use until T + 900."""
    world = TimedWorld(now=T)
    queue = make_cluster_queue(quota=1, preemption=preemption or Preemption())
    world.put(queue, AdmissionPolicy(name="policy", ordering=ORDERING))
    world.submit("running", 1, runs=900)
    return world


def in_order(world: TimedWorld) -> list[str]:
    """Return the Workloads in the order of their first starts."""
    return sorted(world.started, key=world.started.__getitem__)


def test_each_is_passed_only_by_those_that_come_before_its_own_length_is_over() -> None:
    world = make_world()
    world.submit("long", 1, runs=500, at=T + 1)
    world.submit("silent", 1, runs=10, says=0, at=T + 2)
    world.submit("short", 1, runs=20, at=T + 400)
    world.submit("late", 1, runs=20, at=T + 600)
    world.submit("important", 1, runs=900, at=T + 700, priority=1)

    world.run()

    assert in_order(world) == ["running", "important", "short", "long", "late", "silent"]


def test_without_a_run_time_it_counts_as_long_as_an_age() -> None:
    world = make_world()
    world.submit("silent", 1, runs=10, says=0, at=T + 1)
    world.submit("endless", 1, runs=10 * AGE_SECONDS, at=T + 2)

    world.run()

    assert in_order(world) == ["running", "silent", "endless"]


@pytest.mark.parametrize(
    ("reason", "first"),
    [
        pytest.param(EvictionReason.NODE_FAILURES, "evicted", id="its nodes failed: it goes first"),
        pytest.param(EvictionReason.PREEMPTED, "evicted", id="it was preempted: its creation counts"),
        pytest.param(EvictionReason.PODS_READY_TIMEOUT, "other", id="its own doing: its eviction counts"),
    ],
)
def test_an_evicted_one_queues_again_by(reason: EvictionReason, first: str) -> None:
    world = TimedWorld(now=T)
    evicted = with_conditions(
        make_workload("evicted", at=T - 50), make_condition(ConditionType.EVICTED, reason=reason, at=T)
    )

    world.put(
        make_cluster_queue(quota=1),
        AdmissionPolicy(name="policy", ordering=ORDERING),
        evicted,
        make_workload("other", at=T - 20),
    )

    assert world.active()[0] == first


def test_where_older_work_stops_newer_work_no_newer_one_passes_an_older_one() -> None:
    by_age = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY)
    world = make_world(by_age)
    world.submit("long", 1, runs=500, at=T + 1)
    world.submit("short", 1, runs=20, at=T + 2)

    world.run()

    # If the short one went first, the older one would evict it at once.
    assert (in_order(world), world.evicted) == (["running", "long", "short"], {})
