"""What two writers admitted against each other is evicted; what only exceeds a lowered quota is not.

cohort ─┬─ queue   4 GPUs, borrows 2
        └─ other   2 GPUs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from admission.cache.overadmission import SETTLING_SECONDS
from api.queueing import ClusterQueue
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    finished,
    make_cluster_queue,
    make_condition,
    make_quota,
    make_workload,
    reserved,
    with_conditions,
)


def queue(quota: int = 4) -> ClusterQueue:
    return make_cluster_queue("queue", quota=make_quota(quota, borrowing=2), cohort="cohort")


def other(quota: int = 2) -> ClusterQueue:
    return make_cluster_queue("other", quota=quota, cohort="cohort")


def shown(name: str, gpus: int, *, at: float, queue: str = "queue") -> Workload:
    """Return a Workload as another writer has admitted it."""
    return reserved(make_workload(name, gpus=gpus, queue=queue), at=at)


@dataclass
class Term:
    """A term of leadership: what was there before it counts as weighed."""

    world: World

    def repair(self) -> dict[str, str]:
        """Return the Workloads evicted once all watches have caught up."""
        self.world.now += SETTLING_SECONDS
        found = self.world.engine.overadmission.evict_excess(now=self.world.now)
        self.world.engine.validate()
        return {one.key.name: one.reason.value for one in found}


def begin(*values: object) -> Term:
    world = World().put(*values)
    world.engine.overadmission.accept_all(now=world.now)
    return Term(world)


OURS = make_workload("ours", gpus=3)


def _admit_ours(world: World) -> None:
    world.put(OURS)
    decisions = world.settle()
    assert admits(decisions) == ["ours"]
    world.confirm(decisions)


def _lower(world: World) -> None:
    world.put(queue(1))


def _none(_: World) -> None:
    """Nothing else happens."""


@pytest.mark.parametrize(
    ("before", "arriving", "want_evicted"),
    [
        pytest.param(_none, [shown("a", 6, at=1)], [], id="what fits by borrowing stays"),
        pytest.param(_none, [shown("a", 7, at=1)], ["a"], id="what exceeds the borrowing limit goes"),
        pytest.param(_admit_ours, [shown("a", 3, at=1)], [], id="what fits beside ours stays"),
        pytest.param(_admit_ours, [shown("a", 4, at=1)], ["a"], id="what we weighed stays, the other's goes"),
        pytest.param(
            _none,
            [shown("late", 4, at=9), shown("early", 4, at=3)],
            ["late"],
            id="of two made against each other the latest goes, whichever was seen first",
        ),
        pytest.param(
            _none,
            [shown("a", 6, at=1), shown("b", 1, at=2, queue="other")],
            ["b"],
            id="a cohort has no more than all its queues together",
        ),
        pytest.param(
            _none,
            [shown("a", 6, at=1), shown("big", 3, at=2), shown("small", 0, at=3)],
            ["big"],
            id="one that goes makes no other go",
        ),
        pytest.param(_lower, [shown("a", 2, at=1)], [], id="what fits the lowered quota stays"),
        pytest.param(_lower, [shown("a", 4, at=1)], ["a"], id="what does not fit the lowered quota goes"),
        pytest.param(
            _none, [shown("a", 4, at=1, queue="nowhere")], [], id="without its queue it is not decided"
        ),
        pytest.param(_none, [finished(shown("a", 9, at=1))], [], id="what has finished holds nothing"),
    ],
)
def test_an_admission_by_another_writer(
    before: Callable[[World], None], arriving: list[Workload], want_evicted: list[str]
) -> None:
    term = begin(queue(), other())
    before(term.world)

    term.world.put(*arriving)

    assert term.repair() == dict.fromkeys(want_evicted, "OverAdmitted")
    assert term.repair() == {}, "each is reported once"


@pytest.mark.parametrize(
    "lowered",
    [pytest.param((queue(0), other()), id="its own queue's"), pytest.param((other(0),), id="the cohort's")],
)
def test_work_beyond_a_quota_that_was_lowered_goes_on(lowered: tuple[ClusterQueue, ...]) -> None:
    term = begin(queue(), other(), shown("earlier", 3, at=1))
    _admit_ours(term.world)

    term.world.put(*lowered)

    assert term.repair() == {}
    assert term.world.holding() == {"earlier": "queue", "ours": "queue"}


def test_what_was_there_when_the_term_began_was_decided_before() -> None:
    assert begin(queue(), shown("a", 9, at=1)).repair() == {}


def test_an_admission_may_be_seen_before_the_quota_it_was_made_on() -> None:
    term = begin(queue(1), other(0))
    term.world.put(shown("a", 4, at=1))
    assert term.world.engine.overadmission.evict_excess(now=term.world.now) == ()

    term.world.put(queue(4))

    assert term.repair() == {}


def test_our_own_admission_counts_as_checked_though_its_quota_goes_before_the_watch_shows_it() -> None:
    term = begin(queue(), other())
    term.world.put(OURS)
    decisions = term.world.settle()
    term.world.put(queue(0), other(0))

    term.world.confirm(decisions)

    assert term.repair() == {}


def test_an_admission_that_is_made_larger_is_a_new_one() -> None:
    term = begin(queue(), other(), shown("a", 2, at=1))

    larger = shown("a", 9, at=1)
    term.world.put(replace(larger, pod_sets=term.world.get("a").pod_sets, resource_version="9"))

    assert term.repair() == {"a": "OverAdmitted"}


def test_an_eviction_that_could_not_be_written_is_decided_again() -> None:
    term = begin(queue(), other())
    term.world.put(shown("a", 9, at=1))
    assert term.repair() == {"a": "OverAdmitted"}

    term.world.engine.forget(WorkloadKey(NAMESPACE, "a"), "uid-a", now=term.world.now)

    assert term.repair() == {"a": "OverAdmitted"}


def test_the_eviction_says_what_was_left_and_what_was_taken() -> None:
    term = begin(queue(), other())
    term.world.put(shown("a", 7, at=1))
    term.world.now += SETTLING_SECONDS

    (eviction,) = term.world.engine.overadmission.evict_excess(now=term.world.now)

    assert "ClusterQueue queue had 6 of gpu in flavor default left" in eviction.message
    assert "admitted this workload with 7" in eviction.message


def test_a_stopping_workload_counts_until_it_has_stopped() -> None:
    term = begin(queue(), other())
    stopping = make_condition(ConditionType.EVICTED, reason="Preempted", at=5)
    term.world.put(with_conditions(shown("old", 6, at=9), stopping), shown("a", 2, at=1))

    assert term.repair() == {"a": "OverAdmitted"}
