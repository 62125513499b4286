"""What pods and groups of pods in queues go through, from the gate to the end."""

from __future__ import annotations

from typing import Any

import pytest

from admission.actions import Event
from admission.decision import Admit
from admission.jobs import JobSettings, PriorityClass
from admission.pods import UnitFacts, reconcile_empty_group
from admission.writes import write_of
from api import keys
from api.keys import HOSTNAME
from api.objects import WireToleration
from api.reasons import EvictionReason
from api.workload import Admission, DomainCount, PodSetAssignment, TopologyAssignment
from tests.admission.podworld import PodWorld, member_object, pod_object
from tests.admission.world import Object, context, purposes

WAITING = "WaitingForReplacementPods"


def make_world(*pods: Object, **fields: Any) -> PodWorld:
    """Return a world with these pods, settled."""
    world = PodWorld(job_context=context(**fields))
    for pod in pods:
        world.add(pod)
    world.settle()
    return world


def admitted(*pods: Object) -> PodWorld:
    """Return a world in which these pods, one unit, run."""
    world = make_world(*pods)
    world.admit(world.only_workload())
    world.settle()
    world.run()
    world.settle()
    return world


def said(world: PodWorld, name: str | None = None) -> dict[str, str]:
    """Return the True conditions of a Workload, with their reasons; by default of the only one."""
    workload, _ = world.workload(name or world.only_workload())
    return {type_: one.reason for type_, one in workload.conditions.items() if one.status}


def warnings(world: PodWorld) -> list[str]:
    """Return the notes of all warnings."""
    return [event.note for event in world.events if event.type.value == "Warning"]


# --- a pod by itself -----------------------------------------------------------------------------


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


def test_an_evicted_pod_is_told_then_deleted_and_holds_its_quota_until_it_has_ended() -> None:
    world = admitted(pod_object())
    name = world.only_workload()
    world.evict(name)

    wrote = [str(one) for one in world.settle()]

    assert wrote == ["tell-pod", "stop-pod"]
    assert world.pod("p").is_told_to_end
    assert world.workload(name)[0].admission is not None
    world.run_kubelet()
    world.settle()
    assert world.objects == {}


def test_a_replica_leaves_by_an_eviction_and_is_told_nothing_before() -> None:
    world = admitted(pod_object())
    world.facts = UnitFacts(by_eviction=True)
    world.evict(world.only_workload())

    assert [str(one) for one in world.settle()] == ["evict-pod"]

    assert world.pod("p").is_deleted
    assert not world.pod("p").is_told_to_end


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
def test_a_pod_that_cannot_be_queued_is_told_why(pod: Object, want: str) -> None:
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


# --- groups --------------------------------------------------------------------------------------


def test_a_group_is_queued_when_all_its_members_are_there_and_starts_as_one() -> None:
    world = make_world(member_object("a"))
    assert not world.workloads()

    world.add(member_object("b", cpu="2", created=1))
    world.settle()

    workload, _ = world.workload("g")
    assert sorted(one.count for one in workload.pod_sets) == [1, 1]
    assert {owner["name"] for owner in world.objects["Workload", "g"]["metadata"]["ownerReferences"]} == {
        "a",
        "b",
    }
    world.admit("g")
    world.settle()
    assert not any(world.pod(name).is_gated for name in ("a", "b"))


def test_pods_of_one_shape_are_one_pod_set() -> None:
    world = make_world(member_object("a"), member_object("b"))

    (pod_set,) = world.workload("g")[0].pod_sets
    assert pod_set.count == 2


def test_a_group_with_fast_admission_is_queued_with_its_first_pod() -> None:
    fast = {keys.POD_GROUP_FAST_ADMISSION: "true"}
    world = admitted(member_object("a", total=3, annotations=fast))
    assert world.workload("g")[0].pod_sets[0].count == 3

    world.add(member_object("b", total=3, annotations=fast, created=1))
    world.settle()

    assert not world.pod("b").is_gated


