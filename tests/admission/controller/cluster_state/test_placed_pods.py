"""Placed pods on their way into the engine, and those that wait at the topology gate."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from msgspec import structs

from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Purpose, Verb, Write
from api import keys
from api.kube.informer import Change, ChangeType
from api.objects.cluster import PodObject
from api.workload import WorkloadKey
from tests.admission.controller.known import Known, workload_object
from tests.admission.world import UID, job_object

W = WorkloadKey("team", "w")
TOPOLOGY = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
GATE = {"name": "kueue.x-k8s.io/topology"}


def pod(name: str, *, version: int = 1, gated: bool = True, phase: str = "Pending") -> PodObject:
    """Return a pod of the Workload w, as its Job makes it."""
    raw = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": str(version),
            "labels": {"kueue.x-k8s.io/podset": "main"},
            "annotations": {"kueue.x-k8s.io/workload": "w", **TOPOLOGY},
        },
        "spec": {"schedulingGates": [GATE] if gated else None},
        "status": {"phase": phase},
    }
    return msgspec.convert(raw, PodObject)


def see(known: Known, obj: PodObject, type_: ChangeType = ChangeType.MODIFIED) -> None:
    """Let the pod be seen."""
    known.cluster_state.placed_pods.take_pod(Change(type_, obj, None, None))


def names(known: Known) -> list[tuple[str, bool]]:
    """Return the Workload's pods and whether each is gated."""
    return [(one.name, one.is_gated) for one in known.cluster_state.placed_pods.pods_of(W)]


def test_pods_keep_the_order_in_which_they_were_first_seen() -> None:
    known = Known()
    for name in ("b", "a"):
        see(known, pod(name))

    see(known, pod("b", version=2, gated=False))

    assert names(known) == [("b", False), ("a", True)]


def test_a_gated_pod_marks_its_workload() -> None:
    known = Known()

    see(known, pod("a"))

    assert known.cluster_state.marks.take_workload() == ("team", "w")


def test_a_late_pod_that_is_bound_for_a_node_marks_its_workload_once() -> None:
    known, late = Known(), pod("a", gated=False)
    late = structs.replace(
        late, spec=structs.replace(late.spec, node_selector={"kubernetes.io/hostname": "n1"})
    )

    see(known, late)

    marks = known.cluster_state.marks
    assert marks.take_workload() == ("team", "w")
    see(known, structs.replace(late, metadata=structs.replace(late.metadata, resource_version="2")))
    assert marks.take_workload() is None


def test_the_answer_to_a_patch_counts_before_the_watch_reports() -> None:
    known = Known()
    see(known, pod("a"))

    assert known.cluster_state.see_raw("Pod", msgspec.json.encode(pod("a", version=2, gated=False)))
    see(known, pod("a", version=1))

    assert names(known) == [("a", False)]


def test_a_pod_that_ended_gives_its_place_to_another() -> None:
    known = Known()
    see(known, pod("a"))
    see(known, pod("b"))
    known.cluster_state.marks.take_workload()

    see(known, pod("a", version=2, phase="Failed"))
    see(known, pod("b", version=2), ChangeType.DELETED)

    assert names(known) == []
    assert known.cluster_state.marks.take_workload() == ("team", "w")


def ungate(name: str, node: str) -> Write:
    """Return the patch that lets the pod go to a node."""
    body = msgspec.json.encode({"spec": {"nodeSelector": {"host": node}}})
    return Write(
        verb=Verb.MERGE_PATCH,
        kind="Pod",
        namespace="team",
        name=name,
        body=body,
        uid=name,
        purpose=Purpose.UNGATE_POD,
    )


def promises(known: Known) -> dict[str, object]:
    return {one.name: one.promised for one in known.cluster_state.placed_pods.pods_of(W)}


def test_a_patch_on_its_way_is_remembered_until_it_is_answered() -> None:
    known = Known()
    see(known, pod("a"))
    known.cluster_state.placed_pods.promise(ungate("a", "n0"))
    see(known, pod("a", version=2))
    assert promises(known) == {"a": {"host": "n0"}}
    while known.cluster_state.marks.take_workload() is not None:
        pass

    known.cluster_state.placed_pods.answered("a")

    assert promises(known) == {"a": None}
    assert known.cluster_state.marks.take_workload() == ("team", "w")


def test_the_address_in_a_patch_on_its_way_counts_as_the_pods() -> None:
    known = Known()
    see(known, pod("a"))
    body = {"metadata": {"annotations": {"berth.dev/address": "10.0.0.1"}}, "spec": {"nodeSelector": {}}}
    known.cluster_state.placed_pods.promise(replace(ungate("a", "n0"), body=msgspec.json.encode(body)))

    (found,) = known.cluster_state.placed_pods.pods_of(W)
    assert found.address == "10.0.0.1"

    known.cluster_state.placed_pods.answered("a")
    (found,) = known.cluster_state.placed_pods.pods_of(W)
    assert found.address == ""


def test_an_ungated_pod_and_another_term_end_the_promise() -> None:
    known = Known()
    for name in ("a", "b"):
        see(known, pod(name))
        known.cluster_state.placed_pods.promise(ungate(name, "n0"))

    see(known, pod("a", version=2, gated=False))
    assert promises(known) == {"a": None, "b": {"host": "n0"}}

    known.cluster_state.placed_pods.forget_promises()
    assert promises(known) == {"a": None, "b": None}


