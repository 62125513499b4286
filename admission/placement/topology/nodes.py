"""The nodes of the cluster, by name and by hostname, and what pods not placed by Berth take of each."""

from __future__ import annotations

from collections.abc import Mapping

from api.keys import HOSTNAME
from api.node import NodeInfo, PodKey, PodUsage

_NOTHING: Mapping[str, int] = {}


class Nodes:
    """All nodes, whatever flavor they belong to, and the pods of others on them."""

    def __init__(self) -> None:
        self.by_name: dict[str, NodeInfo] = {}
        # The hostname label may differ from the node's name, and two nodes may claim one.
        self._by_host: dict[str, dict[str, None]] = {}
        self._pods: dict[PodKey, PodUsage] = {}
        self._taken: dict[str, dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self.by_name)

    def get(self, name: str) -> NodeInfo | None:
        """Return a node, None where it is not known."""
        return self.by_name.get(name)

    def at_host(self, host: str) -> list[NodeInfo]:
        """Return the nodes with this hostname, ready or not. As a rule there is one."""
        return [self.by_name[name] for name in self._by_host.get(host, ())]

    def taken(self, name: str) -> Mapping[str, int]:
        """Return what pods of others take of a node."""
        return self._taken.get(name, _NOTHING)

    def put(self, node: NodeInfo) -> bool:
        """Add or update a node. Return whether it has changed.

        Equal means equal in what placement reads (`NodeInfo`), so heartbeats are no change.
        """
        known = self.by_name.get(node.name)
        # Nodes report every few seconds, and most reports change nothing that placement reads.
        if known == node:
            return False
        if known is not None:
            self._leave_host(known)
        self.by_name[node.name] = node
        self._by_host.setdefault(_host_of(node), {})[node.name] = None
        return True

    def drop(self, name: str) -> None:
        """Remove a node. What pods take of it is kept, for when it returns."""
        known = self.by_name.pop(name, None)
        if known is not None:
            self._leave_host(known)

    def pod(self, key: PodKey) -> PodUsage | None:
        """Return a pod of others, by namespace and name, None where it is not known."""
        return self._pods.get(key)

    def add_pod(self, pod: PodUsage) -> None:
        """Add a pod that is not known.

        The pod need not have a known node: a watch may show the pod first.
        """
        self._pods[pod.namespace, pod.name] = pod
        self._count(pod, sign=1)

    def pop_pod(self, key: PodKey) -> PodUsage | None:
        """Remove and return a pod, None where it is not known."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            self._count(pod, sign=-1)
        return pod

    def _count(self, pod: PodUsage, *, sign: int) -> None:
        """Add what a pod takes to the sum of its node, or subtract it."""
        total = self._taken.setdefault(pod.node, {})
        for resource, amount in pod.requests.items():
            total[resource] = total.get(resource, 0) + sign * amount

    def _leave_host(self, node: NodeInfo) -> None:
        """Remove a node from the index by hostname."""
        host = _host_of(node)
        del self._by_host[host][node.name]
        if not self._by_host[host]:
            del self._by_host[host]


def _host_of(node: NodeInfo) -> str:
    """Return the hostname label of a node, or its name where it has none."""
    return node.labels.get(HOSTNAME, node.name)
