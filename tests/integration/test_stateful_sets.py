"""StatefulSets of inference are preempted whole, and only within floor and budgets: on both API servers.

Their pods carry gate and label by their template, as the webhook leaves them. The embedded server has no
controller of StatefulSets: there the test does what that would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.integration.conftest import Cluster, Options
from tests.integration.manifests import KUEUE as API
from tests.integration.manifests import Object, condition, is_true, kueue_object, quota
from tests.integration.pods import (
    CONFIG,
    KUEUE,
    create,
    is_gated,
    is_running,
    make_pod,
    member,
    wait_condition,
    wait_gone,
)
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stateful")

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
REPLICAS = 3
HOST = "kubernetes.io/hostname"
# A finalizer by which a pod stays until the test has seen how it was ended.
WITNESS = "example.com/witness"


class Shards:
    """A StatefulSet of three replicas of one CPU each, which serves in a queue of four.

    `is_placed`: a node is chosen for each of its pods.
    """

    def __init__(self, scene: Scene, *, is_played: bool, is_placed: bool = False) -> None:
        self.scene = scene
        flavor = scene.create_flavor("main-flavor")
        self.queue = scene.create_cluster_queue(
            "main", quota(flavor, nominal=4), preemption={"withinClusterQueue": "LowerPriority"}
        )
        scene.create_local_queue("main", self.queue)
        if is_placed:
            name, hosts = scene.scoped("hosts"), {"levels": [{"nodeLabel": HOST}]}
            scene.rest.create(f"/apis/{API}/topologies", kueue_object("Topology", {"name": name}, hosts))
            scene.rest.patch(f"/apis/{API}/resourceflavors/{flavor}", {"spec": {"topologyName": name}})
        self._high = scene.create_priority("high", 10)
        self._is_played = is_played
        self._sets = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets"
        self._budgets = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets"

    def serve(self, annotations: Mapping[str, str] | None = None, *, lets_go: int | None = None) -> None:
        """Create it with these annotations on its pods, and return when all of them serve.

        `lets_go`: of how many pods its budget is to let go. It is there before them: one made later might
          be noticed after whatever the test has done since.
        """
        if lets_go is not None:
            self._set_budget(lets_go)
        serving = {KUEUE + "pod-group-serving": "true", KUEUE + "pod-group-fast-admission": "true"}
        pod = member(
            "shards",
            "shards",
            REPLICAS,
            labels={"app": "shards", "berth.dev/workload-type": "inference"},
            annotations={**serving, **(annotations or {})},
            restartPolicy="Always",
        )
        spec = {
            "replicas": REPLICAS,
            "serviceName": "shards",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "shards"}},
            "template": {"metadata": {**pod["metadata"], "name": ""}, "spec": pod["spec"]},
        }
        body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "shards"}, "spec": spec}
        self.scene.rest.create(self._sets, body)
        self.wait_serving()
        if lets_go is not None:
            self.allow(lets_go)

    def allow(self, count: int) -> None:
        """Have a budget that lets `count` of its pods go, and return when it has counted them."""
        self._set_budget(count)
        path = f"{self._budgets}/shards"
        self.scene.rest.wait(path, lambda found: found["status"].get("disruptionsAllowed") == count)

    def _set_budget(self, count: int) -> None:
        spec = {"minAvailable": REPLICAS - count, "selector": {"matchLabels": {"app": "shards"}}}
        if not self.scene.rest.get(self._budgets)["items"]:
            metadata = {"name": "shards"}
            body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata}
            self.scene.rest.create(self._budgets, {**body, "spec": spec})
        self.scene.rest.patch(f"{self._budgets}/shards", {"spec": spec})

    def pods(self) -> list[Object]:
        """Return its pods, created again where they are missing."""
        items = self.scene.rest.get(self.scene.pods)["items"]
        pods = [pod for pod in items if pod["metadata"].get("labels", {}).get("app") == "shards"]
        if self._is_played:
            self._make({f"shards-{number}" for number in range(REPLICAS)} - {_name(pod) for pod in pods})
        return pods

    def wait_serving(self) -> None:
        """Return when all of its pods serve."""
        wait_for(lambda: self.serving() == REPLICAS, "all shards serve")

    def serving(self) -> int:
        """Return how many of its pods serve."""
        return sum(
            condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
            for pod in self.pods()
        )

    def uids(self) -> set[str]:
        """Return the uids of its pods."""
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def submit(self, name: str, *, cpus: int) -> None:
        """Create a more important pod."""
        create(self.scene, make_pod(name, cpus=cpus, labels={KUEUE + "priority-class": self._high}))

    def stop_queue(self, policy: str) -> None:
        """Set the stopPolicy of its ClusterQueue."""
        path = f"/apis/{API}/clusterqueues/{self.queue}"
        self.scene.rest.patch(path, {"spec": {"stopPolicy": policy}})

    def evict(self, name: str) -> None:
        """Evict a pod, as `kubectl drain` does."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.scene.rest.create(f"{self.scene.pods}/{name}/eviction", body)

    def nodes(self) -> dict[str, str]:
        """Return where each of its pods runs, by the pod's name."""
        return {_name(pod): pod["spec"].get("nodeName", "") for pod in self.pods()}

    def wait_running(self, name: str) -> None:
        """Return when another pod runs; its own are created again meanwhile."""
        wait_for(lambda: bool(self.pods()) and is_running(self.scene, name), f"{name} runs")

    def end(self) -> None:
        """Delete all that was made."""
        rest = self.scene.rest
        rest.delete(f"{self._sets}/shards")
        for pod in rest.get(self.scene.pods)["items"]:
            rest.delete(f"{self.scene.pods}/{_name(pod)}")
        rest.delete(f"{POLICIES}/{self.queue}")

    def _make(self, names: set[str]) -> None:
        found = self.scene.rest.get(f"{self._sets}/shards")
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "shards", "controller": True}
        for name in sorted(names):
            template = found["spec"]["template"]
            references = [{**owner, "uid": found["metadata"]["uid"]}]
            metadata = {**template["metadata"], "name": name, "ownerReferences": references}
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
            self.scene.rest.create(self.scene.pods, body)


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues pods."""
    return Options(config=CONFIG)


@pytest.fixture
def is_placed() -> bool:
    """Return whether Berth chooses the pods' nodes; a test that wants it so says so by its parameter."""
    return False


