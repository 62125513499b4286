"""Nodes and pods on their way into the engine, and the pods that wait at the topology gate."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Event, Purpose, Verb, Write
from api.kube.informer import Change, ChangeType
from api.objects.cluster import NodeObject, NodeStatus, PodObject
from api.workload import Workload, WorkloadKey
from tests.admission.controller.known import Known, made

W = WorkloadKey("team", "w")
TOPOLOGY = {"kueue.x-k8s.io/podset-unconstrained-topology": "true"}
GATE = {"name": "kueue.x-k8s.io/topology"}


def flavor(topology: str | None) -> dict[str, Any]:
    """Return a flavor with or without a topology."""
    return made("ResourceFlavor", "gpus", spec={"topologyName": topology} if topology else {})


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
    known.cluster_state.node_pods.take_pod(Change(type_, obj, None, None))


def names(known: Known) -> list[tuple[str, bool]]:
    """Return the Workload's pods and whether each is gated."""
    return [(one.name, one.is_gated) for one in known.cluster_state.node_pods.pods_of(W)]


def test_nodes_and_pods_are_needed_once_a_flavor_names_a_topology() -> None:
    known = Known(flavor(None))
    assert not known.cluster_state.node_pods.is_needed

    known.tell(flavor("racks"))

    assert known.cluster_state.node_pods.is_needed


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
    return {one.name: one.promised for one in known.cluster_state.node_pods.pods_of(W)}


def test_a_patch_on_its_way_is_remembered_until_it_is_answered() -> None:
    known = Known(flavor("racks"))
    see(known, pod("a"))
    known.cluster_state.node_pods.promise(ungate("a", "n0"))
    see(known, pod("a", version=2))
    assert promises(known) == {"a": {"host": "n0"}}
    while known.cluster_state.marks.take_workload() is not None:
        pass

    known.cluster_state.node_pods.answered("a")

    assert promises(known) == {"a": None}
    assert known.cluster_state.marks.take_workload() == ("team", "w")


def test_an_ungated_pod_and_another_term_end_the_promise() -> None:
    known = Known(flavor("racks"))
    for name in ("a", "b"):
        see(known, pod(name))
        known.cluster_state.node_pods.promise(ungate(name, "n0"))

    see(known, pod("a", version=2, gated=False))
    assert promises(known) == {"a": None, "b": {"host": "n0"}}

    known.cluster_state.node_pods.forget_promises()
    assert promises(known) == {"a": None, "b": None}


def make_node(name: str, labels: dict[str, str], *, version: int = 1) -> NodeObject:
    """Return a ready node of the pool a."""
    raw = {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": str(version),
            "labels": {"pool": "a", **labels},
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8"}},
    }
    return msgspec.convert(raw, NodeObject)


def fabric() -> Known:
    """Return what is known of a cluster of blocks, racks and hosts, before any node."""
    levels = [{"nodeLabel": label} for label in ("block", "rack", HOST)]
    flavor_spec = {"nodeLabels": {"pool": "a"}, "topologyName": "fabric"}
    return Known(
        made("Topology", "fabric", spec={"levels": levels}), made("ResourceFlavor", "gpus", spec=flavor_spec)
    )


