"""FlavorResource and quantities by flavor and resource: what quota is counted in.

Amounts are canonical integers (`api.parsing.quantities.amount`): milli-CPU, bytes, devices. Python's integers
do not overflow, so Kueue's saturating arithmetic is not needed: a sum past 2^63 stays a large number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from api.workload import Admission, PodSetAssignment


class FlavorResource(NamedTuple):
    """One resource of one flavor, such as (a100, nvidia.com/gpu); a quota is given per such pair."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


Quantities = Mapping[FlavorResource, int]


def to_quantities(assignments: tuple[PodSetAssignment, ...]) -> dict[FlavorResource, int]:
    """Return what the pod sets together charge, by flavor and resource.

    A resource without a flavor is charged nowhere, a zero amount is left out.
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
    """Return how much of each resource is charged, whatever its flavor."""
    total: dict[str, int] = {}
    for pair, amount in usage.items():
        total[pair.resource] = total.get(pair.resource, 0) + amount
    return total


def pairs_of(admission: Admission) -> frozenset[FlavorResource]:
    """Return the flavors and resources that were given, those of zero amount too."""
    return frozenset(
        FlavorResource(flavor, resource)
        for one in admission.pod_sets
        for resource, flavor in one.flavors.items()
    )


def is_equal(a: Quantities, b: Quantities) -> bool:
    """Return whether both charge the same: a pair of zero amount is as good as none."""
    # The first comparison answers nearly always; the dicts are only built for the rest.
    return a == b or {pair: n for pair, n in a.items() if n} == {pair: n for pair, n in b.items() if n}
