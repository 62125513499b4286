"""Rows of queues and Workloads: what the objects say, in the words of the field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admission.cli.views.queue_view import QuotaRow, queue_rows
from admission.cli.views.reservation_view import reservation_rows
from admission.cli.views.tables import starts_text
from admission.cli.views.workload_view import workload_rows
from api.objects.policies import AdmissionPolicyObject
from api.objects.queues import ClusterQueueObject, LocalQueueObject
from api.objects.workloads import WorkloadObject

GPU = "nvidia.com/gpu"
NOW = 1_000_000_000.0  # 2001-09-09T01:46:40Z
TRUE, FALSE = "True", "False"


def make_queue(
    name: str, *, cohort: str | None = None, status: dict[str, Any] | None = None
) -> ClusterQueueObject:
    quota = {"name": GPU, "nominalQuota": "8", "borrowingLimit": 4}
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [quota]}]}
    spec = {"cohortName": cohort, "resourceGroups": [group]}
    return msgspec.json.decode(
        json.dumps({"metadata": {"name": name}, "spec": spec, "status": status or {}}),
        type=ClusterQueueObject,
    )


def make_workload(
    name: str,
    *conditions: tuple[str, str, str, str],
    created: str = "2001-09-09T01:46:00Z",
    queue: str = "gpu",
    priority: int | None = None,
    active: bool = True,
    annotations: dict[str, str] | None = None,
    flavor: str | None = None,
    owner: str | None = None,
) -> WorkloadObject:
    """A Workload with conditions of (type, status, reason, message)."""
    assignment = {"name": "main", "flavors": {GPU: flavor}}
    owners = [{"name": owner, "kind": "Job", "controller": True}] if owner else None
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "team",
                "uid": name,
                "creationTimestamp": created,
                "annotations": annotations,
                "ownerReferences": owners,
            },
            "spec": {"queueName": queue, "priority": priority, "active": active},
            "status": {
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]} if flavor else None,
                "conditions": [
                    {
                        "type": type_,
                        "status": status,
                        "reason": reason,
                        "message": message,
                        "lastTransitionTime": "2001-09-09T01:46:30Z",
                    }
                    for type_, status, reason, message in conditions
                ],
            },
        },
        WorkloadObject,
    )


LOCAL_QUEUES = [
    msgspec.convert(
        {"metadata": {"name": "gpu", "namespace": "team"}, "spec": {"clusterQueue": "cq"}}, LocalQueueObject
    )
]


def test_a_queue_shows_its_counts_and_what_it_borrows() -> None:
    status = {
        "conditions": [{"type": "Active", "status": FALSE, "reason": "Stopped", "message": "is stopped"}],
        "flavorsReservation": [{"name": "a100", "resources": [{"name": GPU, "total": "10"}]}],
        "pendingWorkloads": 3,
        "reservingWorkloads": 2,
        "admittedWorkloads": 1,
    }

    (row,) = queue_rows([make_queue("cq", cohort="c", status=status)])

    assert (row.active, row.reason, row.message) == (False, "Stopped", "is stopped")
    assert (row.pending, row.reserving, row.admitted) == (3, 2, 1)
    assert row.strategy == "BestEffortFIFO"
    assert row.quotas == (QuotaRow(flavor="a100", resource=GPU, used=10, nominal=8, borrowing_limit=4),)
    assert row.quotas[0].borrowed == 2


def test_a_queue_that_no_controller_has_seen_says_so() -> None:
    (row,) = queue_rows([make_queue("cq")])

    assert (row.active, row.message) == (None, "no controller has processed it yet")


def test_queues_of_a_cohort_are_listed_together() -> None:
    rows = queue_rows([make_queue("z"), make_queue("b", cohort="c"), make_queue("a", cohort="d")])

    assert [row.name for row in rows] == ["b", "a", "z"]


RESERVED = ("QuotaReserved", TRUE, "QuotaReserved", "reserved")
ADMITTED = ("Admitted", TRUE, "Admitted", "admitted")


@pytest.mark.parametrize(
    ("workload", "want_status", "want_why"),
    [
        pytest.param(
            make_workload("w"),
            "pending",
            ("", "no controller has written its reason yet; berth explain tells it"),
            id="a new one is unseen",
        ),
        pytest.param(
            make_workload("w", ("QuotaReserved", FALSE, "WaitingForQuota", "fits 3 of 8 pods")),
            "pending",
            ("WaitingForQuota", "fits 3 of 8 pods"),
            id="a pending one says why",
        ),
        pytest.param(
            make_workload("w", RESERVED, flavor="a100"),
            "quotaReserved",
            ("", "waits for its admission checks"),
            id="reserved but not admitted",
        ),
        pytest.param(
            make_workload("w", RESERVED, ADMITTED, flavor="a100"),
            "admitted",
            ("", "runs on a100"),
            id="an admitted one names its flavor",
        ),
        pytest.param(
            make_workload(
                "w", RESERVED, ADMITTED, ("Evicted", TRUE, "Preempted", "made room"), flavor="a100"
            ),
            "admitted",
            ("Preempted", "made room"),
            id="an evicted one holds its quota until it has stopped",
        ),
        pytest.param(
            make_workload(
                "w",
                RESERVED,
                ADMITTED,
                ("Evicted", TRUE, "Preempted", "made room"),
                ("berth.dev/DisruptionAllowed", FALSE, "InsufficientPods", "a budget keeps it"),
            ),
            "admitted",
            ("Preempted", "a budget keeps it: made room"),
            id="one that its budget keeps says so",
        ),
        pytest.param(
            make_workload(
                "w",
                ("Evicted", TRUE, "Preempted", "made room"),
                ("QuotaReserved", FALSE, "WaitingForQuota", "fits 3 of 8 pods"),
                ("Requeued", TRUE, "Preempted", "made room"),
            ),
            "pending",
            ("WaitingForQuota", "fits 3 of 8 pods"),
            id="one that queues again shows its present reason",
        ),
        pytest.param(
            make_workload("w", ("QuotaReserved", FALSE, "Deactivated", "it is"), active=False),
            "deactivated",
            ("Deactivated", "it is"),
            id="a deactivated one is not pending",
        ),
        pytest.param(
            make_workload("w", RESERVED, ADMITTED, ("Finished", TRUE, "Succeeded", "done"), flavor="a100"),
            "finished",
            ("Succeeded", "done"),
            id="a finished one says how",
        ),
    ],
)
def test_the_status_of_a_workload(
    workload: WorkloadObject, want_status: str, want_why: tuple[str, str]
) -> None:
    (row,) = workload_rows([workload], LOCAL_QUEUES, now=NOW)

    assert row.status == want_status
    assert (row.reason, row.message) == want_why
    assert (row.cluster_queue, row.age_seconds) == ("cq", 40.0)


def test_places_go_by_priority_then_time_then_uid() -> None:
    workloads = [
        make_workload("late", created="2001-09-09T01:46:10Z"),
        make_workload("twin-b"),
        make_workload("twin-a"),
        make_workload("high", created="2001-09-09T01:46:20Z", priority=5),
        make_workload("boosted", priority=1, annotations={"kueue.x-k8s.io/priority-boost": "9"}),
        make_workload(
            "evicted", ("Evicted", TRUE, "PodsReadyTimeout", "slow"), created="2001-09-09T01:00:00Z"
        ),
        make_workload("preempted", ("Evicted", TRUE, "Preempted", "x"), created="2001-09-09T01:00:00Z"),
    ]

    rows = workload_rows(workloads, LOCAL_QUEUES, now=NOW)

    # The controller orders without the annotation, as Kueue does without its feature gate PriorityBoost.
    want = ["high", "boosted", "preempted", "twin-a", "twin-b", "late", "evicted"]
    assert [(row.name, row.position) for row in rows] == [(name, i) for i, name in enumerate(want, start=1)]


def test_a_workload_behind_all_expected_starts_has_the_last_of_them_as_a_bound() -> None:
    """Between two with an expected start, one whose start has not been written yet has none."""
    starts = {"a": "2001-09-09T02:00:00Z", "b": "", "c": "2001-09-09T01:50:00Z", "d": "", "e": ""}
    workloads = [
        make_workload(name, annotations={"berth.dev/expected-start": start} if start else {})
        for name, start in starts.items()
    ]
    lost = make_workload("f", ("QuotaReserved", FALSE, "Misconfigured", "no such reservation"))

    rows = workload_rows([*workloads, lost], LOCAL_QUEUES, now=NOW)

    late = "2001-09-09T02:00:00Z"
    assert {row.name: row.expected_after for row in rows} == {
        **dict.fromkeys("abcf", ""),
        **dict.fromkeys("de", late),
    }
    # Positions agree with the starts, and what cannot start has neither.
    assert {row.name: row.position for row in rows} == {"c": 1, "b": 2, "a": 3, "d": 4, "e": 5, "f": None}


@pytest.mark.parametrize("reason", ["ExceedsMaxQuota", "NoMatchingFlavor", "TopologyPlacementFailed"])
def test_a_workload_that_cannot_start_has_no_start_and_takes_no_position(reason: str) -> None:
    expected = {"berth.dev/expected-start": "2001-09-09T02:00:00Z"}
    too_large = make_workload("a", ("QuotaReserved", FALSE, reason, "32 > 16"), annotations=expected)
    windowed = make_workload(
        "b",
        ("QuotaReserved", FALSE, reason, "a window opens"),
        annotations={"berth.dev/planned-start": "2001-09-09T03:00:00Z"},
    )

    rows = workload_rows([too_large, windowed, make_workload("c")], LOCAL_QUEUES, now=NOW)

    assert {row.name: (row.position, starts_text(row, now=NOW)) for row in rows} == {
        "a": (None, "never"),
        "b": (1, "in 73m*"),
        "c": (2, "after 73m"),
    }


REFUSED = 'spec.reservations[0].domain is "r7": there are r0; nothing is reserved'
ACTIVE = {"state": "Active", "nodes": 4, "userCount": 1, "users": ["team/w"]}


@pytest.mark.parametrize(
    ("accepted", "entry", "now", "want"),
    [
        pytest.param(TRUE, {"state": "Upcoming"}, -60, ("upcoming", ""), id="before its start"),
        pytest.param(TRUE, ACTIVE, 3600, ("active", ""), id="within its time"),
        pytest.param(TRUE, ACTIVE, 9000, ("over", ""), id="after its end, whatever the status still says"),
        pytest.param(
            TRUE, {"state": "Refused", "message": REFUSED}, 0, ("refused", REFUSED), id="keeping nothing"
        ),
        pytest.param(FALSE, None, 0, ("refused", "said"), id="of an invalid policy"),
        pytest.param(TRUE, None, 0, ("unknown", ""), id="not in the status yet"),
        pytest.param(None, None, 0, ("unknown", "no controller has processed it yet"), id="unseen"),
    ],
)
def test_the_state_of_a_reservation(
    accepted: str | None, entry: dict[str, object] | None, now: float, want: tuple[str, str]
) -> None:
    (row,) = reservation_rows([make_reserving_policy(accepted, entry)], now=NOW + 800 + now)

    assert (row.state, row.message) == want
    assert row.policy == "p"


def test_a_reservation_shows_what_it_keeps_and_its_users() -> None:
    (row,) = reservation_rows([make_reserving_policy(TRUE, ACTIVE)], now=NOW)

    assert (row.keeps, row.user_count, row.users) == (("domain r7 (4 nodes)",), 1, ("team/w",))


def make_reserving_policy(accepted: str | None, entry: dict[str, object] | None) -> AdmissionPolicyObject:
    """Return a policy with a reservation `big`, and the status of it; `accepted` None: no condition."""
    reservation = {
        "name": "big",
        "namespace": "team",
        "localQueue": "lq",
        "start": "2001-09-09T02:00:00Z",
        "end": "2001-09-09T04:00:00Z",
        "domain": "r7",
    }
    accepted_condition = {"type": "Accepted", "status": accepted, "reason": "Said", "message": "said"}
    policy = {
        "metadata": {"name": "p"},
        "spec": {"reservations": [reservation]},
        "status": {
            "conditions": [accepted_condition] if accepted is not None else [],
            "reservations": [{"name": "big", **entry}] if entry is not None else [],
        },
    }
    return msgspec.json.decode(json.dumps(policy), type=AdmissionPolicyObject)


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload("w", active=False), id="deactivated"),
        pytest.param(make_workload("w", queue="nowhere"), id="in a queue that does not exist"),
        pytest.param(make_workload("w", RESERVED, flavor="a100"), id="no longer pending"),
    ],
)
def test_a_workload_without_a_position(workload: WorkloadObject) -> None:
    (row,) = workload_rows([workload], LOCAL_QUEUES, now=NOW)

    assert row.position is None


def test_the_owner_of_a_workload_is_named() -> None:
    (row,) = workload_rows([make_workload("w", owner="train")], LOCAL_QUEUES, now=NOW)

    assert row.job == "train"


def test_a_workload_that_is_waited_for_shows_its_preemptor_and_deadline() -> None:
    request = {
        "reason": "Preempted",
        "preemptor": "team/large",
        "requestedAt": "2001-09-09T01:46:00Z",
        "deadline": "2001-09-09T01:48:00Z",
        "reservedAt": "2001-09-09T01:00:00Z",
        "message": "Preempted to accommodate another",
    }
    saving = make_workload(
        "saving",
        ("QuotaReserved", TRUE, "", ""),
        ("Admitted", TRUE, "", ""),
        flavor="a100",
        annotations={"berth.dev/eviction": json.dumps(request)},
    )
    broken = make_workload(
        "broken",
        ("QuotaReserved", TRUE, "", ""),
        ("Admitted", TRUE, "", ""),
        flavor="a100",
        annotations={"berth.dev/eviction": "{"},
    )

    rows = {row.name: row for row in workload_rows([saving, broken], [], now=NOW)}

    assert rows["saving"].reason == "Preempted"
    assert rows["saving"].message == (
        "To be evicted for team/large once it has saved a checkpoint, at 2001-09-09T01:48:00Z at the latest: "
        "Preempted to accommodate another"
    )
    assert rows["broken"].message == "runs on a100"
