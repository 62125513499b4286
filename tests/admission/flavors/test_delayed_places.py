"""Pods whose nodes are yet to be provisioned: quota first, and places once their checks are ready."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.decision import Admit, Reassign, Unreplaced, Wait
from admission.engine.engine import Engine
from admission.reconcile.decision_writes import reassign_write
from api.keys import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from api.node import NodeInfo
from api.queueing import AdmissionCheck, CheckRule
from api.reasons import PendingReason
from api.workload import CheckState, Condition, Workload
from tests.admission.flavors.test_topology_assigner import decide, make_engine, make_workload
from tests.admission.placement.fleets import make_node

READY = CheckState(name="check", state="Ready")


def make_provisioned(
    *, controller: str = PROVISIONING_CONTROLLER, on_flavors: frozenset[str] = frozenset()
) -> Engine:
    """Return an engine without nodes whose queue has a check that another controller answers."""
    engine = make_engine()
    engine.objects.upsert(AdmissionCheck(name="check", controller_name=controller, is_active=True), now=0.0)
    rule = CheckRule(name="check", on_flavors=on_flavors)
    engine.objects.upsert(replace(engine._cache.specs.cluster_queues["cq"], checks=(rule,)), now=0.0)
    for number in range(4):
        engine.objects.remove(NodeInfo, f"n{number}", now=0.0)
    return engine


@pytest.mark.parametrize("controller", [PROVISIONING_CONTROLLER, MULTIKUEUE_CONTROLLER])
def test_pods_whose_nodes_are_yet_to_come_get_quota_and_no_place(controller: str) -> None:
    (admit,) = decide(make_provisioned(controller=controller), make_workload("w", 2))

    assert isinstance(admit, Admit)
    assert (admit.checks, admit.is_admitted) == (("check",), False)
    assert admit.admission.is_delayed
    assert admit.admission.pod_sets[0].topology is None


def test_they_are_not_started_though_the_check_was_ready_before() -> None:
    ready = replace(make_workload("w", 2), checks=(CheckState(name="check", state="Ready"),))

    (admit,) = decide(make_provisioned(), ready)

    assert isinstance(admit, Admit)
    assert not admit.is_admitted


@pytest.mark.parametrize(
    "check",
    [
        pytest.param({"controller": "example.com/other"}, id="the check provides no nodes"),
        pytest.param({"on_flavors": frozenset({"other"})}, id="the check is of another flavor"),
    ],
)
def test_other_checks_delay_no_place(check: dict[str, Any]) -> None:
    (wait,) = decide(make_provisioned(**check), make_workload("w", 2))

    assert isinstance(wait, Wait)
    assert wait.reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED


def reserved(engine: Engine, *checks: CheckState, **fields: Any) -> Workload:
    """Let a gang of two have its quota, with these checks, and its object say so."""
    (admit,) = decide(engine, make_workload("w", 2))
    assert isinstance(admit, Admit)
    condition = Condition(type="QuotaReserved", status=True)
    workload = replace(
        make_workload("w", 2),
        admission=admit.admission,
        conditions={"QuotaReserved": condition},
        checks=checks,
        **fields,
    )
    engine.objects.upsert(workload, now=2.0)
    engine.validate()
    return workload


def provide_nodes(engine: Engine) -> None:
    for number in range(2):
        engine.objects.upsert(make_node(f"n{number}", "b0", "r0", 8), now=3.0)


def test_they_get_their_places_when_checks_and_nodes_are_there() -> None:
    engine = make_provisioned()
    reserved(engine, READY)
    (failed,) = engine.second_pass(now=3.0)
    assert isinstance(failed, Unreplaced)
    assert failed.message.startswith("no place for pod set main yet: ")
    assert engine.second_pass(now=3.0) == ()

    provide_nodes(engine)
    (decision,) = engine.second_pass(now=3.0)
    engine.validate()

    assert isinstance(decision, Reassign)
    assert (decision.lost, decision.found) == ((), ("n0",))
    assert engine.second_pass(now=3.0) == ()


def test_the_object_shows_the_places_and_that_they_are_no_longer_delayed() -> None:
    engine = make_provisioned()
    workload = reserved(engine, READY)
    provide_nodes(engine)
    (decision,) = engine.second_pass(now=3.0)
    assert isinstance(decision, Reassign)
    assert workload.admission is not None
    raw = msgspec.json.encode(
        {
            "metadata": {},
            "status": {
                "admission": {
                    "podSetAssignments": [{"name": "main", "delayedTopologyRequest": "Pending", "x": 1}]
                }
            },
        }
    )

    write = reassign_write(decision, raw, now=3.0)

    assert write.events == ()
    (body,) = msgspec.json.decode(write.body)["status"]["admission"]["podSetAssignments"]
    assert (body["delayedTopologyRequest"], body["x"]) == ("Ready", 1)
    assert body["topologyAssignment"]["slices"]


def test_a_place_that_could_not_be_written_is_given_again() -> None:
    engine = make_provisioned()
    reserved(engine, READY)
    provide_nodes(engine)
    (decision,) = engine.second_pass(now=3.0)

    engine.forget(decision.key, decision.uid, now=4.0)
    engine.validate()

    (again,) = engine.second_pass(now=4.0)
    assert isinstance(again, Reassign)


@pytest.mark.parametrize(
    ("checks", "controller"),
    [
        pytest.param((CheckState(name="check", state="Pending"),), PROVISIONING_CONTROLLER, id="not ready"),
        pytest.param((), PROVISIONING_CONTROLLER, id="the list of checks is not there yet"),
        pytest.param((READY,), MULTIKUEUE_CONTROLLER, id="another cluster places them"),
    ],
)
def test_no_place_is_given_while(checks: tuple[CheckState, ...], controller: str) -> None:
    engine = make_provisioned(controller=controller)
    reserved(engine, *checks)
    provide_nodes(engine)

    assert engine.second_pass(now=3.0) == ()


def test_a_check_that_becomes_ready_is_what_the_place_waited_for() -> None:
    engine = make_provisioned()
    workload = reserved(engine, CheckState(name="check", state="Pending"))
    provide_nodes(engine)
    assert engine.second_pass(now=3.0) == ()

    engine.objects.upsert(replace(workload, checks=(READY,)), now=4.0)

    (decision,) = engine.second_pass(now=4.0)
    assert isinstance(decision, Reassign)
