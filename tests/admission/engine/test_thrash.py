"""No Workload is evicted for ever: what was freed for a Workload is not taken back by its victim."""

from __future__ import annotations

import pytest

from admission.decisions.decision import Decision, Evict
from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy
from tests.builders import (
    World,
    admits,
    make_cluster_queue,
    make_pod_set,
    make_workload,
    reserved,
)

RECLAIMING = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
# Far more than any of these needs; one that gets here would go on for ever.
MOST_ROUNDS = 30


def run(world: World) -> list[Decision]:
    """Decide and carry out until nothing more happens; an evicted Workload has stopped at once."""
    decisions: list[Decision] = []
    for _ in range(MOST_ROUNDS):
        if not world.engine.wake_heads(now=world.now):
            return decisions
        world.now += 1
        decisions += world.carry_out(world.cycle())
    raise AssertionError(f"still evicting after {MOST_ROUNDS} rounds: {evicted(decisions)}")


def evicted(decisions: list[Decision]) -> list[str]:
    """Return the evicted Workloads, each as often as it was."""
    return [one.key.name for one in decisions if isinstance(one, Evict)]


SHRINKING = make_workload(
    "shrinking", queue="owner", pod_sets=(make_pod_set(count=2, min_count=1, requests={"gpu": 1}),), at=9
)


def lent_out(
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO, fair_sharing: FairPreemption | None = None
) -> World:
    """An owner of one GPU, a lender of another, and a guest without any that is older and more important.

        cohort ── owner     1 GPU, reclaims
               ── lender    1 GPU
               ── borrower  its Workload holds both

    The owner's Workload may run with one pod, on the GPU that it owns, but takes both where both are free.
    """
    return World(settings=EngineSettings(fair_sharing=fair_sharing)).put(
        make_cluster_queue(
            "owner", quota=1, cohort="cohort", preemption=RECLAIMING, queueing_strategy=strategy
        ),
        make_cluster_queue("lender", quota=1, cohort="cohort"),
        make_cluster_queue("borrower", cohort="cohort"),
        reserved(make_workload("guest", queue="borrower", gpus=2, priority=5, at=1)),
    )


@pytest.mark.parametrize("strategy", QueueingStrategy)
def test_a_workload_that_may_shrink_gets_the_room_that_was_freed_for_it(strategy: QueueingStrategy) -> None:
    decisions = run(lent_out(strategy).put(SHRINKING))

    assert evicted(decisions) == ["guest"]
    assert admits(decisions) == ["shrinking"]


def test_under_fair_sharing_as_well_what_was_freed_is_not_taken_back() -> None:
    # The guest's queue weighs so much that it wins every tournament, though all it holds is borrowed.
    world = lent_out(fair_sharing=FairPreemption())
    world.put(make_cluster_queue("borrower", cohort="cohort", fair_weight_milli=1_000_000), SHRINKING)

    decisions = run(world)

    assert (evicted(decisions), admits(decisions)) == (["guest"], ["shrinking"])


def test_a_victim_that_once_evicted_others_has_no_claim_any_more() -> None:
    evicting = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World().put(
        make_cluster_queue("borrower", quota=2, cohort="cohort", preemption=evicting),
        reserved(make_workload("small", queue="borrower", gpus=2, at=1)),
        make_workload("guest", queue="borrower", gpus=2, priority=5, at=1),
    )
    assert admits(run(world)) == ["guest"]
    world.put(
        make_cluster_queue("borrower", cohort="cohort", preemption=evicting),
        make_cluster_queue("lender", quota=1, cohort="cohort"),
        make_cluster_queue("owner", quota=1, cohort="cohort", preemption=RECLAIMING),
        SHRINKING,
    )

    assert admits(run(world)) == ["shrinking"]


def test_a_preemptor_with_a_changed_spec_is_served_in_its_turn() -> None:
    world = lent_out().put(SHRINKING)
    world.carry_out(world.cycle())

    # Another spec is another request: nothing was freed for this one.
    larger = make_pod_set(count=2, requests={"gpu": 1})
    world.put(make_workload("shrinking", queue="owner", pod_sets=(larger,), at=2, generation=2))

    assert admits(run(world)) == ["guest"]
