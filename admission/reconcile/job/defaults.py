"""The defaults of a new Job or other owner: a queue, a priority class, and suspend if it has to wait.

Without these, a Job that names a queue would run until it is reconciled and suspended.
Source: Kueue, pkg/controller/jobframework/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.reconcile.job.context import JobContext
from api import keys
from api.jobs.queued_object import QueuedJob

# The LocalQueue of this name applies to Jobs that name none, and so may the WorkloadPriorityClass.
DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """What is to be added to a new Job."""

    labels: Mapping[str, str]
    suspends: bool


NO_DEFAULTS = JobDefaults(labels={}, suspends=False)


def has_default_class(namespace: str, context: JobContext) -> bool:
    """Return whether there is a WorkloadPriorityClass for Jobs and pods of the namespace that name none.

    Only with the feature gate WorkloadPriorityClassDefaulting, as in Kueue.
    """
    return (
        context.settings.has_class_defaults
        and DEFAULT_NAME in context.workload_priority_classes
        and context.may_use_class(DEFAULT_NAME, namespace)
    )


def job_defaults(job: QueuedJob, context: JobContext, *, has_default_queue: bool) -> JobDefaults:
    """Return what a Job that is being created lacks. `has_default_queue`: whether its namespace has one.

    Nothing if the namespace is not managed. An owner does not count here: no owner's Workload counts the pods
    of another, unless the table of owners says so, which is asked before.
    """
    if not context.is_namespace_managed(job.namespace):
        return NO_DEFAULTS
    labels = {}
    if not job.queue_name and has_default_queue:
        labels[keys.QUEUE_NAME] = DEFAULT_NAME
    # A label that will be added counts as a queue name, because the Job will have it.
    if not (job.queue_name or labels or context.settings.manages_without_queue_name):
        return NO_DEFAULTS
    has_class = job.labels.get(keys.PRIORITY_CLASS) or job.annotations.get(keys.PRIORITY_CLASS)
    if not has_class and has_default_class(job.namespace, context):
        labels[keys.PRIORITY_CLASS] = DEFAULT_NAME
    # Only a Job that is not suspended yet has to be changed.
    return JobDefaults(labels=labels, suspends=not job.is_suspended)