def test_a_group_of_any_size_with_fast_admission_is_counted_and_not_listed() -> None:
    total = 2_000_000_000
    world = make_world(member_object("a", total=total, annotations={keys.POD_GROUP_FAST_ADMISSION: "true"}))

    assert world.workload("g")[0].pod_sets[0].count == total


@pytest.mark.parametrize(
    "total", [pytest.param("", id="none"), pytest.param("9" * 5_000, id="no number of pods")]
)
def test_a_group_without_a_total_is_told_what_is_missing(total: str) -> None:
    pod = member_object("a", annotations={keys.POD_GROUP_TOTAL_COUNT: total})

    assert keys.POD_GROUP_TOTAL_COUNT in warnings(make_world(pod))[-1]


@pytest.mark.parametrize(
    ("other", "want"),
    [
        pytest.param(
            member_object("b", total=3), "pod-group-total-count is '2' on pod a", id="another total"
        ),
        pytest.param(
            member_object("b", labels={keys.QUEUE_NAME: "other"}), "'other' on pod b", id="another queue"
        ),
    ],
)
def test_a_group_that_contradicts_itself_is_told_so(other: Object, want: str) -> None:
    world = make_world(member_object("a"), other)

    assert not world.workloads()
    assert want in warnings(world)[-1]


def test_a_group_finishes_when_all_its_pods_have_succeeded() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.end("a")
    world.settle()
    assert world.workload("g")[0].reclaimable == {world.workload("g")[0].pod_sets[0].name: 1}
    assert world.pod("a").has_finalizer

    world.end("b")
    world.settle()

    assert said(world)["Finished"] == "Succeeded"
    assert not any(world.pod(name).has_finalizer for name in ("a", "b"))


def test_a_failed_member_is_kept_until_another_takes_its_place() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.end("a", "Failed")
    world.settle()
    assert world.pod("a").has_finalizer
    assert said(world)[WAITING] == "PodsFailed"

    world.add(member_object("c", created=1))
    world.settle()

    assert not world.pod("a").has_finalizer
    assert not world.pod("c").is_gated
    assert WAITING not in said(world)


def test_a_group_that_may_not_be_retried_ends_with_its_failed_member() -> None:
    final = {keys.RETRIABLE_IN_GROUP: "false"}
    world = admitted(member_object("a", annotations=final), member_object("b"))
    world.end("a", "Failed")
    world.settle()
    assert "Finished" not in said(world)

    world.end("b")
    world.settle()

    assert said(world)["Finished"] == "Failed"


def test_an_evicted_group_waits_for_new_pods_and_then_queues_again() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.evict("g", EvictionReason.PREEMPTED)
    world.settle()
    world.run_kubelet()
    world.settle()
    workload, _ = world.workload("g")
    assert workload.admission is None
    assert said(world)[WAITING] == "Preempted"
    assert world.pods() == ["a", "b"]

    for name in ("c", "d"):
        world.add(member_object(name, created=1))
    world.settle()

    assert world.pods() == ["c", "d"]
    assert WAITING not in said(world)
    assert said(world)["Requeued"] == "Preempted"
    world.admit("g")
    world.settle()
    assert not world.pod("c").is_gated


def test_a_pod_too_many_is_deleted_the_youngest_first() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.add(member_object("c", created=1))

    world.settle()

    assert world.pods() == ["a", "b"]
    assert "ExcessPodDeleted" in {event.reason for event in world.events}


def test_the_successor_of_a_pod_that_is_about_to_go_is_not_too_many() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.delete("Pod", "a")
    world.add(member_object("c", created=1))
    world.settle()
    assert world.pods() == ["a", "b", "c"]

    world.run_kubelet()
    world.settle()

    assert world.pods() == ["b", "c"]
    assert not world.pod("c").is_gated


def test_a_group_whose_pods_were_all_deleted_goes_with_its_workload() -> None:
    world = admitted(member_object("a"), member_object("b"))
    for name in ("a", "b"):
        world.delete("Pod", name)
    world.settle()

    world.run_kubelet()
    world.settle()

    assert world.objects == {}


