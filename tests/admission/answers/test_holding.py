"""What is shown of a Workload that holds quota."""

from __future__ import annotations

from typing import Any

import pytest

from admission.answers.holding import AdmissionView, holding_json, holding_lines, holding_of
from admission.decisions.decision import Admit
from admission.reconcile.decision_writes import admit_write
from api.keys import PLANNED_START
from api.parsing.times import to_rfc3339
from api.workload import Admission, Condition, PodSetAssignment, Workload
from queues.estimates.runtime_estimate import Estimate, Source
from tests.builders import make_workload

# 2027-01-15T08:00:00Z.
T = 1_800_000_000.0
ADMISSION = Admission(
    cluster_queue="cq",
    pod_sets=(PodSetAssignment(name="main", count=2, flavors={"gpu": "a100"}, usage={"gpu": 16}),),
)


def make_holding(workload: Workload | None = None, estimate: Estimate | None = None) -> AdmissionView:
    return holding_of(workload or running(), ADMISSION, estimate)


def running(*, message: str = "", is_admitted: bool = True, **fields: Any) -> Workload:
    """Return a Workload that got its quota at T and was admitted five seconds later."""
    conditions = {
        "QuotaReserved": Condition(type="QuotaReserved", status=True, message=message, at=T),
        "Admitted": Condition(type="Admitted", status=is_admitted, at=T + 5),
    }
    return make_workload("w", conditions=conditions, **fields)


def lines(holding: AdmissionView, *, after: float = 65.0) -> list[str]:
    return list(holding_lines(holding, now=T + after))


@pytest.mark.parametrize(
    ("holding", "want"),
    [
        pytest.param(
            make_holding(estimate=Estimate(seconds=3600, source=Source.DECLARED)),
            [
                "runs since 2027-01-15T08:00:05Z (60 s)",
                "is expected to end at 2027-01-15T09:00:05Z, by berth.dev/expected-runtime-seconds",
            ],
            id="it runs, and has said for how long",
        ),
        pytest.param(
            make_holding(estimate=Estimate(seconds=30, source=Source.LEARNED)),
            [
                "runs since 2027-01-15T08:00:05Z (60 s)",
                "was expected to end at 2027-01-15T08:00:35Z, by what earlier runs took",
            ],
            id="it runs longer than was expected",
        ),
        pytest.param(
            make_holding(estimate=Estimate(seconds=3600, source=Source.JOB_DEADLINE)),
            [
                "runs since 2027-01-15T08:00:05Z (60 s)",
                "is stopped at 2027-01-15T09:00:05Z at the latest, by its Job's activeDeadlineSeconds",
            ],
            id="its limit is enforced",
        ),
        pytest.param(
            make_holding(),
            ["runs since 2027-01-15T08:00:05Z (60 s)", "its run time is unknown"],
            id="its run time is unknown",
        ),
        pytest.param(
            make_holding(running(is_admitted=False), Estimate(seconds=60, source=Source.DECLARED)),
            ["has quota, and waits for its admission checks, since 2027-01-15T08:00:00Z (65 s)"],
            id="its checks are outstanding, so that no end is known",
        ),
        pytest.param(
            make_holding(running(message="Quota reserved in ClusterQueue cq, on a backfill lease")),
            [
                "runs since 2027-01-15T08:00:05Z (60 s)",
                "its run time is unknown",
                "on a backfill lease: it is evicted if a promised start needs its capacity"
                " after its time is up",
            ],
            id="it runs ahead of a promised one",
        ),
    ],
)
def test_the_lines_of_a_workload_that_holds_quota(holding: AdmissionView, want: list[str]) -> None:
    assert lines(holding) == want


@pytest.mark.parametrize(
    ("promised", "want"),
    [
        pytest.param(to_rfc3339(T), "promised to start at 2027-01-15T08:00:00Z, and did", id="kept"),
        pytest.param(to_rfc3339(T - 90), "at 2027-01-15T07:58:30Z, and did 90 s later", id="broken"),
        pytest.param(to_rfc3339(T + 90), "at 2027-01-15T08:01:30Z, and did 90 s sooner", id="beaten"),
        pytest.param("tomorrow", "", id="it was overwritten"),
    ],
)
def test_a_promise_is_compared_with_the_start(promised: str, want: str) -> None:
    shown = lines(make_holding(running(annotations={PLANNED_START: promised})))

    assert [line.endswith(want) for line in shown if "promised" in line] == [True] * bool(want)


def test_the_json_shows_the_same() -> None:
    found = holding_json(make_holding(estimate=Estimate(seconds=60, source=Source.DECLARED)))

    assert found == {
        "since": "2027-01-15T08:00:05Z",
        "isAdmitted": True,
        "promisedStart": "",
        "expectedEnd": "2027-01-15T08:01:05Z",
        "estimateSource": "Declared",
        "isOnLease": False,
        "podSets": [{"name": "main", "count": 2, "flavors": {"gpu": "a100"}, "domains": []}],
    }


def test_the_object_itself_says_that_it_runs_on_a_lease() -> None:
    raw = b'{"metadata": {"name": "w", "namespace": "team", "uid": "u", "resourceVersion": "7"}}'
    admit = Admit(
        key=make_workload("w").key,
        uid="u",
        resource_version="7",
        admission=ADMISSION,
        is_admitted=True,
        on_lease=True,
    )

    write = admit_write(admit, raw, now=T)

    assert b'"message":"Quota reserved in ClusterQueue cq, on a backfill lease"' in write.body
    assert write.events[0].note.endswith("wait time since queued was 0s, on a backfill lease")
