"""The life of an elastic RayJob or RayService, whose RayCluster Ray's autoscaler changes.

Source: Kueue, pkg/controller/jobs/raycluster/common.go.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from api import keys
from api.jobs.job_workload import workload_name
from api.jobs.owners.ray import RAY_JOB, RAY_SERVICE
from api.jobs.owners.row import OwnerKind
from api.reasons import EvictionReason
from tests.admission.world import Object, World, context
from tests.owners import SAMPLES, UID

CLUSTER_AT = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
each_kind = pytest.mark.parametrize("row", [RAY_JOB, RAY_SERVICE], ids=str)


class RayWorld(World):
    """An elastic object of a kind named j, with a head and two workers, and its RayClusters."""

    def __init__(self, row: OwnerKind) -> None:
        super().__init__(job_context=context(read=self.read))
        self.row = row
        self.sample = next(one for one in SAMPLES if one.row is row)
        body = self.sample.object(annotations={keys.ELASTIC_JOB: "true"})
        spec = body["spec"][CLUSTER_AT[row.kind]]
        spec["enableInTreeAutoscaling"] = True
        spec["workerGroupSpecs"] = spec["workerGroupSpecs"][:1]
        self.add(body)
        self.settle()

    def read(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object as JobContext does."""
        del namespace
        return self.objects.get((kind, name))

    @property
    def owner(self) -> Object:
        """Return the object as it is."""
        return self.objects[self.row.kind, "j"]

    def start(self) -> str:
        """Admit the only Workload, and let KubeRay start the object; return the name of the Workload."""
        name = self.only_workload()
        self.admit(name)
        self.settle()
        self.create_cluster("j-a")
        self.settle()
        return name

    def create_cluster(self, name: str, *others: str) -> None:
        """Let KubeRay create a RayCluster as the object describes it, beside others that it has."""
        reference = {"apiVersion": "ray.io/v1", "kind": self.row.kind, "name": "j", "uid": UID}
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"uid-of-{name}",
            "ownerReferences": [{**reference, "controller": True}],
        }
        spec = copy.deepcopy(self.owner["spec"][CLUSTER_AT[self.row.kind]])
        self.add({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec})
        self.edit(self.row.kind, "j", lambda obj: obj.update(status=self._status(name, *others)))

    def autoscale(self, name: str, workers: int) -> None:
        """Set the number of workers of a RayCluster."""
        self.now += 1
        self.edit("RayCluster", name, lambda obj: _small(obj["spec"]).update(replicas=workers))
        self.settle()

    def slices(self) -> list[tuple[int, int, str]]:
        """Return the heads and workers of each slice, the oldest first, and how it stands."""
        found = sorted((one for one, _ in self.workloads()), key=lambda one: (one.created_at, one.key.name))
        return [(one.pod_sets[0].count, one.pod_sets[1].count, _state(one)) for one in found]

    def newest(self) -> str:
        """Return the name of the slice that was created last."""
        return max((one for one, _ in self.workloads()), key=lambda one: one.created_at).key.name

    def _status(self, *names: str) -> Object:
        if self.row is RAY_JOB:
            return {**self.sample.ready, "rayClusterName": names[0]}
        fields = ("pendingServiceStatus", "activeServiceStatus")[-len(names) :]
        named = {field: {"rayClusterName": name} for field, name in zip(fields, names, strict=True)}
        return {**self.sample.ready, **named}


def _small(spec: Object) -> Object:
    found: Object = spec["workerGroupSpecs"][0]
    return found


def _state(workload: Any) -> str:
    if workload.is_finished:
        return str(workload.end.reason)
    return "admitted" if workload.is_admitted else "waits"


