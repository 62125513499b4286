"""The one function: what a pod asks, what a node offers, and why the two do not fit."""

from __future__ import annotations

import pytest

from admission.hardware.fit import NodeLoad, misfit, request_of
from admission.hardware.gpu_shares import PodGpus
from admission.hardware.node_hardware import NodeKinds, node_hardware
from admission.hardware.pod_hardware import read_pod
from admission.hardware.rules import HardwareRules
from api.node import NodeInfo

A100 = {
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/gpu.memory": "81559",
    "nvidia.com/gpu-topology": "nvlink",
    "gpu-interconnect": "nvlink",
    "berth.dev/nvlink-island.0": "0-3",
    "berth.dev/nvlink-island.1": "4-7",
}
# As GPU Feature Discovery labels a node whose GPUs are all partitioned alike.
MIG = {
    **A100,
    "nvidia.com/mig.strategy": "single",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
    "nvidia.com/gpu.memory": "9728",
}
V100 = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB", "nvidia.com/gpu.memory": "16160"}
AWARE, PACKED = "gpu-aware-scheduler", "ai-scheduler"
INFERENCE = {"berth.dev/workload-type": "inference", "berth.dev/gpu-memory-mib": "40000"}


def node(labels: dict[str, str], gpus: int = 8, cpu: int = 64_000) -> NodeInfo:
    return NodeInfo(name="n", labels=labels, allocatable={"nvidia.com/gpu": gpus, "cpu": cpu})


def reason(
    keys: dict[str, str], labels: dict[str, str], *, gpus: int = 4, scheduler: str = "", **others: object
) -> str:
    need = request_of(read_pod(keys, {}), gpus, HardwareRules(), scheduler)
    load = others.pop("load", NodeLoad())
    assert isinstance(load, NodeLoad)
    found = None if need is None else misfit(need, node_hardware(node(labels, **others)), load)  # type: ignore[arg-type]
    return "" if found is None else str(found)


MODEL, MEMORY = "accelerator.sched.io/gpu-model", "berth.dev/gpu-memory-mib"
PARALLEL, LEAST = "berth.dev/parallelism", "berth.dev/gpu-generation"
LINK = "berth.dev/gpu-interconnect"


@pytest.mark.parametrize(
    ("keys", "labels", "want"),
    [
        pytest.param({}, {}, "", id="a pod that asks for nothing fits any node"),
        pytest.param({MODEL: "nvidia-a100-sxm4-80gb"}, A100, "", id="models are compared without case"),
        pytest.param(
            {MODEL: "NVIDIA-H100"},
            V100,
            "GPU model mismatch (need NVIDIA-H100, has Tesla-V100-SXM2-16GB)",
            id="another model is named",
        ),
        pytest.param(
            {MODEL: "NVIDIA-H100"},
            {},
            "Node does not have a GPU model label (need NVIDIA-H100)",
            id="a node that does not name its model cannot be the one asked for",
        ),
        pytest.param({MEMORY: "300000"}, A100, "", id="memory is shared by the pod's GPUs"),
        pytest.param(
            {MEMORY: "300000"},
            V100,
            "insufficient GPU memory: need 74GB, available 16GB",
            id="memory that no GPU of the node has",
        ),
        pytest.param({MEMORY: "much"}, V100, "", id="memory that is no number asks for nothing"),
        pytest.param({LEAST: "ampere"}, A100, "", id="a generation by its family"),
        pytest.param(
            {LEAST: "h100"}, A100, "GPU generation too old (need 9, has 8)", id="a generation by a model"
        ),
        pytest.param(
            {LEAST: "8"}, {}, "GPU generation too old (need 8, has no known one)", id="an unknown generation"
        ),
        pytest.param({LEAST: "9"}, {"nvidia.com/gpu.compute.major": "9"}, "", id="the generation discovered"),
        pytest.param({LINK: "NVLink"}, A100, "", id="the interconnect by either label"),
        pytest.param(
            {LINK: "nvswitch"},
            A100,
            "GPU interconnect mismatch (need nvswitch, has nvlink)",
            id="another interconnect",
        ),
        pytest.param({PARALLEL: "tensor"}, A100, "", id="tensor parallelism on NVLink"),
        pytest.param(
            {PARALLEL: "tensor"},
            V100,
            "Tensor parallelism demands NVLink/NVSwitch fabric",
            id="tensor parallelism on PCIe",
        ),
        pytest.param({PARALLEL: "ddp"}, A100, "", id="ddp in an island"),
        pytest.param(
            {PARALLEL: "ddp"}, V100, "Node lacks 4 GPUs in unified NVLink island", id="ddp without islands"
        ),
        pytest.param(
            {PARALLEL: "ddp"},
            {**A100, "berth.dev/nvlink-island.0": "0-7", "berth.dev/nvlink-island.1": "8-15"},
            "Node lacks 4 GPUs in unified NVLink island",
            id="islands larger than their node are smaller by the difference",
        ),
        pytest.param(
            {PARALLEL: "ddp"},
            {**A100, "berth.dev/nvlink-island.1": "3-6", "berth.dev/nvlink-island.0": "0-2"},
            "",
            id="islands that do not overlap",
        ),
        pytest.param(
            {PARALLEL: "ddp"},
            {**A100, "berth.dev/nvlink-island.1": "3-6", "berth.dev/nvlink-island.0": "1-3"},
            "Node lacks 4 GPUs in unified NVLink island",
            id="a GPU in two islands is in the first",
        ),
        pytest.param({LEAST: "newest"}, V100, "", id="a generation that does not exist asks for nothing"),
        pytest.param({PARALLEL: "pipeline"}, V100, "", id="a parallelism without a rule asks for nothing"),
        pytest.param({}, {**A100, "nvidia.com/gpu.replicas": "4"}, "", id="whole GPUs of a shared node"),
        pytest.param(
            {PARALLEL: "ddp"},
            {**A100, "nvidia.com/gpu.replicas": "4"},
            "GPUs of the node are shared or partitioned, and the pod needs linked ones",
            id="linked GPUs of a shared node",
        ),
        pytest.param({}, MIG, "", id="whole GPUs of a node that MIG partitions"),
        pytest.param(
            {PARALLEL: "ddp"},
            MIG,
            "GPUs of the node are shared or partitioned, and the pod needs linked ones",
            id="linked GPUs of a node that MIG partitions",
        ),
        pytest.param(
            {MEMORY: "80000"},
            MIG,
            "insufficient GPU memory: need 20GB, available 10GB",
            id="a partition has the memory of a partition",
        ),
        pytest.param(
            {"workload-type": "GPU-intensive", "berth.dev/workload-type": "training"},
            {},
            "",
            id="a pod made for GPUs, on a node with some",
        ),
    ],
)
def test_what_a_pod_asks_by_keys_of_its_own(keys: dict[str, str], labels: dict[str, str], want: str) -> None:
    assert reason(keys, labels) == want


