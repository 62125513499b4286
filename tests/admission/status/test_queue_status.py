"""Statuses of queues and cohorts: what is brought up to date, what is left, and when nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.status.queue_status import MAX_SHARE, cluster_queue_status, cohort_status, local_queue_status
from admission.status.views import ClusterQueueView, CohortView, LocalQueueView, Usage
from api.reasons import InactiveReason

NOW = 1_800_000_000.0
USAGE = {"a100": {"cpu": Usage(1500, 500), "memory": Usage(2**30, 0)}}
QUEUE = ClusterQueueView(
    name="cq",
    is_active=True,
    reason=None,
    message="Can admit new workloads",
    active_pending=2,
    parked_pending=3,
    reserving=4,
    admitted=1,
    flavors_reservation=USAGE,
    flavors_usage=USAGE,
    weighted_share=7,
)
LOCAL = LocalQueueView(
    namespace="team",
    name="lq",
    is_active=False,
    reason=InactiveReason.STOPPED,
    message="LocalQueue is stopped",
    pending=1,
    parked=0,
    reserving=0,
    admitted=0,
    flavors_reservation=USAGE,
    flavors_usage={},
)


def raw(**status: Any) -> bytes:
    """Return an object with this status."""
    return msgspec.json.encode({"metadata": {"name": "x", "generation": 3}, "status": status})


def status_of(body: bytes | None) -> dict[str, Any]:
    assert body is not None
    return dict(msgspec.json.decode(body)["status"])


def conditions(body: bytes | None) -> dict[str, tuple[str, str, str]]:
    return {
        one["type"]: (one["status"], one["reason"], one["message"]) for one in status_of(body)["conditions"]
    }


def test_a_cluster_queue_shows_counts_usage_and_what_is_borrowed() -> None:
    body = cluster_queue_status(raw(), QUEUE, now=NOW)

    found = status_of(body)
    assert conditions(body) == {"Active": ("True", "Ready", "Can admit new workloads")}
    assert (found["pendingWorkloads"], found["reservingWorkloads"], found["admittedWorkloads"]) == (5, 4, 1)
    cpu = {"name": "cpu", "total": "1500m", "borrowed": "500m"}
    memory = {"name": "memory", "total": "1Gi", "borrowed": "0"}
    assert found["flavorsUsage"] == [{"name": "a100", "resources": [cpu, memory]}]
    assert "fairSharing" not in found


def test_a_local_queue_borrows_nothing_itself_and_says_why_it_is_not_active() -> None:
    body = local_queue_status(raw(), LOCAL, now=NOW)

    assert conditions(body) == {"Active": ("False", "Stopped", "LocalQueue is stopped")}
    resources = status_of(body)["flavorsReservation"][0]["resources"]
    assert resources == [{"name": "cpu", "total": "1500m"}, {"name": "memory", "total": "1Gi"}]


def test_a_status_that_is_the_same_is_not_written_again() -> None:
    written = cluster_queue_status(raw(), QUEUE, now=NOW)
    assert written is not None

    assert cluster_queue_status(written, QUEUE, now=NOW + 60) is None


def test_one_count_that_differs_is_enough() -> None:
    written = cluster_queue_status(raw(), QUEUE, now=NOW)
    assert written is not None

    later = cluster_queue_status(written, replace(QUEUE, admitted=2), now=NOW + 60)

    assert status_of(later)["admittedWorkloads"] == 2


def test_fields_and_conditions_that_are_not_ours_survive() -> None:
    theirs = {"type": "Theirs", "status": "True", "reason": "R", "message": "m"}

    body = cluster_queue_status(raw(newField={"a": 1}, conditions=[theirs]), QUEUE, now=NOW)

    assert status_of(body)["newField"] == {"a": 1}
    assert set(conditions(body)) == {"Theirs", "Active"}


def test_a_fault_is_a_condition_and_goes_with_the_fault() -> None:
    faulty = cluster_queue_status(raw(), QUEUE, now=NOW, fault="spec.x is 1: must be 2")
    assert faulty is not None
    assert conditions(faulty)["Valid"] == ("False", "InvalidSpec", "spec.x is 1: must be 2")

    mended = cluster_queue_status(faulty, QUEUE, now=NOW)

    assert set(conditions(mended)) == {"Active"}


@pytest.mark.parametrize(
    ("share", "want"),
    [
        pytest.param(7, 7, id="a share is written as it is"),
        pytest.param(2**80, MAX_SHARE, id="no larger than a number on the wire may be"),
    ],
)
def test_shares_of_queues_and_cohorts(share: int, want: int) -> None:
    queue = replace(QUEUE, weighted_share=share)
    cohort = CohortView(name="co", above=(), admitted=0, weighted_share=share)

    of_queue = cluster_queue_status(raw(), queue, now=NOW, with_share=True)
    of_cohort = cohort_status(raw(), cohort, now=NOW)

    assert (
        status_of(of_queue)["fairSharing"] == status_of(of_cohort)["fairSharing"] == {"weightedShare": want}
    )


def test_usage_of_no_flavor_is_absent_rather_than_empty() -> None:
    """Kueue leaves out empty lists."""
    found = status_of(
        cluster_queue_status(raw(), replace(QUEUE, flavors_reservation={}, flavors_usage={}), now=NOW)
    )

    assert found.keys().isdisjoint({"flavorsReservation", "flavorsUsage"})
    assert "flavorsUsage" not in status_of(local_queue_status(raw(flavorsUsage=[]), LOCAL, now=NOW))
