"""Flavor refusals: why pods cannot use a flavor whatever its quota, for the search and `berth explain`.

The reasons are those of Kueue: a flavor that does not exist, whose topology does not suit the request, whose
taints are not tolerated, or whose node labels contradict the pod's selector or affinity. Three are Berth's
own: first, the capacity reserved for the Workload is of another flavor; last, the flavor has only spot nodes
and the pods do not bear interruptions, or no node of the flavor has the hardware that they need. The first
that applies is reported.
Source: Kueue, pkg/scheduler/flavorassigner, checkFlavorForPodSets.
"""

from __future__ import annotations

from typing import NamedTuple

from admission.flavors.hardware_needs import hardware_refusal, spot_refusal
from admission.flavors.placement_hints import reserved_domain
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import PodSetRequests
from api.keys import ADDRESS, HOSTNAME
from api.objects.templates import WirePodSpec
from api.queueing import ResourceFlavor
from api.reasons import PendingReason
from api.selectors import find_untolerated, matches_flavor, taint_text
from api.workload import PodSet, TopologyRequest, Workload

_NO_SPEC = WirePodSpec()


class FlavorRefusal(NamedTuple):
    """Why a flavor is out of the question whatever its quota: a sentence, and the reason to report."""

    message: str
    reason: PendingReason = PendingReason.NO_MATCHING_FLAVOR


def flavor_refusal(
    snapshot: Snapshot,
    queue: QueueState,
    name: str,
    workload: Workload,
    pod_set: PodSet,
    asked: PodSetRequests,
) -> FlavorRefusal | None:
    """Return why these pods of the Workload cannot use the flavor whatever its quota, None where they can.

    Depends on specs, annotations, the calendar and the kinds of nodes, never on usage. The sentence is part
    of the condition's message and is Kueue's where Kueue has the reason.
    """
    message = _reservation_refusal(queue, workload, name)
    if message is not None:
        return FlavorRefusal(message)
    flavor = snapshot.objects.flavors.get(name)
    if flavor is None:
        return FlavorRefusal(f"flavor {name} not found")
    request = pod_set.topology_request
    if flavor.topology_name is not None or request is not None:
        message = _topology_refusal(snapshot, queue, flavor, request, asked)
        if message is not None:
            return FlavorRefusal(message)
    message = _pod_refusal(flavor, pod_set) or _address_refusal(snapshot, flavor, asked)
    if message is not None:
        return FlavorRefusal(message)
    message = spot_refusal(snapshot, queue, flavor, workload, pod_set)
    if message is not None:
        return FlavorRefusal(message)
    message = hardware_refusal(snapshot, queue, flavor, workload, pod_set, asked)
    return None if message is None else FlavorRefusal(message, PendingReason.MISCONFIGURED)


def other_flavor_refusal(name: str, former: str) -> str:
    """Return why a slice cannot use another flavor than the slice that it replaces, in Kueue's words."""
    return f"could not assign {name} flavor since the original workload is assigned: {former}"


def _pod_refusal(flavor: ResourceFlavor, pod_set: PodSet) -> str | None:
    """Return why taints or node labels of the flavor keep these pods away, None where they do not."""
    spec = pod_set.template.spec or _NO_SPEC
    if flavor.node_taints:
        # The flavor's tolerations count too: they are added to the pods at the start of the Job.
        taint = find_untolerated(flavor.node_taints, (*(spec.tolerations or ()), *flavor.tolerations))
        if taint is not None:
            return f"untolerated taint {taint_text(taint)} in flavor {flavor.name}"
    if flavor.node_labels and not matches_flavor(spec, flavor.node_labels):
        return f"flavor {flavor.name} doesn't match node affinity"
    return None


def _address_refusal(snapshot: Snapshot, flavor: ResourceFlavor, asked: PodSetRequests) -> str | None:
    """Return why pods cannot get static addresses through the flavor, None where they can or ask for none."""
    if not asked.on_node.get(ADDRESS):
        return None
    cache = snapshot.topology_cache
    if cache.has_topology(flavor.name) and cache.topology(flavor.name).is_by_host:
        return None
    return f"flavor {flavor.name} gives no static addresses: it has no Topology down to {HOSTNAME}"


def _reservation_refusal(queue: QueueState, workload: Workload, flavor: str) -> str | None:
    """Return why a Workload that has joined a reserved domain cannot use the flavor, None where it can.

    A flavor in a resource group without any flavor of the domain is not affected: it is used beside the
    domain's flavors and not instead of them.
    """
    domain = reserved_domain(queue, workload)
    if domain is None or flavor in domain.flavors:
        return None
    for group in queue.groups.values():
        if flavor in group.flavors and not domain.flavors.isdisjoint(group.flavors):
            return f"flavor {flavor} has no nodes in the reserved domain {domain.name}"
    return None


def _topology_refusal(
    snapshot: Snapshot,
    queue: QueueState,
    flavor: ResourceFlavor,
    request: TopologyRequest | None,
    asked: PodSetRequests,
) -> str | None:
    """Return why a pod set with this topology request cannot use the flavor, None where it can."""
    name = flavor.name
    if request is None:
        if flavor.topology_name is None or _places_all(snapshot, queue):
            return None
        return f"Flavor {name!r} supports only TopologyAwareScheduling"
    if flavor.topology_name is None:
        if not _covers_nodes(queue, name, asked):
            return None
        return f"Flavor {name!r} does not support TopologyAwareScheduling"
    # Its Topology is missing or has no nodes: either may still appear, or the flavor is misconfigured.
    if not snapshot.topology_cache.has_topology(name):
        return f"Flavor {name!r} information missing in TAS cache"
    # Every level that the request names must exist, those of slices included.
    named = (request.required, request.preferred, *(layer.topology for layer in request.slices))
    levels = snapshot.topology_cache.topology(name).levels
    if any(level is not None and level not in levels for level in named):
        return f"Flavor {name!r} does not contain the requested level"
    return None


def _covers_nodes(queue: QueueState, flavor: str, asked: PodSetRequests) -> bool:
    """Return whether the flavor's resource group covers anything that the pods request of their nodes.

    Where it does not, the group is charged for what resource transformations make of the requests, and
    another group's flavor decides on which nodes the pods run.
    """
    group = next((one for one in queue.groups.values() if flavor in one.flavors), None)
    return group is None or not asked.on_node.keys().isdisjoint(group.resources)


def _places_all(snapshot: Snapshot, queue: QueueState) -> bool:
    """Return whether every flavor of the ClusterQueue has a topology, so that all its pods are placed.

    False where it has no flavors.
    """
    # Only the queue's own flavors matter: pods on a flavor without a topology are placed by no one here.
    names = {name for group in queue.groups.values() for name in group.flavors}
    return bool(names) and all(snapshot.topology_cache.has_topology(name) for name in names)
