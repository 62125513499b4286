"""The contents of a Lease object, and when it may be taken: values only, without clock and requests.

Only the candidate's own clock is used. The `renewTime` of a lease comes from another machine's wall clock, so
it is only compared with its earlier value: while it changes, its holder is alive. If it has not changed for
the duration of the lease *on the candidate's own monotonic clock*, the holder has lost it. Any error of this
rule leads to a longer wait, never to two leaders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api.kube.errors import malformed
from api.kube.resources import LEASES

# "true" while the holder decides without the store: it knows of writes that the store does not tell of.
WITHOUT_STORE = "berth.dev/decides-without-store"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as read: `transitions` is the fence, `object` everything that a PUT must send back.

    `version` is its resourceVersion, "" if it has none. `mark` changes whenever the holder renews. Fields of
    a wrong type count as absent, because a Lease that was edited incorrectly must not leave a cluster without
    a leader.
    """

    holder: str
    duration_seconds: float | None
    transitions: int
    version: str
    decides_without_store: bool
    mark: tuple[object, ...]
    object: Mapping[str, Any]


def parse_lease(body: bytes) -> LeaseRecord:
    """Return the contents of the Lease in `body`. Raises ServerError if it is not a JSON object.

    Unknown and malformed fields of the spec count as absent, because any program may write a Lease; they
    never make it free earlier.
    """
    try:
        read = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed("Lease", error) from error
    spec = read.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    metadata = read.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    version, annotations = metadata.get("resourceVersion"), metadata.get("annotations")
    holder, duration = spec.get("holderIdentity"), _number(spec.get("leaseDurationSeconds"))
    return LeaseRecord(
        holder=holder if isinstance(holder, str) else "",
        # 0 and negative durations count as unset, like a wrong type: otherwise a malformed Lease
        # could be taken immediately.
        duration_seconds=duration or None,
        transitions=_number(spec.get("leaseTransitions")),
        version=version if isinstance(version, str) else "",
        decides_without_store=isinstance(annotations, dict) and annotations.get(WITHOUT_STORE) == "true",
        # All four fields: a change of any of them shows that the holder is alive, even if its clock is
        # coarse or has stopped.
        mark=(holder, spec.get("renewTime"), spec.get("acquireTime"), spec.get("leaseTransitions")),
        object=read,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """The values to write into a Lease.

    `written_at` is an RFC 3339 time with microseconds, for information only.
    """

    holder: str
    duration_seconds: float
    transitions: int
    written_at: str
    decides_without_store: bool = False

    def onto(self, record: LeaseRecord | None, name: str) -> bytes:
        """Return the Lease to write: `record` with this claim and all other fields unchanged.

        It includes the resourceVersion of `record`, so that the server rejects the claim if another candidate
        was faster. None creates a new Lease.
        """
        # Unknown fields are sent back unchanged: a PUT without labels or newer fields would delete them.
        whole = dict(record.object) if record else {"metadata": {"name": name}}
        old = whole.get("spec")
        spec = dict(old) if isinstance(old, dict) else {}
        # As in client-go, acquireTime is the time since when the holder leads, renewTime the last renewal.
        if record is None or record.holder != self.holder or record.transitions != self.transitions:
            spec["acquireTime"] = self.written_at
        spec |= {
            "holderIdentity": self.holder,
            # The API has whole seconds; rounded up, so that a candidate does not assume a shorter lease.
            "leaseDurationSeconds": max(1, math.ceil(self.duration_seconds)),
            "leaseTransitions": self.transitions,
            "renewTime": self.written_at,
        }
        whole["metadata"] = self._annotated(whole.get("metadata"))
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        return msgspec.json.encode({**whole, **kind, "spec": spec})

    def _annotated(self, metadata: object) -> dict[str, Any]:
        """Return the metadata with the annotation, or without it, and all else unchanged."""
        annotated = dict(metadata) if isinstance(metadata, dict) else {}
        old = annotated.get("annotations")
        annotations = dict(old) if isinstance(old, dict) else {}
        annotations.pop(WITHOUT_STORE, None)
        if self.decides_without_store:
            annotations[WITHOUT_STORE] = "true"
        if annotations or old is not None:
            annotated["annotations"] = annotations
        return annotated


class Observation:
    """One candidate's view of a Lease over time.

    `highest_transitions` is the highest fence that this candidate has seen, also in a Lease
    that was deleted since.
    """

    def __init__(self, identity: str, default_seconds: float) -> None:
        self.record: LeaseRecord | None = None
        self.highest_transitions = 0
        self._identity = identity
        self._default_seconds = default_seconds
        # Not None, which is a valid mark: the first look must count as a change even if there is no Lease.
        self._seen: tuple[object, ...] | None = ()
        self._seen_at = 0.0
        self._held_seconds = 0.0

    def see(self, record: LeaseRecord | None, now: float) -> None:
        """Record the state of the Lease at `now` (monotonic seconds); None if there is no Lease.

        Call it with each answer of the server, also with those of other candidates' writes.
        """
        mark = record.mark if record else None
        # Only a change of the mark restarts the wait; the age of `renewTime` is never evaluated.
        if mark != self._seen:
            self._seen, self._seen_at = mark, now
        self.record = record
        if record:
            self.highest_transitions = max(self.highest_transitions, record.transitions)
            self._held_seconds = self._seconds_held(record)

    def seconds_until_free(self, now: float) -> float:
        """Return how long the Lease must stay unchanged before it may be taken; 0 if it may be taken now.

        A deleted Lease is treated like one that is not renewed, because its holder may not
        have noticed the deletion.
        """
        return max(0.0, self._held_seconds - (now - self._seen_at))

    def _seconds_held(self, record: LeaseRecord) -> float:
        """Return how long other candidates must leave the Lease alone after its last renewal."""
        # An earlier claim of this identity (a cancelled attempt, a lost response): no other
        # process leads by it.
        if record.holder in ("", self._identity):
            return 0.0
        return record.duration_seconds or self._default_seconds


def _number(value: object) -> int:
    """Return a number that is not negative, 0 for anything else."""
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