@pytest.fixture
def shards(cluster: Cluster, controller: Replica, is_placed: bool) -> Iterator[Shards]:
    """Give a StatefulSet yet to be created, under a policy that prefers inference."""
    assert controller.child.is_running()
    shards = Shards(cluster.new_scene(), is_played=cluster.pool == "node", is_placed=is_placed)
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": shards.queue},
        "spec": {
            "clusterQueues": {"names": [shards.queue]},
            "preemption": {"rules": {"preferInference": {}}},
        },
    }
    rest = cluster.rest
    rest.create(POLICIES, policy)
    wait_for(lambda: rest.get(f"{POLICIES}/{shards.queue}").get("status"), "the policy seen")
    yield shards
    shards.end()


def test_a_stateful_set_without_a_floor_stays_and_a_pod_is_preempted(shards: Shards) -> None:
    shards.serve()
    create(shards.scene, make_pod("low"))
    shards.wait_running("low")
    uids = shards.uids()

    # One would not be enough, and the shards may not go.
    shards.submit("greedy", cpus=2)
    says = f"Workload {shards.scene.namespace}/shards: StatefulSet/shards is evicted as a whole"
    shards.scene.wait_pending("greedy", says=says)
    assert is_running(shards.scene, "low")
    shards.scene.rest.delete(f"{shards.scene.pods}/greedy")
    wait_gone(shards.scene, "greedy")

    shards.submit("high", cpus=1)

    shards.wait_running("high")
    wait_gone(shards.scene, "low")
    assert shards.uids() == uids
    assert shards.serving() == REPLICAS