def test_a_workload_of_the_groups_name_that_is_not_its_own_is_left_alone() -> None:
    world = PodWorld()
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    world.add({"kind": "Workload", "metadata": {"name": "g", "namespace": "team", "uid": "w"}, "spec": spec})
    world.add(member_object("a", total=1))

    actions = world.look()

    assert [one.reason for one in actions if isinstance(one, Event)] == ["WorkloadNameConflict"]
    assert purposes(actions) == ["WorkloadNameConflict"]


def test_a_waiting_group_takes_another_shape_when_a_pod_of_another_one_comes() -> None:
    world = make_world(member_object("a"), member_object("b"))
    world.delete("Pod", "b")
    world.settle()
    assert said(world)[WAITING] == "PodsFailed"

    world.add(member_object("c", cpu="4", created=1))
    world.settle()

    assert sorted(one.count for one in world.workload("g")[0].pod_sets) == [1, 1]
    assert WAITING not in said(world)


def test_a_member_that_ends_well_when_it_is_told_to_has_not_succeeded() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.evict("g")
    world.settle()

    for name in ("a", "b"):
        world.end(name, "Succeeded")
    world.settle()

    assert "Finished" not in said(world)
    assert said(world)[WAITING] == "Preempted"


def test_a_serving_group_lets_its_dead_go_at_once_and_never_finishes() -> None:
    serving = {keys.POD_GROUP_SERVING: "true", keys.POD_GROUP_FAST_ADMISSION: "true"}
    world = admitted(member_object("a", annotations=serving), member_object("b", annotations=serving))

    world.end("a")
    world.end("b", "Failed")
    world.settle()

    assert not any(world.pod(name).has_finalizer for name in ("a", "b"))
    assert "Finished" not in said(world)


SERVING = {
    keys.POD_GROUP_SERVING: "true",
    keys.POD_GROUP_FAST_ADMISSION: "true",
}


def shard(name: str, total: int = 3, **fields: Any) -> Object:
    """Return a pod of a group that serves."""
    return member_object(name, total, annotations=SERVING, **fields)


def serving_world(*pods: Object, replicas: int) -> PodWorld:
    """Return a world in which these pods of a group of so many serve."""
    world = PodWorld()
    world.facts = UnitFacts(replicas=replicas)
    for pod in pods:
        world.add(pod)
    world.settle()
    world.admit("g")
    world.settle()
    world.run()
    world.settle()
    return world


def test_a_serving_group_is_as_large_as_its_keeper_says() -> None:
    world = serving_world(shard("a", 1), shard("b", 2, created=1), replicas=2)

    assert world.workload("g")[0].pod_sets[0].count == 2
    assert not any(world.pod(name).is_gated for name in ("a", "b"))


def test_a_serving_group_scaled_down_gives_back_what_it_was_scaled_down_by() -> None:
    world = serving_world(shard("a"), shard("b"), shard("c"), replicas=3)
    world.facts = UnitFacts(replicas=2)
    world.delete("Pod", "c")
    world.run_kubelet()

    world.settle()

    assert list(world.workload("g")[0].reclaimable.values()) == [1]
    assert said(world)["PodsReady"] == "Started"
    assert world.pods() == ["a", "b"]


def test_pods_that_a_serving_group_is_scaled_up_by_wait_and_are_told_why() -> None:
    world = serving_world(shard("a"), shard("b"), replicas=2)
    world.facts = UnitFacts(replicas=3)
    world.add(shard("c", created=1))

    world.settle()

    assert world.pods() == ["a", "b", "c"]
    assert world.pod("c").is_gated
    assert "scale it to 0" in warnings(world)[-1]


@pytest.mark.parametrize(
    ("replicas", "want"),
    [(0, ["delete-workload"]), (2, []), (None, [])],
    ids=["that is to have none is over", "that is being made anew goes on", "that nobody keeps is collected"],
)
def test_a_group_without_pods(replicas: int | None, want: list[str]) -> None:
    world = serving_world(shard("a"), replicas=1)

    assert purposes(reconcile_empty_group(world.workload("g")[0], replicas=replicas)) == want


# --- places --------------------------------------------------------------------------------------


