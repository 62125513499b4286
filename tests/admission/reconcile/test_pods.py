"""What a pod that is queued by itself goes through, from the gate to the end."""

from __future__ import annotations

from typing import Any

import pytest

from admission.reconcile.job.context import JobSettings, PriorityClass
from admission.reconcile.pod.view import UnitFacts
from api import keys
from api.disruption_budget import DisruptionBudget
from api.objects.common import WireSelector, WireToleration
from api.reasons import ConditionType
from tests.admission.podworld import (
    admitted,
    make_world,
    pod_object,
    said,
    warnings,
)
from tests.admission.world import Object


def test_a_pod_at_the_gate_gets_a_workload_that_it_owns() -> None:
    world = make_world(pod_object(labels={keys.MAX_EXEC_TIME_SECONDS: "60"}))

    workload, _ = world.workload(world.only_workload())
    assert workload.key.name.startswith("pod-p-")
    assert (workload.owner_kind, workload.owner_uid) == ("Pod", "uid-p")
    assert workload.queue_name == "lq"
    assert workload.maximum_execution_time_seconds == 60
    assert [(one.name, one.count) for one in workload.pod_sets] == [("main", 1)]
    template = world.objects["Workload", workload.key.name]["spec"]["podSets"][0]["template"]
    assert "schedulingGates" not in template["spec"]
    assert world.pod("p").is_gated


@pytest.mark.parametrize(
    ("version", "kind"), [("batch/v1", "Job"), ("apps/v1", "DaemonSet")], ids=["a Job", "a DaemonSet"]
)
def test_a_gated_pod_that_names_an_owner_is_queued_with_an_event(version: str, kind: str) -> None:
    """The API server verifies no owner, and the gate shows that this one was not believed."""
    pod = pod_object()
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": version, "kind": kind, "name": "x", "uid": "u", "controller": True}
    ]
    world = make_world(pod)

    assert world.only_workload().startswith("pod-p-")
    (note,) = warnings(world)
    assert note.startswith(f"Pod team/p is queued by itself, although {kind} x is its controller")


