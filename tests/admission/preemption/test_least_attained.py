"""The level of a pending Workload under LeastAttained, and when time alone changes it."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest

from admission.preemption.least_attained import ages, ages_at, pending_level, predicted_level, waiting_since
from api.jobs.resource_requests import PodSetRequests
from api.policy import Ordering
from api.workload import Workload
from queues.estimates.runtime_estimate import Estimate, Source
from queues.pending.least_attained import FIRST
from tests.builders import make_workload, released, reserved

GPU = "nvidia.com/gpu"
AGEING = Ordering(age_seconds=100, level_ends=(1000.0, 5000.0))
NEVER = Ordering(age_seconds=None, level_ends=(1000.0, 5000.0))
NEW = make_workload("new", at=1000.0)
PREEMPTED = replace(released(reserved(NEW), at=1500.0), accumulated_execution_seconds=60)


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(NEW, 1000.0, id="its creation"),
        pytest.param(PREEMPTED, 1500.0, id="its eviction, once it has run"),
        pytest.param(
            replace(PREEMPTED, accumulated_execution_seconds=0),
            1000.0,
            id="its creation, if it has never run",
        ),
    ],
)
def test_a_workload_is_pending_since(workload: Workload, want: float) -> None:
    assert waiting_since(workload) == want


@pytest.mark.parametrize(
    ("ordering", "now", "want", "want_at"),
    [
        pytest.param(AGEING, 1000.0, 0, 1100.0, id="none yet"),
        pytest.param(AGEING, 1099.0, 0, 1100.0, id="none just before"),
        pytest.param(AGEING, 1100.0, 1, 1200.0, id="one at its very end"),
        pytest.param(AGEING, 1250.0, 2, 1300.0, id="two"),
        pytest.param(NEVER, 99_999.0, 0, inf, id="none without ageing, ever"),
    ],
)
def test_the_ages_that_a_workload_has_waited(
    ordering: Ordering, now: float, want: int, want_at: float
) -> None:
    assert ages(NEW, ordering, now=now) == want
    assert ages_at(NEW, ordering, now=now) == want_at


@pytest.mark.parametrize(
    ("ran", "now", "want"),
    [
        pytest.param(0, 1000.0, 0, id="the lowest that is served, without service"),
        pytest.param(124, 1000.0, 0, id="the same until its end"),
        pytest.param(125, 1000.0, 1, id="the next with 1000 device-seconds on eight devices"),
        pytest.param(625, 1000.0, 2, id="the last with 5000"),
        pytest.param(625, 1100.0, 1, id="one less for each age"),
        pytest.param(625, 1300.0, FIRST, id="first of all after three"),
        pytest.param(625, 9000.0, FIRST, id="and no less after many"),
    ],
)
def test_the_level_of_a_pending_workload(ran: int, now: float, want: int) -> None:
    workload = replace(NEW, accumulated_execution_seconds=ran)
    # Eight devices in two pod sets, whose requests are summed.
    requests = tuple(
        PodSetRequests(name=name, count=2, per_pod={GPU: 2, "cpu": 1000}) for name in ("driver", "workers")
    )

    assert pending_level(workload, requests, AGEING, now=now) == want


@pytest.mark.parametrize(
    ("seconds", "now", "want"),
    [
        pytest.param(60.0, 1000.0, 60, id="its estimate"),
        pytest.param(60.5, 1000.0, 61, id="its estimate in whole seconds, rounded up"),
        pytest.param(1e12, 1000.0, 2**31 - 1, id="the last, however long it is"),
        pytest.param(None, 1000.0, 2**31 - 1, id="the last, without an estimate"),
        pytest.param(60.0, 1100.0, FIRST, id="first of all, once it has waited for an age"),
    ],
)
def test_where_the_shortest_goes_first_the_level_is(seconds: float | None, now: float, want: int) -> None:
    estimate = None if seconds is None else Estimate(seconds=seconds, source=Source.JOB_DEADLINE)

    assert predicted_level(NEW, estimate, AGEING, now=now) == want