def admit_on(world: PodWorld, name: str, *hosts: str, levels: tuple[str, ...] = (HOSTNAME,)) -> None:
    """Admit a Workload of one pod set on these hosts, one pod on each time that a host is named."""
    workload, raw = world.workload(name)
    counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
    domains = tuple(DomainCount(values=(host,), count=count) for host, count in counts.items())
    assignment = PodSetAssignment(
        name=workload.pod_sets[0].name,
        count=len(hosts),
        flavors={"cpu": "f"},
        usage={"cpu": 1000 * len(hosts)},
        topology=TopologyAssignment(levels=levels, domains=domains),
    )
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
        is_admitted=True,
    )
    write = write_of(decision, raw, now=world.now)
    assert write is not None
    world.apply(write)
    world.settle()


def hosts_of(world: PodWorld) -> dict[str, str]:
    """Return the host that each pod was told."""
    return {
        name: world.objects["Pod", name]["spec"].get("nodeSelector", {}).get(HOSTNAME, "")
        for name in world.pods()
    }


def test_a_placed_pod_is_told_its_host_as_it_is_let_go() -> None:
    world = make_world(pod_object(annotations={keys.REQUIRED_TOPOLOGY: HOSTNAME}))

    admit_on(world, world.only_workload(), "n1")

    assert hosts_of(world) == {"p": "n1"}
    assert not world.pod("p").gates


def test_a_pod_placed_without_asking_is_marked_so_that_it_is_counted_once() -> None:
    world = make_world(pod_object())

    admit_on(world, world.only_workload(), "n1")

    assert world.pod("p").annotations[keys.UNCONSTRAINED_TOPOLOGY] == "true"


def test_the_pods_of_a_group_take_their_places_by_rank() -> None:
    preferred = {keys.PREFERRED_TOPOLOGY: "rack"}
    ranks = {"a": "2", "b": "0", "c": "1"}
    world = make_world(
        *(
            member_object(name, 3, annotations=preferred, labels={keys.POD_GROUP_INDEX: rank})
            for name, rank in ranks.items()
        )
    )

    admit_on(world, "g", "n1", "n1", "n2")

    assert hosts_of(world) == {"a": "n2", "b": "n1", "c": "n1"}


def test_a_replacement_takes_the_place_that_came_free() -> None:
    preferred = {keys.PREFERRED_TOPOLOGY: "rack"}
    world = make_world(*(member_object(name, annotations=preferred) for name in ("a", "b")))
    admit_on(world, "g", "n1", "n2")
    first = next(name for name, host in hosts_of(world).items() if host == "n1")
    world.run()
    world.end(first, "Failed")

    world.add(member_object("c", annotations=preferred, created=1))
    world.settle()

    assert hosts_of(world)["c"] == "n1"


def test_where_the_topology_ends_above_the_hosts_each_pod_is_told_one_domain() -> None:
    world = make_world(*(member_object(name, annotations={keys.PREFERRED_TOPOLOGY: "rack"}) for name in "ab"))

    admit_on(world, "g", "r1", "r2", levels=("rack",))

    told = sorted(world.objects["Pod", name]["spec"]["nodeSelector"]["rack"] for name in "ab")
    assert told == ["r1", "r2"]
    assert all("affinity" not in world.objects["Pod", name]["spec"] for name in "ab")


def test_an_evicted_group_of_a_leader_worker_set_begins_anew_with_its_new_pods() -> None:
    of_set = {keys.LEADER_WORKER_SET: "big"}
    serving = {keys.POD_GROUP_SERVING: "true"}

    def make(name: str, cpu: str) -> Object:
        return member_object(name, labels=of_set, annotations=serving, cpu=cpu)

    world = admitted(make("big-0", "2"), make("big-0-1", "1"))
    before = world.workload("g")[0].uid
    world.evict("g")
    world.settle()
    world.run_kubelet()
    world.settle()
    # Their names are free again, which their controller waits for.
    assert world.pods() == []

    for pod in (make("big-0", "2"), make("big-0-1", "1")):
        world.add(pod)
    world.settle()

    assert world.workload("g")[0].uid != before
    world.admit("g")
    world.settle()
    assert not world.pod("big-0-1").is_gated
