"""A controller that dies at any step of its work is taken over: each Job runs once, no quota is exceeded.

The first controller exits at a named step, as after kill -9, with a real Redis between it and its successor.
What happened is read from every version of the objects, not from what a controller says.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import redis

from admission.controller.runtime.failpoints import Step
from api.keys import CHECKPOINT_DEADLINE, CHECKPOINT_SAVE_SECONDS, CHECKPOINT_TIME, EVICTION
from api.parsing.times import to_rfc3339
from queues.store.keys import Keys
from tests.integration.conftest import Cluster, Controllers
from tests.integration.manifests import Object, is_true
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness
from tests.redisserver import RedisServer

pytestmark = [pytest.mark.real, pytest.mark.redis, pytest.mark.xdist_group("crashes")]

KILLED = 137
POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
# A successor waits for the end of the dead one's lease; the default of 15 s only makes the test longer.
CONFIG = """
apiVersion: berth.dev/v1alpha1
kind: ControllerConfig
lease: {durationSeconds: 2, renewSeconds: 0.5, deadlineSeconds: 1.2}
"""


@pytest.fixture
def witness(real_scene: Scene) -> Iterator[Witness]:
    """Give a witness of all that happens in the scene."""
    with Witness(real_scene.rest, real_scene.namespace) as watching:
        yield watching


class Pair:
    """A controller that dies at a step, and its successor."""

    def __init__(self, cluster: Cluster, controllers: Controllers, redis_server: RedisServer) -> None:
        self._cluster = cluster
        self._controllers = controllers
        self._redis = redis_server
        self._lease_namespace = cluster.new_scene().namespace

    def start(self, failpoint: Step | None = None, *, is_frozen: bool = False) -> Replica:
        """Start a controller that dies, or `is_frozen`, at the step, or one that does not."""
        flags = ("--redis", self._redis.url, "--namespace", self._lease_namespace)
        step = None if failpoint is None else failpoint.value + (":1:stop" if is_frozen else "")
        return self._controllers.start(self._cluster.kubeconfig, *flags, failpoint=step, config=CONFIG)

    def wait_store_empty(self) -> None:
        """Return when Redis holds no reservation."""
        with redis.Redis.from_url(self._redis.url) as client:
            wait_for(lambda: client.hlen(Keys("default").reservations) == 0, "no reservation in Redis")


@pytest.fixture
def pair(real_cluster: Cluster, controllers: Controllers, redis_server: RedisServer) -> Pair:
    """Give a pair of controllers, none started."""
    return Pair(real_cluster, controllers, redis_server)


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_CREATE, id="its Workload is created"),
        pytest.param(Step.AFTER_RESERVE, id="its quota is reserved and not written"),
        pytest.param(Step.BEFORE_PATCH, id="its admission is about to be written"),
        pytest.param(Step.AFTER_PATCH, id="its admission is written"),
        pytest.param(Step.BEFORE_START, id="it is about to be started"),
        pytest.param(Step.AFTER_START, id="it is started"),
    ],
)
def test_a_job_runs_once_though_the_controller_dies_when(
    step: Step, real_scene: Scene, pair: Pair, witness: Witness
) -> None:
    cluster_queue = real_scene.create_queue(cpus=2)
    first = pair.start(step)
    first.wait_leading()

    real_scene.create_job("one", pods=2, seconds=0.5)
    real_scene.create_job("two", pods=2, seconds=0.5)
    assert first.wait_exit() == KILLED
    pair.start()

    real_scene.wait_finished("one", "two")
    pair.wait_store_empty()
    witness.catch_up()
    for job in ("one", "two"):
        assert witness.starts(job) == 1
        assert len(witness.workload_uids(job)) == 1
        assert len(witness.pod_uids(job)) == 2
    assert witness.peak_reserved(cluster_queue) == witness.peak_running() == 2


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_EVICT, id="its eviction is written"),
        pytest.param(Step.AFTER_STOP, id="it is suspended"),
        pytest.param(Step.AFTER_RELEASE, id="its quota is given back"),
    ],
)
def test_a_preempted_job_stops_once_and_comes_back_though_the_controller_dies_when(
    step: Step, real_scene: Scene, pair: Pair, witness: Witness
) -> None:
    high = real_scene.create_priority("high", 1000)
    cluster_queue = real_scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    first = pair.start(step)
    first.wait_leading()
    real_scene.create_job("low", cpus=2)
    real_scene.wait_admitted("low")

    real_scene.create_job("high", cpus=2, seconds=0.5, labels={"kueue.x-k8s.io/priority-class": high})
    assert first.wait_exit() == KILLED
    pair.start()

    real_scene.wait_finished("high")
    real_scene.wait_workload("low", is_running_again, "running again")
    pair.wait_store_empty()
    real_scene.wait_admitted("low")
    witness.catch_up()
    assert (witness.starts("low"), witness.starts("high")) == (2, 1)
    assert witness.peak_reserved(cluster_queue) == witness.peak_running() == 2


# --- an eviction that waits for a save ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Saving:
    """A Job `low` that runs and saves on request, and a more important one that needs its room."""

    scene: Scene
    witness: Witness
    cluster_queue: str

    def begin(self) -> None:
        """Let `low` run, and `high` come."""
        self.scene.create_job("low", cpus=2, annotations={CHECKPOINT_SAVE_SECONDS: "0"})
        self.scene.wait_admitted("low")
        wait_for(lambda: self.scene.pods_of("low") or None, "the pod of low")
        labels = {"kueue.x-k8s.io/priority-class": self.scene.scoped("high")}
        self.scene.create_job("high", cpus=2, seconds=0.5, labels=labels)

    def save_when_asked(self) -> None:
        """Report a checkpoint as soon as one is asked for."""
        wait_for(lambda: is_asked(self.scene, "low"), "a request on the pod of low")
        report_checkpoint(self.scene, "low")

    def end_wait_when_asked(self) -> None:
        """Let the deadline be now, without a checkpoint."""
        wait_for(lambda: is_asked(self.scene, "low"), "a request on the pod of low")
        found = self.scene.wait_workload("low", lambda one: EVICTION in one["metadata"]["annotations"])
        request = json.loads(found["metadata"]["annotations"][EVICTION])
        request["deadline"] = to_rfc3339(time.time() + 1)
        patch = {"metadata": {"annotations": {EVICTION: json.dumps(request)}}}
        self.scene.rest.patch(f"{self.scene.workloads}/{found['metadata']['name']}", patch)

    def check_evicted_once(self) -> None:
        """Check that `high` ran, that `low` was stopped once for it, and never both at once."""
        self.scene.wait_finished("high")
        workload = self.scene.wait_workload("low", is_running_again, "running again")
        self.scene.wait_admitted("low")
        self.witness.catch_up()
        assert [one["count"] for one in workload["status"]["schedulingStats"]["evictions"]] == [1]
        assert (self.witness.starts("low"), self.witness.starts("high")) == (2, 1)
        assert self.witness.peak_reserved(self.cluster_queue) == self.witness.peak_running() == 2

    def check_runs_on(self) -> None:
        """Check that `low` was not stopped, and that nothing is asked of it any more."""
        wait_for(lambda: not is_asked(self.scene, "low"), "the request taken off the pod")
        workload = self.scene.wait_workload(
            "low", lambda one: EVICTION not in (one["metadata"].get("annotations") or {}), "no request"
        )
        self.witness.catch_up()
        assert is_true(workload, "Admitted")
        assert not is_true(workload, "Evicted")
        assert self.witness.starts("low") == 1


@pytest.fixture
def saving(real_scene: Scene, witness: Witness) -> Iterator[Saving]:
    """Give a queue in which the more important Job may have the other's place, once that has saved."""
    real_scene.create_priority("high", 1000)
    cluster_queue = real_scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    create_policy(real_scene, cluster_queue)
    yield Saving(real_scene, witness, cluster_queue)
    real_scene.rest.delete(f"{POLICIES}/{cluster_queue}")


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_REQUEST, id="its eviction is requested"),
        pytest.param(Step.AFTER_ASK, id="its pod is asked to save"),
        pytest.param(Step.AFTER_EVICT, id="it has saved and is evicted"),
        pytest.param(Step.AFTER_STOP, id="it is suspended"),
        pytest.param(Step.AFTER_RELEASE, id="its quota is given back"),
    ],
)
def test_a_job_that_saves_on_request_is_evicted_once_though_the_controller_dies_when(
    step: Step, saving: Saving, pair: Pair
) -> None:
    first = pair.start(step)
    first.wait_leading()
    saving.begin()
    is_early = step in (Step.AFTER_REQUEST, Step.AFTER_ASK)
    if not is_early:
        saving.save_when_asked()
    assert first.wait_exit() == KILLED
    pair.start()

    if is_early:
        saving.save_when_asked()
    saving.check_evicted_once()
    pair.wait_store_empty()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param(Step.AFTER_REQUEST, id="its eviction is requested"),
        pytest.param(Step.AFTER_ASK, id="its pod is asked to save"),
        pytest.param(Step.AFTER_EVICT, id="it has saved and is evicted"),
        pytest.param(Step.AFTER_STOP, id="it is suspended"),
        pytest.param(Step.AFTER_RELEASE, id="its quota is given back"),
    ],
)
def test_a_job_that_saves_on_request_is_evicted_once_though_redis_is_flushed_when(
    step: Step, saving: Saving, pair: Pair, redis_server: RedisServer
) -> None:
    leader = pair.start(step, is_frozen=True)
    leader.wait_leading()
    saving.begin()
    is_early = step in (Step.AFTER_REQUEST, Step.AFTER_ASK)
    if not is_early:
        saving.save_when_asked()

    leader.wait_frozen()
    redis_server.flush()
    leader.child.resume()

    if is_early:
        saving.save_when_asked()
    saving.check_evicted_once()
    pair.wait_store_empty()


