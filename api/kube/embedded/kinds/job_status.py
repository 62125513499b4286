"""Validation of a Job's status, given its previous status.

Any controller may write the status, so the server enforces the guarantees that clients rely on: terminal
conditions stay, failure counters do not decrease, and a finished Job has times and no running pods. A rule
checks only fields that the write changes, so that a status which violated it earlier can still be corrected.

Source: k8s.io/kubernetes, pkg/registry/batch/job/strategy.go (when each rule applies)
and pkg/apis/batch/validation/validation.go (the rules).
"""

from collections.abc import Iterator
from typing import Final

from api.kube.embedded.apply.errors import FieldError, invalid_value, required
from api.kube.embedded.apply.schema import JsonObject

_TERMINAL: Final = ("Failed", "Complete", "FailureTarget", "SuccessCriteriaMet")
_COUNTS: Final = ("active", "succeeded", "failed", "ready", "terminating")
# Pairs of conditions that exclude each other, because a Job either succeeds or fails.
_EXCLUSIVE: Final = (
    ("Complete", "Failed"),
    ("Complete", "FailureTarget"),
    ("SuccessCriteriaMet", "Failed"),
    ("SuccessCriteriaMet", "FailureTarget"),
)


def has_condition(status: JsonObject, type_: str, value: str = "True") -> bool:
    """Return whether a condition of this type has this value."""
    return any(each["type"] == type_ and each["status"] == value for each in status.get("conditions", ()))


def job_status_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Yield the faults of a Job's new status."""
    status, before = new.get("status", {}), old.get("status", {})
    for key in _COUNTS:
        if status.get(key, 0) < 0:
            yield invalid_value(f"status.{key}", status[key], "must be greater than or equal to 0")
    yield from _condition_faults(status, before)
    yield from _finished_faults(status, before, new["spec"])
    yield from _time_faults(status, before)
    yield from _start_faults(new, old)
    if _changes(status, before, "ready", "active") and status.get("ready", 0) > status.get("active", 0):
        yield invalid_value("status.ready", status["ready"], "cannot set more ready pods than active")
    if status.get("failed", 0) < before.get("failed", 0):
        yield invalid_value("status.failed", status.get("failed", 0), "cannot decrease the failed counter")
    if not _is_elastic(new["spec"]) and status.get("succeeded", 0) < before.get("succeeded", 0):
        why = "cannot decrease the succeeded counter"
        yield invalid_value("status.succeeded", status.get("succeeded", 0), why)


def _is_elastic(spec: JsonObject) -> bool:
    is_indexed = spec.get("completionMode") == "Indexed"
    return is_indexed and spec.get("completions") == spec.get("parallelism")


def _changes(status: JsonObject, before: JsonObject, *keys: str) -> bool:
    return any(status.get(key) != before.get(key) for key in keys)


def _turns(status: JsonObject, before: JsonObject, *types: str) -> bool:
    return any(has_condition(status, type_) != has_condition(before, type_) for type_ in types)


def _is_finished(status: JsonObject) -> bool:
    return has_condition(status, "Complete") or has_condition(status, "Failed")


def _of_conditions(why: str) -> FieldError:
    return FieldError("status.conditions", "FieldValueInvalid", f"Invalid value: {why}")


def _condition_faults(status: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    for one, other in _EXCLUSIVE:
        # Rules for success criteria always apply, the others only if one of the two conditions has changed.
        is_asked = one == "SuccessCriteriaMet" or _turns(status, before, one, other)
        if is_asked and has_condition(status, one) and has_condition(status, other):
            yield _of_conditions(f"cannot set {one}=True and {other}=true conditions")
    fails = _turns(status, before, "Failed") and has_condition(status, "Failed")
    if fails and not has_condition(status, "FailureTarget"):
        yield _of_conditions("cannot set Failed=True condition without the FailureTarget=true condition")
    completes = _turns(status, before, "Complete", "SuccessCriteriaMet") and has_condition(status, "Complete")
    if completes and not has_condition(status, "SuccessCriteriaMet"):
        why = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        yield _of_conditions(why)
    for type_ in _TERMINAL:
        if has_condition(before, type_) and not has_condition(status, type_):
            terminal = "" if type_ == "SuccessCriteriaMet" else "terminal "
            yield _of_conditions(f"cannot disable the {terminal}{type_}=True condition")


def _finished_faults(status: JsonObject, before: JsonObject, spec: JsonObject) -> Iterator[FieldError]:
    if not _is_finished(status):
        return
    turns = not _is_finished(before)
    if (turns or _changes(status, before, "active")) and status.get("active"):
        yield invalid_value("status.active", status["active"], "active>0 is invalid for finished job")
    if (turns or _changes(status, before, "terminating")) and status.get("terminating"):
        why = "terminating>0 is invalid for finished job"
        yield invalid_value("status.terminating", status["terminating"], why)
    is_empty = bool(spec.get("suspend")) and spec.get("completions") == 0
    if (turns or _changes(status, before, "startTime")) and not is_empty and "startTime" not in status:
        yield required("status.startTime", "startTime is required for finished job")


def _time_faults(status: JsonObject, before: JsonObject) -> Iterator[FieldError]:
    start, end = status.get("startTime"), status.get("completionTime")
    is_complete = has_condition(status, "Complete")
    if _turns(status, before, "Complete") or _changes(status, before, "completionTime"):
        if end is not None and not is_complete:
            why = "cannot set completionTime when there is no Complete=True condition"
            yield invalid_value("status.completionTime", end, why)
        if end is None and is_complete:
            yield required("status.completionTime", "completionTime is required for Complete jobs")
    if _changes(status, before, "startTime", "completionTime") and start and end and end < start:
        yield invalid_value("status.completionTime", end, "must be equal to or after `startTime`")
    if end and before.get("completionTime") and end != before["completionTime"]:
        yield invalid_value("status.completionTime", end, "field is immutable")


def _start_faults(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    status, before = new.get("status", {}), old.get("status", {})
    is_resuming = has_condition(before, "Suspended") and has_condition(status, "Suspended", "False")
    was, now = before.get("startTime"), status.get("startTime")
    if was and now != was and not new["spec"].get("suspend") and not is_resuming:
        why = "field is immutable for unsuspended job once set"
        yield invalid_value("status.startTime", now, why)
