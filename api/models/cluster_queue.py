"""ClusterQueue: a pool of quota, and the rules by which Workloads are admitted to it."""

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
from api.models.quotas import FlavorUsages, ResourceGroups


class AdmissionCheckRule(Model):
    """An AdmissionCheck, and the flavors that require it."""

    name: CheckName
    """AdmissionCheck that must be Ready before a Workload starts."""
    on_flavors: Annotated[list[DnsSubdomain], Field(max_length=64), SET] | None = None
    """Flavors that require the check. Absent or empty: every flavor requires it."""


class AdmissionChecksStrategy(Model):
    """Checks of the second phase of admission, after quota is reserved and before the Workload starts."""

    admission_checks: Annotated[
        list[AdmissionCheckRule], Field(min_length=1, max_length=64), list_map("name")
    ]
    """Checks, each with the flavors that require it."""


class AdmissionScope(Model):
    """Whether LocalQueues share this ClusterQueue according to their past usage."""

    admission_mode: Literal["UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"]
    """UsageBasedAdmissionFairSharing: Workloads of the LocalQueue with the lowest decayed
    usage are tried first."""


class MigrationConstraints(Model):
    """Limits on moving a running Workload to a preferred flavor."""

    last_acceptable_flavor_name: DnsSubdomain | None = None
    """Last flavor of the resource group that a Workload may move to; flavors listed after it are excluded."""


class Migration(Model):
    """What happens once one of several concurrent attempts is admitted."""

    mode: Annotated[Literal["TryPreferredFlavors", "RetainFirstAdmission"], Field(max_length=253)]
    """TryPreferredFlavors keeps trying flavors that are listed earlier; RetainFirstAdmission stops."""
    constraints: MigrationConstraints | None = None
    """Limits of migration; allowed only with TryPreferredFlavors."""


class ConcurrentAdmissionPolicy(Model):
    """Lets a Workload wait for several flavors at the same time."""

    migration: Migration
    """What happens after the first attempt is admitted."""


class FlavorFungibility(Model):
    """When the search for a flavor continues with the next one."""

    model_config = object_rules(
        rule(
            "!has(self.preference) ||"
            " (self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
            "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
        )
    )

    preference: Literal["BorrowingOverPreemption", "PreemptionOverBorrowing"] | None = None
    """Which flavor is chosen if some fit only by borrowing and others only
    by preemption. Default: BorrowingOverPreemption."""
    when_can_borrow: Literal["MayStopSearch", "TryNextFlavor"] = "MayStopSearch"
    """If a flavor fits only by borrowing: use it (MayStopSearch, the default) or try the next one."""
    when_can_preempt: Literal["MayStopSearch", "TryNextFlavor"] = "TryNextFlavor"
    """If a flavor fits only by preemption: use it or try the next one (TryNextFlavor, the default)."""


class BorrowWithinCohort(Model):
    """Whether a Workload may preempt Workloads of other queues while it borrows."""

    max_priority_threshold: Int32 | None = None
    """Workloads of a higher priority than this are not preempted by a borrower; absent means no threshold."""
    policy: Literal["Never", "LowerPriority"] = "Never"
    """LowerPriority: a borrower may preempt Workloads of lower priority in other queues of the cohort."""


