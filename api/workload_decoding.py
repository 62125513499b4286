"""A Workload as a value, from its wire form.

What a Workload contains is described in `api.workload`. Whatever cannot be read raises an error that names
the field and the value.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from api.keys import POD_INDEX_OFFSET, RESOURCE_IN_USE
from api.objects.common import WireCondition
from api.objects.templates import WirePodTemplate
from api.objects.workloads import (
    WireAdmission,
    WireCheckState,
    WirePodSet,
    WirePodSetAssignment,
    WireSchedulingStats,
    WireTopologyRequest,
    WorkloadObject,
)
from api.parsing.decimals import whole_number
from api.parsing.problems import SpecError, read_amount, require_at_most_one, require_unique
from api.parsing.times import to_seconds
from api.topology_encoding import to_topology
from api.workload import (
    NOTHING,
    Admission,
    CheckState,
    Condition,
    PodRanks,
    PodSet,
    PodSetAssignment,
    SliceConstraint,
    TopologyRequest,
    Workload,
    WorkloadKey,
)


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
        closed_gates=_closed_gates(wire),
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


def _closed_gates(wire: WorkloadObject) -> frozenset[str]:
    if not wire.spec.preemption_gates:
        return frozenset()
    opened = {gate.name for gate in wire.status.preemption_gates or () if gate.position == "Open"}
    return frozenset(gate.name for gate in wire.spec.preemption_gates if gate.name not in opened)


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
    count, topology = wire.count, wire.topology_assignment
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
        topology=to_topology(field_name, topology) if topology is not None else None,
        delayed_topology_request=wire.delayed_topology_request,
    )
