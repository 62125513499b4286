"""Inspection: which objects break a rule, and whom nobody has told yet.

The API server and webhooks refuse most mistakes; objects written before a rule, or on a cluster without
webhooks, or on definitions that lack a rule, come in all the same. Each is judged once per generation by the
rules that the webhooks go by, and its owner is told: by an Event that names field, value and rule, and where
the kind has conditions by the condition Valid=False. What can be read all the same is served all the same.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from admission.decisions.api_writes import Action, Event, EventType, ObjectRef, Purpose, Verb, Write
from admission.decisions.decision import Wait
from admission.reconcile.status_bodies import wait
from api.keys import KUEUE_VERSION
from api.objects import Meta
from api.reasons import PendingReason
from api.validation import validate
from api.workload import WorkloadKey

REASON = "InvalidSpec"
# More faults than this help nobody at once.
_MOST_FAULTS = 5


class Finding(NamedTuple):
    """One object that breaks a rule. `raw` are its bytes."""

    metadata: Meta
    sentence: str
    raw: bytes


_Key = tuple[str, str, str]


class InvalidObjects:
    """The faults of queues, cohorts, flavors, topologies, checks, classes and nodes. One task owns it."""

    def __init__(self) -> None:
        self._found: dict[_Key, Finding] = {}
        self._judged: dict[_Key, tuple[str, int]] = {}
        self._untold: dict[_Key, None] = {}

    def look(self, kind: str, metadata: Meta, raw: bytes) -> None:
        """Judge an object as it is now. A change of its status alone is not looked at again."""
        key = (kind, metadata.namespace, metadata.name)
        version = (metadata.uid, metadata.generation)
        # Without a generation (nodes, for one) every version is judged.
        if self._judged.get(key) == version and metadata.generation:
            return
        self._judged[key] = version
        faults = validate(msgspec.json.decode(raw))
        if faults:
            more = f"; and {len(faults) - _MOST_FAULTS} more" if len(faults) > _MOST_FAULTS else ""
            self.note(kind, metadata, "; ".join(map(str, faults[:_MOST_FAULTS])) + more, raw)
        else:
            self.clear(kind, metadata)

    def note(self, kind: str, metadata: Meta, sentence: str, raw: bytes = b"") -> None:
        """Take note of a fault that reading the object has met; what the rules say of it goes first."""
        key = (kind, metadata.namespace, metadata.name)
        known = self._found.get(key)
        # Told once a generation: a fault that stands is no news.
        is_same = known is not None and known.metadata.generation == metadata.generation
        if known is not None and is_same and known.metadata.uid == metadata.uid:
            return
        self._found[key] = Finding(metadata, sentence, raw)
        self._untold[key] = None

    def clear(self, kind: str, metadata: Meta) -> None:
        """The object is in order, or gone."""
        key = (kind, metadata.namespace, metadata.name)
        self._found.pop(key, None)
        self._untold.pop(key, None)

    def forget(self, kind: str, metadata: Meta) -> None:
        """The object is gone."""
        self.clear(kind, metadata)
        self._judged.pop((kind, metadata.namespace, metadata.name), None)

    def restate(self, kind: str, metadata: Meta, sentence: str) -> None:
        """Take note of what is wrong with an object now, however often that changes; "": nothing any more."""
        if self.sentence(kind, metadata.namespace, metadata.name) == sentence:
            return
        self.clear(kind, metadata)
        if sentence:
            self.note(kind, metadata, sentence)

    def sentence(self, kind: str, namespace: str, name: str) -> str | None:
        """Return what is wrong with an object, None for nothing."""
        found = self._found.get((kind, namespace, name))
        return found.sentence if found is not None else None

    def mark_all(self) -> None:
        """Let all be told again: whoever leads from now on does not know what was told."""
        self._untold.update(dict.fromkeys(self._found))

    def take_untold(self, *, now: float) -> tuple[Action, ...]:
        """Return what tells the next owner, () where all have been told. `now` in Unix seconds."""
        if not self._untold:
            return ()
        # One at a time, so that the caller may stop between two.
        key = next(iter(self._untold))
        del self._untold[key]
        kind, found = key[0], self._found[key]
        told = (_event(kind, found),)
        return (*told, *_waiting(found, now=now)) if kind == "Workload" else told


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
    """Return the write that says on a Workload that it cannot be read: no reconciler knows it."""
    metadata = found.metadata
    decision = Wait(
        key=WorkloadKey(metadata.namespace, metadata.name),
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        reason=PendingReason.MISCONFIGURED,
        message=found.sentence,
    )
    # Without bytes there is nothing to build the write upon.
    body = wait(found.raw, decision, now=now) if found.raw else None
    if body is None:
        return ()
    return (
        Write(
            verb=Verb.REPLACE,
            kind="Workload",
            namespace=metadata.namespace,
            name=metadata.name,
            subresource="status",
            body=body,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
            purpose=Purpose.WAIT,
        ),
    )