class Preemption(Model):
    """Which running Workloads may be preempted by a pending one."""

    model_config = object_rules(
        rule(
            "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) ||"
            " self.borrowWithinCohort.policy == 'Never'",
            "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        )
    )

    borrow_within_cohort: Annotated[BorrowWithinCohort, EMPTY] = Field(default_factory=BorrowWithinCohort)
    """Preemption while borrowing; ignored under fair sharing."""
    reclaim_within_cohort: Literal["Never", "LowerPriority", "Any"] = "Never"
    """Which Workloads of other queues of the cohort, if these queues borrow, may be preempted
    to reclaim nominal quota."""
    within_cluster_queue: Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority"] = "Never"
    """Which Workloads of this ClusterQueue may be preempted: none, those of lower priority, or also newer
    ones of equal priority."""


# A lendingLimit without a cohort is refused by the webhook, and reported without it, as a Cohort's is.
_NOTHING_TO_BORROW = (
    "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, g.flavors.all(f,"
    " f.resources.all(r, !has(r.borrowingLimit))))"
)
# Constraints that concurrent admission puts on other fields of the spec.
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
    """Quota, and the rules by which Workloads are admitted to it."""

    model_config = object_rules(
        rule(_NOTHING_TO_BORROW, "borrowingLimit must be nil when cohort is empty"),
        rule(
            _ONE_GROUP, "concurrentAdmissionPolicy needs exactly one resource group with at most 16 flavors"
        ),
        rule(
            "!has(self.concurrentAdmissionPolicy) || self.queueingStrategy != 'StrictFIFO'",
            "concurrentAdmissionPolicy cannot be combined with queueingStrategy StrictFIFO",
        ),
        rule(_MIGRATION_FLAVOR, "migration constraints need mode TryPreferredFlavors"),
        rule(_FROZEN_POLICY, "concurrentAdmissionPolicy is immutable"),
    )

    admission_checks_strategy: AdmissionChecksStrategy | None = None
    """Checks that must be Ready before a Workload with reserved quota starts."""
    admission_scope: AdmissionScope | None = None
    """How LocalQueues share this ClusterQueue over time."""
    cohort_name: DnsSubdomain | None = None
    """Cohort to lend to and borrow from; no Cohort object of that name needs to exist."""
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None
    """Lets a Workload wait for several flavors at the same time; immutable."""
    fair_sharing: FairSharing | None = None
    """Weight of this queue among the members of its cohort."""
    flavor_fungibility: Annotated[FlavorFungibility, EMPTY] = Field(default_factory=FlavorFungibility)
    """When the search for a flavor continues with the next one."""
    namespace_selector: LabelSelector | None = None
    """Namespaces whose Workloads may use this quota. Absent selects no namespace, {} selects all."""
    preemption: Annotated[Preemption, EMPTY] = Field(default_factory=Preemption)
    """Which running Workloads may be preempted by a pending one."""
    queueing_strategy: Literal["StrictFIFO", "BestEffortFIFO"] = "BestEffortFIFO"
    """StrictFIFO: a head that does not fit blocks the Workloads behind it. BestEffortFIFO: it is skipped
    until it may fit."""
    resource_groups: ResourceGroups | None = None
    """Quotas. Without any, no Workload that requests resources is admitted."""
    stop_policy: StopPolicy = "None"
    """Hold: admit no new Workload. HoldAndDrain: also evict admitted Workloads. Both release quota that is
    reserved by Workloads which are not admitted yet."""


class ClusterQueueStatus(Model):
    """Observed state of a ClusterQueue."""

    admitted_workloads: Int32 | None = None
    """Workloads that are admitted and not finished."""
    conditions: Conditions | None = None
    """Active: whether Workloads can be admitted, and if not, why."""
    fair_sharing: FairSharingStatus | None = None
    """Share of the cohort's lendable quota."""
    flavors_reservation: FlavorUsages | None = None
    """Quota held by Workloads with a quota reservation, whether they are admitted or not."""
    flavors_usage: FlavorUsages | None = None
    """Quota held by admitted Workloads."""
    pending_workloads: Int32 | None = None
    """Pending Workloads, inadmissible ones included."""
    reserving_workloads: Int32 | None = None
    """Workloads that hold quota and are not finished."""


class ClusterQueue(KueueObject):
    """A pool of quota that Workloads of several namespaces share."""

    kind: Literal["ClusterQueue"] = "ClusterQueue"
    spec: ClusterQueueSpec = Field(default_factory=ClusterQueueSpec)
    """Quota, and the rules by which Workloads are admitted to it."""
    status: ClusterQueueStatus | None = None
    """Observed state."""
