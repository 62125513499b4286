"""Leader election on a Lease: at most one of many processes leads, and each time of leading has a number.

The number, the fence, is the Lease's `leaseTransitions`. It is raised at every acquisition, also when the
same process leads again, so that whatever an earlier leader still has under way carries a lower one.

              t = 0         renew_seconds         deadline_seconds       lease_seconds
    leader    renewed ─────── renews ... fails ─────── lead() cancelled ─────── │
    others    see it change ──────────────────────────────────────────────────── may take it

Between the deadline and the end of the lease lead() has time to stop. A process that is frozen (SIGSTOP, a
paused machine) cannot stop in time; so nothing is written that `Leadership.remaining_seconds()` does not
cover, and it is measured from the *start* of the last renewal that succeeded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from api.kube.client import Connection, KubeClient
from api.kube.errors import AlreadyExists, Conflict, KubeError, NotFound, Timeout
from api.kube.lease_record import LeaseClaim, LeaseRecord, Observation, parse_lease
from api.kube.resources import LEASES

log = logging.getLogger("berth.kube.lease")

# How long the store may take to return the highest fence. A lost store must not keep a replica from leading.
# The wait comes before the lease is taken, so while the store is lost every fail-over takes as much longer.
STORE_SECONDS = 1.0

# How long giving the lease back may take when we stop.
RELEASE_SECONDS = 2.0


class Leadership:
    """One time of leading: from taking the lease until lead() has ended."""

    def __init__(self, elector: Elector, fence: int, renewed_at: float) -> None:
        self._elector = elector
        self._fence = fence
        self._renewed_at = renewed_at
        self._renewed = asyncio.Event()
        self._ended = False

    @property
    def fence(self) -> int:
        """Return the number of this time of leading, higher than that of any leader before."""
        return self._fence

    def remaining_seconds(self) -> float:
        """Return for how long no other process can lead; 0 or less when another may.

        Counted from the start of the last successful renewal by the monotonic clock, which goes on while
        the process is stopped.
        """
        if self._ended:
            return 0.0
        return self._renewed_at + self._elector.lease_seconds - self._elector.clock()

    def renewed_after(self, instant: float) -> bool:
        """Return whether a renewal that began after `instant` (monotonic seconds) has succeeded."""
        return self._renewed_at > instant

    async def wait_renewed_after(self, instant: float) -> None:
        """Return when a renewal that began after `instant` has succeeded; asks for one at once.

        Waits as long as it takes: lead() is cancelled when the lease is lost.
        """
        while not self.renewed_after(instant):
            renewed = self._renewed
            self._elector.renew_soon()
            # Renewals set it before they put a new event in its place; `renewed_after` is asked
            # again because a renewal that was already under way at `instant` sets it too.
            await renewed.wait()

    async def raise_fence(self, above: int) -> int:
        """Raise the fence above a number, write it into the Lease, and return it.

        For a leader that the store refuses because it knows a higher fence. Raises KubeError where the Lease
        cannot be written; Conflict means that it is another's.
        """
        return await self._elector.raise_fence(self, above)

    def note_renewal(self, fence: int, began_at: float) -> None:
        """Take note of a renewal that began at `began_at` and succeeded."""
        # Counted from when the request began, never from its answer: the server may have stored it at any
        # moment between, and others count the lease from there.
        self._fence, self._renewed_at = fence, began_at
        self._renewed.set()
        # An event of its own a renewal: who begins to wait now must not be satisfied by
        # one that began earlier.
        self._renewed = asyncio.Event()

    def end(self) -> None:
        """Take note that the lease is no longer ours."""
        self._ended = True


class Elector:
    """One candidate for one Lease.

    `lease_seconds`: how long others leave an unrenewed lease alone (default 4: a fail-over within 5 s; the
    field's 15 s leaves a queue without decisions for longer than most jobs wait).
    `renew_seconds`: how often the leader renews and the others look (1).
    `deadline_seconds`: a leader that could not renew for so long stops leading (2.5).
    Kueue's values are 15, 2 and 10.
    `highest_known_fence`: asked at each acquisition; a fence never starts at or below its answer. It answers
    0 where it does not know and raises nothing.
    `on_error` is told each error once, None when requests succeed again; without it they are logged.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_seconds: float = 4.0,
        renew_seconds: float = 1.0,
        deadline_seconds: float = 2.5,
        highest_known_fence: Callable[[], Awaitable[int]] | None = None,
        on_error: Callable[[KubeError | None], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # client-go asks for the same order: a renewal is tried at least once before the deadline,
        # and lead() has time to stop between the deadline and the moment when others may take over.
        if not 0 < renew_seconds < deadline_seconds < lease_seconds:
            given = f"{renew_seconds}, {deadline_seconds}, {lease_seconds}"
            raise ValueError(f"a lease needs 0 < renew < deadline < lease, not {given}")
        self.name = name
        self.identity = identity
        self.lease_seconds = lease_seconds
        self.renew_seconds = renew_seconds
        self.deadline_seconds = deadline_seconds
        self.clock = clock
        self._client = client
        self._collection = LEASES.path(namespace)
        self._path = LEASES.path(namespace, name)
        self._highest_known_fence = highest_known_fence
        self._on_error = on_error or self._log_error
        self._error: KubeError | None = None
        self._observation = Observation(identity, lease_seconds)
        # The highest fence that we have tried to write, whether or not an answer came. A Lease in
        # our name with a higher one was written by somebody who uses our identity.
        self._highest_claimed = 0
        # One writer at a time: a renewal and a raised fence would else send the same
        # resourceVersion, and the later one would meet a Conflict with ourselves.
        self._writing = asyncio.Lock()
        self._wanted = asyncio.Event()

    @property
    def holder(self) -> str:
        """Return who held the lease when it was last seen, "" for nobody."""
        record = self._observation.record
        return record.holder if record else ""

    async def run(self, lead: Callable[[Leadership], Awaitable[None]]) -> None:
        """Run lead() whenever this process leads, until lead() returns or this is cancelled.

        lead() is cancelled when the lease cannot be renewed, and no other lead() begins before it has ended.
        Its own errors pass through. The lease is given back at the end, so that another takes it at once.
        """
        while True:
            leadership = await self._campaign()
            log.info("leading lease=%s identity=%s fence=%d", self.name, self.identity, leadership.fence)
            if await self._lead(lead, leadership):
                return
            log.warning("stopped_leading lease=%s identity=%s", self.name, self.identity)

    # As a candidate

    async def _campaign(self) -> Leadership:
        """Return once the lease is ours."""
        while True:
            pause = self.renew_seconds
            try:
                # Cut off at the deadline even while acquiring. A claim that arrives all the same
                # stands in our own name, so the next look finds the Lease free for us and takes it
                # with a higher fence.
                async with asyncio.timeout(self.deadline_seconds):
                    pause = await self._look()
                    if pause <= 0:
                        return await self._acquire()
                self._succeeded()
            except (Conflict, AlreadyExists):
                pause = 0.0  # another was first: look who
            except KubeError as error:
                self._failed(error)
            except TimeoutError:
                log.warning("campaign_slow lease=%s seconds=%s", self.name, self.deadline_seconds)
            # The random part keeps two candidates that meet a Conflict from meeting again in step for ever.
            await asyncio.sleep(min(pause, self.renew_seconds) + random.uniform(0.0, self.renew_seconds / 10))

    async def _look(self) -> float:
        # Read from the server and never from a watch: a watch's lag would count as silence of the holder.
        """Read the Lease and return the seconds until it may be taken."""
        self._observation.see(await self._read(), self.clock())
        return self._observation.seconds_until_free(self.clock())

    async def _acquire(self) -> Leadership:
        record = self._observation.record
        # Above both: somebody may have deleted and made the Lease again, which would start its transitions at
        # zero, while Redis still refuses whatever is below the highest fence it has seen; and Redis may have
        # been flushed while the Lease stands.
        fence = max(self._observation.highest_transitions, await self._known_fence()) + 1
        async with self._writing:
            began = await self._write(record, fence)
        return Leadership(self, fence, began)

    async def _known_fence(self) -> int:
        if self._highest_known_fence is None:
            return 0
        try:
            async with asyncio.timeout(STORE_SECONDS):
                return await self._highest_known_fence()
        except TimeoutError:
            # The store refuses a fence that is too low; then it is raised (Leadership.raise_fence).
            log.warning("fence_unknown lease=%s seconds=%s", self.name, STORE_SECONDS)
            return 0

    # As the leader

    async def _lead(self, lead: Callable[[Leadership], Awaitable[None]], leadership: Leadership) -> bool:
        """Run lead() until it ends or the lease is lost; return whether it ended by itself."""
        # Two tasks, so that a lead() that is busy or hangs does not cost the lease, and a lease that is lost
        # ends lead() wherever it is.
        work = asyncio.create_task(_as_coroutine(lead, leadership), name=f"lead-{self.name}")
        renewal = asyncio.create_task(self._renew_until_lost(leadership), name=f"renew-{self.name}")
        try:
            await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            ended_by_itself = work.done()
        finally:
            try:
                # Renewed until the work has ended, however long its clean-up takes.
                await _ended(work)
            finally:
                await self._stop_leading(leadership, renewal)
        for task in (work, renewal):
            if not task.cancelled():
                task.result()
        return ended_by_itself

    async def _stop_leading(self, leadership: Leadership, renewal: asyncio.Task[None]) -> None:
        # Read before the renewal is cancelled: where it has ended by itself the lease is lost or in
        # doubt, and giving it back would write into what may be another's.
        is_ours = not renewal.done()
        await _ended(renewal)
        leadership.end()
        if is_ours:
            await self._release(leadership)

    async def _renew_until_lost(self, leadership: Leadership) -> None:
        """Renew the lease again and again; return when it is lost or the deadline has passed."""
        pause = self.renew_seconds
        while True:
            # Woken early by who needs a proof of leadership right now (`wait_renewed_after`),
            # else at the turn.
            await self._wait_wanted(min(pause, self._seconds_to_deadline(leadership)))
            left = self._seconds_to_deadline(leadership)
            if left <= 0:
                return
            began = self.clock()
            try:
                await self._renew(leadership, timeout_seconds=min(left, self._attempt_seconds))
            # The Lease is another's or was deleted: to go on until the deadline would mean two leaders.
            except (Conflict, NotFound) as error:
                self._failed(error)
                return
            # Anything else may pass: a restarted server, a dropped connection. Tried on in quick
            # succession until the deadline, which is soon enough for others.
            except KubeError as error:
                self._failed(error)
                pause = self.renew_seconds / 10
            else:
                # From the beginning of the attempt: a slow server must not stretch the period of renewals.
                pause = max(0.0, began + self.renew_seconds - self.clock())

    def _seconds_to_deadline(self, leadership: Leadership) -> float:
        return leadership.remaining_seconds() - (self.lease_seconds - self.deadline_seconds)

    @property
    def _attempt_seconds(self) -> float:
        """How long one renewal may take: a second one, on a new connection, must fit before the deadline."""
        return (self.deadline_seconds - self.renew_seconds) * 2 / 3

    def renew_soon(self) -> None:
        """Renew as soon as possible instead of at the next turn."""
        self._wanted.set()

    async def _wait_wanted(self, seconds: float) -> None:
        # A wish that came while a renewal was under way is answered by the next one: it may have
        # begun too early for whoever wishes.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wanted.wait()
        self._wanted.clear()

    async def raise_fence(self, leadership: Leadership, above: int) -> int:
        """See Leadership.raise_fence."""
        # Two callers may ask for the same number; the second finds it done.
        if leadership.fence <= above:
            await self._renew(leadership, above + 1, timeout_seconds=self._attempt_seconds)
        return leadership.fence

    async def _renew(self, leadership: Leadership, at_least: int = 0, *, timeout_seconds: float) -> None:
        """Write the lease with the leadership's fence, or a higher one. Raises Conflict where it is lost."""
        try:
            async with asyncio.timeout(timeout_seconds), self._writing:
                began, fence = await self._write_ours(leadership, at_least)
        except TimeoutError as error:
            message = f"the lease {self.name} could not be written in {timeout_seconds:.2f} s"
            raise Timeout(message) from error
        except (Conflict, NotFound):
            # Before whoever awaits us hears of it: no write may be covered by a lease that is
            # known to be lost.
            leadership.end()
            raise
        leadership.note_renewal(fence, began)

    async def _release(self, leadership: Leadership) -> None:
        """Give the lease back, so that another need not wait for its end."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS), self._writing:
                # One second is the shortest that the API knows; with no holder named it
                # does not count anyway.
                await self._write_ours(leadership, 0, holder="", seconds=1.0)
        # Not given back is no harm: others wait for its end, as after a crash.
        except (KubeError, TimeoutError) as error:
            log.warning("release_failed lease=%s error=%r", self.name, str(error))

    async def _write_ours(
        self,
        leadership: Leadership,
        at_least: int,
        *,
        holder: str | None = None,
        seconds: float | None = None,
    ) -> tuple[float, int]:
        """Write the lease if it is ours; return when the attempt began, and the fence written."""
        fence = max(leadership.fence, at_least)
        while True:
            with contextlib.suppress(Conflict):
                record = self._observation.record
                return await self._write(record, fence, holder=holder, seconds=seconds), fence
            # A conflict alone does not tell that the lease is lost.
            # Somebody annotated the Lease, or our own last write arrived though its answer was lost.
            await self._look()
            record = self._observation.record
            # A higher number than we have ever claimed was written by another process that uses our identity.
            if record is None or record.holder != self.identity or record.transitions > self._highest_claimed:
                raise Conflict(f"the lease {self.name} is now held by {self.holder or 'nobody'}")
            # A lost answer may have raised it already, and a fence never sinks.
            fence = max(fence, record.transitions)

    # Requests

    async def _read(self) -> LeaseRecord | None:
        try:
            body = await self._client.request(
                "GET", self._path, timeout_seconds=self.deadline_seconds, lane=Connection.LEASES
            )
        except NotFound:
            return None
        return parse_lease(body)

    async def _write(
        self,
        record: LeaseRecord | None,
        fence: int,
        *,
        holder: str | None = None,
        seconds: float | None = None,
    ) -> float:
        """Write our claim and return when the attempt began. Raises Conflict, AlreadyExists, NotFound, …"""
        claim = LeaseClaim(
            holder=self.identity if holder is None else holder,
            duration_seconds=self.lease_seconds if seconds is None else seconds,
            transitions=fence,
            written_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        )
        # Before the request, not after it: an answer that is lost must not make our own claim
        # look like a stranger's.
        self._highest_claimed = max(self._highest_claimed, fence)
        began = self.clock()
        body = await self._client.request(
            "PUT" if record else "POST",
            self._path if record else self._collection,
            body=claim.onto(record, self.name),
            timeout_seconds=self.deadline_seconds,
            lane=Connection.LEASES,
        )
        self._observation.see(parse_lease(body), self.clock())
        self._succeeded()
        return began

    def _failed(self, error: KubeError) -> None:
        known, self._error = self._error, error
        # Told once an error and not once an attempt: a server that is away for an hour is one
        # line of the log.
        if known is None or (type(known), known.message) != (type(error), error.message):
            self._on_error(error)

    def _succeeded(self) -> None:
        if self._error is not None:
            self._on_error(None)
        self._error = None

    def _log_error(self, error: KubeError | None) -> None:
        if error is None:
            log.info("lease_recovered lease=%s", self.name)
        else:
            log.warning("lease_failed lease=%s status=%s error=%r", self.name, error.status, error.message)


async def _as_coroutine(lead: Callable[[Leadership], Awaitable[None]], leadership: Leadership) -> None:
    # A task wants a coroutine; an `Awaitable` may be any object.
    await lead(leadership)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task and return when it has ended, even if we are cancelled meanwhile ourselves."""
    cancelled = False
    # Cancelled once. A second cancel() would cut off the clean-up that the first has begun.
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait({task})
        # Remembered and raised at the end: to leave now would leave the task behind while
        # others believe it ended.
        except asyncio.CancelledError:
            cancelled = True
    if not task.cancelled():
        task.exception()  # marks it as seen: asyncio complains of errors that nobody looked at
    if cancelled:
        raise asyncio.CancelledError
