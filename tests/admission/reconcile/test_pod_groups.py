"""What pods that must run together go through: queued, admitted and evicted as one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Event, Purpose, Write
from admission.reconcile.job.context import JobSettings
from admission.reconcile.pod.reconcile import reconcile_empty_group
from api import keys
from api.jobs.job_workload import CopiedKeys
from api.reasons import EvictionReason
from tests.admission.podworld import (
    WAITING,
    PodWorld,
    admitted,
    make_world,
    member_object,
    said,
    warnings,
)
from tests.admission.world import Object, purposes, read_workload


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
def test_a_group_without_a_total_gets_an_event_that_names_the_annotation(total: str) -> None:
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
def test_a_group_that_contradicts_itself_gets_an_event(other: Object, want: str) -> None:
    world = make_world(member_object("a"), other)

    assert not world.workloads()
    assert want in warnings(world)[-1]


COPIED = JobSettings(copied=CopiedKeys(labels=("team", "stage"), annotations=("example.com/cost",)))


def test_the_workload_of_a_group_copies_a_label_that_any_pod_has() -> None:
    first = member_object("a", labels={"team": "ai", "other": "x"})
    second = member_object("b", labels={"stage": "test"}, annotations={"example.com/cost": "9"}, created=1)

    world = make_world(first, second, settings=COPIED)

    metadata = world.objects["Workload", "g"]["metadata"]
    assert metadata["labels"] == {"team": "ai", "stage": "test"}
    assert metadata["annotations"]["example.com/cost"] == "9"


@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_a_group_whose_pods_contradict_each_other_in_what_is_copied_is_not_queued(where: str) -> None:
    key = {"labels": "team", "annotations": "example.com/cost"}[where]
    given: list[dict[str, Any]] = [{where: {key: value}} for value in ("1", "2")]

    world = make_world(member_object("a", **given[0]), member_object("b", **given[1]), settings=COPIED)

    assert not world.workloads()
    assert f"{key} is '1' on pod a and '2' on pod b" in warnings(world)[-1]


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


def test_the_release_of_an_evicted_group_says_that_it_waits_for_new_pods() -> None:
    """In one write: with a back-off that is over, it would be admitted without pods otherwise."""
    world = admitted(member_object("a"), member_object("b"))
    world.evict("g", EvictionReason.PODS_READY_TIMEOUT)
    world.settle()
    world.run_kubelet()

    (release,) = [one for one in world.look() if isinstance(one, Write) and one.purpose is Purpose.RELEASE]

    conditions = msgspec.json.decode(release.body)["status"]["conditions"]
    assert {one["type"]: one["status"] for one in conditions}[WAITING] == "True"


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

    assert purposes(actions) == ["WorkloadNameConflict"]
    assert [one.note for one in actions if isinstance(one, Event)] == [
        'A Workload named "g" already exists but is not a pod group workload;'
        " this pod group cannot be admitted"
    ]


def test_a_gated_pod_of_an_admitted_group_that_is_deleted_is_kept_until_another_replaces_it() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.end("b", "Failed")
    world.add(member_object("late", created=1, schedulingGates=[{"name": keys.ADMISSION_GATE}]))
    world.delete("Pod", "late")
    world.settle()
    assert world.pod("late").has_finalizer or world.pod("b").has_finalizer

    world.add(member_object("c", created=2))
    world.settle()

    assert not world.pod("b").has_finalizer
    assert "late" not in world.pods()


@pytest.mark.parametrize(
    ("owners", "want"),
    [
        pytest.param(["Pod", "Pod"], ["remove-finalizer"], id="is let go: the garbage collector takes it"),
        pytest.param(["StatefulSet"], [], id="stays with another owner"),
    ],
)
def test_the_workload_of_a_group_without_pods(owners: list[str], want: list[str]) -> None:
    world = admitted(member_object("a"), member_object("b"))
    obj = world.objects["Workload", "g"]
    obj["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": kind, "name": f"x{i}", "uid": f"x{i}"} for i, kind in enumerate(owners)
    ]
    workload, raw = read_workload(obj)

    assert purposes(reconcile_empty_group(workload, raw, replicas=None)) == want


def test_a_waiting_group_takes_another_shape_when_a_pod_of_another_one_comes() -> None:
    world = make_world(member_object("a"), member_object("b"))
    world.delete("Pod", "b")
    world.settle()
    assert said(world)[WAITING] == "PodsFailed"

    world.add(member_object("c", cpu="4", created=1))
    world.settle()

    assert sorted(one.count for one in world.workload("g")[0].pod_sets) == [1, 1]
    assert WAITING not in said(world)


def test_a_member_that_ends_well_after_an_eviction_has_not_succeeded() -> None:
    world = admitted(member_object("a"), member_object("b"))
    world.evict("g")
    world.settle()

    for name in ("a", "b"):
        world.end(name, "Succeeded")
    world.settle()

    assert "Finished" not in said(world)
    assert said(world)[WAITING] == "Preempted"


FORGED = {keys.ROLE_HASH: "forged"}
FAST = {keys.POD_GROUP_FAST_ADMISSION: "true"}


def test_pods_that_claim_one_role_and_request_different_amounts_are_not_queued() -> None:
    world = make_world(
        member_object("a", annotations=FORGED), member_object("b", cpu="64", annotations=FORGED)
    )

    assert not world.workloads()
    assert "pod b requests 64 cpu instead of 1 on pod a" in warnings(world)[-1]


@pytest.mark.parametrize(
    "annotations",
    [pytest.param(FORGED, id="with a forged role"), pytest.param(FAST, id="of a fast group")],
)
def test_a_pod_that_requests_more_than_its_place_does_not_start_in_an_admitted_group(
    annotations: dict[str, str],
) -> None:
    world = admitted(member_object("a", annotations=annotations), member_object("b", annotations=annotations))
    world.end("b", "Failed")
    world.settle()

    world.add(member_object("c", cpu="64", created=1, annotations=annotations))
    world.settle()

    assert "c" not in [name for name in world.pods() if not world.pod(name).is_gated]
    assert "The pod requests 64 cpu instead of 1 in its admitted group" in [
        event.note for event in world.events
    ]
    world.add(member_object("d", created=2, annotations=annotations))
    world.settle()
    assert not world.pod("d").is_gated
    assert "c" not in world.pods()