def refused(name: str, *, version: int, reason: str = "Unschedulable", placed: bool = True) -> PodObject:
    """Return the pod with the condition that kube-scheduler sets; its time is that of its gate."""
    raw = msgspec.to_builtins(pod(name, version=version, gated=False))
    raw["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": "0/1 nodes are available",
            "lastTransitionTime": "2020-01-01T00:00:00Z",
        }
    ]
    if not placed:
        raw["metadata"]["annotations"] = {"kueue.x-k8s.io/workload": "w"}
    return msgspec.convert(raw, PodObject)


def refused_since(known: Known) -> list[float | None]:
    """Return since when each of the Workload's pods has no node."""
    pods = known.cluster_state.placed_pods.pods_of(W)
    return [one.unschedulable.since if one.unschedulable is not None else None for one in pods]


def test_a_pod_without_a_node_marks_its_workload_once_and_keeps_its_first_time() -> None:
    known = Known()
    see(known, refused("a", version=1, reason="SchedulingGated"))
    known.cluster_state.marks.take_workload()
    assert refused_since(known) == [None]

    see(known, refused("a", version=2))
    first = known.clock.now()
    assert known.cluster_state.marks.take_workload() == ("team", "w")
    known.clock.at += 30
    see(known, refused("a", version=3))

    assert refused_since(known) == [first]
    assert known.cluster_state.marks.take_workload() is None

    see(known, pod("a", version=4, gated=False))
    assert refused_since(known) == [None]
    assert known.cluster_state.marks.take_workload() == ("team", "w")


def test_a_pod_of_a_flavor_without_topology_is_kept_once_it_has_no_node() -> None:
    known = Known()
    see(known, refused("a", version=1, reason="", placed=False))
    assert names(known) == []

    see(known, refused("a", version=2, placed=False))

    assert len(refused_since(known)) == 1


def running(name: str) -> PodObject:
    """Return a pod on a node, of which only its annotation says that it is of the Workload w."""
    raw = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": name,
            "resourceVersion": "1",
            "annotations": {"kueue.x-k8s.io/workload": "w"},
        },
        "spec": {"nodeName": "n0"},
        "status": {"phase": "Running"},
    }
    return msgspec.convert(raw, PodObject)


def test_a_pod_on_a_node_counts_for_its_workload_whatever_labels_it_has() -> None:
    """Kueue: the node controller looks for pods by the annotation and the node alone."""
    known = Known()

    see(known, running("a"))
    assert [(one.name, one.node) for one in known.cluster_state.placed_pods.pods_of(W)] == [("a", "n0")]

    see(known, running("a"), ChangeType.DELETED)
    assert known.cluster_state.marks.take_workload() == ("team", "w")


def elastic_pod(name: str, *, gated: bool = False, ends: bool = False, phase: str = "Running") -> PodObject:
    """Return a pod of the elastic Job whose first slice is w."""
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": name,
        "resourceVersion": "1",
        "labels": {keys.POD_SET: "workers"},
        "annotations": {keys.SLICE_NAME: "w"},
        **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ends else {}),
    }
    gates = [{"name": keys.ELASTIC_GATE}] if gated else None
    raw = {"metadata": metadata, "spec": {"schedulingGates": gates}, "status": {"phase": phase}}
    return msgspec.convert(raw, PodObject)


@pytest.mark.parametrize(
    ("pods", "want_in_use", "want_leaving"),
    [
        pytest.param([elastic_pod("a"), elastic_pod("b")], 2, 0, id="those that run"),
        pytest.param([elastic_pod("a"), elastic_pod("b", gated=True)], 1, 0, id="not one at its gate"),
        pytest.param([elastic_pod("a"), elastic_pod("a", ends=True)], 1, 1, id="one that ends"),
        pytest.param([elastic_pod("a", ends=True)], 1, 1, id="one that is seen only as it ends"),
        pytest.param([elastic_pod("a", gated=True, ends=True)], 0, 0, id="not one that never ran"),
        pytest.param(
            [elastic_pod("a", ends=True), elastic_pod("a", ends=True, phase="Failed")],
            0,
            0,
            id="not one that has ended",
        ),
    ],
)
def test_pods_of_an_elastic_job_are_in_use_until_they_have_ended(
    pods: list[PodObject], want_in_use: int, want_leaving: int
) -> None:
    known = Known()
    for one in pods:
        see(known, one)

    placed = known.cluster_state.placed_pods
    assert placed.in_use(W).get("workers", 0) == want_in_use
    assert placed.leaving(W).get("workers", 0) == want_leaving


def test_an_elastic_pod_whose_gate_is_just_being_removed_is_in_use() -> None:
    known = Known()
    see(known, elastic_pod("a", gated=True))

    known.cluster_state.placed_pods.promise(ungate("a", "n0"))

    assert known.cluster_state.placed_pods.in_use(W) == {"workers": 1}


@pytest.mark.parametrize("how", [ChangeType.MODIFIED, ChangeType.DELETED], ids=["it fails", "it is gone"])
def test_an_elastic_job_is_looked_at_when_a_pod_of_it_has_ended(how: ChangeType) -> None:
    marks = {keys.ELASTIC_JOB: "true", keys.SLICE_NAME: "w"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": UID, "controller": True}
    known = Known(
        job_object(),
        workload_object("w", "team", "lq", annotations=marks, owners=[owner]),
    )
    see(known, elastic_pod("a", ends=True))
    while known.cluster_state.marks.take_job() is not None:
        pass

    see(known, elastic_pod("a", ends=True, phase="Failed"), how)

    assert known.cluster_state.placed_pods.in_use(W) == {}
    assert known.cluster_state.marks.take_job() == ObjectTarget("Job", "team", "j")
