"""The pods bound to each node, updated with each change of a pod. Finished pods use nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.extender.facts import NodeView, PodFacts
from admission.hardware.node_hardware import NodeKinds
from api.node import NodeInfo
from api.parsing.quantities import add_amounts

_Key = tuple[str, str]


@dataclass(slots=True)
class NodeBook:
    """Nodes by name, with what their pods use. A view is valid until the node or a pod on it changes."""

    _nodes: dict[str, NodeInfo] = field(default_factory=dict)
    _pods: dict[str, dict[_Key, PodFacts]] = field(default_factory=dict)
    _where: dict[_Key, str] = field(default_factory=dict)
    _views: dict[str, NodeView] = field(default_factory=dict)
    _kinds: NodeKinds = field(default_factory=NodeKinds)

    def put_node(self, node: NodeInfo) -> None:
        """Add or update a node."""
        self._nodes[node.name] = node
        self._views.pop(node.name, None)

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods stay bound to its name until they are released."""
        self._nodes.pop(name, None)
        self._views.pop(name, None)

    def bind(self, pod: PodFacts, node: str) -> None:
        """Record that the pod is bound to the node, and to no other."""
        key = (pod.namespace, pod.name)
        self.release(key)
        self._where[key] = node
        self._pods.setdefault(node, {})[key] = pod
        self._views.pop(node, None)

    def release(self, key: _Key) -> None:
        """Record that the pod is gone or has finished. No effect for an unknown pod."""
        node = self._where.pop(key, None)
        if node is None:
            return
        pods = self._pods[node]
        del pods[key]
        if not pods:
            del self._pods[node]
        self._views.pop(node, None)

    def view(self, name: str) -> NodeView | None:
        """Return a node with the pods bound to it, None where the node is unknown."""
        known = self._views.get(name)
        if known is None and (node := self._nodes.get(name)) is not None:
            known = self._views[name] = self.view_of(node)
        return known

    def view_of(self, node: NodeInfo) -> NodeView:
        """Return a node that the caller describes, with the pods bound to the node of that name here."""
        pods = self._pods.get(node.name, {})
        used: dict[str, int] = {}
        for pod in pods.values():
            add_amounts(used, pod.requests)
        return NodeView(node=node, hardware=self._kinds.of(node), used=used, pods=tuple(pods.values()))

    def validate(self) -> None:
        """Raise AssertionError where the indexes disagree."""
        there = {key: node for node, pods in self._pods.items() for key in pods}
        assert there == self._where, "each pod is on one node"
        for name, view in self._views.items():
            fresh: Mapping[str, int] = self.view_of(self._nodes[name]).used
            assert view.used == fresh, f"the view of {name} is as its pods are"
