"""Leader election in virtual time: slow servers, late answers, the end of a lease, and clocks that differ."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from api.kube.errors import Forbidden, KubeError, ServerError, TooManyRequests, Unreachable
from api.kube.history import ClusterRestored
from api.kube.leadership import Leadership, LeaseTiming
from api.kube.lease import UNSETTLED_SECONDS, Elector, LeaseLock
from api.kube.lease_record import WITHOUT_STORE
from tests.admission.controller.virtualtime import run_virtually

from .leases import LeaseLine, LeaseTable

USUAL = LeaseTiming()
# A look at the lease comes after this long at most: the interval and its random part.
LOOK_SECONDS = 1.1 * USUAL.renew_seconds


class Candidate:
    """A running elector with the usual times. `left_at_end` holds what was left of the lease at each end."""

    def __init__(self, table: LeaseTable, identity: str, *, clock_ahead_seconds: float = 0.0) -> None:
        self.line = LeaseLine(table)
        self.terms: list[Leadership] = []
        self.errors: list[KubeError | None] = []
        self.left_at_end: list[float] = []
        self.is_leading = False
        # What Redis knows.
        self.highest_known = 0
        self._moved = asyncio.Event()
        loop = asyncio.get_running_loop()
        # How far the clock of the lease is ahead of the loop's.
        self.ahead_seconds = clock_ahead_seconds
        lock = LeaseLock(name="berth-main", namespace="berth-system", identity=identity)
        elector = Elector(
            self.line.client,
            lock,
            USUAL,
            highest_known_fence=self._highest_known,
            on_error=self.errors.append,
            clock=lambda: loop.time() + self.ahead_seconds,
        )
        self.task = asyncio.create_task(elector.run(self._lead))

    async def _highest_known(self) -> int:
        return self.highest_known

    async def _lead(self, leadership: Leadership) -> None:
        self.terms.append(leadership)
        self.is_leading = True
        self._moved.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.left_at_end.append(leadership.remaining_seconds())
            self.is_leading = False
            self._moved.set()

    async def began(self) -> Leadership:
        """Return its present term, once it leads."""
        await self._wait(lambda: self.is_leading)
        return self.terms[-1]

    async def ended(self) -> None:
        """Return once it does not lead."""
        await self._wait(lambda: not self.is_leading)

    async def _wait(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(600.0):
            while not is_so():
                self._moved.clear()
                await self._moved.wait()

    async def stop(self) -> None:
        """Stop as a process does that is asked to end."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def die(self) -> None:
        """End without a word."""
        self.line.fault = lambda: Unreachable("dead")
        await self.stop()


@asynccontextmanager
async def campaigning(
    table: LeaseTable, identity: str = "me", ahead: float = 0.0
) -> AsyncIterator[Candidate]:
    candidate = Candidate(table, identity, clock_ahead_seconds=ahead)
    try:
        yield candidate
    finally:
        await candidate.stop()


# A cluster that is restored from a backup


@pytest.mark.parametrize("is_leading", [True, False], ids=["that leads", "that waits for another's lease"])
def test_a_candidate_ends_when_the_lease_returns_to_an_earlier_state(is_leading: bool) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as leader, campaigning(table, "other") as other:
            one = leader if is_leading else other
            await leader.began()
            backup = table.lease
            assert backup is not None
            await asyncio.sleep(60.0)
            table.restore(backup)

            done, _ = await asyncio.wait({one.task}, timeout=2 * LOOK_SECONDS)

            assert done, "it goes on with what it knew before"
            assert isinstance(one.task.exception(), ClusterRestored)
            assert not one.is_leading

    run_virtually(scenario())


# A machine that is suspended


def test_a_leader_whose_machine_was_suspended_past_its_lease_writes_nothing() -> None:
    """Timers have not noticed the suspend when the machine wakes up; the clock of the lease has."""

    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            leadership = await me.began()
            await asyncio.sleep(60.0)
            assert leadership.write_seconds() > 0

            me.ahead_seconds += USUAL.duration_seconds

            assert leadership.write_seconds() == 0
            await asyncio.sleep(LOOK_SECONDS)
            assert len(me.left_at_end) == 1, "it has not stopped leading"

    run_virtually(scenario())


