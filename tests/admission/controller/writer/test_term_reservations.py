"""What a term writes to the store: each confirmation and release once, and in order, whatever fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.term_reservations import COLLECT_SECONDS, TermIdentity, TermReservations
from admission.decisions.api_writes import Purpose, Verb, Write
from admission.decisions.decision import Admit, DecisionId, Plan, Wait
from api.reasons import PendingReason
from api.workload import Admission, WorkloadKey
from queues.reservations.memory_reservations import InMemoryReservationStore
from queues.reservations.reservations import ReservationId, StoreUnreachable
from tests.admission.controller.fakes import FakeClock

FENCE = 3


class RecordingStore(InMemoryReservationStore):
    """Records the calls that change reservations; those in `fails` are not answered."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[str]]] = []
        self.fails: set[str] = set()

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Record the call."""
        assert fence == FENCE
        self._record("confirm", ids)

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Record the call."""
        assert fence == FENCE
        self._record("release", ids)

    def _record(self, call: str, ids: Sequence[ReservationId]) -> None:
        self.calls.append((call, [key.name for key, _ in ids]))
        if call in self.fails:
            raise StoreUnreachable("no answer")


def decision(name: str) -> DecisionId:
    """Return the identity of a decision on a Workload."""
    return DecisionId(WorkloadKey("team", name), f"uid-{name}", "7")


def make_reservations(store: InMemoryReservationStore, *, clock: FakeClock | None = None) -> TermReservations:
    """Return the reservations of a term with nothing planned."""

    async def flush_plan() -> None:
        return None

    runtime = Runtime(clock=clock or FakeClock(), failpoint=Failpoint(None))
    term = TermIdentity(identity="me", fence=FENCE)
    return TermReservations(store, runtime, term, flush_plan=flush_plan)


def admission(name: str) -> tuple[Admit, Write]:
    """Return the decision that a Workload is admitted, and its write."""
    key = WorkloadKey("team", name)
    admitted = Admission(cluster_queue="cq", pod_sets=())
    decided = Admit(key=key, uid=f"uid-{name}", resource_version="7", admission=admitted, is_admitted=True)
    write = Write(
        verb=Verb.REPLACE, kind="Workload", namespace="team", name=name, body=b"{}", purpose=Purpose.ADMIT
    )
    return decided, write


async def test_what_became_of_reservations_is_written_with_one_call_each() -> None:
    store = RecordingStore()
    reservations = make_reservations(store)
    for name in "ab":
        reservations.confirm(decision(name))
    reservations.release(decision("c"))

    await reservations.flush()
    await reservations.flush()

    assert store.calls == [("confirm", ["a", "b"]), ("release", ["c"])]


async def test_confirmations_are_collected_until_they_are_due() -> None:
    store, clock = RecordingStore(), FakeClock()
    reservations = make_reservations(store, clock=clock)
    assert reservations.seconds_to_flush() is None
    reservations.confirm(decision("a"))
    clock.at += COLLECT_SECONDS / 2
    reservations.confirm(decision("b"))
    await reservations.flush()
    assert store.calls == []
    assert reservations.seconds_to_flush() == COLLECT_SECONDS / 2

    clock.at += COLLECT_SECONDS / 2
    await reservations.flush()

    assert store.calls == [("confirm", ["a", "b"])]
    assert reservations.seconds_to_flush() is None


async def test_a_confirmation_that_the_store_did_not_take_is_tried_again_after_a_while() -> None:
    store, clock = RecordingStore(), FakeClock()
    reservations = make_reservations(store, clock=clock)
    reservations.confirm(decision("a"))
    clock.at += COLLECT_SECONDS
    store.fails = {"confirm"}
    with pytest.raises(StoreUnreachable):
        await reservations.flush()

    assert reservations.seconds_to_flush() == COLLECT_SECONDS


async def test_a_workload_is_confirmed_before_it_is_reserved_again() -> None:
    store = RecordingStore()
    await store.seed_fence(FENCE)
    reservations = make_reservations(store)
    reservations.confirm(decision("w"))
    reservations.confirm(decision("x"))

    await reservations.reserve([admission("v")], ())
    assert store.calls == []
    await reservations.reserve([admission("w")], ())

    assert store.calls == [("confirm", ["w", "x"])]


async def test_what_the_store_did_not_take_is_written_again_before_what_followed() -> None:
    store = RecordingStore()
    reservations = make_reservations(store)
    reservations.confirm(decision("a"))
    reservations.release(decision("b"))
    store.fails = {"release"}
    with pytest.raises(StoreUnreachable):
        await reservations.flush()
    store.fails = set()
    store.calls.clear()
    reservations.release(decision("c"))

    await reservations.flush()

    assert store.calls == [("confirm", ["a"]), ("release", ["b", "c"])]


async def test_a_release_that_the_store_did_not_take_comes_before_the_workload_is_reserved_again() -> None:
    store = RecordingStore()
    await store.seed_fence(FENCE)
    reservations = make_reservations(store)
    reservations.release(decision("w"))
    store.fails = {"release"}
    with pytest.raises(StoreUnreachable):
        await reservations.flush()
    store.fails = set()
    store.calls.clear()

    await reservations.reserve([admission("w")], ())

    assert store.calls == [("release", ["w"])]


async def test_a_wait_is_logged_once_it_was_reported_and_other_decisions_at_once() -> None:
    store, clock = InMemoryReservationStore(), FakeClock()
    await store.seed_fence(FENCE)
    reservations = make_reservations(store, clock=clock)
    key = WorkloadKey("team", "w")
    wait = Wait(key=key, uid="u", reason=PendingReason.WAITING_FOR_QUOTA, message="full")
    plan = Plan(key=key, uid="u", planned=None)

    await reservations.reserve((), (wait, plan))
    assert [entry.what for entry in await store.decisions(limit=9)] == ["Plan"]

    reservations.note_reported(wait)
    clock.at += COLLECT_SECONDS
    await reservations.flush()
    assert sorted(entry.what for entry in await store.decisions(limit=9)) == ["Plan", "Wait"]