def test_a_job_that_missed_its_deadline_is_evicted_once_though_the_controller_dies_then(
    saving: Saving, pair: Pair
) -> None:
    first = pair.start(Step.AFTER_EVICT)
    first.wait_leading()
    saving.begin()
    saving.end_wait_when_asked()
    assert first.wait_exit() == KILLED
    pair.start()

    saving.check_evicted_once()
    pair.wait_store_empty()


@pytest.mark.parametrize("is_killed", [True, False], ids=["the controller dies", "Redis is flushed"])
def test_a_job_whose_eviction_is_cancelled_runs_on_though_in_that_moment(
    is_killed: bool, saving: Saving, pair: Pair, redis_server: RedisServer
) -> None:
    leader = pair.start(Step.AFTER_CANCEL, is_frozen=not is_killed)
    leader.wait_leading()
    saving.begin()
    wait_for(lambda: is_asked(saving.scene, "low"), "a request on the pod of low")

    saving.scene.delete_job("high")
    if is_killed:
        assert leader.wait_exit() == KILLED
        pair.start()
    else:
        leader.wait_frozen()
        redis_server.flush()
        leader.child.resume()

    saving.check_runs_on()
    pair.wait_store_empty()


def create_policy(scene: Scene, cluster_queue: str) -> None:
    """Bind a policy to the ClusterQueue that gives victims two minutes to save."""
    spec = {"clusterQueues": {"names": [cluster_queue]}, "preemption": {"graceSeconds": 120}}
    body = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": cluster_queue},
    }
    scene.rest.create(POLICIES, {**body, "spec": spec})


def is_asked(scene: Scene, job: str) -> bool:
    """Return whether a pod of the Job is asked for a checkpoint."""
    return any(
        CHECKPOINT_DEADLINE in (pod["metadata"].get("annotations") or {}) for pod in scene.pods_of(job)
    )


def report_checkpoint(scene: Scene, job: str) -> None:
    """Report a checkpoint on the Job's pods, as a pod may that can annotate itself."""
    patch = {"metadata": {"annotations": {CHECKPOINT_TIME: to_rfc3339(time.time())}}}
    for pod in scene.pods_of(job):
        scene.rest.patch(f"{scene.pods}/{pod['metadata']['name']}", patch)


def is_running_again(workload: Object) -> bool:
    """Return whether a preempted Workload has been admitted once more."""
    return is_true(workload, "Admitted") and not is_true(workload, "Evicted")
