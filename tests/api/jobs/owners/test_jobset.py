"""The row of JobSet: what is its own, and what its pods are."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.owner import counts
from api.jobs.owners.row import Child
from tests.owners import SAMPLES

Object = dict[str, Any]
(SAMPLE,) = (one for one in SAMPLES if one.row is JOB_SET)


def child(name: str, **changes: Any) -> Child:
    """Return a Job as the controller creates it for a worker, with another name or spec."""
    spec = copy.deepcopy(SAMPLE.spec["replicatedJobs"][1]["template"]["spec"])
    return Child(kind=changes.pop("kind", "Job"), name=name, body={"spec": {**spec, **changes}})


def asking(cpu: str) -> Object:
    """Return the template of the workers with another request."""
    template: Object = copy.deepcopy(SAMPLE.spec["replicatedJobs"][1]["template"]["spec"]["template"])
    template["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return template


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(child("j-workers-0"), True, id="the first replica"),
        pytest.param(child("j-workers-1"), True, id="the last replica"),
        pytest.param(child("j-workers-2"), False, id="one replica too many"),
        pytest.param(child("j-workers-01"), False, id="a number that no controller writes"),
        pytest.param(child("j-workers-"), False, id="no number"),
        pytest.param(child("j-helpers-0"), False, id="a replicated Job that it does not have"),
        pytest.param(child("k-workers-0"), False, id="another JobSet's name"),
        pytest.param(child("j-workers-0", parallelism=4, completions=4), False, id="more pods"),
        pytest.param(child("j-workers-0", parallelism=2, completions=2), True, id="fewer pods"),
        pytest.param(child("j-workers-0", template=asking("9")), False, id="pods that request more"),
        pytest.param(child("j-workers-0", template=asking("1000m")), True, id="the same in other words"),
        pytest.param(child("j-workers-0", template={}), False, id="no template"),
        pytest.param(child("j-workers-0", kind="Pod"), False, id="a pod"),
        pytest.param(Child(kind="Job", name="j-workers-0", body={}), False, id="what cannot be read"),
    ],
)
def test_a_job_is_counted_if_its_controller_may_have_created_it(one: Child, want: bool) -> None:
    assert counts(JOB_SET, SAMPLE.object(), one) is want


def test_replicas_and_counts_that_are_absent_are_one() -> None:
    (pod_set,) = JOB_SET.pod_sets(
        {"spec": {"replicatedJobs": [{"name": "Main", "template": {"spec": {"template": {}}}}]}}
    )

    assert (pod_set.name, pod_set.count, pod_set.groups) == ("main", 1, 1)


def test_ranks_are_those_of_a_pod_in_its_job_and_of_its_job() -> None:
    _, workers = JOB_SET.pod_sets(SAMPLE.object())

    assert (workers.index_label, workers.group_label, workers.groups) == (
        "batch.kubernetes.io/job-completion-index",
        "jobset.sigs.k8s.io/job-index",
        2,
    )


def test_succeeded_jobs_beyond_its_replicas_give_nothing_back() -> None:
    body = SAMPLE.object()
    body["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 3}]}

    assert JOB_SET.reclaimable(body) == {}
