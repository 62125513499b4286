"""Workload: what one Job asks of its queue, and what it was given."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    Count,
    DnsLabel,
    DnsSubdomain,
    Int32,
    KueueObject,
    Model,
    PositiveCount,
)
from api.models.markers import ATOMIC, EMPTY, Rule, list_map, object_rules, rule
from api.models.pod_template import PodTemplate
from api.models.workload_status import WorkloadStatus

LevelName = Annotated[str, Field(max_length=63)]
IndexLabel = Annotated[str, Field(max_length=317)]


class SliceConstraint(Model):
    """One layer of nested slices."""

    size: PositiveCount
    """Pods per slice of this layer."""
    topology: Annotated[LevelName, Field(min_length=1)]
    """Level within whose single domain each slice must lie."""


class TopologyRequest(Model):
    """How close together the pods of a pod set must run."""

    pod_index_label: IndexLabel | None = None
    """Pod label with the index of the pod, so that neighbours in rank become neighbours in space."""
    pod_set_group_name: Annotated[str, Field(max_length=256)] | None = None
    """Pod sets with the same name are placed together, on one flavor."""
    pod_set_slice_required_topology: LevelName | None = None
    """Level within whose single domain each slice must lie."""
    pod_set_slice_size: PositiveCount | None = None
    """Pods per slice; the count must be divisible by it."""
    # Kueue spells this one with a small s.
    podset_slice_required_topology_constraints: (
        Annotated[list[SliceConstraint], Field(max_length=3), ATOMIC] | None
    ) = None
    """Nested slices, the widest layer first."""
    preferred: LevelName | None = None
    """Level to try first; if no single domain has room, wider ones and then several are taken."""
    required: LevelName | None = None
    """Level within whose single domain all pods must lie."""
    sub_group_count: Count | None = None
    """Number of replicated Jobs within the pod set."""
    sub_group_index_label: IndexLabel | None = None
    """Pod label with the index of the replicated Job."""
    unconstrained: bool | None = None
    """Anywhere, but on nodes that are known to have room."""


class PodSet(Model):
    """Pods of one shape."""

    model_config = object_rules(
        rule("!has(self.minCount) || self.minCount <= self.count", "minCount must not exceed count")
    )

    count: Count = 1
    """Number of pods."""
    min_count: PositiveCount | None = None
    """Fewest pods that are still worth starting; absent means all of them. One pod set may have it."""
    name: DnsLabel = "main"
    """Role of the pods, unique in the Workload."""
    template: PodTemplate
    """Pod template; labels and annotations are the only metadata that count."""
    topology_request: TopologyRequest | None = None
    """How close together the pods must run."""


class PriorityClassRef(Model):
    """Where the priority came from."""

    model_config = object_rules(
        rule(
            "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
            "kind WorkloadPriorityClass goes with group kueue.x-k8s.io,"
            " kind PriorityClass with group scheduling.k8s.io",
        )
    )

    group: Literal["kueue.x-k8s.io", "scheduling.k8s.io"]
    """API group of the class."""
    kind: Literal["WorkloadPriorityClass", "PriorityClass"]
    """Kind of the class."""
    name: Annotated[DnsSubdomain, Field(min_length=1)]
    """Name of the class."""


class PreemptionGate(Model):
    """A gate that must be open before this Workload may preempt others."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the gate; its position stands in the status."""


class WorkloadSpec(Model):
    """What is asked for."""

    model_config = object_rules(
        rule("!has(self.priorityClassRef) || has(self.priority)", "priorityClassRef needs priority")
    )

    active: bool = True
    """False evicts the Workload and keeps it out of its queue."""
    maximum_execution_time_seconds: PositiveCount | None = None
    """Seconds that the Workload may be admitted before it is deactivated. Immutable while admitted."""
    pod_sets: Annotated[list[PodSet], Field(min_length=1, max_length=18), list_map("name")] | None = None
    """Pods, grouped by shape. Immutable while quota is reserved."""
    preemption_gates: Annotated[list[PreemptionGate], Field(max_length=8), list_map("name")] | None = None
    """Gates that must be open before this Workload may preempt others."""
    priority: Int32 | None = None
    """Priority in the ClusterQueue; higher goes first."""
    priority_class_ref: PriorityClassRef | None = None
    """Class that the priority was taken from."""
    queue_name: DnsSubdomain | None = None
    """LocalQueue of the same namespace. Immutable while quota is reserved."""


def _holds(object_: str, condition: str) -> str:
    """Return the CEL expression for "this condition is True on self or oldSelf"."""
    return (
        f"(has({object_}.status) && has({object_}.status.conditions) && {object_}.status.conditions"
        f".exists(c, c.type == '{condition}' && c.status == 'True'))"
    )


_RESERVED_BEFORE = _holds("oldSelf", "QuotaReserved")
_RESERVED = _holds("self", "QuotaReserved")
_ADMITTED_THROUGHOUT = f"{_holds('oldSelf', 'Admitted')} && {_holds('self', 'Admitted')}"


def _both(field: str) -> str:
    return f"has(oldSelf.spec.{field}) && has(self.spec.{field})"


def _same(field: str) -> str:
    return f"oldSelf.spec.{field} == self.spec.{field}"


def _limit(object_: str) -> str:
    field = f"{object_}.spec.maximumExecutionTimeSeconds"
    return f"(has({field}) ? {field} : 0)"


_FROZEN = "is immutable while quota is reserved"
_REF = "priorityClassRef"

# What freezes once quota is reserved. The name of a WorkloadPriorityClass may change, because such a change
# is how a running Workload gets another priority.
WORKLOAD_RULES: tuple[Rule, ...] = (
    rule(
        f"!({_RESERVED} && has(self.status.admission) && has(self.status.admission.podSetAssignments)"
        " && has(self.spec.podSets)) ||"
        " size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
        "podSetAssignments must have one entry for each of the podSets",
    ),
    rule(
        f"!{_RESERVED_BEFORE} || has(oldSelf.spec.{_REF}) == has(self.spec.{_REF})",
        f"{_REF} {_FROZEN}",
    ),
    *(
        rule(
            f"!({_RESERVED_BEFORE} && {_both(_REF)}) || {_same(f'{_REF}.{part}')}",
            f"{_REF}.{part} {_FROZEN}",
        )
        for part in ("group", "kind")
    ),
    rule(
        f"!({_RESERVED_BEFORE} && {_both(_REF)} && self.spec.{_REF}.kind == 'PriorityClass') ||"
        f" {_same(f'{_REF}.name')}",
        f"{_REF}.name of a PriorityClass {_FROZEN}",
    ),
    rule(
        f"!({_RESERVED_BEFORE} && {_RESERVED} && {_both('queueName')}) || {_same('queueName')}",
        f"queueName {_FROZEN}",
    ),
    rule(
        f"!({_ADMITTED_THROUGHOUT}) || {_limit('oldSelf')} == {_limit('self')}",
        "maximumExecutionTimeSeconds is immutable while admitted",
    ),
)


class Workload(KueueObject):
    """One unit of admission: the pods of a Job, all or none of them."""

    model_config = object_rules(*WORKLOAD_RULES)

    kind: Literal["Workload"] = "Workload"
    spec: Annotated[WorkloadSpec, EMPTY] = Field(default_factory=WorkloadSpec)
    """What is asked for."""
    status: WorkloadStatus | None = None
    """What was given, and how it went."""
