"""Rules for updates: which fields of a Job, a serving object or a Workload are immutable, and in which state.

Both versions are read as plain objects. Fields that an admission was decided on cannot change under a running
Job, and fields that quota was reserved for cannot change while the Workload holds the quota.
Source: Kueue, pkg/controller/jobframework/validation.go, pkg/webhooks/workload_webhook.go and the webhooks in
pkg/controller/jobs/{job,deployment,statefulset,leaderworkerset}.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from api import keys
from api.identifiers import prebuilt_workload
from api.parsing.faults import ABSENT, FieldError

_Object = Mapping[str, Any]
_RUNNING = "cannot change while the Job is not suspended"
GROUP_SIZE = "spec.leaderWorkerTemplate.size"
_RESERVED = "cannot change while quota is reserved"


def job_update_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    """Yield the changes that are not allowed on a Job."""
    was_suspended, is_suspended = _is_suspended(old), _is_suspended(new)
    yield from queue_update_errors(old, new, was_suspended=was_suspended, is_suspended=is_suspended)
    if not was_suspended and _key(old, keys.JOB_MIN_PARALLELISM):
        yield from _partial_errors(old, new)
    if not is_suspended:
        before, after = (_part(_part(job, "spec"), "template") for job in (old, new))
        yield from elastic_gate_errors(new, before, after, "spec.template")


def is_judged_again(old: _Object, new: _Object, error: FieldError) -> bool:
    """Return whether a fault of a changed Job counts that it may not have had before.

    A start in part lowers the parallelism, so the minimum is judged only if it is changed itself.
    """
    key = keys.JOB_MIN_PARALLELISM
    return error.path != _key_error(new, key, "").path or _key(old, key) != _key(new, key)


def queue_update_errors(
    old: _Object, new: _Object, *, was_suspended: bool, is_suspended: bool
) -> Iterator[FieldError]:
    """Yield the changes of labels and annotations that are not allowed on a Job or another owner."""
    if not is_suspended:
        yield from _frozen_key(old, new, keys.QUEUE_NAME, _RUNNING)
        before, after = _prebuilt(old), _prebuilt(new)
        if before != after:
            rule = f"{_RUNNING}; it was {before!r}"
            yield replace(_key_error(new, keys.PREBUILT_WORKLOAD_NAME, rule), value=after or ABSENT)
    if not (was_suspended and is_suspended):
        rule = "can change only while the Job is suspended before and after"
        yield from _frozen_key(old, new, keys.MAX_EXEC_TIME_SECONDS, rule)
    yield from _priority_errors(old, new, frozen="" if is_suspended else "while the Job is not suspended")
    if (_key(old, keys.ELASTIC_JOB) == "true") != (_key(new, keys.ELASTIC_JOB) == "true"):
        yield _key_error(new, keys.ELASTIC_JOB, "cannot change")
    yield from gate_update_errors(old, new)


def elastic_gate_errors(job: _Object, old: _Object, new: _Object, path: str) -> Iterator[FieldError]:
    """Yield that a pod template of an elastic Job that is not suspended has lost its gate.

    `path` is that of the template, which was `old`. Without the gate, pods that are added would run at once.
    """
    before, after = (
        [_name(one) for one in _items(_part(template, "spec"), "schedulingGates")] for template in (old, new)
    )
    if (
        _key(job, keys.ELASTIC_JOB) == "true"
        and keys.ELASTIC_GATE in before
        and keys.ELASTIC_GATE not in after
    ):
        rule = f"must keep {keys.ELASTIC_GATE} while the Job is not suspended: its pods wait there for quota"
        yield FieldError(path=f"{path}.spec.schedulingGates", value=after, rule=rule)


def serving_update_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    """Yield the changes that are not allowed on a Deployment, StatefulSet or LeaderWorkerSet.

    Its pods are queued, and not itself: what it says of them must not change under pods that hold quota.
    """
    frozen = "while a replica is ready" if _part(old, "status").get("readyReplicas") else ""
    before, after = _key(old, keys.QUEUE_NAME), _key(new, keys.QUEUE_NAME)
    if before and not after:
        yield _key_error(new, keys.QUEUE_NAME, f"cannot be removed; it was {before!r}")
    elif frozen:
        yield from _frozen_key(old, new, keys.QUEUE_NAME, f"cannot change {frozen}")
    yield from _priority_errors(old, new, frozen=frozen)
    if after and _group_size(old) != _group_size(new):
        rule = f"cannot change in a queue: each group was admitted as {_group_size(old)} pods"
        yield FieldError(path=GROUP_SIZE, value=_group_size(new), rule=rule)


def gate_update_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    """Yield the gates that were added: gates can only be set when a Job or Workload is created."""
    before, after = _gates(old), _gates(new)
    for gate in after:
        if gate not in before:
            path = f"metadata.annotations[{keys.ADMISSION_GATED_BY}]"
            yield FieldError(path=path, value=gate, rule="gates can be removed but not added")


def workload_update_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    """Yield the changes that are not allowed on a Workload."""
    before, after = _part(old, "status"), _part(new, "status")
    if _is_true(before, "QuotaReserved"):
        yield from _pod_set_errors(old, new)
        # A slice counts fewer pods once its elastic Job has fewer, and so fewer of them have ended.
        if _is_true(after, "QuotaReserved") and not _is_slice(old):
            yield from _reclaimable_errors(before, after)
    yield from _admission_errors(before, after)
    yield from _check_errors(before, after)
    # A slice runs where the one that it replaces runs, which was nominated for both.
    if not _key(new, keys.SLICE_REPLACEMENT_FOR):
        yield from _cluster_errors(before, after)
    yield from gate_update_errors(old, new)


# --- Jobs ----------------------------------------------------------------------------------------


def _is_suspended(job: _Object) -> bool:
    return _part(job, "spec").get("suspend") is True


def _frozen_key(old: _Object, new: _Object, key: str, rule: str) -> Iterator[FieldError]:
    if _key(old, key) != _key(new, key):
        yield _key_error(new, key, f"{rule}; it was {_key(old, key)!r}")


def _priority_errors(old: _Object, new: _Object, *, frozen: str) -> Iterator[FieldError]:
    """Yield changes of the priority class. `frozen`: when none can be added, if that is now; else empty."""
    before, after = _key(old, keys.PRIORITY_CLASS), _key(new, keys.PRIORITY_CLASS)
    if before and not after:
        yield _key_error(new, keys.PRIORITY_CLASS, f"cannot be removed; it was {before!r}")
    elif after and not before and frozen:
        yield _key_error(new, keys.PRIORITY_CLASS, f"cannot be added {frozen}")


def _group_size(obj: _Object) -> object:
    """Return how many pods each group of a LeaderWorkerSet has; 1, its default, for other kinds."""
    size = _part(_part(obj, "spec"), "leaderWorkerTemplate").get("size")
    return 1 if size is None else size


def _partial_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    yield from _frozen_key(old, new, keys.JOB_MIN_PARALLELISM, _RUNNING)
    before, after = (_part(job, "spec").get("parallelism", 1) for job in (old, new))
    if before != after:
        rule = f"cannot change while a Job that may run in part is not suspended; it was {before}"
        yield FieldError(path="spec.parallelism", value=after, rule=rule)


# --- Workloads -----------------------------------------------------------------------------------


def _pod_set_errors(old: _Object, new: _Object) -> Iterator[FieldError]:
    before, after = (_items(_part(workload, "spec"), "podSets") for workload in (old, new))
    if before == after:
        return
    if _is_slice(old) and _is_shrunk(before, after):
        return
    yield FieldError(path="spec.podSets", value=[one.get("name") for one in after], rule=_RESERVED)


def _is_slice(workload: _Object) -> bool:
    return _key(workload, keys.ELASTIC_JOB) == "true" or bool(_key(workload, keys.SLICE_REPLACEMENT_FOR))


def _is_shrunk(before: Sequence[_Object], after: Sequence[_Object]) -> bool:
    if len(before) != len(after):
        return False
    pairs = list(zip(before, after, strict=True))
    return all({**old, "count": 0} == {**new, "count": 0} for old, new in pairs) and all(
        _count(new, default=1) <= _count(old, default=1) for old, new in pairs
    )


def _reclaimable_errors(before: _Object, after: _Object) -> Iterator[FieldError]:
    now = {_name(one): _count(one) for one in _items(after, "reclaimablePods")}
    for one in _items(before, "reclaimablePods"):
        name, count = _name(one), _count(one)
        if now.get(name, 0) < count:
            rule = f"cannot fall below {count} while quota is reserved"
            yield FieldError(
                path=f"status.reclaimablePods[{name}].count", value=now.get(name, ABSENT), rule=rule
            )


def _admission_errors(before: _Object, after: _Object) -> Iterator[FieldError]:
    old, new = _part(before, "admission"), _part(after, "admission")
    if old and new and _frozen_part(old) != _frozen_part(new):
        yield FieldError(path="status.admission", value=new.get("clusterQueue"), rule=_RESERVED)


def _frozen_part(admission: _Object) -> object:
    """Return the admission without the fields that may be set or changed later, and without empty ones.

    Clients written in Go leave out empty maps when they send back what they have read.
    """
    later = ("topologyAssignment", "delayedTopologyRequest")
    pod_sets = [
        {key: value for key, value in one.items() if key not in later and value not in ({}, [], None)}
        for one in _items(admission, "podSetAssignments")
    ]
    return {**admission, "podSetAssignments": pod_sets}


def _check_errors(before: _Object, after: _Object) -> Iterator[FieldError]:
    ready = {_name(one): one for one in _items(before, "admissionChecks") if one.get("state") == "Ready"}
    for one in _items(after, "admissionChecks"):
        old = ready.get(_name(one))
        if old is None or one.get("state") != "Ready":
            continue
        if (old.get("podSetUpdates") or []) != (one.get("podSetUpdates") or []):
            path = f"status.admissionChecks[{_name(one)}].podSetUpdates"
            yield FieldError(
                path=path, value=one.get("podSetUpdates"), rule="cannot change while the check is Ready"
            )


def _cluster_errors(before: _Object, after: _Object) -> Iterator[FieldError]:
    cluster, names = after.get("clusterName"), before.get("nominatedClusterNames")
    nominated = [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
    if cluster and not before.get("clusterName") and cluster not in nominated:
        rule = f"must be one of the nominated clusters: {', '.join(nominated) or 'there are none'}"
        yield FieldError(path="status.clusterName", value=cluster, rule=rule)


def _is_true(status: _Object, type_: str) -> bool:
    return any(
        one.get("type") == type_ and one.get("status") == "True" for one in _items(status, "conditions")
    )


# --- reading -------------------------------------------------------------------------------------
#
# A value of another type than the schema's counts as not given: the schema's own fault is reported beside.


def _part(obj: _Object, name: str) -> _Object:
    value = obj.get(name)
    return value if isinstance(value, dict) else {}


def _items(obj: _Object, name: str) -> Sequence[_Object]:
    value = obj.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _name(obj: _Object) -> str:
    value = obj.get("name")
    return value if isinstance(value, str) else ""


def _count(obj: _Object, *, default: int = 0) -> int:
    value = obj.get("count")
    return value if isinstance(value, int) else default


def _key(obj: _Object, key: str) -> str:
    """Return a label, or the annotation that Kueue once used instead; empty if neither is set."""
    metadata = _part(obj, "metadata")
    for place in ("labels", "annotations"):
        value = _part(metadata, place).get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def _prebuilt(obj: _Object) -> str:
    metadata = _part(obj, "metadata")
    return prebuilt_workload(_part(metadata, "labels"), _part(metadata, "annotations"))


def _key_error(obj: _Object, key: str, rule: str) -> FieldError:
    metadata = _part(obj, "metadata")
    place = "annotations" if key in _part(metadata, "annotations") else _HOME.get(key, "labels")
    return FieldError(path=f"metadata.{place}[{key}]", value=_key(obj, key) or ABSENT, rule=rule)


_HOME = dict.fromkeys((keys.ELASTIC_JOB, keys.JOB_MIN_PARALLELISM), "annotations")


def _gates(obj: _Object) -> Sequence[str]:
    text = _part(_part(obj, "metadata"), "annotations").get(keys.ADMISSION_GATED_BY)
    return [gate for gate in text.split(",") if gate] if isinstance(text, str) else []


UPDATE_RULES: Mapping[tuple[str, str], Callable[[_Object, _Object], Iterator[FieldError]]] = {
    ("apps/v1", "Deployment"): serving_update_errors,
    ("apps/v1", "StatefulSet"): serving_update_errors,
    ("batch/v1", "Job"): job_update_errors,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): serving_update_errors,
    (keys.KUEUE_VERSION, "Workload"): workload_update_errors,
}
