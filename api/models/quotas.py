"""Quota as ClusterQueues and Cohorts declare it, and usage as their status reports it."""

from typing import Annotated

from pydantic import Field

from api.models.common import DnsSubdomain, Model, Quantity
from api.models.markers import ATOMIC, list_map, object_rules, rule


class ResourceQuota(Model):
    """Quota of one resource in one flavor."""

    name: str
    """Resource, such as cpu or nvidia.com/gpu."""
    nominal_quota: Quantity
    """Amount that is guaranteed to this queue or cohort; 0 or more."""
    borrowing_limit: Quantity | None = None
    """Maximum amount that may be borrowed above the nominal quota; absent means no limit. Needs a cohort."""
    lending_limit: Quantity | None = None
    """Maximum amount of unused nominal quota that is lent to the cohort; absent means all of
    it. Needs a cohort."""


class FlavorQuotas(Model):
    """Quotas of one flavor for all resources of its group."""

    name: DnsSubdomain
    """ResourceFlavor that provides these quotas. While it does not exist, the queue
    admits no new Workload."""
    resources: Annotated[list[ResourceQuota], Field(min_length=1, max_length=64), list_map("name")]
    """One quota for each covered resource of the group, in the same order."""


class ResourceGroup(Model):
    """Resources that are assigned together from one flavor."""

    model_config = object_rules(
        rule(
            "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
            "flavors must have the same number of resources as the coveredResources",
        )
    )

    covered_resources: Annotated[list[str], Field(min_length=1, max_length=64), ATOMIC]
    """Resources whose flavor is chosen together; a resource may be covered by one group only."""
    flavors: Annotated[list[FlavorQuotas], Field(min_length=1, max_length=64), list_map("name")]
    """Flavors in the order in which they are tried; a flavor may be in one group only."""


ResourceGroups = Annotated[list[ResourceGroup], Field(max_length=16), ATOMIC]


class ResourceUsage(Model):
    """Usage of one resource in one flavor."""

    borrowed: Quantity | None = None
    """Part of the total that exceeds the nominal quota."""
    name: str
    """Resource."""
    total: Quantity | None = None
    """Amount that is held, borrowed quota included."""


class FlavorUsage(Model):
    """Usage of one flavor."""

    name: DnsSubdomain
    """ResourceFlavor."""
    resources: Annotated[list[ResourceUsage], Field(max_length=64), list_map("name")]
    """Usage of each of its resources."""


FlavorUsages = Annotated[list[FlavorUsage], Field(max_length=64), list_map("name")]


class LocalResourceUsage(Model):
    """Usage of one resource in one flavor through one LocalQueue."""

    name: str
    """Resource."""
    total: Quantity | None = None
    """Amount that is held."""


class LocalFlavorUsage(Model):
    """Usage of one flavor through one LocalQueue."""

    name: DnsSubdomain
    """ResourceFlavor."""
    resources: Annotated[list[LocalResourceUsage], Field(max_length=64), list_map("name")]
    """Usage of each of its resources."""


LocalFlavorUsages = Annotated[list[LocalFlavorUsage], Field(max_length=64), list_map("name")]
