"""Ungating of placed pods: each pod's scheduling gate is removed and its domain's node labels are added.

If the pods have ranks, pod k goes to the domain with the k-th place, so that neighbours in rank are
neighbours in the topology. Otherwise the domains are filled in order (greedily). If a pod was ungated for
another domain than its rank gives, ranks cannot be used, and the rest is placed greedily too.

Pods are handled in the order in which they were first seen. A patch in flight counts as if it had been
stored. Otherwise, if a pod ended meanwhile, the pods after it would move up by one place, and a new pod would
be sent to a place that another pod is about to get.
Source: Kueue, pkg/controller/tas/topology_ungater.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from admission.decisions.api_writes import Purpose, Write
from admission.reconcile.workload.addressed import addressed_pods
from admission.reconcile.workload.context import PlacedPod
from admission.reconcile.workload.look import Answer, Look
from api import keys
from api.keys import HOSTNAME
from api.parsing.decimals import whole_number
from api.workload import PodRanks, PodSet, PodSetAssignment, TopologyAssignment

_NONE: Mapping[str, str] = {}
# A Job that requests no topology may be placed by its flavor all the same. Its Workload names no label then.
_RANKS_OF_JOB = PodRanks(index_label=keys.COMPLETION_INDEX)


def answer_gated_pods(look: Look) -> Answer:
    """Ungate the pods of an admitted Workload, each for its domain."""
    workload = look.workload
    if not workload.is_admitted or workload.is_evicted or workload.admission is None:
        return None
    if not any(pod.needs_ungating for pod in look.context.pods):
        return None
    # By name, because assignment and spec may list the pod sets in different orders.
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    # A faulty node gets no more pods: they wait until it recovers or is replaced.
    avoid = {fault.node for fault in look.context.faults or ()}.union(workload.unhealthy_nodes)
    writes: list[Write] = []
    for assignment in workload.admission.pod_sets:
        pod_set = pod_sets.get(assignment.name)
        if pod_set is not None and assignment.topology is not None:
            pods = [pod for pod in look.context.pods if pod.labels.get(keys.POD_SET) == assignment.name]
            slots = look.context.addresses.get(assignment.name)
            if slots is None:
                writes += ungate(pod_set, assignment, pods, avoid=avoid)
                continue
            found = addressed_pods(workload, pod_set, assignment.topology, pods, slots=slots, avoid=avoid)
            writes += [_patch(one.pod, one.selector, one.annotations) for one in found]
    return tuple(writes) or None


def answer_elastic_pods(look: Look) -> Answer:
    """Ungate pods of an elastic Job, as many as its admitted slice counts and do not run already.

    Pods that were told to end run until they have. The pods of all slices are the same ones: those beyond the
    count wait for a slice that counts them. Of those that wait, the ones with a place come first, and then
    the first by name.
    Source: Kueue, pkg/controller/elasticjobs.
    """
    workload = look.workload
    if not workload.is_slice or not workload.is_admitted or workload.is_evicted:
        return None
    writes: list[Write] = []
    for pod_set in workload.pod_sets:
        pods = [pod for pod in look.context.pods if pod.labels.get(keys.POD_SET) == pod_set.name]
        # A patch that is in flight counts, whichever gate it removes.
        waiting = [pod for pod in pods if pod.is_elastic and pod.promised is None]
        running = len(pods) - len(waiting) + look.context.leaving.get(pod_set.name, 0)
        room = max(0, pod_set.count - running)
        waiting.sort(key=lambda pod: (pod.is_gated, pod.name))
        writes += [_ungate_elastic(pod) for pod in waiting[:room]]
    return tuple(writes) or None


def _ungate_elastic(pod: PlacedPod) -> Write:
    gates = [{"name": gate} for gate in pod.gates if gate != keys.ELASTIC_GATE]
    return pod.version.patch({"spec": {"schedulingGates": gates or None}}, Purpose.UNGATE_POD)


def ungate(
    pod_set: PodSet,
    assignment: PodSetAssignment,
    pods: Sequence[PlacedPod],
    *,
    avoid: Collection[str] = (),
) -> list[Write]:
    """Return the patches that ungate pods. Pods beyond the number that was placed stay gated.

    So do pods whose domain is a host to `avoid`.
    """
    if assignment.topology is None:
        return []
    chosen = domains_of(pod_set, assignment.topology, pods, avoid=avoid)
    return [_patch(pod, domain) for pod, domain in chosen]


def domains_of(
    pod_set: PodSet,
    topology: TopologyAssignment,
    pods: Sequence[PlacedPod],
    *,
    avoid: Collection[str] = (),
) -> list[tuple[PlacedPod, Mapping[str, str]]]:
    """Return the gated pods for which there is a place, each with the node labels of its domain."""
    selectors = [dict(zip(topology.levels, one.values, strict=True)) for one in topology.domains]
    chosen = _by_rank(topology, selectors, pods, pod_set.ranks or _RANKS_OF_JOB)
    # All by rank or all greedily: with a mixture two pods could get the same place.
    if chosen is None:
        chosen = _greedily(topology, selectors, pods, avoid)
    return [
        # Filtered only after the choice, so that ranks stay the same while a host is avoided.
        (pod, selectors[domain])
        for pod, domain in chosen
        if selectors[domain].get(HOSTNAME) not in avoid
    ]


Chosen = list[tuple[PlacedPod, int]]
Selectors = Sequence[Mapping[str, str]]


def _by_rank(
    topology: TopologyAssignment, selectors: Selectors, pods: Sequence[PlacedPod], ranks: PodRanks
) -> Chosen | None:
    """Return the domain of every gated pod by its rank; None if the ranks are unusable."""
    # The k-th place, counted domain after domain, belongs to rank k.
    domain_of_rank = [index for index, one in enumerate(topology.domains) for _ in range(one.count)]
    seen: set[int] = set()
    chosen: Chosen = []
    for pod in pods:
        rank = _rank(pod.labels, ranks, len(domain_of_rank))
        if rank is None or rank >= len(domain_of_rank) or rank in seen:
            return None
        seen.add(rank)
        domain = domain_of_rank[rank]
        if pod.needs_ungating:
            chosen.append((pod, domain))
        # The pod was ungated elsewhere: by hand, or for an earlier placement.
        elif not _is_in(pod, selectors[domain]):
            return None
    return chosen


def _rank(labels: Mapping[str, str], ranks: PodRanks, pods: int) -> int | None:
    """Return the rank of a pod with these labels among `pods`; None if its labels do not give one."""
    index = whole_number(labels.get(ranks.index_label))
    if index is None or index < ranks.offset:
        return None
    if ranks.group_label is None:
        return index - ranks.offset
    group, size = whole_number(labels.get(ranks.group_label)), pods // ranks.groups
    return None if group is None or index >= size else group * size + index


def _greedily(
    topology: TopologyAssignment, selectors: Selectors, pods: Sequence[PlacedPod], avoid: Collection[str]
) -> Chosen:
    """Return domains for the gated pods, in order, as long as there are places."""
    free = [one.count for one in topology.domains]
    for pod in pods:
        if not pod.needs_ungating:
            there = next((index for index, one in enumerate(selectors) if _is_in(pod, one)), None)
            if there is not None:
                # Counted in the domain where it is, however it got there. The number becomes negative if a
                # domain has too many pods, which leaves no free places.
                free[there] -= 1
    open_ = [index for index in range(len(free)) if selectors[index].get(HOSTNAME) not in avoid]
    places = [index for index in open_ for _ in range(free[index])]
    gated = [pod for pod in pods if pod.needs_ungating]
    # As many pods as there are places. The others stay gated until a place becomes free.
    return list(zip(gated, places, strict=False))


def _is_in(pod: PlacedPod, selector: Mapping[str, str]) -> bool:
    labels = pod.node_selector if pod.promised is None else pod.promised
    return all(labels.get(label) == value for label, value in selector.items())


def _patch(pod: PlacedPod, selector: Mapping[str, str], annotations: Mapping[str, str] = _NONE) -> Write:
    # The user's own gates stay: they have a purpose of their own.
    gates = [{"name": gate} for gate in pod.gates if gate != keys.TOPOLOGY_GATE]
    spec: dict[str, Any] = {"nodeSelector": dict(selector), "schedulingGates": gates or None}
    metadata = {"metadata": {"annotations": dict(annotations)}} if annotations else {}
    return pod.version.patch({**metadata, "spec": spec}, Purpose.UNGATE_POD)