# Slow servers


@pytest.mark.parametrize("seconds", [0.2, 1.0, 2.0, 3.0])
def test_a_lease_is_won_and_kept_though_every_answer_takes(seconds: float) -> None:
    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            me.line.seconds = seconds
            leadership = await me.began()

            for _ in range(600):
                await asyncio.sleep(1.0)
                assert leadership.write_seconds() > seconds, "a write would not be answered in time"

            assert me.terms == [leadership]

    run_virtually(scenario())


def test_a_lease_is_kept_though_half_of_the_requests_are_refused_with_429() -> None:
    chance = random.Random(3)

    def refuse_half() -> KubeError | None:
        busy = TooManyRequests("later", status=429, retry_after_seconds=10.0)
        return busy if chance.random() < 0.5 else None

    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            me.line.fault = refuse_half
            leadership = await me.began()

            await asyncio.sleep(600.0)

            assert me.terms == [leadership]

    run_virtually(scenario())


@pytest.mark.parametrize("seconds", [3.0, 6.0, 9.0, 12.0, 14.0, None])
def test_a_leader_goes_on_though_one_renewal_is_answered_after(seconds: float | None) -> None:
    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            leadership = await me.began()
            me.line.late.append(seconds)

            await asyncio.sleep(60.0)

            assert me.terms == [leadership]
            assert leadership.remaining_seconds() > USUAL.deadline_seconds

    run_virtually(scenario())


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param((6.5,) * 60, id="every one takes longer than its second attempt waits"),
        pytest.param((3.7, 8.0, 8.0), id="a slow one is followed by two that are slower"),
    ],
)
def test_a_renewal_that_is_answered_within_the_lease_is_not_cut_off(seconds: tuple[float, ...]) -> None:
    """A second request would meet a conflict with the first, which was stored, and be as slow."""

    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            leadership = await me.began()
            me.line.late.extend(seconds)

            await asyncio.sleep(sum(seconds) + 60.0)

            assert me.terms == [leadership]
            assert not me.line.late

    run_virtually(scenario())


# Losing it


def _break(line: LeaseLine) -> None:
    line.fault = lambda: Unreachable("cut")


def _lose_store(line: LeaseLine) -> None:
    line.fault = lambda: ServerError("no store", status=500)


def _take_rights(line: LeaseLine) -> None:
    line.fault = lambda: Forbidden("no", status=403)


def _silence(line: LeaseLine) -> None:
    line.is_silent = True


@pytest.mark.parametrize(
    "befall",
    [
        pytest.param(_break, id="a server that breaks every connection"),
        pytest.param(_silence, id="a server that goes silent"),
        pytest.param(_lose_store, id="a server that lost its store"),
        pytest.param(_take_rights, id="rights taken away"),
    ],
)
def test_a_leader_that_cannot_renew_begins_no_write_and_stops_before_another_leads(
    befall: Callable[[LeaseLine], None],
) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            leader = await me.began()
            async with campaigning(table, "other") as other:
                befall(me.line)
                await asyncio.sleep(USUAL.deadline_seconds - 0.5)
                assert 4.0 < leader.write_seconds() < leader.remaining_seconds()
                await asyncio.sleep(1.0)
                assert leader.write_seconds() == 0.0
                assert me.is_leading

                await me.ended()

                assert me.left_at_end == [pytest.approx(USUAL.stop_seconds, abs=0.01)]
                assert not other.is_leading
                assert (await other.began()).fence == 2
                assert leader.remaining_seconds() == 0.0

    run_virtually(scenario())


def test_after_a_lost_server_the_same_candidate_leads_under_a_higher_number() -> None:
    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            first = await me.began()
            _break(me.line)
            await me.ended()
            me.line.fault = lambda: None

            assert (await me.began()).fence > first.fence
            assert me.errors[-1] is None, "the recovery is reported"

    run_virtually(scenario())


