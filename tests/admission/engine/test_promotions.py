"""Promotion: a Workload that holds quota moves to a better flavor where it gains more than the move loses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from admission.decisions.decision import Admit, Decision, Evict
from api.policy import (
    AdmissionPolicy,
    Backfill,
    BackfillMode,
    FlavorPromotion,
    FlavorRules,
    PlacementRules,
    PreemptionRules,
)
from api.queueing import ClusterQueue, ResourceFlavor
from api.reasons import ConditionType, EvictionReason
from api.workload import PodSet, Workload
from queues.profile.holds import Move
from queues.reservations.plan import PlanTable
from tests.builders import (
    World,
    make_cluster_queue,
    make_condition,
    make_group,
    make_template,
    make_workload,
    with_conditions,
)

GPU = "nvidia.com/gpu"
HOUR = 3600.0
RUNTIME, KIND, SAVED = (
    f"berth.dev/{one}" for one in ("expected-runtime-seconds", "workload-type", "checkpoint-time")
)
DAY = {RUNTIME: "86400"}


PROMOTE = FlavorPromotion()


def policy(promote: FlavorPromotion | None = PROMOTE, **sections: Any) -> AdmissionPolicy:
    rules = PlacementRules(flavors=FlavorRules(promote=promote))
    return AdmissionPolicy(name="p", placement=rules, **sections)


def job(name: str = "w", keys: Mapping[str, str] = DAY, *, gpus: int = 8, at: float = 0) -> Workload:
    pod_sets = (PodSet(name="main", count=1, template=make_template({GPU: gpus})),)
    return make_workload(name, pod_sets=pod_sets, annotations=dict(keys), at=at)


def world(*policies: AdmissionPolicy, cheap: int = 8) -> World:
    """A dear flavor and a cheap one; the first comes first in the queue's order."""
    here = World().put(
        ResourceFlavor(name="dear", cost_per_device_hour=4.0),
        ResourceFlavor(name="cheap", cost_per_device_hour=1.0),
        *policies,
    )
    return here.put(quotas(cheap))


def quotas(cheap: int, dear: int = 16) -> ClusterQueue:
    group = make_group("dear", "cheap", resource=GPU, dear=dear, cheap=cheap)
    return make_cluster_queue("queue", groups=(group,))


def running_on_dear(*policies: AdmissionPolicy, keys: Mapping[str, str] = DAY, at: float = 0) -> World:
    """A Workload that has just started on the dear flavor, since the cheap one came later."""
    here = world(*policies, cheap=0).put(job("w", keys, at=at))
    here.confirm(here.settle())
    assert flavors(here) == {"w": "dear"}
    return here


def flavors(here: World) -> dict[str, str]:
    return {
        key.name: admission.pod_sets[0].flavors[GPU] for key, admission in here.engine.workloads.admissions()
    }


def evictions(decisions: list[Decision]) -> list[str]:
    """Return which Workloads are moved; any other eviction is an error."""
    found = [one for one in decisions if isinstance(one, Evict)]
    assert {one.reason for one in found} <= {EvictionReason.FLAVOR_PROMOTION}
    return [one.key.name for one in found]


def later(here: World, seconds: float) -> list[Decision]:
    """Let time pass, and decide."""
    here.now += seconds
    return here.settle()


def test_a_running_workload_moves_to_a_better_flavor_once_that_has_room() -> None:
    here = running_on_dear(policy()).put(quotas(cheap=8))

    (eviction,) = later(here, 60)
    assert isinstance(eviction, Evict)
    assert (eviction.key.name, eviction.reason) == ("w", EvictionReason.FLAVOR_PROMOTION)
    assert eviction.message.startswith(
        "Evicted to move to another flavor: cheap is better than dear: the score gains 0."
    )

    here.carry_out((eviction,))
    (admission,) = here.settle()
    assert isinstance(admission, Admit)
    assert flavors(here) == {"w": "cheap"}


@pytest.mark.parametrize(
    "policies",
    [
        pytest.param((), id="without a policy"),
        pytest.param((policy(None),), id="without the section"),
        pytest.param((policy(FlavorPromotion(min_gain=0.9)),), id="it gains less than minGain"),
        pytest.param((policy(FlavorPromotion(max_moves_per_hour=0)),), id="no move is allowed"),
    ],
)
def test_it_stays_without_a_rule_that_moves_it(policies: tuple[AdmissionPolicy, ...]) -> None:
    here = running_on_dear(*policies).put(quotas(cheap=8))

    assert later(here, 600) == []


@pytest.mark.parametrize(
    ("keys", "seconds", "want"),
    [
        pytest.param(DAY, 60, ["w"], id="little is lost yet"),
        pytest.param(DAY, 12 * HOUR, [], id="half a day is lost"),
        pytest.param({**DAY, SAVED: "1970-01-01T12:15:00Z"}, 12 * HOUR, ["w"], id="it has just saved"),
        pytest.param({RUNTIME: "3600"}, 3590, [], id="it is nearly done"),
        pytest.param({RUNTIME: "3600"}, 2 * HOUR, [], id="it has outrun its estimate"),
        pytest.param({}, 60, ["w"], id="its run time is not known"),
        pytest.param({**DAY, KIND: "inference"}, 60, [], id="inference is not stopped just to be moved"),
    ],
)
def test_it_moves_only_where_it_gains_more_than_it_loses(
    keys: Mapping[str, str], seconds: float, want: list[str]
) -> None:
    here = running_on_dear(policy(), keys=keys)
    here.now += seconds
    here.put(quotas(cheap=8))

    assert evictions(here.settle()) == want


