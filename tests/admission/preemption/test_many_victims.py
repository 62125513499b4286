"""A gang that needs many victims: three nodes of 8 GPUs are full of Jobs of one GPU, and it needs all three.

After sixteen victims the search counts whether all candidates together could be enough.
"""

from __future__ import annotations

import pytest

from admission.placement.topology.place import taken_per_pod
from admission.placement.topology.request import PlacementRequest
from admission.preemption.candidate_pools import Pools
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest
from admission.preemption.targets import Target, classical_targets
from api.keys import HOSTNAME
from api.queueing import ResourceFlavor, Topology
from queues.quota.resources import FlavorResource
from tests.admission.preemption.test_lost_work import LOWER, NOW, make_node, placed, running
from tests.builders import World, make_cluster_queue, make_workload

GPU = FlavorResource("default", "gpu")


def search(*, cohort: str | None = None, stays: bool = False) -> tuple[int, tuple[Target, ...]]:
    """Return how often the search for the gang pauses, and its victims.

    `stays`: the first Job is of a higher priority than the gang, so one of the nodes cannot be freed.
    """
    jobs = [
        placed(running(f"{node}{number}", 1, priority=9 if stays and (node, number) == ("a", 0) else 0), node)
        for node in "abc"
        for number in range(8)
    ]
    world = World(now=NOW).put(
        Topology(name="t", levels=(HOSTNAME,)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in "abc"),
        make_cluster_queue(quota=24, preemption=LOWER, cohort=cohort),
        *jobs,
        make_workload("gang", gpus=24, priority=5, at=NOW),
    )
    world.engine.wake_heads(now=NOW)
    ((queue, pending),) = world.engine._workload_store.trees.pop_heads(9)
    snapshot = world.engine._cache.snapshot(now=NOW)
    request = PlacementRequest(pod_set="main", flavor="default", count=3, per_pod=taken_per_pod({"gpu": 8}))
    need = PreemptionRequest(
        queue=queue,
        pending=pending,
        # What is left of the quota would do: it is places that are lacking.
        usage={GPU: 23 if stays else 24},
        pairs=frozenset({GPU}),
        losses=EvictionLosses(now=NOW),
        order=CandidateOrder.KUEUE,
        placing=(request,),
    )
    steps, pauses = classical_targets(snapshot, need, Pools(snapshot)), 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


COHORTS = [
    pytest.param(None, id="without a cohort"),
    pytest.param("team", id="in a cohort, where the candidates are not known in advance"),
]


@pytest.mark.parametrize("cohort", COHORTS)
def test_all_victims_are_found_however_many_it_takes(cohort: str | None) -> None:
    _, targets = search(cohort=cohort)

    assert len(targets) == 24


@pytest.mark.parametrize("cohort", COHORTS)
def test_no_workload_is_evicted_where_all_victims_together_are_not_enough(cohort: str | None) -> None:
    assert search(cohort=cohort, stays=True)[1] == ()


def test_a_search_that_cannot_succeed_ends_after_sixteen_victims() -> None:
    assert search(stays=True)[0] == 16


def test_a_search_with_places_pauses_after_each_victim_that_it_takes_or_puts_back() -> None:
    assert search()[0] == 24 + 23
