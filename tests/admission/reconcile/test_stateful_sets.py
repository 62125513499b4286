"""The Workload of a StatefulSet: made with the set, kept while its pods come and go, on hold without any."""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.api_writes import Action
from admission.reconcile.pod.reconcile import reconcile_stateful_set
from admission.reconcile.pod.view import GroupOwner, UnitFacts
from admission.reconcile.workload.context import Owner
from api import keys
from api.jobs.stateful_set import StatefulSet, template_pod
from api.reasons import ConditionType
from api.workload import Workload
from tests.admission.podworld import PodWorld, pod_object, said, warnings
from tests.admission.world import Object, encode

CHAT = StatefulSet(namespace="team", name="chat", uid="uid-chat")
GROUP = CHAT.group
SERVING = {
    keys.POD_GROUP_SERVING: "true",
    keys.POD_GROUP_FAST_ADMISSION: "true",
    keys.POD_GROUP_TOTAL_COUNT: "2",
    keys.ROLE_HASH: "main",
}


def set_object(replicas: int = 2, **metadata: Any) -> Object:
    """Return the StatefulSet chat in queue lq, as the webhook leaves it."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": "chat",
            "namespace": "team",
            "uid": "uid-chat",
            "labels": {keys.QUEUE_NAME: "lq"},
            **metadata,
        },
        "spec": {"replicas": replicas, "template": template},
    }


class SetWorld(PodWorld):
    """A world with the StatefulSet chat, whose controller is the test."""

    def __init__(self, replicas: int = 2, *, group: str = GROUP, **metadata: Any) -> None:
        super().__init__()
        self.group = group
        self.add(set_object(replicas, **metadata))
        self.settle()

    def scale(self, replicas: int) -> None:
        """Change the number of replicas."""
        self.edit("StatefulSet", "chat", lambda one: one["spec"].update(replicas=replicas))
        self.settle()

    def create_pods(self, count: int = 2, **fields: Any) -> None:
        """Create pods as the controller of StatefulSets and the webhook do."""
        for number in range(count):
            pod = pod_object(
                f"chat-{number}", labels={keys.POD_GROUP_NAME: self.group}, annotations=SERVING, **fields
            )
            pod["metadata"]["ownerReferences"] = [{**_reference(), "controller": True}]
            self.add(pod)
        self.settle()

    def delete_pods(self) -> None:
        """Delete all pods."""
        for name in self.pods():
            self.delete("Pod", name)
        self.settle()

    def admit_group(self) -> None:
        """Admit the Workload."""
        self.admit(self.group)
        self.settle()

    def of_set(self) -> Workload:
        """Return the Workload."""
        return self.workload(self.group)[0]

    def why(self) -> tuple[str, str]:
        """Return reason and message of a Workload that holds no quota."""
        found = self.of_set().conditions[ConditionType.QUOTA_RESERVED]
        assert not found.status
        return found.reason, found.message

    def look(self) -> tuple[Action, ...]:
        """Return what the set, its pods and Workloads ask for now."""
        obj = self.objects["StatefulSet", "chat"]
        keeper = GroupOwner(reference=CHAT.reference)
        self.facts = UnitFacts(replicas=obj["spec"]["replicas"], keeper=keeper)
        found = super().look()
        if self.pods():
            return found
        held = self.workload(self.group) if ("Workload", self.group) in self.objects else None
        actions = reconcile_stateful_set(
            template_pod(encode(obj), self.group),
            held,
            self.job_context,
            owner=CHAT.reference,
            now=self.now,
            facts=self.facts,
        )
        return (*actions, *found)

    def _owner(self, workload: Workload) -> Owner:
        del workload
        return Owner.JOB


def workload_object(name: str, **metadata: Any) -> Object:
    """Return a Workload of one pod that requests nothing and has no owner."""
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "uid": "uid-w", **metadata},
        "spec": {"queueName": "lq", "podSets": [pod_set]},
    }


def _reference() -> Object:
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "chat", "uid": "uid-chat"}


def test_the_workload_exists_before_the_pods_as_kueue_makes_it() -> None:
    world = SetWorld(replicas=2)

    obj = world.objects["Workload", world.only_workload()]
    metadata = obj["metadata"]
    assert metadata["name"] == GROUP
    assert metadata["ownerReferences"] == [_reference()]
    assert metadata["labels"][keys.JOB_UID] == "uid-chat"
    assert metadata["annotations"] == {
        keys.IS_GROUP_WORKLOAD: "true",
        keys.JOB_OWNER_GVK: "apps/v1, Kind=StatefulSet",
        keys.JOB_OWNER_NAME: "chat",
        keys.REPLICA_OF: "StatefulSet/chat",
    }
    assert obj["spec"]["queueName"] == "lq"
    assert [(one["name"], one["count"]) for one in obj["spec"]["podSets"]] == [("main", 2)]
    (event,) = world.events
    assert (event.regarding.kind, event.regarding.name) == ("StatefulSet", "chat")


@pytest.mark.parametrize(
    ("replicas", "metadata"),
    [
        pytest.param(0, {}, id="has no pods"),
        pytest.param(
            2,
            {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": ["foregroundDeletion"]},
            id="is being deleted",
        ),
        pytest.param(2, {"labels": {}}, id="names no queue"),
    ],
)
def test_no_workload_is_made_for_a_set_that(replicas: int, metadata: Object) -> None:
    assert SetWorld(replicas, **metadata).workloads() == []


def test_pods_that_come_after_the_admission_start() -> None:
    world = SetWorld()
    world.admit_group()

    world.create_pods()

    assert [world.pod(name).is_gated for name in world.pods()] == [False, False]
    assert world.only_workload() == GROUP


def test_a_set_that_is_scaled_to_0_is_on_hold_once_its_pods_have_ended_and_queues_again() -> None:
    world = SetWorld()
    world.admit_group()
    world.create_pods()
    world.run()
    world.settle()
    uid = world.of_set().uid

    world.scale(0)
    world.delete_pods()
    assert world.of_set().admission is not None
    assert world.of_set().reclaimable == {}
    world.run_kubelet()
    world.settle()

    assert world.pods() == []
    assert world.why() == ("OnHold", "StatefulSet scaled to zero; workload on hold")
    assert (world.of_set().admission, world.of_set().reclaimable) == (None, {})

    world.scale(3)
    assert world.why()[0] != "OnHold"
    assert (world.of_set().uid, world.of_set().pod_sets[0].count) == (uid, 3)
    world.admit_group()
    world.create_pods(3)
    assert [world.pod(name).is_gated for name in world.pods()] == [False] * 3


def test_a_set_that_is_scaled_to_0_while_it_waits_is_on_hold() -> None:
    world = SetWorld()

    world.scale(0)

    assert world.why()[0] == "OnHold"


def test_a_set_that_is_scaled_up_while_its_last_pod_ends_is_queued_again() -> None:
    world = SetWorld()
    world.admit_group()
    world.create_pods()
    world.run()
    world.settle()

    world.scale(0)
    world.delete_pods()
    world.end("chat-0", "Failed")
    world.settle()
    assert world.of_set().reclaimable == {"main": 1}
    world.scale(2)
    assert world.of_set().admission is not None
    world.run_kubelet()
    world.settle()
    world.create_pods()

    assert world.of_set().admission is None
    world.admit_group()
    assert [world.pod(name).is_gated for name in world.pods()] == [False, False]


def test_a_set_that_was_scaled_down_before_its_eviction_gets_places_for_all_of_its_pods() -> None:
    world = SetWorld(replicas=3)
    world.admit_group()
    world.create_pods(2)
    world.run()
    world.scale(2)
    assert world.of_set().reclaimable == {"main": 1}

    world.evict(GROUP)
    world.settle()
    world.run_kubelet()
    world.settle()
    world.create_pods(2)
    world.admit_group()

    assert [world.pod(name).is_gated for name in world.pods()] == [False, False]


def test_pods_that_come_before_the_hold_is_seen_to_be_over_are_queued() -> None:
    world = SetWorld()
    world.scale(0)

    world.edit("StatefulSet", "chat", lambda one: one["spec"].update(replicas=1))
    world.create_pods(1)

    assert world.why()[0] != "OnHold"


def test_a_deactivated_workload_is_not_put_on_hold() -> None:
    world = SetWorld()
    world.edit("Workload", GROUP, lambda one: one["spec"].update(active=False))
    world.settle()
    before = world.of_set().conditions.get(ConditionType.QUOTA_RESERVED)

    world.scale(0)

    assert world.of_set().conditions.get(ConditionType.QUOTA_RESERVED) == before


def test_an_evicted_set_without_pods_gives_its_quota_back_and_queues_again() -> None:
    world = SetWorld()
    world.admit_group()

    world.evict(GROUP)
    world.settle()

    assert world.of_set().admission is None
    assert said(world)["Requeued"] == "Preempted"
    assert ConditionType.WAITING_FOR_REPLACEMENT_PODS not in world.of_set().conditions


def test_a_workload_of_the_older_name_gets_the_set_as_owner() -> None:
    older = CHAT.older_group
    world = SetWorld(replicas=0, group=older)
    world.add(workload_object(older, annotations={keys.IS_GROUP_WORKLOAD: "true"}))

    world.scale(2)

    obj = world.objects["Workload", world.only_workload()]
    assert obj["metadata"]["ownerReferences"] == [_reference()]
    assert obj["metadata"]["labels"] == {keys.JOB_UID: "uid-chat"}
    assert world.of_set().pod_sets[0].count == 2


def test_a_workload_that_its_set_has_left_behind_does_not_get_it_as_owner_again() -> None:
    world = SetWorld()
    world.admit_group()
    world.create_pods()

    # As the garbage collector does for `--cascade=orphan`, before the pods.
    world.edit("Workload", GROUP, lambda one: one["metadata"].pop("ownerReferences"))
    world.settle()

    assert "ownerReferences" not in world.objects["Workload", GROUP]["metadata"]


def test_a_workload_of_this_name_that_was_not_made_for_a_group_is_left_alone() -> None:
    world = SetWorld(replicas=0)
    world.add(workload_object(GROUP))

    world.scale(2)

    assert "already exists but is not a pod group workload" in warnings(world)[-1]
    assert "ownerReferences" not in world.objects["Workload", GROUP]["metadata"]


def test_a_waiting_workload_counts_what_its_pods_request_beyond_the_template() -> None:
    world = SetWorld()
    uid = world.of_set().uid

    world.create_pods(cpu="3")

    template = world.objects["Workload", GROUP]["spec"]["podSets"][0]["template"]
    assert template["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "3"}
    assert world.of_set().uid == uid


def test_an_admitted_workload_whose_pods_all_request_more_than_the_template_is_made_again() -> None:
    world = SetWorld()
    world.admit_group()
    uid = world.of_set().uid

    world.create_pods(cpu="3")

    assert [world.pod(name).is_gated for name in world.pods()] == [True, True]
    assert "3 cpu instead of 1" in warnings(world)[0]
    assert (world.only_workload(), world.of_set().uid == uid) == (GROUP, False)
    world.admit_group()
    assert [world.pod(name).is_gated for name in world.pods()] == [False, False]
