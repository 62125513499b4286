"""Workload: the quota that one Job requests from its queue, and what it was assigned."""

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
    """Topology level; each slice must be placed within a single domain of it."""


class TopologyRequest(Model):
    """How close to each other the pods of a pod set must run."""

    pod_index_label: IndexLabel | None = None
    """Pod label with the index of the pod, so that pods of neighbouring rank are placed
    close to each other."""
    pod_set_group_name: Annotated[str, Field(max_length=256)] | None = None
    """Pod sets with the same name are placed together, on one flavor."""
    pod_set_slice_required_topology: LevelName | None = None
    """Topology level; each slice must be placed within a single domain of it."""
    pod_set_slice_size: PositiveCount | None = None
    """Number of pods per slice. Pods beyond the last whole slice get no place."""
    # Kueue writes this one with a lower-case s.
    podset_slice_required_topology_constraints: (
        Annotated[list[SliceConstraint], Field(max_length=3), ATOMIC] | None
    ) = None
    """Nested slices, from the widest layer to the narrowest."""
    preferred: LevelName | None = None
    """Topology level to try first. If no single domain has room, wider levels and then
    several domains are used."""
    required: LevelName | None = None
    """Topology level; all pods must be placed within a single domain of it."""
    sub_group_count: Count | None = None
    """Number of replicated Jobs within the pod set."""
    sub_group_index_label: IndexLabel | None = None
    """Pod label with the index of the replicated Job."""
    unconstrained: bool | None = None
    """Any nodes may be used, provided that they are known to have room."""


class PodSet(Model):
    """A group of pods with the same template."""

    model_config = object_rules(
        rule(
            "!has(self.minCount) || self.minCount <= self.count",
            "minCount should be positive and less or equal to count",
        )
    )

    count: Count = 1
    """Number of pods."""
    min_count: PositiveCount | None = None
    """Minimum number of pods with which the Workload may start; absent means all of them. At most one pod
    set may set it."""
    name: DnsLabel = "main"
    """Name of the pod set, unique in the Workload."""
    template: PodTemplate
    """Pod template; of its metadata only labels and annotations are used."""
    topology_request: TopologyRequest | None = None
    """How close to each other the pods must run."""


class PriorityClassRef(Model):
    """The class that the priority was taken from."""

    model_config = object_rules(
        *(
            rule(
                f"self.group != '{group}' || self.kind == '{kind}'",
                f"only the {kind} kind is allowed for the {group} group",
            )
            for group, kind in (
                ("scheduling.k8s.io", "PriorityClass"),
                ("kueue.x-k8s.io", "WorkloadPriorityClass"),
            )
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
    """Name of the gate; the status records whether it is open."""


class WorkloadSpec(Model):
    """The pods of the Workload, its queue and its priority."""

    model_config = object_rules(
        rule(
            "!has(self.priorityClassRef) || has(self.priority)",
            "priority should not be nil when priorityClassRef is set",
        )
    )

    active: bool = True
    """False evicts the Workload and keeps it out of its queue."""
    maximum_execution_time_seconds: PositiveCount | None = None
    """Maximum time in seconds that the Workload may be admitted; after that it is
    deactivated. Immutable while admitted."""
    pod_sets: Annotated[list[PodSet], Field(min_length=1, max_length=18), list_map("name")] | None = None
    """Pods, grouped by template. Immutable while quota is reserved."""
    preemption_gates: Annotated[list[PreemptionGate], Field(max_length=8), list_map("name")] | None = None
    """Gates that must be open before this Workload may preempt others."""
    priority: Int32 | None = None
    """Priority in the ClusterQueue; higher is admitted first."""
    priority_class_ref: PriorityClassRef | None = None
    """Class that the priority was taken from."""
    queue_name: DnsSubdomain | None = None
    """LocalQueue of the same namespace. Immutable while quota is reserved."""


def _holds(object_: str, condition: str) -> str:
    """Return a CEL expression which is true if `condition` is True on `object_` (self or oldSelf)."""
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


_FROZEN = "is immutable while workload quota reserved"
_REF = "priorityClassRef"

# Fields that are immutable once quota is reserved. The name of a WorkloadPriorityClass may change, because
# this is how a running Workload gets another priority.
WORKLOAD_RULES: tuple[Rule, ...] = (
    rule(
        f"!({_RESERVED} && has(self.status.admission) && has(self.status.admission.podSetAssignments)"
        " && has(self.spec.podSets)) ||"
        " size(self.spec.podSets) == size(self.status.admission.podSetAssignments)",
        "podSetAssignments must have the same number of podSets as the spec",
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
        f"{_REF}.name is immutable for scheduling.k8s.io/priorityclass while workload quota reserved",
    ),
    rule(
        f"!({_RESERVED_BEFORE} && {_RESERVED}) ||"
        " (has(oldSelf.spec.queueName) == has(self.spec.queueName)"
        f" && (!has(self.spec.queueName) || {_same('queueName')}))",
        f"queueName {_FROZEN}",
    ),
    rule(
        f"!({_ADMITTED_THROUGHOUT}) || {_limit('oldSelf')} == {_limit('self')}",
        f"maximumExecutionTimeSeconds {_FROZEN}",
    ),
)


class Workload(KueueObject):
    """One unit of admission: the pods of a Job, which are admitted together."""

    model_config = object_rules(*WORKLOAD_RULES)

    kind: Literal["Workload"] = "Workload"
    spec: Annotated[WorkloadSpec, EMPTY] = Field(default_factory=WorkloadSpec)
    """The pods of the Workload, its queue and its priority."""
    status: WorkloadStatus | None = None
    """Assigned quota, and the observed state."""
