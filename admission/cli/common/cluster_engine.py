"""An engine that is filled with a live cluster's objects, for commands that work without the controller."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from admission.answers.manifest_loader import READERS, note_unreadable, take
from admission.engine.engine import Engine, EngineSettings
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, KubeError, NotFound
from api.kube.listing import ListResult
from api.kube.resources import Resource
from api.objects.common import Meta
from api.wire import visibility
from api.workload import WorkloadKey

_RESOURCES = {
    one.kind: one for one in vars(resources).values() if isinstance(one, Resource) and one.kind in READERS
}
# The order of a queue depends on neither kind, and they are the most numerous.
_WITHOUT_ORDER = ("Node", "Pod")
# What is read of dynamic resource allocation, where the configuration is known by which devices are counted.
_DEVICES = ("DeviceClass", "ResourceClaimTemplate", "ResourceSlice")


def kinds_for(settings: EngineSettings, *, of_order: bool = False) -> tuple[str, ...]:
    """Return the kinds that an engine with these settings decides by; `of_order`: those that order queues."""
    left_out = (() if settings.resources.devices.is_on else _DEVICES) + (_WITHOUT_ORDER if of_order else ())
    return tuple(kind for kind in READERS if kind not in left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A cluster's objects by kind. `forbidden` maps kinds without read permission to the server's error.

    `is_of_one_namespace`: the reader may list Workloads of one namespace alone, so they are not all of a
    queue.
    """

    found: Mapping[str, ListResult[Any]]
    forbidden: Mapping[str, Forbidden]
    is_of_one_namespace: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each kind without read permission."""
        return tuple(
            f"{_RESOURCES[kind].plural} may not be read: {error}" for kind, error in self.forbidden.items()
        )


async def list_cluster(client: KubeClient, kinds: Iterable[str], *, namespace: str | None = None) -> Listing:
    """Return the cluster's objects of these kinds.

    Every kind is optional: a kind that the server does not serve is omitted. Of a kind that may not be read
    in all namespaces, the objects of `namespace` are returned if that may be read. Raises KubeError.
    """
    found: dict[str, ListResult[Any]] = {}
    forbidden: dict[str, Forbidden] = {}
    is_of_one = False
    for kind in kinds:
        try:
            found[kind], is_whole = await _list(client, kind, namespace)
        except NotFound:
            continue
        except Forbidden as error:
            forbidden[kind] = error
        else:
            is_of_one |= kind == "Workload" and not is_whole
    return Listing(found=found, forbidden=forbidden, is_of_one_namespace=is_of_one)


async def _list(client: KubeClient, kind: str, namespace: str | None) -> tuple[ListResult[Any], bool]:
    """Return the objects of a kind, and whether these are all of the cluster's."""
    resource, wire = _RESOURCES[kind], READERS[kind].wire
    try:
        return await client.list(resource, type_=wire), True
    except Forbidden:
        if namespace is None or not resource.namespaced:
            raise
        return await client.list(resource, namespace, type_=wire), False


def engine_of(listing: Listing, settings: EngineSettings, *, now: float) -> tuple[Engine, tuple[str, ...]]:
    """Return an engine with the cluster's objects, and one sentence for each unreadable object or kind.

    `now` is in Unix seconds.
    """
    engine = Engine(settings)
    problems = list(listing.problems)
    for kind, listed in listing.found.items():
        for one in listed.items:
            problem = take(engine, kind, one, now=now)
            if problem is not None:
                problems.append(problem)
        for broken in listed.unreadable:
            meta = Meta(namespace=broken.namespace, name=broken.name)
            problems.append(note_unreadable(engine, kind, meta, broken.error, now=now))
    return engine, tuple(problems)


def queue_places(engine: Engine, cluster_queues: Iterable[str]) -> dict[WorkloadKey, int]:
    """Return the position, from 1, of each pending Workload of these ClusterQueues, in the engine's order."""
    return {
        one.key: place
        for name in cluster_queues
        for place, one in enumerate(engine.queues.pending(name), start=1)
    }


async def published_places(client: KubeClient, listing: Listing) -> dict[WorkloadKey, int]:
    """Return the places that the visibility API shows of the namespace's LocalQueues, if it may be read.

    They count Workloads of others, which a tenant cannot list itself.
    """
    places: dict[WorkloadKey, int] = {}
    for queue in listing.found["LocalQueue"].items:
        meta = queue.metadata
        path = (
            f"/apis/{visibility.GROUP}/{visibility.VERSIONS[0]}/namespaces/{meta.namespace}"
            f"/localqueues/{meta.name}/pendingworkloads"
        )
        try:
            found = visibility.read_places(await client.request("GET", path))
        except (KubeError, msgspec.DecodeError):
            # Not installed, not permitted, or its controller does not answer: the positions are not known.
            continue
        for one in found:
            key = WorkloadKey(one.metadata.namespace, one.metadata.name)
            places[key] = one.position_in_cluster_queue + 1
    return places
