"""What a term writes to the store: each confirmation and release once, and in order, whatever fails."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from admission.controller.runtime.failpoints import Failpoint
from admission.controller.runtime.runtime import Runtime
from admission.controller.writer.term_reservations import TermIdentity, TermReservations
from admission.decisions.decision import DecisionId, Plan, Wait
from api.reasons import PendingReason
from api.workload import WorkloadKey
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


def make_reservations(store: InMemoryReservationStore) -> TermReservations:
    """Return the reservations of a term with nothing planned."""

    async def flush_plan() -> None:
        return None

    runtime = Runtime(clock=FakeClock(), failpoint=Failpoint(None))
    term = TermIdentity(identity="me", fence=FENCE)
    return TermReservations(store, runtime, term, flush_plan=flush_plan)


async def test_what_became_of_reservations_is_written_with_one_call_each() -> None:
    store = RecordingStore()
    reservations = make_reservations(store)
    for name in "ab":
        reservations.confirm(decision(name))
    reservations.release(decision("c"))

    await reservations.flush()
    await reservations.flush()

    assert store.calls == [("confirm", ["a", "b"]), ("release", ["c"])]


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


async def test_a_wait_is_logged_once_it_was_reported_and_other_decisions_at_once() -> None:
    store = InMemoryReservationStore()
    await store.seed_fence(FENCE)
    reservations = make_reservations(store)
    key = WorkloadKey("team", "w")
    wait = Wait(key=key, uid="u", reason=PendingReason.WAITING_FOR_QUOTA, message="full")
    plan = Plan(key=key, uid="u", planned=None)

    await reservations.reserve((), (wait, plan))
    assert [entry.what for entry in await store.decisions(limit=9)] == ["Plan"]

    reservations.note_reported(wait)
    await reservations.flush()
    assert sorted(entry.what for entry in await store.decisions(limit=9)) == ["Plan", "Wait"]
