"""The faults of nodes under placed pods.

    gone       the Node object was deleted                                     lost at once
    silent     it has no Ready condition: no kubelet reports for it            lost at once
    not ready  Ready is False or Unknown                                       lost when its pods are
    tainted    NoSchedule or NoExecute that the pods do not tolerate           lost when its pods are
    cordoned   spec.unschedulable, which the node controller makes a taint     lost when its pods are
    quiet      its kubelet has not renewed the node's Lease                    lost by a policy alone

A fault alone says nothing about the pods: a node that is briefly not ready still runs them. When a fault
makes a node *lost* to a Workload is decided by `admission.reconcile.workload.nodes`.
Source: Kueue, pkg/controller/tas/node_controller.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireTaint, WireToleration
from api.selectors import find_untolerated, taint_text
from api.workload import Admission, TopologyAssignment

# The taint that the node controller puts on a node with spec.unschedulable.
_CORDON = WireTaint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


# How many seconds a node may be not ready where the end of its pods is not awaited. Kueue's constant.
NOT_READY_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailureSettings:
    """When failed nodes are replaced, by Kueue's feature gates and with their defaults.

    `is_on` TASFailedNodeReplacement. `fails_fast` TASFailedNodeReplacementFailFast: evict where there is no
    replacement. `awaits_pods` TASReplaceNodeOnPodTermination: a node that is not ready is lost once its pods
    have ended or are terminating, otherwise after 30 s. `heeds_taints` TASReplaceNodeOnNodeTaints.
    `skips_pods` SkipReassignmentForPodOwnedWorkloads: a single pod that lost its node has ended with it.
    """

    is_on: bool = True
    fails_fast: bool = True
    awaits_pods: bool = True
    heeds_taints: bool = True
    skips_pods: bool = True


class Fault(StrEnum):
    """What is wrong with a node."""

    GONE = "Gone"
    SILENT = "Silent"
    NOT_READY = "NotReady"
    TAINTED = "Tainted"
    CORDONED = "Cordoned"
    QUIET = "Quiet"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A failed node under placed pods. `since` is in Unix seconds, 0 where unknown."""

    node: str
    fault: Fault
    since: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        match self.fault:
            case Fault.GONE:
                return f"{self.node} was deleted"
            case Fault.SILENT:
                return f"{self.node} has no Ready condition"
            case Fault.NOT_READY:
                return f"{self.node} is not ready"
            case Fault.TAINTED:
                return f"{self.node} has the untolerated taint {self.detail}"
            case Fault.CORDONED:
                return f"{self.node} is cordoned"
            case Fault.QUIET:
                return f"{self.node} has not renewed its Lease"


def hosts_of(assignment: TopologyAssignment) -> Iterator[str]:
    """Yield the hosts of an assignment; none where its lowest level is not the hostname."""
    if assignment.levels[-1:] == (HOSTNAME,):
        for domain in assignment.domains:
            yield domain.values[-1]


def assigned_hosts(admission: Admission) -> set[str]:
    """Return the hosts on which the pods of an admission were placed."""
    assignments = (one.topology for one in admission.pod_sets if one.topology is not None)
    return {host for assignment in assignments for host in hosts_of(assignment)}


def is_healthy(node: NodeInfo | None) -> bool:
    """Return whether the node exists and has no fault, whatever the pods tolerate."""
    return node is not None and node.is_ready and not node.taints and not node.is_unschedulable


def node_fault(
    name: str, node: NodeInfo | None, tolerations: Sequence[WireToleration] = ()
) -> NodeFault | None:
    """Return the node's fault for pods with these tolerations, None where it has none. `node` None: gone.

    The first fault counts, in the order of the module's table. `tolerations` are those of the pods; with
    none, every taint that keeps pods out is a fault.
    """
    if node is None:
        return NodeFault(node=name, fault=Fault.GONE)
    if node.is_silent:
        return NodeFault(node=name, fault=Fault.SILENT)
    if not node.is_ready:
        return NodeFault(node=name, fault=Fault.NOT_READY, since=node.ready_changed_at)
    # Cordoning shows as a field and as a taint, which are one fault.
    taints = [taint for taint in node.taints if taint.key != _CORDON.key]
    taint = find_untolerated(taints, tolerations) if taints else None
    if taint is not None:
        return NodeFault(node=name, fault=Fault.TAINTED, detail=taint_text(taint))
    # Either suffices: the field is set at once, and the node controller adds the taint later.
    is_cordoned = node.is_unschedulable or len(taints) < len(node.taints)
    if is_cordoned and find_untolerated((_CORDON,), tolerations) is not None:
        return NodeFault(node=name, fault=Fault.CORDONED)
    return None


def host_fault(
    host: str, nodes: Sequence[NodeInfo], tolerations: Sequence[WireToleration] = ()
) -> NodeFault | None:
    """Return the fault of the nodes with a hostname, None while any of them has none.

    As a rule there is one node. Where two have the same hostname, pods can run on either.
    """
    # A hostname without a node means that the node is gone.
    faults = [node_fault(host, node, tolerations) for node in nodes] or [node_fault(host, None)]
    # Any node of that name without a fault can run the pods.
    return None if None in faults else faults[0]


def is_same_health(one: NodeInfo | None, other: NodeInfo | None) -> bool:
    """Return whether two versions of a node have the same faults."""
    return _health(one) == _health(other)


def _health(node: NodeInfo | None) -> tuple[object, ...]:
    """Return what decides about the faults of a node, to compare two versions of it."""
    if node is None:
        return ()
    return node.is_ready, node.is_silent, node.taints, node.is_unschedulable, node.ready_changed_at