HOST = "kubernetes.io/hostname"
WELL = {"block": "b0", "rack": "r0", HOST: "n0"}


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param(WELL, None, id="well"),
        pytest.param(
            {"block": "b0", HOST: "n0"},
            "node n0 lacks the label rack of Topology fabric: nothing that asks for a topology is placed",
            id="a label is missing",
        ),
        pytest.param({**WELL, "pool": "b", "rack": ""}, None, id="of another pool"),
        pytest.param({**WELL, "rack": ""}, "node n0: label rack is empty", id="a label is empty"),
        pytest.param(
            {**WELL, "rack": "r" * 64}, "node n0: label rack is 64 characters long", id="a label is too long"
        ),
        pytest.param(
            {**WELL, HOST: "n1"}, "shares the kubernetes.io/hostname 'n1' with n1", id="two of one name"
        ),
        pytest.param(
            {**WELL, "rack": "r9"},
            "rack 'r9' of node n0 lies within block 'b0', and elsewhere within b1: they are domains",
            id="a rack under two blocks",
        ),
    ],
)
def test_faults_of_a_nodes_labels_are_reported(labels: dict[str, str], want: str | None) -> None:
    known = fabric()
    ground, inspection = known.cluster_state.node_pods, known.cluster_state.inspection
    ground.take_node(Change(ChangeType.ADDED, make_node("n0", labels), None, None))
    ground.take_node(
        Change(ChangeType.ADDED, make_node("n1", {"block": "b1", "rack": "r9", HOST: "n1"}), None, None)
    )

    ground.note_synced()

    sentence = inspection.sentence("Node", "", "n0")
    assert (sentence is None) if want is None else (sentence is not None and want in sentence)
    if want is not None:
        (event,) = inspection.take_unreported(now=0.0)[:1]
        assert isinstance(event, Event)
        assert (event.regarding.kind, event.regarding.api_version, event.type) == ("Node", "v1", "Warning")
    ground.take_node(Change(ChangeType.MODIFIED, make_node("n0", WELL, version=2), None, None))
    assert inspection.sentence("Node", "", "n0") is None


def test_a_price_that_cannot_be_read_is_named_on_its_node_and_counted_once() -> None:
    known = fabric()
    ground, inspection = known.cluster_state.node_pods, known.cluster_state.inspection
    ground.note_synced()

    for version, text in enumerate(["cheap", "cheap", "32.77"], start=1):
        labels = {**WELL, "node-cost-per-hour": text}
        ground.take_node(Change(ChangeType.MODIFIED, make_node("n0", labels, version=version), None, None))
        sentence = inspection.sentence("Node", "", "n0")
        assert (sentence or "").startswith("label node-cost-per-hour is 'cheap'") is (text == "cheap")

    counted = known.metrics.registry.get_sample_value(
        "berth_unreadable_objects_total", {"kind": "NodePrice", "replica_role": "follower"}
    )
    assert counted == 1


def test_another_topology_asks_other_labels_of_the_nodes() -> None:
    known = fabric()
    ground, inspection = known.cluster_state.node_pods, known.cluster_state.inspection
    ground.take_node(Change(ChangeType.ADDED, make_node("n0", WELL), None, None))
    ground.note_synced()
    assert inspection.sentence("Node", "", "n0") is None

    levels = [{"nodeLabel": label} for label in ("zone", "block", "rack", HOST)]
    known.tell(made("Topology", "fabric", spec={"levels": levels}))
    sentence = inspection.sentence("Node", "", "n0")
    assert sentence is not None
    assert "lacks the label zone of Topology fabric" in sentence

    known.tell(made("Topology", "fabric", spec={"levels": levels[1:]}))
    assert inspection.sentence("Node", "", "n0") is None


def test_before_all_nodes_are_there_nothing_is_concluded_from_what_is_missing() -> None:
    known = fabric()
    ground = known.cluster_state.node_pods
    ground.take_node(Change(ChangeType.ADDED, make_node("n0", {"block": "b0"}), None, None))

    assert known.cluster_state.inspection.sentence("Node", "", "n0") is None
    assert ground.faults(Workload(key=W, uid="w", created_at=0.0, pod_sets=())) is None


def test_when_most_nodes_are_away_the_network_is_and_not_the_nodes() -> None:
    known = fabric()
    ground = known.cluster_state.node_pods

    def see_nodes(*ready: bool) -> bool:
        for number, is_ready in enumerate(ready):
            node = make_node(f"n{number}", {**WELL, HOST: f"n{number}"})
            status = msgspec.convert(
                {"conditions": [{"type": "Ready", "status": "True" if is_ready else "Unknown"}]}, NodeStatus
            )
            shown = msgspec.structs.replace(node, status=status)
            ground.take_node(Change(ChangeType.MODIFIED, shown, None, None))
        return ground.is_disrupted

    assert not see_nodes(True, True, True)
    assert not see_nodes(False, True, True)
    assert see_nodes(False, False, True)
    assert not see_nodes(False, True, True)
