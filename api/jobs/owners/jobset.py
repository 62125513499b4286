"""The row of JobSet (jobset.x-k8s.io): a set of replicated Jobs, each of which is one pod set.

Its controller creates a Job for each replica, named `<JobSet>-<replicated Job>-<number>`. Those belong to the
Workload of the JobSet. Source: Kueue, pkg/controller/jobs/jobset; JobSet, pkg/controllers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from api import keys
from api.jobs.owners.conditions import ends_by
from api.jobs.owners.paths import Body, value_at
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet

_JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def pod_sets(body: Body) -> tuple[OwnerPodSet, ...]:
    """Return a pod set for each replicated Job: the pods of all of its replicas."""
    return tuple(
        OwnerPodSet(
            name=one["name"].lower(),
            count=_replicas(one) * pods_of_job(one["template"]["spec"]),
            template=one["template"]["spec"]["template"],
            at=("spec", "replicatedJobs", index, "template", "spec", "template"),
            index_label=keys.COMPLETION_INDEX,
            group_label=_JOB_INDEX,
            groups=_replicas(one),
        )
        for index, one in enumerate(_replicated_jobs(body))
    )


def pods_of_job(spec: Body) -> int:
    """Return how many pods of a Job with this spec run concurrently."""
    parallelism: int = _or(spec.get("parallelism"), 1)
    completions: int = _or(spec.get("completions"), parallelism)
    return min(parallelism, completions)


def active(body: Body) -> int:
    """Return how many Jobs have active pods."""
    return sum(one.get("active") or 0 for one in _statuses(body))


def are_pods_ready(body: Body) -> bool:
    """Return whether each Job has all of its pods ready, or has succeeded."""
    ready = sum((one.get("ready") or 0) + (one.get("succeeded") or 0) for one in _statuses(body))
    return ready == sum(_replicas(one) for one in _replicated_jobs(body))


def reclaimable(body: Body) -> Mapping[str, int]:
    """Return the pods of those Jobs that have succeeded: none is created for them again."""
    succeeded = {one["name"]: one.get("succeeded") or 0 for one in _statuses(body)}
    return {
        one["name"].lower(): done * pods_of_job(one["template"]["spec"])
        for one in _replicated_jobs(body)
        # More than there are would come from another version of the spec.
        if 0 < (done := succeeded.get(one["name"], 0)) <= _replicas(one)
    }


def counts(body: Body, child: Child) -> bool:
    """Return whether a Job may be one that the controller has created for this JobSet.

    The API server verifies no owner, so anyone who may create Jobs can name the JobSet. The name of the Job
    must be that of a replica, so that there are no more of them than the Workload has pods for, and its pods
    must be no more and request no more.
    """
    name = value_at(body, ("metadata", "name"))
    if child.kind != "Job" or not child.name.startswith(f"{name}-"):
        return False
    for one in _replicated_jobs(body):
        number = re.fullmatch(r"0|[1-9]\d*", child.name.removeprefix(f"{name}-{one['name']}-"))
        if number is not None and int(number[0]) < _replicas(one):
            theirs, ours = child.body["spec"], one["template"]["spec"]
            is_small = pods_of_job(theirs) <= pods_of_job(ours)
            return is_small and child.requests_no_more(theirs["template"], ours["template"])
    return False


def _replicated_jobs(body: Body) -> list[Body]:
    found: list[Body] | None = value_at(body, ("spec", "replicatedJobs"))
    return found or []


def _statuses(body: Body) -> list[Body]:
    found: list[Body] | None = value_at(body, ("status", "replicatedJobsStatus"))
    return found or []


def _replicas(replicated: Body) -> int:
    # The API server fills in 1 where it is absent.
    replicas: int = _or(replicated.get("replicas"), 1)
    return replicas


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


JOB_SET = OwnerKind(
    kind="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    framework="jobset.x-k8s.io/jobset",
    pod_sets=pod_sets,
    active=active,
    outcome=ends_by(success="Completed", failure="Failed"),
    are_pods_ready=are_pods_ready,
    reclaimable=reclaimable,
    counts=counts,
)
