"""Workload, the unit of admission, as a frozen value.

A Workload requests pod sets; an Admission records the flavors that they were assigned. Times are Unix seconds
(UTC), resources are integers in canonical units (`api.parsing.quantities.amount`: milli-CPU, else whole
units). The *requests* of a pod set depend on the cluster (limit ranges, overheads, transformations) and are
computed in `api.jobs.resource_requests`; this module contains only the data of the object itself, which
`api.workload_decoding` reads from the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from api.keys import ELASTIC_JOB, SLICE_NAME, SLICE_REPLACEMENT_FOR
from api.objects.templates import WirePodTemplate
from api.objects.workloads import (
    WirePriorityClassRef,
)
from api.reasons import ConditionType, EvictionReason, FinishedReason, PendingReason

# One shared read-only mapping, because most of 15,000 Workloads have no annotations.
NOTHING: Mapping[str, str] = MappingProxyType({})

# How a message names a Workload to readers that may not know its namespace.
OF_ANOTHER_NAMESPACE = "a Workload of another namespace"


class WorkloadKey(NamedTuple):
    """Namespace and name of a Workload; cheap to sort and hash, and printed as namespace/name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def as_read_in(self, namespace: str) -> str:
        """Return how a message names it that is read in `namespace`: teams learn no names of other teams."""
        return self.as_seen(namespace.__eq__)

    def as_seen(self, sees: Callable[[str], bool]) -> str:
        """Return how a message names it to a reader, of which `sees` says whose names it may know."""
        return str(self) if sees(self.namespace) else OF_ANOTHER_NAMESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One status condition; `at` is lastTransitionTime."""

    type: str
    status: bool
    reason: str = ""
    message: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceConstraint:
    """Every group of `size` pods must be within one domain of the level `topology`."""

    topology: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyRequest:
    """The topology request of a pod set; at most one of required, preferred and unconstrained is set."""

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    pod_set_group: str | None = None
    slices: tuple[SliceConstraint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRanks:
    """Which labels give a pod its rank in its pod set.

    The pods are in `groups` of equal size. `index_label` is the label of a pod's index in its group, and
    `group_label` that of the group's own index; None if all pods are one group. `offset` is the index of the
    first pod.
    """

    index_label: str
    group_label: str | None = None
    groups: int = 1
    offset: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """`count` pods with one template.

    `min_count` is the minimum for partial admission, None if not allowed. `ranks` is None if pods have none.
    """

    name: str
    count: int
    template: WirePodTemplate
    min_count: int | None = None
    topology_request: TopologyRequest | None = None
    ranks: PodRanks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCount:
    """`count` pods in the topology domain whose level values are `values` (widest level first)."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyAssignment:
    """The domains of the pods of a pod set, with one entry per domain.

    `levels` are the node labels of `values`.
    """

    levels: tuple[str, ...]
    domains: tuple[DomainCount, ...]


