"""What serves in queues, on a real control plane with its own controllers and the webhook.

What is served is a stack of pods: each is held by the webhook, admitted by `berth controller`, bound by
kube-scheduler and run by simulated nodes. A pod that is preempted goes through the eviction subresource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from admission.controller.http.ca_injector import WEBHOOKS
from api.jobs.stateful_set import StatefulSet
from tests.controlplane import RestError
from tests.controlplane.definitions import install_crds
from tests.integration import leadersets
from tests.integration.conftest import Cluster, Options
from tests.integration.leadersets import GROUP, LeaderWorkerSetPlayer
from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object, condition, is_true
from tests.integration.pods import is_gated, make_pod
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("serving")]

REGISTRATION = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
ALLOWED = "berth.dev/DisruptionAllowed"
PRIORITY = "kueue.x-k8s.io/priority-class"
GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod, deployment, statefulset, leaderworkerset.x-k8s.io/leaderworkerset]
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that queues what serves, and has a webhook."""
    return Options(config=CONFIG, flags=("--webhook-port", "0"))


@pytest.fixture(scope="module")
def controller(real_cluster: Cluster, real_controller: Replica) -> Iterator[Replica]:
    """Give the controller, whose webhook the server asks about all that it serves."""
    rest = real_cluster.rest
    # After the controller has started, which picks the kind up as it appears.
    install_crds(rest, [leadersets.DEFINITION])
    rest.create(REGISTRATION, registration(f"{real_controller.urls()['webhook']}/mutate"))
    rest.wait(f"{REGISTRATION}/{WEBHOOKS}", is_trusting)
    scene = real_cluster.new_scene()
    wait_for(lambda: is_asked(scene), "the webhook being asked")
    yield real_controller
    rest.delete(f"{REGISTRATION}/{WEBHOOKS}")


def registration(url: str) -> Object:
    """Return the webhook as deploy/webhooks has it, at an address of this machine."""
    rules = [
        {"apiGroups": [group], "apiVersions": ["v1"], "resources": plurals, "operations": operations}
        for group, plurals, operations in (
            ("", ["pods"], ["CREATE"]),
            ("apps", ["deployments", "statefulsets"], ["CREATE", "UPDATE"]),
            (GROUP, ["leaderworkersets"], ["CREATE", "UPDATE"]),
        )
    ]
    webhook = {
        "name": "w.berth.dev",
        "clientConfig": {"url": url},
        "rules": rules,
        "objectSelector": {"matchExpressions": [{"key": QUEUE_NAME, "operator": "Exists"}]},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": WEBHOOKS},
        "webhooks": [webhook],
    }


def is_trusting(found: Object) -> bool:
    """Return whether the controller has published its CA bundle."""
    return all(webhook["clientConfig"].get("caBundle") for webhook in found["webhooks"])


