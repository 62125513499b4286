"""What a Lease object says, and when it may be taken: values only, no clock and no requests.

Nobody's clock but our own counts. A lease's `renewTime` is another machine's wall clock and is only compared
with itself: as long as it changes its holder lives, and when it has stood still for the lease's duration *by
our own monotonic clock* the holder has lost it. That errs towards waiting, never towards two leaders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from api.kube.errors import malformed
from api.kube.resources import LEASES


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """A Lease as read: `transitions` is the fence, `object` everything that a PUT must give back.

    `mark` changes whenever the holder renews. Fields of a wrong type count as absent: a Lease that someone
    broke by hand must not keep a cluster without a leader.
    """

    holder: str
    duration_seconds: float | None
    transitions: int
    mark: tuple[object, ...]
    object: Mapping[str, Any]


def parse_lease(body: bytes) -> LeaseRecord:
    """Return what the Lease object in `body` says. Raises ServerError where it is no JSON object."""
    try:
        read = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise malformed("Lease", error) from error
    spec = read.get("spec")
    spec = spec if isinstance(spec, dict) else {}
    holder, duration = spec.get("holderIdentity"), _number(spec.get("leaseDurationSeconds"))
    return LeaseRecord(
        holder=holder if isinstance(holder, str) else "",
        # 0 and negative durations count as unset, like a broken type: else a broken Lease would be
        # free for all at once.
        duration_seconds=duration or None,
        transitions=_number(spec.get("leaseTransitions")),
        # All four: whichever of them moves shows a holder that lives, even where its clock is
        # coarse or stands still.
        mark=(holder, spec.get("renewTime"), spec.get("acquireTime"), spec.get("leaseTransitions")),
        object=read,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseClaim:
    """What we write into a Lease. `written_at` is an RFC 3339 time with microseconds, for people only."""

    holder: str
    duration_seconds: float
    transitions: int
    written_at: str

    def onto(self, record: LeaseRecord | None, name: str) -> bytes:
        """Return the Lease to be written: `record` with this claim, all else in it unchanged.

        The resourceVersion of `record` goes with it, so that the server refuses the claim where another was
        first. None makes a new Lease.
        """
        # Everything that we do not know is given back as it was: a PUT that leaves out labels or
        # newer fields would delete them.
        whole = dict(record.object) if record else {"metadata": {"name": name}}
        old = whole.get("spec")
        spec = dict(old) if isinstance(old, dict) else {}
        # As client-go: acquireTime tells since when the present holder leads, renewTime that it still does.
        if record is None or record.holder != self.holder or record.transitions != self.transitions:
            spec["acquireTime"] = self.written_at
        spec |= {
            "holderIdentity": self.holder,
            # The API has whole seconds; a candidate must not think the lease shorter than it is.
            "leaseDurationSeconds": max(1, math.ceil(self.duration_seconds)),
            "leaseTransitions": self.transitions,
            "renewTime": self.written_at,
        }
        kind = {"apiVersion": LEASES.api_version, "kind": LEASES.kind}
        return msgspec.json.encode({**whole, **kind, "spec": spec})


class Observation:
    """One candidate's view of a Lease over time.

    `highest_transitions` is the highest fence that this candidate has ever seen, also of a Lease that has
    been deleted since.
    """

    def __init__(self, identity: str, default_seconds: float) -> None:
        self.record: LeaseRecord | None = None
        self.highest_transitions = 0
        self._identity = identity
        self._default_seconds = default_seconds
        # Not None, which is a mark too: the first look must count as news even where there is no Lease.
        self._seen: tuple[object, ...] | None = ()
        self._seen_at = 0.0
        self._held_seconds = 0.0

    def see(self, record: LeaseRecord | None, now: float) -> None:
        """Note what the Lease says at `now` (monotonic seconds); None where there is no Lease."""
        mark = record.mark if record else None
        # Only a change of the mark starts the wait anew, by our clock; how old `renewTime`
        # looks is never asked.
        if mark != self._seen:
            self._seen, self._seen_at = mark, now
        self.record = record
        if record:
            self.highest_transitions = max(self.highest_transitions, record.transitions)
            self._held_seconds = self._seconds_held(record)

    def seconds_until_free(self, now: float) -> float:
        """Return how long the Lease must still stand unchanged before it may be taken; 0 for at once.

        A Lease that was deleted under its holder is waited for like one that is not renewed: the holder may
        not have noticed yet.
        """
        return max(0.0, self._held_seconds - (now - self._seen_at))

    def _seconds_held(self, record: LeaseRecord) -> float:
        """Return how long others must leave the Lease alone after its last renewal."""
        # Our own from before (a cut-off attempt, an answer that was lost): nobody else can be leading by it.
        if record.holder in ("", self._identity):
            return 0.0
        return record.duration_seconds or self._default_seconds


def _number(value: object) -> int:
    return max(0, value) if isinstance(value, int) and not isinstance(value, bool) else 0
