"""The scene of `grouped` with a StatefulSet of inference in the place of the group, and a budget over it.

The disruption controller is played: `allow` says how many pods may go. An eviction counts it down at once, as
the API server does, and one pod more than that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from admission.decisions.api_writes import Purpose, Verb, Write
from api import keys
from api.kube.errors import KubeError
from api.kube.informer import ChangeType
from tests.admission.controller.cluster import Key, Object
from tests.admission.controller.grouped import MEMBERS, GroupVictims, PodCluster, member
from tests.admission.controller.replica import Replica
from tests.admission.controller.victims import BERTH
from tests.admission.controller.virtualtime import VirtualLoop

BUDGET = ("PodDisruptionBudget", "team", "low")
_LABELS = {"app": "low", BERTH + "workload-type": "inference"}
_SERVING = {keys.POD_GROUP_SERVING: "true", keys.POD_GROUP_FAST_ADMISSION: "true"}


class BudgetedCluster(PodCluster):
    """A cluster in memory with the eviction subresource. `succeeded`: the writes that were not refused."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.succeeded: list[Write] = []
        # What a webhook answers to the eviction of a pod of that name, None: it lets it go.
        self.webhook: Callable[[str], KubeError | None] = lambda _: None

    def _apply(self, write: Write) -> bytes:
        answer = self._carry_out(write)
        self.succeeded.append(write)
        return answer

    def _carry_out(self, write: Write) -> bytes:
        if write.verb is not Verb.EVICT:
            return super()._apply(write)
        self.written.append(write)
        self.evict((write.kind, write.namespace, write.name))
        return b""

    def evict(self, key: Key) -> None:
        """Let a pod go if the webhook and its budget allow it. Raises KubeError."""
        if (refusal := self.webhook(key[2])) is not None:
            raise refusal
        self._count_down()
        pod = self.objects[key]
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
        conditions = [*pod["status"].get("conditions", ()), condition]
        self.edit(key, lambda one: one["status"].update(conditions=conditions))
        self.edit(key, self._delete_gracefully)

    def delete_gracefully(self, key: Key) -> None:
        """Have a pod end."""
        self.edit(key, self._delete_gracefully)

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
    """The scene: the StatefulSet `low` serves, and may go whole. `recreates`: its controller works."""

    def __init__(self, **annotations: str) -> None:
        """`annotations` go onto its pods."""
        self.recreates = True
        # Called with each write that has been carried out.
        self.on_write: Callable[[Write], None] | None = None
        self._annotations = {keys.MIN_REPLICAS: "0", **annotations}
        super().__init__(rules={"preferInference": {}})

    def _make(self) -> Replica:
        replica = super()._make()
        # What a budget allows is known before the pods of a group are evicted. Tests of a budget that
        # tightens meanwhile say so themselves.
        replica.line.hears_at_once.add(BUDGET[0])
        return replica

    def allow(self, count: int) -> None:
        """Have a budget that lets `count` pods go."""
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
        # As many serve as must, and `count` more.
        status |= {"currentHealthy": count + 1, "desiredHealthy": 1}
        self.cluster.edit(BUDGET, lambda one: one["status"].update(status))

    def make_member(self, name: str) -> Object:
        """Return a replica at its gate."""
        pod = member(name)
        metadata = pod["metadata"]
        del metadata["annotations"][keys.CHECKPOINT_SAVE_SECONDS]
        metadata["labels"] |= _LABELS
        metadata["annotations"] |= {**_SERVING, **self._annotations}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "low",
            "uid": "set",
            "controller": True,
        }
        metadata["ownerReferences"] = [owner]
        return pod

    def refuse(self, *names: str, error: KubeError | None = None) -> None:
        """Have a webhook that refuses to let these replicas go, none: that lets all of them go."""
        error = error or KubeError('admission webhook "w" denied the request: it drains', status=403)
        self._budgeted.webhook = lambda name: error if name in names else None

    def drain(self, name: str) -> None:
        """Evict a pod, as `kubectl drain` does where the budget allows it."""
        self._budgeted.evict(("Pod", "team", name))

    def delete_members(self) -> None:
        """Delete the replicas, as their owner may whatever a budget says."""
        for name in MEMBERS:
            self._budgeted.delete_gracefully(("Pod", "team", name))

    def lose_readiness(self, name: str) -> None:
        """Let a pod run on without being ready."""
        self.cluster.edit(("Pod", "team", name), lambda one: one["status"].update(conditions=[]))

    def uids(self) -> set[str]:
        """Return the uids of the replicas that run."""
        return {pod["metadata"]["uid"] for pod in self.members()}

    def ended_by(self) -> list[Purpose]:
        """Return by which writes the replicas were ended."""
        ends = (Purpose.EVICT_POD, Purpose.STOP_POD)
        return [write.purpose for write in self._budgeted.succeeded if write.purpose in ends]

    def serving(self) -> int:
        """Return how many replicas run and are not being deleted."""
        return sum("deletionTimestamp" not in pod["metadata"] for pod in self.members())

    def condition(self, type_: str) -> Object:
        """Return a condition of the group's Workload, {} where it has none of the type."""
        found: list[dict[str, Any]] = self.workload("low")["status"].get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    def _make_cluster(self) -> BudgetedCluster:
        self._budgeted = BudgetedCluster(self.loop)
        return self._budgeted

    def _note_written(self, write: Write) -> None:
        if self.on_write is not None:
            self.on_write(write)
        super()._note_written(write)

    def _hear(self, type_: ChangeType, obj: Object) -> None:
        super()._hear(type_, obj)
        if obj["kind"] == "Pod" and obj["metadata"]["name"] in MEMBERS and type_ is ChangeType.DELETED:
            self.loop.call_later(0.1, self._recreate, obj["metadata"]["name"])

    def _run_pod(self, key: Key) -> None:
        super()._run_pod(key)
        ready = {"type": "Ready", "status": "True"}
        if key in self.cluster.objects:
            self.cluster.edit(key, lambda one: one["status"].update(conditions=[ready]))

    def _recreate(self, name: str) -> None:
        key: Key = ("Pod", "team", name)
        if self.recreates and key not in self.cluster.objects:
            self.cluster.create(self.make_member(name))
