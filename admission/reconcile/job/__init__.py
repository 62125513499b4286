"""The integration of batch/v1 Jobs: `reconcile_job` says what a Job and its Workloads need next.

`context` holds what it must be told of the cluster, `view` what one look at a Job sees, `compose` how a
Workload is made from a Job, `writes` how an answer becomes a request, `reconcile` the rules.
"""

from admission.reconcile.job.context import Ancestor, FlavorInjection, JobContext, JobSettings, PriorityClass
from admission.reconcile.job.reconcile import reconcile_job

__all__ = ["Ancestor", "FlavorInjection", "JobContext", "JobSettings", "PriorityClass", "reconcile_job"]
