"""What lies ahead by the calendar: the edges that promises, expected starts and admissions have to heed.

Edges of running work and of promises live in the timekeeper's profile, because they come and go with every
decision. These here follow from the objects alone. They are worked out when somebody first asks, and given
up with the next change of specs or the next boundary of the calendar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.calendar import NO_WINDOWS, Calendar, window_edges
from api.queueing import ClusterQueue
from api.workload import WorkloadKey
from queues.profile import Edge


@dataclass(slots=True, kw_only=True)
class Ahead:
    """Changes of quota after `now`.

    `words` tells of each, by the holder of its claim, once it was asked for.
    """

    specs: Mapping[str, ClusterQueue] = field(default_factory=dict)
    calendar: Calendar = NO_WINDOWS
    now: float = 0.0
    words: dict[WorkloadKey, str] = field(default_factory=dict)
    _by_queue: dict[str, list[Edge]] = field(default_factory=dict)

    @property
    def is_heeded(self) -> bool:
        """Whether admissions without any promise have to heed the calendar."""
        return self.calendar.heeds_windows

    def edges(self, queues: Iterable[str]) -> list[Edge]:
        """Return the edges of these ClusterQueues, in no order."""
        if not self.calendar.windows:
            return []
        return [edge for name in queues for edge in self._of(name)]

    def _of(self, name: str) -> list[Edge]:
        known = self._by_queue.get(name)
        if known is None:
            known = self._by_queue[name] = []
            spec = self.specs.get(name)
            found = window_edges(spec, self.calendar, now=self.now) if spec is not None else ()
            for edge, words in found:
                known.append(edge)
                self.words[edge[2]] = words
        return known
