"""What a replay creates: names, quotas, and the Jobs of the trace as objects. Values in, values out.

trace                  cluster
user                   a namespace, with a LocalQueue and a ClusterQueue of equal nominal quota
all users              one cohort; what the division leaves over is the cohort's own quota
num_gpu                pods of at most eight GPUs (admission.simulation.shapes), on whole nodes above that
submit_time, duration  when the Job is created, and how long its pods run, divided by the speed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.cli.common import job_manifests
from admission.cli.common.arguments import NodesWish
from admission.cli.common.job_manifests import CPU, GPU, JobWish, Manifest
from admission.cli.trial.job_outcomes import RunJob
from admission.cli.trial.job_submitter import Submission
from admission.cli.trial.simulated_nodes import cpus_per_node, pool_nodes
from admission.cli.views.summary import Tenancy
from admission.simulation.shapes import MOST_GPUS_PER_POD, GangShape, gang_shape
from admission.simulation.traces import TraceError, TraceJob, tenants
from api.kube.embedded.standins import NodeSpec
from api.workload import WorkloadKey

RUN_LABEL = "berth.dev/replay"
# Leaves room on a whole node for what else a cluster puts on every node, and none for a pod of this trace.
_CPUS_LEFT_OVER = 3
_CPUS_PER_GPU = 4
_QUEUE = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """All objects of a replay. `names` gives each tenant's namespace and ClusterQueue."""

    run_id: str
    names: Mapping[str, str]
    nodes: NodesWish
    jobs: tuple[TraceJob, ...]
    keys: Mapping[str, WorkloadKey]

    @property
    def prefix(self) -> str:
        """What the names of all objects begin with."""
        return _prefix(self.run_id)

    @property
    def flavor(self) -> str:
        """The ResourceFlavor's name."""
        return f"{self.prefix}gpu"

    @property
    def cohort(self) -> str:
        """The Cohort's name."""
        return f"{self.prefix}all"

    @property
    def pool(self) -> str:
        """The node pool, and the beginning of the nodes' names."""
        return f"{self.prefix}node"

    @property
    def controller_namespace(self) -> str:
        """Where a controller that belongs to the replay keeps its lease."""
        return f"{self.prefix}berth"

    @property
    def labels(self) -> dict[str, str]:
        """What marks the objects of this run."""
        return {RUN_LABEL: self.run_id or "embedded"}

    @property
    def tenancies(self) -> list[Tenancy]:
        """Where each tenant's quota is."""
        return [
            Tenancy(tenant=tenant, cluster_queue=name, flavor=self.flavor)
            for tenant, name in self.names.items()
        ]

    def node_specs(self) -> tuple[NodeSpec, ...]:
        """Return the nodes to simulate."""
        return pool_nodes(self.pool, self.nodes.count, self.nodes.gpus_per_node, labels=self.labels)

    def namespaces(self) -> list[Manifest]:
        """Return one Namespace a tenant."""
        return [job_manifests.namespace(name, self.labels) for name in self.names.values()]

    def resource_flavor(self) -> Manifest:
        """Return the only flavor."""
        return job_manifests.resource_flavor(self.flavor, node_pool=self.pool, labels=self.labels)

    def cohort_manifest(self) -> Manifest:
        """Return the cohort, which holds what equal quotas leave over."""
        # Shares are whole GPUs, so that no tenant gets one more for the place of its name in the alphabet.
        left_over = {resource: total % len(self.names) for resource, total in self._totals().items()}
        return job_manifests.cohort(self.cohort, flavor=self.flavor, nominal=left_over, labels=self.labels)

    def cluster_queues(self) -> list[Manifest]:
        """Return one ClusterQueue a tenant, of equal nominal quota."""
        share = {resource: total // len(self.names) for resource, total in self._totals().items()}
        return [
            job_manifests.cluster_queue(
                name, flavor=self.flavor, nominal=share, cohort=self.cohort, labels=self.labels
            )
            for name in self.names.values()
        ]

    def local_queues(self) -> list[Manifest]:
        """Return one LocalQueue a tenant."""
        return [job_manifests.local_queue(_QUEUE, name, name) for name in self.names.values()]

    def submissions(self, pace: float) -> list[Submission]:
        """Return the Jobs with their times in real seconds; `pace` trace seconds pass in one."""
        return [
            Submission(at_seconds=job.submitted_at / pace, manifest=job_manifests.job(self._wish(job)))
            for job in self.jobs
        ]

    def run_jobs(self) -> list[RunJob]:
        """Return the Jobs as they were meant to be, in trace seconds."""
        return [
            RunJob(
                key=self.keys[job.id],
                tenant=job.tenant,
                gpus=job.gpus,
                submitted_at=job.submitted_at,
                duration_seconds=job.duration_seconds,
            )
            for job in self.jobs
        ]

    def _totals(self) -> dict[str, int]:
        cpus = cpus_per_node(self.nodes.gpus_per_node)
        return {CPU: self.nodes.count * cpus, GPU: self.nodes.gpus}

    def _wish(self, job: TraceJob) -> JobWish:
        key = self.keys[job.id]
        return JobWish(
            name=key.name,
            namespace=key.namespace,
            queue=_QUEUE,
            shape=_shape(job.gpus, self.nodes),
            run_seconds=job.duration_seconds,
            cpus_per_gpu=_CPUS_PER_GPU,
            node_cpus=cpus_per_node(self.nodes.gpus_per_node) - _CPUS_LEFT_OVER,
            labels=self.labels,
        )


def make_plan(jobs: Sequence[TraceJob], *, nodes: NodesWish, run_id: str) -> ReplayPlan:
    """Return the plan for `jobs` on `nodes`. A `run_id` keeps it apart from others in a shared cluster.

    Raises TraceError where a Job can never fit the nodes.
    """
    # Before anything is named or made: a trace that cannot be played ends the command with
    # nothing to clean up.
    for job in jobs:
        _check_fits(job, nodes)
    # Two tenants whose names differ only in what DNS does not allow stay two.
    names = job_manifests.dns_names(tenants(jobs), prefix=_prefix(run_id))
    job_names = job_manifests.dns_names((job.id for job in jobs), prefix="job-")
    return ReplayPlan(
        run_id=run_id,
        names=names,
        nodes=nodes,
        jobs=tuple(jobs),
        keys={job.id: WorkloadKey(names[job.tenant], job_names[job.id]) for job in jobs},
    )


def _prefix(run_id: str) -> str:
    return f"replay-{run_id}-" if run_id else ""


def _shape(gpus: int, nodes: NodesWish) -> GangShape:
    return gang_shape(gpus, most_per_pod=max(1, min(MOST_GPUS_PER_POD, nodes.gpus_per_node)))


def _check_fits(job: TraceJob, nodes: NodesWish) -> None:
    shape = _shape(job.gpus, nodes)
    # Gangs of more than a node's GPUs are one pod a node; smaller ones may share nodes.
    pods_at_once = nodes.count if shape.whole_nodes else nodes.gpus
    if job.gpus > nodes.gpus or (job.gpus and shape.pods > pods_at_once):
        raise TraceError(
            f"Job {job.id} of {job.tenant} wants {job.gpus} GPUs, {shape.pods} pods of {shape.gpus_per_pod};"
            f" {nodes} nodes can never hold it; give more --nodes"
        )