# Winning it back


async def _lose(me: Candidate) -> None:
    """Let the candidate lose its lease at a server that does not answer it, and reach the server again."""
    me.line.is_silent = True
    await me.ended()
    me.line.is_silent = False


async def _nobody_leads(_: LeaseTable) -> None:
    """Let nothing happen meanwhile."""


async def _another_leads(table: LeaseTable) -> None:
    async with campaigning(table, "other") as other:
        # Long enough to know that no write of another can be stored any more.
        (await other.began()).leaves_unanswered = False


async def _another_dies_leading(table: LeaseTable) -> None:
    async with campaigning(table, "other") as other:
        await other.began()
        await other.die()


async def _it_is_deleted(table: LeaseTable) -> None:
    table.lease = None


async def _it_is_annotated(table: LeaseTable) -> None:
    assert table.lease is not None
    changed = {**table.lease, "metadata": {**table.lease["metadata"], "annotations": {"seen": "yes"}}}
    table.serve("PUT", msgspec.json.encode(changed))


@pytest.mark.parametrize(
    ("meanwhile", "known", "want"),
    [
        pytest.param(_nobody_leads, 0, True, id="where no process has led meanwhile"),
        pytest.param(_it_is_annotated, 1, True, id="where its Lease was annotated meanwhile"),
        pytest.param(_another_leads, 0, False, id="not where another has led and given it back"),
        pytest.param(_another_dies_leading, 0, False, id="not where another has led and died"),
        pytest.param(_it_is_deleted, 0, False, id="not where its Lease was deleted"),
        pytest.param(_nobody_leads, 2, False, id="not where Redis knows a leader that the Lease does not"),
    ],
)
def test_a_term_continues_the_last_one(
    meanwhile: Callable[[LeaseTable], Awaitable[None]], known: int, want: bool
) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            assert not (await me.began()).continues
            me.line.is_silent = True
            await me.ended()
            await meanwhile(table)
            me.highest_known, me.line.is_silent = known, False

            assert (await me.began()).continues is want

            # And the next one, as nothing happens to it.
            await _lose(me)
            assert (await me.began()).continues

    run_virtually(scenario())


def test_a_term_does_not_continue_the_last_one_though_the_lease_found_is_a_late_claim_of_its_own() -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            await me.began()
            me.line.is_silent = True
            await me.ended()
            await _another_leads(table)
            # The look is answered, and the claim is stored without an answer.
            me.line.late.extend([0.0, None])
            me.line.is_silent = False

            leadership = await me.began()

            assert leadership.fence == 4
            assert not leadership.continues

    run_virtually(scenario())


def test_a_term_continues_the_last_one_though_its_first_claim_was_stored_without_an_answer() -> None:
    async def scenario() -> None:
        async with campaigning(LeaseTable()) as me:
            await me.began()
            me.line.is_silent = True
            await me.ended()
            me.line.late.extend([0.0, None])
            me.line.is_silent = False

            leadership = await me.began()

            assert leadership.fence == 3
            assert leadership.continues

    run_virtually(scenario())


# Handing over


@pytest.mark.parametrize(
    ("seconds", "want_seconds"),
    [
        pytest.param(0.1, LOOK_SECONDS + 0.4, id="at once"),
        # A renewal under way, the release, a look, and the acquisition.
        pytest.param(3.0, LOOK_SECONDS + 4 * 3.0, id="as soon as a slow server can"),
    ],
)
def test_a_leader_that_is_asked_to_stop_is_replaced(seconds: float, want_seconds: float) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        loop = asyncio.get_running_loop()
        async with campaigning(table, "first") as first:
            first.line.seconds = seconds
            await first.began()
            async with campaigning(table, "second") as second:
                second.line.seconds = seconds
                await asyncio.sleep(60.0)
                asked_at = loop.time()

                await first.stop()
                await second.began()

                assert loop.time() - asked_at <= want_seconds

    run_virtually(scenario())


