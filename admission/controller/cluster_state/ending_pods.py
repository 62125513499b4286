"""Pods that are being deleted and may be given up if their node cannot be reached.

The rules are in `admission.reconcile.pod.unreachable`. Level-triggered: a pod is looked at when it was seen,
when its time has come, when its node has changed, and when a write on it was refused. Nothing is kept while
the feature is off.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.timers import Timers
from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Write
from admission.engine.engine import Engine
from admission.reconcile.pod.unreachable import (
    DELAY_SECONDS,
    EndingPod,
    give_up,
    is_unreachable,
    to_ending,
)
from api.jobs.pod import POD_KIND
from api.kube.history import version_number
from api.kube.informer import Change, ChangeType
from api.objects.cluster import PodObject


class EndingPods:
    """The pods that may be given up, by name."""

    delay_seconds = DELAY_SECONDS

    def __init__(self, engine: Engine, clock: Clock, *, is_on: bool) -> None:
        self._engine = engine
        self._clock = clock
        self._is_on = is_on
        self._pods: dict[ObjectTarget, EndingPod] = {}
        self._by_node: dict[str, dict[ObjectTarget, None]] = {}
        self._due: dict[ObjectTarget, None] = {}
        self._timers: Timers[ObjectTarget] = Timers()

    def take_pod(self, change: Change[PodObject]) -> None:
        """Take a change of a pod."""
        if change.type is ChangeType.DELETED:
            metadata = change.object.metadata
            self._forget(ObjectTarget(POD_KIND, metadata.namespace, metadata.name), metadata.uid)
        else:
            self._see(change.object)

    def see_raw(self, raw: bytes) -> None:
        """Take the bytes of a pod from the answer to a write. Raises msgspec.DecodeError."""
        if self._is_on:
            self._see(_POD.decode(raw))

    def mark(self, target: ObjectTarget) -> None:
        """Have this pod looked at again, if it is one of them."""
        if target in self._pods:
            self._due[target] = None

    def mark_node(self, name: str) -> None:
        """Have the pods of a node that has changed looked at again."""
        self._due.update(self._by_node.get(name, {}))

    def mark_all(self) -> None:
        """Have all of them looked at again."""
        self._due.update(dict.fromkeys(self._pods))

    def next_at(self) -> float | None:
        """Return when the next pod is to be looked at (Unix seconds); None if none is."""
        return self._timers.next_at()

    def take_due(self, is_left_alone: Callable[[ObjectTarget], bool]) -> tuple[Write, ...]:
        """Return the writes that are due now. A pod that is to be left alone stays due."""
        now = self._clock.now()
        self._due.update(dict.fromkeys(self._timers.take_due(now)))
        ready = [target for target in self._due if not is_left_alone(target)]
        writes = []
        for target in ready:
            del self._due[target]
            write = self._look(target, now)
            if write is not None:
                writes.append(write)
        return tuple(writes)

    def _look(self, target: ObjectTarget, now: float) -> Write | None:
        pod = self._pods[target]
        if now < pod.due_at:
            self._timers.put(target, pod.due_at)
            return None
        node = self._engine.nodes.node(pod.node)
        # One whose Node is gone is deleted by Kubernetes itself.
        return give_up(pod, now=now) if node is not None and is_unreachable(node.taints) else None

    def _see(self, obj: PodObject) -> None:
        if not self._is_on:
            return
        metadata = obj.metadata
        target = ObjectTarget(POD_KIND, metadata.namespace, metadata.name)
        known = self._pods.get(target)
        if known is not None and known.uid == metadata.uid and _is_older(metadata.resource_version, known):
            return
        pod = to_ending(obj, delay_seconds=self.delay_seconds)
        if known is not None:
            self._forget(target, known.uid)
        if pod is not None:
            self._pods[target] = pod
            self._by_node.setdefault(pod.node, {})[target] = None
            self._due[target] = None

    def _forget(self, target: ObjectTarget, uid: str) -> None:
        known = self._pods.get(target)
        if known is None or known.uid != uid:
            return
        del self._pods[target]
        self._due.pop(target, None)
        self._timers.put(target, None)
        members = self._by_node[known.node]
        del members[target]
        if not members:
            del self._by_node[known.node]


def _is_older(version: str, known: EndingPod) -> bool:
    return version_number(version) < version_number(known.resource_version)


_POD = msgspec.json.Decoder(PodObject)
