"""What the pods of a PodGroup go through: the minimum starts as one, the others each as there is room."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Action
from admission.reconcile.deadlines import PodsReadySettings
from admission.reconcile.pod.gang import GangFacts, reconcile_gang
from admission.reconcile.workload.context import Owner
from admission.reconcile.workload.reconcile import reconcile_workload
from api import keys
from api.jobs.gang import Gang, gang_of_texts, in_gang, to_gang
from api.jobs.pod import Pod
from api.objects.cluster import PodGroupObject
from api.reasons import EvictionReason
from api.workload import Workload
from tests.admission.podworld import PodWorld, pod_object, read_pod, warnings
from tests.admission.world import START, Object, World, context, encode, job_object

THREE = Gang(minimum=3)
NOT_FOUND = "PodGroup team/g does not exist"


class GangWorld(PodWorld):
    """Pods of the PodGroup g, which may change or be missing."""

    gang: Gang | None = None
    wake_at: float | None = None
    backoff = PodsReadySettings()

    def pod(self, name: str) -> Pod:
        """Return a pod as a value."""
        return in_gang(super().pod(name))

    def own(self, name: str) -> str | None:
        """Return the name of the Workload that a pod has by itself; None if it has none."""
        found = (one.key.name for one, _ in self.workloads() if one.owner_uid == f"uid-{name}")
        return next(found, None)

    def ungated(self) -> list[str]:
        """Return the pods that were let go."""
        return [name for name in self.pods() if not self.pod(name).is_gated]

    def look(self) -> tuple[Action, ...]:
        """Return what the gang and the Workloads ask for now."""
        actions: tuple[Action, ...] = ()
        held = {one.key.name: (one, raw) for one, raw in self.workloads()}
        pods = [self.pod(name) for name in self.pods()]
        seen = [(pod, encode(self.objects["Pod", pod.name])) for pod in pods if pod.is_managed]
        if seen:
            own = {one.owner_uid: (one, raw) for one, raw in held.values() if one.owner_uid is not None}
            facts = GangFacts(gang=self.gang, own=own, backoff=self.backoff)
            result = reconcile_gang(seen, held.get("g"), self.job_context, now=self.now, facts=facts)
            actions = result.actions
            self.wake_at = result.wake_at
        for workload, raw in held.values():
            lifecycle = replace(self.lifecycle, owner=self._owner(workload))
            actions += reconcile_workload(workload, raw, lifecycle, now=self.now).actions
        return actions

    def _owner(self, workload: Workload) -> Owner:
        held = {pod.uid for pod in map(self.pod, self.pods()) if pod.is_managed}
        if workload.owner_uid is None:
            return Owner.JOB if held else Owner.NONE
        return Owner.JOB if workload.owner_uid in held else Owner.MISSING


def make_gang(*names: str, gang: Gang | None = THREE, **fields: Any) -> GangWorld:
    """Return a settled world with these pods of g, the first named the oldest."""
    world = GangWorld(job_context=context())
    world.gang = gang
    for index, name in enumerate(names):
        world.add(gang_pod(name, created=index, **fields))
    world.settle()
    return world


def gang_pod(name: str, *, labels: Mapping[str, str] | None = None, **fields: Any) -> Object:
    """Return a pod of the PodGroup g."""
    return pod_object(name, labels=labels or {keys.POD_GROUP: "g"}, **fields)


def running(*names: str) -> GangWorld:
    """Return a world of which the minimum, the first three pods, runs."""
    world = make_gang(*names)
    admit(world, "g")
    return world


def admit(world: GangWorld, name: str | None) -> None:
    """Admit a Workload and let its pods run."""
    assert name is not None
    world.admit(name)
    world.settle()
    world.run()
    world.settle()


# --- the minimum and the rest --------------------------------------------------------------------


@pytest.mark.covers("004_12")
def test_a_gang_is_queued_once_its_minimum_exists_and_not_a_pod_sooner() -> None:
    world = make_gang("a", "b")
    assert not world.workloads()

    world.add(gang_pod("c", created=2))
    world.settle()

    (pod_set,) = world.workload("g")[0].pod_sets
    assert pod_set.count == 3
    assert world.ungated() == []


@pytest.mark.covers("001_23", "004_13")
def test_the_minimum_starts_as_one_and_the_rest_each_with_a_workload_of_its_own() -> None:
    world = make_gang("a", "b", "c", "d", "e")
    assert [world.own("d"), world.own("e")] == [None, None]

    admit(world, "g")

    assert world.ungated() == ["a", "b", "c"]
    admit(world, world.own("d"))
    assert world.ungated() == ["a", "b", "c", "d"]
    assert world.own("e") is not None


def test_pods_beyond_the_minimum_stop_with_it_and_may_be_the_minimum_of_the_next() -> None:
    world = running("a", "b", "c", "d", "e")
    admit(world, world.own("d"))

    world.evict("g")
    world.settle()
    world.run_kubelet()
    world.settle()

    # All that ran is gone, and what waited for room has no Workload of its own any more.
    assert [world.own(name) for name in "de"] == [None, None]
    assert [pod.name for pod in map(world.pod, world.pods()) if pod.is_alive] == ["e"]
    world.add(gang_pod("f", created=9))
    world.add(gang_pod("h", created=9))
    world.settle()
    admit(world, "g")
    assert {"e", "f", "h"} <= set(world.ungated())


def test_a_pod_that_waits_beyond_the_minimum_replaces_one_that_is_lost() -> None:
    world = running("a", "b", "c", "d")
    world.end("b", "Failed")

    world.settle()

    assert world.own("d") is None
    assert not world.pod("d").is_gated


def test_the_end_of_the_minimum_leaves_the_rest_in_the_queue() -> None:
    world = running("a", "b", "c", "d")
    for name in "abc":
        world.end(name)
    world.settle()

    assert world.workload("g")[0].is_finished
    admit(world, world.own("d"))
    world.end("d")
    world.settle()
    own = world.own("d")
    assert own is not None
    assert world.workload(own)[0].is_finished
    assert not any(world.pod(name).has_finalizer for name in world.pods())


def test_a_pod_that_comes_after_the_minimum_has_finished_runs_by_itself() -> None:
    world = running("a", "b", "c")
    for name in "abc":
        world.end(name)
    world.settle()

    world.add(gang_pod("late", created=9))
    world.settle()

    admit(world, world.own("late"))
    assert not world.pod("late").is_gated


def test_a_changed_minimum_counts_for_a_gang_that_waits_and_not_for_one_that_runs() -> None:
    world = make_gang("a", "b", "c", "d")
    world.gang = Gang(minimum=4)
    world.settle()
    assert [one.count for one in world.workload("g")[0].pod_sets] == [4]

    admit(world, "g")
    world.gang = Gang(minimum=2)
    world.settle()

    assert [one.count for one in world.workload("g")[0].pod_sets] == [4]
    assert world.ungated() == ["a", "b", "c", "d"]


# --- without a known minimum ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gang", "want"),
    [
        pytest.param(None, NOT_FOUND, id="the PodGroup does not exist"),
        pytest.param(
            Gang(fault="spec.minMember is 0"), "PodGroup team/g: spec.minMember is 0", id="is wrong"
        ),
    ],
)
def test_a_gang_without_a_minimum_waits_and_names_its_pod_group(gang: Gang | None, want: str) -> None:
    world = make_gang("a", "b", "c", gang=gang)

    assert warnings(world)[-1].startswith(want)
    assert (world.workloads(), world.ungated()) == ([], [])

    world.gang = THREE
    world.settle()
    admit(world, "g")
    assert world.ungated() == ["a", "b", "c"]


def test_a_pod_of_an_unknown_gang_can_be_deleted() -> None:
    world = make_gang("a", gang=None)

    world.delete("Pod", "a")
    world.settle()

    assert world.pods() == []


@pytest.mark.covers("004_15")
def test_a_gang_that_runs_outlives_its_pod_group() -> None:
    world = running("a", "b", "c")

    world.gang = None
    world.settle()

    assert world.ungated() == ["a", "b", "c"]


# --- time-outs -----------------------------------------------------------------------------------


@pytest.mark.covers("001_26", "004_14")
def test_a_gang_whose_pods_get_no_nodes_in_time_is_released_whole_and_queued_again() -> None:
    world = make_gang("a", "b", "c", "d", gang=Gang(minimum=3, timeout_seconds=60))
    world.admit("g")
    world.settle()
    world.run("a", "b")
    world.settle()
    assert world.wake_at == START + 60

    world.now = START + 60
    world.settle()
    world.run_kubelet()
    world.settle()

    workload, _ = world.workload("g")
    evicted = workload.eviction
    assert evicted is not None
    assert evicted.reason == EvictionReason.PODS_READY_TIMEOUT
    assert evicted.message.startswith("2 of 3 pods had nodes after 60 s")
    assert workload.admission is None
    assert workload.requeue_at == START + 120
    assert [pod.name for pod in map(world.pod, world.pods()) if pod.is_active] == []


def test_a_gang_that_has_used_up_its_retries_is_deactivated() -> None:
    world = make_gang("a", "b", "c", gang=Gang(minimum=3, timeout_seconds=60))
    world.backoff = PodsReadySettings(backoff_limit=0)
    world.admit("g")
    world.settle()

    world.now = START + 60
    world.settle()

    workload, _ = world.workload("g")
    assert not workload.active
    assert workload.eviction is not None
    assert workload.eviction.reason == "DeactivatedDueToRequeuingLimitExceeded"


def test_a_gang_whose_pods_all_have_nodes_is_left_alone_however_long_they_start() -> None:
    world = make_gang("a", "b", "c", gang=Gang(minimum=3, timeout_seconds=60))
    admit(world, "g")

    world.now = START + 600
    world.settle()

    assert not world.workload("g")[0].is_evicted
    assert world.wake_at is None


def test_a_gang_whose_pods_do_not_come_says_so_after_its_time() -> None:
    world = make_gang("a", "b", gang=Gang(minimum=3, timeout_seconds=60))
    assert warnings(world) == []
    assert world.wake_at == START + 60

    world.now = START + 60
    world.settle()

    assert warnings(world)[-1].startswith("2 of the 3 pods that must start together exist after 60 s")
    assert world.ungated() == []


# --- what labels and objects say -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"minMember": 4, "scheduleTimeoutSeconds": 10}, Gang(minimum=4, timeout_seconds=10), id="both"
        ),
        pytest.param({"minAvailable": 4}, Gang(minimum=4), id="by its older name"),
        pytest.param(
            {},
            Gang(fault="spec.minMember is missing, but must be a whole number from 1"),
            id="nothing",
        ),
        pytest.param(
            None,
            Gang(fault="spec.minMember is missing, but must be a whole number from 1"),
            id="no spec",
        ),
        pytest.param(
            {"minMember": "4"},
            Gang(fault="spec.minMember is '4', but must be a whole number from 1"),
            id="a text",
        ),
        pytest.param(
            {"minMember": 2, "scheduleTimeoutSeconds": 0},
            Gang(fault="spec.scheduleTimeoutSeconds is 0, but must be a whole number of seconds from 1"),
            id="no time at all",
        ),
    ],
)
def test_a_pod_group_as_its_definition_stores_it(spec: Object | None, want: Gang) -> None:
    raw = msgspec.json.encode({"metadata": {"name": "g", "namespace": "team"}, "spec": spec})

    assert to_gang(msgspec.json.decode(raw, type=PodGroupObject)) == want


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({keys.POD_GROUP_MIN_AVAILABLE: "3"}, Gang(minimum=3), id="a number"),
        pytest.param({}, None, id="none"),
        pytest.param(
            {keys.POD_GROUP_MIN_AVAILABLE: "all"},
            Gang(fault=f"{keys.POD_GROUP_MIN_AVAILABLE} is 'all', but must be a whole number from 1"),
            id="a word",
        ),
    ],
)
def test_a_minimum_among_labels(labels: Mapping[str, str], want: Gang | None) -> None:
    assert gang_of_texts(labels, {}) == want


def test_kueues_own_label_for_groups_takes_precedence() -> None:
    both = gang_pod("a", labels={keys.POD_GROUP: "g", keys.POD_GROUP_NAME: "other"})
    world = GangWorld(job_context=context())
    world.add(both)

    assert (world.pod("a").group, world.pod("a").gang) == ("other", "")


@pytest.mark.covers("001_21", "001_22")
@pytest.mark.parametrize(
    ("labels", "annotations", "owner", "want"),
    [
        pytest.param({"job-name": "t"}, {keys.MIN_REPLICAS: "4"}, None, "t", id="a gang"),
        pytest.param({"job-name": "t"}, {keys.MIN_REPLICAS: "1"}, None, "", id="a minimum of one"),
        pytest.param({"job-name": "t"}, {}, None, "", id="no minimum"),
        pytest.param({}, {keys.MIN_REPLICAS: "4"}, None, "", id="no label"),
        pytest.param({"job-name": "t"}, {keys.MIN_REPLICAS: "4"}, "Job", "", id="a pod of a Job"),
    ],
)
def test_pods_of_one_job_name_with_a_minimum_are_a_gang(
    labels: dict[str, str], annotations: dict[str, str], owner: str | None, want: str
) -> None:
    pod = pod_object("a", labels=labels, annotations=annotations)
    if owner is not None:
        reference = {"apiVersion": "batch/v1", "kind": owner, "name": "t", "uid": "u", "controller": True}
        pod["metadata"]["ownerReferences"] = [reference]

    found = in_gang(read_pod(pod))

    assert found.gang == want
    if want:
        assert gang_of_texts(found.labels, found.annotations) == Gang(minimum=4)


# --- Jobs ----------------------------------------------------------------------------------------


def make_job_world(minimum: int, **fields: Any) -> World:
    """Return a settled world with a Job of four pods that names PodGroup g."""
    gangs = lambda _, labels: Gang(minimum=minimum) if labels.get(keys.POD_GROUP) == "g" else None  # noqa: E731
    world = World(job_context=context(gang=gangs))
    world.add(job_object(labels={keys.POD_GROUP: "g"}, parallelism=4, completions=4, **fields))
    world.settle()
    return world


def test_a_job_that_names_a_pod_group_is_admitted_by_its_minimum_and_restored_afterwards() -> None:
    world = make_job_world(2)
    (workload, _) = world.workloads()[0]
    assert [(one.count, one.min_count) for one in workload.pod_sets] == [(4, 2)]

    world.admit(workload.key.name, count=2)
    world.settle()
    assert world.objects["Job", "j"]["spec"]["parallelism"] == 2

    world.evict(workload.key.name)
    world.settle()
    world.run_job_controller()
    world.settle()
    spec = world.objects["Job", "j"]["spec"]
    assert (spec["suspend"], spec["parallelism"]) == (True, 4)


def test_a_job_as_large_as_its_minimum_starts_whole() -> None:
    (workload, _) = make_job_world(4).workloads()[0]

    assert [(one.count, one.min_count) for one in workload.pod_sets] == [(4, None)]
