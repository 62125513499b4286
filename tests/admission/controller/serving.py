"""The scene of `grouped` with a StatefulSet of inference in the place of the group, and a budget over it.

The disruption controller is played: `allow` says how many pods may go. An eviction counts it down at once, as
the API server does, and one pod more than that is refused.
"""

from __future__ import annotations

from typing import Any

from admission.actions import Verb, Write
from api import keys
from api.kube.errors import KubeError
from api.kube.informer import ChangeType
from tests.admission.controller.cluster import Key, Object
from tests.admission.controller.grouped import MEMBERS, GroupVictims, PodCluster, member
from tests.admission.controller.victims import BERTH

BUDGET = ("PodDisruptionBudget", "team", "low")
_LABELS = {"app": "low", BERTH + "workload-type": "inference"}
_SERVING = {keys.POD_GROUP_SERVING: "true", keys.POD_GROUP_FAST_ADMISSION: "true"}


class BudgetedCluster(PodCluster):
    """A cluster in memory with the eviction subresource. `before_eviction` is called with each that comes."""

    def _apply(self, write: Write) -> bytes:
        if write.verb is not Verb.EVICT:
            return super()._apply(write)
        self.written.append(write)
        key = (write.kind, write.namespace, write.name)
        self._count_down()
        pod = self.objects[key]
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        told = [*pod["status"].get("conditions", ()), condition]
        self.edit(key, lambda one: one["status"].update(conditions=told))
        self.edit(key, self._delete_gracefully)
        return b""

    def _count_down(self) -> None:
        budget = self.objects.get(BUDGET)
        if budget is None:
            return
        allowed = budget["status"]["disruptionsAllowed"]
        if allowed < 1:
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            raise KubeError(message, status=429, reason="TooManyRequests")
        self.edit(BUDGET, lambda one: one["status"].update(disruptionsAllowed=allowed - 1))


class ShardVictims(GroupVictims):
    """The scene: the StatefulSet `low` serves, and may go whole. `makes_anew`: its controller works."""

    def __init__(self, **annotations: str) -> None:
        """`annotations` go onto its pods."""
        self.makes_anew = True
        self._annotations = {keys.MIN_REPLICAS: "0", **annotations}
        super().__init__(rules={"preferInference": {}})

    def allow(self, count: int) -> None:
        """Have a budget that lets so many pods go."""
        if BUDGET not in self.cluster.objects:
            self.cluster.create(
                {
                    "apiVersion": "policy/v1",
                    "kind": BUDGET[0],
                    "metadata": {"namespace": BUDGET[1], "name": BUDGET[2]},
                    "spec": {"selector": {"matchLabels": {"app": "low"}}},
                    "status": {},
                }
            )
        status = {"disruptionsAllowed": count, "observedGeneration": 1}
        self.cluster.edit(BUDGET, lambda one: one["status"].update(status))

    def make_member(self, name: str) -> Object:
        """Return a replica at its gate."""
        pod = member(name)
        metadata = pod["metadata"]
        del metadata["annotations"][keys.CHECKPOINT_SAVE_SECONDS]
        metadata["labels"] |= _LABELS
        metadata["annotations"] |= {**_SERVING, **self._annotations}
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "low", "uid": "set", "controller": True}
        metadata["ownerReferences"] = [owner]
        return pod

    def serving(self) -> int:
        """Return how many replicas run and are not told to go."""
        return sum("deletionTimestamp" not in pod["metadata"] for pod in self.members())

    def condition(self, type_: str) -> Object:
        """Return a condition of the group's Workload, {} where it has none of the type."""
        found: list[dict[str, Any]] = self.workload("low")["status"].get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    def _make_cluster(self) -> BudgetedCluster:
        return BudgetedCluster(self.loop)

    def _hear(self, type_: ChangeType, obj: Object) -> None:
        super()._hear(type_, obj)
        if obj["kind"] == "Pod" and obj["metadata"]["name"] in MEMBERS and type_ is ChangeType.DELETED:
            self.loop.call_later(0.1, self._make_anew, obj["metadata"]["name"])

    def _run_pod(self, key: Key) -> None:
        super()._run_pod(key)
        ready = {"type": "Ready", "status": "True"}
        if key in self.cluster.objects:
            self.cluster.edit(key, lambda one: one["status"].update(conditions=[ready]))

    def _make_anew(self, name: str) -> None:
        key: Key = ("Pod", "team", name)
        if self.makes_anew and key not in self.cluster.objects:
            self.cluster.create(self.make_member(name))
