"""The row of AppWrapper (workload.codeflare.dev): objects of any kinds that start and end together.

A component has the object that the AppWrapper creates, and names the paths of the pod templates within, or is
of a kind whose paths are known. A start does not change these objects: what it adds stands beside them, in
`podSetInfos`. Source: Kueue, pkg/controller/jobs/appwrapper; AppWrapper v1.2, pkg/utils.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from api import keys
from api.jobs.owners.conditions import is_true
from api.jobs.owners.jobset import JOB_SET, pods_of_job
from api.jobs.owners.kubeflow import PYTORCH_JOB
from api.jobs.owners.paths import Body, Path, parsed_path, replaced, value_at
from api.jobs.owners.row import Child, OwnerKind, OwnerPodSet
from api.jobs.pod_template import StartConflict, Template
from api.jobs.queued_object import JobOutcome
from api.parsing.decimals import whole_number

# Annotations of a pod set by which its author gives its pods ranks.
_PREFIX = "workload.codeflare.dev.appwrapper/tas-"
_METADATA, _LISTS = ("labels", "annotations"), ("tolerations", "schedulingGates")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A pod set of a component: the number of both, and how many pod sets the component has."""

    component: int
    number: int
    of: int
    pod_set: OwnerPodSet


def pod_sets(body: Body) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of all components, named by their number, with what a start has added to them."""
    return tuple(part.pod_set for part in _parts(body))


def _parts(body: Body) -> Iterator[_Part]:
    name, index = value_at(body, ("metadata", "name")), 0
    for number, component in enumerate(body["spec"]["components"]):
        found = _declared(body, number, component)
        for place, one in enumerate(found):
            added = value_at(component, ("podSetInfos", place)) or {}
            at = ("spec", "components", number, *one.at)
            pod_set = replace(one, name=f"{name}-{index}", at=at, template=_with_added(one.template, added))
            yield _Part(component=number, number=place, of=len(found), pod_set=pod_set)
            index += 1


def _declared(body: Body, number: int, component: Body) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of a component: those of the status, those that its author declares, or known ones.

    Paths are within the component. The controller keeps in the status what it has begun with.
    """
    kept = value_at(body, ("status", "componentStatus", number, "podSets"))
    declared = kept or component.get("podSets")
    if not declared:
        return tuple(replace(one, at=("template", *one.at)) for one in _inferred(component["template"]))
    return tuple(_of_declaration(one, component) for one in declared)


def _of_declaration(declared: Body, component: Body) -> OwnerPodSet:
    at = _path(declared["path"])
    annotations = declared.get("annotations") or {}
    groups = str(annotations.get(f"{_PREFIX}sub-group-count", ""))
    return OwnerPodSet(
        name="",
        count=1 if declared.get("replicas") is None else declared["replicas"],
        template=_template(value_at(component, at)),
        at=at,
        index_label=annotations.get(f"{_PREFIX}pod-index-label"),
        group_label=annotations.get(f"{_PREFIX}sub-group-index-label"),
        groups=whole_number(groups),
    )


def _path(text: str) -> Path:
    """Return the steps of a path such as `template.spec.groups[0].template`. Raises ValueError."""
    first, *rest = parsed_path(f".{text}")
    if first != "template":
        raise ValueError(f"{text!r} is no path within a component; it begins with template")
    return (first, *rest)


def _template(found: Any) -> Template:
    # A Pod stands for its own template.
    return {name: found[name] for name in ("metadata", "spec") if found.get(name) is not None}


def _inferred(obj: Body) -> tuple[OwnerPodSet, ...]:
    """Return the pod sets of an object of a known kind, as the kind's controller does; () for others."""
    match obj.get("apiVersion"), obj.get("kind"):
        case "batch/v1", "Job":
            return (_known(obj, ("spec", "template"), pods_of_job(obj["spec"]), rank=keys.COMPLETION_INDEX),)
        case JOB_SET.api_version, JOB_SET.kind:
            return JOB_SET.pod_sets(obj)
        case PYTORCH_JOB.api_version, PYTORCH_JOB.kind:
            return PYTORCH_JOB.pod_sets(obj)
        case "ray.io/v1", "RayCluster":
            return _of_ray(obj, ("spec",))
        case "ray.io/v1", "RayJob":
            return _of_ray(obj, ("spec", "rayClusterSpec"))
        case "apps/v1", "Deployment" | "StatefulSet":
            return (_known(obj, ("spec", "template"), obj["spec"].get("replicas")),)
        case "v1", "Pod":
            return (_known(obj, (), 1),)
        case _:
            return ()


def _of_ray(obj: Body, at: Path) -> tuple[OwnerPodSet, ...]:
    groups = value_at(obj, (*at, "workerGroupSpecs")) or ()
    workers = (
        _known(obj, (*at, "workerGroupSpecs", index, "template"), group.get("replicas"))
        for index, group in enumerate(groups)
    )
    return (_known(obj, (*at, "headGroupSpec", "template"), 1), *workers)


