"""Which wait reason is reported, when, and in which order."""

from __future__ import annotations

from admission.controller.loop.pending_messages import (
    BURST,
    REASONS_PER_SECOND,
    REPORT_AFTER_SECONDS,
    PendingMessages,
)
from admission.decisions.decision import Evict, Wait
from api.kube.report_budget import WriteLoad
from api.reasons import EvictionReason, PendingReason
from api.workload import WorkloadKey
from tests.admission.controller.fakes import FakeClock


def wait(name: str, message: str = "no room") -> Wait:
    """Return why a Workload waits."""
    key = WorkloadKey("team", name)
    return Wait(key=key, uid=name, reason=PendingReason.WAITING_FOR_QUOTA, message=message)


class Stage:
    """The reasons of one leader, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.load = WriteLoad()
        self.messages = PendingMessages(self.clock, self.load)

    def collect(self, *names: str, are_tried: bool = True) -> None:
        """Let these Workloads wait."""
        self.messages.collect([wait(name) for name in names], are_tried=are_tried)

    def reported(self, after: float = REPORT_AFTER_SECONDS) -> list[str]:
        """Return the Workloads whose reasons are written `after` seconds from now, in that order."""
        self.clock.at += after
        names = []
        while (decision := self.messages.take_due()) is not None:
            self.messages.note_written()
            names.append(decision.key.name)
        return names


def test_a_reason_is_reported_once_it_has_held_for_a_moment() -> None:
    stage = Stage()
    stage.collect("w")

    assert stage.messages.seconds_to_next() == REPORT_AFTER_SECONDS
    assert stage.reported(0.9) == []
    assert stage.reported(0.1) == ["w"]
    assert stage.messages.seconds_to_next() is None


def test_an_admitted_workload_is_not_reported() -> None:
    stage = Stage()
    names = [f"w{number}" for number in range(int(BURST) + 2)]
    stage.collect(*names)
    stage.reported()
    late = WorkloadKey("team", names[-1])

    # An eviction takes the reason back as an admission does.
    evicted = Evict(
        key=late, uid="u", resource_version="1", reason=EvictionReason.PREEMPTED, message="preempted"
    )
    stage.messages.collect([evicted])

    assert stage.reported() == [names[-2]]


def test_the_latest_reason_is_reported_when_the_first_was_due() -> None:
    stage = Stage()
    stage.collect("w")
    stage.clock.at += 0.75
    stage.messages.collect([wait("w", "another message")])
    stage.clock.at += 0.25

    decision = stage.messages.take_due()

    assert decision is not None
    assert decision.message == "another message"


def test_tried_workloads_come_before_those_behind_them() -> None:
    stage = Stage()
    stage.collect("behind", "then-tried", are_tried=False)
    stage.collect("head")
    stage.collect("then-tried")

    assert stage.reported() == ["then-tried", "head", "behind"]


def test_a_workload_that_a_cycle_tries_while_its_reason_is_put_off_moves_forward() -> None:
    stage = Stage()
    stage.load.is_behind = True
    stage.collect("a", "b", "c", are_tried=False)
    assert stage.reported() == ["a"]

    stage.collect("c")

    assert [stage.reported() for _ in range(2)] == [["c"], ["b"]]


def test_a_large_submission_is_reported_in_a_burst_and_then_at_the_rate() -> None:
    stage = Stage()
    stage.collect(*(f"w{number}" for number in range(500)))

    assert len(stage.reported()) == BURST
    assert stage.messages.seconds_to_next() == 1 / REASONS_PER_SECOND
    assert len(stage.reported(5.0)) == 5 * REASONS_PER_SECOND


def test_reasons_make_way_for_decisions_and_none_is_lost() -> None:
    stage = Stage()
    stage.collect("a", "b", "c", "d", "e")
    stage.load.is_behind = True

    assert [stage.reported() for _ in range(2)] == [["a"], ["b"]]
    assert stage.messages.seconds_to_next() == 1.0

    stage.load.is_behind = False
    assert stage.reported() == ["c", "d", "e"]


def test_a_reason_that_need_not_be_written_costs_nothing() -> None:
    stage = Stage()
    stage.load.is_behind = True
    stage.collect("a", "b")
    stage.clock.at += REPORT_AFTER_SECONDS

    assert stage.messages.take_due() == wait("a")
    assert stage.messages.take_due() == wait("b")
