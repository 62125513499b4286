"""The evictions that the API server has refused: in which words, and when the unit is tried again.

A budget that has tightened since the last look refuses, and so does an admission webhook, which no status
tells of beforehand. The unit is left as it is for a rest that grows with each refusal. What is said of it
stands on its Workload (`admission.reconcile.pod.whole`); a new leader tries once and hears it anew.
"""

from __future__ import annotations

from admission.controller.cluster_state.pod_groups import UnitKey
from admission.controller.runtime.logs import Log
from admission.controller.runtime.timers import Backoffs
from admission.decisions.api_writes import Write
from api.kube.errors import KubeError

log = Log("berth.evictions")


class RefusedEvictions:
    """What was refused, by unit. Instants are of a clock that only goes forward."""

    def __init__(self) -> None:
        self._words: dict[UnitKey, str] = {}
        self._rests: Backoffs[UnitKey] = Backoffs()

    def note(self, unit: UnitKey | None, write: Write, error: KubeError, now: float) -> None:
        """Take note that the eviction of a pod of this unit was refused; None: of one that has gone."""
        pod = f"{write.namespace}/{write.name}"
        log.warning("eviction-refused", pod=pod, error=error)
        # Of several pods the first says it, as long as the unit rests for that.
        if unit is not None and not self._rests.is_resting(unit, now):
            self._rests.fail(unit, now)
            self._words[unit] = f"The API server refuses to evict Pod {pod}: {error}"

    def standing(self, unit: UnitKey, now: float) -> str | None:
        """Return what was said of the unit, None where it may be tried."""
        return self._words[unit] if self._rests.is_resting(unit, now) else None

    def forget(self, unit: UnitKey | None) -> None:
        """Take note that a pod of the unit goes: it is not refused any more."""
        if unit is not None:
            self._rests.forget(unit)
            self._words.pop(unit, None)

    def next_at(self) -> float | None:
        """Return when the next unit may be tried again."""
        return self._rests.next_at()

    def take_due(self, now: float) -> list[UnitKey]:
        """Return who may be tried again since the last call."""
        return self._rests.take_due(now)

    def clear(self) -> None:
        """Forget everything."""
        self._words.clear()
        self._rests.clear()
