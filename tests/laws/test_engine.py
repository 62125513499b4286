"""Laws of deciding, for any cluster and any sequence of events.

- quota is never exceeded by a decision, and the books agree after every event (`Engine.validate`);
- deciding ends: cycle after cycle comes to rest;
- the order in which objects become known changes nothing;
- a cycle that decides leaves the snapshot as it was except for its decisions.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from admission.decisions.decision import Admit, Decision, Evict, Wait
from admission.engine.engine import Engine, EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api import keys
from api.policy import AdmissionPolicy, FlavorPromotion, FlavorRules, PlacementRules
from api.queueing import ClusterQueue, LocalQueue, Namespace, PreemptionPolicy, ResourceFlavor
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admitted,
    finished,
    make_condition,
    released,
    with_conditions,
)
from tests.examples import trying
from tests.laws.generators import FLAVORS, QUEUES, cluster_queues, cohorts, workloads

# Far more than any of these small clusters needs; a run that gets here would never end.
_MOST_CYCLES = 300


def overdraft(engine: Engine) -> dict[tuple[str, str, str], int]:
    """Return by how much each ClusterQueue overdraws its allowance, where it does, by flavor and resource."""
    overdrawn = {}
    for queue in engine._cache.queues.values():
        for pair, cell in queue.node.cells.items():
            if cell.available < 0:
                overdrawn[(queue.name, pair.flavor, pair.resource)] = -cell.available
    return overdrawn


def cluster(engine: Engine, values: list[Any]) -> Engine:
    for value in values:
        engine.objects.upsert(value, now=0)
    return engine


SCORES = AdmissionPolicy(name="scores", placement=PlacementRules(flavors=FlavorRules()))
PROMOTES = replace(
    SCORES, placement=PlacementRules(flavors=FlavorRules(promote=FlavorPromotion(min_gain=0.01)))
)


def base(queues: list[ClusterQueue]) -> list[Any]:
    local = [LocalQueue(namespace=NAMESPACE, name=one.name, cluster_queue=one.name) for one in queues]
    # The last flavor is the cheapest, so that choosing by score differs from Kueue's order.
    flavors = [
        ResourceFlavor(name=name, cost_per_device_hour=float(len(FLAVORS) - index))
        for index, name in enumerate(FLAVORS)
    ]
    return [Namespace(name=NAMESPACE), *flavors, *queues, *local]


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """A cluster with waiting Workloads, as the objects to upsert."""
    queues = [draw(cluster_queues(name)) for name in QUEUES]
    waiting = [draw(workloads(f"w{index}", at=float(index))) for index in range(draw(st.integers(0, 12)))]
    return [*base(queues), *draw(cohorts()), *draw(st.sampled_from([(), (SCORES,), (PROMOTES,)])), *waiting]


def whole_where_they_reclaim(values: list[Any]) -> list[Any]:
    """Return the values, with Workloads that need all their pods where their ClusterQueue reclaims quota.

    Those that may run with fewer pods may preempt each other without end, in Kueue as well: one reclaims its
    nominal quota for the pods that fit in there, as all of them would have to borrow, and starts with all of
    them once there is room. Now it borrows, and its victim reclaims in turn. Each decision is Kueue's, which
    tries all pods in every cycle and keeps no count (pkg/scheduler/scheduler.go, getInitialAssignments).
    """
    reclaiming = {
        one.name
        for one in values
        if isinstance(one, ClusterQueue)
        and one.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
    }

    def whole(workload: Workload) -> Workload:
        return replace(workload, pod_sets=tuple(replace(one, min_count=None) for one in workload.pod_sets))

    return [
        whole(one) if isinstance(one, Workload) and one.queue_name in reclaiming else one for one in values
    ]


def settle(engine: Engine, *, now: float = 0) -> list[Decision]:
    """Run cycles until the engine rests, checking that none overdraws more than was overdrawn before."""
    decisions: list[Decision] = []
    for _ in range(_MOST_CYCLES):
        if not engine.wake_heads(now=now):
            return decisions
        before = overdraft(engine)
        decisions += engine.cycle(now=now)
        engine.validate()
        after = overdraft(engine)
        assert all(amount <= before.get(key, 0) for key, amount in after.items()), (before, after)
    raise AssertionError(f"still deciding after {_MOST_CYCLES} cycles")


@given(clusters(), st.randoms(use_true_random=False), st.sampled_from([None, FairPreemption()]))
def test_the_order_in_which_objects_become_known_changes_nothing(
    values: list[Any], random: Random, sharing: FairPreemption | None
) -> None:
    shuffled = [*values]
    random.shuffle(shuffled)

    first = settle(cluster(Engine(EngineSettings(fair_sharing=sharing)), values))
    second = settle(cluster(Engine(EngineSettings(fair_sharing=sharing)), shuffled))

    assert first == second


@given(clusters(), st.sampled_from([None, FairPreemption()]))
def test_an_admitted_workload_fits_and_a_waiting_one_gets_a_reason(
    values: list[Any], sharing: FairPreemption | None
) -> None:
    engine = cluster(Engine(EngineSettings(fair_sharing=sharing)), values)

    decisions = settle(engine)

    assert overdraft(engine) == {}
    holding = {key for key, _ in engine.workloads.admissions()}
    assert holding == {one.key for one in decisions if isinstance(one, Admit)}
    for one in decisions:
        if isinstance(one, Admit):
            assert all(part.count > 0 or not part.usage for part in one.admission.pod_sets)
        elif isinstance(one, Evict | Wait):
            assert one.message


@given(clusters(), st.sampled_from([None, FairPreemption()]))
def test_evicting_ends_where_nothing_else_happens(values: list[Any], sharing: FairPreemption | None) -> None:
    world = World(EngineSettings(fair_sharing=sharing)).put(*whole_where_they_reclaim(values))

    for _ in range(_MOST_CYCLES):
        if not world.engine.wake_heads(now=world.now):
            return
        world.now += 1
        world.carry_out(world.cycle())

    raise AssertionError(f"still evicting after {_MOST_CYCLES} cycles")


class Cluster(RuleBasedStateMachine):
    """Any sequence of what users, the controller and other programs do."""

    sharing: FairPreemption | None = None

    def __init__(self) -> None:
        super().__init__()
        self.engine = Engine(EngineSettings(fair_sharing=self.sharing))
        self.now = 0.0
        self.counter = 0

    known = Bundle("known")

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        queues = [data.draw(cluster_queues(name)) for name in QUEUES]
        cluster(self.engine, [*base(queues), *data.draw(cohorts())])

    @rule(target=known, data=st.data())
    def create(self, data: st.DataObject) -> WorkloadKey:
        self.counter += 1
        workload = data.draw(workloads(f"w{self.counter}", at=self.now))
        self.put(workload)
        return workload.key

    @rule(key=known)
    def confirm(self, key: WorkloadKey) -> None:
        """The object shows what was decided."""
        workload, admission = (
            self.engine.workloads.workload(key),
            dict(self.engine.workloads.admissions()).get(key),
        )
        if workload is not None and admission is not None:
            self.put(admitted(workload, admission, at=self.now))

    @rule(target=known, key=known, more=st.integers(1, 3))
    def grow(self, key: WorkloadKey, more: int) -> WorkloadKey:
        """An elastic Job asks for more pods: another slice is to replace the one that holds quota."""
        self.counter += 1
        former = self.engine.workloads.workload(key)
        new = WorkloadKey(NAMESPACE, f"w{self.counter}")
        if former is None or not former.has_quota_reservation:
            return key
        self.put(
            Workload(
                key=new,
                uid=f"uid-{new.name}",
                created_at=self.now,
                queue_name=former.queue_name,
                priority=former.priority,
                pod_sets=tuple(
                    replace(one, count=one.count + more, min_count=None) for one in former.pod_sets
                ),
                annotations={keys.ELASTIC_JOB: "true", keys.SLICE_REPLACEMENT_FOR: str(key)},
                generation=1,
            )
        )
        return new

    @rule(key=known)
    def shrink(self, key: WorkloadKey) -> None:
        """An elastic Job asks for fewer pods: its slice counts fewer."""
        workload = self.engine.workloads.workload(key)
        if workload is not None and all(one.count > 1 for one in workload.pod_sets):
            fewer = tuple(replace(one, count=one.count - 1, min_count=None) for one in workload.pod_sets)
            self.put(replace(workload, pod_sets=fewer, generation=workload.generation + 1))

    @rule(key=known)
    def stop(self, key: WorkloadKey) -> None:
        """A Workload that holds quota is evicted and its Job stops."""
        workload = self.engine.workloads.workload(key)
        if workload is not None and workload.has_quota_reservation:
            condition = make_condition(ConditionType.EVICTED, reason="Preempted", at=self.now)
            self.put(with_conditions(workload, condition))
            self.put(released(workload, at=self.now))

    @rule(key=consumes(known))
    def finish(self, key: WorkloadKey) -> None:
        workload = self.engine.workloads.workload(key)
        if workload is not None:
            self.put(finished(workload))

    @rule(key=consumes(known))
    def delete(self, key: WorkloadKey) -> None:
        self.engine.objects.remove(Workload, key, now=self.now)

    @rule(key=known, priority=st.integers(0, 3))
    def change_priority(self, key: WorkloadKey, priority: int) -> None:
        workload = self.engine.workloads.workload(key)
        if workload is not None:
            self.put(replace(workload, priority=priority, generation=workload.generation + 1))

    @rule(key=known)
    def fail_to_write(self, key: WorkloadKey) -> None:
        workload = self.engine.workloads.workload(key)
        if workload is not None:
            self.engine.forget(key, workload.uid, now=self.now)

    @rule(data=st.data(), name=st.sampled_from(QUEUES))
    def change_queue(self, data: st.DataObject, name: str) -> None:
        self.engine.objects.upsert(data.draw(cluster_queues(name)), now=self.now)

    @rule(name=st.sampled_from(QUEUES))
    def delete_queue(self, name: str) -> None:
        self.engine.objects.remove(ClusterQueue, name, now=self.now)

    @rule(data=st.data())
    def change_cohorts(self, data: st.DataObject) -> None:
        cluster(self.engine, list(data.draw(cohorts())))

    @rule()
    def decide(self) -> None:
        self.now += 1
        for decision in settle(self.engine, now=self.now):
            if isinstance(decision, Evict):
                assert decision.key in dict(self.engine.workloads.admissions())

    @invariant()
    def the_books_agree(self) -> None:
        self.engine.validate()

    def put(self, workload: Workload) -> None:
        self.engine.objects.upsert(workload, now=self.now)


class FairCluster(Cluster):
    """The same under fair sharing."""

    sharing = FairPreemption()


_steps = trying(25, steps=25, is_hard_to_draw=True)
TestCluster = Cluster.TestCase
TestCluster.settings = _steps
TestFairCluster = FairCluster.TestCase
TestFairCluster.settings = _steps
