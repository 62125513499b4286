"""What another program writes into Redis gives no quota away: embedded API server, real Redis, whole process.

A ClusterQueue of 48 GPUs, a Workload that asks for 512, and a forger who knows Berth's format, sets the fence
and stores a reservation that charges nothing, just before a leader begins.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis

from api.workload import WorkloadKey
from queues.reservations.reservations import QuotaReservation
from queues.store import encoding
from queues.store.keys import Keys, to_field
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import Object, condition, is_true, make_workload, quota
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.redis, pytest.mark.xdist_group("forged-store")]

KEYS = Keys("default")
GPU = "nvidia.com/gpu"
HAVE, WANT = 48, 512


KEY = "0f" * 32 + "\n"


@pytest.fixture
def scene(embedded_scene: Scene) -> Scene:
    """Give a queue of 48 GPUs, and a Workload that asks for 512."""
    flavor = embedded_scene.create_flavor()
    queue = embedded_scene.create_cluster_queue("main", quota(flavor, nominal=HAVE, resource=GPU))
    embedded_scene.create_local_queue("main", queue)
    workload = make_workload("large", queue="main")
    (container,) = workload["spec"]["podSets"][0]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {GPU: str(WANT)}, "limits": {GPU: str(WANT)}}
    embedded_scene.rest.create(embedded_scene.workloads, workload)
    return embedded_scene


def forged(scene: Scene) -> QuotaReservation:
    """Return a reservation that admits the Workload and charges nothing."""
    obj = scene.workload("large")
    metadata = obj["metadata"]
    (pod_set,) = obj["spec"]["podSets"]
    assignment = {"name": pod_set["name"], "count": pod_set["count"]}
    assignment |= {"flavors": {GPU: scene.scoped("flavor")}, "resourceUsage": {GPU: "0"}}
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": type_,
            "message": "",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        for type_ in ("QuotaReserved", "Admitted")
    ]
    admission = {"clusterQueue": scene.scoped("main"), "podSetAssignments": [assignment]}
    status: Object = {"admission": admission, "conditions": conditions}
    return QuotaReservation(
        key=WorkloadKey(scene.namespace, "large"),
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        request_id="forged",
        fence=1,
        reserved_at=0.0,
        verb="PUT",
        path=f"{scene.workloads}/large/status",
        write=json.dumps({**obj, "status": status}).encode(),
    )


@pytest.mark.parametrize("is_signed", [True, False], ids=["signed values", "no signing key"])
def test_a_forged_reservation_admits_no_512_gpus_on_a_quota_of_48(
    is_signed: bool,
    scene: Scene,
    controllers: Controllers,
    embedded_cluster: Cluster,
    redis_server: RedisServer,
    tmp_path: Path,
) -> None:
    key = tmp_path / "signing-key"
    key.write_text(KEY)
    reservation = forged(scene)
    with redis.Redis.from_url(redis_server.url) as forger:
        forger.hset(KEYS.reservations, to_field(reservation.id), encoding.encode(reservation))
        forger.set(KEYS.fence, "1")

        flags = ("--redis", redis_server.url, "--namespace", scene.namespace)
        signing = ("--store-key", str(key)) if is_signed else ()
        leader = controllers.start(embedded_cluster.kubeconfig, *flags, *signing)
        leader.wait_leading()
        wait_for(lambda: condition(scene.workload("large"), "QuotaReserved"), "a verdict on the Workload")

        assert not is_true(scene.workload("large"), "QuotaReserved")
        assert forger.hlen(KEYS.reservations) == 0
        assert leader.metric("berth_control_loop_errors_total") == 0
        labels = {"table": "reservations", "fault": "Unsigned"}
        assert leader.metric("berth_store_ignored_values_total", **labels) == is_signed
        assert leader.has_logged("store-not-signed") is not is_signed
        assert KEY.strip() not in leader.log()
