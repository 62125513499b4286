"""Conversion of manifests from kueue.x-k8s.io/v1beta1 to v1beta2.

Berth serves only v1beta2, because a conversion webhook would have to run before the cluster can read
its own objects. Old manifests are converted when they are read from files. Fields without a
counterpart in v1beta2 are dropped, as in Kueue's own conversion. Malformed fields are left unchanged,
so that validation reports them.

The functions take and return plain objects and never modify their arguments; the result shares unchanged
parts with the argument.
"""

from collections.abc import Callable, Mapping
from typing import Any

Object = Mapping[str, Any]
Fields = dict[str, Any]

OLD_VERSION = "kueue.x-k8s.io/v1beta1"
NEW_VERSION = "kueue.x-k8s.io/v1beta2"

# Maximum number of domains of one slice in the v1beta2 schema.
_SLICE_DOMAINS = 100_000


def convert(obj: Object) -> Object:
    """Return `obj` in v1beta2 if it is a v1beta1 object of Kueue or a list of such.

    Otherwise `obj` itself.
    """
    items = _list_of(dict, obj.get("items"))
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
    obj = _changed(obj, "spec", _cluster_queue_spec)
    return _changed(obj, "status", lambda status: _without(status, "pendingWorkloadsStatus"))


def _cluster_queue_spec(spec: Fields) -> Fields:
    spec = _moved(spec, "cohort", "cohortName")
    spec = _with_check_rules(spec)
    return _changed(spec, "flavorFungibility", _fungibility)


def _with_check_rules(spec: Fields) -> Fields:
    """Return the spec with the list of check names converted to rules that apply to every flavor."""
    strategy = spec.get("admissionChecksStrategy") or {}
    names = _list_of(str, spec.get("admissionChecks") or [])
    rules = _list_of(dict, strategy.get("admissionChecks") or []) if isinstance(strategy, dict) else None
    if names is None or rules is None:
        return spec
    # An entry of the strategy is more specific (it has flavors) than the same name in the plain list,
    # which means every flavor.
    listed = [rule.get("name") for rule in rules]
    rules = [*rules, *({"name": name} for name in names if name not in listed)]
    # Both fields are removed before one is written, because v1beta2 has no plain list.
    spec = _without(spec, "admissionChecks", "admissionChecksStrategy")
    # v1beta2 refuses a strategy without checks.
    return {**spec, "admissionChecksStrategy": {"admissionChecks": rules}} if rules else spec


_STOP_WORDS = {"Borrow": "MayStopSearch", "Preempt": "MayStopSearch"}


def _fungibility(fungibility: Fields) -> Fields:
    return {
        # Only values of the old API are replaced; a misspelt one stays, so that validation reports it.
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
    # Without a source the name had no meaning in v1beta1 either: only the number in `priority` counts.
    if not name or str(source) not in _PRIORITY_SOURCES:
        return spec
    group, kind = _PRIORITY_SOURCES[str(source)]
    return {**spec, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _workload_status(status: Fields) -> Fields:
    # The misspelling is Kueue's.
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
    # A domain that has more or fewer values than there are levels is malformed; it is left unchanged, so
    # that validation reports it.
    if any(len(_list_of(str, domain.get("values")) or ()) != len(levels) for domain in domains):
        return assignment
    starts = range(0, len(domains), _SLICE_DOMAINS)
    slices = [_slice(domains[start : start + _SLICE_DOMAINS], len(levels)) for start in starts]
    return {**_without(assignment, "domains"), "slices": slices}


# v1beta2 stores the values of each level together, because they are mostly equal and are then written once.
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
    """Return `value` if it is a list whose items all have type `type_`, otherwise None."""
    if not isinstance(value, list) or not all(isinstance(item, type_) for item in value):
        return None
    return value


def _is_uniform(values: list[Any]) -> bool:
    # `values` is never empty: it has one value per domain, and no slice is empty.
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
    """Return `obj` with the object at `key` replaced by its changed form; `obj` itself if there is none."""
    value = obj.get(key)
    return {**obj, key: change(value)} if isinstance(value, dict) else obj


def _moved(obj: Fields, old: str, new: str) -> Fields:
    """Return `obj` with the field renamed; an empty field is dropped, as the API server would have done."""
    value = obj.get(old)
    rest = _without(obj, old)
    return rest if value in (None, "") else {**rest, new: value}


def _without(obj: Fields, *keys: str) -> Fields:
    return {key: value for key, value in obj.items() if key not in keys}
