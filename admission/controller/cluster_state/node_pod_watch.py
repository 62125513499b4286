"""The one watch of nodes and of pods, for placement by topology, the scheduler extender, or both.

Placement comes to need them when a ResourceFlavor names a topology, perhaps long after the extender has begun
to watch; then the brain is told what is known already, and no second copy is made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import KubeError
from api.kube.resources import Resource
from api.kube.shared import Listener, SharedInformer
from api.objects import NodeObject, PodObject


class NodePodWatch:
    """Nodes and pods of the whole cluster. Whoever runs it cancels it."""

    def __init__(self, client: KubeClient, on_error: Callable[[Resource, KubeError], None]) -> None:
        self.nodes = SharedInformer(
            client, resources.NODES, NodeObject, on_error=partial(on_error, resources.NODES)
        )
        self.pods = SharedInformer(
            client, resources.PODS, PodObject, on_error=partial(on_error, resources.PODS)
        )
        # Set once the brain has been told of every node and pod there is.
        self.is_told = asyncio.Event()

    def unsynced(self) -> list[str]:
        """Return the kinds that have not been listed yet."""
        return [one.resource.plural for one in (self.nodes, self.pods) if not one.synced.is_set()]

    async def run(self) -> None:
        """Keep both up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.pods, self.nodes):
                group.create_task(informer.run(), name=f"watch-{informer.resource.plural}")

    async def tell(self, *, pods: Listener[Any], nodes: Listener[Any]) -> None:
        """Have the brain's listeners told of all there is: pods first, or their nodes would look empty."""
        await self.pods.join(pods)
        await self.nodes.join(nodes)
        self.is_told.set()
