"""The rows of Kubeflow's kinds: their pod sets in Kueue's order, and which pods are theirs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from api import keys
from api.jobs.owners.kubeflow import MPI_JOB, PYTORCH_JOB, TF_JOB
from api.jobs.owners.owner import counts
from api.jobs.owners.paths import value_at
from api.jobs.owners.row import Child, OwnerKind
from tests.owners import SAMPLES, OwnerSample

Object = dict[str, Any]


def sample_of(row: OwnerKind) -> OwnerSample:
    """Return the sample of a kind."""
    (found,) = (one for one in SAMPLES if one.row is row)
    return found


def pod(name: str, cpu: str = "1", *, init: str = "") -> Child:
    """Return a pod as the operator creates it, which requests `cpu`; `init` is that of its first step."""
    spec: Object = {"containers": [{"name": "c", "resources": {"limits": {"cpu": cpu}}}]}
    if init:
        spec["initContainers"] = [{"name": "init-pytorch", "resources": {"requests": {"cpu": init}}}]
    return Child(kind="Pod", name=name, body={"metadata": {"name": name}, "spec": spec})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(pod("j-master-0"), True, id="the master"),
        pytest.param(pod("j-worker-1"), True, id="the last worker"),
        pytest.param(pod("j-worker-2"), False, id="one worker too many"),
        pytest.param(pod("j-worker-0", "2"), False, id="one that requests more"),
        pytest.param(pod("j-worker-0", "500m"), True, id="one that requests less"),
        pytest.param(pod("j-worker-0", init="100m"), True, id="the operator's own first step"),
        pytest.param(pod("j-worker-0", init="4"), False, id="a first step that requests more"),
        pytest.param(pod("j-ps-0"), False, id="a type that it has not"),
        pytest.param(pod("k-worker-0"), False, id="the name of another's pod"),
        pytest.param(Child(kind="Job", name="j-worker-0", body={}), False, id="a Job"),
        pytest.param(Child(kind="Pod", name="j-worker-0", body={"spec": 7}), False, id="what is no pod"),
    ],
)
def test_a_pod_is_counted_if_the_operator_may_have_created_it(one: Child, want: bool) -> None:
    assert counts(PYTORCH_JOB, sample_of(PYTORCH_JOB).object(), one) is want


def mpi_job(*, as_worker: bool = True, group: str = "", launcher: bool = True) -> Object:
    """Return an MPIJob whose launcher is a worker too, unless it is said otherwise."""
    body = sample_of(MPI_JOB).object()
    body["spec"]["runLauncherAsWorker"] = as_worker
    replicas = body["spec"]["mpiReplicaSpecs"]
    if group:
        replicas["Launcher"]["template"]["metadata"]["annotations"] = {keys.POD_SET_GROUP: group}
    if not launcher:
        del replicas["Launcher"]
    return body


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(mpi_job(), True, id="its launcher is worker 0"),
        pytest.param(mpi_job(as_worker=False), False, id="its launcher is no worker"),
        pytest.param(mpi_job(launcher=False), False, id="it has no launcher"),
        pytest.param(mpi_job(group="both"), False, id="both are placed together"),
    ],
)
def test_the_workers_of_a_new_mpi_job_are_numbered_after_its_launcher(body: Object, want: bool) -> None:
    path = ("spec", "mpiReplicaSpecs", "Worker", "template", "metadata")
    metadata = value_at(body, path) or {}
    annotations = {**metadata.get("annotations", {}), keys.POD_INDEX_OFFSET: "1"}

    assert MPI_JOB.additions(body) == ({path: {**metadata, "annotations": annotations}} if want else {})


def launcher(name: str = "j-launcher", cpu: str = "1", **spec: Any) -> Child:
    """Return a Job as the MPI operator creates it for the launcher."""
    return Child(kind="Job", name=name, body={"spec": {"template": pod("p", cpu).body, **spec}})


@pytest.mark.parametrize(
    ("one", "want"),
    [
        pytest.param(launcher(), True, id="the Job of the launcher"),
        pytest.param(launcher(parallelism=2, completions=2), False, id="one of two pods"),
        pytest.param(launcher(cpu="2"), False, id="one that requests more"),
        pytest.param(launcher("j-launcher-0"), False, id="a Job of another name"),
        pytest.param(pod("j-worker-1"), True, id="a worker"),
        pytest.param(pod("j-worker-2"), False, id="one worker too many"),
    ],
)
def test_the_launcher_of_an_mpi_job_is_a_job_and_its_workers_are_pods(one: Child, want: bool) -> None:
    assert counts(MPI_JOB, sample_of(MPI_JOB).object(), one) is want


def test_the_order_of_pod_sets_is_kueues_and_not_that_of_the_object() -> None:
    body = copy.deepcopy(sample_of(TF_JOB).object())
    specs = body["spec"]["tfReplicaSpecs"]
    body["spec"]["tfReplicaSpecs"] = {name: specs[name] for name in reversed(specs)}
    del body["spec"]["tfReplicaSpecs"]["Master"]
    body["spec"]["tfReplicaSpecs"]["PS"] = None

    assert [one.name for one in TF_JOB.pod_sets(body)] == ["chief", "worker", "evaluator"]


def test_replicas_that_are_absent_are_one() -> None:
    body = sample_of(PYTORCH_JOB).object()
    del body["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"]

    assert [one.count for one in PYTORCH_JOB.pod_sets(body)] == [1, 1]
