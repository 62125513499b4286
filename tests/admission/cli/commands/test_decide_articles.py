"""`berth decide` with the shipped policy of the articles: what a user gets who applies it and nothing else.

zone z: spines s0 and s1 of four racks of four nodes of 8 GPUs, n0 ... n31
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace, resource_flavor
from api.keys import HOSTNAME
from tests.admission.cli.commands.test_decide_preemption import HOUR, finished, make_workload, running, saved

Object = dict[str, Any]
ARTICLES = Path(__file__).parents[4] / "deploy" / "policies" / "articles.yaml"
KUEUE = "kueue.x-k8s.io/v1beta2"
SPINE, RACK, BANDWIDTH = "example.com/spine", "example.com/rack", "berth.dev/network-bandwidth"
POSITION = "berth.dev/leaf-position"
PER_RACK, RACKS = 4, 8


class Cluster:
    """The manifests of a cluster with the policy of the articles, in a file."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._path = folder / "cluster.json"
        self._capsys = capsys
        self._policy = yaml.safe_load(ARTICLES.read_text())

    def decide(self, *objects: Object, output: str = "json") -> str:
        """Return what the command prints for these objects."""
        items = [self._policy, namespace("speech"), local_queue("main", "speech", "speech"), *objects]
        self._path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        assert main(["decide", "-f", str(self._path), "-o", output]) == 0
        return self._capsys.readouterr().out

    def evicted(self, *workloads: Object) -> list[str]:
        """Return the Workloads that are evicted on 16 GPUs."""
        found = json.loads(self.decide(*_sixteen_gpus(), *workloads))["evictions"]
        return sorted(key.partition("/")[2] for key in found)

    def says(self, *workloads: Object) -> str:
        """Return the table of decisions on 16 GPUs, on one line."""
        return " ".join(self.decide(*_sixteen_gpus(), *workloads, output="table").split())

    def nodes(self, *objects: Object) -> list[int]:
        """Return the nodes of the Workload gang, [] where it waits."""
        found = json.loads(self.decide(*_fleet(), *objects))["admissions"].get("speech/gang")
        return [int(one["values"][-1][1:]) for one in found["podSets"][0]["topology"]] if found else []


@pytest.fixture
def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cluster:
    """Give the cluster."""
    return Cluster(tmp_path, capsys)


def _sixteen_gpus() -> list[Object]:
    queue = cluster_queue("speech", flavor="a100", nominal={GPU: 16}, cohort=None)
    queue["spec"]["preemption"] = {"withinClusterQueue": "LowerPriority"}
    return [resource_flavor("a100", node_pool="a100"), queue]


def _fleet() -> list[Object]:
    levels = [{"nodeLabel": label} for label in (SPINE, RACK, HOSTNAME)]
    return [
        {
            "apiVersion": KUEUE,
            "kind": "Topology",
            "metadata": {"name": "fabric"},
            "spec": {"levels": levels},
        },
        {
            "apiVersion": KUEUE,
            "kind": "ResourceFlavor",
            "metadata": {"name": "a100"},
            "spec": {"nodeLabels": {"gpu": "a100"}, "topologyName": "fabric"},
        },
        cluster_queue("speech", flavor="a100", nominal={GPU: 8 * PER_RACK * RACKS}, cohort=None),
    ]


