"""The objects that a replay creates: names, quotas, and the Jobs of the trace. All functions here are pure.

trace                  cluster
user                   a namespace, with a LocalQueue and a ClusterQueue of equal nominal quota
all users              one cohort; the remainder of the division is the cohort's own quota
num_gpu                pods of at most eight GPUs (admission.simulation.shapes), on whole nodes above that
submit_time, duration  when the Job is created, and how long its pods run, divided by the speed
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.cli.common import job_manifests
from admission.cli.common.arguments import NodeCounts
from admission.cli.common.job_manifests import CPU, GPU, Manifest, NewJob
from admission.cli.trial.job_outcomes import RunJob
from admission.cli.trial.job_submitter import Submission
from admission.cli.trial.simulated_nodes import cpus_per_node, pool_nodes
from admission.cli.views.summary import Tenancy
from admission.simulation.shapes import MOST_GPUS_PER_POD, GangShape, gang_shape
from admission.simulation.traces import TraceError, TraceJob, tenants
from api.kube.embedded.standins.kubelet import NodeSpec
from api.workload import WorkloadKey

RUN_LABEL = "berth.dev/replay"
# CPUs left free on a whole node: enough for a cluster's daemons, too few for another pod of this trace.
_CPUS_LEFT_OVER = 3
_CPUS_PER_GPU = 4
_QUEUE = "replay"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """All objects of a replay. `names` gives each tenant's namespace and ClusterQueue."""

    run_id: str
    names: Mapping[str, str]
    nodes: NodeCounts
    jobs: tuple[TraceJob, ...]
    keys: Mapping[str, WorkloadKey]

    @property
    def prefix(self) -> str:
        """Return the prefix of all object names, "" without a run id."""
        return _prefix(self.run_id)

    @property
    def flavor(self) -> str:
        """Return the name of the ResourceFlavor."""
        return f"{self.prefix}gpu"

    @property
    def cohort(self) -> str:
        """Return the name of the Cohort."""
        return f"{self.prefix}all"

    @property
    def pool(self) -> str:
        """Return the name of the node pool, which is also the prefix of node names."""
        return f"{self.prefix}node"

    @property
    def controller_namespace(self) -> str:
        """Return the namespace for the lease of the replay's own controller."""
        return f"{self.prefix}berth"

    @property
    def labels(self) -> dict[str, str]:
        """Return the labels of all objects of this run."""
        return {RUN_LABEL: self.run_id or "embedded"}

    @property
    def tenancies(self) -> list[Tenancy]:
        """Return the ClusterQueue and flavor of each tenant."""
        return [
            Tenancy(tenant=tenant, cluster_queue=name, flavor=self.flavor)
            for tenant, name in self.names.items()
        ]

    def node_specs(self) -> tuple[NodeSpec, ...]:
        """Return the nodes to simulate."""
        return pool_nodes(self.pool, self.nodes.count, self.nodes.gpus_per_node, labels=self.labels)

    def namespaces(self) -> list[Manifest]:
        """Return one Namespace per tenant."""
        return [job_manifests.namespace(name, self.labels) for name in self.names.values()]

    def resource_flavor(self) -> Manifest:
        """Return the ResourceFlavor of all simulated nodes."""
        return job_manifests.resource_flavor(self.flavor, node_pool=self.pool, labels=self.labels)

    def cohort_manifest(self) -> Manifest:
        """Return the Cohort, whose own quota is the remainder of the division into equal quotas."""
        # Quotas are equal whole numbers; the remainder goes to the cohort instead of to some tenants.
        left_over = {resource: total % len(self.names) for resource, total in self._totals().items()}
        return job_manifests.cohort(self.cohort, flavor=self.flavor, nominal=left_over, labels=self.labels)

    def cluster_queues(self) -> list[Manifest]:
        """Return one ClusterQueue per tenant, all with equal nominal quota."""
        share = {resource: total // len(self.names) for resource, total in self._totals().items()}
        return [
            job_manifests.cluster_queue(
                name, flavor=self.flavor, nominal=share, cohort=self.cohort, labels=self.labels
            )
            for name in self.names.values()
        ]

    def local_queues(self) -> list[Manifest]:
        """Return one LocalQueue per tenant."""
        return [job_manifests.local_queue(_QUEUE, name, name) for name in self.names.values()]

    def submissions(self, pace: float) -> list[Submission]:
        """Return the Jobs with their times in real seconds; `pace` trace seconds pass in one real second."""
        return [
            Submission(at_seconds=job.submitted_at / pace, manifest=job_manifests.job(self._new_job(job)))
            for job in self.jobs
        ]

    def run_jobs(self) -> list[RunJob]:
        """Return the Jobs as planned, in trace seconds."""
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

    def _new_job(self, job: TraceJob) -> NewJob:
        key = self.keys[job.id]
        return NewJob(
            name=key.name,
            namespace=key.namespace,
            queue=_QUEUE,
            shape=_shape(job.gpus, self.nodes),
            run_seconds=job.duration_seconds,
            cpus_per_gpu=_CPUS_PER_GPU,
            node_cpus=cpus_per_node(self.nodes.gpus_per_node) - _CPUS_LEFT_OVER,
            labels=self.labels,
        )


def make_plan(jobs: Sequence[TraceJob], *, nodes: NodeCounts, run_id: str) -> ReplayPlan:
    """Return the plan for `jobs` on `nodes`. A `run_id` makes its names unique in a shared cluster.

    Raises TraceError if a Job can never fit the nodes.
    """
    # Check this before anything is created, so that an unusable trace ends the command with
    # nothing to clean up.
    for job in jobs:
        _check_fits(job, nodes)
    # Tenants whose names differ only in characters that DNS does not allow get different names.
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


def _shape(gpus: int, nodes: NodeCounts) -> GangShape:
    return gang_shape(gpus, most_per_pod=max(1, min(MOST_GPUS_PER_POD, nodes.gpus_per_node)))


def _check_fits(job: TraceJob, nodes: NodeCounts) -> None:
    shape = _shape(job.gpus, nodes)
    # Gangs larger than a node have one pod per node; smaller ones may share nodes.
    pods_at_once = nodes.count if shape.whole_nodes else nodes.gpus
    if job.gpus > nodes.gpus or (job.gpus and shape.pods > pods_at_once):
        raise TraceError(
            f"Job {job.id} of {job.tenant} wants {job.gpus} GPUs, {shape.pods} pods of {shape.gpus_per_pod};"
            f" {nodes} nodes can never hold it; give more --nodes"
        )
