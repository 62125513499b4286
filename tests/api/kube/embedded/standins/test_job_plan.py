"""The decisions of the simulated Job controller, as tables: from a Job and its pods to the next steps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.keys import COMPLETION_INDEX
from api.kube.embedded.standins.job_plan import Tally, index_ranges, plan_job
from api.kube.embedded.standins.objects import (
    Job,
    JobSpec,
    JobStatus,
    Pod,
    PodMeta,
    PodStatus,
)
from api.objects.common import Meta, WireCondition

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BEGAN = "2026-01-01T11:00:00Z"


def make_job(*, spec: Mapping[str, Any] | None = None, conditions: str = "", **status: Any) -> Job:
    found = tuple(WireCondition(type=type_, status="True") for type_ in conditions.split())
    return Job(
        metadata=Meta(name="j", namespace="n", uid="u"),
        spec=JobSpec(**({"completions": 1} | dict(spec or {}))),
        status=JobStatus(**({"conditions": found or None} | status)),
    )


def make_pod(name: str, phase: str = "Running", *, index: int | None = None, leaving: bool = False) -> Pod:
    annotations = {} if index is None else {COMPLETION_INDEX: str(index)}
    ready = (WireCondition(type="Ready", status="True"),) if phase == "Running" else ()
    return Pod(
        metadata=PodMeta(
            name=name,
            namespace="n",
            uid=f"uid-{name}",
            annotations=annotations,
            creation_timestamp=BEGAN,
            deletion_timestamp=BEGAN if leaving else None,
        ),
        status=PodStatus(phase=phase, conditions=ready),
    )


INDEXED = {"completion_mode": "Indexed", "completions": 4, "parallelism": 2}


@pytest.mark.parametrize(
    ("job", "pods", "want"),
    [
        pytest.param(make_job(), [], (None,), id="a new Job gets its pod"),
        pytest.param(
            make_job(spec={"completions": 5, "parallelism": 3}),
            [],
            (None,) * 3,
            id="as many as run in parallel",
        ),
        pytest.param(
            make_job(spec={"completions": 3, "parallelism": 3}),
            [make_pod("a", "Succeeded"), make_pod("b")],
            (None,),
            id="no more than are still to succeed",
        ),
        pytest.param(
            make_job(spec={"completions": None, "parallelism": 3}),
            [make_pod("a", "Succeeded"), make_pod("b")],
            (),
            id="a work queue that had one success gets no new pods",
        ),
        pytest.param(make_job(spec=INDEXED), [], (0, 1), id="an Indexed Job begins with the lowest indexes"),
        pytest.param(
            make_job(spec=INDEXED),
            [make_pod("a", "Succeeded", index=0), make_pod("b", index=2)],
            (1,),
            id="an Indexed Job fills the gap",
        ),
        pytest.param(
            make_job(spec={"completions": 2, "parallelism": 2}),
            [make_pod("a"), make_pod("b", leaving=True)],
            (None,),
            id="a pod that leaves is replaced at once",
        ),
        pytest.param(make_job(spec={"suspend": True}), [], (), id="a suspended Job gets none"),
        pytest.param(make_job(conditions="Complete"), [], (), id="a complete Job gets none"),
    ],
)
def test_which_pods_are_made(job: Job, pods: list[Pod], want: tuple[int | None, ...]) -> None:
    assert plan_job(job, pods, Tally(), now=NOW).create == want


@pytest.mark.parametrize(
    ("job", "pods", "want"),
    [
        pytest.param(
            make_job(spec={"suspend": True}, start_time=BEGAN),
            [make_pod("a"), make_pod("b", "Succeeded"), make_pod("c", leaving=True)],
            ["a"],
            id="suspending stops what is active",
        ),
        pytest.param(
            make_job(spec={"completions": 3, "parallelism": 1}),
            [make_pod("a"), make_pod("b")],
            ["b"],
            id="less parallelism stops the youngest",
        ),
        pytest.param(
            make_job(spec=INDEXED),
            [make_pod("a", index=0), make_pod("b", index=0), make_pod("c", index=1)],
            ["b"],
            id="a second pod of an index is stopped",
        ),
        pytest.param(
            make_job(conditions="FailureTarget", start_time=BEGAN),
            [make_pod("a")],
            ["a"],
            id="failing stops all",
        ),
        pytest.param(
            make_job(spec={"active_deadline_seconds": 60}, start_time=BEGAN),
            [make_pod("a")],
            ["a"],
            id="a deadline that has passed stops all",
        ),
    ],
)
def test_which_pods_are_stopped(job: Job, pods: list[Pod], want: list[str]) -> None:
    assert [pod.metadata.name for pod in plan_job(job, pods, Tally(), now=NOW).stop] == want


def conditions_of(status: Mapping[str, Any] | None) -> set[tuple[str, str]]:
    return {(each.type, each.status) for each in (status or {}).get("conditions", ())}


def test_a_running_job_counts_its_pods() -> None:
    job = make_job(spec={"completions": 5, "parallelism": 3})
    pods = [make_pod("a", "Pending"), make_pod("b"), make_pod("c", "Succeeded")]

    status = plan_job(job, pods, Tally(), now=NOW).status

    assert status == {"active": 3, "ready": 1, "succeeded": 1, "startTime": "2026-01-01T12:00:00Z"}


def test_a_job_whose_status_is_right_is_not_written() -> None:
    job = make_job(spec={"completions": 1}, active=1, ready=1, start_time=BEGAN)

    assert plan_job(job, [make_pod("a")], Tally(), now=NOW).status is None


def test_the_last_success_completes_the_job() -> None:
    job = make_job(start_time=BEGAN, active=1)

    status = plan_job(job, [make_pod("a", "Succeeded")], Tally(), now=NOW).status or {}

    assert conditions_of(status) == {("SuccessCriteriaMet", "True"), ("Complete", "True")}
    assert status["completionTime"] == "2026-01-01T12:00:00Z"
    assert status["active"] == 0


def test_a_job_that_was_suspended_as_it_ended_is_complete() -> None:
    job = make_job(spec={"suspend": True}, start_time=BEGAN)

    status = plan_job(job, [make_pod("a", "Succeeded")], Tally(), now=NOW).status

    assert ("Complete", "True") in conditions_of(status)


def test_a_job_is_not_over_while_a_pod_still_leaves() -> None:
    job = make_job(start_time=BEGAN)
    pods = [make_pod("a", "Succeeded"), make_pod("b", leaving=True)]

    status = plan_job(job, pods, Tally(released={"uid-b"}), now=NOW).status

    assert conditions_of(status) == {("SuccessCriteriaMet", "True")}


def test_one_failure_too_many_fails_the_job() -> None:
    job = make_job(spec={"backoff_limit": 1, "completions": 2}, start_time=BEGAN)
    pods = [make_pod("a", "Failed"), make_pod("b", "Failed")]

    status = plan_job(job, pods, Tally(), now=NOW).status or {}

    assert conditions_of(status) == {("FailureTarget", "True"), ("Failed", "True")}
    assert {each.reason for each in status["conditions"]} == {"BackoffLimitExceeded"}


def test_failing_waits_for_the_pods_to_end() -> None:
    job = make_job(spec={"backoff_limit": 0, "completions": 2, "parallelism": 2}, start_time=BEGAN)

    plan = plan_job(job, [make_pod("a", "Failed"), make_pod("b")], Tally(), now=NOW)

    assert conditions_of(plan.status) == {("FailureTarget", "True")}
    assert [pod.metadata.name for pod in plan.stop] == ["b"]


def test_suspending_clears_the_start_and_says_so() -> None:
    job = make_job(spec={"suspend": True}, start_time=BEGAN, active=1, ready=1)

    status = plan_job(job, [make_pod("a")], Tally(), now=NOW).status or {}

    assert status["startTime"] is None
    assert (status["active"], status["terminating"]) == (0, 1)
    assert conditions_of(status) == {("Suspended", "True")}


def test_pods_that_suspending_stopped_are_no_failures() -> None:
    job = make_job(spec={"suspend": True, "backoff_limit": 0}, conditions="Suspended")
    tally = Tally(released={"uid-a"})

    plan = plan_job(job, [make_pod("a", "Failed", leaving=True)], tally, now=NOW)

    assert plan.status is None


def test_resuming_counts_from_zero() -> None:
    job = make_job(conditions="Suspended")

    plan = plan_job(job, [], Tally(), now=NOW)

    assert conditions_of(plan.status) == {("Suspended", "False")}
    assert (plan.status or {})["startTime"] == "2026-01-01T12:00:00Z"
    assert plan.create == (None,)


@pytest.mark.parametrize(
    ("failures", "speed", "want"),
    [(1, 1.0, 10.0), (2, 1.0, 20.0), (9, 1.0, 600.0), (2, 10.0, 2.0)],
    ids=["ten seconds first", "doubled by each failure", "ten minutes at most", "divided by the speed"],
)
def test_a_replacement_waits_after_a_failure(failures: int, speed: float, want: float) -> None:
    job = make_job(spec={"backoff_limit": 99, "completions": 1}, start_time=BEGAN)
    pods = [make_pod(str(number), "Failed") for number in range(failures)]

    plan = plan_job(job, pods, Tally(last_failure=NOW), now=NOW, speed=speed)

    assert plan.create == ()
    assert plan.look_again_seconds == want


def test_a_deadline_is_looked_at_when_it_is_due() -> None:
    job = make_job(spec={"active_deadline_seconds": 60}, start_time=BEGAN)
    began = datetime.fromisoformat(BEGAN)

    plan = plan_job(job, [make_pod("a")], Tally(), now=began + timedelta(seconds=20))

    assert plan.look_again_seconds == 40.0


@pytest.mark.parametrize(
    ("indexes", "want"),
    [((), ""), ((0,), "0"), ((0, 1), "0-1"), ((3, 0, 2, 5), "0,2-3,5")],
    ids=["none", "one", "neighbours are a range", "gaps stay gaps"],
)
def test_completed_indexes_are_shown_as_ranges(indexes: tuple[int, ...], want: str) -> None:
    assert index_ranges(indexes) == want


def test_a_deadline_beyond_all_dates_is_as_good_as_none() -> None:
    job = make_job(spec={"active_deadline_seconds": 2**63 - 1}, start_time=BEGAN)

    plan = plan_job(job, [make_pod("a")], Tally(), now=NOW)

    assert (plan.create, plan.stop) == ((), ())
    assert plan.look_again_seconds is not None
    assert plan.look_again_seconds > 10 * 366 * 86_400