def make_nodes(**labels: dict[int, str]) -> list[Object]:
    """Return the nodes of all racks; `labels` has further labels by rack."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"n{number}",
                "labels": {
                    "gpu": "a100",
                    HOSTNAME: f"n{number}",
                    RACK: f"leaf-{number // PER_RACK}",
                    SPINE: f"spine-{number // PER_RACK // 4}",
                    **{key: of[number // PER_RACK] for key, of in labels.items() if number // PER_RACK in of},
                },
            },
            "status": {
                "allocatable": {GPU: "8", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        for number in range(PER_RACK * RACKS)
    ]


def make_gang(pods: int, gpus: int = 8, *, name: str = "gang", **annotations: str) -> Object:
    """Return a Workload; `annotations` are of the articles, with _ for -."""
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: str(gpus)}}}
    pod_set = {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}
    own = {f"topology.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "speech", "annotations": own},
        "spec": {"queueName": "main", "podSets": [pod_set]},
    }


def other_work(node: int, gpus: int) -> Object:
    """Return a Workload that goes first, and on this node."""
    workload = make_gang(1, gpus, name=f"other-{node}")
    workload["spec"]["priority"] = 1
    workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {HOSTNAME: f"n{node}"}
    return workload


def racks(nodes: list[int]) -> list[int]:
    """Return the racks of these nodes, each once for each node."""
    return sorted(node // PER_RACK for node in nodes)


# --- preemption --------------------------------------------------------------------------------------


def train(workload: Object) -> Object:
    """Return the Workload with the articles' label on its pods, as training."""
    template = workload["spec"]["podSets"][0]["template"]
    labelled = {**template, "metadata": {"labels": {"workload-type": "training"}}}
    (pod_set,) = workload["spec"]["podSets"]
    return {**workload, "spec": {**workload["spec"], "podSets": [{**pod_set, "template": labelled}]}}


URGENT = make_workload("urgent", priority=5000)
FRESH = saved(0.2)


@pytest.mark.parametrize(
    ("spared", "rule"),
    [
        pytest.param(
            train(make_workload("spared", priority=1000, checkpoint_time=FRESH)),
            "protectPriority",
            marks=pytest.mark.covers("001_27"),
            id="training of priority 1000",
        ),
        pytest.param(
            train(
                make_workload(
                    "spared", checkpoint_time=FRESH, spec={"maximumExecutionTimeSeconds": 11 * HOUR}
                )
            ),
            "protectNearlyDone",
            marks=pytest.mark.covers("001_29"),
            id="training with an hour left",
        ),
        pytest.param(
            train(make_workload("spared")),
            "protectUncheckpointed",
            marks=pytest.mark.covers("001_30"),
            id="training without checkpoints",
        ),
        pytest.param(
            train(make_workload("spared", checkpoint_time=saved(0.6))),
            "requireFreshCheckpoint",
            marks=pytest.mark.covers("001_31"),
            id="training that has saved more than half an hour ago",
        ),
    ],
)
def test_a_rule_of_the_articles_protects(cluster: Cluster, spared: Object, rule: str) -> None:
    victim = running(train(make_workload("victim", priority=1, checkpoint_time=FRESH)))
    protected = running(spared)

    assert cluster.evicted(protected, victim, URGENT) == ["victim"]
    whole = make_workload("urgent", gpus=16, priority=5000)
    assert f"spared by {rule}, such as Workload speech/spared" in cluster.says(protected, victim, whole)


@pytest.mark.covers("001_28")
def test_inference_is_preempted_before_training_that_loses_less(cluster: Cluster) -> None:
    service = make_workload("service")
    service["metadata"]["annotations"]["workload-type"] = "inference"
    training = running(train(make_workload("training", checkpoint_time=saved(0))))

    assert cluster.evicted(training, running(service), URGENT) == ["service"]


@pytest.mark.covers("001_29")
def test_training_that_ends_soon_by_its_earlier_runs_is_protected(cluster: Cluster) -> None:
    earlier = [finished(train(make_workload(f"spared-{index}")), hours=11) for index in range(3)]
    spared = running(train(make_workload("spared-9", checkpoint_time=FRESH)))
    victim = running(train(make_workload("victim", priority=1, checkpoint_time=FRESH)))

    assert cluster.evicted(*earlier, spared, victim, URGENT) == ["victim"]


# --- placement ---------------------------------------------------------------------------------------


ALL = range(PER_RACK * RACKS)


