"""Placement of pods: the filters of kube-scheduler that matter for queueing, and its message if no node fits.

Pure functions: from nodes and their pods to the name of a node or a message. Of the real
scheduler's plugins, NodeUnschedulable, TaintToleration, NodeAffinity (with node selector), NodeName
and NodeResourcesFit are implemented.

Source: k8s.io/kubernetes, pkg/scheduler/framework/plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from api.jobs.resource_requests import PODS, pod_requests
from api.kube.embedded.standins.objects import Pod, PodSpec
from api.objects.cluster import NodeObject
from api.parsing.quantities import add_amounts, amount
from api.selectors import find_untolerated, matches_node

# In the integers of api.parsing.quantities: milli-CPU, bytes, devices.
Amounts = Mapping[str, int]

# The kubelet's default for the number of pods per node.
_DEFAULT_PODS = 110


@dataclass(slots=True, kw_only=True)
class NodeRoom:
    """A node and its free resources. `free` may be negative after the node has shrunk."""

    node: NodeObject
    free: dict[str, int] = field(default_factory=dict)

    def take(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Subtract amounts from the free resources, or add them with sign -1."""
        add_amounts(self.free, amounts, -sign)

    @classmethod
    def of(cls, node: NodeObject, pods: Iterable[Pod]) -> NodeRoom:
        """Return the room of a node on which `pods` run; finished pods use no resources."""
        free = _amounts(node.status.allocatable)
        free.setdefault(PODS, _DEFAULT_PODS)
        room = cls(node=node, free=free)
        for pod in pods:
            if not pod.is_finished:
                room.take(requests_of(pod.spec))
        return room


def requests_of(spec: PodSpec) -> dict[str, int]:
    """Return the resources that a pod uses on its node, itself included as one of `pods`."""
    return {**pod_requests(spec), PODS: 1}


def _amounts(quantities: Mapping[str, str | int | float] | None) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in (quantities or {}).items()}


def choose_node(pod: Pod, rooms: Sequence[NodeRoom]) -> str | None:
    """Return the node for `pod`, or None if it fits on no node.

    Of the nodes that fit, it is the one where the largest share of the pod's scarcest resource stays free,
    then the first by name. So pods are spread, as by default in the real scheduler.
    """
    needs = requests_of(pod.spec)
    fitting = [room for room in rooms if reason_against(pod, needs, room) is None]
    if not fitting:
        return None
    best = max(fitting, key=lambda room: (_left(needs, room), _reversed(room.node.metadata.name)))
    return best.node.metadata.name


def _left(needs: Amounts, room: NodeRoom) -> float:
    totals = _amounts(room.node.status.allocatable)
    # Compared by share: four free CPUs of four are more room than four of a hundred.
    shares = [
        (room.free.get(name, 0) - need) / totals[name]
        for name, need in needs.items()
        if need and totals.get(name)
    ]
    return min(shares, default=0.0)


def _reversed(name: str) -> tuple[int, ...]:
    # Makes `max` prefer the first name.
    return tuple(-ord(sign) for sign in name)


def reason_against(pod: Pod, needs: Amounts, room: NodeRoom) -> str | None:
    """Return why `pod` cannot run on this node, in kube-scheduler's words, or None.

    Only the first filter that rejects the pod is reported, but all resources that are insufficient.
    """
    node = room.node
    if node.spec.unschedulable:
        return "node(s) were unschedulable"
    # PreferNoSchedule is only a preference, and scores are not simulated.
    if find_untolerated(node.spec.taints or (), pod.spec.tolerations or ()) is not None:
        return "node(s) had untolerated taint(s)"
    wanted = matches_node(
        pod.spec.node_selector,
        pod.spec.affinity,
        name=node.metadata.name,
        labels=node.metadata.labels or {},
    )
    if not all(wanted):
        return "node(s) didn't match Pod's node affinity/selector"
    # All resources are reported, because a node that lacks two would otherwise seem to lack only one.
    missing = [name for name, need in sorted(needs.items()) if need > room.free.get(name, 0)]
    if missing:
        return ", ".join("Too many pods" if name == PODS else f"Insufficient {name}" for name in missing)
    return None


def explain(pod: Pod, rooms: Sequence[NodeRoom]) -> str:
    """Return kube-scheduler's message for a pod that fits on no node."""
    if not rooms:
        return "no nodes available to schedule pods"
    needs = requests_of(pod.spec)
    reasons: Counter[str] = Counter()
    for room in rooms:
        reasons.update((reason_against(pod, needs, room) or "node(s) were busy").split(", "))
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"0/{len(rooms)} nodes are available: {counted}."
