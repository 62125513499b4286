"""Amounts of quota by flavor and resource.

Amounts are canonical integers (`api.parsing.quantities.amount`): milli-CPU, bytes, devices. Python's integers
do not overflow, so Kueue's saturating arithmetic is not needed: a sum past 2^63 stays exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from api.workload import Admission, PodSetAssignment


class FlavorResource(NamedTuple):
    """One resource of one flavor, such as (a100, nvidia.com/gpu). Quota is declared per such pair."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


Quantities = Mapping[FlavorResource, int]


def to_quantities(assignments: tuple[PodSetAssignment, ...]) -> dict[FlavorResource, int]:
    """Return what the pod sets together charge, by flavor and resource.

    A resource without an assigned flavor is not charged. Zero amounts are left out.
    """
    total: dict[FlavorResource, int] = {}
    for assignment in assignments:
        for resource, amount in assignment.usage.items():
            flavor = assignment.flavors.get(resource)
            if flavor is not None and amount:
                pair = FlavorResource(flavor, resource)
                total[pair] = total.get(pair, 0) + amount
    return total


def by_resource(usage: Quantities) -> dict[str, int]:
    """Return the amounts summed over flavors, by resource.

    In each resource's unit. Flavors are left out, so the result answers how many GPUs a Workload uses,
    whichever model they are.
    """
    total: dict[str, int] = {}
    for pair, amount in usage.items():
        total[pair.resource] = total.get(pair.resource, 0) + amount
    return total


def pairs_of(admission: Admission) -> frozenset[FlavorResource]:
    """Return the assigned pairs of flavor and resource, including those with an amount of zero.

    An amount of zero still names a flavor, which a ClusterQueue must offer.
    """
    return frozenset(
        FlavorResource(flavor, resource)
        for one in admission.pod_sets
        for resource, flavor in one.flavors.items()
    )


def is_equal(a: Quantities, b: Quantities) -> bool:
    """Return whether both charge the same. A pair with amount zero equals a missing pair."""
    # The first comparison nearly always decides; the dicts are built only for the rest.
    return a == b or {pair: n for pair, n in a.items() if n} == {pair: n for pair, n in b.items() if n}
