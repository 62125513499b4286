"""The annotation `kueue.x-k8s.io/priority-boost`, which counts with Kueue's gate PriorityBoost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.engine.engine import EngineSettings
from api import keys
from api.queueing import Preemption, PreemptionPolicy
from api.workload import Workload
from tests.builders import World, admits, evicts, make_cluster_queue, make_workload, reserved

BOOSTING = EngineSettings(boosts_priorities=True)
LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)


def boosted(workload: Workload, boost: str) -> Workload:
    return replace(workload, annotations={keys.PRIORITY_BOOST: boost})


@pytest.mark.parametrize(
    ("settings", "boost", "want"),
    [
        pytest.param(BOOSTING, "5", "late", id="with the gate"),
        pytest.param(BOOSTING, "-5", "early", id="lowered below the other"),
        pytest.param(BOOSTING, "much", "early", id="that is no number"),
        pytest.param(EngineSettings(), "5", "early", id="without the gate, which is off by default"),
    ],
)
def test_a_boosted_workload_is_tried_in_the_order_of_both_together(
    settings: EngineSettings, boost: str, want: str
) -> None:
    early, late = make_workload("early", at=1, priority=1), make_workload("late", at=2)
    world = World(settings=settings).put(make_cluster_queue(quota=1), early, boosted(late, boost))

    assert admits(world.settle()) == [want]


def test_a_workload_that_is_boosted_while_it_waits_preempts() -> None:
    running, waiting = reserved(make_workload("running", priority=3)), make_workload("waiting")
    world = World(settings=BOOSTING).put(make_cluster_queue(quota=1, preemption=LOWER), running, waiting)
    before = evicts(world.settle())

    world.put(boosted(waiting, "4"))

    assert (before, list(evicts(world.settle()))) == ({}, ["running"])
