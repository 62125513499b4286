"""Leaders that can do nothing: they end, and another replica leads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from admission.cli.trial.embedded_cluster import install_kinds
from admission.controller.app import run_controller
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.watchdog import ControlLoopStalled
from admission.controller.settings import Options
from api.config.berth import Settings
from api.config.loading import ControllerConfig
from api.kube.client import KubeClient
from api.kube.resources import LEASES
from tests.controlplane import Rest
from tests.embedded import EmbeddedCluster
from tests.integration.conftest import Cluster, Controllers
from tests.integration.replica import SHORT_LEASE
from tests.integration.scene import Scene
from tests.redisserver import RedisServer

NAMESPACE = "berth-system"


@pytest.fixture
def scene(embedded_scene: Scene) -> Scene:
    """Give a scene of the embedded cluster."""
    return embedded_scene


async def test_a_leader_whose_turn_does_not_end_gives_its_lease_back_and_ends(
    embedded_server: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await install_kinds(client)

    async def hang(*_: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ControlLoop, "_act", hang)
    options = Options(
        kubeconfig=embedded_server.kubeconfig,
        namespace=NAMESPACE,
        http_port=-1,
        metrics_port=-1,
        extender_port=-1,
        visibility_port=-1,
        webhook_port=-1,
        config=ControllerConfig(berth=Settings.model_validate({"execution": {"progressDeadlineSeconds": 1}})),
    )

    async with asyncio.timeout(60.0):
        with pytest.raises(ExceptionGroup) as ended:
            await run_controller(options)

    assert ended.group_contains(ControlLoopStalled)
    lease = await asyncio.to_thread(Rest(embedded_server.url).get, LEASES.path(NAMESPACE, "berth-default"))
    assert lease["spec"]["leaseTransitions"] == 1
    assert lease["spec"]["holderIdentity"] == ""


@pytest.mark.redis
def test_a_leader_whose_event_loop_is_blocked_ends_and_the_follower_goes_on(
    scene: Scene,
    embedded_cluster: Cluster,
    own_namespace: str,
    controllers: Controllers,
    redis_server: RedisServer,
) -> None:
    scene.create_queue(cpus=1)
    flags = ("--redis", redis_server.url, "--namespace", own_namespace)
    config = f"{SHORT_LEASE}execution: {{progressDeadlineSeconds: 3}}\n"
    leader = controllers.start(
        embedded_cluster.kubeconfig, *flags, failpoint="after-reserve:1:block", config=config
    )
    leader.wait_leading()
    follower = controllers.start(embedded_cluster.kubeconfig, *flags, config=config)
    follower.wait_ready()

    scene.create_job("one", cpus=1)
    scene.wait_admitted("one")

    assert leader.wait_exit() == 1
    # Its last words say where it was blocked.
    assert "in reach" in leader.log()
    assert follower.metric("berth_leader") == 1