def test_a_stateful_set_with_a_floor_of_nothing_goes_once_its_budget_lets_all_of_it_go(
    shards: Shards,
) -> None:
    scene = shards.scene
    shards.serve({"berth.dev/min-replicas": "0"}, lets_go=2)
    uids = shards.uids()
    last = f"{scene.pods}/shards-2"
    finalizers = scene.rest.get(last)["metadata"]["finalizers"]
    scene.rest.patch(last, {"metadata": {"finalizers": [*finalizers, WITNESS]}})

    # One pod would be enough, but they go together.
    shards.submit("high", cpus=2)
    scene.wait_pending("high")
    assert (shards.serving(), shards.uids()) == (REPLICAS, uids)

    shards.allow(3)

    shards.wait_running("high")
    found = scene.rest.get(last)
    assert found["metadata"]["deletionTimestamp"]
    # A pod that is deleted, and not evicted, gets this condition first.
    assert not condition(found, "TerminationTarget")
    scene.rest.patch(last, {"metadata": {"finalizers": None}})
    # Two places are free, and none of the three takes one.
    wait_for(lambda: [is_gated(pod) for pod in shards.pods()] == [True] * REPLICAS, "all at the gate")
    assert not shards.uids() & uids

    scene.rest.delete(f"{scene.pods}/high")
    shards.wait_serving()


def test_the_quota_of_an_evicted_stateful_set_comes_free_though_its_pods_are_not_created_again(
    shards: Shards,
) -> None:
    scene = shards.scene
    shards.serve({"berth.dev/min-replicas": "0"})

    shards.submit("high", cpus=2)

    # Not by `wait_running`, which plays the controller where there is none.
    wait_for(lambda: is_running(scene, "high"), "high runs")
    scene.rest.delete(f"{scene.pods}/high")
    shards.wait_serving()


def test_a_stateful_set_of_a_drained_queue_stays_whole_until_its_budget_lets_all_of_it_go(
    shards: Shards,
) -> None:
    scene = shards.scene
    shards.serve(lets_go=2)
    uids = shards.uids()

    shards.stop_queue("HoldAndDrain")
    workload = scene.wait_workload(
        "shards",
        lambda found: (
            "shards allows 2 of the group's 3 ready pods to be evicted"
            in condition(found, "berth.dev/DisruptionAllowed").get("message", "")
        ),
        "what its budget keeps",
    )
    assert condition(workload, "berth.dev/DisruptionAllowed")["status"] == "False"
    assert is_true(workload, "Evicted")
    assert (shards.serving(), shards.uids()) == (REPLICAS, uids)
    # A node is drained: the pod that replaces its pod serves with the others.
    shards.evict("shards-1")
    wait_for(lambda: shards.serving() == REPLICAS and shards.uids() != uids, "all serve again")
    assert len(shards.uids() & uids) == REPLICAS - 1

    shards.allow(3)

    wait_for(lambda: [is_gated(pod) for pod in shards.pods()] == [True] * REPLICAS, "all at the gate")
    wait_condition(scene, "shards", "QuotaReserved", status="False")
    shards.stop_queue("None")
    shards.wait_serving()


def test_a_pod_that_another_client_evicts_is_created_again_with_the_quota_of_its_group(
    shards: Shards,
) -> None:
    scene = shards.scene
    shards.serve()
    uids = shards.uids()
    workload = scene.workload("shards")["metadata"]["uid"]

    shards.evict("shards-1")
    wait_for(lambda: shards.serving() == REPLICAS and shards.uids() != uids, "all serve again")

    assert len(shards.uids() & uids) == REPLICAS - 1
    found = scene.workload("shards")
    assert found["metadata"]["uid"] == workload
    assert is_true(found, "Admitted")
    assert not is_true(found, "Evicted")


@pytest.mark.parametrize("is_placed", [True], ids=["placed"])
def test_a_group_whose_node_is_drained_serves_whole_on_others_with_the_quota_that_it_has(
    shards: Shards,
) -> None:
    scene = shards.scene
    shards.serve({KUEUE + "podset-unconstrained-topology": "true"})
    workload = scene.workload("shards")["metadata"]["uid"]
    before = shards.nodes()
    drained = before["shards-1"]
    path = f"/api/v1/nodes/{drained}"

    scene.rest.patch(path, {"spec": {"unschedulable": True}})
    try:
        for name in (name for name, node in before.items() if node == drained):
            shards.evict(name)
        wait_for(
            lambda: shards.serving() == REPLICAS and drained not in shards.nodes().values(),
            "all serve elsewhere",
        )
    finally:
        scene.rest.patch(path, {"spec": {"unschedulable": None}})

    found = scene.workload("shards")
    assert found["metadata"]["uid"] == workload
    assert is_true(found, "Admitted")
    assert not is_true(found, "Evicted")
