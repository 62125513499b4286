"""Evictions that the API server refused: with which message, and when the unit is tried again.

A budget that has become tighter since the last look refuses an eviction. So may an admission webhook, which
no status announces. The unit is left alone for a pause that grows with each refusal. The message is written
on its Workload (`admission.reconcile.pod.whole`). A new leader tries once and gets the message again.
"""

from __future__ import annotations

from admission.controller.cluster_state.pod_groups import UnitKey
from admission.controller.runtime.logs import Log
from admission.controller.runtime.timers import Backoffs
from admission.decisions.api_writes import Write
from api.kube.errors import KubeError

log = Log("berth.evictions")


class RefusedEvictions:
    """The refused evictions, by unit. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._words: dict[UnitKey, str] = {}
        self._rests: Backoffs[UnitKey] = Backoffs()

    def note(self, unit: UnitKey | None, write: Write, error: KubeError, now: float) -> None:
        """Record that the eviction of a pod of this unit was refused. `unit` None: the pod is gone."""
        pod = f"{write.namespace}/{write.name}"
        log.warning("eviction-refused", pod=pod, error=error)
        # During a pause the message of the first refused pod is kept.
        if unit is not None and not self._rests.is_resting(unit, now):
            self._rests.fail(unit, now)
            self._words[unit] = f"The API server refuses to evict Pod {pod}: {error}"

    def message_of(self, unit: UnitKey, now: float) -> str | None:
        """Return the message of the unit's last refusal; None if it may be tried again."""
        return self._words[unit] if self._rests.is_resting(unit, now) else None

    def forget(self, unit: UnitKey | None) -> None:
        """Drop the refusal: a pod of the unit was evicted, or no eviction is wanted any more."""
        if unit is not None:
            self._rests.forget(unit)
            self._words.pop(unit, None)

    def next_at(self) -> float | None:
        """Return when the next unit may be tried again; None if there is none."""
        return self._rests.next_at()

    def take_due(self, now: float) -> list[UnitKey]:
        """Return the units that may be tried again since the last call."""
        return self._rests.take_due(now)

    def clear(self) -> None:
        """Drop all refusals."""
        self._words.clear()
        self._rests.clear()