@each_kind
def test_workers_that_rays_autoscaler_adds_wait_in_a_slice_and_fewer_are_counted(row: OwnerKind) -> None:
    world = RayWorld(row)
    first = world.start()
    hosts = world.slices()[0][1] // 2
    generation = world.owner["metadata"]["generation"]

    world.autoscale("j-a", 5)

    assert world.slices() == [(1, 2 * hosts, "admitted"), (1, 5 * hosts, "waits")]
    # As Kueue names it: by the generations of both.
    of_cluster = world.objects["RayCluster", "j-a"]["metadata"]["generation"]
    extra = f"{generation}_{of_cluster}"
    assert world.newest() == workload_name(row.kind, row.group, "j", UID, extra=extra)

    world.admit(world.newest())
    world.settle()
    world.autoscale("j-a", 1)

    assert world.slices() == [(1, 2 * hosts, "WorkloadSliceReplaced"), (1, hosts, "admitted")]
    metadata = world.objects["Workload", world.newest()]["metadata"]
    assert metadata["annotations"][keys.SLICE_NAME] == first
    # The object itself runs on as it is.
    assert (world.owner["metadata"]["generation"], _is_suspended(world)) == (generation, False)


@each_kind
def test_one_that_is_evicted_starts_again_as_its_author_wrote_it(row: OwnerKind) -> None:
    world = RayWorld(row)
    world.start()
    ((heads, written, _),) = world.slices()
    world.autoscale("j-a", 5)
    world.admit(world.newest())
    world.settle()

    world.evict(world.newest(), EvictionReason.PREEMPTED)
    world.settle()
    assert _is_suspended(world)
    world.objects.pop(("RayCluster", "j-a"))
    world.edit(row.kind, "j", lambda obj: obj.update(status=world.sample.stopped))
    world.settle()

    assert world.slices()[-1] == (heads, written, "waits")


def test_a_cluster_that_takes_the_place_of_another_gets_a_slice_though_its_generation_is_not_new() -> None:
    world = RayWorld(RAY_JOB)
    world.start()
    world.autoscale("j-a", 5)
    world.admit(world.newest())
    world.settle()
    world.objects.pop(("RayCluster", "j-a"))
    world.create_cluster("j-b")
    world.settle()
    hosts = world.slices()[-1][1] // 2

    world.autoscale("j-b", 6)

    assert world.slices()[1:] == [(1, 2 * hosts, "admitted"), (1, 6 * hosts, "waits")]


def test_both_clusters_of_an_upgrade_need_quota() -> None:
    world = RayWorld(RAY_SERVICE)
    world.start()
    hosts = world.slices()[0][1] // 2

    world.now += 1
    world.create_cluster("j-b", "j-a")
    world.settle()

    assert world.slices() == [(1, 2 * hosts, "admitted"), (2, 4 * hosts, "waits")]
    assert not _is_suspended(world)


def _of_another(cluster: Object) -> None:
    cluster["metadata"]["ownerReferences"][0]["uid"] = "other"


def _suspended(cluster: Object) -> None:
    cluster["spec"]["suspend"] = True


@pytest.mark.parametrize(
    "change",
    [pytest.param(_of_another, id="of another object"), pytest.param(_suspended, id="that is suspended")],
)
def test_a_cluster_says_nothing(change: Callable[[Object], None]) -> None:
    world = RayWorld(RAY_JOB)
    world.start()
    world.edit("RayCluster", "j-a", change)

    world.autoscale("j-a", 5)

    assert [state for *_, state in world.slices()] == ["admitted"]


@each_kind
def test_one_whose_cluster_loses_its_gates_is_stopped(row: OwnerKind) -> None:
    world = RayWorld(row)
    world.start()
    assert keys.ELASTIC_GATE in str(world.objects["RayCluster", "j-a"])

    def without_gates(obj: Object) -> None:
        _small(obj["spec"])["template"]["spec"].pop("schedulingGates")

    world.edit("RayCluster", "j-a", without_gates)
    world.settle()

    assert _is_suspended(world)


def _is_suspended(world: RayWorld) -> bool:
    found: Any = world.owner
    for step in world.row.suspend:
        found = found[step]
    return bool(found)
