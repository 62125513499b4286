"""Objects of the kinds of the table of owners as users write them, for their real controllers to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from api.jobs.owners.appwrapper import APP_WRAPPER
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.kubeflow import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.owners.spark import SPARK_APPLICATION
from api.jobs.owners.trainjob import CLUSTER_RUNTIMES, TRAIN_JOB
from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object
from tests.integration.ray_network import SERVE_CONFIG, job_id

_ASKED = frozenset(os.environ.get("BERTH_KINDS", "").split(","))


def is_asked_for(kind: str, *, by_default: bool) -> bool:
    """Return whether this run tries a kind: one of BERTH_KINDS, else one that every run tries."""
    return by_default if {""} == _ASKED else bool(_ASKED & {"all", kind})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A kind, the controller that runs it, and a spec whose pods take `cpus` CPUs in all.

    `spec` is called with how long the pods run. `needs` are the kind and an object that it refers to.
    """

    row: OwnerKind
    controller: str
    spec: Callable[[float], Object]
    cpus: int
    pod_sets: Mapping[str, int] = field(default_factory=dict)
    needs: tuple[Source, Object] | None = None

    @property
    def has_end(self) -> bool:
        """Whether it ends by itself, and not only by its deletion."""
        return self.row not in (RAY_CLUSTER, RAY_SERVICE)

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of all in a namespace."""
        row = self.row
        collection = f"/apis/{row.group}/{row.version}/namespaces/{namespace}/{row.plural}"
        return f"{collection}/{name}" if name else collection

    def object(self, name: str, seconds: float, **labels: str) -> Object:
        """Return an object in queue main, as a user writes it: nothing says that it is to be suspended."""
        return {
            "apiVersion": self.row.api_version,
            "kind": self.row.kind,
            "metadata": {"name": name, "labels": {QUEUE_NAME: "main", **labels}},
            "spec": self.spec(seconds),
        }


def template(seconds: float, name: str = "main") -> Object:
    """Return a pod template that takes one CPU and runs for so long on a simulated node."""
    container = {"name": name, "image": "none", "resources": {"requests": {"cpu": 1}}}
    return {
        "metadata": {"annotations": {RUNTIME: f"{seconds:g}"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _jobset(seconds: float) -> Object:
    def replicated(name: str, replicas: int, pods: int) -> Object:
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(seconds)}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 1)]}


def _trainjob(seconds: float) -> Object:
    # A user's own patch of the runtime: it is as long as the test wants.
    pod = {"metadata": {"annotations": {RUNTIME: f"{seconds:g}"}}}
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}}]
    patch = {
        "manager": "example.com/tests",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
    return {"runtimeRef": {"name": "plain"}, "trainer": {"numNodes": 2}, "runtimePatches": [patch]}


def _runtime() -> Object:
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    spec = {"backoffLimit": 0, "template": template(LONG, "node")}
    job = {"name": "node", "template": {"metadata": {"labels": step}, "spec": spec}}
    return {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": CLUSTER_RUNTIMES.kind,
        "metadata": {"name": "plain"},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }


def _of_kubeflow(specs: str, container: str, **counts: int) -> Callable[[float], Object]:
    """Return how a spec of Kubeflow's kinds is written. The operator knows its container by its name."""

    def spec(seconds: float) -> Object:
        one = {"restartPolicy": "Never", "template": template(seconds, container)}
        return {
            "runPolicy": {},
            specs: {type_: {"replicas": count, **one} for type_, count in counts.items()},
        }

    return spec


def _ray_cluster(seconds: float) -> Object:
    group = {"rayStartParams": {}, "template": template(seconds)}
    workers = {"groupName": "small", "replicas": 2, "minReplicas": 2, "maxReplicas": 2, **group}
    return {"rayVersion": "2.9.0", "headGroupSpec": group, "workerGroupSpecs": [workers]}


def _ray_service(seconds: float) -> Object:
    return {"serveConfigV2": SERVE_CONFIG, "rayClusterConfig": _ray_cluster(seconds)}


