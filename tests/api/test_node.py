"""Nodes and pods as placement sees them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.node import NodeInfo, PodUsage, to_node, to_pod_usage
from api.objects.cluster import NodeObject, PodObject
from api.objects.common import WireTaint
from api.parsing.problems import SpecError


def node(**status: Any) -> NodeObject:
    """Return a cordoned node."""
    raw = {
        "metadata": {"name": "n", "labels": {"rack": "r0"}},
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": status,
    }
    return msgspec.convert(raw, NodeObject)


def test_a_node_is_read() -> None:
    ready = [{"type": "Ready", "status": "True"}]

    assert to_node(node(allocatable={"cpu": "1500m", "pods": "110"}, conditions=ready)) == NodeInfo(
        name="n",
        labels={"rack": "r0"},
        taints=(WireTaint(key="k", effect="NoSchedule"),),
        allocatable={"cpu": 1500, "pods": 110},
        is_ready=True,
        is_unschedulable=True,
    )


def test_a_node_that_says_nothing_of_itself_is_not_ready() -> None:
    assert not to_node(node()).is_ready


def test_an_amount_that_cannot_be_read_is_named() -> None:
    with pytest.raises(SpecError, match=r"status\.allocatable\.cpu: 'x'"):
        to_node(node(allocatable={"cpu": "x"}))


@pytest.mark.parametrize(
    ("spec", "phase", "annotations", "want"),
    [
        pytest.param({"nodeName": "n"}, "Running", {}, "n", id="bound"),
        pytest.param({}, "Pending", {}, "", id="not bound"),
        pytest.param({"nodeName": "n"}, "Succeeded", {}, "", id="ended"),
        pytest.param(
            {"nodeName": "n"},
            "Running",
            {"kueue.x-k8s.io/podset-required-topology": "rack"},
            "",
            id="placed by topology, counted through its Workload",
        ),
    ],
)
def test_a_pod_counts_on_its_node_unless_it_is_counted_elsewhere(
    spec: dict[str, Any], phase: str, annotations: dict[str, str], want: str
) -> None:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    raw = {
        "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
        "spec": {"containers": [container], **spec},
        "status": {"phase": phase},
    }

    usage = to_pod_usage(msgspec.convert(raw, PodObject))

    requests = {"cpu": 1000, "pods": 1} if want else {}
    assert usage == PodUsage(namespace="ns", name="p", node=want, requests=requests)


@pytest.mark.parametrize("is_placed", [True, False], ids=["placed by Berth", "not placed"])
@pytest.mark.parametrize(
    ("limits", "ids", "want", "fault"),
    [
        pytest.param({"nvidia.com/gpu": 2}, "5,0", (5, 0), "", id="as many as it requests"),
        pytest.param(
            {"nvidia.com/gpu": 2},
            "5,x,5",
            (5,),
            "must be numbers of GPUs",
            id="one that is no number, and one twice",
        ),
        pytest.param({"nvidia.com/gpu": 1}, "0,1,2,3,4,5,6,7", (), "requests 1;", id="more than it requests"),
        pytest.param({"cpu": 1}, "0,1", (), "requests 1;", id="GPUs of a pod that requests none"),
        pytest.param({"cpu": 1}, "0", (0,), "", id="the GPU of a share without a device"),
        pytest.param({"nvidia.com/gpu.shared": 2}, "0,1", (0, 1), "", id="slices by a name of their own"),
    ],
)
def test_a_pod_has_no_more_gpus_than_it_requests(
    limits: dict[str, int], ids: str, want: tuple[int, ...], fault: str, is_placed: bool
) -> None:
    placed = {"kueue.x-k8s.io/podset-required-topology": "rack"} if is_placed else {}
    container = {"name": "c", "resources": {"limits": limits, "requests": limits}}
    raw = {
        "metadata": {"namespace": "a", "name": "p", "annotations": {"berth.dev/gpu-ids": ids, **placed}},
        "spec": {"nodeName": "n", "containers": [container]},
        "status": {"phase": "Running"},
    }
    found = to_pod_usage(msgspec.convert(raw, PodObject))

    assert (found.gpu_ids, found.gpu_node) == (want, "n")
    assert fault in found.gpu_fault
    assert bool(fault) == bool(found.gpu_fault)
