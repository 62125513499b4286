"""Kubernetes Events, sent in the background and dropped first under load.

A decision never waits for its event. `record` puts the event into a bounded queue, in which repetitions of
the same message about the same object are combined, and many different messages of one reason as well. A
separate task sends the events over separate connections, within a budget that decisions use up first
(`api.kube.report_budget`). If the server is overloaded (429, 5xx, no response), sending pauses and the queue
fills up; events that find the queue full are counted in `dropped`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from api.kube.client import MERGE_PATCH, Body, Connection, KubeClient
from api.kube.errors import KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from api.kube.report_budget import ReportBudget, WriteLoad
from api.kube.resources import EVENTS
from api.object_events import EventType, ObjectRef

log = logging.getLogger("berth.kube.events")

# Limits of events.k8s.io/v1, which rejects longer values.
MAX_NOTE_BYTES = 1024
MAX_WORD_CHARACTERS = 128
MAX_NAME_CHARACTERS = 253

# A repetition within this time increments the count of the event that was sent. client-go
# uses the same value.
SERIES_SECONDS = 360.0

# An object that gets more than MAX_SIMILAR different notes for one reason, without a pause of
# SIMILAR_SECONDS, gets one event for all further notes, whose count is incremented. client-go uses the same
# values and words.
MAX_SIMILAR = 10
SIMILAR_SECONDS = 600.0
COMBINED = "(combined from similar events): "

# Maximum number of sent events that are remembered, at 300 bytes each. If one is forgotten, a repetition
# creates a second event instead of incrementing a count.
MAX_REMEMBERED = 4096

# Maximum pause after several failures.
LONGEST_PAUSE_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLimits:
    """`events_per_second` and `burst` limit the load on the server in quiet times, `max_queued` the queue.

    The defaults send all events of a busy cycle immediately, and take a small share of the server's writes
    in the long run. A full queue of 2000 takes about 2 MB.
    """

    events_per_second: float = 20.0
    burst: int = 200
    max_queued: int = 2000


class EventRecorder:
    """Sends events in the background, as long as run() is running.

    `controller` and `instance` identify the reporter. `sent` and `dropped` are counters that only increase.

    `record` may be called from the event loop only. Events that were not sent when the process ends are lost;
    `drain` waits for them.
    """

    def __init__(
        self,
        client: KubeClient,
        load: WriteLoad,
        *,
        instance: str,
        controller: str = "berth.dev/controller",
        limits: EventLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sent = 0
        self.dropped = 0
        self._client = client
        self._reporter = {
            "reportingController": controller,
            "reportingInstance": instance[:MAX_WORD_CHARACTERS],
        }
        limits = limits or EventLimits()
        self._budget = ReportBudget(load, per_second=limits.events_per_second, burst=limits.burst)
        self._max_queued = limits.max_queued
        self._clock = clock
        self._queue: OrderedDict[_Key, _Pending] = OrderedDict()
        self._remembered: OrderedDict[_Key, _Sent] = OrderedDict()
        # By key without note: which notes were recorded lately.
        self._similar: OrderedDict[_Key, _Similar] = OrderedDict()
        # Starts with the wall clock, so that a restarted process does not reuse names of its predecessor.
        self._numbers = itertools.count(time.time_ns())
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._failures = 0
        self._error: KubeError | None = None

    def record(
        self,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str = "",
        *,
        is_folded: bool = False,
    ) -> None:
        """Queue an event; return immediately and raise no exception.

        `reason` is why it happened, `action` what was done (default: the reason), both in CamelCase for
        programs. `note` is the sentence for people, truncated to 1024 bytes. `is_folded`: all events of
        this reason about the object are one, which has the first note, as client-go folds its events.
        """
        reason = reason[:MAX_WORD_CHARACTERS]
        key = self._combined(
            _Key(regarding, type_, reason, cut_note(note), (action or reason)[:MAX_WORD_CHARACTERS]),
            is_folded=is_folded,
        )
        if pending := self._queue.get(key):
            self._queue[key] = pending.again(_now())
        # The newest event is dropped, because repetitions of older ones may still be combined with them.
        elif len(self._queue) >= self._max_queued:
            self.dropped += 1
        else:
            self._queue[key] = _Pending(count=1, first_at=_now(), last_at=_now())
            self._filled.set()
            self._emptied.clear()

    async def run(self) -> None:
        """Send the queued events, one after another, until cancelled.

        An event that fails for a lasting reason is dropped and counted, and one that fails for a passing
        reason is put back to the front. Raises nothing but cancellation.
        """
        while True:
            await self._filled.wait()
            # Asked only if there is an event. The wait is outside of `_send`, so it is no failure.
            if wait_seconds := self._budget.seconds_to_next(self._clock()):
                await asyncio.sleep(wait_seconds)
                continue
            self._budget.take(self._clock())
            # Removed before it is sent: if it is recorded again meanwhile, the repetition becomes a new entry
            # of the queue, and increments the count of this event later.
            key, pending = self._queue.popitem(last=False)
            try:
                await self._send(key, pending)
            except KubeError as error:
                await self._failed(key, pending, error)
            else:
                self._succeeded()
            # Not in record(): drain() may return only when no event is being sent either.
            self._note_emptiness()

    async def drain(self, timeout_seconds: float) -> None:
        """Return when the queue is empty, or after `timeout_seconds` at the latest.

        For the end of the process. Does not stop `run`.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._emptied.wait()

    def _note_emptiness(self) -> None:
        """Let `drain` return and `run` wait where the queue is empty."""
        if not self._queue:
            self._filled.clear()
            self._emptied.set()

    def _combined(self, key: _Key, *, is_folded: bool) -> _Key:
        """Return the key, with the same note for all further ones if there were many different notes."""
        group, now = key._replace(note=""), self._clock()
        similar = self._similar.pop(group, None)
        if similar is None or now - similar.at >= SIMILAR_SECONDS:
            similar = _Similar()
        # Put at the end, so that a group that is recorded repeatedly is not forgotten first.
        self._similar[group] = similar
        if len(self._similar) > MAX_REMEMBERED:
            self._similar.popitem(last=False)
        similar.at = now
        if is_folded:
            similar.combined = similar.combined or key.note
            return key._replace(note=similar.combined)
        # Hashes, because the notes of thousands of objects would take megabytes.
        if len(similar.notes) < MAX_SIMILAR:
            similar.notes.add(hash(key.note))
        if hash(key.note) in similar.notes:
            return key
        similar.combined = similar.combined or cut_note(COMBINED + key.note)
        return key._replace(note=similar.combined)

    # Sending

    async def _send(self, key: _Key, pending: _Pending) -> None:
        """Send one event: raise the count of one that was sent lately, else create it."""
        earlier = self._remembered.get(key)
        if earlier and self._clock() - earlier.sent_at < SERIES_SECONDS:
            # If the event has expired on the server, it is created again.
            with contextlib.suppress(NotFound):
                await self._raise_count(key, earlier, pending)
                return
        await self._create(key, pending)

    async def _create(self, key: _Key, pending: _Pending) -> None:
        """Create the Event object, in the namespace of what it is about."""
        suffix = f".{next(self._numbers):x}"
        name = key.regarding.name[: MAX_NAME_CHARACTERS - len(suffix)] + suffix
        # Events about cluster-scoped objects are stored in "default", where kubectl looks for them.
        namespace = key.regarding.namespace or "default"
        body = Body(msgspec.json.encode(self._body(key, pending, name, namespace)))
        await self._client.request("POST", EVENTS.path(namespace), body=body, lane=Connection.EVENTS)
        self._remember(key, _Sent(name=name, count=pending.count, sent_at=self._clock()))

    async def _raise_count(self, key: _Key, earlier: _Sent, pending: _Pending) -> None:
        """Add the repetitions to an Event that the server has already."""
        count = earlier.count + pending.count
        patch = {"series": {"count": count, "lastObservedTime": pending.last_at}}
        await self._client.request(
            "PATCH",
            EVENTS.path(key.regarding.namespace or "default", earlier.name),
            body=Body(msgspec.json.encode(patch), MERGE_PATCH),
            lane=Connection.EVENTS,
        )
        self._remember(key, _Sent(name=earlier.name, count=count, sent_at=self._clock()))

    def _body(self, key: _Key, pending: _Pending, name: str, namespace: str) -> dict[str, object]:
        """Return the Event as events.k8s.io/v1 describes it."""
        body: dict[str, object] = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": pending.first_at,
            "type": key.type,
            "reason": key.reason,
            "action": key.action,
            "note": key.note,
            "regarding": _reference(key.regarding),
            **self._reporter,
        }
        if pending.count > 1:
            body["series"] = {"count": pending.count, "lastObservedTime": pending.last_at}
        return body

    def _remember(self, key: _Key, sent: _Sent) -> None:
        """Remember an event that was sent, so that repetitions raise its count."""
        self.sent += 1
        self._remembered[key] = sent
        self._remembered.move_to_end(key)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    # Failures

    async def _failed(self, key: _Key, pending: _Pending, error: KubeError) -> None:
        """Drop the event or put it back, and wait as long as the failure suggests."""
        known, self._error = self._error, error
        if known is None or (type(known), known.message) != (type(error), error.message):
            log.warning("events_failed status=%s error=%r", error.status, error.message)
        # Temporary failures are repeated. Any other failure rejects the event itself, for example because its
        # namespace is being deleted, and would occur again.
        if not isinstance(error, TooManyRequests | ServerError | Unreachable):
            self.dropped += 1
            return
        self._put_back(key, pending)
        self._failures += 1
        # The exponent is limited, so that it cannot overflow if a server is down for days.
        pause = min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0 ** min(self._failures, 16))
        await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))

    def _put_back(self, key: _Key, pending: _Pending) -> None:
        """Put an event back to the front of the queue; it is dropped if the queue is full."""
        if later := self._queue.get(key):
            merged = _Pending(
                count=pending.count + later.count, first_at=pending.first_at, last_at=later.last_at
            )
            # It was recorded again while it was being sent: both become one event, from the first
            # to the last time.
            self._queue[key] = merged
        elif len(self._queue) >= self._max_queued:
            self.dropped += 1
            return
        else:
            self._queue[key] = pending
        self._queue.move_to_end(key, last=False)

    def _succeeded(self) -> None:
        """End the pauses between attempts."""
        self._failures = 0
        self._error = None


