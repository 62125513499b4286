"""Kueue's invariants after every event, for long sequences of what happens to a cluster.

Four ClusterQueues below three Cohorts; of the two flavors one has a topology, two racks of two nodes.
Workloads come, run, finish, are evicted, stop late or early; quotas, priorities, policies and nodes change.
After every event, once the engine rests:

- what the ClusterQueues use is the sum of their admissions; no admission overdraws what a queue may use, and
  none takes what a node does not have, or a node that is not ready or gone;
- pods that require a rack are in one, and a placement has as many pods as were admitted;
- no Workload of a StrictFIFO queue is admitted past one that is before it;
- a victim is one that the preemption policies of the two queues allow;
- nothing is admitted that was evicted and has not stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import hypothesis.strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    multiple,
    rule,
)

from admission.decisions.decision import Admit, Evict, Reassign
from admission.engine.engine import EngineSettings
from admission.placement.topology.node_health import hosts_of
from admission.preemption.fair_sharing import FairPreemption
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.queueing import PreemptionPolicy, QueueingStrategy, ResourceFlavor, Topology
from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import Admission, TopologyRequest, Workload, WorkloadKey
from tests.builders import World, admitted, finished, make_condition, released, with_conditions
from tests.examples import trying
from tests.laws.generators import FLAVORS, QUEUES, cluster_queues, cohorts, workloads

RACK = "rack"
PLACED, PLAIN = FLAVORS
NODES = ("n0", "n1", "n2", "n3")
REQUESTS = (
    None,
    TopologyRequest(required=RACK),
    TopologyRequest(preferred=RACK),
    TopologyRequest(unconstrained=True),
)
_MOST_CYCLES = 300


def make_node(name: str, *, gpus: int = 4, is_ready: bool = True) -> NodeInfo:
    """Return a node; two of them share a rack."""
    rack = f"r{NODES.index(name) // 2}"
    return NodeInfo(
        name=name,
        labels={RACK: rack, HOSTNAME: name},
        allocatable={"gpu": gpus, "disk": 100, "pods": 100},
        is_ready=is_ready,
    )


class Invariants(RuleBasedStateMachine):
    """A cluster, its events, and what must hold after each."""

    sharing: FairPreemption | None = None
    known = Bundle("known")

    def __init__(self) -> None:
        super().__init__()
        self.world = World(settings=EngineSettings(fair_sharing=self.sharing))
        self.counter = 0

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.world.put(
            Topology(name="racks", levels=(RACK, HOSTNAME)),
            ResourceFlavor(name=PLACED, topology_name="racks"),
            ResourceFlavor(name=PLAIN),
            *(make_node(name) for name in NODES),
            *data.draw(cohorts()),
            *(data.draw(cluster_queues(name)) for name in QUEUES),
        )
        self.settle()

    # --- events ------------------------------------------------------------------------------------------

    @rule(target=known, data=st.data(), count=st.integers(1, 6))
    def create(self, data: st.DataObject, count: int) -> MultipleResults[WorkloadKey]:
        """Several come at once, so that heads of one cycle compete."""
        keys = []
        for _ in range(count):
            self.counter += 1
            workload = data.draw(workloads(f"w{self.counter}", at=self.world.now))
            topology = data.draw(st.sampled_from(REQUESTS))
            pod_sets = tuple(replace(one, topology_request=topology) for one in workload.pod_sets)
            self.world.put(replace(workload, pod_sets=pod_sets))
            keys.append(workload.key)
        self.settle()
        return multiple(*keys)

    @rule(key=known)
    def evict(self, key: WorkloadKey) -> None:
        """Another program evicts a Workload, which keeps its quota."""
        if (workload := self.holding(key)) is not None:
            self.world.put(self.evicted(workload, EvictionReason.DEACTIVATED))
            self.settle()

    @rule(key=known)
    def stop(self, key: WorkloadKey) -> None:
        """The work of an evicted Workload has stopped."""
        workload = self.holding(key)
        if workload is not None and workload.is_evicted:
            self.world.put(released(workload, at=self.world.now))
            self.settle()

    @rule(key=consumes(known))
    def finish(self, key: WorkloadKey) -> None:
        if (workload := self.world.engine.workloads.workload(key)) is not None:
            self.world.put(finished(workload))
            self.settle()

    @rule(key=consumes(known))
    def delete(self, key: WorkloadKey) -> None:
        self.world.remove(Workload, key)
        self.settle()

    @rule(key=known, priority=st.integers(0, 3))
    def change_priority(self, key: WorkloadKey, priority: int) -> None:
        if (workload := self.world.engine.workloads.workload(key)) is not None:
            self.world.put(replace(workload, priority=priority, generation=workload.generation + 1))
            self.settle()

    @rule(data=st.data(), name=st.sampled_from(QUEUES))
    def change_queue(self, data: st.DataObject, name: str) -> None:
        self.world.put(data.draw(cluster_queues(name)))
        self.settle()

    @rule(data=st.data())
    def change_cohorts(self, data: st.DataObject) -> None:
        self.world.put(*data.draw(cohorts()))
        self.settle()

    @rule(name=st.sampled_from(NODES), gpus=st.integers(0, 6), is_ready=st.booleans())
    def change_node(self, name: str, gpus: int, is_ready: bool) -> None:
        self.world.put(make_node(name, gpus=gpus, is_ready=is_ready))
        self.settle()

    @rule(name=st.sampled_from(NODES))
    def remove_node(self, name: str) -> None:
        self.world.remove(NodeInfo, name)
        self.settle()

    @rule(key=known)
    def fail_to_write(self, key: WorkloadKey) -> None:
        """A decision could not be written."""
        if (workload := self.world.engine.workloads.workload(key)) is not None:
            self.world.engine.forget(key, workload.uid, now=self.world.now)
            self.settle()

    # --- deciding, and what must hold ---------------------------------------------------------------------

    def settle(self) -> None:
        """Decide until nothing more can be decided; objects show each decision before the next."""
        world, engine = self.world, self.world.engine
        for _ in range(_MOST_CYCLES):
            world.now += 1
            self.report_nodes()
            for moved in engine.second_pass(now=world.now):
                self.show_second_pass(moved)
            if not engine.wake_heads(now=world.now):
                if engine.next_second_pass_at() is None:
                    return
                continue
            self.cycle()
        raise AssertionError(f"still deciding after {_MOST_CYCLES} cycles")

    def cycle(self) -> None:
        world, engine = self.world, self.world.engine
        overdrawn, lacking = self.overdrawn(), self.lacking()
        waiting = {name: [one.key.name for one in engine.queues.pending(name)] for name in QUEUES}
        borrowers = {queue.name for queue in engine._cache.queues.values() if self.borrows(queue.name)}
        decisions = world.cycle()
        # The books agree, and what was lacking before may still be lacking.
        self.check_sums()
        assert all(amount <= overdrawn.get(key, 0) for key, amount in self.overdrawn().items())
        assert all(amount <= lacking.get(key, 0) for key, amount in self.lacking().items())
        for decision in decisions:
            if isinstance(decision, Admit):
                self.check_admission(decision, waiting[decision.admission.cluster_queue])
            elif isinstance(decision, Evict):
                self.check_victim(decision, borrowers)
        world.confirm(decisions)
        for decision in decisions:
            if isinstance(decision, Evict):
                world.put(self.evicted(world.get(decision.key.name), decision.reason))

    def check_admission(self, decision: Admit, waiting: list[str]) -> None:
        workload, name = self.world.get(decision.key.name), decision.key.name
        assert not (workload.is_evicted and workload.has_quota_reservation), "it has not stopped yet"
        queue = self.world.engine._cache.queues[decision.admission.cluster_queue]
        if queue.spec.queueing_strategy is QueueingStrategy.STRICT_FIFO:
            assert waiting[:1] == [name], f"{name} was admitted past {waiting}"
        for one in decision.admission.pod_sets:
            if PLACED not in one.flavors.values():
                assert one.topology is None
                continue
            assert one.topology is not None
            assert sum(domain.count for domain in one.topology.domains) == one.count
            nodes = [self.node(host) for host in hosts_of(one.topology)]
            assert all(node is not None and node.is_ready for node in nodes)
            racks = {node.labels[RACK] for node in nodes if node is not None}
            (pod_set,) = workload.pod_sets
            required = pod_set.topology_request is not None and pod_set.topology_request.required
            assert len(racks) == 1 or not required

    def check_victim(self, decision: Evict, borrowers: set[str]) -> None:
        victim, queues = self.world.get(decision.key.name), self.world.engine._cache.queues
        assert decision.preemptor is not None
        preemptor = self.world.get(decision.preemptor.name)
        rules = queues[decision.preempting_cluster_queue].spec.preemption
        is_own = decision.cluster_queue == decision.preempting_cluster_queue
        assert is_own == (decision.preemption_reason is PreemptionReason.IN_CLUSTER_QUEUE)
        if is_own:
            assert rules.within_cluster_queue is not PreemptionPolicy.NEVER
            may_be_equal = rules.within_cluster_queue is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
            assert victim.priority < preemptor.priority or (
                may_be_equal and victim.priority == preemptor.priority
            )
            return
        assert rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
        assert decision.cluster_queue in borrowers, "only what is borrowed is reclaimed"
        if rules.reclaim_within_cohort is PreemptionPolicy.LOWER_PRIORITY:
            assert victim.priority < preemptor.priority

    def check_sums(self) -> None:
        """Usage of each ClusterQueue and of each node is the sum of what was admitted there."""
        used: Counter[tuple[str, str, str]] = Counter()
        for _, admission in self.admissions():
            for one in admission.pod_sets:
                for resource, amount in one.usage.items():
                    used[admission.cluster_queue, one.flavors[resource], resource] += amount
        for queue in self.world.engine._cache.queues.values():
            for pair, cell in queue.node.cells.items():
                key = queue.name, pair.flavor, pair.resource
                assert cell.usage == used[key], key

    # --- what is known -----------------------------------------------------------------------------------

    def admissions(self) -> Iterable[tuple[WorkloadKey, Admission]]:
        return self.world.engine.workloads.admissions()

    def overdrawn(self) -> dict[tuple[str, str, str], int]:
        """Return by how much each queue uses more than it may, as after a cut of its quota."""
        return {
            (queue.name, pair.flavor, pair.resource): -cell.available
            for queue in self.world.engine._cache.queues.values()
            for pair, cell in queue.node.cells.items()
            if cell.available < 0
        }

    def lacking(self) -> dict[str, int]:
        """Return how many GPUs are placed on each node beyond those that it has."""
        taken: Counter[str] = Counter()
        for key, admission in self.admissions():
            for one in admission.pod_sets:
                if one.topology is not None and one.count:
                    # The gauge is what the pods request, and not what was charged.
                    per_pod = self.gpus_of(self.world.get(key.name))
                    for domain in one.topology.domains:
                        taken[domain.values[-1]] += domain.count * per_pod
        found = {}
        for host, amount in taken.items():
            node = self.node(host)
            spare = (node.allocatable["gpu"] if node is not None else 0) - amount
            if spare < 0:
                found[host] = -spare
        return found

    def gpus_of(self, workload: Workload) -> int:
        (record,) = self.world.engine._cache.held[workload.key].places[:1] or (None,)
        return record.per_pod.get("gpu", 0) if record is not None else 0

    def borrows(self, name: str) -> bool:
        cells = self.world.engine._cache.queues[name].node.cells.values()
        return any(cell.usage > cell.subtree for cell in cells)

    def node(self, host: str) -> NodeInfo | None:
        return self.world.engine._cache.topology_cache.nodes.get(host)

    def holding(self, key: WorkloadKey) -> Workload | None:
        workload = self.world.engine.workloads.workload(key)
        return workload if workload is not None and workload.has_quota_reservation else None

    def evicted(self, workload: Workload, reason: EvictionReason) -> Workload:
        condition = make_condition(ConditionType.EVICTED, reason=reason, at=self.world.now)
        return with_conditions(workload, condition, unhealthy_nodes=())

    def report_nodes(self) -> None:
        """List the failed nodes of each Workload, as its reconciler does; no pod holds on to one."""
        for key, admission in list(self.admissions()):
            workload = self.world.get(key.name)
            hosts = [
                host
                for one in admission.pod_sets
                if one.topology is not None
                for host in hosts_of(one.topology)
            ]
            lost = tuple(sorted({host for host in hosts if not self.is_well(host)}))
            if lost != workload.unhealthy_nodes and not workload.is_evicted:
                self.world.put(replace(workload, unhealthy_nodes=lost))

    def is_well(self, host: str) -> bool:
        node = self.node(host)
        return node is not None and node.is_ready

    def show_second_pass(self, decision: object) -> None:
        """Let the object show other nodes, or that there were none."""
        if isinstance(decision, Evict):
            self.world.put(self.evicted(self.world.get(decision.key.name), decision.reason))
        elif isinstance(decision, Reassign):
            workload = self.world.get(decision.key.name)
            admission = dict(self.admissions())[decision.key]
            for assignment in decision.assignments.values():
                assert all(self.is_well(host) for host in hosts_of(assignment))
            self.world.put(admitted(workload, admission, at=self.world.now, unhealthy_nodes=()))


class FairInvariants(Invariants):
    """The same under fair sharing."""

    sharing = FairPreemption()


_steps = trying(12, steps=100, is_hard_to_draw=True)
TestInvariants = Invariants.TestCase
TestInvariants.settings = _steps
TestFairInvariants = FairInvariants.TestCase
TestFairInvariants.settings = _steps
