"""The node agent: reads the GPUs and the kubelet, and writes the node's labels and its pods' GPU ids.

GPUs are read at a fixed period. The kubelet is asked when a pod of the node changes, and at a period as well,
because it assigns devices without a change that the API server shows. Only differences are written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from admission.node_agent.gpus import Gpu, ReadingError
from admission.node_agent.links import Links
from admission.node_agent.node_labels import node_labels
from admission.node_agent.pod_devices import PodDevices, annotation_of, given_twice, gpu_ids
from admission.node_agent.shell.faults import Faults
from admission.node_agent.shell.hardware import Hardware
from admission.node_agent.shell.health import Health
from admission.node_agent.shell.kubelet import Kubelet
from admission.node_agent.shell.node_labels_writer import FIELD_MANAGER, NodeLabelsWriter
from api import keys
from api.http.server import HttpServer
from api.kube.client import KubeClient
from api.kube.errors import Conflict, KubeError, NotFound
from api.kube.events import EventRecorder
from api.kube.history import begin_again_when_restored
from api.kube.informer import Change, Informer, Listener, ListWatch
from api.kube.report_budget import WriteLoad
from api.kube.resources import PODS
from api.objects.cluster import PodObject

log = logging.getLogger("berth.node-agent")

# Readings that fail in a row before the labels go. One may fail while a driver is reloaded.
FAILED_READINGS = 3
# The least time between two questions to the kubelet, however often pods change.
_PAUSE_SECONDS = 1.0
_DRAIN_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """How the agent is started; `node` is the name of its node, `version` that of the agent."""

    node: str
    version: str
    kubeconfig: str | None = None
    nvidia_smi: str = "nvidia-smi"
    kubelet_socket: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    sys_root: Path = Path("/sys")
    devices_seconds: float = 60.0
    pods_seconds: float = 10.0
    bind: str = "127.0.0.1"
    port: int = 8083


async def run_agent(
    options: AgentOptions, *, on_listening: Callable[[Mapping[str, str]], None], stop: asyncio.Event
) -> None:
    """Run until `stop` is set. `on_listening` is called with the URL of the health port.

    Raises KubeError if the API server cannot be reached at the start or has no such node, and ListenError.
    """

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            connecting = KubeClient.connect(options.kubeconfig, user_agent=FIELD_MANAGER)
            client = await stack.enter_async_context(await connecting)
            writer = NodeLabelsWriter(client, options.node, options.version)
            node = await writer.find_node()
            log.info("starting node=%s server=%s version=%s", options.node, client.server, options.version)
            events = EventRecorder(
                client, WriteLoad(), instance=options.node, controller="berth.dev/node-agent"
            )
            agent = NodeAgent(options, client, writer, Faults(events, node))
            server = HttpServer(agent.health.routes(), host=options.bind, port=options.port)
            on_listening({"health": (await stack.enter_async_context(server)).url})
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one) for one in (agent.run(), agent.watch(), events.run())]
                await stop.wait()
                log.info("stopping")
                await events.drain(_DRAIN_SECONDS)
                for task in tasks:
                    task.cancel()

    await begin_again_when_restored(serve)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Devices:
    """The last reading of the GPUs. `links` is None where they could not be read."""

    gpus: tuple[Gpu, ...] = ()
    links: Links | None = None
    numa_nodes: Mapping[int, int] = field(default_factory=dict)


class NodeAgent:
    """Keeps the labels of one node and the GPU ids of its pods up to date."""

    def __init__(
        self, options: AgentOptions, client: KubeClient, writer: NodeLabelsWriter, faults: Faults
    ) -> None:
        self.health = Health(faults, patience_seconds=3 * options.devices_seconds)
        self._options = options
        self._client = client
        self._writer = writer
        self._faults = faults
        self._hardware = Hardware(options.nvidia_smi, options.sys_root)
        self._kubelet = Kubelet(options.kubelet_socket)
        self._devices = _Devices()
        self._failed_readings = 0
        self._taken: frozenset[int] = frozenset()
        self._written: Mapping[str, str] | None = None
        self._pods_changed = asyncio.Event()
        self._pods = Informer(
            client,
            ListWatch(resource=PODS, type_=PodObject, params={"fieldSelector": _running_on(options.node)}),
            Listener(on_change=self._note_pod),
        )

    async def watch(self) -> None:
        """Follow the pods of the node until cancelled."""
        await self._pods.run()

    async def run(self) -> None:
        """Read and write until cancelled. Faults are named and end nothing."""
        due, clock = 0.0, asyncio.get_running_loop().time
        while True:
            is_due = clock() >= due
            if is_due:
                due = clock() + self._options.devices_seconds
                await self._read_devices()
            await self._write_pods()
            await self._write_labels(must_look=is_due)
            self.health.turn_ended(is_ready=self._failed_readings == 0)
            await self._wait(until=due)

    async def _wait(self, until: float) -> None:
        """Return when a pod has changed, the kubelet is to be asked, or the devices are to be read."""
        clock = asyncio.get_running_loop().time
        least = min(_PAUSE_SECONDS, self._options.pods_seconds)
        await asyncio.sleep(least)
        try:
            seconds = min(self._options.pods_seconds - least, until - clock())
            await asyncio.wait_for(self._pods_changed.wait(), max(0.0, seconds))
        except TimeoutError:
            return

    # Devices

    async def _read_devices(self) -> None:
        try:
            inventory = await self._hardware.read_inventory()
        except ReadingError as error:
            self._failed_readings += 1
            self._faults.note("driver", [str(error)])
            if self._failed_readings >= FAILED_READINGS:
                self._devices = _Devices()
            return
        self._failed_readings = 0
        self._faults.note("driver", inventory.faults)
        self._devices = _Devices(
            gpus=inventory.gpus,
            links=await self._read_links(),
            numa_nodes=self._hardware.read_numa_nodes(inventory.gpus),
        )

    async def _read_links(self) -> Links | None:
        try:
            links = await self._hardware.read_links()
        except ReadingError as error:
            self._faults.note("topology", [str(error)])
            return None
        self._faults.note("topology")
        return links

    # Writing

    async def _write_labels(self, *, must_look: bool) -> None:
        """Write the labels if they differ from the last ones; with `must_look`, from those of the node."""
        devices = self._devices
        if not devices.gpus and 0 < self._failed_readings < FAILED_READINGS:
            # Nothing is known yet: the labels of an earlier process stay until the fault has lasted.
            return
        wanted = node_labels(devices.gpus, devices.links, devices.numa_nodes, self._taken)
        if not must_look and wanted == self._written:
            return
        try:
            written = await self._writer.write(wanted)
        except KubeError as error:
            self._written = None
            self._faults.note("node", [f"cannot write the labels of node {self._options.node}: {error}"])
            return
        self._written = wanted
        self._faults.note("node", written.left_alone)
        if written.changed:
            log.info("labels_written node=%s labels=%r", self._options.node, wanted)

    async def _write_pods(self) -> None:
        """Write the GPU ids of the pods that the kubelet lists, where they differ."""
        self._pods_changed.clear()
        # Without the GPUs their ids are unknown; what is written stays.
        if not self._pods.synced.is_set() or not self._devices.gpus:
            return
        try:
            listed = await self._kubelet.list_pods()
        except ReadingError as error:
            self._faults.note("kubelet", [str(error)])
            return
        # The kubelet also lists pods that have finished, and the API server may not know one yet.
        pods = [pod for pod in listed if (pod.namespace, pod.name) in self._pods.store]
        faults = given_twice(pods)
        taken: set[int] = set()
        for pod in pods:
            try:
                ids = gpu_ids(pod, self._devices.gpus)
                await self._write_pod(pod, annotation_of(ids))
            except ReadingError as error:
                faults.append(str(error))
                continue
            except KubeError as error:
                faults.append(f"cannot write the GPU ids of pod {pod}: {error}")
            taken.update(ids)
        self._taken = frozenset(taken)
        self._faults.note("kubelet", faults)

    async def _write_pod(self, pod: PodDevices, value: str | None) -> None:
        meta = self._pods.store[pod.namespace, pod.name].metadata
        if (meta.annotations or {}).get(keys.GPU_IDS) == value:
            return
        # With the uid, a pod that was created again under the same name is not written.
        body = {"metadata": {"uid": meta.uid, "annotations": {keys.GPU_IDS: value}}}
        try:
            await self._client.merge_patch(PODS, pod.name, msgspec.json.encode(body), pod.namespace)
        except (NotFound, Conflict):
            return
        log.info("gpu_ids_written pod=%s ids=%s", pod, value)

    def _note_pod(self, change: Change[PodObject]) -> None:
        before, now = change.previous, change.object
        if before is None or (before.status.phase, before.metadata.annotations) != (
            now.status.phase,
            now.metadata.annotations,
        ):
            self._pods_changed.set()


def _running_on(node: str) -> str:
    return f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
