"""Kubernetes Events: told when there is room, and the first thing to be dropped when there is none.

A decision never waits for its event. `record` puts it into a bounded queue, where repeats of the same message
about the same object become one; a task of its own sends them over connections of its own, at a bounded rate.
A server under pressure (429, 5xx, silence) is left alone and the queue fills; what then finds no room is
counted in `dropped`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from api.kube.client import Connection, KubeClient
from api.kube.errors import KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from api.kube.resources import EVENTS

log = logging.getLogger("berth.kube.events")

# Limits of events.k8s.io/v1, which refuses what is longer.
MAX_NOTE_BYTES = 1024
MAX_WORD_CHARACTERS = 128
MAX_NAME_CHARACTERS = 253

# A repeat within this time raises the count of the event that was sent; client-go's value.
SERIES_SECONDS = 360.0

# Caps how many sent events are remembered for their repeats: 300 bytes each.
# Forgetting one costs no more than a second event in place of a higher count.
MAX_REMEMBERED = 4096

# Caps the pause after failures in a row.
LONGEST_PAUSE_SECONDS = 30.0


class EventType(StrEnum):
    """How an event is shown: Warning stands out."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """The object that an event is about. `namespace` is "" for cluster-scoped ones."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""


class EventRecorder:
    """Sends events in the background. run() must be running for anything to arrive.

    `controller` and `instance` tell who reports. `events_per_second` and `burst` bound what a server gets
    (20 and 200: a busy cycle's events at once, and no more than a small share of its writes after).
    `max_queued` bounds what waits (2000, about 2 MB). `sent` and `dropped` only ever grow.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        instance: str,
        controller: str = "berth.dev/controller",
        events_per_second: float = 20.0,
        burst: int = 200,
        max_queued: int = 2000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sent = 0
        self.dropped = 0
        self._client = client
        self._reporter = {
            "reportingController": controller,
            "reportingInstance": instance[:MAX_WORD_CHARACTERS],
        }
        self._bucket = TokenBucket(rate=events_per_second, burst=burst, now=clock())
        self._max_queued = max_queued
        self._clock = clock
        self._queue: OrderedDict[_Key, _Pending] = OrderedDict()
        self._remembered: OrderedDict[_Key, _Sent] = OrderedDict()
        # From the wall clock on, so that a restarted process does not use up names
        # which its predecessor gave.
        self._numbers = itertools.count(time.time_ns())
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._failures = 0
        self._error: KubeError | None = None

    def record(
        self, regarding: ObjectRef, type_: EventType, reason: str, note: str, action: str = ""
    ) -> None:
        """Queue an event; returns at once and raises nothing.

        `reason` is why, `action` what was done about it (default: the reason), each one word for machines;
        `note` is the sentence for people, cut at 1024 bytes.
        """
        reason = reason[:MAX_WORD_CHARACTERS]
        key = _Key(regarding, type_, reason, cut_note(note), (action or reason)[:MAX_WORD_CHARACTERS])
        if pending := self._queue.get(key):
            self._queue[key] = pending.again(_now())
        # The newest is dropped, not the oldest: what waits is in order and its repeats may still be counted.
        elif len(self._queue) >= self._max_queued:
            self.dropped += 1
        else:
            self._queue[key] = _Pending(count=1, first_at=_now(), last_at=_now())
            self._filled.set()
            self._emptied.clear()

    async def run(self) -> None:
        """Send what is queued, one after another, until cancelled."""
        while True:
            await self._filled.wait()
            # A token is taken only when there is an event; the wait is outside of
            # `_send`, whose failures count.
            if wait_seconds := self._bucket.take(self._clock()):
                await asyncio.sleep(wait_seconds)
                continue
            # Taken out before it is sent: a repeat that is recorded meanwhile becomes an event of
            # its own in the queue and is counted onto this one afterwards.
            key, pending = self._queue.popitem(last=False)
            try:
                await self._send(key, pending)
            except KubeError as error:
                await self._failed(key, pending, error)
            else:
                self._succeeded()
            # Not in record(): only when nothing is under way either may drain() return.
            self._note_emptiness()

    async def drain(self, timeout_seconds: float) -> None:
        """Return when nothing is queued any more, at the latest after `timeout_seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._emptied.wait()

    def _note_emptiness(self) -> None:
        if not self._queue:
            self._filled.clear()
            self._emptied.set()

    # Sending

    async def _send(self, key: _Key, pending: _Pending) -> None:
        earlier = self._remembered.get(key)
        if earlier and self._clock() - earlier.sent_at < SERIES_SECONDS:
            # An event that has run out on the server since is told anew.
            with contextlib.suppress(NotFound):
                await self._raise_count(key, earlier, pending)
                return
        await self._create(key, pending)

    async def _create(self, key: _Key, pending: _Pending) -> None:
        suffix = f".{next(self._numbers):x}"
        name = key.regarding.name[: MAX_NAME_CHARACTERS - len(suffix)] + suffix
        # Events about cluster-scoped objects live in "default", where kubectl looks for them.
        namespace = key.regarding.namespace or "default"
        body = msgspec.json.encode(self._body(key, pending, name, namespace))
        await self._client.request("POST", EVENTS.path(namespace), body=body, lane=Connection.EVENTS)
        self._remember(key, _Sent(name=name, count=pending.count, sent_at=self._clock()))

    async def _raise_count(self, key: _Key, earlier: _Sent, pending: _Pending) -> None:
        count = earlier.count + pending.count
        await self._client.request(
            "PATCH",
            EVENTS.path(key.regarding.namespace or "default", earlier.name),
            body=msgspec.json.encode({"series": {"count": count, "lastObservedTime": pending.last_at}}),
            content_type="application/merge-patch+json",
            lane=Connection.EVENTS,
        )
        self._remember(key, _Sent(name=earlier.name, count=count, sent_at=self._clock()))

    def _body(self, key: _Key, pending: _Pending, name: str, namespace: str) -> dict[str, object]:
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
        self.sent += 1
        self._remembered[key] = sent
        self._remembered.move_to_end(key)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    # Failures

    async def _failed(self, key: _Key, pending: _Pending, error: KubeError) -> None:
        known, self._error = self._error, error
        if known is None or (type(known), known.message) != (type(error), error.message):
            log.warning("events_failed status=%s error=%r", error.status, error.message)
        # What may pass with time is sent again; all else, a namespace that is being deleted say, never will.
        if not isinstance(error, TooManyRequests | ServerError | Unreachable):
            self.dropped += 1  # the event itself is refused: sending it again is no use
            return
        self._put_back(key, pending)
        self._failures += 1
        # The power is capped for a server that is away for days.
        pause = min(LONGEST_PAUSE_SECONDS, 0.5 * 2.0 ** min(self._failures, 16))
        await asyncio.sleep(max(pause, error.retry_after_seconds or 0.0))

    def _put_back(self, key: _Key, pending: _Pending) -> None:
        """Put an event back to the front; it counts as dropped where others have taken its place."""
        if later := self._queue.get(key):
            merged = _Pending(
                count=pending.count + later.count, first_at=pending.first_at, last_at=later.last_at
            )
            # Recorded again while it was under way: one event, from the first occurrence to the last.
            self._queue[key] = merged
        elif len(self._queue) >= self._max_queued:
            self.dropped += 1
            return
        else:
            self._queue[key] = pending
        self._queue.move_to_end(key, last=False)

    def _succeeded(self) -> None:
        self._failures = 0
        self._error = None


class TokenBucket:
    """Allows `burst` at once and `rate` a second in the long run."""

    def __init__(self, *, rate: float, burst: int, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = float(burst)
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or take none and return the seconds until there is one."""
        self._tokens = min(float(self._burst), self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens >= 1.0:
            self._tokens -= 1.0
            return 0.0
        return (1.0 - self._tokens) / self._rate


class _Key(NamedTuple):
    """What makes two events the same."""

    regarding: ObjectRef
    type: EventType
    reason: str
    note: str
    action: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pending:
    """Occurrences that wait to be sent; times are RFC 3339 with microseconds."""

    count: int
    first_at: str
    last_at: str

    def again(self, now: str) -> _Pending:
        return _Pending(count=self.count + 1, first_at=self.first_at, last_at=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    """An event that the server has; `sent_at` in monotonic seconds."""

    name: str
    count: int
    sent_at: float


def cut_note(note: str) -> str:
    """Return the note, cut between characters and marked with "…" where it is over 1024 bytes of UTF-8."""
    # A lone surrogate has no UTF-8; a "?" is told in its place instead of raising.
    data = note.encode("utf-8", "replace")
    if len(data) <= MAX_NOTE_BYTES:
        return note
    mark = "…"
    # "ignore" drops the character that the cut went through.
    return data[: MAX_NOTE_BYTES - len(mark.encode())].decode("utf-8", "ignore") + mark


def _reference(regarding: ObjectRef) -> dict[str, str]:
    fields = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
    }
    return {key: value for key, value in fields.items() if value}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
