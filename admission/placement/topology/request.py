"""The placement request of a pod set, its plan in terms of levels, and the possible results.

Levels are counted from the widest, 0. A slice is a number of pods that must share a domain of the
slice's level. Layers are slices within slices: each has a lower level than the one around it, and a size
that divides its size.
Source: Kueue, pkg/cache/scheduler/tas_flavor_snapshot.go; KEP 2724.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from admission.hardware.fit import HardwareRequest
from admission.placement.topology.address_book import AddressRule
from admission.placement.topology.placement_options import PlacementOptions
from api.jobs.placement_annotations import parse_bandwidth
from api.keys import NETWORK_BANDWIDTH
from api.objects.common import WireToleration
from api.objects.templates import WireAffinity
from api.workload import TopologyAssignment, TopologyRequest

KUEUE_STRATEGY = "kueue"


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """The least network bandwidth of a node, in Mbit/s. Nodes without a readable `label` do not meet it."""

    mbits: int
    label: str = NETWORK_BANDWIDTH

    def is_met(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels meets it.

        The label is written by an operator or a labeller, for example "100Gb" or "1.6T".
        """
        has = parse_bandwidth(labels.get(self.label, ""))
        return has is not None and has >= self.mbits


class NodeRules(msgspec.Struct, frozen=True):
    """Which nodes the pods may use, by their spec, their flavor and their policy.

    `domain` is the domain that the pods' reservation keeps, by its level values, the
    widest first; empty: any. `hardware` is what each pod needs of its node's hardware. `excluded` are hosts
    where pods of the Workload could not be bound. `addresses` is given where each pod has a static address.
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: WireAffinity | None = None
    tolerations: tuple[WireToleration, ...] = ()
    bandwidth: Bandwidth | None = None
    domain: tuple[str, ...] = ()
    excluded: frozenset[str] = frozenset()
    hardware: HardwareRequest | None = None
    addresses: AddressRule | None = None


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`count` pods of one pod set, each taking `per_pod` of its node. `topology` None: any nodes."""

    pod_set: str
    flavor: str
    count: int
    per_pod: Mapping[str, int]
    topology: TopologyRequest | None = None
    rules: NodeRules = NodeRules()
    keeps_domains_whole: bool = False
    """Pods that may go anywhere are placed in the fullest block, within it in the fullest rack, and so on."""
    options: PlacementOptions | None = None
    """A policy's options for pod sets without a topology request of their own."""

    def __hash__(self) -> int:
        # Amounts by resource cannot be hashed, and the rest tells nearly all requests apart.
        return hash((self.flavor, self.pod_set, self.count, self.topology))

    @property
    def strategy(self) -> str:
        """The strategy that places the pods; `kueue` with a topology request of their own, or no policy."""
        return self.options.strategy if self.options is not None and self.topology is None else KUEUE_STRATEGY

    @property
    def group(self) -> str | None:
        """The pod set group, whose members are placed together; None without one."""
        return self.topology.pod_set_group if self.topology is not None else None


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where the pods go. `leader` is the place of the group's leader, None without one."""

    assignment: TopologyAssignment
    leader: TopologyAssignment | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlacement:
    """Why the pods have no place, as a sentence with counts."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementGates:
    """Kueue's feature gates for placement, with Kueue's defaults.

    `is_mixed` TASProfileMixed: pods that may go anywhere use the least free domains; otherwise best fit for
    all. `is_balanced` TASBalancedPlacement: a gang with a preferred level is spread evenly. `prefers_nodes`
    TASRespectNodeAffinityPreferred: domains are compared by preferred node affinity first.
    """

    is_mixed: bool = True
    is_balanced: bool = False
    prefers_nodes: bool = False


_GATES = PlacementGates()
_ANYWHERE = TopologyRequest()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementPlan:
    """A request in terms of levels.

    Below the slice level, `units[level]` is the number of pods that are handed out together at that level.
    """

    level: int
    is_required: bool
    is_unconstrained: bool
    is_least_free: bool
    is_balanced: bool
    prefers_nodes: bool
    keeps_domains_whole: bool
    slice_level: int
    slice_size: int
    units: tuple[int, ...]


def make_plan(
    request: PlacementRequest, levels: tuple[str, ...], gates: PlacementGates = _GATES
) -> PlacementPlan | NoPlacement:
    """Return the request in terms of `levels`, or why it cannot be met on them.

    Levels that a gate changes: with TASProfileMixed pods that may go anywhere fill the fullest domains, and
    with TASBalancedPlacement a preferred level is filled evenly. Depends on nothing but its arguments, so
    plans are kept.
    """
    topology = request.topology or _ANYWHERE
    named = topology.required or topology.preferred
    has_level = named is not None
    # A request with slices alone: each slice needs one domain, wherever that is.
    is_slice_only = not has_level and bool(topology.slices) and not topology.unconstrained
    lowest = len(levels) - 1
    wanted = [named] if named is not None else []
    missing = [one for one in (*wanted, *(layer.topology for layer in topology.slices)) if one not in levels]
    if missing:
        return NoPlacement(message=f"no requested topology level: {missing[0]}")
    # Without a named level the search begins at the lowest; for slices alone at the widest.
    level = levels.index(named) if named is not None else 0 if is_slice_only else lowest
    # Without layers every pod is a slice of its own.
    layers = [(levels.index(layer.topology), layer.size) for layer in topology.slices] or [(lowest, 1)]
    slice_level, slice_size = layers[0]
    problem = _layer_problem(request, levels, level, layers)
    if problem is not None:
        return NoPlacement(message=problem)
    return PlacementPlan(
        level=level,
        is_required=topology.required is not None,
        is_unconstrained=not has_level,
        # Least free for pods that may go anywhere, so that empty nodes stay free for gangs that need them.
        is_least_free=not has_level and gates.is_mixed,
        is_balanced=gates.is_balanced and topology.preferred is not None,
        prefers_nodes=gates.prefers_nodes,
        keeps_domains_whole=request.keeps_domains_whole and not has_level,
        slice_level=slice_level,
        slice_size=slice_size,
        # Below the slice level pods are handed out in inner slices, at and above it one slice at a time.
        units=tuple(1 if one <= slice_level else _unit(layers[1:], one) for one in range(len(levels))),
    )


def _layer_problem(
    request: PlacementRequest, levels: tuple[str, ...], level: int, layers: list[tuple[int, int]]
) -> str | None:
    slice_level, slice_size = layers[0]
    # For example, eleven pods in slices of four can never be placed.
    if slice_size < 1 or request.count % slice_size:
        return f"pod count {request.count} must be divisible by slice size {slice_size}"
    # A slice wider than the level that holds all pods would reach beyond that domain.
    if slice_level < level:
        return (
            f"podset slice topology {levels[slice_level]} is above the podset topology {levels[level]}; "
            "it must be at the same level or below"
        )
    for (outer, outer_size), (inner, inner_size) in pairwise(layers):
        if inner <= outer or inner_size < 1 or outer_size % inner_size:
            return (
                f"slice layer {levels[inner]} of size {inner_size} must be of a lower level than "
                f"{levels[outer]} and its size must divide {outer_size}"
            )
    return None


def _unit(inner_layers: list[tuple[int, int]], level: int) -> int:
    """Return the size of the outermost inner layer at or below this level, 1 where there is none."""
    return next((size for layer, size in inner_layers if layer >= level), 1)
