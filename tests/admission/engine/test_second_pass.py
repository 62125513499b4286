"""Workloads that lost nodes: new ones inside their domain, or their quota back and the next turn.

Two racks of two nodes with 8 GPUs each: r0 n0 n1, r1 n2 n3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.decision import Admit, Evict, Reassign, Unreplaced
from admission.engine.engine import Engine, EngineSettings
from admission.placement.topology.node_health import NodeFailureSettings
from api.node import NodeInfo
from api.policy import AdmissionPolicy, PlacementRules, Recovery
from api.reasons import EvictionReason
from api.workload import Condition, TopologyRequest, Workload
from tests.admission.flavors.test_topology_assigner import decide, make_engine, make_workload, places
from tests.admission.placement.fleets import HOST, make_node

RESERVED = {
    "QuotaReserved": Condition(type="QuotaReserved", status=True),
    "Admitted": Condition(type="Admitted", status=True),
}
PREFERRED = TopologyRequest(preferred=HOST)


def admitted(engine: Engine, workload: Workload) -> Workload:
    """Have the Workload admitted and its object say so; return it as it is then."""
    (admit,) = decide(engine, workload)
    assert isinstance(admit, Admit)
    running = replace(workload, admission=admit.admission, conditions=RESERVED)
    engine.objects.upsert(running, now=2.0)
    return running


def lose(engine: Engine, workload: Workload, *nodes: str) -> Workload:
    """Delete the nodes and have the Workload's object say that they are unhealthy."""
    for node in nodes:
        engine.objects.remove(NodeInfo, node, now=2.0)
    hurt = replace(workload, unhealthy_nodes=nodes)
    engine.objects.upsert(hurt, now=2.0)
    return hurt


def hosts(workload: Workload) -> dict[str, int]:
    """Return the pods by host of the first pod set."""
    assert workload.admission is not None
    topology = workload.admission.pod_sets[0].topology
    assert topology is not None
    return {domain.values[-1]: domain.count for domain in topology.domains}


def settled(engine: Engine, workload: Workload, decision: object) -> Workload:
    """Have the object say what was decided; return it."""
    assert isinstance(decision, Reassign)
    assert workload.admission is not None
    pod_sets = tuple(
        replace(one, topology=decision.assignments.get(one.name, one.topology))
        for one in workload.admission.pod_sets
    )
    mended = replace(workload, unhealthy_nodes=(), admission=replace(workload.admission, pod_sets=pod_sets))
    engine.objects.upsert(mended, now=4.0)
    engine.validate()
    return mended


def test_a_lost_node_is_replaced_in_its_rack_and_the_quota_stays_the_same() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 4))
    lose(engine, gang, "n0")

    (decision,) = engine.second_pass(now=3.0)

    assert isinstance(decision, Reassign)
    assert (decision.lost, decision.found) == (("n0",), ("n1",))
    engine.validate()
    assert engine.second_pass(now=3.0) == ()


@pytest.mark.parametrize(
    ("recovery", "at"),
    [
        pytest.param(None, 3.0, id="after a second, within which others may fail"),
        pytest.param(Recovery(), 2.0, id="at once where a policy says so"),
    ],
)
def test_a_failed_node_is_replaced(recovery: Recovery | None, at: float) -> None:
    """Kueue: a Workload is queued for the second pass with a delay of one second."""
    engine = make_engine()
    policy = AdmissionPolicy(name="p", placement=PlacementRules(recovery=recovery))
    engine.objects.upsert(policy, now=1.0)
    gang = admitted(engine, make_workload("gang", 4))
    lose(engine, gang, "n0")

    assert engine.next_second_pass_at() == at
    assert engine.second_pass(now=at - 0.001) == ()
    (decision,) = engine.second_pass(now=at)

    assert isinstance(decision, Reassign)
    assert engine.next_second_pass_at() is None


def test_what_was_decided_is_taken_before_the_object_says_so() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 8))
    hurt = lose(engine, gang, "n0")
    (decision,) = engine.second_pass(now=3.0)
    engine.objects.upsert(replace(hurt, resource_version="9"), now=3.0)

    (other,) = decide(engine, make_workload("other", 8))

    assert places(other) == {"n2": 8}
    assert hosts(settled(engine, hurt, decision)) == {"n1": 8}


def test_a_reassignment_that_could_not_be_written_is_decided_again() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 8))
    lose(engine, gang, "n0")
    first = engine.second_pass(now=3.0)

    engine.forget(gang.key, gang.uid, now=3.0)

    engine.validate()
    assert engine.second_pass(now=3.0) == first


def test_a_new_term_decides_again_what_the_last_one_did_not_see_through() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 8))
    lose(engine, gang, "n0")
    first = engine.second_pass(now=3.0)

    engine.forget_all(now=3.0)

    assert engine.second_pass(now=3.0) == first


