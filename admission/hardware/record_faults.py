"""Pods whose record of their GPUs cannot be read, by the node that they are on."""

from __future__ import annotations

from collections.abc import Iterator

from api.node import PodKey


class RecordFaults:
    """What is wrong with the records of pods, each as a phrase."""

    def __init__(self) -> None:
        self._faults: dict[str, dict[PodKey, str]] = {}
        self._node_of: dict[PodKey, str] = {}

    def put(self, pod: PodKey, node: str, fault: str) -> tuple[str, ...]:
        """Set what is wrong with a pod's record, "" for nothing. Return the nodes for which that is news."""
        before = self._node_of.get(pod, "")
        if before == (node if fault else "") and (not before or self._faults[before][pod] == fault):
            return ()
        if before:
            del self._node_of[pod], self._faults[before][pod]
            if not self._faults[before]:
                del self._faults[before]
        if fault and node:
            self._node_of[pod] = node
            self._faults.setdefault(node, {})[pod] = fault
        return tuple({before, node} - {""})

    def on(self, node: str) -> Iterator[str]:
        """Yield a sentence for each such pod of a node."""
        for (namespace, name), fault in sorted(self._faults.get(node, {}).items()):
            yield f"pod {namespace}/{name} on node {node}: {fault}"
