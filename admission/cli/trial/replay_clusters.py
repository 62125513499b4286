"""The cluster of a replay: an embedded one, or an existing one, which is cleaned up afterwards.

Both yield a client and a recorder that has started to watch, while simulated nodes, and the replay's own
controller if it has one, run in the background.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from admission.cli.common.errors import NotHoldingError, WrongUsageError
from admission.cli.common.job_manifests import namespace
from admission.cli.trial.child_cluster import child_cluster
from admission.cli.trial.cleanup import delete_namespaces, delete_objects, empty_namespaces
from admission.cli.trial.control_plane_probe import Missing, find_missing, has_control_plane
from admission.cli.trial.embedded_cluster import create, in_background, install_kinds
from admission.cli.trial.in_process_controller import run_inner_controller
from admission.cli.trial.recorder import Recorder
from admission.cli.trial.replay_plan import ReplayPlan
from api.kube.client import KubeClient
from api.kube.embedded.standins.standins import StandIns
from api.kube.errors import NotFound
from api.kube.resources import (
    CLUSTER_QUEUES,
    COHORTS,
    CRDS,
    NAMESPACES,
    NODES,
    RESOURCE_FLAVORS,
    WORKLOADS,
)

Stage = tuple[KubeClient, Recorder]


class StandInMode(StrEnum):
    """Which components are simulated besides the nodes. AUTO: those that a bare API server lacks."""

    AUTO = "auto"
    KUBELET = "kubelet"
    ALL = "all"


@asynccontextmanager
async def embedded_stage(kubeconfig: Path, plan: ReplayPlan, *, pace: float) -> AsyncIterator[Stage]:
    """Run an embedded cluster in a child process, and a controller in this process."""
    async with (
        child_cluster(kubeconfig, plan.node_specs(), pace=pace),
        await KubeClient.connect(str(kubeconfig), user_agent="berth-replay") as client,
    ):
        listening = asyncio.Event()
        recorder = Recorder(client)
        async with in_background(
            controller=run_inner_controller(str(kubeconfig), listening=listening),
            recorder=recorder.run(),
        ):
            await recorder.wait_synced()
            await listening.wait()
            yield client, recorder


@asynccontextmanager
async def existing_stage(
    kubeconfig: str, plan: ReplayPlan, *, pace: float, with_controller: bool, stand_ins: StandInMode
) -> AsyncIterator[Stage]:
    """Use the cluster of `kubeconfig`, and delete everything of the replay afterwards.

    Raises WrongUsageError if the cluster lacks the kinds and no controller is started, and NotHoldingError if
    it is a complete cluster whose Job controller or scheduler does not react.
    """
    async with await KubeClient.connect(kubeconfig, user_agent="berth-replay") as client:
        # Call this first, so that an unreachable server is reported before anything is created.
        await client.server_version()
        installed = await _ensure_kinds(client, may_install=with_controller)
        try:
            await create(client, NAMESPACES, namespace(plan.controller_namespace, plan.labels))
            async with _helpers(client, kubeconfig, plan, pace, with_controller, stand_ins) as recorder:
                try:
                    yield client, recorder
                finally:
                    _say("cleaning up")
                    await empty_namespaces(client, plan.names.values())
        finally:
            await _take_away(client, plan, installed)


@asynccontextmanager
async def _helpers(
    client: KubeClient,
    kubeconfig: str,
    plan: ReplayPlan,
    pace: float,
    with_controller: bool,
    which: StandInMode,
) -> AsyncIterator[Recorder]:
    # Other Jobs on the cluster must not enter this replay's figures.
    own = frozenset(plan.names.values())
    recorder = Recorder(client, wants=own.__contains__)
    # Start only the nodes: the probe for the other components needs a node for its pod.
    kubelet = StandIns(client, nodes=plan.node_specs(), speed=pace, job_controller=False, scheduler=False)
    works: dict[str, Coroutine[Any, Any, None]] = {"recorder": recorder.run()}
    listening = asyncio.Event()
    if with_controller:
        works["controller"] = run_inner_controller(
            kubeconfig, listening=listening, namespace=plan.controller_namespace
        )
    else:
        listening.set()
    async with in_background(nodes=kubelet.run()):
        await kubelet.wait_ready()
        others = await _choose_stand_ins(client, plan, which)
        if others:
            works["others"] = StandIns(
                client,
                speed=pace,
                kubelet=False,
                job_controller=others.job_controller,
                scheduler=others.scheduler,
            ).run()
        async with in_background(**works):
            await recorder.wait_synced()
            await listening.wait()
            yield recorder


async def _choose_stand_ins(client: KubeClient, plan: ReplayPlan, which: StandInMode) -> Missing:
    """Return which components to simulate. Raises NotHoldingError if a real control plane does not react."""
    if which is StandInMode.KUBELET:
        return Missing(job_controller=False, scheduler=False)
    if which is StandInMode.ALL:
        return Missing(job_controller=True, scheduler=True)
    missing = await find_missing(client, namespace=plan.controller_namespace, pool=plan.pool)
    # A slow component would resume during the run, and two would undo each other's work.
    if missing and await has_control_plane(client):
        raise NotHoldingError(
            f"{client.server} has no {missing} that reacts within ten seconds, but its control plane holds"
            " its leases; wait until it works, or give --stand-ins all"
        )
    if missing:
        _say(f"{client.server} has no {missing} of its own: simulated for this replay")
    return missing


async def _ensure_kinds(client: KubeClient, *, may_install: bool) -> tuple[str, ...]:
    if may_install:
        return await install_kinds(client)
    try:
        await client.request("GET", WORKLOADS.path(), params={"limit": "1"})
    except NotFound as error:
        raise WrongUsageError(
            f"{client.server} does not serve kueue.x-k8s.io/v1beta2; install the kinds with"
            " berth crds | kubectl apply --server-side -f -, and start a controller or give --controller"
        ) from error
    return ()


async def _take_away(client: KubeClient, plan: ReplayPlan, definitions: tuple[str, ...]) -> None:
    """Delete the remaining objects of the replay once it has stopped."""
    namespaces = (*plan.names.values(), plan.controller_namespace)
    # Delete an object only after all objects that refer to it.
    await empty_namespaces(client, namespaces)
    await delete_objects(client, CLUSTER_QUEUES, plan.names.values())
    await delete_objects(client, COHORTS, [plan.cohort])
    await delete_objects(client, RESOURCE_FLAVORS, [plan.flavor])
    await delete_objects(client, NODES, [node.name for node in plan.node_specs()])
    await delete_namespaces(client, namespaces)
    # Delete definitions last, because this deletes all their objects, and only those that the replay added.
    await delete_objects(client, CRDS, definitions)


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr, flush=True)