class _Key(NamedTuple):
    """Identity of an event: repetitions have equal keys."""

    regarding: ObjectRef
    type: EventType
    reason: str
    note: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """Occurrences that wait to be sent; times are in RFC 3339 with microseconds."""

    count: int
    first_at: str
    last_at: str

    def again(self, now: str) -> _Pending:
        return _Pending(count=self.count + 1, first_at=self.first_at, last_at=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An event that is stored on the server; `sent_at` is in monotonic seconds."""

    name: str
    count: int
    sent_at: float


@dataclass(slots=True)
class _Similar:
    """Notes of one reason about one object: when the last came (monotonic seconds), and which they were."""

    at: float = 0.0
    notes: set[int] = field(default_factory=set)
    combined: str = ""


def cut_note(note: str) -> str:
    """Return the note.

    If it has over 1024 bytes of UTF-8, truncated between characters and marked with "…".
    """
    # A lone surrogate cannot be encoded; it is replaced by "?" instead of raising an error.
    data = note.encode("utf-8", "replace")
    if len(data) <= MAX_NOTE_BYTES:
        return note
    mark = "…"
    # "ignore" drops an incomplete character at the end.
    return data[: MAX_NOTE_BYTES - len(mark.encode())].decode("utf-8", "ignore") + mark


def _reference(regarding: ObjectRef) -> dict[str, str]:
    """Return the reference to what an event is about, without empty fields."""
    fields = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
    }
    return {key: value for key, value in fields.items() if value}


def _now() -> str:
    """Return the present time as metav1.MicroTime."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
