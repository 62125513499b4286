"""Shadow mode: what was decided is believed for a while, then taken back; nothing is written."""

from __future__ import annotations

from admission.controller.writer.acting import WaitReport
from admission.controller.writer.observe_mode import ASSUMED_SECONDS, ObserveMode
from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.decision import DecisionId, Evict, Wait
from api.reasons import EvictionReason, PendingReason
from api.workload import WorkloadKey
from tests.admission.controller.fakes import FakeClock, make_write


def evict(name: str) -> Evict:
    """Return a decision that takes a Workload's quota."""
    key = WorkloadKey("team", name)
    return Evict(
        key=key, uid=name, resource_version="1", reason=EvictionReason.PREEMPTED, message="is preempted"
    )


def wait(name: str) -> Wait:
    """Return why a Workload waits."""
    key, reason = WorkloadKey("team", name), PendingReason.WAITING_FOR_QUOTA
    return Wait(key=key, uid=name, reason=reason, message="no room")


async def test_an_observed_decision_is_taken_back_after_its_time() -> None:
    clock, forgotten = FakeClock(), list[DecisionId]()
    observer = ObserveMode(clock, forgotten.append)
    await observer.carry_out([evict("early")])
    clock.at += ASSUMED_SECONDS / 2
    await observer.carry_out([evict("late")])
    await observer.flush()
    assert (forgotten, observer.unconfirmed) == ([], 2)

    clock.at += ASSUMED_SECONDS / 2
    await observer.flush()

    assert ([one.key.name for one in forgotten], observer.unconfirmed) == (["early"], 1)


async def test_it_is_known_when_the_next_decision_is_taken_back() -> None:
    clock = FakeClock()
    observer = ObserveMode(clock, lambda _: None)
    assert observer.seconds_to_flush() is None
    await observer.carry_out([evict("early")])
    clock.at += 1.0
    await observer.carry_out([evict("late")])

    assert observer.seconds_to_flush() == ASSUMED_SECONDS - 1.0


async def test_a_wait_changes_nothing_that_would_be_taken_back() -> None:
    observer = ObserveMode(FakeClock(), lambda _: None)

    await observer.carry_out([wait("w")])

    assert observer.unconfirmed == 0
    assert observer.writer.report_wait(wait("w")) is WaitReport.NOT_NEEDED


async def test_nothing_is_ever_under_way() -> None:
    observer = ObserveMode(FakeClock(), lambda _: None)

    observer.writer.submit(make_write("w"))

    assert not observer.writer.is_busy(ObjectTarget("Workload", "team", "w"))
    assert not observer.is_paused
