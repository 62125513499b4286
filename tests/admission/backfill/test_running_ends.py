"""When Workloads that hold quota give it back: as promises expect it, and at the latest for the calendar.

An eviction takes 35 seconds here: the 30 that pods have by default, and 5 until they are seen to be gone.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from admission.backfill.running_ends import RunningEnds
from admission.backfill.running_estimates import RunningEstimates
from admission.snapshot.held_workload import HeldWorkload
from api.keys import EXPECTED_COMPLETION_TIME, EXPECTED_RUNTIME_SECONDS
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, Backfill, Estimates, OnOverrun, PreemptionRules
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.profile.capacity_profile import Claim, Edge
from queues.profile.leases import Leases
from queues.profile.planned_start import BackfillLease, Rank
from tests.builders import (
    GPU,
    NAMESPACE,
    World,
    make_cluster_queue,
    make_condition,
    make_workload,
    reserved,
    with_conditions,
)

EVICTION = 35.0
KEY = WorkloadKey(NAMESPACE, "w")
# When the Workload was admitted; it is expected to run for 100 seconds.
START = 1000.0


class Running:
    """A Workload that holds quota, and what is known of its end."""

    def __init__(
        self, *, on_overrun: OnOverrun | None = OnOverrun.EVICT, ending: int = 0, **conditions: float
    ) -> None:
        backfill = Backfill(on_overrun=on_overrun, ending_seconds=ending) if on_overrun is not None else None
        estimates = Estimates(raise_percent=50)
        world = World(now=START).put(
            AdmissionPolicy(
                name="policy",
                backfill=backfill,
                estimates=estimates,
                preemption=PreemptionRules(grace_seconds=60),
            ),
            make_cluster_queue(quota=4),
        )
        workload = make_workload(annotations={EXPECTED_RUNTIME_SECONDS: "100"})
        for type_, at in conditions.items():
            workload = with_conditions(workload, make_condition(type_, at=at))
        world.put(reserved(workload, at=START) if not conditions else _holding(workload))
        self.held: HeldWorkload = world.engine._cache.held[KEY]
        self.lengths, self.leases = RunningEstimates(Estimator()), Leases()
        self.lengths.queues = world.engine._cache.snapshot().queues
        self.ends = RunningEnds(self.lengths, self.leases)

    def lease(self, **fields: Any) -> BackfillLease:
        known: dict[str, Any] = {
            "key": KEY,
            "uid": "uid-w",
            "cluster_queue": "queue",
            "rank": Rank(0, 0, 0, 0.0, ""),
            "started_at": START,
            "eviction_seconds": 20.0,
        }
        lease = BackfillLease(**known | fields)
        self.leases.put(lease)
        return lease

    def note(self, *, is_evicting: bool = False, has_reservations: bool = True) -> None:
        self.held.is_evicting = is_evicting
        self.ends.note_held(self.held, has_reservations=has_reservations)

    def claim(self, ends_at: float = START + 100, **fields: Any) -> Claim:
        return Claim(**{"holder": KEY, "queue": "queue", "usage": {}, "ends_at": ends_at, **fields})

    def reports_end(self, at: float) -> None:
        """Annotate it with the instant at which it expects to end."""
        workload = self.held.workload
        end = {EXPECTED_COMPLETION_TIME: to_rfc3339(at)}
        self.held.workload = replace(workload, annotations={**workload.annotations, **end})

    def outrun(self, now: float = START + 120) -> float:
        """Raise its estimate, because it still runs; return its new expected end."""
        return self.ends.raise_end(self.claim(), self.held, now=now)


def _holding(workload: Any) -> Any:
    held = reserved(workload, at=START)
    return replace(held, conditions={**held.conditions, **workload.conditions})


# --- expected --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "lease", "want"),
    [
        pytest.param({}, None, START + 100, id="at the end of its estimate"),
        pytest.param(
            {"is_assumed": True, "reserved_at": START + 7}, None, START + 107, id="from its reservation"
        ),
        pytest.param({}, {}, START + 120, id="on a lease, once it was evicted"),
        pytest.param({}, {"is_evictable": False}, START + 100, id="on a lease whose limit is enforced, then"),
        pytest.param(
            {"leaves_by": START + 70}, None, START + 105, id="after the checkpoint that it is to save"
        ),
        pytest.param({"leaves_by": START + 30}, None, START + 85, id="from now where that is overdue"),
        pytest.param({"is_evicting": True}, None, START + 85, id="from now where it is being evicted"),
        pytest.param({"is_saving": True}, None, START + 85, id="from now where it saves a checkpoint"),
    ],
)
def test_half_through_its_estimate_its_quota_is_expected(
    changes: dict[str, Any], lease: dict[str, Any] | None, want: float
) -> None:
    running = Running()
    for name, value in changes.items():
        setattr(running.held, name, value)
    if lease is not None:
        running.lease(**lease)

    assert running.ends.expected_end(running.held, now=START + 50) == want


@pytest.mark.parametrize(
    ("is_leased", "now", "want"),
    [
        pytest.param(False, START + 50, START + 400, id="at the completion time that it reports"),
        pytest.param(False, START + 401, START + 400, id="then also once that has passed"),
        pytest.param(True, START + 50, START + 120, id="by its estimate on a lease, which is not prolonged"),
    ],
)
def test_the_quota_of_work_that_reports_its_end_is_expected(is_leased: bool, now: float, want: float) -> None:
    running = Running()
    running.reports_end(START + 400)
    if is_leased:
        running.lease()

    assert running.ends.expected_end(running.held, now=now) == want


@pytest.mark.parametrize("now", [START + 39, START + 40, START + 44, START + 46])
def test_the_end_that_work_reports_has_the_allowance_for_ending_before_and_after_it(now: float) -> None:
    running = Running(ending=5)
    running.reports_end(START + 40)

    assert running.ends.expected_end(running.held, now=now) == START + 45


def test_work_that_outruns_the_end_it_reports_needs_a_minute_more_and_not_its_declared_run_time() -> None:
    running = Running(ending=5)
    running.reports_end(START + 40)
    running.ends.raise_end(running.claim(START + 45), running.held, now=START + 46)

    assert running.ends.expected_end(running.held, now=START + 46) == START + 105


def test_an_estimate_raised_before_does_not_shorten_the_end_that_work_reports() -> None:
    running = Running()
    running.outrun()
    running.reports_end(START + 400)

    assert running.ends.expected_end(running.held, now=START + 401) == START + 400


def test_the_end_of_an_eviction_is_counted_from_the_condition_of_its_object() -> None:
    running = Running(Evicted=START + 40)

    assert running.ends.expected_end(running.held, now=START + 50) == START + 40 + EVICTION
    # What was decided now is not written yet: the condition is that of an earlier eviction.
    running.held.is_evicting = True
    assert running.ends.expected_end(running.held, now=START + 50) == START + 50 + EVICTION


def test_work_that_outruns_its_estimate_is_expected_to_need_a_minute_more() -> None:
    running = Running()

    end = running.outrun()

    assert end == START + 160
    assert running.ends.expected_end(running.held, now=START + 120) == end
    assert running.ends.has_outrun(KEY)


def test_work_that_does_not_stop_in_time_is_expected_to_stop_from_now() -> None:
    running = Running()
    running.note(is_evicting=True)

    assert running.outrun() == START + 120 + EVICTION
    assert not running.ends.has_outrun(KEY)


# --- latest ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("is_evicting", "has_reservations", "ends_at", "want"),
    [
        pytest.param(False, True, START + 100, START + 135, id="once it was evicted at its expected end"),
        pytest.param(False, False, START + 100, START + 100, id="then, where no reservation needs its end"),
        pytest.param(True, True, START + 100, START + 100, id="then, where it is being evicted"),
        pytest.param(False, True, START + 50, inf, id="at no known time where it should have ended by now"),
    ],
)
def test_it_is_gone_at_the_latest(
    is_evicting: bool, has_reservations: bool, ends_at: float, want: float
) -> None:
    running = Running()
    running.note(is_evicting=is_evicting, has_reservations=has_reservations)

    assert running.ends.latest_end(running.claim(ends_at), now=START + 50) == want


def test_work_that_has_outrun_its_estimate_is_gone_at_no_known_time() -> None:
    running = Running()
    running.note()
    running.outrun()

    assert running.ends.latest_end(running.claim(START + 150), now=START + 120) == inf


def edge(at: float, claim: Claim, sign: int = -1) -> Edge:
    return at, sign, claim.holder, claim


def test_only_the_ends_of_running_work_are_put_off_and_all_edges_stay_in_order() -> None:
    running = Running()
    running.note()
    end = edge(START + 100, running.claim())
    # It is planned again after that, which no eviction puts off.
    begin = edge(START + 110, running.claim(begins_at=START + 110), 1)
    window = edge(START + 120, running.claim(holder=WorkloadKey("", "window")))
    # Two claims of one Workload that end at once have no order of their own.
    other, twice = (
        edge(START + 90, running.claim(holder=WorkloadKey(NAMESPACE, "other"), usage={GPU: amount}))
        for amount in (2, 1)
    )

    assert running.ends.latest_edges([other, twice, end, begin, window]) == [
        other,
        twice,
        begin,
        window,
        edge(START + 135, end[3]),
    ]


def test_the_ends_of_work_that_has_outrun_its_estimate_are_left_out() -> None:
    running = Running()
    running.outrun()
    other = edge(START + 200, running.claim(holder=WorkloadKey(NAMESPACE, "other")))

    assert running.ends.latest_edges([edge(START + 150, running.claim()), other]) == [other]


# --- what is recorded ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_overrun", "lease", "is_evicting", "want"),
    [
        pytest.param(OnOverrun.EVICT, {}, False, (True, True), id="is evicted"),
        pytest.param(None, {}, False, (True, True), id="is evicted where its queue has no rules of backfill"),
        pytest.param(OnOverrun.EVICT, {}, True, (True, False), id="is evicted, and that has begun"),
        pytest.param(OnOverrun.EXTEND, {}, False, (False, False), id="runs on where its policy says so"),
        pytest.param(OnOverrun.EVICT, {"is_evictable": False}, False, (False, False), id="ends by itself"),
    ],
)
def test_at_the_end_of_its_lease_a_workload(
    on_overrun: OnOverrun | None, lease: dict[str, Any], is_evicting: bool, want: tuple[bool, bool]
) -> None:
    running = Running(on_overrun=on_overrun)
    running.note(is_evicting=is_evicting)

    granted = running.lease(**lease)

    assert (running.ends.is_enforced(granted), running.ends.can_leave(granted)) == want


def test_a_workload_that_is_not_evicted_after_all_can_leave_again() -> None:
    running = Running()
    running.note(is_evicting=True)

    running.note(is_evicting=False)

    assert running.ends.can_leave(running.lease())


@pytest.mark.parametrize(
    ("is_leased", "has_outrun", "want"),
    [
        pytest.param(True, False, 130, id="its lease was ended"),
        pytest.param(False, True, 130, id="it had outrun its estimate"),
        pytest.param(False, False, 100, id="not where it was evicted for others within its estimate"),
    ],
)
def test_a_workload_is_expected_to_need_as_long_as_it_ran_before_where(
    is_leased: bool, has_outrun: bool, want: float
) -> None:
    running = Running()
    if is_leased:
        running.lease()
    if has_outrun:
        running.outrun()

    running.ends.note_eviction(running.held, now=START + 130)

    assert running.lengths.length(running.held.workload, "queue") == want


def test_nothing_is_known_of_a_workload_that_has_released_its_quota() -> None:
    running = Running()
    running.note(is_evicting=True)
    running.outrun(START + 60)
    running.held.is_evicting = False
    running.outrun()
    lease = running.lease()

    running.ends.note_released(KEY)

    assert not running.leases
    assert running.ends.can_leave(lease)
    assert not running.ends.has_outrun(KEY)
    # Nothing is wrong with one that had nothing to forget.
    running.ends.note_released(KEY)


def test_all_of_it_is_forgotten_at_once_except_how_long_evictions_take() -> None:
    running = Running()
    running.note(is_evicting=True)
    running.held.is_evicting = False
    running.outrun()
    lease = running.lease()

    running.ends.clear()

    assert not running.leases
    assert running.ends.can_leave(lease)
    assert not running.ends.has_outrun(KEY)
    assert running.ends.eviction_times() == {EVICTION}
    running.ends.forget_eviction_times()
    assert running.ends.eviction_times() == set()
    assert running.ends.latest_end(running.claim(), now=START) == START + 100


def test_the_eviction_time_of_work_that_gave_its_quota_back_is_forgotten() -> None:
    running = Running()
    running.note()
    assert running.ends.eviction_times()

    running.ends.note_released(KEY)

    assert running.ends.eviction_times() == set()