def prebuilt(name: str = "w", cpu: str = "1", **metadata: Any) -> Object:
    """Return a Workload that another program has created for a pod."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1", **metadata}
    return {"kind": "Workload", "metadata": meta, "spec": spec, "status": {}}


NAMES_IT = {keys.PREBUILT_WORKLOAD_NAME: "w"}


@pytest.mark.parametrize("is_first", [True, False], ids=["that exists", "that comes later"])
def test_a_pod_runs_on_the_workload_that_it_names(is_first: bool) -> None:
    # The API server gives every pod some tolerations.
    added = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}
    objects = [pod_object(labels=NAMES_IT, tolerations=[added]), prebuilt()]
    world = make_world(*(reversed(objects) if is_first else objects))
    assert world.only_workload() == "w"

    world.admit("w")
    world.settle()

    assert not world.pod("p").is_gated
    assert world.workload("w")[0].owner_uid == "uid-p"
    world.end("p")
    world.settle()
    assert said(world)["Finished"] == "Succeeded"
    assert not world.pod("p").has_finalizer


def test_a_pod_waits_for_the_workload_that_it_names_and_may_be_deleted_meanwhile() -> None:
    world = make_world(pod_object(labels=NAMES_IT))
    assert not world.workloads()
    assert world.pod("p").is_gated

    world.delete("Pod", "p")
    world.settle()

    assert world.pods() == []


def test_a_workload_that_asks_for_less_than_the_pod_that_names_it_is_finished() -> None:
    world = make_world(pod_object(labels=NAMES_IT, cpu="8"), prebuilt())

    world.settle()

    assert said(world)["Finished"] == "OutOfSync"
    assert world.pod("p").is_gated


def test_the_workload_of_another_is_not_taken_over_by_its_name() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "other", "uid": "uid-other", "controller": True}
    world = make_world(pod_object("other"), pod_object(labels=NAMES_IT), prebuilt(ownerReferences=[owner]))
    world.admit("w")
    world.settle()

    assert world.pod("p").is_gated
    assert warnings(world)[-1].startswith("Pod team/p: Workload team/w, named by")
    world.delete("Pod", "p")
    world.settle()
    assert world.pods() == ["other"]
    assert "Finished" not in said(world)


def test_an_owner_that_is_added_to_an_admitted_pod_keeps_its_quota_in_use() -> None:
    world = make_world(pod_object())
    world.admit(world.only_workload())
    world.settle()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "x", "uid": "u", "controller": True}

    world.edit("Pod", "p", lambda pod: pod["metadata"].update(ownerReferences=[owner]))
    world.settle()

    assert world.pod("p").is_managed
    assert world.workload(world.only_workload())[0].is_admitted


def test_an_admitted_pod_is_let_go_with_its_flavors_nodes_and_tolerations() -> None:
    taint = WireToleration(key="gpu", operator="Exists")
    world = make_world(pod_object(), injection=lambda _: ({"zone": "a"}, (taint,)))
    world.admit(world.only_workload())

    world.settle()

    pod = world.objects["Pod", "p"]
    assert not world.pod("p").is_gated
    assert pod["spec"]["nodeSelector"] == {"zone": "a"}
    assert pod["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert pod["metadata"]["labels"][keys.POD_SET] == "main"
    assert pod["metadata"]["annotations"][keys.WORKLOAD] == world.only_workload()


def test_a_pod_made_without_the_webhook_gets_the_finalizer_when_it_is_let_go() -> None:
    bare = pod_object()
    del bare["metadata"]["finalizers"]
    world = make_world(bare)
    world.admit(world.only_workload())

    world.settle()

    assert world.pod("p").has_finalizer
    assert not world.pod("p").is_gated


def test_other_gates_stay_on_the_pod() -> None:
    gates = [{"name": "example.com/wait"}, {"name": keys.ADMISSION_GATE}, {"name": keys.TOPOLOGY_GATE}]
    world = make_world(pod_object(schedulingGates=gates))
    world.admit(world.only_workload())

    world.settle()

    assert world.pod("p").gates == ("example.com/wait",)


@pytest.mark.parametrize(
    ("phase", "want"), [("Succeeded", "Succeeded"), ("Failed", "Failed")], ids=["success", "failure"]
)
def test_a_pod_that_ended_finishes_its_workload_and_is_let_go(phase: str, want: str) -> None:
    world = admitted(pod_object())

    world.end("p", phase)
    world.settle()

    assert said(world)["Finished"] == want
    assert not world.pod("p").has_finalizer
    assert not world.workload(world.only_workload())[0].has_finalizer


def test_an_evicted_pod_gets_a_reason_then_is_deleted_and_holds_its_quota_until_it_has_ended() -> None:
    world = admitted(pod_object())
    name = world.only_workload()
    world.evict(name)

    wrote = [str(one) for one in world.settle()]

    assert wrote == ["set-pod-condition", "stop-pod"]
    assert world.pod("p").has_termination_condition
    assert world.workload(name)[0].admission is not None
    world.run_kubelet()
    world.settle()
    assert world.objects == {}


def test_a_replica_leaves_by_an_eviction_without_a_condition_before() -> None:
    world = admitted(pod_object())
    world.facts = UnitFacts(by_eviction=True)
    world.evict(world.only_workload())

    assert [str(one) for one in world.settle()] == ["evict-pod"]

    assert world.pod("p").is_deleted
    assert not world.pod("p").has_termination_condition


@pytest.mark.parametrize(
    ("allowed", "want", "says"),
    [
        pytest.param([1], ["evict-pod"], None, id="it goes where its budget lets one go"),
        pytest.param(
            [0],
            ["allow-eviction"],
            "PodDisruptionBudget team/b0 allows no eviction now: the replica keeps serving until it does, or"
            " is deleted",
            id="it stays where its budget lets none go",
        ),
        pytest.param(
            [1, 1],
            ["allow-eviction"],
            "Pod team/p falls under 2 PodDisruptionBudgets (b0, b1), and the API server evicts no pod that"
            " falls under more than one: let each pod have one",
            id="it stays where the server never lets it go",
        ),
    ],
)
def test_an_evicted_replica_and_its_budgets(allowed: list[int], want: list[str], says: str | None) -> None:
    world = admitted(pod_object())
    budgets = tuple(
        DisruptionBudget(namespace="team", name=f"b{number}", selector=WireSelector(), allowed=count)
        for number, count in enumerate(allowed)
    )
    world.facts = UnitFacts(by_eviction=True, budgets=budgets)
    name = world.only_workload()
    world.evict(name)

    assert [str(one) for one in world.settle()] == want

    condition = world.workload(name)[0].conditions.get(ConditionType.DISRUPTION_ALLOWED)
    assert (condition.message if condition is not None else None) == says
    # Once the budget lets it go, it goes, and while it ends no condition says any more that it is kept.
    world.facts = UnitFacts(by_eviction=True)
    world.settle()
    assert ConditionType.DISRUPTION_ALLOWED not in world.workload(name)[0].conditions
    world.run_kubelet()
    world.settle()
    assert world.objects == {}


def test_a_replica_that_no_policy_lets_a_budget_keep_any_more_is_stopped_and_not_said_to_be_kept() -> None:
    world = admitted(pod_object())
    name, budget = (
        world.only_workload(),
        DisruptionBudget(namespace="team", name="b", selector=WireSelector()),
    )
    world.facts = UnitFacts(by_eviction=True, budgets=(budget,))
    world.evict(name)
    world.settle()
    assert ConditionType.DISRUPTION_ALLOWED in world.workload(name)[0].conditions

    world.facts = UnitFacts()

    assert [str(one) for one in world.settle()] == ["set-pod-condition", "stop-pod", "allow-eviction"]
    assert ConditionType.DISRUPTION_ALLOWED not in world.workload(name)[0].conditions


def test_a_replica_that_the_server_refuses_to_evict_says_so_until_it_goes() -> None:
    world = admitted(pod_object())
    name = world.only_workload()
    world.facts = UnitFacts(by_eviction=True, refusal="a webhook says no")
    world.evict(name)

    assert [str(one) for one in world.settle()] == ["allow-eviction"]

    condition = world.workload(name)[0].conditions[ConditionType.DISRUPTION_ALLOWED]
    assert (condition.status, condition.reason, condition.message) == (
        False,
        "EvictionRefused",
        "a webhook says no",
    )
    # It is time to try again: the condition stays until that has succeeded.
    world.facts = UnitFacts(by_eviction=True)
    assert [str(one) for one in world.settle()] == ["evict-pod", "allow-eviction"]
    assert ConditionType.DISRUPTION_ALLOWED not in world.workload(name)[0].conditions


@pytest.mark.parametrize(
    ("keeps_unready", "want"),
    [
        pytest.param(False, ["evict-pod"], id="goes where others are enough"),
        pytest.param(
            True, ["allow-eviction", "sync-pods"], id="gets a condition that it stays where they are not"
        ),
    ],
)
def test_an_evicted_replica_that_is_not_ready(keeps_unready: bool, want: list[str]) -> None:
    world = admitted(pod_object())
    world.edit("Pod", "p", lambda pod: pod["status"].update(conditions=[]))
    budget = DisruptionBudget(
        namespace="team", name="b", selector=WireSelector(), keeps_unready=keeps_unready
    )
    world.facts = UnitFacts(by_eviction=True, budgets=(budget,))
    world.evict(world.only_workload())

    assert [str(one) for one in world.settle()] == want


def test_a_pod_evicted_before_it_was_let_go_keeps_its_gate_and_queues_again() -> None:
    world = make_world(pod_object())
    name = world.only_workload()
    world.admit(name, checks=("check",))
    world.evict(name)

    world.settle()

    assert world.pod("p").is_gated
    assert not world.pod("p").is_deleted
    workload, _ = world.workload(name)
    assert workload.admission is None
    assert workload.is_true("Requeued")


@pytest.mark.parametrize(
    ("requeues", "want"),
    [
        pytest.param(False, False, id="it is over"),
        pytest.param(True, True, id="unless a feature gate is off"),
    ],
)
def test_the_workload_of_a_pod_that_was_let_go_does_not_queue_again_after_its_eviction(
    requeues: bool, want: bool
) -> None:
    # Held by a finalizer of another program, so that what becomes of it can be seen.
    world = make_world(pod_object(), settings=JobSettings(requeues_single_pods=requeues))
    world.edit("Pod", "p", lambda pod: pod["metadata"]["finalizers"].append("example.com/mine"))
    name = world.only_workload()
    world.admit(name)
    world.settle()
    world.evict(name)

    world.settle()

    workload, _ = world.workload(name)
    assert workload.admission is None
    assert workload.is_true("Requeued") is want
    assert workload.conditions["Finished"].message == "The workload's owner no longer exists"
    conditions = world.objects["Pod", "p"]["status"]["conditions"]
    assert [one["reason"] for one in conditions] == ["WorkloadEvictedDueToPreempted"]
    assert world.objects["Pod", "p"]["metadata"]["finalizers"] == ["example.com/mine"]


@pytest.mark.parametrize("is_admitted", [False, True], ids=["waiting", "admitted"])
def test_a_pod_deleted_at_the_gate_goes_with_its_workload(is_admitted: bool) -> None:
    world = make_world(pod_object())
    if is_admitted:
        world.admit(world.only_workload())

    world.delete("Pod", "p")
    world.settle()

    assert world.objects == {}


def test_a_pod_whose_workload_was_deleted_is_stopped() -> None:
    world = admitted(pod_object())
    world.delete("Workload", world.only_workload())

    world.settle()
    world.run_kubelet()
    world.settle()

    assert world.objects == {}


def test_a_waiting_pod_whose_workload_was_deleted_gets_another() -> None:
    world = make_world(pod_object())
    before = world.workload(world.only_workload())[0].uid
    world.delete("Workload", world.only_workload())

    world.settle()

    assert world.workload(world.only_workload())[0].uid != before


def test_a_node_selector_that_contradicts_the_flavor_ends_the_workload() -> None:
    world = make_world(pod_object(nodeSelector={"zone": "b"}))
    world.admit(world.only_workload())

    world.settle()

    assert said(world)["Finished"] == "FailedToStart"
    assert world.pod("p").is_gated
    assert any("zone" in note for note in warnings(world))


@pytest.mark.parametrize(
    ("pod", "want"),
    [
        pytest.param(
            pod_object(labels={keys.PRIORITY_CLASS: "none"}),
            "WorkloadPriorityClass 'none'",
            id="a priority class that does not exist",
        ),
        pytest.param(pod_object(priorityClassName="none"), "spec.priorityClassName", id="a pod's own class"),
        pytest.param(pod_object(cpu="much"), "spec.containers[c].resources.requests[cpu]", id="no quantity"),
        pytest.param(
            pod_object(labels={keys.MAX_EXEC_TIME_SECONDS: "soon"}), "max-exec-time-seconds", id="no limit"
        ),
    ],
)
def test_a_pod_that_cannot_be_queued_gets_an_event(pod: Object, want: str) -> None:
    world = make_world(pod)

    assert [kind for kind, _ in world.objects] == ["Pod"]
    assert want in warnings(world)[-1]


def test_classes_give_the_priority_and_a_new_class_reaches_a_waiting_workload() -> None:
    classes = {"high": 7}
    world = make_world(
        pod_object(priorityClassName="own"),
        workload_priority_classes=classes,
        priority_classes={"own": PriorityClass(value=3)},
    )
    assert world.workload(world.only_workload())[0].priority == 3

    world.edit("Pod", "p", lambda pod: pod["metadata"]["labels"].update({keys.PRIORITY_CLASS: "high"}))
    world.settle()

    assert world.workload(world.only_workload())[0].priority == 7


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"is_namespace_managed": lambda _: False}, id="in a namespace that is not managed"),
        pytest.param({"settings": JobSettings()}, id="without a queue"),
    ],
)
def test_a_pod_that_is_not_ours_to_queue_is_left_alone(settings: dict[str, Any]) -> None:
    pod = pod_object() if "is_namespace_managed" in settings else pod_object(labels={keys.QUEUE_NAME: None})

    assert [kind for kind, _ in make_world(pod, **settings).objects] == ["Pod"]


def test_a_pod_without_a_queue_gets_a_workload_where_all_are_managed() -> None:
    settings = JobSettings(manages_without_queue_name=True)
    world = make_world(pod_object(labels={keys.QUEUE_NAME: None}), settings=settings)

    assert world.workload(world.only_workload())[0].queue_name == ""


def test_pods_ready_follows_the_pod() -> None:
    world = make_world(pod_object())
    world.admit(world.only_workload())
    world.settle()
    assert not world.workload(world.only_workload())[0].is_true("PodsReady")

    world.run()
    world.settle()

    assert said(world)["PodsReady"] == "Started"


def test_what_a_pod_says_of_its_length_and_cannot_be_believed_is_named() -> None:
    world = make_world(pod_object(annotations={keys.EXPECTED_RUNTIME_SECONDS: "99999999999"}))

    world.only_workload()
    (said_of_it,) = [note for note in warnings(world) if keys.EXPECTED_RUNTIME_SECONDS in note]
    assert "no more than ten years" in said_of_it
