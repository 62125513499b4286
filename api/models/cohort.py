"""Cohort: an inner node of the quota tree, optionally with quota of its own."""

from typing import Literal

from pydantic import Field

from api.models.common import DnsSubdomain, FairSharing, FairSharingStatus, KueueObject, Model
from api.models.quotas import ResourceGroups


class CohortSpec(Model):
    """Parent in the quota tree, own quota and weight."""

    fair_sharing: FairSharing | None = None
    """Weight among the siblings under the same parent."""
    parent_name: DnsSubdomain | None = None
    """Parent cohort; no Cohort object of that name needs to exist. If absent, this cohort is a root. A cycle
    of parents stops admission in the whole tree."""
    resource_groups: ResourceGroups | None = None
    """Quota of this node itself, shared by all members below it. Here
    lendingLimit may exceed nominalQuota."""


class CohortStatus(Model):
    """Observed state of a Cohort."""

    fair_sharing: FairSharingStatus | None = None
    """Share of the parent's lendable quota."""


class Cohort(KueueObject):
    """A group of ClusterQueues and Cohorts that lend each other unused quota."""

    kind: Literal["Cohort"] = "Cohort"
    spec: CohortSpec = Field(default_factory=CohortSpec)
    """Parent in the quota tree, own quota and weight."""
    status: CohortStatus | None = None
    """Observed state."""
