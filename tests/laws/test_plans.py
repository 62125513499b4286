"""Law of shared answers: what is recalled for a Workload is what a search for it would have found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from admission.decisions.assignment import Assignment
from admission.decisions.decision import Decision, Evict, Wait
from admission.decisions.flavor_mode import Grade, Granular
from admission.engine.engine import EngineSettings
from admission.flavors.flavor_assigner import FlavorSearch
from admission.nomination import nominate
from admission.placement.topology_cache import KeptPlacements
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.preemptor import Preemptor
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.queueing import Preemption, PreemptionPolicy, ResourceFlavor, Topology
from api.workload import TopologyRequest, Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    finished,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_workload,
)
from tests.examples import trying
from tests.laws.test_engine import clusters

_MOST_ROUNDS = 60


def story(values: list[Any], sharing: FairPreemption | None, ends: list[int]) -> list[Decision]:
    """Decide and carry out; when nothing moves, one of those that run comes to its end."""
    world = World(EngineSettings(fair_sharing=sharing)).put(*values)
    decisions: list[Decision] = []
    for _ in range(_MOST_ROUNDS):
        world.now += 1
        if world.engine.wake_heads(now=world.now):
            decisions += world.carry_out(world.cycle())
            continue
        running = sorted(key for key, _ in world.engine.workloads.admissions())
        if not running or not ends:
            break
        world.put(finished(world.get(running[ends.pop() % len(running)].name)))
    return decisions


@trying(60)
@given(clusters(), st.sampled_from([None, FairPreemption()]), st.lists(st.integers(0, 99), max_size=8))
def test_recalled_answers_are_those_of_a_search(
    values: list[Any], sharing: FairPreemption | None, ends: list[int]
) -> None:
    recalled = story(values, sharing, [*ends])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nominate, "recall", lambda *_: None)
        searched = story(values, sharing, [*ends])

    assert recalled == searched


def on_nodes(values: list[Any], room: int) -> list[Any]:
    """Return the cluster with nodes in two racks, where all pods are placed, some of them in one domain."""
    within = [None, TopologyRequest(required="rack"), TopologyRequest(required=HOSTNAME)]
    labels = [{"rack": f"r{number // 2}", HOSTNAME: f"n{number}"} for number in range(4)]
    free = {"gpu": room, "disk": 99, "pods": 99}
    nodes = [NodeInfo(name=one[HOSTNAME], labels=one, allocatable=free) for one in labels]

    def placed(value: Any, number: int) -> Any:
        match value:
            case ResourceFlavor():
                return replace(value, topology_name="nodes")
            case Workload():
                asked = within[number % len(within)]
                return replace(
                    value, pod_sets=tuple(replace(one, topology_request=asked) for one in value.pod_sets)
                )
        return value

    topology = Topology(name="nodes", levels=("rack", HOSTNAME))
    return [topology, *nodes, *(placed(value, number) for number, value in enumerate(values))]


@trying(60)
@given(clusters(), st.integers(1, 4), st.lists(st.integers(0, 99), max_size=8))
def test_answers_recalled_with_places_are_those_of_a_search(
    values: list[Any], room: int, ends: list[int]
) -> None:
    values = on_nodes(values, room)
    recalled = story(values, None, [*ends])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nominate, "recall", lambda *_: None)
        patch.setattr(KeptPlacements, "get", lambda *_: None)
        patch.setattr(Preemptor, "finds_no_victim", lambda *_: False)
        searched = story(values, None, [*ends])

    assert recalled == searched


@trying(60)
@given(clusters(), st.lists(st.integers(0, 99), max_size=8))
def test_no_candidates_are_reported_only_where_no_search_finds_one(
    values: list[Any], ends: list[int]
) -> None:
    said: list[bool] = []
    grade = Preemptor.grade

    def watched(preemptor: Preemptor, queue: Any, pending: Any, pair: Any, *rest: Any) -> Grade:
        found = grade(preemptor, queue, pending, pair, *rest)
        if preemptor.finds_no_victim(queue, pending, [pair]):
            said.append(found.mode is Granular.NO_CANDIDATES)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nominate, "recall", lambda *_: None)
        patch.setattr(Preemptor, "grade", watched)
        story(values, None, [*ends])

    assert all(said)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[WorkloadKey]:
    """Record the Workloads whose flavors are searched."""
    made: list[WorkloadKey] = []
    assign = FlavorSearch.assign

    def watched(search: FlavorSearch, *args: Any) -> Assignment:
        made.append(search.pending.key)
        return assign(search, *args)

    monkeypatch.setattr(FlavorSearch, "assign", watched)
    return made


def test_the_flavors_are_searched_once_for_equal_workloads_that_fit(searches: list[WorkloadKey]) -> None:
    world = World().put(make_cluster_queue(quota=9), *(make_workload(f"w{n}", at=n) for n in range(9)))

    assert len(admits(world.settle())) == 9
    assert searches == [WorkloadKey(NAMESPACE, "w0")]


def test_flavors_are_searched_again_once_equal_workloads_would_borrow(searches: list[WorkloadKey]) -> None:
    world = World().put(
        make_cluster_queue(quota=1, cohort="cohort"),
        make_cluster_queue("lender", quota=1, cohort="cohort"),
        *(make_workload(f"w{n}", at=n) for n in range(3)),
    )

    assert admits(world.settle()) == ["w0", "w1"]
    assert [key.name for key in searches] == ["w0", "w1", "w2"]


def test_they_are_searched_once_for_equal_workloads_that_wait_however_much_lacks(
    searches: list[WorkloadKey],
) -> None:
    large = (make_pod_set(requests={"gpu": 5}),)
    world = World().put(
        make_cluster_queue(quota=6),
        *(make_workload(f"w{n}", at=n) for n in range(4)),
        *(make_workload(f"large{n}", at=9, pod_sets=large) for n in range(3)),
    )
    world.confirm(world.settle())

    messages = []
    for name in ("w0", "w1"):
        world.put(finished(world.get(name)))
        messages += [one.message for one in world.settle() if isinstance(one, Wait)]

    assert [key.name for key in searches] == ["w0", "large0"]
    assert [message.rpartition(", ")[2] for message in messages] == ["2 more needed", "1 more needed"]


def test_a_workload_that_found_no_victim_finds_one_admitted_since() -> None:
    preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = World().put(
        make_cluster_queue(quota=3, preemption=preemption),
        make_workload("same", priority=5),
        make_workload("large", at=1, priority=5, pod_sets=(make_pod_set(requests={"gpu": 3}),)),
        make_workload("lower", at=2, priority=1),
    )
    world.confirm(world.settle())
    world.put(finished(world.get("same")))

    assert [one.key.name for one in world.settle() if isinstance(one, Evict)] == ["lower"]


def test_a_first_flavor_that_was_full_is_taken_again_once_there_is_room() -> None:
    group = make_group("spot", "reserved", spot=1, reserved=9)
    world = World().put(
        ResourceFlavor(name="spot"),
        ResourceFlavor(name="reserved"),
        make_cluster_queue(groups=(group,)),
        *(make_workload(f"w{n}", at=n, pod_sets=(make_pod_set(requests={"gpu": 1}),)) for n in range(3)),
    )
    world.confirm(world.settle())
    world.put(finished(world.get("w0")), make_workload("w3", at=3))

    world.settle()

    flavors = {key.name: one.pod_sets[0].flavors["gpu"] for key, one in world.engine.workloads.admissions()}
    assert flavors == {"w1": "reserved", "w2": "reserved", "w3": "spot"}
