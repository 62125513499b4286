"""What two writers admitted against each other is evicted; what only exceeds a lowered quota is not.

cohort ─┬─ queue   4 GPUs, borrows 2
        └─ other   2 GPUs
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from admission.cache.overadmission import SETTLING_SECONDS
from admission.engine.overadmission_check import INHERITED_SETTLING_SECONDS
from api.queueing import ClusterQueue
from api.quota_check import QuotaCheck
from api.reasons import ConditionType
from api.workload import Condition, Workload, WorkloadKey
from queues.quota.tree_digest import tree_digest
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
        return self._check(SETTLING_SECONDS)

    def check_inherited(self) -> dict[str, str]:
        """Return the Workloads evicted once what the term began with is checked too."""
        return self._check(INHERITED_SETTLING_SECONDS)

    def _check(self, wait_seconds: float) -> dict[str, str]:
        self.world.now += wait_seconds
        found = self.world.engine.overadmission.evict_excess(now=self.world.now)
        self.world.engine.validate()
        return {one.key.name: one.reason.value for one in found}


def begin(*values: object) -> Term:
    world = World().put(*values)
    world.engine.overadmission.begin_term(now=world.now)
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
    assert begin(queue(), shown("a", 9, at=1)).check_inherited() == {}


# --- what a term begins with ----------------------------------------------------------------------

QUEUES = (queue(), other())
QUOTA = tree_digest(World().put(*QUEUES).engine._cache.queues["queue"].node)


def checked(
    name: str, gpus: int, *, at: float, fence: int = 1, quota: str = QUOTA, priority: int = 0
) -> Workload:
    """Return a Workload as a leader has admitted it that checked it against `quota`."""
    workload = replace(shown(name, gpus, at=at), priority=priority)
    message = QuotaCheck(quota=quota, fence=fence).message
    record = Condition(
        type=ConditionType.QUOTA_CHECKED, status=True, reason="FitsQuota", message=message, at=at
    )
    return with_conditions(workload, record)


@pytest.mark.parametrize(
    ("inherited", "want_evicted"),
    [
        pytest.param([checked("a", 4, at=1), checked("b", 2, at=2)], [], id="what fits stays"),
        pytest.param(
            [checked("a", 4, at=1), checked("b", 4, at=2, fence=2)],
            ["b"],
            id="of two that leaders admitted against each other the later goes",
        ),
        pytest.param(
            [checked("a", 4, at=1), checked("b", 4, at=2, fence=2, priority=1)],
            ["a"],
            id="or the one of lower priority",
        ),
        pytest.param(
            [checked("a", 4, at=1, quota="0"), checked("b", 4, at=2, quota="0")],
            [],
            id="checked against another quota, which was lowered",
        ),
        pytest.param(
            [checked("a", 4, at=1, quota="0"), checked("b", 4, at=2)],
            ["b"],
            id="checked against this one beside what exceeds it from before",
        ),
        pytest.param(
            [shown("a", 4, at=1), shown("b", 4, at=2)], [], id="what another program admitted before stays"
        ),
        pytest.param(
            [checked("a", 4, at=1), replace(checked("b", 4, at=2), admission=None)],
            [],
            id="what holds no quota does not count",
        ),
    ],
)
def test_admissions_that_a_term_begins_with(inherited: list[Workload], want_evicted: list[str]) -> None:
    term = begin(*QUEUES, *inherited)

    assert term.repair() == {}, "too early: watches may be late"
    assert term.check_inherited() == dict.fromkeys(want_evicted, "OverAdmitted")
    assert term.check_inherited() == {}, "each is reported once"


def test_a_workload_that_goes_while_a_term_begins_leaves_the_others_their_quota() -> None:
    gone = checked("a", 4, at=1)
    term = begin(*QUEUES, gone, checked("b", 4, at=2))

    term.world.put(finished(gone))

    assert term.check_inherited() == {}


def test_a_quota_that_is_lowered_while_a_term_begins_evicts_nothing() -> None:
    term = begin(*QUEUES, checked("a", 4, at=1), checked("b", 2, at=2))

    _lower(term.world)

    assert term.check_inherited() == {}


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


def test_one_that_is_active_again_before_it_is_evicted_goes_if_its_quota_is_taken() -> None:
    """Kueue lets it run on beside the one that has its quota by now."""
    term = begin(queue(), other())
    first = shown("first", 4, at=1)
    term.world.put(first)
    assert term.repair() == {}
    term.world.put(replace(first, active=False))
    term.world.put(make_workload("next", gpus=6))
    decisions = term.world.settle()
    assert admits(decisions) == ["next"]
    term.world.confirm(decisions)

    term.world.put(first)

    assert term.repair() == {"first": "OverAdmitted"}
