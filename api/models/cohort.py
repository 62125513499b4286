"""Cohort: an inner node of the quota tree, with quota of its own if it likes."""

from typing import Literal

from pydantic import Field

from api.models.common import DnsSubdomain, FairSharing, FairSharingStatus, KueueObject, Model
from api.models.markers import object_rules, rule
from api.models.quotas import ResourceGroups, limits_need


class CohortSpec(Model):
    """Place in the tree, own quota and weight."""

    model_config = object_rules(
        rule(limits_need("parentName"), "borrowingLimit and lendingLimit need parentName")
    )

    fair_sharing: FairSharing | None = None
    """Weight among the siblings under the same parent."""
    parent_name: DnsSubdomain | None = None
    """Parent cohort, whose object need not exist; absent makes this one a root. A cycle of parents stops
    admission in the whole tree."""
    resource_groups: ResourceGroups | None = None
    """Quota of this node itself, shared by all below it. Here lendingLimit may exceed nominalQuota."""


class CohortStatus(Model):
    """Observed state of a Cohort."""

    fair_sharing: FairSharingStatus | None = None
    """Share of the parent's lendable quota."""


class Cohort(KueueObject):
    """A group of ClusterQueues and Cohorts that lend each other unused quota."""

    kind: Literal["Cohort"] = "Cohort"
    spec: CohortSpec = Field(default_factory=CohortSpec)
    """Place in the tree, own quota and weight."""
    status: CohortStatus | None = None
    """Observed state."""