def _known(obj: Body, at: Path, count: int | None, *, rank: str | None = None) -> OwnerPodSet:
    return OwnerPodSet(
        name="",
        count=1 if count is None else count,
        template=_template(value_at(obj, at)),
        at=at,
        index_label=rank,
    )


# --- what a start adds ----------------------------------------------------------------------------


def _with_added(template: Template, added: Body) -> Template:
    metadata, spec = dict(template.get("metadata") or {}), dict(template["spec"])
    for name in _METADATA:
        if added.get(name):
            metadata[name] = {**(metadata.get(name) or {}), **added[name]}
    if added.get("nodeSelector"):
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), **added["nodeSelector"]}
    for name in _LISTS:
        if added.get(name):
            spec[name] = [*(spec.get(name) or ()), *added[name]]
    return {**template, **({"metadata": metadata} if metadata else {}), "spec": spec}


def with_template(body: Body, pod_set: OwnerPodSet, template: Template) -> Body:
    """Return the AppWrapper with all in which the template exceeds its component's, as `podSetInfos`.

    Raises StartConflict for an affinity, which has no place there.
    """
    part = next(one for one in _parts(body) if one.pod_set.name == pod_set.name)
    within = value_at(body, pod_set.at)
    added = _added(pod_set.name, within, template)
    component = ("spec", "components", part.component)
    present = value_at(body, (*component, "podSetInfos")) or []
    infos = [*present, *({} for _ in range(part.of - len(present)))]
    infos[part.number] = added
    kept = {key: value for key, value in value_at(body, component).items() if key != "podSetInfos"}
    changed: Body = replaced(body, component, {**kept, **({"podSetInfos": infos} if any(infos) else {})})
    return changed


def _added(name: str, own: Template, template: Template) -> dict[str, Any]:
    mine, theirs = own.get("spec") or {}, template.get("spec") or {}
    if (mine.get("affinity") or {}) != (theirs.get("affinity") or {}):
        raise StartConflict(f"affinity of pod set {name}", str(mine.get("affinity")), str(theirs["affinity"]))
    found: dict[str, Any] = {
        field: _more(value_at(own, ("metadata", field)), value_at(template, ("metadata", field)))
        for field in _METADATA
    }
    found["nodeSelector"] = _more(mine.get("nodeSelector"), theirs.get("nodeSelector"))
    for field in _LISTS:
        found[field] = [one for one in theirs.get(field) or () if one not in (mine.get(field) or ())]
    return {field: value for field, value in found.items() if value}


def _more(own: Mapping[str, str] | None, theirs: Mapping[str, str] | None) -> dict[str, str]:
    have = own or {}
    return {key: value for key, value in (theirs or {}).items() if have.get(key) != value}


# --- status and children --------------------------------------------------------------------------


def outcome(body: Body) -> JobOutcome | None:
    """Return how it ended. A failed one has not while its objects are being deleted."""
    match value_at(body, ("status", "phase")):
        case "Succeeded":
            return JobOutcome(is_success=True, message="AppWrapper finished successfully")
        case "Failed" if not is_true(body, "ResourcesDeployed"):
            return JobOutcome(is_success=False, message="AppWrapper failed")
        case _:
            return None


def counts(body: Body, child: Child) -> bool:
    """Return whether an object may be one that the controller has created from a component.

    The name must be the component's, and it must have no more pods, which request no more. An object of a
    kind whose pods are not known is never counted.
    """
    return any(
        (template.get("kind"), value_at(template, ("metadata", "name"))) == (child.kind, child.name)
        and _has_no_more(child, _inferred({**child.body, **_type_of(template)}), _inferred(template))
        for template in (component["template"] for component in body["spec"]["components"])
    )


def _type_of(template: Body) -> dict[str, Any]:
    return {name: template.get(name) for name in ("apiVersion", "kind")}


def _has_no_more(child: Child, these: Sequence[OwnerPodSet], ours: Sequence[OwnerPodSet]) -> bool:
    return 0 < len(these) == len(ours) and all(
        one.count <= own.count and child.requests_no_more(one.template, own.template)
        for one, own in zip(these, ours, strict=True)
    )


APP_WRAPPER = OwnerKind(
    kind="AppWrapper",
    group="workload.codeflare.dev",
    version="v1beta2",
    plural="appwrappers",
    framework="workload.codeflare.dev/appwrapper",
    pod_sets=pod_sets,
    active=lambda body: int(is_true(body, "QuotaReserved")),
    outcome=outcome,
    are_pods_ready=lambda body: is_true(body, "PodsReady"),
    counts=counts,
    # A Pod may be a component.
    owns_pods=True,
    with_template=with_template,
)
