"""Why a Workload waits, in full: every flavor with its quota, every domain and node with what fits.

The answer comes from the functions that decide, asked one by one where a decision stops at the first that
serves. It is the state of now: freed quota or a new node changes it. Asking changes nothing.

    quota       by pod set and flavor: what is asked, what the ClusterQueue may still use, and the most it
                could ever use (nominal, plus what its cohorts lend, within the limits)
    topology    by flavor: how many pods fit into every domain now, and were it empty; for every node why
                it takes none
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.flavors.flavor_assigner import flavor_refusal
from admission.flavors.placement_hints import inside_reservation, reservation_refusal
from admission.flavors.topology_assigner import placement_request
from admission.placement.search import PlacementSearch
from admission.placement.topology.pod_counts import PodCounts
from admission.placement.topology.request import NoPlacement, PlacementPlan, PlacementRequest, make_plan
from admission.snapshot.snapshot import QueueState, Snapshot
from api.jobs.resource_requests import PodSetRequests
from api.workload import PodSet, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine:
    """One resource of one flavor, in canonical units. `free` is negative where quota was cut."""

    resource: str
    wanted: int
    free: int
    most: int

    @property
    def fits(self) -> bool:
        """Whether the quota is there now."""
        return self.wanted <= max(self.free, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainLine:
    """One domain: its level, its path of values, and how many of the pods fit now and were it empty.

    `refusal` is why a host takes none; empty for what is above.
    """

    level: int
    values: tuple[str, ...]
    fits: int
    fits_empty: int
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLines:
    """One flavor's domains from the widest down, each before those within it; nodes left out, with the
    reason.

    `wanted` says what the pods ask for; `problem` why it cannot be asked of these levels.
    """

    levels: tuple[str, ...]
    wanted: str
    domains: tuple[DomainLine, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorLines:
    """One flavor for one pod set. `refusal` is why its pods cannot use it whatever the quota."""

    flavor: str
    refusal: str = ""
    quota: tuple[QuotaLine, ...] = ()
    topology: TopologyLines | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetLines:
    """All flavors that the ClusterQueue offers for one pod set."""

    name: str
    count: int
    flavors: tuple[FlavorLines, ...]


def explain(
    snapshot: Snapshot, queue: QueueState, workload: Workload, requests: tuple[PodSetRequests, ...]
) -> tuple[PodSetLines, ...]:
    """Return all that the cycle would look at for this Workload, one pod set after the other.

    Each pod set is looked at as if it were alone; the cycle serves them on top of each other.
    """
    return tuple(
        PodSetLines(
            name=pod_set.name,
            count=asked.count,
            flavors=tuple(_flavors(snapshot, queue, workload, pod_set, asked)),
        )
        for pod_set, asked in zip(workload.pod_sets, requests, strict=False)
    )


def _flavors(
    snapshot: Snapshot, queue: QueueState, workload: Workload, pod_set: PodSet, asked: PodSetRequests
) -> Iterator[FlavorLines]:
    # Each flavor once, in the order in which a search looks at them.
    names = dict.fromkeys(name for group in queue.groups.values() for name in group.flavors)
    for name in names:
        # What rules a flavor out whatever is free is told instead of its numbers.
        refusal = reservation_refusal(queue, workload, name) or flavor_refusal(snapshot, queue, name, pod_set)
        if refusal is not None:
            yield FlavorLines(flavor=name, refusal=refusal)
        else:
            yield FlavorLines(
                flavor=name,
                quota=tuple(_quota(queue, name, asked)),
                topology=_topology(snapshot, queue, name, workload, pod_set, asked),
            )


def _quota(queue: QueueState, flavor: str, asked: PodSetRequests) -> Iterator[QuotaLine]:
    for resource, amount in sorted(asked.per_pod.items()):
        group = queue.groups.get(resource)
        # Only what the flavor has quota for in this queue; the rest is another group's.
        if group is not None and flavor in group.flavors:
            _, cell = group.cells[group.flavors.index(flavor)][resource]
            yield QuotaLine(
                resource=resource, wanted=amount * asked.count, free=cell.available, most=cell.potential
            )


def _topology(
    snapshot: Snapshot,
    queue: QueueState,
    name: str,
    workload: Workload,
    pod_set: PodSet,
    asked: PodSetRequests,
) -> TopologyLines | None:
    if not snapshot.topology_cache.has_topology(name):
        return None
    search = snapshot.topology_cache.search(name)
    flavor, rules = snapshot.flavors[name], queue.policy.placement
    # The request that the cycle makes, step for step: an explanation of another one would mislead.
    request = placement_request(pod_set, asked, flavor, count=asked.count, rules=rules)
    request = inside_reservation(request, queue, workload)
    levels = search.site.levels
    plan = make_plan(request, levels)
    if isinstance(plan, NoPlacement):
        return TopologyLines(levels=levels, wanted="", problem=plan.message)
    return TopologyLines(
        levels=levels,
        wanted=_wanted(request, plan, levels),
        domains=tuple(_domains(search, request, plan)),
        left_out=tuple(_left_out(snapshot, search)),
    )


def _wanted(request: PlacementRequest, plan: PlacementPlan, levels: tuple[str, ...]) -> str:
    pods = f"{request.count} pods"
    if plan.is_required:
        return f"{pods} in one {levels[plan.level]}"
    if plan.is_least_free:
        return f"{pods} anywhere"
    return f"{pods} in one {levels[plan.level]} if possible"


def _domains(search: PlacementSearch, request: PlacementRequest, plan: PlacementPlan) -> Iterator[DomainLine]:
    """Return the domains in the order of their paths, which puts each before those within it."""
    tree = search.site.tree
    # The counts of one shape are lists that the next question may extend, never replace.
    now = search.counts(request, plan)
    empty = search.counts(request, plan, is_empty=True)
    hooked = (index for level in tree.at_level for index in level)
    # By path, so that a reader finds each domain under the one that holds it.
    for index in sorted(hooked, key=lambda one: tree.values[one]):
        yield DomainLine(
            level=tree.level[index],
            values=tree.values[index],
            fits=now.pods[index],
            fits_empty=empty.pods[index],
            refusal=_refusal(now, empty, index),
        )


def _refusal(now: PodCounts, empty: PodCounts, index: int) -> str:
    """Return why a leaf takes no pod: what no Workload's end would change goes first."""
    return empty.refusal(index) or now.refusal(index)


def _left_out(snapshot: Snapshot, search: PlacementSearch) -> Iterator[tuple[str, str]]:
    """Return the nodes that are not of this flavor for another reason than their flavor's labels."""
    site = search.site
    for name, node in sorted(snapshot.topology_cache.nodes.items()):
        refusal = site.refusal(node)
        if refusal is not None and site.is_of_flavor(node):
            yield name, refusal
