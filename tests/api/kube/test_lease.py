"""Leader election: which process leads, with which fence, and until when."""

from __future__ import annotations

import asyncio
import functools
import json
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from api.kube.client import KubeClient
from api.kube.errors import Conflict, KubeError
from api.kube.leadership import Leadership, LeaseTiming
from api.kube.lease import Elector, LeaseLock
from api.kube.lease_record import LeaseClaim, LeaseRecord, Observation, parse_lease

from .scripted import PATIENCE_SECONDS, Responder, ScriptedServer, cut, refuse

PATH = "/apis/coordination.k8s.io/v1/namespaces/berth-system/leases"

# Renewed often, and so long that no lease is lost if the machine stalls for seconds.
PATIENT = LeaseTiming(duration_seconds=30.0, renew_seconds=0.04, deadline_seconds=20.0)

# So long that no renewal comes by itself within a test.
UNHURRIED = LeaseTiming(duration_seconds=60.0, renew_seconds=40.0, deadline_seconds=50.0)


class LeaseStore:
    """The one Lease of a server, with optimistic concurrency as the real one has it."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.writes = 0
        self.loses_answers = 0
        self._version = 0

    def write(self, lease: dict[str, Any]) -> dict[str, Any]:
        """Store a state of the Lease, as any other writer may at any time."""
        self._version += 1
        self.lease = {**lease, "metadata": {**lease["metadata"], "resourceVersion": str(self._version)}}
        return self.lease

    def change(self, **spec: object) -> None:
        """Change fields of the Lease's spec without the electors' knowledge."""
        assert self.lease is not None
        self.write({**self.lease, "spec": {**self.lease["spec"], **spec}})

    @property
    def spec(self) -> dict[str, Any]:
        """Return the spec as stored."""
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Serve get, create and replace."""
        if request.method == "GET":
            absent = refuse(404, "NotFound")
            return web.json_response(self.lease) if self.lease else await absent(request)
        sent = json.loads(await request.read())
        if refusal := self._refusal(request.method, sent):
            return await refusal(request)
        self.writes += 1
        stored = self.write(sent)
        if self.loses_answers:
            self.loses_answers -= 1
            return await cut(request)
        return web.json_response(stored)

    def _refusal(self, method: str, sent: dict[str, Any]) -> Responder | None:
        if method == "POST":
            return refuse(409, "AlreadyExists") if self.lease else None
        if self.lease is None:
            return refuse(404, "NotFound")
        stale = sent["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]
        return refuse(409, "Conflict") if stale else None


def lease(holder: str = "other", transitions: int = 5, seconds: object = 1, **spec: object) -> dict[str, Any]:
    fields = {"holderIdentity": holder, "leaseTransitions": transitions, "leaseDurationSeconds": seconds}
    return {"metadata": {"name": "berth-main"}, "spec": {**fields, "renewTime": "t0", **spec}}


@pytest.fixture
def store() -> LeaseStore:
    return LeaseStore()


@pytest.fixture
async def server(store: LeaseStore) -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(otherwise=store.respond) as server:
        yield server


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(server.endpoint) as client:
        yield client


def make_elector(
    client: KubeClient, *, identity: str = "me", timing: LeaseTiming = PATIENT, **options: Any
) -> Elector:
    lock = LeaseLock(name="berth-main", namespace="berth-system", identity=identity)
    return Elector(client, lock, timing, **options)


async def no_clean_up() -> None:
    pass


class Candidate:
    """A running elector. `began` and `ended` record each term."""

    def __init__(self, client: KubeClient, identity: str, **options: Any) -> None:
        self.errors: list[KubeError | None] = []
        self.elector = make_elector(client, identity=identity, on_error=self.errors.append, **options)
        self._began: asyncio.Queue[Leadership] = asyncio.Queue()
        self._ended: asyncio.Queue[Leadership] = asyncio.Queue()
        self.is_leading = False
        self.clean_up: Callable[[], Awaitable[None]] = no_clean_up
        self.left_at_end = 0.0
        self._task = asyncio.create_task(self.elector.run(self.lead))

    async def stop(self) -> None:
        """Stop gracefully, as a process does that is asked to end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def lead(self, leadership: Leadership) -> None:
        self.is_leading = True
        self._began.put_nowait(leadership)
        try:
            await asyncio.Event().wait()
        finally:
            self.left_at_end = leadership.remaining_seconds()
            await self.clean_up()
            self.is_leading = False
            self._ended.put_nowait(leadership)

    async def began(self) -> Leadership:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._began.get()

    async def ended(self) -> Leadership:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._ended.get()


@asynccontextmanager
async def campaigning(client: KubeClient, identity: str = "me", **options: Any) -> AsyncIterator[Candidate]:
    candidate = Candidate(client, identity, **options)
    try:
        yield candidate
    finally:
        await candidate.stop()


async def fence_of(value: int) -> int:
    return value


async def two_more_requests(server: ScriptedServer) -> None:
    """Wait for a request that was sent after now: of the next two the first may have been on its way."""
    wanted = len(server.requests) + 2
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(server.requests) < wanted:
            await asyncio.sleep(0.01)


# Taking the lease


async def test_the_first_candidate_makes_the_lease_and_leads(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client, timing=replace(PATIENT, duration_seconds=29.5)) as me:
        leadership = await me.began()

        assert leadership.fence == 1
        assert 0 < leadership.remaining_seconds() <= 29.5
        assert me.elector.holder == "me"
        spec = store.spec
        assert (spec["holderIdentity"], spec["leaseTransitions"], spec["leaseDurationSeconds"]) == (
            "me",
            1,
            30,
        )
        assert spec["renewTime"].endswith("Z")


@pytest.mark.parametrize(
    ("there", "known", "want_fence"),
    [
        pytest.param(None, 41, 42, id="a new lease starts above the highest fence that the store knows"),
        pytest.param(lease("", 5), 41, 42, id="a lease that is lower than the store is raised above it"),
        pytest.param(lease("", 50), 41, 51, id="a lease that is higher counts"),
        pytest.param(lease("", 50), None, 51, id="without a store the lease alone counts"),
        pytest.param(lease("me", 7), None, 8, id="the same identity gets a new number as well"),
        pytest.param(
            {"metadata": {"name": "berth-main"}, "spec": {"leaseTransitions": "x", "holderIdentity": 3}},
            None,
            1,
            id="a lease with fields of wrong types has no holder",
        ),
        pytest.param(
            {"metadata": {"name": "berth-main"}}, None, 1, id="a lease without a spec has no holder"
        ),
    ],
)
async def test_the_fence_rises_at_every_acquisition(
    store: LeaseStore, client: KubeClient, there: dict[str, Any] | None, known: int | None, want_fence: int
) -> None:
    if there:
        store.write(there)
    highest = None if known is None else lambda: fence_of(known)

    async with campaigning(client, highest_known_fence=highest) as me:
        assert (await me.began()).fence == want_fence
        assert store.spec["leaseTransitions"] == want_fence


async def test_a_store_that_gives_no_answer_does_not_keep_us_from_leading(
    client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent() -> int:
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr("api.kube.lease.STORE_SECONDS", 0.01)

    async with campaigning(client, highest_known_fence=silent) as me:
        assert (await me.began()).fence == 1


async def test_a_lease_that_is_not_renewed_is_taken_when_it_has_run_out(
    store: LeaseStore, client: KubeClient
) -> None:
    store.write(lease("other", 5, seconds=1))
    began = time.monotonic()

    async with campaigning(client) as me:
        leadership = await me.began()

    assert time.monotonic() - began >= 1.0
    assert leadership.fence == 6


async def test_a_lease_that_is_renewed_is_left_alone(
    store: LeaseStore, server: ScriptedServer, client: KubeClient
) -> None:
    store.write(lease("other", 5, seconds=1))
    now = 100.0

    async with campaigning(client, clock=lambda: now) as me:
        for beat in range(5):
            await two_more_requests(server)
            now += 0.9
            store.change(renewTime=f"t{beat}")

        assert not me.is_leading
        assert me.elector.holder == "other"


async def test_a_lease_given_back_is_taken_at_once(client: KubeClient) -> None:
    async with campaigning(client, "first") as first:
        assert (await first.began()).fence == 1
        async with campaigning(client, "second") as second:
            await first.stop()

            # Waited for, the lease would last longer than this waits.
            assert (await second.began()).fence == 2


async def test_two_candidates_at_once_make_one_leader(server: ScriptedServer, client: KubeClient) -> None:
    async with campaigning(client, "a") as a, campaigning(client, "b") as b:
        began = [asyncio.create_task(candidate.began()) for candidate in (a, b)]
        _, waiting = await asyncio.wait(began, return_when=asyncio.FIRST_COMPLETED)
        # Each has looked at the lease several times more.
        for _ in range(10):
            await server.next_request()

        assert len(waiting) == 1
        assert a.is_leading != b.is_leading
        for task in waiting:
            task.cancel()


async def test_a_missing_namespace_is_reported_once(server: ScriptedServer, client: KubeClient) -> None:
    async def no_namespace(request: web.Request) -> web.StreamResponse:
        what = "leases" if request.method == "GET" else "namespaces"
        return await refuse(404, "NotFound", f'{what} "berth-system" not found')(request)

    server.otherwise = no_namespace

    async with campaigning(client) as me:
        for _ in range(6):
            await server.next_request()

    reported = [error for error in me.errors if error]
    assert [error.message for error in reported] == ['namespaces "berth-system" not found']


# Losing it


async def test_a_leader_whose_lease_is_taken_stops(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client) as me:
        await me.began()
        store.change(holderIdentity="other", leaseTransitions=2)

        await me.ended()

        assert me.left_at_end == 0, "it is known at once that another may write"
        assert store.spec["holderIdentity"] == "other", "what is another's is not given back"


async def test_a_leader_whose_lease_is_taken_in_its_own_name_stops(
    store: LeaseStore, client: KubeClient
) -> None:
    """Two processes started with one identity by mistake: the number distinguishes them."""
    async with campaigning(client) as me:
        await me.began()
        store.change(leaseTransitions=2)

        await me.ended()
        assert (await me.began()).fence == 3


async def test_a_leader_whose_lease_is_deleted_stops_and_leads_again_under_a_higher_number(
    store: LeaseStore, client: KubeClient
) -> None:
    store.write(lease("", 8))
    async with campaigning(client) as me:
        assert (await me.began()).fence == 9
        store.lease = None

        await me.ended()
        assert (await me.began()).fence == 10


async def test_a_lease_deleted_under_its_holder_is_not_taken_before_its_time(
    store: LeaseStore, client: KubeClient
) -> None:
    store.write(lease("other", 5, seconds=1))
    began = time.monotonic()
    async with campaigning(client) as me:
        while me.elector.holder != "other":
            await asyncio.sleep(0.01)
        store.lease = None

        leadership = await me.began()

    assert time.monotonic() - began >= 1.0
    assert leadership.fence == 6


async def test_a_leader_frozen_past_its_lease_has_no_time_left_when_it_wakes(
    server: ScriptedServer, client: KubeClient
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.api.kube.frozen_leader", server.url, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(4 * PATIENCE_SECONDS):
            assert await process.stdout.readline() == b"leading 1\n"
            process.send_signal(signal.SIGSTOP)
            async with campaigning(client) as me:
                assert (await me.began()).fence == 2
                process.send_signal(signal.SIGCONT)
                word, left = (await process.stdout.readline()).split()
                assert me.is_leading
    finally:
        process.kill()
        await process.wait()

    assert word == b"woken"
    assert float(left) <= 0


# Keeping it


async def test_an_annotated_lease_stays_ours(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client) as me:
        leadership = await me.began()
        assert store.lease is not None
        store.write({**store.lease, "metadata": {**store.lease["metadata"], "annotations": {"a": "b"}}})

        await leadership.wait_renewed_after(time.monotonic())

        assert me.is_leading
        assert store.lease["metadata"]["annotations"] == {"a": "b"}
        assert store.spec["leaseTransitions"] == 1


async def test_a_renewal_whose_answer_is_lost_is_no_loss(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client) as me:
        leadership = await me.began()
        store.loses_answers = 1

        await leadership.wait_renewed_after(time.monotonic())

        assert me.is_leading
        assert leadership.fence == 1


async def test_a_renewal_can_be_waited_for_and_comes_at_once(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client, timing=UNHURRIED) as me:
        leadership = await me.began()
        asked = time.monotonic()

        async with asyncio.timeout(PATIENCE_SECONDS):
            await leadership.wait_renewed_after(asked)

        assert leadership.renewed_after(asked)
        assert not leadership.renewed_after(time.monotonic())
        assert store.writes == 2


async def test_the_fence_is_raised_above_what_the_store_knows(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client) as me:
        leadership = await me.began()

        assert await leadership.raise_fence(30) == 31
        assert (leadership.fence, store.spec["leaseTransitions"]) == (31, 31)

        await leadership.wait_renewed_after(time.monotonic())
        assert (me.is_leading, store.spec["leaseTransitions"]) == (True, 31)


async def test_a_fence_that_is_high_enough_is_not_written_again(
    store: LeaseStore, client: KubeClient
) -> None:
    store.write(lease("", 8))
    async with campaigning(client, timing=UNHURRIED) as me:
        leadership = await me.began()

        assert await leadership.raise_fence(8) == 9
        assert store.writes == 1


async def test_a_fence_is_not_raised_in_anothers_lease(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client, timing=UNHURRIED) as me:
        leadership = await me.began()
        store.change(holderIdentity="other", leaseTransitions=2)

        with pytest.raises(Conflict, match="the lease berth-main is now held by other"):
            await leadership.raise_fence(30)

        assert (leadership.fence, store.spec["leaseTransitions"]) == (1, 2)


async def test_a_fence_raised_with_its_answer_lost_is_kept(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client, timing=UNHURRIED) as me:
        leadership = await me.began()
        store.loses_answers = 1

        with pytest.raises(KubeError):
            await leadership.raise_fence(30)
        await leadership.wait_renewed_after(time.monotonic())

        assert me.is_leading
        assert (leadership.fence, store.spec["leaseTransitions"]) == (31, 31)


# Ending


async def test_when_lead_returns_the_lease_is_given_back(store: LeaseStore, client: KubeClient) -> None:
    async def lead(leadership: Leadership) -> None:
        assert leadership.fence == 1

    await make_elector(client).run(lead)

    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("", 1)


async def test_what_lead_raises_passes_through_and_the_lease_is_given_back(
    store: LeaseStore, client: KubeClient
) -> None:
    async def lead(_: Leadership) -> None:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        await make_elector(client).run(lead)

    assert store.spec["holderIdentity"] == ""


async def test_the_lease_is_renewed_until_lead_has_cleaned_up(store: LeaseStore, client: KubeClient) -> None:
    async with campaigning(client) as me:
        leadership = await me.began()
        wanted = store.writes + 10

        async def until_it_was_renewed_often() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while store.writes < wanted:
                    await asyncio.sleep(0.01)

        me.clean_up = until_it_was_renewed_often
        await me.stop()

    assert not me.is_leading
    assert store.writes > wanted, "and then given back"
    assert (leadership.remaining_seconds(), store.spec["holderIdentity"]) == (0, "")


async def test_a_second_request_to_stop_does_not_leave_lead_behind(client: KubeClient) -> None:
    async with campaigning(client) as me:
        await me.began()
        me.clean_up = functools.partial(asyncio.sleep, 0.05)

        await asyncio.gather(me.stop(), me.stop())

        assert not me.is_leading


def test_a_lease_shorter_than_its_deadline_is_refused() -> None:
    with pytest.raises(ValueError, match="a lease needs 0 < renew < deadline < lease, not 2, 10, 5"):
        LeaseTiming(duration_seconds=5, renew_seconds=2, deadline_seconds=10)


# Values


def test_a_process_that_was_frozen_past_its_lease_has_no_time_left(client: KubeClient) -> None:
    now = 100.0
    elector = make_elector(
        client,
        timing=replace(PATIENT, duration_seconds=2.0, deadline_seconds=0.6),
        clock=lambda: now,
    )
    leadership = Leadership(elector, fence=1, renewed_at=100.0)

    assert leadership.remaining_seconds() == pytest.approx(2.0)
    now = 102.5
    assert leadership.remaining_seconds() == pytest.approx(-0.5)


def record(
    holder: str, *, renewed: str = "t0", seconds: float | None = 4, transitions: int = 1
) -> LeaseRecord:
    return LeaseRecord(
        holder=holder,
        duration_seconds=seconds,
        transitions=transitions,
        version="1",
        decides_without_store=False,
        mark=(holder, renewed, transitions),
        object={},
    )


@pytest.mark.parametrize(
    ("seen", "want_seconds"),
    [
        pytest.param([(0, None)], 0, id="no lease ever seen"),
        pytest.param([(0, record(""))], 0, id="a lease without a holder"),
        pytest.param([(0, record("me"))], 0, id="our own lease"),
        pytest.param([(0, record("other")), (1, record("other"))], 3, id="unchanged for a second"),
        pytest.param(
            [(0, record("other")), (9, record("other"))], 0, id="unchanged for longer than it lasts"
        ),
        pytest.param(
            [(0, record("other")), (3, record("other", renewed="t1"))], 4, id="renewed by whatever clock"
        ),
        pytest.param(
            [(0, record("other", seconds=None))], 15, id="a duration that is none counts as our own"
        ),
        pytest.param([(0, record("other")), (3, record(""))], 0, id="given back"),
        pytest.param([(0, record("other")), (3, None)], 4, id="deleted under its holder"),
        pytest.param([(0, record("")), (3, None)], 0, id="deleted while it had no holder"),
        pytest.param([(0, record("other")), (3, record("third"))], 4, id="taken by a third"),
    ],
)
def test_when_a_lease_may_be_taken(seen: list[tuple[float, LeaseRecord | None]], want_seconds: float) -> None:
    observation = Observation("me", default_seconds=15)
    for now, what in seen:
        observation.see(what, now)

    assert observation.seconds_until_free(seen[-1][0]) == want_seconds


def test_the_highest_number_ever_seen_outlives_the_lease() -> None:
    observation = Observation("me", default_seconds=15)
    observation.see(record("other", transitions=7), 0)
    observation.see(None, 1)
    observation.see(record("other", transitions=1), 2)

    assert observation.highest_transitions == 7


def test_a_claim_changes_nothing_but_its_own_fields() -> None:
    there = json.dumps({**lease("other", 5, strategy="Oldest", acquireTime="a0"), "x": 1}).encode()
    claim = LeaseClaim(holder="me", duration_seconds=4.0, transitions=6, written_at="now")

    written = json.loads(claim.onto(parse_lease(there), "berth-main"))

    assert written["metadata"] == {"name": "berth-main"}
    assert written["x"] == 1
    assert written["spec"] == {
        "holderIdentity": "me",
        "leaseTransitions": 6,
        "leaseDurationSeconds": 4,
        "renewTime": "now",
        "acquireTime": "now",
        "strategy": "Oldest",
    }


def test_a_renewal_keeps_the_time_of_acquisition() -> None:
    there = json.dumps(lease("me", 6, acquireTime="a0")).encode()
    claim = LeaseClaim(holder="me", duration_seconds=4.0, transitions=6, written_at="now")

    assert json.loads(claim.onto(parse_lease(there), "berth-main"))["spec"]["acquireTime"] == "a0"


def test_a_lease_that_is_no_json_is_the_servers_fault() -> None:
    with pytest.raises(KubeError, match="the answer is no Lease"):
        parse_lease(b"<html>")
