"""Placed pods are let go, each to its domain: the scheduling gate is taken off and the node labels go on.

By rank where the pods carry one: pod number k goes to the domain that holds the k-th place, so that
neighbours in rank are neighbours in the topology. Else greedily: the domains are filled in order. A pod that
has already been let go elsewhere than its rank says makes ranks useless, so the rest is filled greedily too.

Pods come in the order in which they were first seen. A patch that is on its way counts as if it had arrived:
were it not so, a pod that ends meanwhile would move those after it up by one place, and a new pod would be
sent to a place that another is just being given.
Source: Kueue, pkg/controller/tas/topology_ungater.go.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from admission.decisions.api_writes import Purpose, Verb, Write, guarded_patch
from admission.reconcile.workload.context import PlacedPod
from admission.reconcile.workload.look import Answer, Look
from api import keys
from api.keys import HOSTNAME
from api.parsing.decimals import whole_number
from api.workload import PodSet, PodSetAssignment, TopologyAssignment


def answer_gated_pods(look: Look) -> Answer:
    """An admitted Workload's gated pods are told their domains."""
    workload = look.workload
    if not workload.is_admitted or workload.is_evicted or workload.admission is None:
        return None
    if not any(pod.is_untold for pod in look.context.pods):
        return None
    # By name: assignment and spec list pod sets in orders of their own.
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    # A node with a fault takes no more pods: they wait for it to come back, or for another.
    avoid = {fault.node for fault in look.context.faults or ()}.union(workload.unhealthy_nodes)
    writes: list[Write] = []
    for assignment in workload.admission.pod_sets:
        pod_set = pod_sets.get(assignment.name)
        if pod_set is not None and assignment.topology is not None:
            pods = [pod for pod in look.context.pods if pod.labels.get(keys.POD_SET) == assignment.name]
            writes += ungate(pod_set, assignment, pods, avoid=avoid)
    return tuple(writes) or None


def ungate(
    pod_set: PodSet,
    assignment: PodSetAssignment,
    pods: Sequence[PlacedPod],
    *,
    avoid: Collection[str] = (),
) -> list[Write]:
    """Return the patches that let gated pods go. Pods above the number that was placed stay gated.

    So do those whose turn leads to a host to `avoid`.
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
    """Return the pods at the gate for which there is a place, each with the node labels of its domain."""
    selectors = [dict(zip(topology.levels, one.values, strict=True)) for one in topology.domains]
    label = pod_set.topology_request.pod_index_label if pod_set.topology_request is not None else None
    chosen = _by_rank(topology, selectors, pods, label) if label is not None else None
    # As a whole or not at all: with half of the pods placed by rank and half by room two would
    # meet in one place.
    if chosen is None:
        chosen = _greedily(topology, selectors, pods, avoid)
    return [
        # Chosen first and filtered then: ranks stay what they are while a host is avoided.
        (pod, selectors[domain])
        for pod, domain in chosen
        if selectors[domain].get(HOSTNAME) not in avoid
    ]


Chosen = list[tuple[PlacedPod, int]]
Selectors = Sequence[Mapping[str, str]]


def _by_rank(
    topology: TopologyAssignment, selectors: Selectors, pods: Sequence[PlacedPod], label: str
) -> Chosen | None:
    """Return a domain for every gated pod by its rank, None where the ranks do not tell."""
    # The k-th place of all, domain after domain, is the place of rank k.
    domain_of_rank = [index for index, one in enumerate(topology.domains) for _ in range(one.count)]
    seen: set[int] = set()
    chosen: Chosen = []
    for pod in pods:
        rank = whole_number(pod.labels.get(label))
        if rank is None or rank >= len(domain_of_rank) or rank in seen:
            return None
        seen.add(rank)
        domain = domain_of_rank[rank]
        if pod.is_untold:
            chosen.append((pod, domain))
        # Let go elsewhere than its rank says: by hand, or by an earlier placement.
        elif not _is_in(pod, selectors[domain]):
            return None
    return chosen


def _greedily(
    topology: TopologyAssignment, selectors: Selectors, pods: Sequence[PlacedPod], avoid: Collection[str]
) -> Chosen:
    """Return a domain for the gated pods, in order, as long as there are places."""
    free = [one.count for one in topology.domains]
    for pod in pods:
        if not pod.is_untold:
            there = next((index for index, one in enumerate(selectors) if _is_in(pod, one)), None)
            if there is not None:
                # Counted where it stands, whoever put it there; below zero where there are too
                # many, and then nothing is free.
                free[there] -= 1
    open_ = [index for index in range(len(free)) if selectors[index].get(HOSTNAME) not in avoid]
    places = [index for index in open_ for _ in range(free[index])]
    untold = [pod for pod in pods if pod.is_untold]
    # As many as there are places; the others stay gated until one comes free.
    return list(zip(untold, places, strict=False))


def _is_in(pod: PlacedPod, selector: Mapping[str, str]) -> bool:
    labels = pod.node_selector if pod.promised is None else pod.promised
    return all(labels.get(label) == value for label, value in selector.items())


def _patch(pod: PlacedPod, selector: Mapping[str, str]) -> Write:
    # The user's own gates stay: they hold the pod for reasons of their own.
    gates = [{"name": gate} for gate in pod.gates if gate != keys.TOPOLOGY_GATE]
    spec: dict[str, Any] = {"nodeSelector": dict(selector), "schedulingGates": gates or None}
    return Write(
        verb=Verb.MERGE_PATCH,
        kind="Pod",
        namespace=pod.namespace,
        name=pod.name,
        body=guarded_patch({"spec": spec}, uid=pod.uid, resource_version=pod.resource_version),
        uid=pod.uid,
        resource_version=pod.resource_version,
        purpose=Purpose.UNGATE_POD,
    )
