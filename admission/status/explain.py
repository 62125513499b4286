"""Explain: why a Workload waits, in full, with every flavor and its quota, every domain and node.

The answer comes from the functions that decide. A decision stops at the first flavor that serves; here all
are asked. It describes the present state, which freed quota or a new node changes. Asking changes nothing.

    quota       by pod set and flavor: what is requested, what the ClusterQueue may still use, and the most
                it could ever use (nominal quota, plus what its cohorts lend, within the limits)
    score       by flavor, where the policy chooses flavors by score: the score and its parts
    topology    by flavor: how many pods fit into every domain now, and how many if it were empty; for every
                node why it takes none
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from admission.flavors.flavor_ranking import Asked, FlavorRanking, ranking_of
from admission.flavors.flavor_refusal import flavor_refusal, other_flavor_refusal
from admission.flavors.flavor_score import FlavorScore
from admission.flavors.placement_hints import with_hints
from admission.flavors.topology_assigner import placement_request
from admission.placement.search import PlacementSearch
from admission.placement.topology.pod_counts import PodCounts
from admission.placement.topology.request import NoPlacement, PlacementPlan, PlacementRequest, make_plan
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PodSetRequests, gpus_of
from api.workload import PodSet, Workload
from queues.estimates.estimator import Estimator


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLine:
    """One resource of one flavor, in canonical units. `free` is negative if quota was lowered."""

    resource: str
    wanted: int
    free: int
    most: int

    @property
    def fits(self) -> bool:
        """Whether the quota is available now."""
        return self.wanted <= max(self.free, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainLine:
    """One domain: its level, its path of values, and how many pods fit now and if it were empty.

    `refusal` says why a host takes no pod; it is empty for domains above hosts.
    """

    level: int
    values: tuple[str, ...]
    fits: int
    fits_empty: int
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyLines:
    """One flavor's domains, each before those within it, and the nodes left out, with the reason.

    `wanted` describes what the pods request; `problem` says why these levels cannot serve that.
    """

    levels: tuple[str, ...]
    wanted: str
    domains: tuple[DomainLine, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorLines:
    """One flavor for one pod set. `refusal` says why its pods cannot use it, whatever the quota.

    `score` is None where flavors are tried in Kueue's order.
    """

    flavor: str
    refusal: str = ""
    quota: tuple[QuotaLine, ...] = ()
    score: FlavorScore | None = None
    topology: TopologyLines | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetLines:
    """All flavors that the ClusterQueue offers for one pod set."""

    name: str
    count: int
    flavors: tuple[FlavorLines, ...]


def explain(
    snapshot: Snapshot,
    queue: QueueState,
    workload: Workload,
    requests: tuple[PodSetRequests, ...],
    estimator: Estimator,
    *,
    replaced: HeldWorkload | None = None,
) -> tuple[PodSetLines, ...]:
    """Return all that a cycle would consider for this Workload, one pod set after the other.

    `replaced` is the slice that it replaces, whose usage the snapshot shows as free.
    Each pod set is explained as if it were alone, while a cycle places them on top of each other.
    """
    ranking = ranking_of(snapshot, queue, workload, estimator)
    return tuple(
        PodSetLines(
            name=pod_set.name,
            count=asked.count,
            flavors=_scored(
                ranking,
                queue,
                asked,
                _only_of(replaced, pod_set, _flavors(snapshot, queue, workload, pod_set, asked)),
            ),
        )
        for pod_set, asked in zip(workload.pod_sets, requests, strict=False)
    )


def _flavors(
    snapshot: Snapshot, queue: QueueState, workload: Workload, pod_set: PodSet, asked: PodSetRequests
) -> Iterator[FlavorLines]:
    # Each flavor once, in the order in which a search tries them.
    names = dict.fromkeys(name for group in queue.groups.values() for name in group.flavors)
    for name in names:
        # If a flavor is ruled out whatever is free, the reason is shown instead of numbers.
        refusal = flavor_refusal(snapshot, queue, name, workload, pod_set, asked)
        if refusal is not None:
            yield FlavorLines(flavor=name, refusal=refusal.message)
        else:
            yield FlavorLines(
                flavor=name,
                quota=tuple(_quota(queue, name, asked)),
                topology=_topology(snapshot, queue, name, workload, pod_set, asked),
            )


def _only_of(
    replaced: HeldWorkload | None, pod_set: PodSet, lines: Iterable[FlavorLines]
) -> Iterator[FlavorLines]:
    """Yield the lines, for a slice with a refusal of all flavors but those of the slice that it replaces."""
    of_pods = () if replaced is None else replaced.admission.pod_sets
    former = next((set(one.flavors.values()) for one in of_pods if one.name == pod_set.name), None)
    for line in lines:
        if former is None or line.flavor in former or line.refusal:
            yield line
        else:
            refusal = other_flavor_refusal(line.flavor, ", ".join(sorted(former)))
            yield FlavorLines(flavor=line.flavor, refusal=refusal)


def _scored(
    ranking: FlavorRanking | None, queue: QueueState, asked: PodSetRequests, lines: Iterable[FlavorLines]
) -> tuple[FlavorLines, ...]:
    """Return the lines with the score of each flavor that the pods could use, compared within its group."""
    found = tuple(lines)
    if ranking is None:
        return found
    totals = {resource: amount * asked.count for resource, amount in asked.per_pod.items()}
    wanted = Asked(totals=totals, pods=((asked.count, gpus_of(asked.on_node)),))
    refused, scores = {one.flavor for one in found if one.refusal}, {}
    for group in {
        group.index: group for resource, group in queue.groups.items() if resource in totals
    }.values():
        usable = [index for index, name in enumerate(group.flavors) if name not in refused]
        of_group = ranking.scores(group, usable, wanted)
        scores.update({group.flavors[index]: score for index, score in zip(usable, of_group, strict=True)})
    return tuple(replace(one, score=scores.get(one.flavor)) for one in found)


def _quota(queue: QueueState, flavor: str, asked: PodSetRequests) -> Iterator[QuotaLine]:
    for resource, amount in sorted(asked.per_pod.items()):
        group = queue.groups.get(resource)
        # Only resources that the flavor has quota for in this queue; others belong to other groups.
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
    flavor, rules = snapshot.objects.flavors[name], queue.policy.placement
    # The same request as the cycle makes, step by step; an explanation of another one would mislead.
    request = placement_request(pod_set, asked, flavor, count=asked.count, rules=rules)
    request = with_hints(snapshot, request, queue, workload, pod_set)
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
    """Yield the domains in the order of their paths, which puts each before those within it."""
    tree = search.site.tree
    # The lists of counts are shared: the next question may extend them, but never replaces them.
    now = search.counts(request, plan)
    empty = search.counts(request, plan, is_empty=True)
    hooked = (index for level in tree.at_level for index in level)
    # By path, so that a reader finds each domain below the one that contains it.
    for index in sorted(hooked, key=lambda one: tree.values[one]):
        yield DomainLine(
            level=tree.level[index],
            values=tree.values[index],
            fits=now.pods[index],
            fits_empty=empty.pods[index],
            refusal=_refusal(now, empty, index),
        )


def _refusal(now: PodCounts, empty: PodCounts, index: int) -> str:
    """Return why a leaf takes no pod; reasons that no end of a Workload would change come first."""
    return empty.refusal(index) or now.refusal(index)


def _left_out(snapshot: Snapshot, search: PlacementSearch) -> Iterator[tuple[str, str]]:
    """Yield the nodes with this flavor's labels that are left out for another reason, with that reason."""
    site = search.site
    for name, node in sorted(snapshot.topology_cache.nodes.by_name.items()):
        refusal = site.refusal(node)
        if refusal is not None and site.is_of_flavor(node):
            yield name, refusal
