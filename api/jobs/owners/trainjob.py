"""The row of TrainJob (trainer.kubeflow.org), whose pods are those of the JobSet that its runtime describes.

A TrainJob names a TrainingRuntime, which has the template of a JobSet. `expanded` makes that JobSet as the
trainer's controller does, as far as pods, their number and their requests depend on it; what only changes
environments is left out. The controller creates the JobSet with the name of the TrainJob.

A start writes into the TrainJob's own list of patches of the runtime, under Kueue's name. The trainer's
webhook refuses a change of them while pods are active, so a stop removes them once none is.
Source: Kueue, pkg/controller/jobs/trainjob; Trainer, pkg/runtime/core and pkg/runtime/framework/plugins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from api.jobs.checkpoint_annotations import parse_instant
from api.jobs.job import ComposeError
from api.jobs.owners import jobset
from api.jobs.owners.conditions import ends_by
from api.jobs.owners.paths import Body, replaced, value_at
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet, Read, Source, Templates
from api.jobs.pod_template import Template
from api.parsing.times import to_rfc3339

_GROUP, _VERSION = "trainer.kubeflow.org", "v1alpha1"
_ANCESTOR = "trainer.kubeflow.org/trainjob-ancestor-step"
# The replicated Job and the container of the nodes that train, and the steps before them.
_NODE = "node"
_STEPS = frozenset({"dataset-initializer", "model-initializer", "trainer"})
# Under this name Kueue writes its patch, and so does Berth.
_MANAGER = "kueue.x-k8s.io/manager"
_PATCHES = ("spec", "runtimePatches")
# The largest number that the field can hold.
_MOST_REMAINING_SECONDS = 2**31 - 1
# Lists whose entries are merged by name; others are replaced.
_MERGED = frozenset(
    {
        "replicatedJobs",
        "containers",
        "initContainers",
        "env",
        "volumes",
        "schedulingGates",
        "imagePullSecrets",
    }
)

CLUSTER_RUNTIMES = Source(
    kind="ClusterTrainingRuntime",
    group=_GROUP,
    version=_VERSION,
    plural="clustertrainingruntimes",
    is_namespaced=False,
)
RUNTIMES = Source(kind="TrainingRuntime", group=_GROUP, version=_VERSION, plural="trainingruntimes")


def expanded(body: Body, read: Read) -> Body:
    """Return the TrainJob as the JobSet that its controller creates. Raises ComposeError."""
    runtime = _runtime(body, read)
    spec: Any = value_at(runtime, ("spec", "template", "spec")) or {}
    order = [one["name"] for one in spec.get("replicatedJobs") or ()]
    for patch in value_at(body, _PATCHES) or ():
        # Berth's own patch is what a start has added.
        change = value_at(patch, ("trainingRuntimeSpec", "template", "spec"))
        if change and patch.get("manager") != _MANAGER:
            spec = _merged(spec, change)
    policy = value_at(runtime, ("spec", "mlPolicy"))
    trainer = value_at(body, ("spec", "trainer")) or {}
    jobs = sorted(
        spec.get("replicatedJobs") or (),
        key=lambda one: order.index(one["name"]) if one["name"] in order else len(order),
    )
    return {
        **body,
        "spec": {**spec, "replicatedJobs": [_replicated(one, trainer, policy) for one in jobs]},
        "status": {"replicatedJobsStatus": value_at(body, ("status", "jobsStatus")) or []},
    }


def _runtime(body: Body, read: Read) -> Body:
    reference = body["spec"]["runtimeRef"]
    kind, name = reference.get("kind") or CLUSTER_RUNTIMES.kind, reference["name"]
    found = read(kind, body["metadata"].get("namespace", "") if kind == RUNTIMES.kind else "", name)
    if found is None:
        raise ComposeError(f"spec.runtimeRef names {kind} {name!r}, which does not exist; create it")
    return found


def _merged(have: Any, patch: Any) -> Any:
    """Return the value with a strategic merge patch applied, for the lists that a runtime has."""
    if not isinstance(have, Mapping) or not isinstance(patch, Mapping):
        return patch
    result = dict(have)
    for key, value in patch.items():
        if key in _MERGED and isinstance(have.get(key), list):
            result[key] = _merged_by_name(have[key], value)
        else:
            result[key] = _merged(have.get(key), value)
    return result


def _merged_by_name(have: Sequence[Body], patch: Sequence[Body]) -> list[Any]:
    changes = {one.get("name"): one for one in patch}
    kept = [_merged(one, changes.pop(one.get("name"), {})) for one in have]
    return [*kept, *changes.values()]


def _replicated(one: Body, trainer: Body, policy: Body | None) -> Body:
    """Return a replicated Job with the number of pods, the image and the requests that the TrainJob gives."""
    step = value_at(one, ("template", "metadata", "labels", _ANCESTOR))
    spec = one["template"]["spec"]
    count = _count(one["name"], step, spec, trainer, policy)
    spec = {**spec, "parallelism": count, "completions": count}
    has_requests = (step == "trainer" and policy is not None) or _is_node_of_mpi(one["name"], policy)
    containers = value_at(spec, ("template", "spec", "containers")) or []
    changed = [
        _container(each, trainer, is_trainer=step == "trainer", has_requests=has_requests)
        for each in containers
    ]
    spec = replaced(spec, ("template", "spec", "containers"), changed)
    replicas = {"replicas": 1} if step in _STEPS else {}
    return {**one, **replicas, "template": {**one["template"], "spec": spec}}


def _count(name: str, step: str | None, spec: Body, trainer: Body, policy: Body | None) -> int:
    nodes: int | None = trainer.get("numNodes")
    count: int = spec.get("parallelism") or 1
    if step == "trainer" and policy is not None:
        count = policy.get("numNodes") or 1
    if nodes is not None and policy is not None and policy.get("mpi") is not None:
        if name == _NODE:
            count = max(nodes - 1, 1) if _is_node_of_mpi(name, policy) else nodes
    elif nodes is not None and step == "trainer":
        count = nodes
    return max(count, 1)


def _is_node_of_mpi(name: str, policy: Body | None) -> bool:
    """Return whether the launcher of an MPI runtime counts as one of its nodes, and this is the others'."""
    return name == _NODE and value_at(policy, ("mpi", "runLauncherAsNode")) is True


