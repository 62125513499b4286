"""Leader election on a Lease: at most one of several processes leads, and each term has a number.

The number, called the fence, is the Lease's `leaseTransitions`. Every acquisition increases it, even if the
same process leads again, so that requests of an earlier term which are still in flight carry a lower number.

How long a term lasts, and what a leader may still do as it ends, is in `api.kube.leadership`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from api.kube.boottime import boottime
from api.kube.client import Body, Connection, KubeClient
from api.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Timeout
from api.kube.history import ClusterRestored, History
from api.kube.leadership import Leadership, LeaseTiming
from api.kube.lease_record import LeaseClaim, LeaseRecord, Observation, parse_lease
from api.kube.resources import LEASES

log = logging.getLogger("berth.kube.lease")

# Maximum time for the store to report the highest fence. A lost store must not prevent the election of a
# leader. The wait precedes the acquisition, so it extends each failover by this time if the store is lost.
STORE_SECONDS = 1.0

# How long a request of another process may still take effect after that process has lost its lease: the API
# server ends a request after 60 s (--request-timeout).
UNSETTLED_SECONDS = 60.0

# Maximum time to release the lease when the process stops: enough for a renewal under way and the release at
# a server that takes three seconds for each. A lease that is not released is waited for much longer.
RELEASE_SECONDS = 8.0

# With less than this left of its lease, a leader does not try another renewal: no answer would come in time.
SHORTEST_ATTEMPT_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseLock:
    """The Lease that the candidates compete for, and the identity by which it names this candidate."""

    name: str
    namespace: str
    identity: str


class Elector:
    """One candidate for one Lease.

    `highest_known_fence`: called at each acquisition; the fence always starts above its result.
    It returns 0 if it does not know a fence, and raises no exception. `on_error` is called once for each
    error, and with None when requests succeed again; by default errors are logged.
    """

    def __init__(
        self,
        client: KubeClient,
        lock: LeaseLock,
        timing: LeaseTiming,
        *,
        highest_known_fence: Callable[[], Awaitable[int]] | None = None,
        on_error: Callable[[KubeError | None], None] | None = None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.timing = timing
        self._lock = lock
        self._clock = clock
        self._client = client
        self._collection = LEASES.path(lock.namespace)
        self._path = LEASES.path(lock.namespace, lock.name)
        self._highest_known_fence = highest_known_fence
        self._on_error = on_error or self._log_error
        self._error: KubeError | None = None
        self._observation = Observation(lock.identity, timing.duration_seconds)
        # The Lease changes every few seconds, so its version shows first that the cluster was restored.
        self._history = History(f"lease {lock.name}")
        # The highest fence that this process has tried to write, with or without a response. If the Lease has
        # its identity but a higher fence, another process uses the same identity.
        self._highest_claimed = 0
        # Whether every state of the Lease that was seen since the last term of this process was its own
        # claim. Another process that leads leaves its own name or none, and only this process writes its
        # name there, always onto a state that it has read.
        self._is_unbroken = False
        # One writer at a time: otherwise a renewal and a raised fence would send the same resourceVersion,
        # and the second would fail with a Conflict with the first.
        self._writing = asyncio.Lock()
        self._wanted = asyncio.Event()

    @property
    def holder(self) -> str:
        """The holder of the lease when it was last read; "" if it has none."""
        record = self._observation.record
        return record.holder if record else ""

    def seconds_left(self, renewed_at: float) -> float:
        """Return for how long a lease that was renewed at this instant is valid; below 0 if it has ended."""
        return renewed_at + self.timing.duration_seconds - self._clock()

    async def run(self, lead: Callable[[Leadership], Awaitable[None]]) -> None:
        """Run lead() whenever this process leads, until lead() returns or this method is cancelled.

        lead() is cancelled when the lease cannot be renewed, and does not start again before it has
        ended. Its exceptions are passed on. The lease is released at the end, so that another candidate
        can take it immediately. Raises ClusterRestored if the Lease returns to an earlier state, because the
        cluster was restored from a backup.
        """
        while True:
            leadership = await self._campaign()
            log.info(
                "leading lease=%s identity=%s fence=%d",
                self._lock.name,
                self._lock.identity,
                leadership.fence,
            )
            if await self._lead(lead, leadership):
                return
            log.warning("stopped_leading lease=%s identity=%s", self._lock.name, self._lock.identity)

    # As a candidate

    async def _campaign(self) -> Leadership:
        """Return once this process holds the lease."""
        while True:
            pause = self.timing.renew_seconds
            try:
                pause = await self._look()
                # Each request has a timeout of its own: together they may take longer than the deadline on a
                # slow server. If a claim is stored after its timeout, it has this process as the holder, so
                # the next look finds the Lease free and takes it with a higher fence.
                if pause <= 0:
                    return await self._acquire()
                self._succeeded()
            except (Conflict, AlreadyExists):
                # Another candidate was faster, so the Lease is read again.
                pause = 0.0
            except KubeError as error:
                self._failed(error)
                pause = self.timing.renew_seconds / 2
            # The random part prevents two candidates from repeating a Conflict in lockstep.
            await asyncio.sleep(
                min(pause, self.timing.renew_seconds) + random.uniform(0.0, self.timing.renew_seconds / 10)
            )

    async def _look(self) -> float:
        """Read the Lease and return the seconds until it may be taken."""
        # Read from the server and not from a watch, whose delay would count as a missing renewal.
        self._see(await self._read())
        return self._observation.seconds_until_free(self._clock())

    def _see(self, record: LeaseRecord | None) -> None:
        """Take what the server shows now. Raises ClusterRestored if it is from before the known state."""
        self._history.see(record.version if record else "")
        self._observation.see(record, self._clock())
        self._is_unbroken &= self._is_own(record)

    def _is_own(self, record: LeaseRecord | None) -> bool:
        """Return whether this process wrote the claim in the Lease."""
        # If the number is higher than this process ever wrote, another process uses the same identity.
        return (
            record is not None
            and record.holder == self._lock.identity
            and record.transitions <= self._highest_claimed
        )

    async def _acquire(self) -> Leadership:
        record = self._observation.record
        # Above both numbers: if the Lease was deleted and created again, its transitions start at zero, while
        # Redis still rejects fences below the highest one that it has seen. And if Redis was flushed, only
        # the Lease has the number.
        known = await self._known_fence()
        fence = max(self._observation.highest_transitions, known) + 1
        # A fence in Redis above the Lease's is that of a leader which the Lease does not know.
        continues = self._is_unbroken and record is not None and known <= record.transitions
        # A holder that released the lease had an answer to every write. The holder of a deleted Lease is not
        # known; if there has never been a Lease, there was none.
        is_settled = record.holder == "" if record else self._observation.highest_transitions == 0
        # What an earlier leader says of the store holds until this one knows it to be complete.
        without_store = record is not None and record.decides_without_store
        async with self._writing:
            began = await self._write(record, fence, without_store=without_store)
        self._is_unbroken = True
        settled_at = 0.0 if is_settled else self._clock() + UNSETTLED_SECONDS
        return Leadership(
            self,
            fence,
            began,
            continues=continues,
            settled_at=settled_at,
            decides_without_store=without_store,
        )

    async def _known_fence(self) -> int:
        if self._highest_known_fence is None:
            return 0
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await self._highest_known_fence()
        except TimeoutError:
            # If the fence is too low, the store rejects it, and it is raised then (Leadership.raise_fence).
            log.warning("fence_unknown lease=%s seconds=%s", self._lock.name, STORE_SECONDS)
            return 0

    # As the leader

    async def _lead(self, lead: Callable[[Leadership], Awaitable[None]], leadership: Leadership) -> bool:
        """Run lead() until it ends or the lease is lost; return whether it ended by itself."""
        # Two tasks, so that a busy or hanging lead() does not lose the lease, and the loss of the lease
        # cancels lead() wherever it waits.
        work = asyncio.create_task(_as_coroutine(lead, leadership), name=f"lead-{self._lock.name}")
        renewal = asyncio.create_task(self._renew_until_lost(leadership), name=f"renew-{self._lock.name}")
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            ended_by_itself = work.done()
        finally:
            try:
                # The lease is renewed until the work has ended, however long its cleanup takes.
                await _ended(work)
            finally:
                await self._stop_leading(leadership, renewal)
        for task in (work, renewal):
            if not task.cancelled():
                task.result()
        return ended_by_itself

    async def _stop_leading(self, leadership: Leadership, renewal: asyncio.Task[None]) -> None:
        # Checked before the renewal is cancelled: if it ended by itself, the lease is lost or in doubt, and
        # releasing it could overwrite the claim of another process.
        is_ours = not renewal.done()
        leadership.end()
        try:
            # A renewal under way is not cut off, but awaited (`_writing`): it could still be stored, and the
            # release would meet a conflict with it. No other follows, because the term has ended.
            if is_ours and not leadership.leaves_unanswered:
                await self._release(leadership)
        finally:
            await _ended(renewal)

    async def _renew_until_lost(self, leadership: Leadership) -> None:
        """Renew the lease periodically; return when it is lost, or shortly before it ends."""
        pause = self._seconds_to_renewal(leadership)
        while True:
            # Wakes up early if a task needs proof of leadership now (`wait_renewed_after`).
            await self._wait_wanted(min(pause, self._seconds_to_stop(leadership)))
            left = self._seconds_to_stop(leadership)
            if left <= SHORTEST_ATTEMPT_SECONDS:
                return
            try:
                # As long as the lease lasts: an answer that comes late is as good as any other.
                await self._renew(leadership, timeout_seconds=left)
            # Another process holds the Lease, or it was deleted: continuing until the deadline
            # could mean two leaders.
            except (Conflict, NotFound) as error:
                self._failed(error)
                return
            # Other errors may be temporary: a restarted server, a broken connection. The renewal is repeated
            # at short intervals, or as late as an overloaded server asks, but often enough to succeed at a
            # server that refuses half of all requests.
            except KubeError as error:
                self._failed(error)
                pause = max(
                    self.timing.renew_seconds / 10,
                    min(self.timing.renew_seconds / 2, error.retry_after_seconds or 0.0),
                )
            else:
                pause = self._seconds_to_renewal(leadership)

    def _seconds_to_renewal(self, leadership: Leadership) -> float:
        # Counted from the start of the last one, so that a slow server does not extend the interval.
        since = self.timing.duration_seconds - leadership.remaining_seconds()
        return max(0.0, self.timing.renew_seconds - since)

    def _seconds_to_stop(self, leadership: Leadership) -> float:
        return leadership.remaining_seconds() - self.timing.stop_seconds

    def renew_soon(self) -> None:
        """Renew as soon as possible instead of at the next interval."""
        self._wanted.set()

    async def _wait_wanted(self, seconds: float) -> None:
        # A request that arrives during a renewal is answered by the next one, because the current one may
        # have started too early for it.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        self._wanted.clear()

    async def raise_fence(self, leadership: Leadership, above: int) -> int:
        """Raise the fence above a number; see Leadership.raise_fence."""
        # Two callers may request the same number; for the second one it is already done.
        if leadership.fence <= above:
            await self._renew(leadership, above + 1, timeout_seconds=self.timing.attempt_seconds)
        return leadership.fence

    async def _renew(self, leadership: Leadership, at_least: int = 0, *, timeout_seconds: float) -> None:
        """Write the lease with the fence of the term, or a higher one.

        Raises Conflict if the lease is lost.
        """
        try:
            async with asyncio.timeout(timeout_seconds), self._writing:
                without_store = leadership.take_note()
                began, fence = await self._write_ours(leadership, at_least, without_store=without_store)
        except TimeoutError as error:
            message = f"the lease {self._lock.name} could not be written in {timeout_seconds:.2f} s"
            raise Timeout(message) from error
        except (Conflict, NotFound):
            # Ended before the caller sees the error: no write may rely on a lease that is known to be lost.
            leadership.end()
            raise
        leadership.note_renewal(fence, began, without_store=without_store)

    async def _release(self, leadership: Leadership) -> None:
        """Release the lease, so that another candidate need not wait for its end."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS), self._writing:
                # One second is the API's minimum; without a holder the duration is not used.
                without_store = leadership.take_note()
                await self._write_ours(leadership, 0, holder="", seconds=1.0, without_store=without_store)
        # A failed release is harmless: other candidates wait for the end of the lease, as after a crash.
        except (KubeError, TimeoutError, ClusterRestored) as error:
            log.warning("release_failed lease=%s error=%r", self._lock.name, str(error))

    async def _write_ours(
        self,
        leadership: Leadership,
        at_least: int,
        *,
        without_store: bool,
        holder: str | None = None,
        seconds: float | None = None,
    ) -> tuple[float, int]:
        """Write the lease if this process holds it; return the start of the attempt and the fence written."""
        fence = max(leadership.fence, at_least)
        while True:
            with contextlib.suppress(Conflict):
                record = self._observation.record
                began = await self._write(
                    record, fence, without_store=without_store, holder=holder, seconds=seconds
                )
                return began, fence
            # A conflict alone does not mean that the lease is lost: a user may have annotated the Lease, or
            # this process's own last write was stored although its response was lost.
            await self._look()
            record = self._observation.record
            if record is None or not self._is_own(record):
                raise Conflict(f"the lease {self._lock.name} is now held by {self.holder or 'no process'}")
            # A write with a lost response may have raised the fence, which must never decrease.
            fence = max(fence, record.transitions)

    # Requests

    async def _read(self) -> LeaseRecord | None:
        try:
            body = await self._client.request(
                "GET", self._path, timeout_seconds=self.timing.deadline_seconds, lane=Connection.LEASES
            )
        except NotFound:
            return None
        return parse_lease(body)

    async def _write(
        self,
        record: LeaseRecord | None,
        fence: int,
        *,
        without_store: bool,
        holder: str | None = None,
        seconds: float | None = None,
    ) -> float:
        """Write the claim and return the start of the attempt. Raises Conflict, AlreadyExists, NotFound, …"""
        claim = LeaseClaim(
            holder=self._lock.identity if holder is None else holder,
            duration_seconds=self.timing.duration_seconds if seconds is None else seconds,
            transitions=fence,
            written_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            decides_without_store=without_store,
        )
        # Recorded before the request, so that a claim with a lost response is recognized
        # as this process's own.
        self._highest_claimed = max(self._highest_claimed, fence)
        began = self._clock()
        answer = await self._first_answer(
            "PUT" if record else "POST",
            self._path if record else self._collection,
            Body(claim.onto(record, self._lock.name)),
        )
        self._see(parse_lease(answer))
        self._succeeded()
        return began

    async def _first_answer(self, method: str, path: str, body: Body) -> bytes:
        """Return the answer to a write, which is sent once more if there is none in `attempt_seconds`.

        The first connection may be dead, or the server slow. If it was slow and the first request were cut
        off, the second would meet a conflict with it, and take two more slow requests to find that out. Both
        have the same resourceVersion, so only one of them can be stored. Raises the error of the last one.
        """

        def send() -> asyncio.Task[bytes]:
            return asyncio.create_task(
                self._client.request(
                    method,
                    path,
                    body=body,
                    timeout_seconds=self.timing.duration_seconds,
                    lane=Connection.LEASES,
                ),
                name=f"write-{self._lock.name}",
            )

        sent = [send()]
        try:
            done, waiting = await asyncio.wait(sent, timeout=self.timing.attempt_seconds)
            if not done:
                sent.append(send())
                done, waiting = await asyncio.wait(sent, return_when=asyncio.FIRST_COMPLETED)
            answered = min(done, key=_is_failed)
            # A conflict says that the other one was stored, or another process's. All other errors leave open
            # what becomes of the other one.
            if waiting and _is_failed(answered) and not isinstance(answered.exception(), Conflict | NotFound):
                (answered,) = waiting
            return await answered
        finally:
            for task in sent:
                await _ended(task)

    def _failed(self, error: KubeError) -> None:
        known, self._error = self._error, error
        # Reported once per error and not once per attempt: a server that is down for an hour gives one
        # line in the log.
        if known is None or (type(known), known.message) != (type(error), error.message):
            self._on_error(error)

    def _succeeded(self) -> None:
        if self._error is not None:
            self._on_error(None)
        self._error = None

    def _log_error(self, error: KubeError | None) -> None:
        if error is None:
            log.info("lease_recovered lease=%s", self._lock.name)
        else:
            log.warning(
                "lease_failed lease=%s status=%s error=%r", self._lock.name, error.status, error.message
            )


async def _as_coroutine(lead: Callable[[Leadership], Awaitable[None]], leadership: Leadership) -> None:
    # A task needs a coroutine, while an `Awaitable` may be any object.
    await lead(leadership)


def _is_failed(task: asyncio.Task[bytes]) -> bool:
    return task.exception() is not None


async def _ended(task: asyncio.Task[None] | asyncio.Task[bytes]) -> None:
    """Cancel a task and wait until it has ended, even if the caller is cancelled meanwhile."""
    cancelled = False
    # Cancelled only once, because a second cancel() would interrupt the cleanup that the first one started.
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        # Raised at the end and not here, because the task would otherwise keep running while the caller
        # assumes that it has ended.
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        # Marks the exception as retrieved, so that asyncio does not log it.
        task.exception()
    if cancelled:
        raise asyncio.CancelledError
