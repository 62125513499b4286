"""ClusterQueue: a pool of quota, and the rules by which Workloads get it."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    CheckName,
    Conditions,
    DnsSubdomain,
    FairSharing,
    FairSharingStatus,
    Int32,
    KueueObject,
    LabelSelector,
    Model,
    StopPolicy,
)
from api.models.markers import EMPTY, SET, list_map, object_rules, rule
from api.models.quotas import FlavorUsages, ResourceGroups, limits_need


class AdmissionCheckRule(Model):
    """A check, and the flavors that call for it."""

    name: CheckName
    """AdmissionCheck that must be Ready before a Workload starts."""
    on_flavors: Annotated[list[DnsSubdomain], Field(max_length=64), SET] | None = None
    """The check applies only where one of these flavors is assigned; absent or empty means always."""


class AdmissionChecksStrategy(Model):
    """Checks of the second phase, between quota and start."""

    admission_checks: Annotated[
        list[AdmissionCheckRule], Field(min_length=1, max_length=64), list_map("name")
    ]
    """Checks with the flavors that call for them."""


class AdmissionScope(Model):
    """Whether LocalQueues share this ClusterQueue by their past usage."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing: the LocalQueue with the least decayed usage goes first."""


class MigrationConstraints(Model):
    """Limits of moving a running Workload to a better flavor."""

    last_acceptable_flavor_name: DnsSubdomain | None = None
    """Flavors listed after this one are not moved to."""


class Migration(Model):
    """What happens after the first of several concurrent attempts was admitted."""

    mode: Annotated[Literal["TryPreferredFlavors", "RetainFirstAdmission"], Field(max_length=253)]
    """TryPreferredFlavors keeps trying better flavors; RetainFirstAdmission stays with the first."""
    constraints: MigrationConstraints | None = None
    """Limits; only with TryPreferredFlavors."""


class ConcurrentAdmissionPolicy(Model):
    """Lets one Workload wait for several flavors at once."""

    migration: Migration
    """What happens after the first admission."""


class FlavorFungibility(Model):
    """When to look at the next flavor."""

    model_config = object_rules(
        rule(
            "!has(self.preference) ||"
            " (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        )
    )

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which of two remembered flavors is better when all were tried. Default: BorrowingOverPreemption."""
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """At a flavor that fits by borrowing only: take it (MayStopSearch, the default) or look on."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """At a flavor that fits by preemption only: take it, or look on (TryNextFlavor, the default)."""


class BorrowWithinCohort(Model):
    """Whether a Workload may borrow and preempt others at once."""

    max_priority_threshold: Int32 | None = None
    """Workloads above this priority are not preempted by a borrower; absent means no threshold."""
    policy: Literal["Never", "LowerPriority"] = "Never"
    """LowerPriority: a borrower may preempt Workloads of lower priority in other queues of the cohort."""


class Preemption(Model):
    """Which running Workloads may be evicted for a pending one."""

    model_config = object_rules(
        rule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) ||"
            " self.borrowWithinCohort.policy == 'Never'",
            "borrowWithinCohort needs reclaimWithinCohort other than Never",
        )
    )

    borrow_within_cohort: Annotated[BorrowWithinCohort, EMPTY] = Field(default_factory=BorrowWithinCohort)
    """Preemption while borrowing; without effect under fair sharing."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Victims among Workloads of other queues that borrow, when the own nominal quota is wanted back."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Victims in this ClusterQueue: none, those of lower priority, or also newer ones of equal priority."""


# What concurrent admission asks of the rest of the spec.
_ONE_GROUP = (
    "!has(self.concurrentAdmissionPolicy) || (has(self.resourceGroups) && size(self.resourceGroups) == 1"
    " && size(self.resourceGroups[0].flavors) <= 16)"
)
_MIGRATION_FLAVOR = (
    "!has(self.concurrentAdmissionPolicy) || !has(self.concurrentAdmissionPolicy.migration.constraints) ||"
    " self.concurrentAdmissionPolicy.migration.mode == 'TryPreferredFlavors'"
)
_FROZEN_POLICY = (
    "has(self.concurrentAdmissionPolicy) == has(oldSelf.concurrentAdmissionPolicy) &&"
    " (!has(self.concurrentAdmissionPolicy) ||"
    " self.concurrentAdmissionPolicy == oldSelf.concurrentAdmissionPolicy)"
)


class ClusterQueueSpec(Model):
    """Quota and the rules of getting it."""

    model_config = object_rules(
        rule(limits_need("cohortName"), "borrowingLimit and lendingLimit need cohortName"),
        rule(
            _ONE_GROUP, "concurrentAdmissionPolicy needs exactly one resource group with at most 16 flavors"
        ),
        rule(
            "!has(self.concurrentAdmissionPolicy) || self.queueingStrategy != 'StrictFIFO'",
            "concurrentAdmissionPolicy does not go with queueingStrategy StrictFIFO",
        ),
        rule(_MIGRATION_FLAVOR, "migration constraints need mode TryPreferredFlavors"),
        rule(_FROZEN_POLICY, "concurrentAdmissionPolicy is immutable"),
    )

    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Checks that must be Ready before a Workload with quota starts."""
    admission_scope: AdmissionScope | None = None
    """How LocalQueues share this ClusterQueue over time."""
    cohort_name: DnsSubdomain | None = None
    """Cohort to lend to and borrow from; a Cohort object of that name need not exist."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Lets a Workload wait for several flavors at once; immutable."""
    fair_sharing: FairSharing | None = None
    """Weight among the members of the cohort."""
    flavor_fungibility: Annotated[FlavorFungibility, EMPTY] = Field(default_factory=FlavorFungibility)
    """When to look at the next flavor."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose Workloads may use this quota: absent none, {} all."""
    preemption: Annotated[Preemption, EMPTY] = Field(default_factory=Preemption)
    """Which running Workloads may be evicted for a pending one."""
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """StrictFIFO: a head that does not fit blocks those behind it. BestEffortFIFO: it is set aside."""
    resource_groups: ResourceGroups | None = None
    """Quotas; without any, no Workload that requests resources is admitted."""
    stop_policy: StopPolicy = "None"
    """Hold: admit nothing new. HoldAndDrain: also evict what is admitted. Both drop quota not yet used."""


class ClusterQueueStatus(Model):
    """Observed state of a ClusterQueue."""

    admitted_workloads: Int32 | None = None
    """Workloads that are admitted and not finished."""
    conditions: Conditions | None = None
    """Active: whether new Workloads can be admitted, and why not."""
    fair_sharing: FairSharingStatus | None = None
    """Share of the cohort's lendable quota."""
    flavors_reservation: FlavorUsages | None = None
    """Quota held by Workloads with a quota reservation, admitted or not."""
    flavors_usage: FlavorUsages | None = None
    """Quota held by admitted Workloads."""
    pending_workloads: Int32 | None = None
    """Workloads that wait, those set aside included."""
    reserving_workloads: Int32 | None = None
    """Workloads that hold quota and are not finished."""


class ClusterQueue(KueueObject):
    """A pool of quota that Workloads of many namespaces compete for."""

    kind: Literal["ClusterQueue"] = "ClusterQueue"
    spec: ClusterQueueSpec = Field(default_factory=ClusterQueueSpec)
    """Quota and the rules of getting it."""
    status: ClusterQueueStatus | None = None
    """Observed state."""