def is_asked(scene: Scene) -> bool:
    """Return whether the server asks the webhook, by a pod that is not created."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "labels": {QUEUE_NAME: "none"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    try:
        made = scene.rest.create(f"{scene.pods}?dryRun=All", pod)
    except RestError:
        return False
    return is_gated(made)


@pytest.fixture
def scene(real_scene: Scene, controller: Replica) -> Iterator[Scene]:
    """Give a scene in which the controller admits; what serves in it ends with the test."""
    del controller
    yield real_scene
    for group, plural in ((GROUP, "leaderworkersets"), ("apps", "deployments"), ("apps", "statefulsets")):
        path = f"/apis/{group}/v1/namespaces/{real_scene.namespace}/{plural}"
        real_scene.rest.delete(path, {"propagationPolicy": "Background"})


def make_serving(kind: str, name: str, replicas: int, **given: Any) -> Object:
    """Return a Deployment or StatefulSet in queue main whose pods take one CPU each and run for ever.

    `annotations` and `labels` go onto it, `pod_labels` onto its pods.
    """
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": 1}}}
    labels = {"app": name, **given.get("pod_labels", {})}
    spec: Object = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": labels, "annotations": {RUNTIME: f"{LONG:g}"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
        },
    }
    if kind == "StatefulSet":
        spec["serviceName"] = name
    metadata = {
        "name": name,
        "labels": {QUEUE_NAME: "main", **given.get("labels", {})},
        "annotations": given.get("annotations", {}),
    }
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def create(scene: Scene, body: Object) -> None:
    """Create a Deployment or StatefulSet."""
    plural = f"{body['kind'].lower()}s"
    scene.rest.create(f"/apis/apps/v1/namespaces/{scene.namespace}/{plural}", body)


def pods_of(scene: Scene, app: str) -> list[Object]:
    """Return the pods of an application."""
    pods = scene.rest.get(scene.pods)["items"]
    return [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == app]


def ready(scene: Scene, app: str) -> int:
    """Return how many pods of an application serve: ready, and not about to go."""
    return sum(
        condition(pod, "Ready").get("status") == "True" and "deletionTimestamp" not in pod["metadata"]
        for pod in pods_of(scene, app)
    )


def wait_ready(scene: Scene, app: str, count: int) -> None:
    """Return when `count` pods of an application serve."""
    wait_for(lambda: ready(scene, app) == count, f"{count} ready pods of {app}")


def create_policy(scene: Scene, cluster_queue: str) -> None:
    """Let the ClusterQueue prefer inference as the first to be preempted."""
    body = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": cluster_queue},
        "spec": {
            "clusterQueues": {"names": [cluster_queue]},
            "preemption": {"rules": {"preferInference": {}}},
        },
    }
    scene.rest.create("/apis/berth.dev/v1alpha1/admissionpolicies", body)


def create_budget(scene: Scene, app: str, minimum: int) -> None:
    """Create a PodDisruptionBudget and wait until it has counted the pods."""
    path = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": app}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}
    scene.rest.create(path, body)
    scene.rest.wait(f"{path}/{app}", lambda found: found.get("status", {}).get("currentHealthy", 0) > minimum)


# --- pods ----------------------------------------------------------------------------------------


def test_a_pod_in_a_queue_that_is_created_on_a_node_is_refused(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    body = make_pod("placed", is_held=False, nodeName=f"{scene.pool}-0")

    with pytest.raises(RestError, match=f'spec.nodeName is "{scene.pool}-0": a pod in a queue gets its node'):
        scene.rest.create(scene.pods, body)


# --- Deployments ---------------------------------------------------------------------------------


@pytest.mark.covers("001_28")
def test_a_deployment_lends_replicas_to_a_higher_job_never_below_its_budget(scene: Scene) -> None:
    queue = scene.create_queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    create_policy(scene, queue)
    high = scene.create_priority("high", 10)
    inference = {"berth.dev/workload-type": "inference"}
    create(scene, make_serving("Deployment", "chat", 4, pod_labels=inference))
    wait_ready(scene, "chat", 4)
    create_budget(scene, "chat", 2)

    # Three replicas would have to go for it: it waits, and no replica is evicted.
    scene.create_job("greedy", cpus=3, labels={PRIORITY: high})
    scene.wait_pending("greedy")
    assert ready(scene, "chat") == 4
    scene.delete_job("greedy")

    fewest = [4]

    def is_started() -> bool:
        fewest[0] = min(fewest[0], ready(scene, "chat"))
        return len([pod for pod in scene.pods_of("train") if pod["status"]["phase"] == "Running"]) == 2

    scene.create_job("train", cpus=1, pods=2, labels={PRIORITY: high})
    wait_for(is_started, "the Job runs")
    # The Deployment has made others, which wait at the gate.
    wait_for(lambda: sum(map(is_gated, pods_of(scene, "chat"))) == 2, "two replicas waiting")
    assert ready(scene, "chat") == 2
    assert fewest[0] >= 2

    scene.delete_job("train")

    wait_ready(scene, "chat", 4)


@pytest.mark.covers("002_31")
def test_what_a_deployment_asks_for_reaches_the_workloads_of_its_pods(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    annotation = "topology.scheduler/latency-sensitive"
    create(scene, make_serving("Deployment", "chat", 1, annotations={annotation: "true"}))

    wait_ready(scene, "chat", 1)

    (pod,) = pods_of(scene, "chat")
    workload = scene.workload_of(pod["metadata"]["name"])
    assert workload is not None
    annotations = workload["metadata"]["annotations"]
    assert annotations[annotation] == "true"
    assert annotations["berth.dev/replica-of"] == "Deployment/chat"


def test_a_replica_that_does_not_fit_waits_while_the_others_serve(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create(scene, make_serving("Deployment", "chat", 3))

    wait_ready(scene, "chat", 2)

    (waiting,) = [pod for pod in pods_of(scene, "chat") if is_gated(pod)]
    assert scene.wait_pending(waiting["metadata"]["name"])["reason"] == "WaitingForQuota"
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/deployments/chat"
    scene.rest.patch(path, {"spec": {"replicas": 2}})
    wait_for(lambda: len(pods_of(scene, "chat")) == 2, "the waiting replica gone")
    wait_ready(scene, "chat", 2)


def forbid_evictions(scene: Scene) -> Callable[[], None]:
    """Let the server refuse all evictions of the scene, as a webhook would; return what ends that."""
    group = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    name = scene.namespace
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods/eviction"],
        "operations": ["CREATE"],
    }
    spec: Object = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "false", "message": "it drains by another hand"}],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    body = {**api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}
    scene.rest.create(group, body)
    matched = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    spec = {"policyName": name, "validationActions": ["Deny"], "matchResources": matched}
    binding = {**body, "kind": "ValidatingAdmissionPolicyBinding", "spec": spec}
    bindings = group.replace("policies", "policybindings")
    scene.rest.create(bindings, binding)

    def end() -> None:
        scene.rest.delete(f"{bindings}/{name}")
        scene.rest.delete(f"{group}/{name}")

    return end


def is_forbidden(scene: Scene, pod: str) -> bool:
    """Return whether the server refuses to evict a pod, by an eviction that does nothing."""
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod},
        "deleteOptions": {"dryRun": ["All"]},
    }
    try:
        scene.rest.create(f"{scene.pods}/{pod}/eviction", eviction)
    except RestError as error:
        return error.status == 422
    return False


def test_a_replica_that_the_server_refuses_to_evict_serves_on_and_quotes_it(scene: Scene) -> None:
    queue = scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    create_policy(scene, queue)
    high = scene.create_priority("high", 10)
    create(scene, make_serving("Deployment", "chat", 2, pod_labels={"berth.dev/workload-type": "inference"}))
    wait_ready(scene, "chat", 2)
    end = forbid_evictions(scene)
    wait_for(lambda: is_forbidden(scene, pods_of(scene, "chat")[0]["metadata"]["name"]), "evictions refused")

    scene.create_job("train", cpus=1, labels={PRIORITY: high})

    def said() -> Object:
        found = [condition(one, ALLOWED) for one in scene.rest.get(scene.workloads)["items"]]
        return next((one for one in found if one), {})

    wait_for(lambda: bool(said()), "the replica says what keeps it")
    assert (said()["status"], said()["reason"]) == ("False", "EvictionRefused")
    assert said()["message"].endswith("denied request: it drains by another hand")
    assert ready(scene, "chat") == 2

    end()
    scene.wait_admitted("train")
    wait_for(lambda: ready(scene, "chat") == 1, "one replica has gone")
    wait_for(lambda: not said(), "no replica is kept any more")


# --- StatefulSets --------------------------------------------------------------------------------


def group_workload(scene: Scene) -> Object | None:
    """Return the Workload of the only group."""
    items = scene.rest.get(scene.workloads)["items"]
    return next((one for one in items if one["metadata"]["name"].startswith("statefulset-")), None)


def group_of(pod: Object) -> str:
    """Return the name of a pod's group."""
    return str(pod["metadata"]["labels"].get(GROUP_NAME, ""))


