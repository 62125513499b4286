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

from api.kube.embedded.standins.objects import Node, Pod, PodSpec
from api.objects import (
    WireContainer,
    WireNodeSelectorTerm,
    WireSelectorRequirement,
    WireTaint,
    WireToleration,
)
from api.parsing.quantities import amount as parse_amount

# In the integers of api.parsing.quantities: milli-CPU, bytes, devices.
Amounts = Mapping[str, int]

_PODS = "pods"
# The kubelet's default for the number of pods per node.
_DEFAULT_PODS = 110


@dataclass(slots=True, kw_only=True)
class NodeRoom:
    """A node and its free resources. `free` may be negative after the node has shrunk."""

    node: Node
    free: dict[str, int] = field(default_factory=dict)

    def take(self, amounts: Amounts, *, sign: int = 1) -> None:
        """Subtract amounts from the free resources, or add them with sign -1."""
        for name, amount in amounts.items():
            self.free[name] = self.free.get(name, 0) - sign * amount

    @classmethod
    def of(cls, node: Node, pods: Iterable[Pod]) -> NodeRoom:
        """Return the room of a node on which `pods` run; finished pods use no resources."""
        free = _amounts(node.status.allocatable)
        free.setdefault(_PODS, _DEFAULT_PODS)
        room = cls(node=node, free=free)
        for pod in pods:
            if not pod.is_finished:
                room.take(requests_of(pod.spec))
        return room


def requests_of(spec: PodSpec) -> dict[str, int]:
    """Return the resources that a pod uses on its node: the maximum of its containers and its initialization.

    Sidecars, which are init containers that always restart, are added to both.
    """
    main: Counter[str] = Counter()
    init: dict[str, int] = {}
    sidecars: Counter[str] = Counter()
    # Containers run together, so they are added; init containers run one after another, so
    # the maximum is used.
    for container in spec.containers or ():
        main.update(_requests(container))
    for container in spec.init_containers or ():
        amounts = _requests(container)
        if container.restart_policy == "Always":
            sidecars.update(amounts)
            amounts = dict(sidecars)
        else:
            amounts = _sum(amounts, sidecars)
        init = {name: max(init.get(name, 0), amounts.get(name, 0)) for name in init | amounts}
    running = _sum(main, sidecars)
    total = {name: max(running.get(name, 0), init.get(name, 0)) for name in running | init}
    overhead = _amounts(spec.overhead)
    return {**_sum(total, overhead), _PODS: 1}


def _requests(container: WireContainer) -> dict[str, int]:
    resources = container.resources
    return _amounts(resources.requests if resources else None)


def _amounts(quantities: Mapping[str, str | int | float] | None) -> dict[str, int]:
    return {name: parse_amount(name, quantity) for name, quantity in (quantities or {}).items()}


def _sum(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


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
        (room.free.get(name, 0) - amount) / totals[name]
        for name, amount in needs.items()
        if amount and totals.get(name)
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
    if any(_repels(taint, pod.spec.tolerations or ()) for taint in node.spec.taints or ()):
        return "node(s) had untolerated taint(s)"
    if not _selects(pod.spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    # All resources are reported, because a node that lacks two would otherwise seem to lack only one.
    missing = [name for name, amount in sorted(needs.items()) if amount > room.free.get(name, 0)]
    if missing:
        return ", ".join("Too many pods" if name == _PODS else f"Insufficient {name}" for name in missing)
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


def _repels(taint: WireTaint, tolerations: Iterable[WireToleration]) -> bool:
    # PreferNoSchedule is only a preference, and scores are not simulated.
    is_binding = taint.effect in ("NoSchedule", "NoExecute")
    return is_binding and not any(_tolerates(toleration, taint) for toleration in tolerations)


def _tolerates(toleration: WireToleration, taint: WireTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def _selects(spec: PodSpec, node: Node) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.node_selector or {}).items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if required is None:
        return True
    return any(_term_selects(term, node) for term in required.node_selector_terms or ())


def _term_selects(term: WireNodeSelectorTerm, node: Node) -> bool:
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        # Unlike an empty label selector, a term without requirements matches nothing.
        return False
    by_label = all(_holds(each, node.metadata.labels or {}) for each in expressions)
    return by_label and all(_holds(each, {"metadata.name": node.metadata.name}) for each in fields)


def _holds(requirement: WireSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value, values = labels.get(requirement.key), requirement.values or ()
    match requirement.operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" if value is not None and _is_integer(value) and _is_integer(values[0]):
            difference = int(value) - int(values[0])
            return difference > 0 if requirement.operator == "Gt" else difference < 0
    return False


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdigit()