# The states of delayedTopologyRequest: the placement is still to be decided, or has been decided.
DELAYED_PENDING = "Pending"
DELAYED_READY = "Ready"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetAssignment:
    """The flavors of one pod set, by resource, and the quota that is charged for all of its pods together."""

    name: str
    count: int
    flavors: Mapping[str, str]
    usage: Mapping[str, int]
    topology: TopologyAssignment | None = None
    delayed_topology_request: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A quota reservation as recorded in status.admission."""

    cluster_queue: str
    pod_sets: tuple[PodSetAssignment, ...]

    @property
    def is_delayed(self) -> bool:
        """Whether pods have quota but no domain yet, because the placement is decided after their checks."""
        return any(one.delayed_topology_request == DELAYED_PENDING for one in self.pod_sets)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckState:
    """One entry of status.admissionChecks; `state` is Pending, Ready, Retry or Rejected.

    `retry_count`: how often the check has asked for a retry.
    """

    name: str
    state: str
    message: str = ""
    at: float = 0.0
    requeue_after_seconds: int | None = None
    retry_count: int = 0
    pod_set_updates: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One Workload object as a value, with everything that decisions need.

    `evictions` counts evictions by reason and underlying cause. `closed_gates` are those of
    spec.preemptionGates that its status does not show as open.
    """

    key: WorkloadKey
    uid: str
    created_at: float
    pod_sets: tuple[PodSet, ...]
    queue_name: str = ""
    priority: int = 0
    priority_class: WirePriorityClassRef | None = None
    active: bool = True
    maximum_execution_time_seconds: int | None = None
    closed_gates: frozenset[str] = frozenset()
    generation: int = 0
    resource_version: str = ""
    deleted_at: float | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    owner_uid: str | None = None
    owner_kind: str | None = None
    owner_name: str | None = None
    has_finalizer: bool = False
    admission: Admission | None = None
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    checks: tuple[CheckState, ...] = ()
    requeue_at: float | None = None
    requeue_count: int = 0
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    unhealthy_nodes: tuple[str, ...] = ()
    accumulated_execution_seconds: int = 0
    evictions: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def is_true(self, type_: str) -> bool:
        """Return whether the condition exists and is True."""
        condition = self.conditions.get(type_)
        return condition is not None and condition.status

    def is_false(self, type_: str) -> bool:
        """Return whether the condition exists and is False."""
        condition = self.conditions.get(type_)
        return condition is not None and not condition.status

    @property
    def is_finished(self) -> bool:
        """Whether it has finished, successfully or not."""
        # Not by `is_true`: this is asked about ten times for each event.
        condition = self.conditions.get(ConditionType.FINISHED)
        return condition is not None and condition.status

    @property
    def end(self) -> Condition | None:
        """The condition Finished of one that has finished; else None."""
        condition = self.conditions.get(ConditionType.FINISHED)
        return condition if condition is not None and condition.status else None

    @property
    def has_quota_reservation(self) -> bool:
        """Whether it holds quota: it has an admission and QuotaReserved=True, as in Kueue."""
        return self.admission is not None and self.is_true(ConditionType.QUOTA_RESERVED)

    @property
    def awaits_place(self) -> bool:
        """Whether it holds quota, its checks are ready, and its pods have no topology domain yet.

        Source: Kueue, pkg/workload/workload.go, needsSecondPassForDelayedAssignment.
        """
        return (
            self.admission is not None
            and self.admission.is_delayed
            and self.has_quota_reservation
            and not self.is_evicted
            and bool(self.checks)
            and all(check.state == "Ready" for check in self.checks)
        )

    @property
    def is_admitted(self) -> bool:
        """Whether its Job may run."""
        return self.has_quota_reservation and self.is_true(ConditionType.ADMITTED)

    @property
    def is_on_hold(self) -> bool:
        """Whether it is in no queue because its owner could not run with the quota that it had."""
        reserved = self.conditions.get(ConditionType.QUOTA_RESERVED)
        return reserved is not None and not reserved.status and reserved.reason == PendingReason.ON_HOLD

    @property
    def is_evicted(self) -> bool:
        """Whether it is evicted; its quota is released once its Job has stopped."""
        return self.eviction is not None

    @property
    def eviction(self) -> Condition | None:
        """The Evicted condition if it is True, which it is from an eviction until the next admission.

        Else None.

        A condition that was set to False belongs to an earlier eviction.
        """
        evicted = self.conditions.get(ConditionType.EVICTED)
        return evicted if evicted is not None and evicted.status else None

    @property
    def is_slice(self) -> bool:
        """Whether it is a slice of an elastic Job, or made to replace a Workload without an owner."""
        if not self.annotations:
            return False
        return self.annotations.get(ELASTIC_JOB) == "true" or (
            self.owner_uid is None and self.replaces is not None
        )

    @property
    def chain(self) -> WorkloadKey:
        """The first slice of its elastic Job, by which the pods of all slices are found; else itself."""
        name = self.annotations.get(SLICE_NAME) if self.annotations else None
        return self.key if name is None else WorkloadKey(self.key.namespace, name)

    @property
    def is_superseded(self) -> bool:
        """Whether it is a slice that has ended while its elastic Job goes on."""
        end = self.end
        return (
            self.is_slice
            and end is not None
            and end.reason in (FinishedReason.SLICE_REPLACED, FinishedReason.OUT_OF_SYNC)
        )

    @property
    def replaces(self) -> WorkloadKey | None:
        """The slice that this one takes over from, None where it replaces none. Always of its namespace."""
        text = self.annotations.get(SLICE_REPLACEMENT_FOR) if self.annotations else None
        if text is None:
            return None
        namespace, _, name = text.partition("/")
        # A tenant could otherwise name the Workload of another.
        return WorkloadKey(namespace, name) if namespace == self.key.namespace and name else None

    def takes_over(self, former: Workload) -> bool:
        """Return whether this slice takes over from that one: it names it, and both are of one Job.

        Of a Job's Workloads only slices of one chain, or one Job could end the work of another. Workloads
        without an owner are those of a program that writes Workloads itself, and says so by the name alone.
        Source: Kueue, pkg/workloadslicing/workloadslicing.go, ReplacedWorkloadSlice.
        """
        if self.replaces != former.key or self.key == former.key or self.owner_uid != former.owner_uid:
            return False
        return self.owner_uid is None or (self.is_slice and former.is_slice and self.chain == former.chain)

    @property
    def preemption(self) -> Condition | None:
        """The `eviction` of a Workload that was preempted and has not been admitted since; else None."""
        eviction = self.eviction
        return eviction if eviction is not None and eviction.reason == EvictionReason.PREEMPTED else None
