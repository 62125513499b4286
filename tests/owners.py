"""One object of each kind of the table of owners, and the statuses that its own controller gives it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.config.external import external_kinds
from api.config.loading import load_config
from api.jobs.owners.appwrapper import APP_WRAPPER
from api.jobs.owners.external import row_of
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.kubeflow import JAX_JOB, MPI_JOB, PADDLE_JOB, PYTORCH_JOB, TF_JOB, XGBOOST_JOB
from api.jobs.owners.paths import Path, replaced
from api.jobs.owners.ray import RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import OwnerKind, Source
from api.jobs.owners.spark import SPARK_APPLICATION
from api.jobs.owners.trainjob import TRAIN_JOB

Object = dict[str, Any]

UID = "owner-uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerSample:
    """An object of a kind. `spec` is complete but for suspend; `pod_sets` are its pod sets by name.

    The statuses: `running` with pods that are not ready, `ready` with all of them, `stopped` after a stop,
    `succeeded` and `failed` at its end, with these `messages`; None for a kind that has no end.
    `partly`: some pods of `reclaimable` are needed no longer. `cpu_at` is where the first pod set's request
    of CPU is, for a kind whose pods have no templates.
    """

    row: OwnerKind
    spec: Object
    pod_sets: Mapping[str, int]
    running: Object
    ready: Object
    stopped: Object
    succeeded: Object | None
    failed: Object | None
    messages: tuple[str, str] = ("why", "why")
    partly: Object = field(default_factory=dict)
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    runtime: Object = field(default_factory=dict)
    cpu_at: Path = ()

    def edited(self, obj: Object, edit: Callable[[Object], None], pod_set: int = 0) -> Object:
        """Return the object with the template of a pod set edited, as its author would."""
        one = self.row.pod_sets(obj)[pod_set]
        template = copy.deepcopy(dict(one.template))
        edit(template)
        return dict(self.row.with_template(obj, one, template))

    def with_cpu(self, obj: Object, cpu: str) -> Object:
        """Return the object with another request of CPU in the first pod set."""
        (first, *_) = self.row.pod_sets(obj)
        at = self.cpu_at or (*first.at, "spec", "containers", 0, "resources", "requests", "cpu")
        return dict(replaced(obj, at, cpu))

    def read(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return the object that the sample refers to for what its pods are."""
        del namespace
        is_meant = (kind, name) == (
            self.runtime.get("kind"),
            (self.runtime.get("metadata") or {}).get("name"),
        )
        return self.runtime if is_meant else None

    def templates_of(self, obj: Object) -> dict[str, Object]:
        """Return the pod templates of an object by pod set, as they are started."""
        if self.row.templates is None:
            return {one.name: dict(one.template) for one in self.row.pod_sets(obj)}
        (own,) = obj["spec"]["runtimePatches"]
        jobs = own["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
        return {one["name"]: one["template"]["spec"]["template"] for one in jobs}

    def object(self, *, suspend: bool = True, **metadata: Any) -> Object:
        """Return the object in queue lq, as the API server would show it after its creation."""
        labels = {"kueue.x-k8s.io/queue-name": "lq", **metadata.pop("labels", {})}
        spec = copy.deepcopy(self.spec)
        *parents, last = self.row.suspend[1:]
        inner = spec
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = suspend
        return {
            "apiVersion": self.row.api_version,
            "kind": self.row.kind,
            "metadata": {
                "name": "j",
                "namespace": "team",
                "uid": UID,
                "resourceVersion": "1",
                "labels": {key: value for key, value in labels.items() if value is not None},
                **metadata,
            },
            "spec": spec,
            "status": {},
        }


def template(name: str, cpu: str = "1", **spec: Any) -> Object:
    """Return a pod template with a label, a node selector and a toleration of its author's."""
    return {
        "metadata": {"labels": {"team": "a"}, "annotations": {"note": name}},
        "spec": {
            "containers": [{"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}}],
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "own", "operator": "Exists"}],
            **spec,
        },
    }


def condition(type_: str, message: str = "why") -> Object:
    """Return a condition that is True."""
    return {"type": type_, "status": "True", "reason": "r", "message": message}


def bare_template(name: str) -> Object:
    """Return a pod template with nothing but a container."""
    return {"spec": {"containers": [{"name": name, "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}


def _replicated(name: str, replicas: int, pods: int) -> Object:
    own = bare_template(name) if name == "driver" else template(name)
    spec = {"parallelism": pods, "completions": pods, "template": own}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def _jobset_status(driver: Object, workers: Object, *conditions: Object) -> Object:
    statuses = [{"name": "driver", **driver}, {"name": "workers", **workers}]
    return {"replicatedJobsStatus": statuses, "conditions": list(conditions)}


def _of_kubeflow(row: OwnerKind, specs: str, *types: str) -> OwnerSample:
    """Return a sample with one pod of the first type and two of the others."""
    pods = {type_: 2 if index else 1 for index, type_ in enumerate(types)}

    def status(*conditions: Object, active: int = 0) -> Object:
        replicas = {type_: {"active": active and count} for type_, count in pods.items()}
        return {"replicaStatuses": replicas, "conditions": list(conditions)}

    return OwnerSample(
        row=row,
        spec={
            "runPolicy": {"cleanPodPolicy": "All"},
            specs: {
                type_: {"replicas": count, "restartPolicy": "Never", "template": template(type_.lower())}
                for type_, count in pods.items()
            },
        },
        pod_sets={type_.lower(): count for type_, count in pods.items()},
        running=status(condition("Created"), active=1),
        ready=status(condition("Created"), condition("Running"), active=1),
        stopped=status(condition("Suspended")),
        succeeded=status(condition("Succeeded")),
        failed=status(condition("Failed")),
    )


def _ray_cluster() -> Object:
    """Return the specification of a RayCluster with a head and two groups of workers."""
    groups = [("small", 2, 1), ("wide", 1, 3)]
    return {
        "rayVersion": "2.9.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template("head")},
        "workerGroupSpecs": [
            {
                "groupName": name,
                "replicas": replicas,
                "minReplicas": 0,
                "maxReplicas": 10,
                "numOfHosts": hosts,
                "rayStartParams": {},
                "template": template(name),
            }
            for name, replicas, hosts in groups
        ],
    }


_RAY_PODS = {"head": 1, "small": 2, "wide": 3}


def _ray_job_status(deployment: str, state: str = "", job: str = "") -> Object:
    status = {
        "jobDeploymentStatus": deployment,
        "rayClusterName": "j-x7k2p",
        "jobStatus": job,
        "message": "why",
    }
    return {**status, "rayClusterStatus": {"state": state}}


_RAY_SAMPLES = (
    OwnerSample(
        row=RAY_CLUSTER,
        spec=_ray_cluster(),
        pod_sets=_RAY_PODS,
        running={"state": "", "availableWorkerReplicas": 1},
        ready={"state": "ready", "availableWorkerReplicas": 3},
        stopped={
            "state": "suspended",
            "availableWorkerReplicas": 0,
            "conditions": [condition("RayClusterSuspended")],
        },
        succeeded=None,
        failed=None,
    ),
    OwnerSample(
        row=RAY_JOB,
        spec={
            "entrypoint": "python train.py",
            "submissionMode": "K8sJobMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": _ray_cluster(),
            "submitterPodTemplate": template("submitter"),
        },
        pod_sets={**_RAY_PODS, "submitter": 1},
        running=_ray_job_status("Initializing"),
        ready=_ray_job_status("Running", "ready", "RUNNING"),
        stopped=_ray_job_status("Suspended"),
        succeeded=_ray_job_status("Complete", "ready", "SUCCEEDED"),
        failed=_ray_job_status("Failed", "", "FAILED"),
    ),
    OwnerSample(
        row=RAY_SERVICE,
        spec={"serveConfigV2": "applications: []", "rayClusterConfig": _ray_cluster()},
        pod_sets=_RAY_PODS,
        running={"pendingServiceStatus": {"rayClusterStatus": {"availableWorkerReplicas": 1}}},
        ready={"conditions": [condition("Ready")]},
        stopped={"conditions": [], "activeServiceStatus": {"rayClusterStatus": {"state": "suspended"}}},
        succeeded=None,
        failed=None,
    ),
)


def _spark_sample() -> OwnerSample:
    """Return a sample whose driver and two executors have labels and places of their own."""
    role = {
        "coreRequest": "1",
        "labels": {"team": "a"},
        "annotations": {"note": "spark"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "own", "operator": "Exists"}],
    }

    def status(state: str, *executors: str) -> Object:
        names = {f"j-exec-{number}": one for number, one in enumerate(executors, 1)}
        return {"applicationState": {"state": state, "errorMessage": "why"}, "executorState": names}

    return OwnerSample(
        row=SPARK_APPLICATION,
        spec={
            "type": "Scala",
            "mode": "cluster",
            "sparkVersion": "4.0.0",
            "mainApplicationFile": "local:///main.jar",
            "driver": role,
            "executor": {**role, "instances": 2},
        },
        pod_sets={"driver": 1, "executor": 2},
        running=status("RUNNING", "RUNNING", "PENDING"),
        ready=status("RUNNING", "RUNNING", "RUNNING"),
        stopped=status("SUSPENDED"),
        succeeded=status("COMPLETED", "COMPLETED", "COMPLETED"),
        failed=status("FAILED", "FAILED", "FAILED"),
        cpu_at=("spec", "driver", "coreRequest"),
    )


def _app_wrapper() -> OwnerSample:
    """Return a sample with a Job of two pods, and an object that declares where its pods are."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "work"},
        "spec": {"parallelism": 2, "completions": 3, "template": template("work")},
    }
    other = {
        "apiVersion": "example.com/v1",
        "kind": "Server",
        "metadata": {"name": "server"},
        "spec": {"roles": [{"pods": template("server")}]},
    }
    declared = [{"path": "template.spec.roles[0].pods", "replicas": 3}]
    running = [condition("QuotaReserved"), condition("ResourcesDeployed")]
    return OwnerSample(
        row=APP_WRAPPER,
        spec={"components": [{"template": job}, {"template": other, "podSets": declared}]},
        pod_sets={"j-0": 2, "j-1": 3},
        running={"phase": "Running", "conditions": running},
        ready={"phase": "Running", "conditions": [*running, condition("PodsReady")]},
        stopped={"phase": "Suspended", "conditions": []},
        succeeded={"phase": "Succeeded", "conditions": []},
        failed={"phase": "Failed", "conditions": []},
        messages=("AppWrapper finished successfully", "AppWrapper failed"),
    )


def _train_sample() -> OwnerSample:
    node = template("node")
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    job = {"name": "node", "template": {"metadata": {"labels": step}, "spec": {"template": node}}}
    runtime = {
        "apiVersion": TRAIN_JOB.api_version,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {
            "mlPolicy": {"numNodes": 2, "torch": {}},
            "template": {"spec": {"replicatedJobs": [job]}},
        },
    }
    # As Kueue's webhook leaves it.
    own = {"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}

    def status(*conditions: Object, **counts: int) -> Object:
        return {"jobsStatus": [{"name": "node", **counts}], "conditions": list(conditions)}

    return OwnerSample(
        row=TRAIN_JOB,
        spec={
            "runtimeRef": {"name": "torch"},
            "trainer": {"numNodes": 3},
            "runtimePatches": [own],
        },
        pod_sets={"node": 3},
        running=status(active=1),
        ready=status(active=1, ready=1),
        stopped=status(condition("Suspended"), suspended=1),
        succeeded=status(condition("Complete"), succeeded=1),
        failed=status(condition("Failed"), failed=1),
        runtime=runtime,
    )


SAMPLES = (
    OwnerSample(
        row=JOB_SET,
        spec={"replicatedJobs": [_replicated("driver", 1, 1), _replicated("workers", 2, 3)]},
        pod_sets={"driver": 1, "workers": 6},
        running=_jobset_status({"active": 1, "ready": 1}, {"active": 2, "ready": 1}),
        ready=_jobset_status({"active": 1, "ready": 1}, {"active": 2, "ready": 2}),
        stopped=_jobset_status({"suspended": 1}, {"suspended": 2}, condition("Suspended")),
        succeeded=_jobset_status({"succeeded": 1}, {"succeeded": 2}, condition("Completed")),
        failed=_jobset_status({"failed": 1}, {"active": 0}, condition("Failed")),
        partly=_jobset_status({"active": 1, "ready": 1}, {"active": 1, "ready": 1, "succeeded": 1}),
        reclaimable={"workers": 3},
    ),
    _train_sample(),
    _of_kubeflow(PYTORCH_JOB, "pytorchReplicaSpecs", "Master", "Worker"),
    _of_kubeflow(TF_JOB, "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    _of_kubeflow(XGBOOST_JOB, "xgbReplicaSpecs", "Master", "Worker"),
    _of_kubeflow(PADDLE_JOB, "paddleReplicaSpecs", "Master", "Worker"),
    _of_kubeflow(JAX_JOB, "jaxReplicaSpecs", "Worker"),
    _of_kubeflow(MPI_JOB, "mpiReplicaSpecs", "Launcher", "Worker"),
    *_RAY_SAMPLES,
    _spark_sample(),
    _app_wrapper(),
)


# The setting `integrations` of ControllerConfig.
EXTERNAL = """
integrations:
  external:
    - kind: Train.v1.example.com
      podSets:
        - {name: head, template: .spec.head}
        - {each: .spec.groups, name: .name, template: .template, count: .size}
      active: .status.active
      ready: {condition: Ready}
      succeeded: {path: .status.phase, values: [Done]}
      failed: {path: .status.phase, values: [Broken]}
      message: .status.message
"""
_TRAIN = external_kinds(
    load_config(f"apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig{EXTERNAL}", source="tests").berth
)
# Of a kind that the configuration describes.
EXTERNAL_SAMPLE = OwnerSample(
    row=row_of(_TRAIN[0]),
    spec={
        "head": template("head"),
        "groups": [{"name": "small", "size": 2, "template": template("small")}],
    },
    pod_sets={"head": 1, "small": 2},
    running={"active": 1},
    ready={"active": 3, "conditions": [condition("Ready")]},
    stopped={"active": 0},
    succeeded={"phase": "Done", "message": "why"},
    failed={"phase": "Broken", "message": "why"},
)


def definition(row: OwnerKind | Source) -> Object:
    """Return a definition of the kind that keeps every field, for servers without its own one."""
    is_namespaced = row.is_namespaced if isinstance(row, Source) else True
    schema: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": row.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": schema, "status": schema}}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{row.plural}.{row.group}",
            # Required where the group is one of Kubernetes', as sparkoperator.k8s.io.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": row.group,
            "scope": "Namespaced" if is_namespaced else "Cluster",
            "names": {"plural": row.plural, "kind": row.kind, "singular": row.kind.lower()},
            "versions": [version],
        },
    }
