"""The integration of batch/v1 Jobs: `reconcile_job` returns what a Job and its Workloads need next.

`context` holds the state of the cluster that the rules depend on, `view` a Job and its Workloads
during one look, `compose` builds a Workload from a Job, `writes` builds requests and Events, and
`reconcile` has the rules.
"""

from admission.reconcile.job.context import Ancestor, FlavorInjection, JobContext, JobSettings, PriorityClass
from admission.reconcile.job.reconcile import reconcile_job

__all__ = ["Ancestor", "FlavorInjection", "JobContext", "JobSettings", "PriorityClass", "reconcile_job"]
