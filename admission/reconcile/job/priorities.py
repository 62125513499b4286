"""The priority of a Job or a pod, and the priority class that it comes from.

The first that applies: the WorkloadPriorityClass named by label, the template's own
class, the cluster's default.
Source: Kueue, pkg/util/priority.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from admission.reconcile.job.context import JobContext
from api import keys
from api.jobs.job_workload import Priority
from api.jobs.queued_object import Queued
from api.workload import Workload

_WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusableClass:
    """A named class that gives no priority: the Event's reason, the field that names it, kind and name."""

    reason: str
    field: str
    what: str
    why: str = "which does not exist; create it or name another"

    def note(self, owner: str) -> str:
        """Return the Event's sentence about `owner`, a Job or pod with its name."""
        return f"{owner}: {self.field} names {self.what}, {self.why}"


def resolved_priority(
    owner: Queued, pod_spec: Mapping[str, Any], context: JobContext, *, where: str
) -> Priority | UnusableClass:
    """Return the priority of a Job or pod, or the class that cannot be used. `where` is `pod_spec`'s path."""
    if name := owner.labels.get(keys.PRIORITY_CLASS):
        value = context.workload_priority_classes.get(name)
        field, what = f"label {keys.PRIORITY_CLASS}", f"{_WORKLOAD_PRIORITY_CLASS} {name!r}"
        # Compared with None, because a class may have the value 0.
        if value is None:
            return UnusableClass(reason="WorkloadPriorityClassNotFound", field=field, what=what)
        if context.may_use_class(name, owner.namespace):
            return class_priority(name, value)
        return _not_allowed(_WORKLOAD_PRIORITY_CLASS, field, name, owner.namespace)
    if own := pod_spec.get("priorityClassName"):
        found = context.priority_classes.get(own)
        field = f"{where}.priorityClassName"
        if found is None:
            return UnusableClass(reason="ErrWorkloadCompose", field=field, what=f"PriorityClass {own!r}")
        if not context.may_use_pod_class(own, owner.namespace):
            return _not_allowed("PriorityClass", field, own, owner.namespace)
        # Unlike a WorkloadPriorityClass, the template's class is the priority of the pods as well.
        return _pod_priority(own, found.value)
    return _default_priority(context)


def _not_allowed(kind: str, field: str, name: str, namespace: str) -> UnusableClass:
    return UnusableClass(
        reason=f"{kind}NotAllowed",
        field=field,
        what=f"{kind} {name!r}",
        why=f"which the namespace {namespace!r} may not use, by the annotation"
        f" {keys.NAMESPACE_SELECTOR} of the class; name another",
    )


def changed_priority(labels: Mapping[str, str], workload: Workload, context: JobContext) -> dict[str, Any]:
    """Return the fields of spec that change because of the Job's label; {} if none does.

    The label may name another class of the same kind at any time. The kind is frozen while quota is held.
    """
    # Removing the label changes nothing: the Workload keeps the class under which it was queued.
    name = labels.get(keys.PRIORITY_CLASS, "")
    value = context.workload_priority_classes.get(name)
    if value is None or not context.may_use_class(name, workload.key.namespace):
        return {}
    reference = workload.priority_class
    is_ours = reference is not None and reference.kind == _WORKLOAD_PRIORITY_CLASS
    # Its admission was decided with a class of another kind, and the API refuses the change.
    if workload.has_quota_reservation and not is_ours:
        return {}
    if is_ours and reference is not None and (reference.name, workload.priority) == (name, value):
        return {}
    return {"priority": value, "priorityClassRef": class_priority(name, value).reference()}


def class_priority(name: str, value: int) -> Priority:
    """Return the priority of a WorkloadPriorityClass."""
    return Priority(
        value=value, class_group=keys.KUEUE_GROUP, class_kind=_WORKLOAD_PRIORITY_CLASS, class_name=name
    )


def _default_priority(context: JobContext) -> Priority:
    classes = context.priority_classes.items()
    defaults = ((found.value, name) for name, found in classes if found.is_global_default)
    # Two defaults may exist for a moment. The API server takes the lower one too. Ties are broken by name, so
    # that the result does not depend on the order of a dict.
    lowest = min(defaults, default=None)
    return Priority() if lowest is None else _pod_priority(lowest[1], lowest[0])


def _pod_priority(name: str, value: int) -> Priority:
    return Priority(value=value, class_group="scheduling.k8s.io", class_kind="PriorityClass", class_name=name)
