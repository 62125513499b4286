"""What a reconciler is given of the objects around its own: queues, namespaces, owners, pods, policies.

The reconcilers of `admission.reconcile` are pure functions. What they may know of the cluster comes to them
as a context, which is built here from the present state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.controller.cluster_state.ancestors import Ancestors
from admission.controller.cluster_state.node_cache import NodeCache
from admission.controller.cluster_state.object_cache import ObjectCache
from admission.controller.cluster_state.pending_evictions import PendingEvictions
from admission.controller.cluster_state.placed_pods import PlacedPods
from admission.controller.cluster_state.pod_gangs import PodGangs
from admission.controller.cluster_state.pod_groups import PodGroups
from admission.controller.cluster_state.provisioning import Provisioning
from admission.controller.cluster_state.queued_objects import QueuedObjects
from admission.controller.cluster_state.spec_cache import SpecCache
from admission.controller.cluster_state.stateful_sets import StatefulSets
from admission.controller.cluster_state.workload_pods import WorkloadPods
from admission.engine.engine import Engine
from admission.reconcile.job.context import JobContext, JobSettings
from admission.reconcile.workload.context import LifecycleContext, LifecycleSettings, Owner
from api import keys
from api.jobs.owners.row import OwnerKind
from api.jobs.stateful_set import STATEFUL_SET_KIND
from api.objects.common import WireSelector
from api.policy import KUEUE, Recovery
from api.selectors import matches_selector
from api.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStateSettings:
    """The configuration for Jobs, pods and Workloads. `namespace_selector` None manages all namespaces.

    `with_pods`: pods may be queued by themselves and in groups. `with_pod_groups`: pods and Jobs start with
    the minimum of the PodGroup of scheduling.x-k8s.io that they name. `with_provisioning`: AdmissionChecks
    ask the cluster's autoscaler for nodes. `with_devices`: devices of resource claims are counted.
    `gives_up_pods`: pods that allow it are given up on nodes that cannot be reached. `serving_kinds`: the
    kinds whose pods are queued because of their own labels. `owner_kinds`: the kinds beside Jobs that are
    started and stopped as a whole. The two pod selectors restrict which pods are queued at all.
    """

    with_pods: bool = False
    with_pod_groups: bool = False
    with_provisioning: bool = True
    with_devices: bool = True
    gives_up_pods: bool = False
    serving_kinds: frozenset[str] = frozenset()
    owner_kinds: tuple[OwnerKind, ...] = ()
    pod_namespace_selector: WireSelector = field(default_factory=WireSelector)
    pod_selector: WireSelector = field(default_factory=WireSelector)
    jobs: JobSettings = field(default_factory=JobSettings)
    lifecycle: LifecycleSettings = field(default_factory=LifecycleSettings)
    namespace_selector: WireSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileContexts:
    """Builds contexts. It owns no state: it reads that of ClusterState."""

    engine: Engine
    settings: ClusterStateSettings
    specs: SpecCache
    jobs: QueuedObjects
    workloads: ObjectCache[Workload]
    pods: PodGroups
    stateful_sets: StatefulSets
    nodes: NodeCache
    placed_pods: PlacedPods
    workload_pods: WorkloadPods
    pending_evictions: PendingEvictions
    gangs: PodGangs
    ancestors: Ancestors
    provisioning: Provisioning

    def of_jobs(self) -> JobContext:
        """Return the context of all Jobs and pods. It answers from the state at the time of each question."""
        return JobContext(
            injection=self.engine.nodes.flavor_injection,
            settings=self.settings.jobs,
            is_namespace_managed=self._is_namespace_managed,
            is_pod_selected=self._is_pod_selected,
            is_domain=self.engine.nodes.is_domain,
            awaits_ends=self._awaits_ends,
            pods_in_use=self.placed_pods.in_use,
            saved_at=lambda job: self.workload_pods.saved_at(job.uid),
            ancestor=self.ancestors.of,
            read=self.ancestors.read,
            gang=self.gangs.gang_of if self.gangs.is_kept else None,
            workload_priority_classes=self.specs.workload_priorities,
            may_use_class=self.specs.may_use_class,
            may_use_pod_class=self.specs.may_use_pod_class,
            priority_classes=self.specs.priorities,
        )

    def selects_pods_of(self, namespace: str) -> bool:
        """Return whether pods of the namespace are queued, as far as its labels decide it."""
        return matches_selector(self.settings.pod_namespace_selector, self.specs.labels_of(namespace))

    def of_workload(self, workload: Workload) -> LifecycleContext:
        """Return what a Workload's reconciliation needs to know of the cluster."""
        # A third of all looks: nothing is decided any more, so its queues, nodes and pods do not matter.
        if workload.is_finished:
            return LifecycleContext(
                owner=self._owner(workload),
                settings=self.settings.lifecycle,
                # Its ProvisioningRequests end with it.
                provisioning=self.provisioning.context_of(workload),
            )
        local_queue = self.specs.local_queues.get((workload.key.namespace, workload.queue_name))
        cluster_queue = (
            self.specs.cluster_queues.get(local_queue.cluster_queue) if local_queue is not None else None
        )
        # The queue whose quota it holds governs it, even if its LocalQueue points to another one by now.
        if workload.admission is not None:
            cluster_queue = self.specs.cluster_queues.get(workload.admission.cluster_queue, cluster_queue)
        # Without a queue no policy governs it.
        policy = self.engine.queues.policy_of(cluster_queue.name) if cluster_queue is not None else KUEUE
        recovery = self._recovery(workload)
        words = self.settings.lifecycle.words
        return LifecycleContext(
            owner=self._owner(workload),
            queue_problem=self.engine.workloads.queue_problem(workload, in_older_words=not words.is_fine),
            has_unread_requests=self.engine.workloads.has_unread_requests(workload.key),
            required_checks=self.engine.workloads.required_checks(workload),
            local_queue_stop=local_queue.stop_policy if local_queue is not None else None,
            cluster_queue_stop=cluster_queue.stop_policy if cluster_queue is not None else None,
            settings=self.settings.lifecycle,
            pods=self.placed_pods.pods_of(workload.chain),
            leaving=self.placed_pods.leaving(workload.chain),
            faults=self.nodes.faults(workload),
            misplaced=self.placed_pods.misplaced(workload),
            # If many nodes fail at once, the cause is something larger (a network, for example), and no gang
            # is moved.
            recovery=None if self.nodes.is_disrupted else recovery,
            replaces_several=recovery is not None,
            planned=self.engine.promises.planned(workload.key),
            expected_at=self.engine.promises.expected_start(workload.key),
            saving=self.pending_evictions.context(workload, policy),
            policy=policy,
            turns_at=self.engine.workloads.turns_at(workload),
            class_value=self._class_value(workload),
            addresses=self.engine.addresses.settle(workload.key),
            provisioning=self.provisioning.context_of(workload),
            successor=self.engine.workloads.successor(workload.key),
        )

    def _class_value(self, workload: Workload) -> int | None:
        """Return the value of the class that the Workload names, if its namespace may use it."""
        reference = workload.priority_class
        if reference is None or reference.kind != "WorkloadPriorityClass":
            return None
        if not self.specs.may_use_class(reference.name, workload.key.namespace):
            return None
        return self.specs.workload_priorities.get(reference.name)

    def _awaits_ends(self, workload: Workload) -> bool:
        """Return whether a policy wants a Workload's quota to be kept until its last pod has ended."""
        admission = workload.admission
        return (
            admission is not None
            and self.engine.queues.policy_of(admission.cluster_queue).preemption is not None
        )

    def _recovery(self, workload: Workload) -> Recovery | None:
        if workload.admission is None:
            return None
        placement = self.engine.queues.policy_of(workload.admission.cluster_queue).placement
        return placement.recovery if placement is not None else None

    def _owner(self, workload: Workload) -> Owner:
        """Return what owns the Workload.

        A Job that is not known yet does not count as missing, because the watch of Jobs may lag
        behind that of Workloads. It is missing once it was seen to be deleted, or once the garbage
        collector deletes its Workload.
        """
        unit = self.pods.unit_of_workload(workload) if self.pods.is_kept else None
        # A group is represented by its pods as long as there are any, and that of a StatefulSet by the set.
        if unit is not None and unit.group:
            is_known = self.pods.members(unit) or self.stateful_sets.of_unit(unit) is not None
            return Owner.JOB if is_known or self._awaits_set(workload) else Owner.NONE
        if workload.owner_uid is None:
            return Owner.NONE
        if workload.owner_kind not in self.jobs and unit is None:
            return Owner.OTHER
        owners = self.jobs if unit is None else self.pods
        if owners.by_uid(workload.owner_uid) is not None:
            return Owner.JOB
        is_gone = owners.has_gone(workload.owner_uid) or workload.deleted_at is not None
        # It is unknown and was not seen to be deleted: the watch of Jobs may lag behind.
        return Owner.MISSING if is_gone else Owner.JOB

    def _awaits_set(self, workload: Workload) -> bool:
        """Return whether the StatefulSet of a group without pods is not known yet: its watch may lag."""
        uid = workload.labels.get(keys.JOB_UID)
        has_sets = STATEFUL_SET_KIND in self.settings.serving_kinds
        return (
            has_sets
            and uid is not None
            and workload.deleted_at is None
            and not self.stateful_sets.has_gone(uid)
        )

    def _is_namespace_managed(self, namespace: str) -> bool:
        selector = self.settings.namespace_selector
        return selector is None or matches_selector(selector, self.specs.labels_of(namespace))

    def _is_pod_selected(self, namespace: str, labels: Mapping[str, str]) -> bool:
        return matches_selector(self.settings.pod_selector, labels) and self.selects_pods_of(namespace)
