"""A leader that loses its lease and wins it back: what it reads, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from admission.decisions.api_writes import Purpose, Write
from api.kube.errors import ServerError
from tests.admission.controller.replica import REQUEST_SECONDS, Replica
from tests.admission.controller.stage import Stage
from tests.admission.controller.virtualtime import end


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and close its loop."""
    made = Stage()
    yield made
    end(made.loop)


def only(*purposes: Purpose) -> Callable[[Write], bool]:
    """Return what meets writes of these purposes alone."""
    return lambda write: write.purpose in purposes


def test_a_leader_that_wins_its_lease_back_lists_nothing_and_decides_on(stage: Stage) -> None:
    leader = stage.lead()
    stage.submit("first", cpus=3)
    stage.wait(5.0)
    lists = leader.line.lists

    stage.lead_again(leader)
    stage.submit("second", cpus=3)
    stage.wait(5.0)

    assert (leader.line.lists, leader.line.reads) == (lists, [])
    assert stage.admitted() == ["first", "second"]
    assert stage.store.fence == 2


def _lose_the_watch(leader: Replica) -> None:
    leader.is_watching = False


@pytest.mark.parametrize(
    ("meanwhile", "continues"),
    [
        pytest.param(lambda _: None, False, id="another has led meanwhile"),
        pytest.param(_lose_the_watch, True, id="its watch of Workloads is broken"),
    ],
)
def test_a_leader_lists_where(meanwhile: Callable[[Replica], None], continues: bool, stage: Stage) -> None:
    leader = stage.lead()
    stage.wait(5.0)
    meanwhile(leader)
    lists = leader.line.lists

    stage.lead_again(leader, continues=continues)
    stage.wait(5.0)

    assert leader.line.lists == lists + 1


def test_a_leader_that_lost_its_lease_before_it_had_listed_lists(stage: Stage) -> None:
    leader = stage.start()
    leader.line.faults.is_cut = True
    leader.lead(1)
    stage.wait(5.0)
    leader.line.faults.is_cut = False
    tried = leader.line.lists

    stage.lead_again(leader)
    stage.wait(5.0)

    assert leader.line.lists > tried


def test_a_workload_whose_eviction_was_cut_off_is_read_and_no_other_is_evicted(stage: Stage) -> None:
    leader = stage.lead()
    for name in ("low-1", "low-2"):
        stage.submit(name, cpus=3)
    stage.wait(5.0)
    # The eviction is stored, but neither its answer nor the watch says so in time.
    leader.line.hears_after_seconds = 60.0
    stage.submit("high", cpus=3, priority=2)
    stage.wait(59.9)
    leader.line.faults.meets = only(Purpose.EVICT)
    leader.line.faults.late_seconds.append(REQUEST_SECONDS / 2)
    stage.wait(0.5)
    lists = leader.line.lists

    stage.lead_again(leader)
    stage.wait(30.0)

    evicted = [write.name for write in stage.cluster.written if write.purpose is Purpose.EVICT]
    assert leader.line.reads == evicted
    assert len(evicted) == 1
    assert leader.line.lists == lists


@pytest.mark.parametrize("is_away", [False, True], ids=["in Redis", "in memory, Redis being away"])
def test_an_admission_that_may_still_be_stored_keeps_its_quota_by_its_reservation(
    is_away: bool, stage: Stage
) -> None:
    leader = stage.lead()
    stage.wait(5.0)
    leader.store.is_away = is_away
    stage.wait(1.0)
    # It is stored long after its time-out, and nothing else moves the Workload to another version meanwhile.
    leader.line.faults.meets = lambda write: write.name == "late" and write.purpose is not Purpose.FENCE
    leader.line.faults.late_seconds.append(20.0)
    leader.line.faults.errors_after_late += [ServerError("boom", status=500)] * 40
    stage.submit("late")
    stage.wait(0.5)
    lists = leader.line.lists

    stage.lead_again(leader)
    stage.submit("urgent", priority=2)
    stage.wait(60.0)

    # The two exclude each other, which `Stage` checks at every change.
    assert stage.admitted() == ["urgent"]
    assert stage.workload("late")["metadata"]["annotations"]["berth.dev/fence"].startswith("2")
    assert (leader.line.lists, leader.line.reads[0]) == (lists, "late")
