"""The extender's profiles as kube-scheduler meets them: over HTTP, chosen by the pod's schedulerName."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, get_args

import msgspec
import pytest

from admission.controller.http.extender_profiles import extender_rules
from admission.extender.profiles import SCORERS
from admission.hardware.rules import Rule
from api.config.berth import ExtenderProfile, ExtenderScore, ExtenderSettings, FilterName, ScoreName
from api.kube import resources
from api.kube.client import KubeClient
from tests.admission.controller.extending import Object, Served, serving, whole
from tests.embedded import EmbeddedCluster

TYPE, MEMORY = "berth.dev/workload-type", "berth.dev/gpu-memory-mib"
GPU_AWARE, COST, AI = "gpu-aware-scheduler", "cost-optimized-scheduler", "ai-scheduler"


def node(name: str, *, gpus: int = 8, cpu: str = "16", memory: str = "100Gi", **labels: str) -> Object:
    """Return a node; words of `_KEYS` become its labels."""
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {**labelled(name, **labels), "status": {"allocatable": amounts, "capacity": amounts}}


def labelled(name: str, **labels: str) -> Object:
    """Return a node of nothing but labels."""
    own = {_KEYS[word]: value for word, value in labels.items()}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": own}}


_KEYS = {
    "memory_gb": "gpu-memory-gb",
    "interconnect": "gpu-interconnect",
    "generation": "gpu-generation",
    "cost": "node-cost-per-hour",
    "instance": "node.kubernetes.io/instance-type",
    "karpenter": "karpenter.sh/capacity-type",
    "topology": "nvidia.com/gpu-topology",
    "island_a": "berth.dev/nvlink-island.a",
    "island_b": "berth.dev/nvlink-island.b",
    "island_c": "berth.dev/nvlink-island.c",
    "product": "nvidia.com/gpu.product",
}


def pod(name: str = "p", *, gpus: int = 0, on: str = "", scheduler: str = "", **given: Any) -> Object:
    """Return a pod; `annotations`, `labels`, `cpu` and `memory` as they are called, `on` is its node."""
    asked = {"nvidia.com/gpu": gpus} if gpus else {}
    asked |= {word: given[word] for word in ("cpu", "memory") if word in given}
    spec: Object = {"containers": [{"name": "c", "image": "i", "resources": {"requests": asked}}]}
    if gpus:
        spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": gpus}
    spec |= {"nodeName": on} if on else {}
    spec |= {"schedulerName": scheduler} if scheduler else {}
    metadata = {word: given.get(word, {}) for word in ("labels", "annotations")}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": spec,
        **({"status": {"phase": given["phase"]}} if "phase" in given else {}),
    }


@pytest.fixture
async def embedded(embedded_server: EmbeddedCluster) -> str:
    """Give a kubeconfig of an empty cluster."""
    return embedded_server.kubeconfig


@asynccontextmanager
async def cluster(kubeconfig: str, *objects: Object, **given: Any) -> AsyncIterator[Served]:
    """Give an extender that knows these nodes and pods."""
    nodes = [one for one in objects if one["kind"] == "Node"]
    async with await KubeClient.connect(kubeconfig) as client:
        for one in objects:
            if one["kind"] == "Pod":
                await client.create(resources.PODS, msgspec.json.encode(one), "default")
                if "status" in one:
                    body = msgspec.json.encode({"status": one["status"]})
                    name = one["metadata"]["name"]
                    await client.merge_patch(resources.PODS, name, body, "default", subresource="status")
    async with serving(kubeconfig, nodes, **given) as served:
        yield served


async def failed(served: Served, wanted: Object, *names: str) -> Mapping[str, str]:
    """Return the nodes that the filter refuses, asked by name."""
    answer = await served.post("/filter", {"Pod": wanted, "NodeNames": names})
    assert answer.status == 200, answer.text
    refused: Mapping[str, str] = answer.json.get("failedNodes", {})
    assert answer.json["nodeNames"] == [name for name in names if name not in refused]
    return refused


# --- GPUAware ------------------------------------------------------------------------------------

TAKEN = (
    node("full", gpus=4, memory_gb="80"),
    node("small", gpus=8, memory_gb="6"),
    node("unknown", gpus=8),
    node("good", gpus=8, memory_gb="80"),
    pod("busy", gpus=2, on="full"),
    pod("done", gpus=2, on="full", phase="Succeeded"),
    pod("some", gpus=1, on="good"),
)


@pytest.mark.covers("003_03", "003_04")
async def test_a_node_without_enough_free_gpus_is_refused_and_finished_pods_take_none(embedded: str) -> None:
    async with cluster(embedded, *TAKEN) as served:
        refused = await failed(served, pod(gpus=3, scheduler=GPU_AWARE), "full", "good")
        fitting = await failed(served, pod(gpus=2, scheduler=GPU_AWARE), "full", "good")

    assert refused == {"full": "insufficient GPU: need 3, available 2"}
    assert fitting == {}


@pytest.mark.covers("003_05", "003_06")
async def test_gpus_have_at_least_the_least_memory(embedded: str) -> None:
    async with cluster(embedded, *TAKEN) as served:
        refused = await failed(served, pod(gpus=1, scheduler=GPU_AWARE), "small", "unknown", "good")

    assert refused == {
        "small": "insufficient GPU memory: need 8GB, available 6GB",
        "unknown": "insufficient GPU memory: need 8GB, available 0GB",
    }


@pytest.mark.covers("003_06")
@pytest.mark.parametrize(
    ("gpus", "gib", "want"),
    [
        pytest.param(1, 16, {}, id="a pod whose memory every node has"),
        pytest.param(1, 24, {"small": 24}, id="one GPU with more memory than the small node's"),
        pytest.param(2, 100, {"small": 50, "medium": 50}, id="two GPUs that share what the pod asks for"),
        pytest.param(2, 81, {"small": 41, "medium": 41}, id="a share that is rounded up to whole GB"),
        pytest.param(4, 16, {}, id="a share below the least memory of the configuration"),
    ],
)
async def test_gpus_have_the_memory_that_the_pod_asks_for(
    embedded: str, gpus: int, gib: int, want: dict[str, int]
) -> None:
    available = {"small": 16, "medium": 40, "large": 80}
    nodes = [node(name, memory_gb=str(memory_gb)) for name, memory_gb in available.items()]
    wanted = pod(gpus=gpus, scheduler=GPU_AWARE, annotations={MEMORY: str(gib * 1024)})
    async with cluster(embedded, *nodes) as served:
        refused = await failed(served, wanted, *available)

    assert refused == {
        name: f"insufficient GPU memory: need {needed}GB, available {available[name]}GB"
        for name, needed in want.items()
    }


@pytest.mark.covers("003_01", "003_02")
async def test_gpus_of_all_containers_count_and_a_pod_without_any_passes(embedded: str) -> None:
    several = pod(gpus=3, scheduler=GPU_AWARE)
    several["spec"]["containers"].append(
        {"name": "second", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "5"}}}
    )
    async with cluster(embedded, *TAKEN) as served:
        assert await failed(served, several, "good") == {"good": "insufficient GPU: need 8, available 7"}
        assert await failed(served, pod(scheduler=GPU_AWARE), "full", "small", "unknown") == {}


@pytest.mark.covers("003_07")
async def test_a_node_that_is_not_known_is_not_found(embedded: str) -> None:
    async with cluster(embedded, *TAKEN) as served:
        assert await failed(served, pod(gpus=1, scheduler=GPU_AWARE), "gone") == {"gone": "node not found"}


async def test_only_what_evictions_could_mend_is_left_to_preemption(embedded: str) -> None:
    async with cluster(embedded, *TAKEN) as served:
        body = {"Pod": pod(gpus=3, scheduler=GPU_AWARE), "NodeNames": ["full", "small"]}
        answer = (await served.post("/filter", body)).json

    assert set(answer["failedNodes"]) == {"full", "small"}
    assert set(answer["failedAndUnresolvableNodes"]) == {"small"}


@pytest.mark.covers("003_08", "003_09")
async def test_the_emptier_the_larger_and_the_linked_node_score_higher(embedded: str) -> None:
    nodes = (
        node("best", memory_gb="80", interconnect="nvlink", generation="h100"),
        node("plain", memory_gb="80", generation="h100"),
        node("half", memory_gb="80", generation="h100"),
        node("small", memory_gb="16", generation="v100"),
    )
    async with cluster(embedded, *nodes, pod("busy", gpus=4, on="half")) as served:
        scores = await served.scores(
            pod(gpus=1, scheduler=GPU_AWARE), "best", "plain", "half", "small", "unknown"
        )

    # 200 + 240 + 100 + 90 = 630; 530; 430; 200 + 48 + 70 = 318: each as a share of the best.
    assert scores == {"best": 10, "plain": 8, "half": 7, "small": 5, "unknown": 0}


@pytest.mark.covers("003_10")
@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({"generation": "v100"}, 70, id="v100"),
        pytest.param({"generation": "A100"}, 80, id="a100, whatever the case"),
        pytest.param({"generation": "h100"}, 90, id="h100"),
        pytest.param({"generation": "b200"}, 100, id="a later one"),
        pytest.param({"generation": "unheard-of"}, 0, id="an unknown one"),
        pytest.param({"product": "NVIDIA-H100-80GB-HBM3"}, 90, id="by its product where no label says"),
    ],
)
async def test_a_later_generation_scores_higher(embedded: str, labels: dict[str, str], want: int) -> None:
    # Beside a node of 100 points, which are 10 on the wire: 200 for being empty are left out by filling both.
    nodes = (node("asked", gpus=1, **labels), node("yardstick", gpus=1, interconnect="nvlink"))
    busy = (pod(f"busy-{name}", gpus=1, on=name) for name in ("asked", "yardstick"))
    async with cluster(embedded, *nodes, *busy) as served:
        scores = await served.scores(pod(gpus=1, scheduler=GPU_AWARE), "asked", "yardstick")

    assert scores["asked"] == round(want / 10)


# --- CostOptimized -------------------------------------------------------------------------------


@pytest.mark.covers("003_13", "003_15")
async def test_the_cheaper_and_the_fuller_node_score_higher(embedded: str) -> None:
    nodes = (
        node("cheap", cost="10"),
        node("expensive", cost="90"),
        node("full", cost="90"),
        node("odd", cost="cheap"),
    )
    busy = pod("busy", cpu="16", memory="100Gi", on="full")
    async with cluster(embedded, *nodes, busy) as served:
        scores = await served.scores(pod(scheduler=COST), "cheap", "expensive", "full", "odd")

    # 190; 110; 110 + 50; a cost that is no number counts as not known: 100.
    assert scores == {"cheap": 10, "expensive": 6, "full": 8, "odd": 5}


@pytest.mark.covers("003_16")
async def test_a_node_half_full_of_cpu_and_memory_gets_half_of_what_a_full_one_gets(embedded: str) -> None:
    nodes = (node("full"), node("half"), node("empty"), node("nothing", cpu="0", memory="0"))
    busy = (
        pod("all", cpu="16", memory="100Gi", on="full"),
        pod("some", cpu="8", memory="50Gi", on="half"),
    )
    async with cluster(embedded, *nodes, *busy) as served:
        scores = await served.scores(pod(scheduler=COST), "full", "half", "empty", "nothing")

    # 150, 125, 100, 100.
    assert scores == {"full": 10, "half": 8, "empty": 7, "nothing": 7}


@pytest.mark.covers("003_14", "003_17")
@pytest.mark.parametrize(
    ("labels", "annotations", "want"),
    [
        pytest.param({"instance": "m5.spot.large"}, {}, True, id="spot in the instance's type"),
        pytest.param({"instance": "n1-preemptible"}, {}, True, id="preemptible"),
        pytest.param({"instance": "Low-Priority-4"}, {}, True, id="low priority"),
        pytest.param({"karpenter": "spot"}, {}, True, id="by the tools that make nodes"),
        pytest.param({"instance": "m5.large"}, {}, False, id="another type is none"),
        pytest.param({"karpenter": "on-demand"}, {}, False, id="nor is on-demand"),
        pytest.param({"karpenter": "spot"}, {TYPE: "training"}, False, id="not training without checkpoints"),
        pytest.param(
            {"karpenter": "spot"},
            {TYPE: "training", "berth.dev/checkpoint-interval-seconds": "600"},
            True,
            id="but training that saves",
        ),
        pytest.param({"karpenter": "spot"}, {TYPE: "inference"}, False, id="not inference"),
    ],
)
async def test_spot_nodes_are_preferred_for_pods_that_tolerate_losing_them(
    embedded: str, labels: dict[str, str], annotations: dict[str, str], want: bool
) -> None:
    async with cluster(embedded, labelled("asked", **labels), node("plain")) as served:
        scores = await served.scores(pod(scheduler=COST, annotations=annotations), "asked", "plain")

    assert (scores["asked"] > scores["plain"]) is want


# --- NVLinkTopology ------------------------------------------------------------------------------

DDP = {"berth.dev/parallelism": "ddp"}
TENSOR = {"berth.dev/parallelism": "tensor"}
LINKED = (
    node("two-of-four", island_a="0-3", island_b="4-7"),
    node("switch", topology="nvswitch"),
    node("link", topology="nvlink", island_a="4", island_b="4"),
    node("pcie", topology="pcie"),
)


@pytest.mark.covers("001_03", "001_04")
@pytest.mark.parametrize("scheduler", ["", AI], ids=["in every profile", "in its own"])
async def test_data_parallel_training_needs_its_gpus_in_one_island(embedded: str, scheduler: str) -> None:
    names = [one["metadata"]["name"] for one in LINKED]
    async with cluster(embedded, *LINKED) as served:
        four = await failed(served, pod(gpus=4, annotations=DDP, scheduler=scheduler), *names)
        eight = await failed(served, pod(gpus=8, annotations=DDP, scheduler=scheduler), *names)

    assert set(four) == {"pcie"}
    assert set(eight) == {"two-of-four", "link", "pcie"}


@pytest.mark.covers("001_05", "001_11")
async def test_of_an_island_only_free_gpus_count(embedded: str) -> None:
    exact = pod("known", gpus=2, on="two-of-four", annotations={"berth.dev/gpu-ids": "0,5"})
    unknown = pod("unknown", gpus=3, on="link")
    async with cluster(embedded, *LINKED, exact, unknown) as served:
        four = await failed(served, pod(gpus=4, annotations=DDP), "two-of-four", "link")
        three = await failed(served, pod(gpus=3, annotations=DDP), "two-of-four", "link")

    # One of each island is taken of the first; the other's three leave its second island whole.
    assert four == {"two-of-four": "Node lacks 4 GPUs in unified NVLink island"}
    assert three == {}


@pytest.mark.covers("001_03", "001_11")
@pytest.mark.parametrize(
    ("island", "taken", "free"),
    [
        pytest.param("0_2", "1,3", 2, id="two that are no neighbours"),
        pytest.param("0_2-4", "2,5", 3, id="one and a range"),
        pytest.param("0_x", "5", 0, id="a part that is no number"),
        pytest.param("3-0", "5", 0, id="a range that ends before it begins"),
    ],
)
async def test_an_island_lists_gpus_that_are_no_neighbours(
    embedded: str, island: str, taken: str, free: int
) -> None:
    known = pod("known", gpus=2, on="n", annotations={"berth.dev/gpu-ids": taken})
    async with cluster(embedded, node("n", gpus=8, island_a=island), known) as served:
        fits = [not await failed(served, pod(gpus=gpus, annotations=DDP), "n") for gpus in (2, 3, 4)]

    assert fits == [gpus <= free for gpus in (2, 3, 4)]


@pytest.mark.covers("001_11")
@pytest.mark.parametrize(
    ("islands", "running", "fits"),
    [
        pytest.param("4 2", [2], 4, id="one takes the smallest island that holds it"),
        pytest.param("4 2", [3], 2, id="one that only the large island holds takes that"),
        pytest.param("4 2", [2, 2], 2, id="the second takes what the first left"),
        pytest.param("4 3", [2, 3], 2, id="the largest is seated first, whichever was bound first"),
        pytest.param("4 3 3", [5], 3, id="one that no island holds empties the roomiest first"),
    ],
)
async def test_pods_that_do_not_report_their_gpus_take_room_in_an_island(
    embedded: str, islands: str, running: list[int], fits: int
) -> None:
    labels = dict(zip(("island_a", "island_b", "island_c"), islands.split(), strict=False))
    busy = [pod(f"busy-{place}", gpus=gpus, on="n") for place, gpus in enumerate(running)]
    async with cluster(embedded, node("n", gpus=10, **labels), *busy) as served:
        assert await failed(served, pod(gpus=fits, annotations=DDP), "n") == {}
        refused = await failed(served, pod(gpus=fits + 1, annotations=DDP), "n")

    assert refused == {"n": f"Node lacks {fits + 1} GPUs in unified NVLink island"}


@pytest.mark.covers("001_02", "001_06")
async def test_tensor_parallelism_needs_the_fabric(embedded: str) -> None:
    async with cluster(embedded, *LINKED) as served:
        refused = await failed(
            served, pod(gpus=8, annotations=TENSOR), "switch", "link", "pcie", "two-of-four"
        )

    assert set(refused) == {"pcie", "two-of-four"}


@pytest.mark.covers("001_07", "001_09")
async def test_a_missing_fabric_is_reported_in_the_articles_words(embedded: str) -> None:
    async with cluster(embedded, *LINKED) as served:
        refused = await failed(served, pod(gpus=2, annotations=TENSOR), "pcie")

    assert refused == {"pcie": "Tensor parallelism demands NVLink/NVSwitch fabric"}


@pytest.mark.covers("001_01")
@pytest.mark.parametrize(
    ("gpus", "annotations"),
    [
        pytest.param(1, DDP, id="one GPU talks to no other"),
        pytest.param(1, TENSOR, id="nor has it anything to split"),
        pytest.param(8, {}, id="a pod that does not say"),
        pytest.param(8, {"berth.dev/parallelism": "none"}, id="a pod that says none"),
    ],
)
async def test_others_run_on_any_fabric(embedded: str, gpus: int, annotations: dict[str, str]) -> None:
    async with cluster(embedded, *LINKED) as served:
        assert await failed(served, pod(gpus=gpus, annotations=annotations), "pcie", "two-of-four") == {}


@pytest.mark.covers("001_08")
async def test_which_fabrics_will_do_is_a_setting(embedded: str) -> None:
    rules = extender_rules(ExtenderSettings(required_topologies=["nvswitch"]))
    async with cluster(embedded, *LINKED, rules=rules) as served:
        assert set(await failed(served, pod(gpus=2, annotations=TENSOR), "switch", "link")) == {"link"}


# --- WorkloadIsolation ---------------------------------------------------------------------------

TRAINING = {TYPE: "training"}
SERVING = {TYPE: "inference", MEMORY: str(8 * 1024)}


@pytest.mark.covers("001_12", "001_13")
async def test_training_keeps_away_from_inference_and_wants_gpus_in_a_row(embedded: str) -> None:
    nodes = (node("free"), node("serving"), node("torn"))
    busy = (
        pod("serve", gpus=1, on="serving", annotations=SERVING),
        pod("middle", gpus=1, on="torn", annotations={"berth.dev/gpu-ids": "4"}),
    )
    async with cluster(embedded, *nodes, *busy) as served:
        scores = await served.scores(
            pod(gpus=6, annotations=TRAINING, scheduler=AI), "free", "serving", "torn"
        )

    assert scores == {"free": 9, "serving": 1, "torn": 5}


@pytest.mark.covers("001_13")
@pytest.mark.parametrize(
    ("reported", "unreported", "row"),
    [
        pytest.param("", 0, 8, id="an empty node is one row"),
        pytest.param("", 2, 6, id="pods that do not report their GPUs have the lowest numbers"),
        pytest.param("2,3", 0, 4, id="a pod that reports its GPUs splits the row"),
        pytest.param("2", 2, 5, id="the others have the lowest numbers that no pod reports"),
        pytest.param("4", 5, 2, id="and go on behind the reported ones"),
    ],
)
async def test_a_row_of_free_gpus_leaves_out_what_pods_use(
    embedded: str, reported: str, unreported: int, row: int
) -> None:
    busy = []
    if reported:
        gpus = len(reported.split(","))
        busy.append(pod("known", gpus=gpus, on="n", annotations={"berth.dev/gpu-ids": reported}))
    if unreported:
        busy.append(pod("unknown", gpus=unreported, on="n"))
    async with cluster(embedded, node("n"), *busy) as served:
        in_a_row = await served.scores(pod(gpus=row, annotations=TRAINING, scheduler=AI), "n")
        longer = await served.scores(pod(gpus=row + 1, annotations=TRAINING, scheduler=AI), "n")

    assert (in_a_row, longer) == ({"n": 9}, {"n": 5})


@pytest.mark.covers("001_14", "001_17")
@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param(TRAINING, id="training that finds no row"),
        pytest.param({}, id="no workload type"),
        pytest.param({TYPE: "batch"}, id="batch"),
    ],
)
async def test_others_score_in_the_middle(embedded: str, annotations: dict[str, str]) -> None:
    middle = pod("middle", gpus=1, on="torn", annotations={"berth.dev/gpu-ids": "4"})
    async with cluster(embedded, node("torn"), middle) as served:
        assert await served.scores(pod(gpus=7, annotations=annotations, scheduler=AI), "torn") == {"torn": 5}


@pytest.mark.covers("001_15")
@pytest.mark.parametrize(
    ("used_gb", "want"),
    [
        pytest.param(40, 6, id="below 0.7 there is room for more"),
        pytest.param(48, 10, id="from 0.7 on it is well packed"),
        pytest.param(56, 10, id="to 0.8"),
        pytest.param(60, 3, id="above that it may run out"),
    ],
)
async def test_inference_packs_gpu_memory_but_not_entirely(embedded: str, used_gb: int, want: int) -> None:
    there = pod("there", gpus=1, on="n", annotations=SERVING | {MEMORY: str(used_gb * 1024)})
    async with cluster(embedded, node("n", gpus=1, memory_gb="80"), there) as served:
        assert await served.scores(pod(annotations=SERVING, scheduler=AI), "n") == {"n": want}


@pytest.mark.covers("001_15")
@pytest.mark.parametrize(
    ("asked_gb", "want"),
    [
        pytest.param(8, 6, id="a little leaves room for more"),
        pytest.param(60, 10, id="three quarters pack it well"),
        pytest.param(72, 3, id="nine tenths may run out"),
    ],
)
async def test_inference_on_an_empty_node_scores_by_what_it_asks_for(
    embedded: str, asked_gb: int, want: int
) -> None:
    wanted = pod(annotations=SERVING | {MEMORY: str(asked_gb * 1024)}, scheduler=AI)
    async with cluster(embedded, node("n", gpus=1, memory_gb="80")) as served:
        assert await served.scores(wanted, "n") == {"n": want}


@pytest.mark.parametrize(
    ("kind", "want", "refuses"),
    [
        pytest.param("inference", 3, True, id="of inference counts"),
        pytest.param("training", 6, False, id="of training does not"),
        pytest.param("batch", 6, False, id="of batch work does not"),
    ],
)
async def test_gpu_memory(embedded: str, kind: str, want: int, refuses: bool) -> None:
    there = pod("there", gpus=1, on="n", annotations={TYPE: kind, MEMORY: str(75 * 1024)})
    async with cluster(embedded, node("n", gpus=1, memory_gb="80"), there) as served:
        wanted = pod(annotations=SERVING, scheduler=AI)
        assert await served.scores(wanted, "n") == {"n": want}
        assert bool(await failed(served, wanted, "n")) is refuses


@pytest.mark.covers("001_16")
async def test_inference_that_does_not_fit_the_memory_is_refused(embedded: str) -> None:
    there = pod("there", gpus=1, on="n", annotations=SERVING | {MEMORY: str(75 * 1024)})
    async with cluster(embedded, node("n", gpus=1, memory_gb="80"), there) as served:
        refused = await failed(served, pod(annotations=SERVING, scheduler=AI), "n")

    assert refused == {"n": "insufficient GPU memory for inference: 8GB more would make 104% of 80GB"}


# --- WorkloadType --------------------------------------------------------------------------------


@pytest.mark.covers("004_04", "004_05")
async def test_cpu_intensive_pods_run_where_there_are_cpus(embedded: str) -> None:
    async with cluster(embedded, node("small", cpu="1999m"), node("enough", cpu="2")) as served:
        refused = await failed(served, pod(labels={"workload-type": "CPU-intensive"}), "small", "enough")

    assert refused == {"small": "Node lacks CPU resources"}


@pytest.mark.covers("004_06", "004_07")
async def test_gpu_intensive_pods_run_where_there_are_gpus(embedded: str) -> None:
    bare = node("bare")
    del bare["status"]["allocatable"]["nvidia.com/gpu"]
    async with cluster(embedded, node("gpus"), node("zero", gpus=0), bare) as served:
        refused = await failed(served, pod(labels={"workload-type": "GPU-intensive"}), "gpus", "zero", "bare")

    assert refused == {"zero": "Node lacks GPU resources", "bare": "Node lacks GPU resources"}


@pytest.mark.covers("004_08")
@pytest.mark.parametrize("labels", [{}, {"workload-type": "training"}, {"workload-type": "memory-intensive"}])
async def test_other_types_run_anywhere(embedded: str, labels: dict[str, str]) -> None:
    async with cluster(embedded, node("tiny", cpu="1", gpus=0)) as served:
        assert await failed(served, pod(labels=labels), "tiny") == {}


# --- profiles ------------------------------------------------------------------------------------


@pytest.mark.covers("003_18", "003_21")
async def test_the_scheduler_name_chooses_the_policy(embedded: str) -> None:
    nodes = (node("large", gpus=8, memory_gb="80"), node("spot", gpus=8, memory_gb="10", karpenter="spot"))
    async with cluster(embedded, *nodes) as served:
        scores = {
            name: await served.scores(pod(gpus=1, scheduler=name), "large", "spot")
            for name in (GPU_AWARE, COST, "default-scheduler")
        }

    assert scores[GPU_AWARE]["large"] > scores[GPU_AWARE]["spot"]
    assert scores[COST]["large"] < scores[COST]["spot"]
    assert scores["default-scheduler"] == {"large": 1, "spot": 1}


@pytest.mark.covers("001_20")
async def test_a_profile_of_your_own_weighs_its_scores(embedded: str) -> None:
    mixed = ExtenderProfile(
        scheduler_name="mixed",
        scores=[
            ExtenderScore(name="WorkloadIsolation", weight=10),
            ExtenderScore(name="CostOptimized", weight=5),
        ],
    )
    rules = extender_rules(ExtenderSettings(profiles=[mixed]))
    async with cluster(embedded, node("n"), node("spot", karpenter="spot"), rules=rules) as served:
        scores = await served.scores(pod(scheduler="mixed"), "n", "spot")

    # (10 × 50% + 5 × 100/300) ÷ 15 and (10 × 50% + 5 × 1) ÷ 15, of 10.
    assert scores == {"n": 4, "spot": 7}


def test_the_configuration_knows_the_rules_that_there_are() -> None:
    assert set(get_args(FilterName)) == set(Rule)
    assert set(get_args(ScoreName)) == set(SCORERS)


@pytest.mark.covers("003_22")
async def test_each_nodes_score_is_traced_at_debug(embedded: str, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster(embedded, node("n", memory_gb="80")) as served:
        with caplog.at_level(logging.DEBUG, "berth.extender"):
            await served.scores(pod(gpus=1, scheduler=GPU_AWARE), "n")

    assert "Scoring node n for pod default/p" in caplog.messages
    assert "Final score for node n: 10.00" in caplog.messages


@pytest.mark.parametrize("path", ["/filter", "/prioritize"])
async def test_a_node_of_the_request_alone_is_judged_by_what_the_request_says(
    embedded: str, path: str
) -> None:
    async with cluster(embedded) as served:
        nodes = [node("new", memory_gb="80"), node("other", memory_gb="4")]
        answer = (await served.post(path, whole(pod(gpus=1, scheduler=GPU_AWARE), nodes))).json

    if path == "/filter":
        assert set(answer["failedNodes"]) == {"other"}
    else:
        assert [one["score"] for one in answer] == [10, 5]


@pytest.mark.covers("004_22")
@pytest.mark.parametrize("order", [["GPUAware", "WorkloadType"], ["WorkloadType", "GPUAware"]])
async def test_filters_are_asked_in_the_configured_order(embedded: str, order: list[FilterName]) -> None:
    rules = extender_rules(
        ExtenderSettings(
            profiles=[ExtenderProfile(scheduler_name="mine", filters=order)], min_gpu_memory_gb=24
        )
    )
    wanted = pod(gpus=1, scheduler="mine", labels={"workload-type": "CPU-intensive"})
    async with cluster(embedded, node("n", cpu="1", memory_gb="16"), rules=rules) as served:
        refused = await failed(served, wanted, "n")

    reasons = {
        "GPUAware": "insufficient GPU memory: need 24GB, available 16GB",
        "WorkloadType": "Node lacks CPU resources",
    }
    assert refused == {"n": reasons[order[0]]}


@pytest.mark.covers("002_27")
@pytest.mark.parametrize("name", [GPU_AWARE, ""])
async def test_pods_of_another_scheduler_name_than_the_given_ones_pass(embedded: str, name: str) -> None:
    rules = extender_rules(ExtenderSettings(), ["topology-aware-scheduler"])
    nodes = (node("v100", gpus=8, product="v100"), node("a100", gpus=1, product="a100", memory_gb="80"))
    labels = {"accelerator.sched.io/gpu-model": "a100"}
    async with cluster(embedded, *nodes, rules=rules) as served:
        other, own = (pod(gpus=2, scheduler=one, labels=labels) for one in (name, "topology-aware-scheduler"))

        assert await failed(served, other, "v100", "a100", "unknown") == {}
        assert await served.scores(other, "v100", "a100", "unknown") == {"v100": 0, "a100": 0, "unknown": 0}
        assert set(await failed(served, own, "v100", "a100")) == {"v100"}
        assert await served.scores(own, "a100") == {"a100": 1}


@pytest.mark.covers("003_20")
async def test_the_examples_of_both_profiles_find_their_nodes(embedded: str) -> None:
    nodes = (
        node("h100", memory_gb="80", interconnect="nvlink", generation="h100", cost="90"),
        node("v100", gpus=2, memory_gb="16", generation="v100", cost="30"),
        node("spot", gpus=0, karpenter="spot", cost="5"),
    )
    training = pod("ml-training", gpus=4, memory="32Gi", cpu="8", scheduler=GPU_AWARE)
    batch = pod("batch-processing", memory="2Gi", cpu="1", scheduler=COST)
    async with cluster(embedded, *nodes) as served:
        refused = await failed(served, training, "h100", "v100", "spot")
        scores = await served.scores(batch, "h100", "v100", "spot")

    assert set(refused) == {"v100", "spot"}
    assert max(scores, key=lambda name: scores[name]) == "spot"
