"""The places of pods: a value that is taken from a topology and given back to it.

The changes per leaf are computed once and kept with the value, because a trial takes and gives back the
same place many times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from admission.hardware.gpu_pods import Size
from admission.placement.topology.address_book import AddressRule
from admission.placement.topology.flavor_topology import Amounts
from admission.placement.topology.gpu_room import gpu_size
from admission.placement.topology.request import PlacementRequest
from admission.placement.topology.tree import Values
from api.jobs.resource_requests import PODS
from api.workload import TopologyAssignment

# The leaves that change, what is taken of each, and the same amounts negated.
Change = tuple[list[Values], Amounts, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The places of one pod set's pods: `per_pod` is taken for each, on leaves of the flavor's nodes.

    `is_linked`: the GPUs of each pod must be in one island. `addresses`: which static addresses the pods have
    already, None for pods without any, and where it does not matter because the place is held.
    """

    flavor: str
    assignment: TopologyAssignment
    per_pod: Amounts
    is_linked: bool = False
    addresses: AddressRule | None = None
    # The GPUs of each pod, which decide what is left for others; 0 without.
    size: Size = field(init=False, repr=False, compare=False)
    _changes: dict[bool, list[Change]] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", gpu_size(self.per_pod, is_linked=self.is_linked))

    def changes(self, *, is_by_host: bool) -> list[Change]:
        """Return the changes of taking the place, leaves with equal counts together. Cached.

        Each change is the names of leaves, what is taken of each of them, and the same amounts negated.
        """
        if is_by_host not in self._changes:
            # A gang of a thousand pods is on hosts with few distinct counts: one computation
            # for each of them.
            by_count: dict[int, list[Values]] = {}
            for domain in self.assignment.domains:
                values = domain.values[-1:] if is_by_host else domain.values
                by_count.setdefault(domain.count, []).append(values)
            self._changes[is_by_host] = [
                (names, times_of(self.per_pod, count), times_of(self.per_pod, -count))
                for count, names in by_count.items()
            ]
        return self._changes[is_by_host]


def place_of(request: PlacementRequest, assignment: TopologyAssignment) -> Place:
    """Return the place that the request takes with this assignment."""
    need = request.rules.hardware
    return Place(
        flavor=request.flavor,
        assignment=assignment,
        per_pod=request.per_pod,
        is_linked=need is not None and need.is_linked,
        addresses=request.rules.addresses,
    )


def taken_per_pod(on_node: Amounts) -> dict[str, int]:
    """Return what one pod takes of its node, including one of the node's places for pods."""
    return {**on_node, PODS: 1}


def times_of(amounts: Amounts, times: int) -> dict[str, int]:
    """Return the amounts multiplied by `times`."""
    return {resource: amount * times for resource, amount in amounts.items()}