def reason_of_group(scene: Scene) -> str:
    """Return the reason of QuotaReserved of the only group's Workload; "" without one."""
    return str(condition(group_workload(scene) or {}, "QuotaReserved").get("reason", ""))


def test_a_stateful_set_is_admitted_as_a_whole_and_comes_back_after_an_eviction(scene: Scene) -> None:
    scene.create_queue(cpus=3, preemption={"withinClusterQueue": "LowerPriority"})
    high = scene.create_priority("high", 10)
    create(scene, make_serving("StatefulSet", "shards", 3))
    wait_ready(scene, "shards", 3)
    workload = group_workload(scene)
    assert workload is not None
    assert {group_of(pod) for pod in pods_of(scene, "shards")} == {workload["metadata"]["name"]}
    assert [one["count"] for one in workload["spec"]["podSets"]] == [3]
    assert workload["metadata"]["annotations"]["berth.dev/replica-of"] == "StatefulSet/shards"

    scene.create_job("train", cpus=1, labels={PRIORITY: high})
    scene.wait_admitted("train")
    # Two places are free, and none of the three takes one.
    wait_for(lambda: [is_gated(pod) for pod in pods_of(scene, "shards")] == [True], "the first shard waits")
    scene.delete_job("train")

    wait_ready(scene, "shards", 3)
    again = group_workload(scene)
    assert again is not None
    assert again["metadata"]["uid"] == workload["metadata"]["uid"]


