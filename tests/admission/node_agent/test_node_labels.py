"""The labels that a node gets for its GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from admission.node_agent.gpus import Gpu
from admission.node_agent.node_labels import node_labels
from tests.admission.node_agent.recorded import inventory_of, labels_of

MODEL, MEMORY, FAMILY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory", "nvidia.com/gpu.family"
TOPOLOGY, INTERCONNECT = "nvidia.com/gpu-topology", "gpu-interconnect"
ISLAND, NUMA = "berth.dev/nvlink-island.", "nvidia.com/gpu.numa"
FABRIC = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d.32766"


def gpu(index: int, **fields: object) -> Gpu:
    """Return a GPU."""
    given = {"uuid": f"GPU-{index}", "bus_id": f"0000:{index:02x}:00.0", "model": "NVIDIA L4", **fields}
    return Gpu(index=index, **given)  # type: ignore[arg-type]


@pytest.mark.covers("001_03")
@pytest.mark.parametrize(
    ("machine", "want"),
    [
        pytest.param(
            "pcie",
            {MODEL: "Tesla-T4", MEMORY: "15109", TOPOLOGY: "pcie", INTERCONNECT: "pcie"},
            id="a machine with PCIe alone",
        ),
        pytest.param(
            "dgx1",
            {
                MODEL: "Tesla-V100-SXM2-32GB",
                MEMORY: "32480",
                TOPOLOGY: "nvlink",
                INTERCONNECT: "nvlink",
                f"{ISLAND}0": "0-3",
                f"{ISLAND}1": "4-7",
            },
            id="a hybrid cube mesh",
        ),
        pytest.param(
            "nvswitch",
            {
                MODEL: "NVIDIA-H100-80GB-HBM3",
                MEMORY: "81559",
                FAMILY: "hopper",
                TOPOLOGY: "nvswitch",
                INTERCONNECT: "nvlink",
                f"{ISLAND}0": "0-7",
            },
            id="a machine with NVSwitch",
        ),
        pytest.param(
            "bridged",
            {
                MODEL: "NVIDIA-A100-80GB-PCIe",
                MEMORY: "81920",
                FAMILY: "ampere",
                TOPOLOGY: "nvlink",
                INTERCONNECT: "nvlink",
                f"{ISLAND}0": "0_2",
                f"{ISLAND}1": "1_3",
            },
            id="bridges between GPUs that are not neighbours",
        ),
        pytest.param(
            "nvl72",
            {
                MODEL: "NVIDIA-GB200",
                MEMORY: "189471",
                FAMILY: "blackwell",
                TOPOLOGY: "nvswitch",
                INTERCONNECT: "nvlink",
                f"{ISLAND}0": "0-3",
                "nvlink-fabric-id": FABRIC,
                "nvidia.com/gpu.clique": FABRIC,
            },
            id="a node of an NVLink domain",
        ),
        pytest.param(
            "mig",
            {
                MODEL: "NVIDIA-A100-SXM4-40GB",
                MEMORY: "40960",
                FAMILY: "ampere",
                TOPOLOGY: "nvlink",
                INTERCONNECT: "nvlink",
                f"{ISLAND}0": "1-3",
            },
            id="a GPU in parts belongs to no island",
        ),
    ],
)
def test_the_labels_of_a_machine(machine: str, want: Mapping[str, str]) -> None:
    assert labels_of(machine) == want


def test_without_links_the_labels_of_the_gpus_stay() -> None:
    labels = node_labels(inventory_of("lost").gpus, None, {}, ())

    assert labels == {MODEL: "NVIDIA-A100-SXM4-40GB", MEMORY: "40960", FAMILY: "ampere"}


@pytest.mark.parametrize(
    ("gpus", "absent"),
    [
        pytest.param([gpu(0), gpu(1, model="NVIDIA T4")], {MODEL}, id="two models"),
        pytest.param([gpu(0, memory_mib=1), gpu(1, memory_mib=2)], {MEMORY}, id="two sizes of memory"),
        pytest.param([gpu(0, fabric="a.1"), gpu(1)], {"nvlink-fabric-id"}, id="a GPU outside of the fabric"),
        pytest.param([gpu(0, is_split=True)], {MODEL, MEMORY, TOPOLOGY}, id="all GPUs in parts"),
        pytest.param([], {MODEL, MEMORY, TOPOLOGY, NUMA}, id="no GPU"),
    ],
)
def test_what_does_not_hold_for_each_gpu_is_left_out(gpus: list[Gpu], absent: set[str]) -> None:
    assert absent.isdisjoint(node_labels(gpus, {}, {0: 0}, ()))


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param("NVIDIA  GeForce RTX 4090 (D)", "NVIDIA-GeForce-RTX-4090-D", id="brackets"),
        pytest.param("NVIDIA RTX 6000 Ada/", "NVIDIA-RTX-6000-Ada", id="a slash at the end"),
        pytest.param("x" * 70, "x" * 63, id="a long name"),
    ],
)
def test_a_model_becomes_the_value_of_a_label(model: str, want: str) -> None:
    assert node_labels([gpu(0, model=model)], {}, {}, ())[MODEL] == want


@pytest.mark.covers("000_26")
@pytest.mark.parametrize(
    ("numa_nodes", "taken", "want"),
    [
        pytest.param({0: 1, 1: 1, 2: 1, 3: 1}, (), "1", id="one NUMA node"),
        pytest.param({0: 0, 1: 0, 2: 1, 3: 1}, (), "0", id="of equals the lowest"),
        pytest.param({0: 0, 1: 0, 2: 1, 3: 1}, (1,), "1", id="the one with more free GPUs"),
        pytest.param({0: 0, 1: 0, 2: 1, 3: 1}, (0, 1, 2, 3), "0", id="the lowest when none is free"),
        pytest.param({0: 0, 1: 0, 2: 1}, (), None, id="none while a GPU's is unknown"),
    ],
)
def test_the_numa_node_is_that_of_the_free_gpus(
    numa_nodes: Mapping[int, int], taken: Collection[int], want: str | None
) -> None:
    assert labels_of("pcie", numa_nodes=numa_nodes, taken=taken).get(NUMA) == want
