"""A policy's consolidation: others are moved so that a gang gets a domain, and all of them go on.

rack r0: n0 n1      rack r1: n2 n3      nodes of 8 GPUs; the gang needs both nodes of a rack
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.decisions.decision import Admit, Decision, Evict
from admission.engine.engine import Engine
from admission.engine.updates import Upsertable
from admission.placement.topology.place import Place, place_of, taken_per_pod
from admission.placement.topology_cache import Unplaced
from api.objects.common import WireSelector
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.policy import AdmissionPolicy, Consolidation, PlacementRules, PreemptionRules
from api.queueing import (
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import (
    Admission,
    Condition,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)
from queues.profile.holds import Move
from queues.reservations.plan import PlanTable
from tests.admission.placement.fleets import (
    FLAVOR,
    GPU,
    HOST,
    LEVELS,
    RACK,
    make_fleet,
    make_node,
    make_request,
)
from tests.admission.succession import successor
from tests.examples import trying

NOW = 10_000.0
IN_A_RACK = TopologyRequest(required=RACK)
ON_A_NODE = TopologyRequest(required=HOST)


def make_workload(
    name: str,
    pods: int = 1,
    *,
    gpus: int = 8,
    priority: int = 0,
    queue: str = "lq",
    topology: TopologyRequest | None = ON_A_NODE,
    created_at: float = 0.0,
) -> Workload:
    """Return a Workload of pods that take `gpus` GPUs each."""
    resources = WireResources(requests={GPU: gpus})
    template = WirePodTemplate(spec=WirePodSpec(containers=(WireContainer(resources=resources),)))
    return Workload(
        key=WorkloadKey("ns", name),
        uid=name,
        created_at=created_at,
        queue_name=queue,
        priority=priority,
        pod_sets=(PodSet(name="main", count=pods, template=template, topology_request=topology),),
    )


def running(workload: Workload, *hosts: str, gpus: int = 8, started_at: float = NOW - 1000) -> Workload:
    """Return the Workload as it runs, a pod on each of the hosts."""
    assignment = PodSetAssignment(
        name="main",
        count=len(hosts),
        flavors={GPU: FLAVOR},
        usage={GPU: gpus * len(hosts)},
        topology=TopologyAssignment(
            levels=(HOST,), domains=tuple(DomainCount(values=(host,), count=1) for host in hosts)
        ),
    )
    kinds = (ConditionType.QUOTA_RESERVED, ConditionType.ADMITTED)
    return replace(
        workload,
        admission=Admission(cluster_queue=f"c{workload.queue_name}", pod_sets=(assignment,)),
        conditions={kind: Condition(type=kind, status=True, at=started_at) for kind in kinds},
    )


def make_engine(
    *workloads: Workload, nodes: int = 4, quota: int = 100, bound_to: Iterable[str] = (), **bounds: int
) -> Engine:
    """Return an engine with two nodes a rack and two queues without preemption."""
    engine = Engine()
    rules = PlacementRules(consolidation=Consolidation(**{"min_waiting_seconds": 600, **bounds}))
    values: list[Upsertable] = [
        Namespace(name="ns"),
        Topology(name="default", levels=LEVELS),
        ResourceFlavor(name=FLAVOR, topology_name="default"),
        AdmissionPolicy(
            name="moving",
            placement=rules,
            preemption=PreemptionRules(minimum_runtime_seconds=0),
            queue_names=frozenset(bound_to),
        ),
    ]
    for name in ("lq", "other"):
        quotas = FlavorQuotas(name=FLAVOR, resources={GPU: ResourceQuota(nominal=quota)})
        group = ResourceGroup(covered_resources=(GPU,), flavors=(quotas,))
        values.append(
            ClusterQueue(name=f"c{name}", namespace_selector=WireSelector(), resource_groups=(group,))
        )
        values.append(LocalQueue(namespace="ns", name=name, cluster_queue=f"c{name}"))
    values += [make_node(f"n{number}", "b0", f"r{number // 2}", 8) for number in range(nodes)]
    for value in (*values, *workloads):
        engine.objects.upsert(value, now=0.0)
    return engine


def decide(engine: Engine, *, now: float = NOW) -> list[Decision]:
    """Decide until nothing more can be decided."""
    decisions: list[Decision] = []
    while engine.wake_heads(now=now):
        decisions += engine.cycle(now=now)
        engine.validate()
    return decisions


def moved(decisions: Iterable[Decision]) -> list[str]:
    """Return the Workloads that are moved."""
    return [one.key.name for one in decisions if isinstance(one, Evict)]


def hosts_of(decision: Decision) -> set[str]:
    """Return the hosts of an admission."""
    assert isinstance(decision, Admit)
    topology = decision.admission.pod_sets[0].topology
    assert topology is not None
    return {domain.values[-1] for domain in topology.domains}


GANG = make_workload("gang", 2, priority=5, topology=IN_A_RACK)
X, Y = make_workload("x"), make_workload("y", priority=1)
TORN = (running(X, "n0"), running(Y, "n2"))


def test_a_workload_that_splits_the_rack_is_moved_by_the_ordinary_eviction() -> None:
    (eviction,) = [one for one in decide(make_engine(*TORN, GANG)) if isinstance(one, Evict)]

    assert eviction.key == X.key
    assert (eviction.reason, eviction.preemption_reason) == (
        EvictionReason.PREEMPTED,
        PreemptionReason.CONSOLIDATION,
    )
    assert eviction.preemptor == GANG.key
    assert "there is another place for this workload" in eviction.message


def test_once_it_has_stopped_the_gang_and_the_moved_one_run_side_by_side() -> None:
    engine = make_engine(*TORN, GANG)
    assert moved(decide(engine)) == ["x"]
    # It is asked again while x is stopping, and no other Workload is moved.
    engine.objects.upsert(make_node("n9", "b0", "r9", 0), now=NOW + 1)
    assert moved(decide(engine, now=NOW + 1)) == []

    conditions: dict[str, Condition] = {
        kind: Condition(type=kind, status=True, reason=reason, at=NOW + 2)
        for kind, reason in (
            (ConditionType.EVICTED, EvictionReason.PREEMPTED),
            (ConditionType.PREEMPTED, PreemptionReason.CONSOLIDATION),
            (ConditionType.REQUEUED, "Preempted"),
        )
    }
    # One of its own priority that has waited for longer.
    engine.objects.upsert(make_workload("rival", created_at=-5.0), now=NOW + 2)
    engine.objects.upsert(replace(X, conditions=conditions), now=NOW + 2)
    admitted = {one.key.name: hosts_of(one) for one in decide(engine, now=NOW + 2) if isinstance(one, Admit)}

    assert admitted["gang"] == {"n0", "n1"}
    assert admitted["x"] == {"n3"}


@pytest.mark.parametrize(
    ("workloads", "bounds"),
    [
        pytest.param((*TORN, replace(GANG, created_at=NOW - 599)), {}, id="the gang has not waited for long"),
        pytest.param((*TORN, replace(GANG, priority=0)), {}, id="no Workload is of lower priority"),
        pytest.param((*TORN, GANG), {"max_moves_per_hour": 0}, id="no more moves are allowed"),
        pytest.param((*TORN, GANG), {"max_lost_seconds": 100}, id="too much would be lost"),
        pytest.param((*TORN, GANG), {"quota": 24}, id="the gang has no quota"),
        pytest.param(
            (*TORN, running(make_workload("z"), "n3"), GANG), {}, id="there is no other place for the moved"
        ),
        pytest.param((*TORN, GANG), {"bound_to": ("cother",)}, id="the gang's queue has no consolidation"),
        pytest.param(
            (
                running(make_workload("x", queue="other"), "n0"),
                running(make_workload("y", queue="other"), "n2"),
                GANG,
            ),
            {"bound_to": ("clq",)},
            id="the queues of the others have no consolidation",
        ),
    ],
)
def test_no_workload_is_moved_where(workloads: tuple[Workload, ...], bounds: dict[str, int]) -> None:
    assert moved(decide(make_engine(*workloads, **bounds))) == []  # type: ignore[arg-type]


def test_the_gang_is_asked_again_when_it_has_waited_for_long() -> None:
    engine = make_engine(*TORN, replace(GANG, created_at=NOW - 100), max_lost_seconds=3600)
    assert moved(decide(engine)) == []

    assert engine.next_wake_at() == NOW + 500
    assert moved(decide(engine, now=NOW + 500)) == ["x"]


def test_it_is_asked_again_where_no_node_has_room_for_a_pod_as_it_is() -> None:
    halves = [running(make_workload(f"h{n}", gpus=4), f"n{n}", gpus=4) for n in range(4)]
    whole = make_workload("gang", 1, priority=5, topology=None, created_at=NOW - 100)
    engine = make_engine(*halves, whole, max_lost_seconds=3600)
    assert moved(decide(engine)) == []

    assert moved(decide(engine, now=NOW + 500)) == ["h0"]


def test_no_workload_is_moved_twice_within_the_hour() -> None:
    engine = make_engine(*TORN, GANG)
    assert moved(decide(engine)) == ["x"]
    engine.objects.upsert(running(X, "n0", started_at=NOW + 2), now=NOW + 2)
    engine.forget(X.key, X.uid, now=NOW + 2)

    assert moved(decide(engine, now=NOW + 3)) == ["y"]


def test_a_new_leader_moves_no_workload_twice_within_the_hour_either() -> None:
    engine = make_engine(*TORN, GANG)
    assert moved(decide(engine)) == ["x"]
    engine.objects.upsert(running(X, "n0", started_at=NOW + 2), now=NOW + 2)

    again = successor(engine, settings=None, now=NOW + 3)

    # Nor does the gang get beyond its policy's bound by that: the move of x counts.
    assert again.plan.tables()[PlanTable.MOVES] == {X.key: Move(at=NOW, policy="moving")}
    assert moved(decide(again, now=NOW + 3)) == ["y"]
    late = successor(engine, settings=None, now=NOW + 3600)
    assert not late.plan.tables()[PlanTable.MOVES]


def test_pods_that_may_lie_anywhere_get_the_nodes_that_others_share() -> None:
    halves = [running(make_workload(f"h{n}", gpus=4), f"n{n}", gpus=4) for n in range(4)]
    whole = make_workload("gang", 1, priority=5, topology=None)

    assert moved(decide(make_engine(*halves, whole))) == ["h0"]


def busy(name: str, host: str, gpus: int = 8, *, ran: float = 1000, priority: int = 0) -> Workload:
    """Return a Workload of one pod that runs on the host; one of priority 9 cannot be moved."""
    workload = make_workload(name, gpus=gpus, priority=priority)
    return running(workload, host, gpus=gpus, started_at=NOW - ran)


def test_no_workload_is_moved_where_no_single_node_has_room_for_it() -> None:
    """Rack r1 has as many GPUs free as x takes, four on each of its nodes."""
    halves = [busy(f"u{number}", f"n{number}", 4, priority=9) for number in (2, 3)]

    assert moved(decide(make_engine(busy("x", "n0"), *halves, GANG))) == []


def test_the_rack_that_loses_least_is_emptied_though_others_hold_the_cheapest_workloads() -> None:
    """a and b lose 330 s on eight GPUs each, c loses 530 s; of racks r2 and r3 one node each is free."""
    others = [busy("u4", "n4", priority=9), busy("u6", "n6", priority=9)]
    cheap = [busy("a", "n0", ran=300), busy("b", "n1", ran=300), busy("c", "n2", ran=500)]

    assert moved(decide(make_engine(*cheap, *others, GANG, nodes=8))) == ["c"]


def test_of_those_that_need_not_all_move_the_one_that_loses_most_stays() -> None:
    """The gang needs four of the six GPUs of a, b and c: a and b are too few, c with either is enough."""
    jobs = [busy("a", "n0", 2, ran=100), busy("b", "n0", 1, ran=400), busy("c", "n0", 3, ran=400)]
    others = [busy(f"u{number}", f"n{number}", 4, priority=9) for number in (1, 2, 3)]
    gang = make_workload("gang", gpus=6, priority=5)

    assert sorted(moved(decide(make_engine(*jobs, *others, gang)))) == ["a", "c"]


@given(
    placed=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from((2, 4, 8)), st.integers(0, 6)), min_size=3, max_size=10
    ),
    most=st.integers(0, 4),
    seconds=st.integers(0, 3000),
)
@trying(60)
def test_every_moved_workload_has_another_place_beside_the_gang(
    placed: list[tuple[int, int, int]], most: int, seconds: int
) -> None:
    free = dict.fromkeys(range(8), 8)
    workloads: dict[str, tuple[Workload, Place]] = {}
    for number, (node, gpus, priority) in enumerate(placed):
        if free[node] < gpus:
            continue
        free[node] -= gpus
        one = running(make_workload(f"w{number}", gpus=gpus, priority=priority), f"n{node}", gpus=gpus)
        topology = one.admission.pod_sets[0].topology  # type: ignore[union-attr]
        assert topology is not None
        place = Place(flavor=FLAVOR, assignment=topology, per_pod=taken_per_pod({GPU: gpus}))
        workloads[one.key.name] = one, place
    engine = make_engine(
        *(one for one, _ in workloads.values()),
        GANG,
        nodes=8,
        max_moves_per_hour=most,
        max_lost_seconds=seconds,
    )

    movers = moved(decide(engine))

    assert len(movers) <= most
    assert all(workloads[name][0].priority < GANG.priority for name in movers)
    # Each has run for 1000 s since it last saved, and takes 30 s to restart.
    lost = sum(workloads[name][1].per_pod[GPU] * (1000 + 30) for name in movers)
    assert lost <= 16 * seconds
    if movers:
        topology_cache = make_fleet({"b0": {f"r{rack}": [8, 8] for rack in range(4)}})
        topology_cache.usage.use(
            [place for name, (_, place) in workloads.items() if name not in movers], sign=1
        )
        sizes = sorted((workloads[name][1].per_pod[GPU] for name in movers), reverse=True)
        requests = [make_request(2, gpus=8, required=RACK)]
        requests += [make_request(1, gpus=gpus, required=HOST) for gpus in sizes]
        for request in requests:
            found = topology_cache.place([request])
            assert not isinstance(found, Unplaced)
            topology_cache.usage.use([place_of(request, found["main"])], sign=1)
