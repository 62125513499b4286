"""A pod that owns an admitted Workload is in its queue, though it never waited for it: `kueue importer`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.reconcile.pod.imported import holds_quota
from api import keys
from api.workload import Workload, WorkloadKey
from tests.admission.podworld import PodWorld, pod_object, read_pod, said
from tests.admission.world import Object, context

OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}


def bare(**labels: Any) -> Object:
    """Return a running pod that was never gated, with the labels that the importer adds."""
    pod = pod_object(labels=labels)
    del pod["metadata"]["finalizers"], pod["spec"]["schedulingGates"]
    pod["spec"]["nodeName"] = "node"
    pod["status"] = {"phase": "Running"}
    return pod


def of_importer() -> Object:
    """Return the Workload that the importer creates for the pod, before its quota is recorded."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"queueName": "lq", "podSets": [{"name": "main", "count": 1, "template": template}]}
    metadata = {"name": "pod-p-1", "namespace": "team", "uid": "uid-w", "resourceVersion": "1"}
    owners = {"ownerReferences": [OWNER], "finalizers": [keys.RESOURCE_IN_USE]}
    return {"kind": "Workload", "metadata": {**metadata, **owners}, "spec": spec, "status": {}}


def imported() -> PodWorld:
    """Return a world in which the importer has put a running pod into a queue."""
    world = PodWorld(job_context=context())
    world.add(bare())
    world.add(of_importer())
    world.admit("pod-p-1")
    world.settle()
    return world


def known(world: PodWorld) -> Workload:
    """Return the Workload of the importer."""
    return world.workload("pod-p-1")[0]


def test_the_workload_of_an_imported_pod_stays_admitted_while_the_pod_runs() -> None:
    world = imported()

    assert known(world).is_admitted
    assert not world.pod("p").is_deleted


@pytest.mark.parametrize(("phase", "want"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_the_workload_of_an_imported_pod_finishes_as_the_pod_does(phase: str, want: str) -> None:
    world = imported()

    world.end("p", phase)
    world.settle()

    assert said(world)["Finished"] == want


def test_an_imported_pod_is_stopped_when_its_workload_is_evicted() -> None:
    world = imported()

    world.evict("pod-p-1")
    world.settle()

    assert world.pods() == []


def test_a_pod_counts_as_queued_if_its_own_workload_holds_quota_for_it() -> None:
    assert holds_quota(read_pod(bare()), [known(imported())])


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"owner_uid": "uid-other"}, id="the Workload names another pod of the same name"),
        pytest.param({"owner_kind": "Job"}, id="the Workload names an object of another kind"),
        pytest.param({"key": WorkloadKey("other", "pod-p-1")}, id="the Workload is in another namespace"),
        pytest.param({"admission": None}, id="the Workload waits for quota"),
    ],
)
def test_a_pod_does_not_count_as_queued_by_a_workload_that_is_not_its_own(changes: dict[str, Any]) -> None:
    workload = known(imported())

    assert not holds_quota(read_pod(bare()), [replace(workload, **changes)])


def test_a_pod_does_not_count_as_queued_by_a_workload_that_it_only_names() -> None:
    workload = replace(known(imported()), owner_uid="uid-other")

    assert not holds_quota(read_pod(bare(**{keys.PREBUILT_WORKLOAD_NAME: "pod-p-1"})), [workload])