def test_a_stateful_set_scaled_to_nothing_gives_its_quota_back(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    create(scene, make_serving("StatefulSet", "shards", 2))
    wait_ready(scene, "shards", 2)
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/shards/scale"
    scene.rest.patch(path, {"spec": {"replicas": 0}})
    scene.create_job("train", cpus=2, seconds=0.1)

    scene.wait_finished("train")
    wait_for(lambda: reason_of_group(scene) == "OnHold", "the Workload on hold")
    scene.rest.patch(path, {"spec": {"replicas": 2}})

    wait_ready(scene, "shards", 2)
    assert reason_of_group(scene) == "QuotaReserved"


def test_a_stateful_set_that_an_older_release_queued_goes_on_under_the_older_name(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    older = StatefulSet(namespace=scene.namespace, name="shards", uid="").older_group
    shards = make_serving("StatefulSet", "shards", 2, pod_labels={GROUP_NAME: older})
    create(scene, shards)
    wait_ready(scene, "shards", 2)
    assert {group_of(pod) for pod in pods_of(scene, "shards")} == {older}
    uids = uids_of(scene, "shards")

    # As `kubectl replace` would, without the label of the template.
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/shards"
    changed = scene.rest.patch(path, {"spec": {"template": {"metadata": {"labels": {GROUP_NAME: None}}}}})

    assert changed["spec"]["template"]["metadata"]["labels"][GROUP_NAME] == older
    assert uids_of(scene, "shards") == uids
    workload = group_workload(scene)
    assert workload is not None
    assert workload["metadata"]["name"] == older


def test_pods_that_a_stateful_set_adopts_keep_their_group_and_its_quota(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    shards = make_serving("StatefulSet", "shards", 2)
    create(scene, shards)
    wait_ready(scene, "shards", 2)
    before, uids = group_workload(scene), uids_of(scene, "shards")
    assert before is not None
    path = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets/shards"

    scene.rest.delete(path, {"propagationPolicy": "Orphan"})
    wait_for(lambda: not scene.rest.exists(path), "the set gone")
    create(scene, shards)
    new = scene.rest.get(path)["metadata"]["uid"]

    def is_adopted() -> bool:
        pods = pods_of(scene, "shards")
        found = scene.rest.get(f"{scene.workloads}/{before['metadata']['name']}")
        return new in owners_of(found) and all(new in owners_of(pod) for pod in pods)

    wait_for(is_adopted, "the new set owns pods and Workload")
    wait_for(lambda: len(scene.rest.get(scene.workloads)["items"]) == 1, "one Workload")
    scene.rest.delete(f"{scene.pods}/shards-1")
    wait_for(lambda: len(uids_of(scene, "shards") - uids) == 1, "a pod replaced")
    wait_ready(scene, "shards", 2)
    after = group_workload(scene)
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert {group_of(pod) for pod in pods_of(scene, "shards")} == {before["metadata"]["name"]}


def uids_of(scene: Scene, app: str) -> set[str]:
    """Return the uids of the pods of an application."""
    return {pod["metadata"]["uid"] for pod in pods_of(scene, app)}


def owners_of(obj: Object) -> list[str]:
    """Return the uids of an object's owners."""
    return [one["uid"] for one in obj["metadata"].get("ownerReferences", ())]


# --- LeaderWorkerSets ----------------------------------------------------------------------------


def groups_of(scene: Scene) -> dict[str, Object]:
    """Return the Workloads of all groups of LeaderWorkerSets by their uid."""
    items = scene.rest.get(scene.workloads)["items"]
    return {
        one["metadata"]["uid"]: one for one in items if one["metadata"]["name"].startswith("leaderworkerset-")
    }


def wait_playing(scene: Scene, player: LeaderWorkerSetPlayer, count: int) -> None:
    """Return when `count` pods of the set serve, while its controller is played."""

    def are_ready() -> bool:
        player.play()
        return ready(scene, "big") == count

    wait_for(are_ready, f"{count} ready pods of big")


def test_groups_of_a_leader_worker_set_are_admitted_one_by_one_and_each_as_a_whole(scene: Scene) -> None:
    scene.create_queue(cpus=3)
    big = LeaderWorkerSetPlayer(scene, "big")
    big.create(replicas=2, size=2)

    def is_settled() -> bool:
        big.play()
        return len(pods_of(scene, "big")) == 4 and ready(scene, "big") == 2

    wait_for(is_settled, "one group serves and the other is there")
    (waiting,) = [one for one in groups_of(scene).values() if not is_true(one, "Admitted")]
    # One CPU is left, and neither the leader nor the worker of the other group takes it.
    gated = [pod["metadata"]["labels"][GROUP_NAME] for pod in pods_of(scene, "big") if is_gated(pod)]
    assert gated == [waiting["metadata"]["name"]] * 2


def test_an_evicted_group_of_a_leader_worker_set_keeps_its_place_in_the_queue(scene: Scene) -> None:
    scene.create_queue(cpus=2, preemption={"withinClusterQueue": "LowerPriority"})
    high = scene.create_priority("high", 10)
    big = LeaderWorkerSetPlayer(scene, "big")
    big.create(replicas=1, size=2)
    wait_playing(scene, big, 2)
    (uid,) = groups_of(scene)
    created = groups_of(scene)[uid]["metadata"]["creationTimestamp"]

    def owners() -> set[str]:
        return {one["kind"] for one in groups_of(scene)[uid]["metadata"]["ownerReferences"]}

    wait_for(lambda: "LeaderWorkerSet" in owners(), "the set owning the Workload")

    scene.create_job("train", cpus=1, labels={PRIORITY: high})
    scene.wait_admitted("train")

    def is_created_again() -> bool:
        big.play()
        return [is_gated(pod) for pod in pods_of(scene, "big")] == [True, True]

    # One place is free, and neither of the two takes it.
    wait_for(is_created_again, "the group created again, gated")
    scene.delete_job("train")
    wait_playing(scene, big, 2)

    (again,) = groups_of(scene).values()
    assert (again["metadata"]["uid"], again["metadata"]["creationTimestamp"]) == (uid, created)


def test_a_leader_worker_set_scaled_down_gives_the_quota_of_a_group_back(scene: Scene) -> None:
    scene.create_queue(cpus=4)
    big = LeaderWorkerSetPlayer(scene, "big")
    big.create(replicas=2, size=2)
    wait_playing(scene, big, 4)
    first = set(groups_of(scene))
    assert len(first) == 2

    big.scale(1)
    wait_playing(scene, big, 2)
    scene.create_job("train", cpus=2, seconds=0.1)
    scene.wait_finished("train")
    wait_for(lambda: len(groups_of(scene)) == 1, "one group left")

    big.scale(2)
    wait_playing(scene, big, 4)
    assert len(set(groups_of(scene)) & first) == 1
