"""Static addresses of placed pods: reserved on the Workload before any pod starts, then given to each pod.

A pod has the address of its index: the completion index of a Job, the index in a pod group. Pods without an
index have those that no other pod has. Each goes to a host on which its address can be used, so that a pod
that is created again has its address again, and its place follows the address.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from admission.decisions.api_writes import Purpose
from admission.placement.topology.address_book import AddressSlot
from admission.reconcile.workload.context import PlacedPod
from admission.reconcile.workload.look import Answer, Look
from admission.reconcile.workload_writes import workload_patch
from api import keys
from api.jobs.placement_annotations import read_key, sources_of
from api.jobs.static_address import pod_annotations, reservations_text
from api.keys import HOSTNAME
from api.parsing.decimals import whole_number
from api.workload import PodSet, TopologyAssignment, Workload


def answer_addresses(look: Look) -> Answer:
    """Write the addresses of an admitted Workload to it, where they are not there yet."""
    workload, slots = look.workload, look.context.addresses
    if not slots or not workload.is_admitted or workload.is_evicted:
        return None
    text = reservations_text({name: tuple(one.address for one in given) for name, given in slots.items()})
    if workload.annotations.get(keys.ADDRESSES) == text:
        return None
    patch = {"metadata": {"annotations": {keys.ADDRESSES: text}}}
    return (workload_patch(workload, patch, Purpose.RESERVE_ADDRESSES),)


class Addressed(NamedTuple):
    """A gated pod, the node labels of its domain, and the annotations with its address."""

    pod: PlacedPod
    selector: Mapping[str, str]
    annotations: Mapping[str, str]


def addressed_pods(
    workload: Workload,
    pod_set: PodSet,
    topology: TopologyAssignment,
    pods: Sequence[PlacedPod],
    *,
    slots: Sequence[AddressSlot],
    avoid: Collection[str] = (),
) -> list[Addressed]:
    """Return the gated pods that have an address and a place for it. The others stay gated."""
    index_of = _index_label(pod_set)
    free = {domain.values[-1]: domain.count for domain in topology.domains}
    taken: set[int] = set()
    for pod in pods:
        if not pod.needs_ungating:
            host = (pod.node_selector if pod.promised is None else pod.promised).get(HOSTNAME, pod.node)
            free[host] = free.get(host, 0) - 1
            taken.update(index for index, slot in enumerate(slots) if slot.address == pod.address)
    choice = read_key(keys.STATIC_ADDRESS, sources_of(workload, pod_set)[::-1], with_aliases=False)
    found = []
    open_ = [host for host in free if host not in avoid]
    for pod in pods:
        index = _slot(pod, index_of, slots, taken) if pod.needs_ungating else None
        if index is None:
            continue
        slot = slots[index]
        for host in [one for one in open_ if free[one] > 0 and one in slot.hosts][:1]:
            free[host] -= 1
            taken.add(index)
            found.append(Addressed(pod, {HOSTNAME: host}, pod_annotations(slot.address, choice)))
    return found


def _index_label(pod_set: PodSet) -> str:
    return keys.COMPLETION_INDEX if pod_set.ranks is None else pod_set.ranks.index_label


def _slot(pod: PlacedPod, label: str, slots: Sequence[AddressSlot], taken: Collection[int]) -> int | None:
    """Return the index of the pod's address, None while another pod has it."""
    index = whole_number(pod.labels.get(label))
    if index is None:
        return next((one for one in range(len(slots)) if one not in taken), None)
    return index if index < len(slots) and index not in taken else None
