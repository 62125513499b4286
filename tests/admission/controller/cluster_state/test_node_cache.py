"""Nodes on their way into the engine, their faults, and what is wrong with their labels."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.controller.cluster_state.node_cache import MAX_NODES_REPORTED
from admission.decisions.api_writes import Event
from api.kube.informer import Change, ChangeType
from api.objects.cluster import NodeObject, NodeStatus, PodObject
from api.workload import Workload, WorkloadKey
from tests.admission.controller.known import Known, made

W = WorkloadKey("team", "w")
GPU = "nvidia.com/gpu"


def flavor(topology: str | None) -> dict[str, Any]:
    """Return a flavor with or without a topology."""
    return made("ResourceFlavor", "gpus", spec={"topologyName": topology} if topology else {})


def test_nodes_and_pods_are_needed_once_a_flavor_names_a_topology() -> None:
    known = Known(flavor(None))
    assert not known.cluster_state.nodes.needed.is_set()

    known.tell(flavor("racks"))

    assert known.cluster_state.nodes.needed.is_set()


def make_node(
    name: str,
    labels: dict[str, str],
    *,
    version: int = 1,
    annotations: dict[str, str] | None = None,
    gpus: int = 0,
) -> NodeObject:
    """Return a ready node of the pool a."""
    raw = {
        "metadata": {
            "name": name,
            "uid": name,
            "resourceVersion": str(version),
            "labels": {"pool": "a", **labels},
            "annotations": annotations or {},
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8", GPU: str(gpus)},
        },
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
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.take_node(Change(ChangeType.ADDED, make_node("n0", labels), None, None))
    nodes.take_node(
        Change(ChangeType.ADDED, make_node("n1", {"block": "b1", "rack": "r9", HOST: "n1"}), None, None)
    )

    nodes.note_synced()

    sentence = inspection.sentence("Node", "", "n0")
    assert (sentence is None) if want is None else (sentence is not None and want in sentence)
    if want is not None:
        (event,) = inspection.take_unreported(now=0.0)[:1]
        assert isinstance(event, Event)
        assert (event.regarding.kind, event.regarding.api_version, event.type) == ("Node", "v1", "Warning")
    nodes.take_node(Change(ChangeType.MODIFIED, make_node("n0", WELL, version=2), None, None))
    assert inspection.sentence("Node", "", "n0") is None


def test_a_price_that_cannot_be_read_is_named_on_its_node_and_counted_once() -> None:
    known = fabric()
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.note_synced()

    for version, text in enumerate(["cheap", "cheap", "32.77"], start=1):
        labels = {**WELL, "node-cost-per-hour": text}
        nodes.take_node(Change(ChangeType.MODIFIED, make_node("n0", labels, version=version), None, None))
        sentence = inspection.sentence("Node", "", "n0")
        assert (sentence or "").startswith("label node-cost-per-hour is 'cheap'") is (text == "cheap")

    counted = known.metrics.registry.get_sample_value(
        "berth_unreadable_objects_total", {"kind": "NodePrice", "replica_role": "follower"}
    )
    assert counted == 1


def test_a_node_whose_amounts_cannot_be_read_is_named_and_not_used() -> None:
    known = fabric()
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.note_synced()
    node = make_node("n0", WELL)
    assert node.status.allocatable is not None
    broken = msgspec.structs.replace(
        node, status=msgspec.structs.replace(node.status, allocatable={"cpu": "lots"})
    )
    nodes.take_node(Change(ChangeType.ADDED, broken, None, None))

    said = inspection.sentence("Node", "", "n0") or ""
    assert said.startswith("node n0 is not used: status.allocatable.cpu: 'lots' is not a quantity")
    assert known.cluster_state.engine.nodes.node("n0") is None
    nodes.take_node(Change(ChangeType.MODIFIED, make_node("n0", WELL, version=2), None, None))
    assert inspection.sentence("Node", "", "n0") is None


@pytest.mark.parametrize(
    ("agent", "want"),
    [
        pytest.param("9.9.9", "its node agent has version 9.9.9, and this controller ", id="another one"),
        pytest.param("", None, id="none"),
    ],
)
def test_an_agent_of_another_version_is_named_once(agent: str, want: str | None) -> None:
    known = fabric()
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.note_synced()
    agents = {"berth.dev/node-agent-version": agent} if agent else {}

    nodes.take_node(Change(ChangeType.ADDED, make_node("n0", WELL, annotations=agents), None, None))
    assert (inspection.sentence("Node", "", "n0") or "").startswith(want or "")
    assert len(inspection.take_unreported(now=0.0)) == (want is not None)
    nodes.take_node(Change(ChangeType.MODIFIED, make_node("n0", WELL, annotations=agents), None, None))
    assert inspection.take_unreported(now=0.0) == ()

    labels = {**WELL, "berth.dev/nvlink-island.0": "0..3"}
    node = make_node("n0", labels, version=2, annotations=agents)
    nodes.take_node(Change(ChangeType.MODIFIED, node, None, None))
    said = inspection.sentence("Node", "", "n0") or ""
    assert "nvlink-island.0='0..3'" in said
    assert (want or "") in said
    assert ("node agent" in said) is (want is not None)


def make_pod(name: str, gpus: str, *, phase: str = "Running") -> PodObject:
    """Return a pod on the node n0 that requests a GPU, and records these."""
    container = {"name": "c", "resources": {"limits": {GPU: "1"}, "requests": {GPU: "1"}}}
    metadata = {"namespace": "team", "name": name, "uid": name, "annotations": {"berth.dev/gpu-ids": gpus}}
    spec = {"nodeName": "n0", "containers": [container]}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": phase}}, PodObject)


@pytest.mark.parametrize("are_pods_first", [True, False], ids=["pods before their node", "pods after it"])
def test_a_gpu_that_two_pods_record_is_named_on_their_node_until_one_has_ended(are_pods_first: bool) -> None:
    known = fabric()
    state, inspection = known.cluster_state, known.cluster_state.inspection
    node = Change(ChangeType.ADDED, make_node("n0", WELL), None, None)
    if not are_pods_first:
        state.take_node(node)
        state.nodes.note_synced()
    for name, gpus in {"a": "0", "b": "0", "c": "3"}.items():
        state.take_pod(Change(ChangeType.ADDED, make_pod(name, gpus), None, None))
    if are_pods_first:
        state.take_node(node)
        state.nodes.note_synced()

    (event,) = inspection.take_unreported(now=0.0)
    assert isinstance(event, Event)
    assert (event.regarding.kind, event.regarding.name, event.reason) == ("Node", "n0", "InvalidSpec")
    assert event.note == (
        "GPU 0 of node n0 is in the annotation berth.dev/gpu-ids of the pods team/a and team/b, but one GPU"
        " is for one pod or for shares of it; what is beyond it counts by the GPUs that the pod requests"
    )
    state.take_pod(Change(ChangeType.MODIFIED, make_pod("a", "0", phase="Succeeded"), None, None))
    assert inspection.sentence("Node", "", "n0") is None


def test_a_gpu_that_its_node_offers_in_slices_may_be_recorded_by_several_pods() -> None:
    known = fabric()
    state = known.cluster_state
    node = make_node("n0", {**WELL, "nvidia.com/gpu.replicas": "4"}, gpus=8)
    state.take_node(Change(ChangeType.ADDED, node, None, None))
    state.nodes.note_synced()
    for name in ("a", "b"):
        state.take_pod(Change(ChangeType.ADDED, make_pod(name, "0"), None, None))

    assert state.inspection.sentence("Node", "", "n0") is None


def test_agents_of_another_version_on_many_nodes_hide_no_other_fault() -> None:
    known = fabric()
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.note_synced()
    agent = {"berth.dev/node-agent-version": "9.9.9"}
    for number in range(2 * MAX_NODES_REPORTED):
        node = make_node(f"n{number}", {**WELL, HOST: f"n{number}"}, annotations=agent)
        nodes.take_node(Change(ChangeType.ADDED, node, None, None))
    node = make_node("last", {**WELL, HOST: "last", "gpu-generation": "newest"}, annotations=agent)
    nodes.take_node(Change(ChangeType.ADDED, node, None, None))

    named = [one for one in nodes._nodes if inspection.sentence("Node", "", one)]
    assert len(named) == MAX_NODES_REPORTED + 1
    assert "gpu-generation='newest'" in (inspection.sentence("Node", "", "last") or "")


def test_another_topology_asks_other_labels_of_the_nodes() -> None:
    known = fabric()
    nodes, inspection = known.cluster_state.nodes, known.cluster_state.inspection
    nodes.take_node(Change(ChangeType.ADDED, make_node("n0", WELL), None, None))
    nodes.note_synced()
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
    nodes = known.cluster_state.nodes
    nodes.take_node(Change(ChangeType.ADDED, make_node("n0", {"block": "b0"}), None, None))

    assert known.cluster_state.inspection.sentence("Node", "", "n0") is None
    assert nodes.faults(Workload(key=W, uid="w", created_at=0.0, pod_sets=())) is None


def test_when_most_nodes_are_away_the_network_is_and_not_the_nodes() -> None:
    known = fabric()
    nodes = known.cluster_state.nodes

    def see_nodes(*ready: bool) -> bool:
        for number, is_ready in enumerate(ready):
            node = make_node(f"n{number}", {**WELL, HOST: f"n{number}"})
            status = msgspec.convert(
                {"conditions": [{"type": "Ready", "status": "True" if is_ready else "Unknown"}]}, NodeStatus
            )
            shown = msgspec.structs.replace(node, status=status)
            nodes.take_node(Change(ChangeType.MODIFIED, shown, None, None))
        return nodes.is_disrupted

    assert not see_nodes(True, True, True)
    assert not see_nodes(False, True, True)
    assert see_nodes(False, False, True)
    assert not see_nodes(False, True, True)