def test_what_the_restart_takes_counts_as_lost() -> None:
    slow = PreemptionRules(default_restart_seconds=12 * 3600, max_declared_seconds=24 * 3600)
    here = running_on_dear(policy(preemption=slow)).put(quotas(cheap=8))

    assert later(here, 60) == []


def test_a_waiting_workload_takes_the_room_before_a_running_one_moves_there() -> None:
    here = running_on_dear(policy())
    here.put(quotas(cheap=8), job("x", at=1))

    assert evictions(here.settle()) == []
    assert flavors(here) == {"w": "dear", "x": "cheap"}


def test_two_do_not_leave_for_the_same_room() -> None:
    here = world(policy(), cheap=0).put(job("v"), job("w"))
    here.confirm(here.settle())
    here.put(quotas(cheap=8))

    first = later(here, 60)
    assert evictions(first) == ["v"]
    # It has not stopped yet, so the room is still free; and again once it is pending.
    assert later(here, 600) == []
    here.carry_out(tuple(first))
    here.confirm(here.settle())
    assert evictions(later(here, 600)) == []
    assert flavors(here) == {"v": "cheap", "w": "dear"}


def test_a_workload_on_its_way_queues_before_its_equals() -> None:
    here = running_on_dear(policy(), at=900).put(quotas(cheap=8))
    decisions = tuple(later(here, 60))
    here.put(job("older", at=1), job("oldest", at=0))
    here.carry_out(decisions)

    assert here.active()[0] == "w"


def test_the_limit_of_an_hour_bounds_the_moves() -> None:
    here = world(policy(FlavorPromotion(max_moves_per_hour=1)), cheap=0)
    here.put(job("v"), job("w"))
    here.confirm(here.settle())
    here.put(quotas(cheap=16))

    def move() -> list[str]:
        decisions = here.settle()
        here.carry_out(tuple(decisions))
        here.confirm(here.settle())
        return evictions(decisions)

    here.now += 60
    assert move() == ["v"]
    here.now += 0.5 * HOUR
    assert move() == []
    here.now += 0.5 * HOUR
    assert move() == ["w"]
    assert flavors(here) == {"v": "cheap", "w": "cheap"}


def test_a_workload_is_not_moved_twice_in_an_hour() -> None:
    here = running_on_dear(policy()).put(quotas(cheap=8))
    here.carry_out(tuple(later(here, 60)))
    here.confirm(here.settle())
    # What was cheap becomes dear, so it would move back.
    here.put(ResourceFlavor(name="cheap", cost_per_device_hour=40.0))

    assert later(here, 0.5 * HOUR) == []
    assert evictions(later(here, 0.6 * HOUR)) == ["w"]


def test_the_next_leader_keeps_to_the_limit() -> None:
    here = running_on_dear(policy()).put(quotas(cheap=8))
    assert evictions(later(here, 60)) == ["w"]
    ((key, move),) = here.engine.plan.tables()[PlanTable.MOVES].items()
    assert (key, move) == (here.get("w").key, Move(at=here.now, policy="p", is_promotion=True))


def test_a_promised_start_is_not_delayed_by_a_move() -> None:
    """Half of the cheap flavor is free; a Workload that needs all of it is promised a start in an hour."""
    easy = policy(backfill=Backfill(mode=BackfillMode.EASY))
    here = world(easy, cheap=0).put(quotas(cheap=0, dear=4), job("long", gpus=4))
    here.confirm(here.settle())
    here.now += 60
    here.put(quotas(cheap=8, dear=4), job("short", {RUNTIME: "3600"}, gpus=4, at=1), job("whole", at=2))

    decisions = here.settle()
    assert evictions(decisions) == []
    here.confirm(decisions)
    assert flavors(here) == {"long": "dear", "short": "cheap"}
    here.remove(Workload, here.get("whole").key)
    assert evictions(later(here, 600)) == ["long"]


def test_a_workload_that_waits_for_checks_loses_nothing_by_a_move() -> None:
    here = running_on_dear(policy())
    waiting = make_condition(ConditionType.ADMITTED, False, reason="UnsatisfiedAdmissionChecks")
    here.put(with_conditions(here.get("w"), waiting))
    here.now += 12 * HOUR
    here.put(quotas(cheap=8))

    move = here.engine.promotions.explanation(here.get("w").key, now=here.now)
    assert move is not None
    assert move.lost_seconds == 0
    assert evictions(here.settle()) == ["w"]


def test_a_move_that_could_not_be_written_leaves_it_where_it_is() -> None:
    here = running_on_dear(policy()).put(quotas(cheap=8))
    (eviction,) = later(here, 60)
    assert isinstance(eviction, Evict)

    here.engine.withdraw(eviction.key, eviction.uid, now=here.now)
    here.engine.validate()
    assert flavors(here) == {"w": "dear"}
    assert evictions(later(here, 2 * HOUR)) == ["w"]


def test_an_explanation_names_the_move_and_its_gain() -> None:
    here = running_on_dear(policy())
    key = here.get("w").key
    assert here.engine.promotions.explanation(key, now=here.now) is None

    here.put(quotas(cheap=8))
    here.now += 60
    move = here.engine.promotions.explanation(key, now=here.now)
    assert move is not None
    assert (move.former, move.flavors) == (("dear",), ("cheap",))
    assert move.lost_seconds == 60 + PreemptionRules().default_restart_seconds
    assert 0.05 < move.gain < 0.25
    here.engine.validate()
