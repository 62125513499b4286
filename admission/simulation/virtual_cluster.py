"""The simulated cluster as values of the engine: nodes, flavors, queues, and a Workload for each Job.

Placement is that of production: a topology whose only level is the hostname, so that each pod runs on one
node, and a gang on whole nodes requests all GPUs of each node. Values are created directly; no object is
encoded as JSON and decoded again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from random import Random

from admission.engine.updates import Upsertable
from admission.simulation.checkpointing import HIGH_PRIORITY
from admission.simulation.policies import Policy
from admission.simulation.settings import Queues, Setting
from admission.simulation.traces import TraceJob
from api.jobs.resource_requests import PODS
from api.keys import (
    CHECKPOINT_INTERVAL_SECONDS,
    EXPECTED_RUNTIME_SECONDS,
    GPU_RESOURCE,
    HOSTNAME,
    NODE_COST_PER_HOUR,
    OPPORTUNISTIC,
    RESERVATION,
    WANTED_GPU_MODEL,
    WORKLOAD_TYPE,
)
from api.node import NodeInfo
from api.objects.common import WireSelector
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.queueing import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.workload import Admission, PodSet, Workload, WorkloadKey

_FLAVOR = "gpu"
_COHORT = "all"
_POOL = "pool"
_QUEUE = "simulation"
_LOWER_PRIORITY = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
# The kubelet's default.
_PODS_PER_NODE = 110


@dataclass(slots=True)
class VirtualCluster:
    """The objects that exist before the first Job, and the Workloads of Jobs."""

    setting: Setting
    policy: Policy
    tenants: tuple[str, ...]
    _pod_sets: dict[int, tuple[PodSet, ...]] = field(default_factory=dict)

    def values(self) -> Iterator[Upsertable]:
        """Yield flavor, topology, nodes and queues."""
        yield Topology(name=_FLAVOR, levels=(HOSTNAME,))
        for flavor in self.setting.flavors:
            yield ResourceFlavor(
                name=flavor.name, topology_name=_FLAVOR, node_labels={_POOL: flavor.name, **flavor.labels}
            )
        if not self.setting.flavors:
            yield ResourceFlavor(name=_FLAVOR, topology_name=_FLAVOR)
        for number in range(self.setting.nodes):
            yield self.node(number)
        policy = self.policy.admission_policy(self.setting)
        if policy is not None:
            yield policy
        # Yield queues last: queues whose flavor does not exist yet would be inactive.
        yield from self._queues()

    def node(self, number: int, *, is_ready: bool = True) -> NodeInfo:
        """Return a node, ready or lost."""
        return NodeInfo(
            name=self.node_name(number),
            labels={HOSTNAME: self.node_name(number), **self._flavor_labels(number)},
            allocatable={GPU_RESOURCE: self.setting.gpus_per_node, PODS: _PODS_PER_NODE},
            is_ready=is_ready,
        )

    def _flavor_labels(self, number: int) -> Mapping[str, str]:
        flavor = self.setting.flavor_at(number)
        if flavor is None:
            return {}
        if flavor.cost_per_gpu_hour is None:
            return {_POOL: flavor.name, **flavor.labels}
        price = f"{flavor.cost_per_gpu_hour * self.setting.gpus_per_node:.4f}"
        return {_POOL: flavor.name, NODE_COST_PER_HOUR: price, **flavor.labels}

    def price_of(self, admission: Admission) -> float:
        """Return the price of a GPU-hour in the flavor of an admission, 0 where it has none."""
        (pod_set,) = admission.pod_sets
        name = pod_set.flavors[GPU_RESOURCE]
        found = next((one for one in self.setting.flavors if one.name == name), None)
        return (found.cost_per_gpu_hour if found is not None else None) or 0.0

    def node_name(self, number: int) -> str:
        """Return the name of a node."""
        return f"node-{number:05}"

    def workload(self, job: TraceJob, place: int) -> Workload:
        """Return the Job's Workload. `place` is its position in the order of submits, which breaks ties."""
        return Workload(
            key=WorkloadKey(self._namespace(job.tenant), f"{job.tenant}-{job.id}"),
            # Number uids in the order of submits, because the uid breaks ties within a second.
            uid=f"{place:08}",
            created_at=self.policy.queues_by(job),
            pod_sets=self._pods(job.gpus),
            queue_name=_QUEUE,
            generation=1,
            annotations={
                **self._expectation(job),
                **self._consent(job),
                **_membership(job),
                **(_hardware(job) if self.setting.flavors else {}),
            },
            owner_kind="Job",
            priority=HIGH_PRIORITY if self.policy.preempts and not job.is_preemptible else 0,
        )

    def _expectation(self, job: TraceJob) -> Mapping[str, str]:
        """Return the annotations for the declared run time, empty for a policy that does not read them."""
        if not self.policy.reads_estimates or not self._declares(job):
            return {}
        expected = max(1, ceil(job.duration_seconds * self.setting.estimates.factor))
        return {EXPECTED_RUNTIME_SECONDS: str(expected)}

    def _declares(self, job: TraceJob) -> bool:
        """Return whether the Job declares a run time, the same under every policy."""
        # With words of its own in the seed, so that the draw is independent of the checkpoints'.
        chance = Random(f"{self.setting.faults.seed}/declares/{job.id}")
        return chance.random() < self.setting.share_declaring

    def _consent(self, job: TraceJob) -> Mapping[str, str]:
        """Return the label of an opportunistic Job, which may be stopped for a promised start, or nothing."""
        return {OPPORTUNISTIC: "true"} if self.policy.runs_in_hold(job) else {}

    def _namespace(self, tenant: str) -> str:
        return tenant if self._is_by_tenant else _QUEUE

    @property
    def _is_by_tenant(self) -> bool:
        return self.setting.queues is Queues.TENANT or self.policy.needs_tenants

    def _queues(self) -> Iterator[Upsertable]:
        names = self.tenants if self._is_by_tenant else (_QUEUE,)
        share, left_over = self._group(len(names), is_share=True), self._group(len(names), is_share=False)
        cohort = _COHORT if self._is_by_tenant else None
        if cohort is not None:
            # The remainder of the division is the cohort's own quota.
            yield Cohort(name=cohort, resource_groups=(left_over,))
        for name in names:
            yield Namespace(name=name)
            yield ClusterQueue(
                name=name,
                cohort=cohort,
                resource_groups=(share,),
                queueing_strategy=self.policy.strategy,
                # An empty selector matches every namespace; an absent one would match none.
                namespace_selector=WireSelector(),
                preemption=_LOWER_PRIORITY if self.policy.preempts else Preemption(),
            )
            yield LocalQueue(namespace=name, name=_QUEUE, cluster_queue=name)

    def _group(self, tenants: int, *, is_share: bool) -> ResourceGroup:
        """Return the quotas of one of `tenants` ClusterQueues, or what the division leaves."""
        sizes = {one.name: one.nodes * self.setting.gpus_per_node for one in self.setting.flavors}
        quotas = []
        for name, gpus in (sizes or {_FLAVOR: self.setting.gpus}).items():
            share, left_over = divmod(gpus, tenants)
            quota = ResourceQuota(nominal=share if is_share else left_over)
            quotas.append(FlavorQuotas(name=name, resources={GPU_RESOURCE: quota}))
        return ResourceGroup(covered_resources=(GPU_RESOURCE,), flavors=tuple(quotas))

    def _pods(self, gpus: int) -> tuple[PodSet, ...]:
        # Share one value between all Jobs of a size: the engine sees one shape, and memory holds
        # one value instead of thirty thousand.
        known = self._pod_sets.get(gpus)
        if known is None:
            pods = self.setting.shape(gpus).pods
            asked = WireResources(requests={GPU_RESOURCE: str(self.setting.gpus_held(gpus) // pods)})
            spec = WirePodSpec(
                containers=(WireContainer(name="main", resources=asked),),
                # Long enough for a save at SIGTERM, as such Jobs configure it.
                termination_grace_period_seconds=(
                    ceil(self.setting.save_seconds) if self.setting.checkpoints.on_sigterm else None
                ),
            )
            pod_set = PodSet(name="main", count=pods, template=WirePodTemplate(spec=spec))
            known = self._pod_sets[gpus] = (pod_set,)
        return known


def _membership(job: TraceJob) -> Mapping[str, str]:
    return {RESERVATION: job.reservation} if job.reservation else {}


def _hardware(job: TraceJob) -> Mapping[str, str]:
    """Return the annotations of what the Job needs of its nodes, and of how often it saves."""
    every = job.checkpoint_seconds
    found = {
        WANTED_GPU_MODEL: job.gpu_model,
        WORKLOAD_TYPE: job.workload_type,
        CHECKPOINT_INTERVAL_SECONDS: str(round(every)) if every else "",
    }
    return {key: value for key, value in found.items() if value}