def _container(one: Body, trainer: Body, *, is_trainer: bool, has_requests: bool) -> Body:
    if one.get("name") != _NODE:
        return one
    fields = ("image", "command", "args") if is_trainer else ()
    own = {name: trainer[name] for name in fields if trainer.get(name) is not None}
    requested = trainer.get("resourcesPerNode") if has_requests else None
    resources = {"resources": _merged(one.get("resources"), requested)} if requested else {}
    return {**one, **own, **resources}


# --- start and stop ------------------------------------------------------------------------------


def _inject(body: Body, pod_sets: Sequence[OwnerPodSet], started: Mapping[str, Template]) -> Any:
    """Return the TrainJob with a patch of its runtime for each pod set."""
    jobs = [_patch_of(one, started[one.name]) for one in pod_sets]
    return _with_own_patch(body, {"replicatedJobs": jobs})


def _patch_of(pod_set: OwnerPodSet, started: Template) -> Body:
    metadata, spec = started.get("metadata") or {}, started.get("spec") or {}
    pod = {
        "metadata": {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)},
        "spec": {
            name: spec[name]
            for name in ("nodeSelector", "tolerations", "schedulingGates", "affinity")
            if spec.get(name)
        },
    }
    return {"name": pod_set.name, "template": {"spec": {"template": pod}}}


def _additions(body: Body) -> Mapping[tuple[str, ...], object]:
    """Return a patch of the runtime that changes nothing, in which a start will write.

    The author sees at the creation that another program changes the runtime. Source: Kueue's webhook.
    """
    has_own = any(one.get("manager") == _MANAGER for one in value_at(body, _PATCHES) or ())
    return {} if has_own else {_PATCHES: value_at(_with_own_patch(body, {}), _PATCHES)}


def _restore(body: Body, _: Sequence[OwnerPodSet], __: Mapping[str, Template]) -> Any:
    return _with_own_patch(body, {}) if _is_started(body) else body


def _is_started(body: Body) -> bool:
    return any(
        one.get("manager") == _MANAGER
        and value_at(one, ("trainingRuntimeSpec", "template", "spec", "replicatedJobs"))
        for one in value_at(body, _PATCHES) or ()
    )


def _with_own_patch(body: Body, spec: Body) -> Any:
    own = {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": spec}}}
    patches = list(value_at(body, _PATCHES) or ())
    kept = [own if one.get("manager") == _MANAGER else one for one in patches]
    return replaced(body, _PATCHES, kept if own in kept else [*kept, own])


# --- what belongs to it --------------------------------------------------------------------------


def _counts(body: Body, child: Child) -> bool:
    """Return whether a JobSet may be the one that the controller has created for this TrainJob."""
    if child.kind != "JobSet" or child.name != body["metadata"]["name"]:
        return False
    ours = {one.name: one for one in jobset.pod_sets(body)}
    return all(
        one.name in ours
        and one.count <= ours[one.name].count
        and child.requests_no_more(one.template, ours[one.name].template)
        for one in jobset.pod_sets(child.body)
    )


def _active(body: Body) -> int:
    return sum(one.get("active") or 0 for one in value_at(body, ("status", "jobsStatus")) or ())


def _completes_at(body: Body) -> str | None:
    """Return when the trainer expects the end: what remained when its status was last updated.

    Rounded up to whole minutes, so that an estimate that wanders by seconds writes nothing, and that the end
    does not pass before the trainer's own.
    Source: Trainer v2.3.0, TrainerStatus.
    """
    remaining = value_at(body, ("status", "trainerStatus", "estimatedRemainingSeconds"))
    updated_at = value_at(body, ("status", "trainerStatus", "lastUpdatedTime"))
    at = parse_instant(updated_at) if isinstance(updated_at, str) else None
    # Go writes the year 1 for a time that was never set.
    if at is None or at <= 0 or type(remaining) is not int or not 0 <= remaining <= _MOST_REMAINING_SECONDS:
        return None
    return to_rfc3339(60 * ceil((at + remaining) / 60))


TRAIN_JOB = OwnerKind(
    kind="TrainJob",
    group=_GROUP,
    version=_VERSION,
    plural="trainjobs",
    framework=f"{_GROUP}/trainjob",
    sources=(CLUSTER_RUNTIMES, RUNTIMES),
    expand=expanded,
    pod_sets=jobset.pod_sets,
    active=_active,
    completes_at=_completes_at,
    outcome=ends_by(success="Complete", failure="Failed"),
    are_pods_ready=jobset.are_pods_ready,
    reclaimable=jobset.reclaimable,
    counts=_counts,
    additions=_additions,
    templates=Templates(inject=_inject, restore=_restore, is_started=_is_started),
)
