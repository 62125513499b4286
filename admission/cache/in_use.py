"""Specs in use: which objects keep a finalizer, so that they outlive their deletion.

A ClusterQueue is in use while admitted Workloads hold its quota: without it their usage would count nowhere,
and the cohort would give away what they still occupy. What is only reserved is given back. Flavors,
topologies and checks are in use while another spec names them, since running work was placed by what they
say. A finalizer keeps them until then.
Source: Kueue, the `Reconcile` of each kind in pkg/controller/core and pkg/controller/tas.
"""

from __future__ import annotations

from admission.cache.cache import Cache
from admission.decisions.api_writes import ObjectVersion, Purpose, Write
from api.keys import RESOURCE_IN_USE
from api.objects.common import Meta
from api.queueing import ClusterQueue

# The kinds that carry this finalizer. That of Workloads follows other rules (`admission.reconcile`).
KEPT_KINDS = frozenset({"AdmissionCheck", "ClusterQueue", "ResourceFlavor", "Topology"})


def is_in_use(cache: Cache, kind: str, name: str) -> bool:
    """Return whether a spec of one of `KEPT_KINDS` is still needed.

    A ClusterQueue that is being deleted still uses its flavors, since its Workloads run on. O(1) for a
    ClusterQueue, O(ClusterQueues) for other kinds.
    """
    queues = cache.specs.cluster_queues.values()
    if kind == "ClusterQueue":
        return name in cache.queues and any(one.is_admitted for one in cache.queues[name].held.values())
    if kind == "ResourceFlavor":
        return any(name in _flavors(queue) for queue in queues)
    if kind == "AdmissionCheck":
        return any(rule.name == name for queue in queues for rule in queue.checks)
    return any(flavor.topology_name == name for flavor in cache.specs.flavors.values())


def finalizer_patch(kind: str, metadata: Meta, *, is_used: bool) -> Write | None:
    """Return the write that adds the finalizer or removes one no longer needed; None if nothing is to do.

    Finalizers of others are kept. An object that is being deleted is given none: the API server refuses that.

    The write is guarded by the resourceVersion of `metadata`, so finalizers that others add meanwhile are not
    lost.
    """
    present = metadata.finalizers or ()
    is_kept, is_deleted = RESOURCE_IN_USE in present, metadata.deletion_timestamp is not None
    if is_kept == (not is_deleted or is_used) or (is_deleted and not is_kept):
        return None
    others = [name for name in present if name != RESOURCE_IN_USE]
    finalizers = others if is_kept else [*others, RESOURCE_IN_USE]
    purpose = Purpose.REMOVE_FINALIZER if is_kept else Purpose.ADD_FINALIZER
    return ObjectVersion.of(kind, metadata).patch({"metadata": {"finalizers": finalizers or None}}, purpose)


def _flavors(queue: ClusterQueue) -> set[str]:
    """Return the names of all flavors that the ClusterQueue offers."""
    return {flavor.name for group in queue.resource_groups for flavor in group.flavors}
