"""Pods of elastic Jobs that were told to end and have not: they still use the quota of their slice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from api import keys
from api.node import is_finished
from api.objects.cluster import PodObject
from api.workload import WorkloadKey


class _Leaving(NamedTuple):
    # The first slice of the Job, which its pods name.
    chain: WorkloadKey
    pod_set: str


class LeavingPods:
    """The pods by the chain of slices that they name. `on_left` is called with it once one has ended."""

    def __init__(self, on_left: Callable[[WorkloadKey], None]) -> None:
        self._on_left = on_left
        self._pods: dict[str, _Leaving] = {}
        self._by_chain: dict[WorkloadKey, Counter[str]] = {}

    def see(self, pod: PodObject) -> None:
        """Take a pod that has changed."""
        metadata = pod.metadata
        name = (metadata.annotations or {}).get(keys.SLICE_NAME)
        gates = {gate.get("name") for gate in pod.spec.scheduling_gates or ()}
        # One at its gate has never run.
        is_leaving = metadata.deletion_timestamp and not is_finished(pod) and keys.ELASTIC_GATE not in gates
        if name is None or not is_leaving:
            self.forget(metadata.uid)
        elif metadata.uid not in self._pods:
            chain = WorkloadKey(metadata.namespace, name)
            one = _Leaving(chain, (metadata.labels or {}).get(keys.POD_SET, ""))
            self._pods[metadata.uid] = one
            self._by_chain.setdefault(chain, Counter())[one.pod_set] += 1

    def forget(self, uid: str) -> None:
        """Note that a pod has ended, if it was leaving."""
        one = self._pods.pop(uid, None)
        if one is None:
            return
        counts = self._by_chain[one.chain]
        counts[one.pod_set] -= 1
        if not +counts:
            del self._by_chain[one.chain]
        self._on_left(one.chain)

    def of(self, chain: WorkloadKey) -> Mapping[str, int]:
        """Return how many pods of each pod set are leaving."""
        return self._by_chain.get(chain, _NONE)


_NONE: Mapping[str, int] = Counter()
