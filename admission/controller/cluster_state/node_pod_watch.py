"""The shared watch of nodes and pods, for placement by topology, the scheduler extender, or both.

Placement needs them once a ResourceFlavor names a topology, perhaps long after the extender has started the
watch. The control loop then receives the objects that are known already, and no second copy is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.informer import Listener, ListWatch
from api.kube.resources import Resource
from api.kube.shared import SharedInformer
from api.objects.cluster import NodeObject, PodObject


class NodePodWatch:
    """Watches the nodes and pods of the whole cluster until its task is cancelled."""

    def __init__(self, client: KubeClient, on_error: Callable[[Resource, KubeError], None]) -> None:
        self.nodes = SharedInformer(
            client,
            ListWatch(resource=resources.NODES, type_=NodeObject),
            on_error=partial(on_error, resources.NODES),
        )
        self.pods = SharedInformer(
            client,
            ListWatch(resource=resources.PODS, type_=PodObject),
            on_error=partial(on_error, resources.PODS),
        )
        # Set once the control loop has received every existing node and pod.
        self.is_connected = asyncio.Event()

    def unsynced(self) -> list[str]:
        """Return the kinds that have not been listed yet, by their plural names."""
        return [one.resource.plural for one in (self.nodes, self.pods) if not one.synced.is_set()]

    async def run(self) -> None:
        """Keep both up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.pods, self.nodes):
                group.create_task(informer.run(), name=f"watch-{informer.resource.plural}")

    async def connect(self, *, pods: Listener[Any], nodes: Listener[Any]) -> None:
        """Connect the control loop's listeners.

        Pods come first: without them their nodes would look empty.
        """
        await self.pods.join(pods)
        await self.nodes.join(nodes)
        self.is_connected.set()
