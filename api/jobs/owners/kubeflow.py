"""The rows of Kubeflow's kinds of the first generation (kubeflow.org): a pod set for each type of replica.

The training operator creates their pods itself, named `<job>-<type>-<number>`. The MPI operator does so for
the workers of an MPIJob, and creates a Job `<job>-launcher` for its launcher. Source: Kueue,
pkg/controller/jobs/kubeflow and mpijob; training-operator, pkg/controller.v1/common; mpi-operator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from api import keys
from api.jobs.owners.conditions import ends_by, is_true
from api.jobs.owners.paths import Body, value_at
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet
from api.jobs.pod_template import Template

_GROUP = "kubeflow.org"
_INDEX = "training.kubeflow.org/replica-index"
_RUN_POLICY = ("spec", "runPolicy")
_PRIORITY_CLASS = (*_RUN_POLICY, "schedulingPolicy", "priorityClass")

PodSets = Callable[[Body], tuple[OwnerPodSet, ...]]


def _kind(kind: str, specs: str, *types: str, version: str = "v1", owns: Any = None, **row: Any) -> OwnerKind:
    """Return the row of a kind whose replicas of these types are in the field `specs`, in Kueue's order.

    `row` are more fields of the row.
    """

    def pod_sets(body: Body) -> tuple[OwnerPodSet, ...]:
        found = body["spec"][specs]
        return tuple(
            OwnerPodSet(
                name=type_.lower(),
                count=1 if found[type_].get("replicas") is None else found[type_]["replicas"],
                template=found[type_]["template"],
                at=("spec", specs, type_, "template"),
                index_label=_INDEX,
            )
            for type_ in types
            if found.get(type_) is not None
        )

    return OwnerKind(
        kind=kind,
        group=_GROUP,
        version=version,
        plural=f"{kind.lower()}s",
        framework=f"{_GROUP}/{kind.lower()}",
        pod_sets=pod_sets,
        active=_active,
        outcome=ends_by(success="Succeeded", failure="Failed"),
        are_pods_ready=lambda body: is_true(body, "Running"),
        suspend=(*_RUN_POLICY, "suspend"),
        priority_class=_PRIORITY_CLASS,
        counts=lambda body, child: (owns or _is_pod_of)(pod_sets(body), body, child),
        owns_pods=True,
        **row,
    )


def _active(body: Body) -> int:
    statuses: Body = value_at(body, ("status", "replicaStatuses")) or {}
    return sum(one.get("active") or 0 for one in statuses.values())


def _is_pod_of(pod_sets: tuple[OwnerPodSet, ...], body: Body, child: Child) -> bool:
    """Return whether the operator may have created a pod: its name is that of a replica, and it asks no more.

    Anyone who may create pods can name any owner. There are no more pods of these names than the Workload
    counts, because a name is taken once.
    """
    if child.kind != "Pod":
        return False
    name = body["metadata"]["name"]
    return any(_is_replica(child, f"{name}-{one.name}-", one, pods=child.body) for one in pod_sets)


def _is_replica(child: Child, prefix: str, one: OwnerPodSet, *, pods: Template) -> bool:
    number = re.fullmatch(r"0|[1-9]\d*", child.name.removeprefix(prefix))
    is_named = child.name.startswith(prefix) and number is not None and int(number[0]) < one.count
    return is_named and child.requests_no_more(pods, one.template)


def _is_part_of_mpi_job(pod_sets: tuple[OwnerPodSet, ...], body: Body, child: Child) -> bool:
    """Return the same for an MPIJob, whose launcher is a Job of a single pod."""
    if child.kind != "Job":
        return _is_pod_of(pod_sets, body, child)
    spec = child.body["spec"]
    is_single = max(spec.get("parallelism") or 1, spec.get("completions") or 1) == 1
    return (
        is_single
        and child.name == f"{body['metadata']['name']}-launcher"
        and any(
            one.name == "launcher" and child.requests_no_more(spec["template"], one.template)
            for one in pod_sets
        )
    )


def _mpi_additions(body: Body) -> Mapping[tuple[str, ...], object]:
    """Return that the workers are numbered from 1, because the launcher is number 0 of them.

    Where the two are placed together, the launcher comes first anyway. Source: Kueue, the webhook of MPIJobs.
    """
    replicas: Body = value_at(body, ("spec", "mpiReplicaSpecs")) or {}
    launcher, worker = replicas.get("Launcher"), replicas.get("Worker")
    if not value_at(body, ("spec", "runLauncherAsWorker")) or launcher is None or worker is None:
        return {}
    if keys.POD_SET_GROUP in (value_at(launcher, ("template", "metadata", "annotations")) or {}):
        return {}
    metadata: Body = value_at(worker, ("template", "metadata")) or {}
    annotations = {**(metadata.get("annotations") or {}), keys.POD_INDEX_OFFSET: "1"}
    path = ("spec", "mpiReplicaSpecs", "Worker", "template", "metadata")
    return {path: {**metadata, "annotations": annotations}}


PYTORCH_JOB = _kind("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker")
TF_JOB = _kind("TFJob", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator")
XGBOOST_JOB = _kind("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker")
PADDLE_JOB = _kind("PaddleJob", "paddleReplicaSpecs", "Master", "Worker")
JAX_JOB = _kind("JAXJob", "jaxReplicaSpecs", "Worker")
MPI_JOB = _kind(
    "MPIJob",
    "mpiReplicaSpecs",
    "Launcher",
    "Worker",
    version="v2beta1",
    owns=_is_part_of_mpi_job,
    additions=_mpi_additions,
)