@pytest.mark.parametrize(
    ("scheduler", "keys", "load", "want"),
    [
        pytest.param("", {}, NodeLoad(gpus=8), "", id="a plain profile does not count GPUs"),
        pytest.param(
            AWARE,
            {},
            NodeLoad(gpus=6),
            "insufficient GPU: need 4, available 2",
            id="GPUAware counts those in use",
        ),
        pytest.param(PACKED, INFERENCE, NodeLoad(inference_mib=600_000), "", id="inference that has room"),
        pytest.param(
            PACKED,
            INFERENCE,
            NodeLoad(inference_mib=620_000),
            "insufficient GPU memory for inference: 40GB more would make 101% of 640GB",
            id="inference that would run out of memory",
        ),
        pytest.param(
            "", INFERENCE, NodeLoad(inference_mib=620_000), "", id="others count only where a profile packs"
        ),
        pytest.param(
            "",
            {PARALLEL: "ddp"},
            NodeLoad(pods=(PodGpus(2), PodGpus(2))),
            "",
            id="small pods share an island",
        ),
        pytest.param(
            "",
            {PARALLEL: "ddp"},
            NodeLoad(pods=(PodGpus(1, ids=(0,)), PodGpus(1, ids=(4,)))),
            "Node lacks 4 GPUs in unified NVLink island",
            id="recorded GPUs in both islands",
        ),
    ],
)
def test_what_others_use_of_the_node(scheduler: str, keys: dict[str, str], load: NodeLoad, want: str) -> None:
    assert reason(keys, A100, scheduler=scheduler, load=load) == want


def test_the_pod_comes_before_its_job_and_berths_key_before_its_alias() -> None:
    job = {"berth.dev/parallelism": "ddp", "workload-type": "inference", MODEL: "of-job"}

    assert read_pod({"berth.dev/parallelism": "tensor"}, {}, job=job).parallelism == "tensor"
    assert read_pod({}, {MODEL: "of-pod"}, job=job).model == "of-pod"
    assert read_pod(None, None, job=job).model == "of-job"
    assert read_pod(None, None, job=job).kind == ""
    assert read_pod(None, None, job=job, reads_aliases=True).kind == "inference"
    assert read_pod(None, {"workload-type": "inference"}, job={}).kind == "inference"


def test_equal_nodes_are_one_kind() -> None:
    kinds = NodeKinds()
    one, other = (
        NodeInfo(name=name, labels={**A100, "rack": name}, allocatable={"cpu": 1}) for name in ("a", "b")
    )

    assert kinds.of(one) is kinds.of(other)
    assert kinds.of(one) != kinds.of(node(V100))
    assert kinds.of(one) == node_hardware(one)
