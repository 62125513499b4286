"""The watch of the nodes' Leases, which runs once a policy asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from admission.controller.cluster_state.heartbeats import Heartbeats
from admission.controller.loop.control_loop import ControlLoop
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.informer import Informer, Listener, ListWatch
from api.kube.resources import Resource
from api.objects.common import NamedObject

# The namespace in which kubelets renew their Leases, by the name of the node.
NODE_LEASES = "kube-node-lease"
_CHECK_SECONDS = 1.0


class HeartbeatWatch:
    """Brings each renewal to the control loop, and has it look for quiet nodes every second."""

    def __init__(
        self,
        client: KubeClient,
        heartbeats: Heartbeats,
        control_loop: ControlLoop,
        on_error: Callable[[Resource, Exception | None], None],
    ) -> None:
        self._heartbeats = heartbeats
        self._control_loop = control_loop
        self._informer = Informer(
            client,
            ListWatch(resource=resources.LEASES, type_=NamedObject, namespace=NODE_LEASES),
            Listener(on_change=lambda change: control_loop.post(partial(heartbeats.take, change))),
            on_error=partial(on_error, resources.LEASES),
        )

    async def run(self) -> None:
        """Watch until cancelled, from the moment that a policy asks for it."""
        await self._heartbeats.needed.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name="watch-node-leases")
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                self._control_loop.post(self._heartbeats.check)