@pytest.mark.parametrize("ahead_seconds", [-3600.0, -1.0, 0.0, 1.0, 3600.0])
def test_a_leader_that_dies_is_replaced_within_its_lease_and_never_earlier_though_clocks_differ_by(
    ahead_seconds: float,
) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        loop = asyncio.get_running_loop()
        async with campaigning(table, "first") as first:
            leader = await first.began()
            async with campaigning(table, "second", ahead_seconds) as second:
                await asyncio.sleep(60.0)
                assert not second.is_leading
                # As it would find it, if it were only frozen.
                ends_at = loop.time() + leader.remaining_seconds()

                await first.die()
                await second.began()

                # The last renewal is seen at a look, and the lease counts from there; the look at its end has
                # a random part too.
                random_seconds = LOOK_SECONDS - USUAL.renew_seconds
                assert ends_at <= loop.time() <= ends_at + LOOK_SECONDS + random_seconds

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("meanwhile", "want_seconds"),
    [
        pytest.param(_nobody_leads, 0.0, id="there was no leader"),
        pytest.param(_another_leads, 0.0, id="it gave its lease back"),
        pytest.param(_another_dies_leading, UNSETTLED_SECONDS, id="it died"),
    ],
)
def test_a_write_of_the_last_leader_may_still_be_stored_unless(
    meanwhile: Callable[[LeaseTable], Awaitable[None]], want_seconds: float
) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        await meanwhile(table)
        async with campaigning(table) as me:
            leadership = await me.began()

            left = leadership.settled_at - asyncio.get_running_loop().time()
            assert max(0.0, left) == pytest.approx(want_seconds, abs=0.1)
            assert leadership.leaves_unanswered is (want_seconds > 0)

    run_virtually(scenario())


def test_the_holder_of_a_lease_that_was_deleted_is_not_known() -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            await me.began()
            me.line.is_silent = True
            await me.ended()
            table.lease = None
            me.line.is_silent = False

            assert (await me.began()).leaves_unanswered

    run_virtually(scenario())


@pytest.mark.parametrize("leaves", [True, False])
def test_a_lease_runs_out_where_a_write_has_no_answer(leaves: bool) -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            (await me.began()).leaves_unanswered = leaves
        assert table.lease is not None

        assert bool(table.lease["spec"]["holderIdentity"]) is leaves

    run_virtually(scenario())


def _note_of(table: LeaseTable) -> object:
    assert table.lease is not None
    return table.lease["metadata"].get("annotations", {}).get(WITHOUT_STORE)


def test_the_lease_tells_the_next_leader_that_its_holder_decides_without_the_store() -> None:
    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            mine = await me.began()
            mine.note_store(is_complete=False)
            assert not mine.decides_without_store
            await asyncio.sleep(0.1)
            assert mine.decides_without_store
            assert _note_of(table) == "true"
            me.line.is_silent = True
            await me.ended()
            async with campaigning(table, "other") as other:
                others = await other.began()
                assert others.decides_without_store

                others.note_store(is_complete=True)
                await asyncio.sleep(LeaseTiming().renew_seconds + 0.1)

                assert not others.decides_without_store
                assert _note_of(table) is None

    run_virtually(scenario())


def test_a_note_that_is_about_to_be_taken_back_does_not_count() -> None:
    """Its removal may be stored at any moment of the request, which began before the store was lost again."""

    async def scenario() -> None:
        table = LeaseTable()
        async with campaigning(table) as me:
            mine = await me.began()
            mine.note_store(is_complete=False)
            await asyncio.sleep(0.1)
            mine.note_store(is_complete=True)
            assert not mine.take_note()

            mine.note_store(is_complete=False)

            assert not mine.decides_without_store
            await asyncio.sleep(0.1)
            assert mine.decides_without_store
            assert _note_of(table) == "true"

    run_virtually(scenario())
