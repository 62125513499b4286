"""What a Job is given as it is created: a queue, a priority class, and suspend where it has to wait.

Without these a Job that names a queue would run for the moment until its reconciliation suspends it.
Source: Kueue, pkg/controller/jobframework/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from admission.reconcile.job.context import Ancestor, JobContext
from api import keys
from api.jobs.job import Job

# The LocalQueue and the WorkloadPriorityClass of this name serve those that name none.
DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDefaults:
    """What is to be added to a new Job."""

    labels: Mapping[str, str]
    suspends: bool


NO_DEFAULTS = JobDefaults(labels={}, suspends=False)


def job_defaults(job: Job, context: JobContext, *, has_default_queue: bool) -> JobDefaults:
    """Return what a Job that is being created lacks. `has_default_queue`: in its namespace.

    Nothing where the namespace is not managed, or where an ancestor is: then that one waits and not the Job.
    """
    # A Job below a queued object (a JobSet, say) starts and stops with that one.
    if not context.is_namespace_managed(job.namespace) or context.ancestor(job) is not Ancestor.NONE:
        return NO_DEFAULTS
    labels = {}
    if not job.queue_name and has_default_queue:
        labels[keys.QUEUE_NAME] = DEFAULT_NAME
    # Labels that would be added count as a queue name, for the Job will have it.
    if not (job.queue_name or labels or context.settings.manages_without_queue_name):
        return NO_DEFAULTS
    has_class = job.labels.get(keys.PRIORITY_CLASS) or job.annotations.get(keys.PRIORITY_CLASS)
    if not has_class and DEFAULT_NAME in context.workload_priority_classes:
        labels[keys.PRIORITY_CLASS] = DEFAULT_NAME
    # Only where it is not suspended already; to write it again would be a change of nothing.
    return JobDefaults(labels=labels, suspends=not job.is_suspended)