@pytest.mark.parametrize(
    ("nodes", "taken", "want"),
    [
        pytest.param(
            2,
            [node for node in ALL if node % PER_RACK],
            [1, 1],
            marks=pytest.mark.covers("002_10"),
            id="2 nodes on the same leaf",
        ),
        pytest.param(
            4,
            [*ALL[::PER_RACK]],
            [2] * 4,
            marks=pytest.mark.covers("002_11"),
            id="4 nodes on a complete leaf",
        ),
        pytest.param(
            8,
            [node for node in ALL if node // PER_RACK not in (0, 4)],
            [2] * 4 + [3] * 4,
            marks=pytest.mark.covers("002_12"),
            id="8 nodes on two adjacent leaves",
        ),
        pytest.param(
            16,
            [node for node in ALL if node // PER_RACK not in (0, 1, 4, 5)],
            [4] * 4 + [5] * 4 + [6] * 4 + [7] * 4,
            marks=pytest.mark.covers("002_13", "002_14"),
            id="16 nodes on four adjacent leaves",
        ),
    ],
)
def test_a_gang_goes_by_its_size(cluster: Cluster, nodes: int, taken: list[int], want: list[int]) -> None:
    """It waits where as many nodes are free on other leaves."""
    assert cluster.nodes(*make_nodes(), *(other_work(node, 8) for node in taken), make_gang(nodes)) == []

    used = [other_work(node, 8) for node in (0, 1, 2, 4)]
    assert racks(cluster.nodes(*make_nodes(), *used, make_gang(nodes))) == want


@pytest.mark.covers("002_11")
def test_a_gang_that_fills_a_leaf_shares_it_with_no_other_work(cluster: Cluster) -> None:
    """Not even with work that leaves all GPUs of the other leaves free."""
    without_gpus = [other_work(PER_RACK * rack, 0) for rack in ALL[:RACKS] if rack != 6]

    assert racks(cluster.nodes(*make_nodes(), *without_gpus, make_gang(4))) == [6] * 4


@pytest.mark.parametrize(
    ("positions", "want"),
    [
        pytest.param({}, [0] * 4 + [3] * 4, id="of one spine, where the nodes have no positions"),
        pytest.param(
            {rack: str(rack) for rack in range(RACKS)},
            [3] * 4 + [4] * 4,
            marks=pytest.mark.covers("002_12"),
            id="next to each other by their positions, across spines",
        ),
    ],
)
def test_adjacent_leaves_are(cluster: Cluster, positions: dict[int, str], want: list[int]) -> None:
    used = [other_work(PER_RACK * rack, 8) for rack in (1, 2, 5, 6)]

    assert racks(cluster.nodes(*make_nodes(**{POSITION: positions}), *used, make_gang(8))) == want


@pytest.mark.covers("002_18")
def test_small_work_goes_where_other_work_is(cluster: Cluster) -> None:
    used = other_work(PER_RACK * 5, 8)

    assert racks(cluster.nodes(*make_nodes(), used, make_gang(1))) == [5]


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, 1, id="balanced, on one node that holds them all"),
        pytest.param(
            {"placement_strategy": "distributed"},
            4,
            marks=pytest.mark.covers("002_06", "002_08"),
            id="distributed, on as many leaves as it has pods",
        ),
        pytest.param(
            {"placement_strategy": "distributed", "latency_sensitive": "true"},
            1,
            marks=pytest.mark.covers("002_05", "002_31"),
            id="distributed and sensitive to latency, on one leaf",
        ),
    ],
)
def test_four_pods_of_one_gpu_go(cluster: Cluster, annotations: dict[str, str], want: int) -> None:
    found = cluster.nodes(*make_nodes(), make_gang(4, 1, **annotations))

    assert len({*racks(found)}) == want


@pytest.mark.covers("002_03")
@pytest.mark.parametrize(("domain", "want"), [("leaf-6", {6}), ("spine-1", {4})])
def test_a_gang_goes_to_the_domain_that_it_prefers(cluster: Cluster, domain: str, want: set[int]) -> None:
    assert {*racks(cluster.nodes(*make_nodes(), make_gang(2, preferred_domain=domain)))} == want


@pytest.mark.covers("002_04")
def test_a_gang_goes_to_nodes_with_the_bandwidth_that_it_needs(cluster: Cluster) -> None:
    nodes = make_nodes(**{BANDWIDTH: {2: "100Gb", 7: "400Gb"}})

    assert {*racks(cluster.nodes(*nodes, make_gang(2, network_bandwidth="200Gb")))} == {7}
