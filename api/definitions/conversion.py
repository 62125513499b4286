"""Manifests of kueue.x-k8s.io/v1beta1, said in v1beta2.

Berth serves v1beta2 only, because a conversion webhook would have to run before the cluster can read its own
objects. Old manifests are converted when a person hands them over as files. What has no counterpart in
v1beta2 is dropped, as Kueue's own conversion does; what is malformed is left as it stands, for validation to
name it.

Functions take and return plain objects and never alter what they are given; parts that stay the same are
shared between the two.
"""

from collections.abc import Callable, Mapping
from typing import Any

Object = Mapping[str, Any]
Fields = dict[str, Any]

OLD_VERSION = "kueue.x-k8s.io/v1beta1"
NEW_VERSION = "kueue.x-k8s.io/v1beta2"

# Caps the domains of one slice in the v1beta2 schema.
_SLICE_DOMAINS = 100_000


def convert(obj: Object) -> Object:
    """Return `obj` in v1beta2 if it is a v1beta1 object of Kueue's, or a list of some; else `obj` itself."""
    items = _list_of(dict, obj.get("items"))
    if items is not None and str(obj.get("kind")).endswith("List"):
        # A `kind: List` names its items' kinds itself, a `WorkloadList` does not.
        # The items of a typed list carry no version and no kind of their own.
        kind = str(obj.get("kind")).removesuffix("List")
        known = {"apiVersion": obj.get("apiVersion"), "kind": kind} if kind else {}
        return {**_renamed(obj), "items": [convert({**known, **item}) for item in items]}
    if obj.get("apiVersion") != OLD_VERSION:
        return obj
    change = _KINDS.get(str(obj.get("kind")))
    # Renamed even where no field differs: apiVersion is all that most kinds need.
    return change(_renamed(obj)) if change else _renamed(obj)


def dropped(obj: Object) -> tuple[str, ...]:
    """Return the paths of fields that `convert` leaves out of this object: v1beta2 has no such field."""
    if obj.get("apiVersion") != OLD_VERSION:
        return ()
    kind = str(obj.get("kind"))
    paths = [path for path in _DROPPED.get(kind, ()) if _at(obj, path) is not None]
    # Asked of the conversion itself, so that both say the same of a source that nobody knows.
    if kind == "Workload" and _at(_workload({**obj}), ("spec", "priorityClassRef")) is None:
        paths += [path for path in _NAMELESS_PRIORITY if _at(obj, path)]
    return tuple(".".join(path) for path in paths)


_DROPPED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "AdmissionCheck": (("spec", "retryDelayMinutes"),),
    "ClusterQueue": (("status", "pendingWorkloadsStatus"),),
    "LocalQueue": (("status", "flavors"),),
}
# Without a source that is known.
_NAMELESS_PRIORITY = (("spec", "priorityClassName"), ("spec", "priorityClassSource"))


def _at(obj: Object, path: tuple[str, str]) -> object:
    section = obj.get(path[0])
    return section.get(path[1]) if isinstance(section, dict) else None


def _renamed(obj: Object) -> Fields:
    return {**obj, "apiVersion": NEW_VERSION} if obj.get("apiVersion") == OLD_VERSION else {**obj}


def _cluster_queue(obj: Fields) -> Fields:
    obj = _changed(obj, "spec", _cluster_queue_spec)
    return _changed(obj, "status", lambda status: _without(status, "pendingWorkloadsStatus"))


def _cluster_queue_spec(spec: Fields) -> Fields:
    spec = _moved(spec, "cohort", "cohortName")
    spec = _with_check_rules(spec)
    return _changed(spec, "flavorFungibility", _fungibility)


def _with_check_rules(spec: Fields) -> Fields:
    """Say the list of names as rules that apply to every flavor."""
    strategy = spec.get("admissionChecksStrategy") or {}
    names = _list_of(str, spec.get("admissionChecks") or [])
    rules = _list_of(dict, strategy.get("admissionChecks") or []) if isinstance(strategy, dict) else None
    if names is None or rules is None:
        return spec
    # An entry of the strategy says more (its flavors) than the same name in the plain list, which
    # would mean every flavor.
    listed = [rule.get("name") for rule in rules]
    rules = [*rules, *({"name": name} for name in names if name not in listed)]
    # Both are taken away before one is written: v1beta2 has no plain list.
    spec = _without(spec, "admissionChecks", "admissionChecksStrategy")
    # v1beta2 refuses a strategy without checks.
    return {**spec, "admissionChecksStrategy": {"admissionChecks": rules}} if rules else spec