def test_without_room_in_its_rack_a_gang_is_evicted_for_node_failures() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 16))
    lose(engine, gang, "n0")

    (decision,) = engine.second_pass(now=3.0)

    assert isinstance(decision, Evict)
    assert decision.reason is EvictionReason.NODE_FAILURES
    assert decision.message.startswith(
        "Workload was evicted as there was no replacement for a failed node: n0"
    )
    assert engine.second_pass(now=3.0) == ()


def test_without_fail_fast_a_gang_waits_for_room_and_takes_it() -> None:
    engine = make_engine(settings=EngineSettings(node_failures=NodeFailureSettings(fails_fast=False)))
    gang = admitted(engine, make_workload("gang", 16))
    lose(engine, gang, "n0")
    (unreplaced,) = engine.second_pass(now=3.0)
    assert isinstance(unreplaced, Unreplaced)
    assert engine.second_pass(now=3.0) == ()

    engine.objects.upsert(make_node("n9", "b0", "r0", 8), now=4.0)

    (decision,) = engine.second_pass(now=4.0)
    assert isinstance(decision, Reassign)
    assert decision.found == ("n9",)


def test_several_nodes_are_replaced_in_one_step() -> None:
    engine = make_engine()
    for number in (4, 5):
        engine.objects.upsert(make_node(f"n{number}", "b0", "r0", 8), now=0.0)
    gang = admitted(engine, make_workload("gang", 16))
    lose(engine, gang, *sorted(hosts(gang)))

    (decision,) = engine.second_pass(now=3.0)

    assert isinstance(decision, Reassign)
    assert len(decision.lost) == len(decision.found) == 2


def test_the_more_urgent_gang_is_served_first() -> None:
    engine = make_engine()
    low = admitted(engine, make_workload("low", 8, topology=PREFERRED))
    high = admitted(engine, make_workload("high", 8, topology=PREFERRED, priority=9))
    third = admitted(engine, make_workload("third", 8, topology=PREFERRED))
    assert third.admission is not None
    lost = {**hosts(low), **hosts(high)}
    for node in lost:
        engine.objects.remove(NodeInfo, node, now=2.0)
    for gang in (low, high):
        engine.objects.upsert(replace(gang, unhealthy_nodes=tuple(hosts(gang))), now=2.0)

    first, second = engine.second_pass(now=3.0)

    assert (type(first), first.key) == (Reassign, high.key)
    assert (type(second), second.key) == (Evict, low.key)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {"conditions": {**RESERVED, "Evicted": Condition(type="Evicted", status=True)}}, id="evicted"
        ),
        pytest.param({"unhealthy_nodes": ()}, id="well again"),
        pytest.param({"unhealthy_nodes": ("n3",)}, id="a node that it is not on"),
    ],
)
def test_nothing_is_decided_for_a_workload_that_is(fields: dict[str, Any]) -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 4))

    engine.objects.upsert(replace(gang, **{"unhealthy_nodes": ("n0",), **fields}), now=3.0)

    assert engine.second_pass(now=3.0) == ()


def test_with_the_gate_off_no_workload_is_moved() -> None:
    engine = make_engine(settings=EngineSettings(node_failures=NodeFailureSettings(is_on=False)))
    gang = admitted(engine, make_workload("gang", 4))
    lose(engine, gang, "n0")

    assert engine.second_pass(now=3.0) == ()


def test_a_node_knows_whose_pods_it_holds() -> None:
    engine = make_engine()
    gang = admitted(engine, make_workload("gang", 4))
    assert engine.nodes.tenants("n0") == (gang.key,)
    hurt = lose(engine, gang, "n0")
    (decision,) = engine.second_pass(now=3.0)

    settled(engine, hurt, decision)

    assert (engine.nodes.tenants("n0"), engine.nodes.tenants("n1")) == ((), (gang.key,))
    engine.objects.remove(Workload, gang.key, now=5.0)
    assert engine.nodes.tenants("n1") == ()


def test_a_workload_evicted_for_node_failures_is_admitted_before_older_ones_of_equal_priority() -> None:
    engine = make_engine()
    evicted = {"Evicted": Condition(type="Evicted", status=True, reason="NodeFailures")}
    older = replace(make_workload("older", 12), created_at=0.5)
    urgent = replace(make_workload("urgent", 8), priority=9)
    hurt = replace(make_workload("hurt", 12), conditions=evicted)

    first, second, *_ = decide(engine, older, hurt, urgent)

    assert (first.key.name, second.key.name) == ("urgent", "hurt")
    assert isinstance(second, Admit)
    assert second.waited_seconds == 1.0
