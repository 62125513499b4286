"""A store that has lost what a dead leader was about to write: the next leader waits until it cannot happen.

One node's failure takes the leader and Redis together. The leader's last write has been received by the API
server, which answers within a minute; Redis is back without its last second, or empty, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from admission.decisions.api_writes import Purpose, Write
from queues.reservations.reservations import QuotaReservation, StoreUnreachable
from tests.admission.controller.stage import Stage
from tests.admission.controller.virtualtime import end

# How long the API server takes for the write that hangs.
HANGS_SECONDS = 50.0


def is_admission(write: Write) -> bool:
    return write.purpose is Purpose.ADMIT


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and close its loop."""
    made = Stage()
    yield made
    end(made.loop)


def lose_the_last_second(stage: Stage) -> None:
    """Restart the store without the reservation that it had acknowledged."""
    stage.store.reservations.clear()
    stage.store.present_life += "'"


def lose_everything(stage: Stage) -> None:
    """Empty the store."""
    stage.store.flush()


def fail_with_a_hanging_write(stage: Stage, loses: Callable[[Stage], None]) -> None:
    """Let a leader reserve for the Workload `hanging`, and die with its store before its write is stored."""
    leader = stage.lead()
    stage.wait(1.0)
    leader.line.faults.meets = is_admission
    leader.line.faults.late_seconds.append(HANGS_SECONDS)
    stage.submit("hanging")
    stage.wait(0.5)
    assert [key.name for key, _ in stage.store.reservations] == ["hanging"]
    leader.crash()
    loses(stage)
    stage.submit("other", priority=1)


@pytest.mark.parametrize(
    "loses",
    [
        pytest.param(lose_the_last_second, id="its last second"),
        pytest.param(lose_everything, id="everything"),
    ],
)
def test_quota_is_given_once_when_redis_loses(loses: Callable[[Stage], None], stage: Stage) -> None:
    """12 of 6 were admitted: the next leader knew nothing of the write that was still to be stored."""
    fail_with_a_hanging_write(stage, loses)

    stage.lead()
    stage.wait(HANGS_SECONDS - 5.0)
    assert stage.admitted() == []

    stage.wait(60.0)
    assert stage.admitted() == ["hanging"]


def test_quota_is_given_once_while_redis_is_away(stage: Stage) -> None:
    fail_with_a_hanging_write(stage, lambda _: None)
    successor = stage.start()
    successor.store.is_away = True

    successor.lead(2)
    stage.wait(120.0)

    assert stage.admitted() == ["hanging"]


def test_a_successor_decides_at_once_when_redis_has_kept_its_life(stage: Stage) -> None:
    fail_with_a_hanging_write(stage, lambda _: None)

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["hanging"]


def test_a_successor_decides_as_soon_as_redis_is_back_with_all_that_it_held(stage: Stage) -> None:
    fail_with_a_hanging_write(stage, lambda _: None)
    successor = stage.start()
    successor.store.is_away = True
    successor.lead(2)
    stage.wait(10.0)
    assert stage.admitted() == []

    successor.store.is_away = False
    stage.wait(10.0)

    assert stage.admitted() == ["hanging"]


def test_a_leader_vouches_for_a_store_that_restarted_under_it(stage: Stage) -> None:
    leader = stage.lead()
    stage.wait(1.0)
    stage.store.present_life += "'"
    stage.wait(10.0)
    leader.crash()
    stage.submit("next")

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["next"]


def test_a_successor_does_not_wait_for_a_leader_that_gave_its_lease_back(stage: Stage) -> None:
    leader = stage.lead()
    stage.wait(1.0)
    leader.stop_leading()
    lose_everything(stage)
    stage.submit("next")

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["next"]


def test_a_leader_that_stops_while_it_waits_hands_the_wait_on(stage: Stage) -> None:
    fail_with_a_hanging_write(stage, lose_the_last_second)
    second = stage.lead()
    stage.wait(5.0)
    second.stop_leading()

    stage.lead()
    stage.wait(HANGS_SECONDS - 10.0)
    assert stage.admitted() == []

    stage.wait(90.0)
    assert stage.admitted() == ["hanging"]


def test_a_gap_in_the_fences_is_a_leader_that_the_store_knows_nothing_of(stage: Stage) -> None:
    first = stage.lead()
    stage.wait(1.0)
    first.crash()
    second = stage.start()
    second.store.is_away = True
    second.lead(2)
    stage.wait(70.0)
    second.line.faults.meets = is_admission
    second.line.faults.late_seconds.append(HANGS_SECONDS)
    stage.submit("hanging")
    stage.wait(0.5)
    second.crash()
    stage.submit("other", priority=1)

    stage.lead()
    stage.wait(120.0)

    assert stage.admitted() == ["hanging"]


def test_a_successor_waits_when_redis_is_lost_just_as_it_reads_what_was_left(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_with_a_hanging_write(stage, lambda _: None)
    successor = stage.start()

    async def live(*, fence: int) -> tuple[QuotaReservation, ...]:
        successor.store.is_away = True
        raise StoreUnreachable(f"lost when fence {fence} read it")

    with monkeypatch.context() as patch:
        patch.setattr(successor.store, "live", live)
        successor.lead(2)
        stage.wait(10.0)
        assert stage.admitted() == []

    successor.store.is_away = False
    stage.wait(20.0)

    assert stage.admitted() == ["hanging"]


def fail_while_cut_off(stage: Stage, *, seconds_before: float = 1.0) -> None:
    """Let a leader that has lost the store admit `hanging` and die before its write is stored."""
    leader = stage.lead()
    stage.wait(1.0)
    leader.store.is_away = True
    stage.submit("small", cpus=0)
    stage.wait(seconds_before)
    leader.line.faults.meets = is_admission
    leader.line.faults.late_seconds.append(HANGS_SECONDS)
    stage.submit("hanging")
    stage.wait(1.0)
    assert stage.store.reservations == {}
    assert leader.line.faults.late_seconds == []
    leader.crash()
    stage.submit("other", priority=1)


def test_quota_is_given_once_when_a_leader_that_was_cut_off_from_redis_dies(stage: Stage) -> None:
    """12 of 6 were admitted: Redis had never restarted, so it seemed to show everything."""
    fail_while_cut_off(stage)

    stage.lead()
    stage.wait(HANGS_SECONDS - 5.0)
    assert "other" not in stage.admitted()

    stage.wait(60.0)
    assert "hanging" in stage.admitted()


def test_the_lease_says_so_until_a_leader_has_read_the_store(stage: Stage) -> None:
    fail_while_cut_off(stage)
    second = stage.lead()
    stage.wait(10.0)
    second.crash()

    third = stage.lead()
    stage.wait(HANGS_SECONDS - 15.0)
    assert "other" not in stage.admitted()
    stage.wait(60.0)
    third.crash()
    stage.submit("next", cpus=0)

    stage.lead()
    stage.wait(5.0)

    assert "next" in stage.admitted()


def test_a_leader_that_has_written_back_leaves_no_wait(stage: Stage) -> None:
    leader = stage.lead()
    stage.wait(1.0)
    leader.store.is_away = True
    stage.submit("first", cpus=1)
    stage.wait(5.0)
    assert stage.admitted() == ["first"]
    leader.store.is_away = False
    stage.wait(10.0)
    leader.crash()
    stage.submit("next", cpus=1)

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["first", "next"]
