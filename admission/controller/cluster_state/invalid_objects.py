"""Invalid objects: which objects break a rule, and which of them have not been reported yet.

The API server and the webhooks reject most mistakes. Objects that were created before a rule existed, without
webhooks, or with CRDs that lack the rule still come in. Each is checked once per generation against the rules
of the webhooks, and its owner is notified: by an Event that names field, value and rule, and by the condition
Valid=False if the kind has conditions. An object that can be used despite its fault is used.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import msgspec

from admission.decisions.api_writes import Action, Event, Purpose, Write
from admission.reconcile.workload_writes import workload_status
from api.keys import KUEUE_VERSION
from api.object_events import EventType, ObjectRef
from api.objects.common import Meta
from api.reasons import PendingReason
from api.validation import validate
from api.workload_status import WorkloadStatusEdit

REASON = "InvalidSpec"
# How many faults of one object are reported at once: a longer list helps no reader.
_MOST_FAULTS = 5


class Finding(NamedTuple):
    """One object that breaks a rule. `raw` is its bytes, b"" if unknown."""

    metadata: Meta
    sentence: str
    raw: bytes


_Key = tuple[str, str, str]


class InvalidObjects:
    """The faults of queues, cohorts, flavors, topologies, checks, priority classes and nodes."""

    def __init__(self) -> None:
        self._found: dict[_Key, Finding] = {}
        self._judged: dict[_Key, tuple[str, int]] = {}
        self._unreported: OrderedDict[_Key, None] = OrderedDict()

    def look(self, kind: str, metadata: Meta, raw: bytes) -> None:
        """Check an object as it is now, unless only its status has changed since the last check."""
        key = (kind, metadata.namespace, metadata.name)
        version = (metadata.uid, metadata.generation)
        # An object without a generation, such as a node, is checked at every version.
        if self._judged.get(key) == version and metadata.generation:
            return
        self._judged[key] = version
        try:
            faults = validate(msgspec.json.decode(raw))
        # In a field that no struct has, so that the object itself could be decoded.
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self.note(kind, metadata, f"it cannot be read: {error}", raw)
            return
        if faults:
            more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
            self.note(kind, metadata, "; ".join(map(str, faults[:_MOST_FAULTS])) + more, raw)
        else:
            self.clear(kind, metadata)

    def note(self, kind: str, metadata: Meta, sentence: str, raw: bytes = b"") -> None:
        """Record a fault found while parsing the object. A fault found by the rules takes precedence."""
        key = (kind, metadata.namespace, metadata.name)
        known = self._found.get(key)
        # Reported once per generation: a fault that persists is not reported again.
        is_same = known is not None and known.metadata.generation == metadata.generation
        if known is not None and is_same and known.metadata.uid == metadata.uid:
            return
        self._found[key] = Finding(metadata, sentence, raw)
        self._unreported[key] = None

    def clear(self, kind: str, metadata: Meta) -> None:
        """Drop the fault of an object that is valid now, or gone."""
        key = (kind, metadata.namespace, metadata.name)
        self._found.pop(key, None)
        self._unreported.pop(key, None)

    def forget(self, kind: str, metadata: Meta) -> None:
        """Drop all records of an object that is gone."""
        self.clear(kind, metadata)
        self._judged.pop((kind, metadata.namespace, metadata.name), None)

    def set_fault(self, kind: str, metadata: Meta, sentence: str) -> None:
        """Record what is wrong with an object now, even if that changes often; "" means nothing."""
        if self.sentence(kind, metadata.namespace, metadata.name) == sentence:
            return
        self.clear(kind, metadata)
        if sentence:
            self.note(kind, metadata, sentence)

    def sentence(self, kind: str, namespace: str, name: str) -> str | None:
        """Return what is wrong with an object; None if nothing is."""
        found = self._found.get((kind, namespace, name))
        return found.sentence if found is not None else None

    def mark_all(self) -> None:
        """Have all faults reported again: a new leader does not know what was reported."""
        self._unreported.update(dict.fromkeys(self._found))

    def take_unreported(self, *, now: float) -> tuple[Action, ...]:
        """Return what reports the next fault, () if all were reported. `now` in Unix seconds."""
        if not self._unreported:
            return ()
        # One at a time, so that the caller may stop between two.
        key, _ = self._unreported.popitem(last=False)
        kind, found = key[0], self._found[key]
        reports = (_event(kind, found),)
        return (*reports, *_waiting(found, now=now)) if kind == "Workload" else reports


def _event(kind: str, found: Finding) -> Event:
    metadata = found.metadata
    return Event(
        regarding=ObjectRef(
            kind=kind,
            api_version="v1" if kind == "Node" else KUEUE_VERSION,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
        ),
        type=EventType.WARNING,
        reason=REASON,
        note=found.sentence,
        action="ReadSpec",
    )


def _waiting(found: Finding, *, now: float) -> tuple[Write, ...]:
    """Return the write that reports on a Workload that it cannot be read: no reconciler handles it."""
    # Without its bytes no write can be built.
    if not found.raw:
        return ()
    edit = WorkloadStatusEdit(found.raw, now=now)
    edit.wait(PendingReason.MISCONFIGURED, found.sentence)
    return (workload_status(edit, Purpose.WAIT),) if edit.is_changed else ()
