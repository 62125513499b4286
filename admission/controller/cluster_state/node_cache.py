"""Nodes as placement by topology needs them: free capacity, health, and what is wrong with their labels.

Nodes and pods are watched only once a ResourceFlavor names a topology: most clusters have many pods and place
none of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from admission.controller.cluster_state.heartbeats import Heartbeats
from admission.controller.cluster_state.invalid_objects import InvalidObjects
from admission.controller.cluster_state.observers import Observers
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.identity import own_version
from admission.engine.engine import Engine
from admission.placement.topology.node_health import (
    Fault,
    NodeFault,
    assigned_hosts,
    is_healthy,
    is_same_health,
)
from api.keys import HOSTNAME
from api.kube.informer import Change, ChangeType
from api.node import NodeInfo, to_node
from api.objects.cluster import NodeObject
from api.objects.common import Meta
from api.parsing.prices import node_price_problem
from api.policy import AdmissionPolicy, Recovery
from api.queueing import ResourceFlavor, Topology
from api.workload import Workload, WorkloadKey

# If more than this share of the nodes is not ready, no pod is moved off them. When
# the network fails, every node looks lost, and each gang would be restarted for
# nothing. Source: Kubernetes, --unhealthy-zone-threshold.
DISRUPTED_SHARE = 0.55
# How many nodes get an Event about their labels; `berth doctor` reports those of a whole cluster.
MAX_NODES_REPORTED = 50


class NodeCache:
    """What the control loop knows of nodes. `mark` is called for a Workload whose nodes changed."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        observers: Observers,
        inspection: InvalidObjects,
        mark: Callable[[WorkloadKey], None],
    ) -> None:
        self._inspection = inspection
        # Whether all nodes and pods have been listed. Before that, a missing node means nothing.
        self.is_synced = False
        self._mislabelled: dict[str, None] = {}
        # Nodes of which nothing is wrong but the version of their node agent.
        self._of_other_agent: dict[str, None] = {}
        # By node: that its hardware changed under running work.
        self._changed_under_work: dict[str, str] = {}
        # By node: why it cannot be read.
        self._unreadable: dict[str, str] = {}
        # By node: the price that cannot be read, so that each is counted once.
        self._unreadable_prices: dict[str, str] = {}
        # Name and uid of each node, for its Events. Nothing else is kept, because there may be thousands.
        self._nodes: dict[str, Meta] = {}
        # Nodes that are not ready, with their host names.
        self._unready: dict[str, str] = {}
        # Since when (monotonic seconds) a host has had a fault, to measure the time of the recovery.
        self._faulty_since: dict[str, float] = {}
        # Set once a spec was seen that needs nodes and pods, and never cleared.
        self.needed = asyncio.Event()
        self._engine = engine
        self._version = own_version()
        self._observers = observers
        self._clock = clock
        self._mark = mark
        self.heartbeats = Heartbeats(clock, self._note_quiet)
        # Hosts of which nothing is heard, since when (Unix seconds).
        self._quiet_hosts: dict[str, float] = {}

    def observe_spec(self, kind: type, value: object | None) -> None:
        """Take a changed or deleted spec: some need nodes and pods, or other labels of nodes."""
        if isinstance(value, ResourceFlavor) and value.topology_name is not None:
            self.needed.set()
        elif isinstance(value, AdmissionPolicy) and (value.preemption is not None or _recovers(value)):
            # Victims are asked for checkpoints through their pods, and pods show that they cannot be bound.
            self.needed.set()
        if (
            isinstance(value, AdmissionPolicy)
            and (recovery := _recovery(value))
            and recovery.heartbeat_seconds
        ):
            self.heartbeats.needed.set()
        if kind in (ResourceFlavor, Topology):
            self._inspect_all()

    def take_node(self, change: Change[NodeObject]) -> None:
        """Take a change of a node."""
        name, now = change.object.metadata.name, self._clock.now()
        self._unreadable.pop(name, None)
        before = self._engine.nodes.node(name)
        if change.type is ChangeType.DELETED:
            self._engine.objects.remove(NodeInfo, name, now=now)
        else:
            try:
                self._engine.objects.upsert(to_node(change.object), now=now)
            except ValueError as error:
                self._unreadable[name] = f"node {name} is not used: {error}"
                self._observers.report_unreadable("Node", "", name, str(error))
                self._engine.objects.remove(NodeInfo, name, now=now)
        self._note_health(before, self._engine.nodes.node(name))
        self._note_hardware(before, self._engine.nodes.node(name))
        node = Meta(name=name, uid=change.object.metadata.uid)
        self._nodes[name] = node
        if self.is_synced:
            self._inspect(node)
        if change.type is ChangeType.DELETED:
            del self._nodes[name]

    def _note_hardware(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        """Note the work on a node that its changed hardware would refuse now."""
        if after is None:
            if before is not None:
                self._changed_under_work.pop(before.name, None)
        elif before is not None and (before.labels, before.allocatable) != (after.labels, after.allocatable):
            self._changed_under_work[after.name] = self._engine.nodes.misfits_on(after.name)

    def take_recorded_gpus(self) -> None:
        """Check again the nodes whose pods have recorded other GPUs."""
        for name in self._engine.nodes.take_recorded_on() if self.is_synced else ():
            if name in self._nodes:
                self._inspect(self._nodes[name])

    def note_synced(self) -> None:
        """Record that all nodes and pods have been listed: a node that is unknown from now on is gone."""
        self.is_synced = True
        # Whether the values of labels nest can be checked only once all nodes are there.
        self._inspect_all()
        for workload, admission in self._engine.workloads.admissions():
            if any(one.topology is not None for one in admission.pod_sets):
                self._mark(workload)

    def _inspect_all(self) -> None:
        """Check the labels of all nodes again: topologies and flavors determine which labels they need.

        About 10 µs per node. Does nothing before all nodes have been listed.
        """
        for node in self._nodes.values() if self.is_synced else ():
            self._inspect(node)

    def faults(self, workload: Workload) -> tuple[NodeFault, ...] | None:
        """Return the faults of the nodes under a Workload's pods; None while nodes are not known."""
        if not self.is_synced:
            return None
        faults = self._engine.nodes.node_faults(workload)
        known = {fault.node for fault in faults}
        return (*faults, *(fault for fault in self._quiet_faults(workload) if fault.node not in known))

    def _quiet_faults(self, workload: Workload) -> Iterator[NodeFault]:
        """Yield the nodes under a Workload's pods of which nothing is heard."""
        if self._quiet_hosts and workload.admission is not None:
            for host in sorted(assigned_hosts(workload.admission) & self._quiet_hosts.keys()):
                yield NodeFault(node=host, fault=Fault.QUIET, since=self._quiet_hosts[host])

    def _note_quiet(self, name: str) -> None:
        """Mark the Workloads on a node that fell quiet or is heard again."""
        node, since = self._engine.nodes.node(name), self.heartbeats.quiet_since(name)
        host = node.labels.get(HOSTNAME, name) if node is not None else name
        if since is None:
            self._quiet_hosts.pop(host, None)
        else:
            self._quiet_hosts[host] = since
            self._faulty_since.setdefault(host, self._clock.monotonic())
        for workload in self._engine.nodes.tenants(host):
            self._mark(workload)

    def seconds_since_fault(self, hosts: Iterable[str]) -> float | None:
        """Return how long ago the first of these hosts was seen to fail; None if none has failed."""
        instants = [self._faulty_since[host] for host in hosts if host in self._faulty_since]
        return self._clock.monotonic() - min(instants) if instants else None

    def _inspect(self, metadata: Meta) -> None:
        """Report what is wrong with a node's labels, unless very many nodes have a problem."""
        name = metadata.name
        problems = [*self._engine.nodes.label_problems(name), *self._price_problems(name)]
        if name in self._unreadable:
            problems.append(self._unreadable[name])
        if words := self._changed_under_work.get(name):
            problems.append(words)
        # Counted apart: agents of another version are on all nodes while one is rolled out.
        of_kind = self._mislabelled if problems else self._of_other_agent
        if words := self._other_agent(name):
            problems.append(words)
        for nodes in (self._mislabelled, self._of_other_agent):
            nodes.pop(name, None)
        if problems:
            of_kind[name] = None
        if len(of_kind) <= MAX_NODES_REPORTED or not problems:
            self._inspection.set_fault("Node", metadata, "; ".join(problems))

    def _other_agent(self, name: str) -> str:
        """Return that a node agent of another version has labelled the node; "" where none has."""
        node = self._engine.nodes.node(name)
        if node is None or node.agent_version in ("", self._version):
            return ""
        return (
            f"its node agent has version {node.agent_version}, and this controller {self._version}: what it"
            " has written is read by the rules of this controller"
        )

    def _price_problems(self, name: str) -> list[str]:
        node = self._engine.nodes.node(name)
        problem = node_price_problem(node.labels) if node is not None else ""
        if not problem:
            self._unreadable_prices.pop(name, None)
            return []
        if self._unreadable_prices.get(name) != problem:
            self._unreadable_prices[name] = problem
            self._observers.report_unreadable("NodePrice", "", name, problem)
        return [problem]

    def _note_health(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        """Mark the Workloads on a node whose health has changed. A new label alone marks none."""
        if is_same_health(before, after):
            return
        self._note_unready(before, after)
        hosts = {node.labels.get(HOSTNAME, node.name) for node in (before, after) if node is not None}
        for host in hosts:
            if is_healthy(after):
                self._faulty_since.pop(host, None)
            elif self._engine.nodes.tenants(host):
                self._faulty_since.setdefault(host, self._clock.monotonic())
            for workload in self._engine.nodes.tenants(host):
                self._mark(workload)

    @property
    def is_disrupted(self) -> bool:
        """Return whether so many nodes are not ready that the network is more likely at fault."""
        return len(self._unready) > DISRUPTED_SHARE * self._engine.nodes.node_count

    def _note_unready(self, before: NodeInfo | None, after: NodeInfo | None) -> None:
        was_disrupted = self.is_disrupted
        if after is not None and not after.is_ready:
            self._unready[after.name] = after.labels.get(HOSTNAME, after.name)
        elif (node := after or before) is not None:
            self._unready.pop(node.name, None)
        if was_disrupted and not self.is_disrupted:
            # Recovery from nodes that are still not ready was put off, and may start now.
            for host in self._unready.values():
                for workload in self._engine.nodes.tenants(host):
                    self._mark(workload)


def _recovery(policy: AdmissionPolicy) -> Recovery | None:
    return policy.placement.recovery if policy.placement is not None else None


def _recovers(policy: AdmissionPolicy) -> bool:
    """Return whether the policy acts on pods that cannot be bound."""
    recovery = _recovery(policy)
    return recovery is not None and recovery.unschedulable_seconds > 0
