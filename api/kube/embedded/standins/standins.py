"""All simulated controllers together, which make a bare API server behave like a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from api.kube.client import KubeClient
from api.kube.embedded.standins.job_controller import JobController
from api.kube.embedded.standins.kubelet import Kubelet, NodeSpec
from api.kube.embedded.standins.mirror import StandInCache
from api.kube.embedded.standins.scheduler import Scheduler


class StandIns:
    """Simulated nodes and, if the API server has none, a Job controller and a scheduler.

    With a real control plane, only `kubelet` is enabled, because it has its own Job controller and scheduler.
    """

    def __init__(
        self,
        client: KubeClient,
        *,
        nodes: Sequence[NodeSpec] = (),
        speed: float = 1.0,
        job_controller: bool = True,
        scheduler: bool = True,
        kubelet: bool = True,
    ) -> None:
        self._mirror = StandInCache(client)
        self.kubelet = Kubelet(client, self._mirror, nodes, speed=speed) if kubelet else None
        self._scheduler = Scheduler(client, self._mirror) if scheduler else None
        self._jobs = JobController(client, self._mirror, speed=speed) if job_controller else None

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mirror.run(), name="stand-ins: mirror")
            await self._mirror.wait_synced()
            for name, part in (
                ("kubelet", self.kubelet),
                ("scheduler", self._scheduler),
                ("job controller", self._jobs),
            ):
                if part is not None:
                    group.create_task(part.run(), name=f"stand-ins: {name}")

    async def wait_ready(self) -> None:
        """Return once the simulated nodes are registered and the cache is synced."""
        await self._mirror.wait_synced()
        if self.kubelet is not None:
            await self.kubelet.registered.wait()