def _ray_job(seconds: float) -> Object:
    return {
        "jobId": job_id(seconds),
        "entrypoint": "python train.py",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _ray_cluster(LONG),
        "submitterPodTemplate": template(seconds),
    }


def _spark_application(seconds: float) -> Object:
    role = {"coreRequest": "1", "annotations": {RUNTIME: f"{seconds:g}"}}
    return {
        "type": "Scala",
        "mode": "cluster",
        "sparkVersion": "4.0.0",
        "mainClass": "Main",
        "mainApplicationFile": "local:///main.jar",
        "driver": role,
        "executor": {**role, "instances": 2},
    }


def _app_wrapper(seconds: float) -> Object:
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template(seconds)}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "work-"}, "spec": spec}
    return {"components": [{"template": job}]}


MANIFESTS = (
    Manifest(row=JOB_SET, controller="jobset", spec=_jobset, cpus=3, pod_sets={"driver": 1, "workers": 2}),
    Manifest(
        row=TRAIN_JOB,
        controller="trainer",
        spec=_trainjob,
        cpus=2,
        pod_sets={"node": 2},
        needs=(CLUSTER_RUNTIMES, _runtime()),
    ),
    Manifest(
        row=PYTORCH_JOB,
        controller="training-operator",
        spec=_of_kubeflow("pytorchReplicaSpecs", "pytorch", Master=1, Worker=2),
        cpus=3,
        pod_sets={"master": 1, "worker": 2},
    ),
    Manifest(
        row=RAY_CLUSTER, controller="kuberay", spec=_ray_cluster, cpus=3, pod_sets={"head": 1, "small": 2}
    ),
    Manifest(row=APP_WRAPPER, controller="appwrapper", spec=_app_wrapper, cpus=2, pod_sets={"one-0": 2}),
)

_TRAINING = "training-operator"
# Those that BERTH_KINDS=all tries beside them, where their controllers have been built.
MORE_MANIFESTS = (
    Manifest(
        row=TF_JOB,
        controller=_TRAINING,
        spec=_of_kubeflow("tfReplicaSpecs", "tensorflow", Chief=1, PS=1, Worker=2),
        cpus=4,
        pod_sets={"chief": 1, "ps": 1, "worker": 2},
    ),
    Manifest(
        row=XGBOOST_JOB,
        controller=_TRAINING,
        spec=_of_kubeflow("xgbReplicaSpecs", "xgboost", Master=1, Worker=2),
        cpus=3,
        pod_sets={"master": 1, "worker": 2},
    ),
    Manifest(
        row=PADDLE_JOB,
        controller=_TRAINING,
        spec=_of_kubeflow("paddleReplicaSpecs", "paddle", Master=1, Worker=2),
        cpus=3,
        pod_sets={"master": 1, "worker": 2},
    ),
    Manifest(
        row=JAX_JOB,
        controller=_TRAINING,
        spec=_of_kubeflow("jaxReplicaSpecs", "jax", Worker=2),
        cpus=2,
        pod_sets={"worker": 2},
    ),
    Manifest(
        row=MPI_JOB,
        controller="mpi-operator",
        spec=_of_kubeflow("mpiReplicaSpecs", "mpi", Launcher=1, Worker=2),
        cpus=3,
        pod_sets={"launcher": 1, "worker": 2},
    ),
    Manifest(
        row=RAY_JOB,
        controller="kuberay",
        spec=_ray_job,
        cpus=4,
        pod_sets={"head": 1, "small": 2, "submitter": 1},
    ),
    Manifest(
        row=RAY_SERVICE, controller="kuberay", spec=_ray_service, cpus=3, pod_sets={"head": 1, "small": 2}
    ),
    Manifest(
        row=SPARK_APPLICATION,
        controller="spark-operator",
        spec=_spark_application,
        cpus=3,
        pod_sets={"driver": 1, "executor": 2},
    ),
)
