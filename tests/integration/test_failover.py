"""Two replicas on a real control plane: one leads, and when it fails the other goes on with what it left.

A Redis is between them. Leaders die, freeze and wake, lose their network, and stop in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from admission.controller.runtime.failpoints import Step
from tests.controlplane import ControlPlane
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import LONG, condition, is_true, make_job
from tests.integration.proxy import Proxy
from tests.integration.replica import SHORT_LEASE, Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("failover")]

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
EXPECTED = "berth.dev/expected-runtime-seconds"
# No replica would take over in time by waiting for the end of this lease, nor lose it on a busy machine.
LONG_LEASE = """
apiVersion: berth.dev/v1alpha1
kind: ControllerConfig
lease: {durationSeconds: 120, renewSeconds: 1, deadlineSeconds: 100}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A scene with a queue of two CPUs, and replicas that share a lease and a Redis."""

    cluster: Cluster
    scene: Scene
    witness: Witness
    cluster_queue: str
    controllers: Controllers
    flags: tuple[str, ...]

    def start(self, *, kubeconfig: str | None = None, **options: str) -> Replica:
        """Start one more replica, which leads under a short lease unless its options say otherwise."""
        options.setdefault("config", SHORT_LEASE)
        return self.controllers.start(kubeconfig or self.cluster.kubeconfig, *self.flags, **options)

    def start_two(self, **options: str) -> tuple[Replica, Replica]:
        """Start a leader and a follower, the latter ready to take over."""
        leader = self.start(**options)
        leader.wait_leading()
        follower = self.start(**{key: value for key, value in options.items() if key != "failpoint"})
        follower.wait_ready()
        return leader, follower

    def check_each_ran_once(self, *jobs: str) -> None:
        """Check what happened: the Jobs started once, and never more of them than the quota allows."""
        self.witness.catch_up()
        assert {job: self.witness.starts(job) for job in jobs} == dict.fromkeys(jobs, 1)
        assert {job: len(self.witness.pod_uids(job)) for job in jobs} == dict.fromkeys(jobs, 1)
        assert self.witness.peak_reserved(self.cluster_queue) <= 2
        assert self.witness.peak_running() <= 2


@pytest.fixture
def stage(
    real_cluster: Cluster, real_scene: Scene, controllers: Controllers, redis_server: RedisServer
) -> Iterator[Stage]:
    """Give the stage, its witness watching."""
    flags = ("--redis", redis_server.url, "--namespace", real_cluster.new_scene().namespace)
    with Witness(real_scene.rest, real_scene.namespace) as witness:
        yield Stage(
            cluster=real_cluster,
            scene=real_scene,
            witness=witness,
            cluster_queue=real_scene.create_queue(cpus=2),
            controllers=controllers,
            flags=flags,
        )


def test_one_leads_and_the_other_is_ready_and_writes_nothing(stage: Stage) -> None:
    leader, follower = stage.start_two(config=LONG_LEASE)

    stage.scene.create_job("one", cpus=2)
    stage.scene.wait_admitted("one")

    assert (leader.metric("berth_leader"), follower.metric("berth_leader")) == (1, 0)
    assert follower.get("http", "/readyz") == (200, "ok")
    assert leader.metric("berth_writes_total") > 0
    assert leader.metric("berth_write_duration_seconds_count") > 0
    assert follower.metric("berth_writes_total") == 0


def test_the_api_server_keeps_with_an_admission_what_it_was_checked_against(stage: Stage) -> None:
    stage.start().wait_leading()
    stage.scene.create_job("one", cpus=2, seconds=0.3)

    stage.scene.wait_finished("one")

    workload = stage.scene.wait_workload("one")
    record, reserved = condition(workload, "berth.dev/QuotaChecked"), condition(workload, "QuotaReserved")
    assert re.fullmatch(
        r"Checked against quota [0-9a-f]{16} of its cohort under fence [0-9]+", record["message"]
    )
    assert record["lastTransitionTime"] == reserved["lastTransitionTime"]


def test_the_follower_goes_on_within_the_lease_when_the_leader_is_killed(stage: Stage) -> None:
    leader, follower = stage.start_two()
    stage.scene.create_job("before", cpus=2, seconds=6)
    stage.scene.wait_admitted("before")

    leader.child.kill()
    stage.scene.create_job("after", cpus=2, seconds=0.5)

    # The end of the lease, the follower's next look 1 s later, and room for a busy machine.
    wait_for(lambda: follower.has_logged("deciding"), "the follower leading")
    stage.scene.wait_finished("before", "after")
    stage.check_each_ran_once("before", "after")


def test_a_leader_that_stops_in_order_hands_over_at_once(stage: Stage) -> None:
    leader, follower = stage.start_two(config=LONG_LEASE)

    leader.child.stop()

    assert leader.wait_exit() == 0
    follower.wait_leading()
    stage.scene.create_job("one", seconds=0.5)
    stage.scene.wait_finished("one")
    stage.check_each_ran_once("one")


def test_a_leader_whose_lease_is_deleted_leads_again_with_a_higher_fence(stage: Stage) -> None:
    replica = stage.start()
    replica.wait_leading()
    namespace = stage.flags[-1]
    stage.scene.rest.delete(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/berth-default")

    replica.wait_logged("deciding", "fence=2")
    stage.scene.create_job("one", seconds=0.5)
    stage.scene.wait_finished("one")
    stage.check_each_ran_once("one")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_RESERVE, id="after reserving"),
        pytest.param(Step.BEFORE_PATCH, id="right before its patch"),
    ],
)
def test_a_leader_that_froze_finds_the_quota_given_away_and_takes_nothing_back(
    step: Step, stage: Stage
) -> None:
    leader, follower = stage.start_two(failpoint=f"{step.value}:1:stop")
    stage.scene.create_job("first", cpus=2, seconds=0.5)
    leader.wait_frozen()

    # The first gives up its turn; the new leader gives the quota to the second.
    stage.scene.set_active("first", active=False)
    stage.scene.create_job("second", cpus=2)
    stage.scene.wait_admitted("second")
    leader.child.resume()
    leader.wait_logged("stopped_leading")
    stage.scene.set_active("first", active=True)

    stage.scene.wait_pending("first")
    assert not is_true(stage.scene.workload_of("first"), "Admitted")
    assert follower.metric("berth_leader") == 1
    stage.scene.delete_job("second")
    stage.scene.wait_finished("first")
    stage.check_each_ran_once("first", "second")


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[Proxy]:
    """Give a door to the real API server."""
    with Proxy(control_plane.server, token=control_plane.token, ca_file=control_plane.ca_file) as door:
        yield door


def test_a_patch_that_was_long_on_its_way_is_refused_when_the_quota_is_given_away(
    stage: Stage, proxy: Proxy, tmp_path: Path
) -> None:
    leader = stage.start(kubeconfig=proxy.write_kubeconfig(tmp_path))
    leader.wait_leading()
    follower = stage.start()
    follower.wait_ready()
    gate = Event()
    admission = proxy.add("PUT", r"/workloads/job-first-\w+/status", gate=gate)
    stage.scene.create_job("first", cpus=2, seconds=0.5)
    wait_for(lambda: admission.seen, "the admission on its way")

    # From here on the leader reaches no server; what it has sent is still in the network.
    for method in ("GET", "PUT"):
        proxy.add(method, "/leases/", gate=gate)
    stage.scene.set_active("first", active=False)
    follower.wait_logged("recover", "verdict=release")
    stage.scene.create_job("second", cpus=2)
    stage.scene.wait_admitted("second")
    gate.set()

    wait_for(lambda: len(admission.answers) == admission.seen, "every held patch answered")
    assert set(admission.answers) == {409}
    fenced = stage.scene.wait_workload("first")
    # By the replica that released it, under whatever number it leads.
    fence = fenced["metadata"]["annotations"]["berth.dev/fence"]
    assert follower.has_logged("deciding", f"fence={fence}")
    stage.scene.delete_job("second")
    stage.scene.set_active("first", active=True)
    stage.scene.wait_finished("first")
    stage.check_each_ran_once("first", "second")


# --- what the leader has promised -----------------------------------------------------------------------


def submit(scene: Scene, name: str, *, cpus: int, says: int, **fields: Any) -> None:
    """Create a Job that runs for an hour and declares `says` seconds."""
    job = make_job(name, cpus=cpus, seconds=LONG, annotations={EXPECTED: str(says)}, **fields)
    scene.rest.create(scene.jobs, job)


@pytest.fixture
def backfill(stage: Stage) -> Iterator[None]:
    """Put the stage's queue under backfill."""
    name, queue = stage.scene.scoped("time"), stage.cluster_queue
    body = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy", "metadata": {"name": name}}
    spec = {"clusterQueues": {"names": [queue]}, "backfill": {"mode": "EASY"}}
    stage.scene.rest.create(POLICIES, {**body, "spec": spec})
    yield
    stage.scene.rest.delete(f"{POLICIES}/{name}")


