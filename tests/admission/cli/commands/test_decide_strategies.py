"""`berth decide` with strategies, weights and the topology scheduler's own configuration: places come out.

zone z: racks r0 ... r3 of four nodes of 8 GPUs, n0 ... n15
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from api.keys import HOSTNAME

Object = dict[str, Any]
KUEUE = "kueue.x-k8s.io/v1beta2"
ZONE, RACK = "example.com/zone", "example.com/rack"
PER_RACK = 4
NO_WEIGHTS = {
    "resourceAvailability": 0,
    "topologyAlignment": 0,
    "domainUtilization": 0,
    "historicalPerformance": 0,
}


def make_node(number: int) -> Object:
    labels = {HOSTNAME: f"n{number}", ZONE: "z", RACK: f"r{number // PER_RACK}", "gpu": "a100"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n{number}", "labels": labels},
        "status": {
            "allocatable": {GPU: "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def other_work(number: int, gpus: int) -> Object:
    """Return a Workload that goes first, and on this node."""
    workload = make_gang(1, gpus)
    workload["metadata"]["name"] = f"other-{number}"
    workload["spec"]["priority"] = 1
    workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {HOSTNAME: f"n{number}"}
    return workload


def make_gang(pods: int, gpus: int, **annotations: str) -> Object:
    """Return a Workload; `annotations` are of the project, with _ for -."""
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
    pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
    own = {f"topology.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "gang", "namespace": "speech", "annotations": own},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


CLUSTER = [
    {
        "apiVersion": KUEUE,
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": level} for level in (ZONE, RACK, HOSTNAME)]},
    },
    {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeLabels": {"gpu": "a100"}, "topologyName": "default"},
    },
    cluster_queue("speech", flavor="a100", nominal={GPU: 128}, cohort="research"),
    namespace("speech"),
    local_queue("main", "speech", "speech"),
    *(make_node(number) for number in range(16)),
]


class Decider:
    """Runs the command on a cluster and returns the nodes of the gang."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def decide(self, *objects: Object, config: Object | None = None) -> list[str]:
        """Return the nodes that the gang gets, [] where it waits."""
        path = self._folder / "cluster.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CLUSTER, *objects]}))
        arguments = ["decide", "-f", str(path), "-o", "json"]
        if config is not None:
            document = {"apiVersion": "topology.scheduler/v1alpha1", "kind": "SchedulerConfig", **config}
            (self._folder / "config.yaml").write_text(json.dumps(document))
            arguments += ["--config", str(self._folder / "config.yaml")]
        assert main(arguments) == 0
        admissions = json.loads(self._capsys.readouterr().out)["admissions"]
        found = admissions.get("speech/gang")
        return [one["values"][-1] for one in found["podSets"][0]["topology"]] if found else []


