"""Faults of a node: each is logged when it begins and when it ends, and is an Event of the Node."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from api.kube.events import EventRecorder
from api.object_events import EventType, ObjectRef

log = logging.getLogger("berth.node-agent")


class Faults:
    """The faults that hold now, by subject."""

    def __init__(self, events: EventRecorder, node: ObjectRef) -> None:
        self._events = events
        self._node = node
        self._now: dict[str, frozenset[str]] = {}

    @property
    def sentences(self) -> list[str]:
        """All faults that hold now."""
        return sorted(sentence for found in self._now.values() for sentence in found)

    def note(self, subject: str, found: Iterable[str] = ()) -> None:
        """Replace the faults of a subject. New ones are named, known ones are not repeated."""
        before, now = self._now.get(subject, frozenset()), frozenset(found)
        self._now[subject] = now
        for sentence in sorted(now - before):
            log.warning("fault subject=%s error=%r", subject, sentence)
            self._events.record(self._node, EventType.WARNING, "GPUFault", sentence)
        if before and not now:
            log.info("fault_ended subject=%s", subject)