def same_plan(leader: Replica, follower: Replica) -> Any:
    """Return the plan where the follower shows what the leader does now, None where it does not."""
    plan = leader.json("/v1/plan")
    return plan if follower.json("/v1/plan") == plan else None


@pytest.mark.usefixtures("backfill")
@pytest.mark.parametrize(
    "befall",
    [
        pytest.param(lambda _: None, id="its Redis goes on"),
        pytest.param(RedisServer.flush, id="its Redis is emptied with it"),
    ],
)
def test_a_promise_does_not_move_when_its_leader_is_killed_and(
    befall: Callable[[RedisServer], None], stage: Stage, redis_server: RedisServer
) -> None:
    leader, follower = stage.start_two()
    submit(stage.scene, "running", cpus=1, says=3600)
    stage.scene.wait_admitted("running")
    high = {"kueue.x-k8s.io/priority-class": stage.scene.create_priority("high", 100)}
    submit(stage.scene, "gang", cpus=2, says=600, labels=high)
    wait_for(lambda: bool(leader.json("/v1/plan")["promises"]), "a promise")
    submit(stage.scene, "small", cpus=1, says=60)
    wait_for(lambda: bool(leader.json("/v1/plan")["leases"]), "a lease")
    plan = wait_for(lambda: same_plan(leader, follower), "the leader's plan on the follower")

    leader.child.kill()
    befall(redis_server)
    follower.wait_leading()

    # It decides again, and every waiting Workload is tried.
    submit(stage.scene, "another", cpus=1, says=7200)
    stage.scene.wait_pending("another")
    assert follower.json("/v1/plan") == plan
    stage.scene.delete_job("running")
    stage.scene.delete_job("small")
    stage.scene.wait_admitted("gang")
    stage.check_each_ran_once("running", "small", "gang")
