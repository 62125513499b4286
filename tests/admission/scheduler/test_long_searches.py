"""Long searches within a cycle pause, and come to the same end whatever runs meanwhile."""

from __future__ import annotations

import pytest
from msgspec import structs

from admission.decisions.decision import Decision, Evict
from admission.engine.engine import Engine, EngineSettings
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology_cache import Unplaced
from admission.preemption.fair_sharing import FairPreemption
from api.policy import AdmissionPolicy, Consolidation, DomainRules, PlacementRules, PreemptionRules
from api.workload import TopologyRequest
from queues.steps import finish
from tests.admission.flavors.test_topology_assigner import decide, make_engine, make_workload
from tests.admission.placement.fleets import GPU, RACK, make_fleet, make_request

PLAIN = EngineSettings()
POLICIES = [
    pytest.param(PLAIN, None, id="in Kueue's order"),
    pytest.param(EngineSettings(fair_sharing=FairPreemption()), None, id="under fair sharing"),
    pytest.param(PLAIN, AdmissionPolicy(name="p", preemption=PreemptionRules()), id="by what is lost"),
    pytest.param(
        PLAIN,
        AdmissionPolicy(
            name="p",
            placement=PlacementRules(consolidation=Consolidation(min_waiting_seconds=0)),
            preemption=PreemptionRules(),
        ),
        id="with moves in place of evictions",
    ),
]


def crowded(settings: EngineSettings, policy: AdmissionPolicy | None) -> Engine:
    """Return two racks of two nodes, full of single pods, and a gang that needs a rack."""
    engine = make_engine(settings=settings)
    if policy is not None:
        engine.objects.upsert(policy, now=0.0)
    decide(engine, *(make_workload(f"w{number:02}", 1, priority=number % 3) for number in range(32)))
    engine.objects.upsert(make_workload("urgent", 16, priority=9), now=3.0)
    assert engine.wake_heads(now=3.0)
    return engine


def in_steps(engine: Engine) -> tuple[int, tuple[Decision, ...]]:
    """Run a cycle that pauses after every step, in which others ask questions. Returns how many they were."""
    cycle, steps = engine.begin_cycle(now=3.0), 1
    while cycle.step():
        cycle.pause()
        engine.validate()
        steps += 1
    return steps, tuple(cycle.decisions)


@pytest.mark.parametrize(("settings", "policy"), POLICIES)
def test_a_search_for_victims_pauses_and_finds_the_same_victims(
    settings: EngineSettings, policy: AdmissionPolicy | None
) -> None:
    steps, decisions = in_steps(crowded(settings, policy))

    assert decisions == crowded(settings, policy).cycle(now=3.0)
    assert sum(isinstance(one, Evict) for one in decisions) == 16
    # Each look whether enough are gone is one: 16 at least until they are.
    assert steps > 16


@pytest.mark.parametrize("stopped_after", range(1, 40, 3))
def test_a_search_that_is_given_up_leaves_no_trial_behind(stopped_after: int) -> None:
    engine, untouched = crowded(PLAIN, None), crowded(PLAIN, None)
    cycle = engine.begin_cycle(now=3.0)
    for _ in range(stopped_after):
        cycle.step()
        cycle.pause()

    late = make_workload("late", 1)
    decisions = [*cycle.decisions, *decide(engine, late)]
    engine.validate()

    wanted = [one for one in decide(untouched, late) if isinstance(one, Evict)]
    assert [one for one in decisions if isinstance(one, Evict)] == wanted


OPTIONS = [
    pytest.param(None, id="in Kueue's way"),
    pytest.param(PlacementOptions(gpus_per_pod=8), id="by score"),
    pytest.param(PlacementOptions(rules=DomainRules(), gpus_per_pod=8), id="by size rules"),
    pytest.param(PlacementOptions(strategy=Strategy.DISTRIBUTED, gpus_per_pod=8), id="distributed"),
]
RACKS = {f"b{block}": {f"r{block}-{rack:03}": [8, 8] for rack in range(130)} for block in range(2)}


@pytest.mark.parametrize("options", OPTIONS)
def test_the_first_look_at_a_shape_pauses_and_gives_what_one_look_gives(
    options: PlacementOptions | None,
) -> None:
    request = make_request(2, gpus=8)
    topology = None if options is not None else TopologyRequest(preferred=RACK)
    request = structs.replace(request, topology=topology, options=options)
    at_once, slowly = make_fleet(RACKS), make_fleet(RACKS)
    steps = 0
    for _ in slowly.preparing([request]):
        steps += 1
        # Others have their turn, and take and give back what they like.
        for sign in (1, -1):
            slowly.usage.occupy({("", (f"n{steps}",)): {GPU: sign * 8}})

    found = slowly.place([request])

    assert not isinstance(found, Unplaced)
    assert found == at_once.place([request])
    assert steps >= (1 if options is None else 3)
    # What is known is not worked out again.
    finish(slowly.preparing([request]))
    assert sum(1 for _ in slowly.preparing([request])) == 0