@pytest.fixture
def decider(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Decider:
    """Give the command."""
    return Decider(tmp_path, capsys)


def racks(nodes: list[str]) -> list[int]:
    """Return the racks of these nodes, each once for each node."""
    return sorted(int(node[1:]) // PER_RACK for node in nodes)


@pytest.mark.covers("002_16")
@pytest.mark.parametrize(
    ("constraints", "want"),
    [
        pytest.param({}, [0, 0, 0, 0], id="four nodes of a leaf by default"),
        pytest.param({"maxNodesPerLeaf": 2}, [0, 0, 1, 1], id="two nodes of a leaf"),
        pytest.param({"maxGPUsPerLeaf": 24}, [0, 0, 0, 1], id="24 GPUs of a leaf"),
    ],
)
def test_the_constraints_of_the_configuration_hold(
    decider: Decider, constraints: Object, want: list[int]
) -> None:
    config = {
        "metadata": {"name": "topology-scheduler-config"},
        "spec": {"topologyConstraints": constraints},
    }

    assert racks(decider.decide(make_gang(4, 8), config=config)) == want


@pytest.mark.covers("002_15")
@pytest.mark.parametrize(
    ("weight", "want"),
    [
        pytest.param("resourceAvailability", 1, id="the rack with most room"),
        pytest.param("domainUtilization", 0, id="the rack that becomes fullest"),
    ],
)
def test_the_weights_choose_the_rack(decider: Decider, weight: str, want: int) -> None:
    config = {"spec": {"scoringWeights": {**NO_WEIGHTS, weight: 1}}}
    others = [other_work(number, 6) for number in (0, 8, 12)]

    assert racks(decider.decide(make_gang(1, 1), *others, config=config)) == [want]


# r0 has one free node; the nodes of r1 have 7 free GPUs each; r2 and r3 are full.
UNEVEN = [
    *(other_work(number, 8) for number in (1, 2, 3)),
    *(other_work(number, 1) for number in range(4, 8)),
    *(other_work(number, 8) for number in range(8, 16)),
]


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param(
            "consolidated", ["n0"], marks=pytest.mark.covers("002_07"), id="consolidated: on one node"
        ),
        pytest.param(
            "balanced",
            ["n4", "n5"],
            marks=pytest.mark.covers("002_09"),
            id="balanced: on two nodes of a rack with room, which scores more",
        ),
        pytest.param(
            "distributed",
            ["n0", "n4", "n5", "n6", "n7"],
            marks=pytest.mark.covers("002_08"),
            id="distributed: on every node with room, rack by rack in turn",
        ),
    ],
)
def test_a_strategy_places_eight_pods_of_one_gpu(decider: Decider, strategy: str, want: list[str]) -> None:
    gang = make_gang(8, 1, placement_strategy=strategy)

    assert decider.decide(gang, *UNEVEN, config={}) == want


@pytest.mark.parametrize(
    ("workload_type", "want"),
    [
        pytest.param("training", ["n0"], id="training is consolidated"),
        pytest.param("inference", ["n0", "n4", "n5", "n6", "n7"], id="inference is distributed"),
        pytest.param("research", ["n4", "n5"], marks=pytest.mark.covers("002_33"), id="the rest is balanced"),
    ],
)
def test_the_workload_type_is_a_strategy(decider: Decider, workload_type: str, want: list[str]) -> None:
    gang = make_gang(8, 1)
    gang["metadata"]["annotations"]["workload-type"] = workload_type

    assert decider.decide(gang, *UNEVEN, config={}) == want


# r4 has two nodes, the others four; of r3 three are free.
SMALL_RACK = [make_node(16), make_node(17), other_work(13, 8)]


@pytest.mark.covers("002_18")
@pytest.mark.parametrize(
    ("pods", "fragmentation", "want"),
    [
        pytest.param(1, "Ignore", [0], id="scores alone choose, here the emptiest rack"),
        pytest.param(1, "Avoid", [3], id="the rack in use is filled before a smaller one is broken up"),
        pytest.param(2, "Avoid", [4, 4], id="an unused rack is taken by what fills it"),
        pytest.param(3, "Avoid", [3, 3, 3], id="what fills the rack in use goes there"),
        pytest.param(4, "Avoid", [0, 0, 0, 0], id="what fills a large rack goes there"),
    ],
)
@pytest.mark.parametrize("rules", [{"domainRules": {}}, {}], ids=["with size rules", "without"])
def test_a_gang_leaves_racks_whole(
    decider: Decider, pods: int, fragmentation: str, want: list[int], rules: Object
) -> None:
    emptiest = {**NO_WEIGHTS, "resourceAvailability": 1}
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "whole-racks"},
        "spec": {"placement": {"fragmentation": fragmentation, "scoringWeights": emptiest, **rules}},
    }

    assert racks(decider.decide(make_gang(pods, 8), *SMALL_RACK, policy)) == want


def test_without_the_configuration_kueues_rules_place_it(decider: Decider) -> None:
    gang = make_gang(8, 1, placement_strategy="distributed")

    assert decider.decide(gang, *UNEVEN) == ["n0"]