_STOP_WORDS = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def _fungibility(fungibility: Fields) -> Fields:
    return {
        # Only words of the old API are put in other words; a misspelt one stays for validation to name.
        key: _STOP_WORDS.get(value, value) if isinstance(value, str) else value
        for key, value in fungibility.items()
    }


_PRIORITY_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}


def _workload(obj: Fields) -> Fields:
    obj = _changed(obj, "spec", _workload_spec)
    return _changed(obj, "status", _workload_status)


def _workload_spec(spec: Fields) -> Fields:
    name, source = spec.get("priorityClassName"), spec.get("priorityClassSource")
    spec = _without(spec, "priorityClassName", "priorityClassSource")
    # Without a source the name meant nothing in v1beta1 either: the number in `priority` counts.
    if not name or str(source) not in _PRIORITY_SOURCES:
        return spec
    group, kind = _PRIORITY_SOURCES[str(source)]
    return {**spec, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _workload_status(status: Fields) -> Fields:
    # The spelling is Kueue's.
    status = _moved(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return _changed(status, "admission", _admission)


def _admission(admission: Fields) -> Fields:
    assignments = _list_of(dict, admission.get("podSetAssignments"))
    if assignments is None:
        return admission
    converted = [_changed(item, "topologyAssignment", _topology_assignment) for item in assignments]
    return {**admission, "podSetAssignments": converted}


def _topology_assignment(assignment: Fields) -> Fields:
    levels = _list_of(str, assignment.get("levels"))
    domains = _list_of(dict, assignment.get("domains"))
    if levels is None or domains is None:
        return assignment
    # A domain with another number of values than there are levels is malformed; left as it
    # is, validation names it.
    if any(len(_list_of(str, domain.get("values")) or ()) != len(levels) for domain in domains):
        return assignment
    starts = range(0, len(domains), _SLICE_DOMAINS)
    slices = [_slice(domains[start : start + _SLICE_DOMAINS], len(levels)) for start in starts]
    return {**_without(assignment, "domains"), "slices": slices}


# Column by column: v1beta2 keeps a level's values together, because they are mostly alike
# and are written once.
def _slice(domains: list[Fields], level_count: int) -> Fields:
    columns = [[domain["values"][level] for domain in domains] for level in range(level_count)]
    counts = [domain.get("count") for domain in domains]
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [
            {"universal": values[0]} if _is_uniform(values) else {"individual": {"roots": values}}
            for values in columns
        ],
        "podCounts": {"universal": counts[0]} if _is_uniform(counts) else {"individual": counts},
    }


def _list_of(type_: type, value: object) -> list[Any] | None:
    """Return `value` if it is a list of such items, else None."""
    if not isinstance(value, list) or not all(isinstance(item, type_) for item in value):
        return None
    return value


def _is_uniform(values: list[Any]) -> bool:
    # Asked of columns that have a first value: there are as many values as domains, and no slice is empty.
    return all(value == values[0] for value in values)


def _local_queue(obj: Fields) -> Fields:
    return _changed(
        obj, "status", lambda status: _moved(_without(status, "flavors"), "flavorUsage", "flavorsUsage")
    )


def _admission_check(obj: Fields) -> Fields:
    return _changed(obj, "spec", lambda spec: _without(spec, "retryDelayMinutes"))


def _multi_kueue_cluster(obj: Fields) -> Fields:
    return _changed(obj, "spec", _cluster_source)


def _cluster_source(spec: Fields) -> Fields:
    if "kubeConfig" not in spec:
        return spec
    return {**_without(spec, "kubeConfig"), "clusterSource": {"kubeConfig": spec["kubeConfig"]}}


# Kinds that are not listed have the same schema in both versions.
_KINDS: Mapping[str, Callable[[Fields], Fields]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "MultiKueueCluster": _multi_kueue_cluster,
    "Workload": _workload,
}


def _changed(obj: Fields, key: str, change: Callable[[Fields], Fields]) -> Fields:
    """Return `obj` with the object at `key`, where there is one, changed."""
    value = obj.get(key)
    return {**obj, key: change(value)} if isinstance(value, dict) else obj


def _moved(obj: Fields, old: str, new: str) -> Fields:
    """Return `obj` with the field renamed; an empty one is dropped, as the API server would have done."""
    value = obj.get(old)
    rest = _without(obj, old)
    return rest if value in (None, "") else {**rest, new: value}


def _without(obj: Fields, *keys: str) -> Fields:
    return {key: value for key, value in obj.items() if key not in keys}
