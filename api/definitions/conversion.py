"""Conversion of objects from kueue.x-k8s.io/v1beta1 to v1beta2.

Old manifests are converted when they are read from files, and objects that a client sends in v1beta1 by the
conversion webhook (`to_older` for the other direction). Fields without a counterpart in v1beta2 are dropped,
as in Kueue's own conversion. Malformed fields are left unchanged, so that validation reports them.

The functions take and return plain objects and never modify their arguments; the result shares unchanged
parts with the argument.
"""

from collections.abc import Callable, Mapping
from typing import Any

from api.definitions.fields import Fields, changed, changed_items, list_of, moved, without
from api.topology_encoding import topology_body
from api.workload import DomainCount, TopologyAssignment

Object = Mapping[str, Any]

OLD_VERSION = "kueue.x-k8s.io/v1beta1"
NEW_VERSION = "kueue.x-k8s.io/v1beta2"


def convert(obj: Object) -> Object:
    """Return `obj` in v1beta2 if it is a v1beta1 object of Kueue or a list of such.

    Otherwise `obj` itself.
    """
    items = list_of(dict, obj.get("items"))
    if items is not None and str(obj.get("kind")).endswith("List"):
        # The items of a `kind: List` have their own apiVersion and kind; those of
        # a `WorkloadList` have neither.
        kind = str(obj.get("kind")).removesuffix("List")
        known = {"apiVersion": obj.get("apiVersion"), "kind": kind} if kind else {}
        return {**_renamed(obj), "items": [convert({**known, **item}) for item in items]}
    if obj.get("apiVersion") != OLD_VERSION:
        return obj
    change = _KINDS.get(str(obj.get("kind")))
    # The version is replaced even if no field differs: for most kinds nothing else changes.
    return change(_renamed(obj)) if change else _renamed(obj)


def dropped(obj: Object) -> tuple[str, ...]:
    """Return the paths of the fields that `convert` drops from this object."""
    if obj.get("apiVersion") != OLD_VERSION:
        return ()
    kind = str(obj.get("kind"))
    paths = [path for path in _DROPPED.get(kind, ()) if _at(obj, path) is not None]
    # The conversion itself is consulted, so that both treat an unknown source in the same way.
    if kind == "Workload" and _at(_workload({**obj}), ("spec", "priorityClassRef")) is None:
        paths += [path for path in _NAMELESS_PRIORITY if _at(obj, path)]
    return tuple(".".join(path) for path in paths)


_DROPPED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "AdmissionCheck": (("spec", "retryDelayMinutes"),),
    "ClusterQueue": (("status", "pendingWorkloadsStatus"),),
    "LocalQueue": (("status", "flavors"),),
}
# Dropped if the source of the priority is unknown.
_NAMELESS_PRIORITY = (("spec", "priorityClassName"), ("spec", "priorityClassSource"))


def _at(obj: Object, path: tuple[str, str]) -> object:
    section = obj.get(path[0])
    return section.get(path[1]) if isinstance(section, dict) else None


def _renamed(obj: Object) -> Fields:
    return {**obj, "apiVersion": NEW_VERSION} if obj.get("apiVersion") == OLD_VERSION else {**obj}


def _cluster_queue(obj: Fields) -> Fields:
    obj = changed(obj, "spec", _cluster_queue_spec)
    return changed(obj, "status", lambda status: without(status, "pendingWorkloadsStatus"))


def _cluster_queue_spec(spec: Fields) -> Fields:
    spec = moved(spec, "cohort", "cohortName")
    spec = _with_check_rules(spec)
    return changed(spec, "flavorFungibility", _fungibility)


def _with_check_rules(spec: Fields) -> Fields:
    """Return the spec with the list of check names converted to rules that apply to every flavor."""
    strategy = spec.get("admissionChecksStrategy") or {}
    names = list_of(str, spec.get("admissionChecks") or [])
    rules = list_of(dict, strategy.get("admissionChecks") or []) if isinstance(strategy, dict) else None
    if names is None or rules is None:
        return spec
    # An entry of the strategy is more specific (it has flavors) than the same name in the plain list,
    # which means every flavor.
    listed = [rule.get("name") for rule in rules]
    rules = [*rules, *({"name": name} for name in names if name not in listed)]
    # Both fields are removed before one is written, because v1beta2 has no plain list.
    spec = without(spec, "admissionChecks", "admissionChecksStrategy")
    # v1beta2 refuses a strategy without checks.
    return {**spec, "admissionChecksStrategy": {"admissionChecks": rules}} if rules else spec


_STOP_WORDS = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def _fungibility(fungibility: Fields) -> Fields:
    return {
        # Only values of the old API are replaced; a misspelt one stays, so that validation reports it.
        key: _STOP_WORDS.get(value, value) if isinstance(value, str) else value
        for key, value in fungibility.items()
    }


PRIORITY_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}


def _workload(obj: Fields) -> Fields:
    obj = changed(obj, "spec", _workload_spec)
    return changed(obj, "status", _workload_status)


def _workload_spec(spec: Fields) -> Fields:
    name, source = spec.get("priorityClassName"), spec.get("priorityClassSource")
    spec = without(spec, "priorityClassName", "priorityClassSource")
    # Without a source the name had no meaning in v1beta1 either: only the number in `priority` counts.
    if not name or str(source) not in PRIORITY_SOURCES:
        return spec
    group, kind = PRIORITY_SOURCES[str(source)]
    return {**spec, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _workload_status(status: Fields) -> Fields:
    # The misspelling is Kueue's.
    status = moved(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return changed(status, "admission", _admission)


def _admission(admission: Fields) -> Fields:
    return changed_items(
        admission, "podSetAssignments", lambda item: changed(item, "topologyAssignment", _topology_assignment)
    )


def _topology_assignment(assignment: Fields) -> Fields:
    levels = list_of(str, assignment.get("levels"))
    domains = list_of(dict, assignment.get("domains"))
    if levels is None or domains is None:
        return assignment
    read = [_domain(one, len(levels)) for one in domains]
    known = tuple(one for one in read if one is not None)
    # A malformed domain leaves all unchanged, so that validation reports it.
    if len(known) < len(read):
        return assignment
    found = TopologyAssignment(levels=tuple(levels), domains=known)
    return {**without(assignment, "domains"), **topology_body(found)}


def _domain(domain: Fields, level_count: int) -> DomainCount | None:
    """Return a domain; None if it has not one value for each level, or no number of pods."""
    values, count = list_of(str, domain.get("values")), domain.get("count")
    if values is None or len(values) != level_count or not isinstance(count, int):
        return None
    return DomainCount(values=tuple(values), count=count)


def _local_queue(obj: Fields) -> Fields:
    return changed(
        obj, "status", lambda status: moved(without(status, "flavors"), "flavorUsage", "flavorsUsage")
    )


def _admission_check(obj: Fields) -> Fields:
    return changed(obj, "spec", lambda spec: without(spec, "retryDelayMinutes"))


def _multi_kueue_cluster(obj: Fields) -> Fields:
    return changed(obj, "spec", _cluster_source)


def _cluster_source(spec: Fields) -> Fields:
    if "kubeConfig" not in spec:
        return spec
    return {**without(spec, "kubeConfig"), "clusterSource": {"kubeConfig": spec["kubeConfig"]}}


# Kinds that are not listed have the same schema in both versions.
_KINDS: Mapping[str, Callable[[Fields], Fields]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "MultiKueueCluster": _multi_kueue_cluster,
    "Workload": _workload,
}
