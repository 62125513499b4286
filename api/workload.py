"""Workload, the unit of admission, as a frozen value, and its conversion from the wire.

A Workload requests pod sets; an Admission records the flavors that they were assigned. Times are Unix seconds
(UTC), resources are integers in canonical units (`api.parsing.quantities.amount`: milli-CPU, else whole
units). The *requests* of a pod set depend on the cluster (limit ranges, overheads, transformations) and are
computed in `api.jobs.resource_requests`; this module contains only the data of the object itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from api.keys import ELASTIC_JOB, POD_INDEX_OFFSET, RESOURCE_IN_USE, SLICE_NAME, SLICE_REPLACEMENT_FOR
from api.objects.common import WireCondition
from api.objects.templates import WirePodTemplate
from api.objects.workloads import (
    WireAdmission,
    WireCheckState,
    WirePodSet,
    WirePodSetAssignment,
    WirePriorityClassRef,
    WireSchedulingStats,
    WireSlice,
    WireTopologyAssignment,
    WireTopologyRequest,
    WorkloadObject,
)
from api.parsing.decimals import whole_number
from api.parsing.problems import SpecError, read_amount, require_at_most_one, require_unique
from api.reasons import ConditionType, EvictionReason, FinishedReason, PendingReason

# One shared read-only mapping, because most of 15,000 Workloads have no annotations.
NOTHING: Mapping[str, str] = MappingProxyType({})


class WorkloadKey(NamedTuple):
    """Namespace and name of a Workload; cheap to sort and hash, and printed as namespace/name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    def as_read_in(self, namespace: str) -> str:
        """Return how a message names it that is read in `namespace`: teams learn no names of other teams."""
        return str(self) if namespace == self.namespace else "a Workload of another namespace"


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

    `evictions` counts evictions by reason and underlying cause.
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
    open_gates: frozenset[str] = frozenset()
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
        """Whether it is a slice of an elastic Job."""
        return bool(self.annotations) and self.annotations.get(ELASTIC_JOB) == "true"

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

        Only slices of one chain, of a Job that owns them: else any Workload could replace any other.
        """
        return (
            self.replaces == former.key != self.key
            and self.is_slice
            and former.is_slice
            and self.owner_uid is not None
            and self.owner_uid == former.owner_uid
            and self.chain == former.chain
        )

    @property
    def preemption(self) -> Condition | None:
        """The `eviction` of a Workload that was preempted and has not been admitted since; else None."""
        eviction = self.eviction
        return eviction if eviction is not None and eviction.reason == EvictionReason.PREEMPTED else None


def to_seconds(text: str | None) -> float:
    """Return an RFC 3339 time as Unix seconds; 0 if absent. Raises ValueError that names the text."""
    if not text:
        return 0.0
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z") from None
    # Kubernetes always writes a time zone; annotations that people write may lack one.
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


# 9999-12-31T23:59:59Z, the last time that RFC 3339 can express.
_LAST_DATE = 253_402_300_799


def to_rfc3339(at: float) -> str:
    """Return Unix seconds as RFC 3339 in whole seconds, UTC, in the form of metav1.Time.

    A later time than RFC 3339 can express is replaced by the last one that it can: Jobs may declare run times
    of centuries, and their promised start times add up.
    """
    return datetime.fromtimestamp(int(min(at, _LAST_DATE)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_conditions(wire: tuple[WireCondition, ...] | None) -> dict[str, Condition]:
    """Return the conditions by type."""
    return {
        c.type: Condition(
            type=c.type,
            status=c.status == "True",
            reason=c.reason,
            message=c.message,
            at=to_seconds(c.last_transition_time),
        )
        for c in wire or ()
    }


def to_template(raw: msgspec.Raw | bytes) -> WirePodTemplate:
    """Return the fields of a pod template that scheduling needs.

    Raises msgspec.DecodeError if it is malformed.
    """
    return _TEMPLATE.decode(raw)


_TEMPLATE = msgspec.json.Decoder(WirePodTemplate)


def to_workload(wire: WorkloadObject, previous: Workload | None = None) -> Workload:
    """Return the Workload as a value. Raises ValueError (SpecError) that names field and value.

    `previous` is the last version of the same object: its pod sets are reused if the spec has not changed,
    since decoding pod templates is the expensive part.
    """
    meta, spec, status = wire.metadata, wire.spec, wire.status
    is_same_spec = (
        previous is not None
        and previous.uid == meta.uid
        and previous.generation == meta.generation
        # A server that does not count generations reports 0, so its specs may change unnoticed.
        and meta.generation > 0
    )
    owner = meta.controller
    requeue = status.requeue_state
    pod_sets = previous.pod_sets if previous is not None and is_same_spec else _pod_sets(spec.pod_sets)
    return Workload(
        key=WorkloadKey(meta.namespace, meta.name),
        uid=meta.uid,
        created_at=to_seconds(meta.creation_timestamp),
        pod_sets=pod_sets,
        queue_name=spec.queue_name or "",
        priority=spec.priority or 0,
        priority_class=spec.priority_class_ref,
        # Absent means active.
        active=spec.active is not False,
        maximum_execution_time_seconds=spec.maximum_execution_time_seconds,
        open_gates=frozenset(gate.name for gate in status.preemption_gates or () if gate.position == "Open"),
        generation=meta.generation,
        resource_version=meta.resource_version,
        deleted_at=to_seconds(meta.deletion_timestamp) if meta.deletion_timestamp else None,
        labels=meta.labels or NOTHING,
        annotations=meta.annotations or NOTHING,
        owner_uid=owner.uid if owner is not None else None,
        owner_kind=owner.kind if owner is not None else None,
        owner_name=owner.name if owner is not None else None,
        has_finalizer=RESOURCE_IN_USE in (meta.finalizers or ()),
        admission=to_admission(status.admission, pod_sets) if status.admission is not None else None,
        conditions=to_conditions(status.conditions),
        checks=tuple(_check(check) for check in status.admission_checks or ()),
        requeue_at=to_seconds(requeue.requeue_at) if requeue is not None and requeue.requeue_at else None,
        requeue_count=(requeue.count or 0) if requeue is not None else 0,
        reclaimable={one.name: one.count for one in status.reclaimable_pods or ()},
        unhealthy_nodes=tuple(node.name for node in status.unhealthy_nodes or ()),
        accumulated_execution_seconds=status.accumulated_past_execution_time_seconds or 0,
        evictions=_evictions(status.scheduling_stats),
    )


def _evictions(wire: WireSchedulingStats | None) -> dict[tuple[str, str], int]:
    counters = wire.evictions if wire is not None else None
    return {(one.reason, one.underlying_cause): one.count for one in counters or ()}


def to_admission(wire: WireAdmission, pod_sets: Sequence[PodSet]) -> Admission:
    """Return status.admission as a value. Raises SpecError if an amount or a topology cannot be parsed.

    `pod_sets` are those of the Workload: an assignment without a count is of all pods.
    """
    return Admission(
        cluster_queue=wire.cluster_queue,
        pod_sets=tuple(_assignment(one, pod_sets) for one in wire.pod_set_assignments or ()),
    )


def _pod_sets(wire: tuple[WirePodSet, ...] | None) -> tuple[PodSet, ...]:
    if not wire:
        raise SpecError("spec.podSets is empty; give at least one pod set")
    require_unique("spec.podSets", (pod_set.name for pod_set in wire))
    return tuple(_pod_set(pod_set) for pod_set in wire)


def _pod_set(wire: WirePodSet) -> PodSet:
    field_name = f"spec.podSets[{wire.name}]"
    if wire.count < 0:
        raise SpecError(f"{field_name}.count is {wire.count}, but must not be negative")
    if wire.min_count is not None and not 0 < wire.min_count <= wire.count:
        raise SpecError(
            f"{field_name}.minCount is {wire.min_count}, but must be from 1 to count {wire.count}"
        )
    try:
        # Decoded here, so that the message names the pod set and not only a byte offset.
        template = to_template(wire.template)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SpecError(f"{field_name}.template cannot be read: {error}; correct the pod template") from error
    return PodSet(
        name=wire.name,
        count=wire.count,
        template=template,
        min_count=wire.min_count,
        topology_request=_topology_request(f"{field_name}.topologyRequest", wire.topology_request),
        ranks=_ranks(wire.topology_request, template),
    )


def _ranks(wire: WireTopologyRequest | None, template: WirePodTemplate) -> PodRanks | None:
    if wire is None or wire.pod_index_label is None:
        return None
    if wire.sub_group_index_label is None:
        annotations = template.metadata.annotations if template.metadata is not None else None
        offset = whole_number((annotations or NOTHING).get(POD_INDEX_OFFSET)) or 0
        return PodRanks(index_label=wire.pod_index_label, offset=offset)
    # Without a number of groups the ranks cannot be computed, and each pod gets any place.
    groups = wire.sub_group_count or 0
    if groups < 1:
        return None
    return PodRanks(index_label=wire.pod_index_label, group_label=wire.sub_group_index_label, groups=groups)


def _topology_request(field_name: str, wire: WireTopologyRequest | None) -> TopologyRequest | None:
    if wire is None:
        return None
    given = [name for name in ("required", "preferred", "unconstrained") if getattr(wire, name)]
    require_at_most_one(field_name, given)
    slices = [
        SliceConstraint(topology=one.topology, size=one.size)
        for one in wire.podset_slice_required_topology_constraints or ()
    ]
    # The two fields are the older form of a list with one layer; the list takes precedence if both are set.
    if not slices and wire.pod_set_slice_required_topology and wire.pod_set_slice_size:
        slices = [
            SliceConstraint(topology=wire.pod_set_slice_required_topology, size=wire.pod_set_slice_size)
        ]
    if not given and not slices:
        # It only says which labels give the ranks. Source: Kueue, IsExplicitlyRequestingTAS.
        return None
    return TopologyRequest(
        required=wire.required,
        preferred=wire.preferred,
        unconstrained=bool(wire.unconstrained),
        pod_set_group=wire.pod_set_group_name,
        slices=tuple(slices),
    )


def _check(wire: WireCheckState) -> CheckState:
    return CheckState(
        name=wire.name,
        state=wire.state,
        message=wire.message,
        at=to_seconds(wire.last_transition_time),
        requeue_after_seconds=wire.requeue_after_seconds,
        retry_count=wire.retry_count or 0,
        pod_set_updates=wire.pod_set_updates or (),
    )


def _assignment(wire: WirePodSetAssignment, pod_sets: Sequence[PodSet]) -> PodSetAssignment:
    field_name = f"status.admission.podSetAssignments[{wire.name}]"
    count = wire.count
    if count is None:
        count = next((one.count for one in pod_sets if one.name == wire.name), 0)
    return PodSetAssignment(
        name=wire.name,
        count=count,
        flavors=wire.flavors or {},
        usage={
            resource: read_amount(f"{field_name}.resourceUsage.{resource}", resource, quantity)
            for resource, quantity in (wire.resource_usage or {}).items()
        },
        topology=_topology(field_name, wire.topology_assignment),
        delayed_topology_request=wire.delayed_topology_request,
    )


def _topology(field_name: str, wire: WireTopologyAssignment | None) -> TopologyAssignment | None:
    """Return the domains of the compact encoding, slice by slice. Raises SpecError if it is malformed."""
    if wire is None:
        return None
    try:
        # Before anything is expanded: a few bytes can claim billions of domains.
        for one in wire.slices:
            _check_count(one)
        domains = [domain for one in wire.slices for domain in _domains(one)]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise SpecError(f"{field_name}.topologyAssignment cannot be read: {error}") from error
    return TopologyAssignment(levels=wire.levels, domains=tuple(domains))


def _check_count(wire: WireSlice) -> None:
    """Raise ValueError if the lists of a slice do not have as many entries as it claims domains.

    Two domains differ in a level, so a slice of several has at least one list.
    """
    levels = [values["individual"]["roots"] for values in wire.values_per_level if values.get("individual")]
    counts = wire.pod_counts.get("individual")
    lengths = {len(one) for one in (*levels, *([counts] if counts is not None else []))} or {1}
    if lengths != {wire.domain_count}:
        said = ", ".join(map(str, sorted(lengths)))
        raise ValueError(
            f"domainCount is {wire.domain_count}, and the lists of the slice have {said} entries"
        )


def _domains(wire: WireSlice) -> Iterator[DomainCount]:
    columns = [_column(values, wire.domain_count) for values in wire.values_per_level]
    universal = wire.pod_counts.get("universal")
    # Either one number for all domains or one per domain; the encoding is compact for thousands of hosts.
    counts = wire.pod_counts["individual"] if universal is None else [universal] * wire.domain_count
    for values, count in zip(zip(*columns, strict=True), counts, strict=True):
        yield DomainCount(values=values, count=count)


def _column(values: Mapping[str, Any], count: int) -> list[str]:
    universal = values.get("universal")
    if universal is not None:
        return [universal] * count
    one = values["individual"]
    prefix, suffix = one.get("prefix") or "", one.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in one["roots"]]
