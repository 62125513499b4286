"""What `nvidia-smi -q -x` says, from recorded outputs."""

from __future__ import annotations

import pytest

from admission.node_agent.gpus import Gpu, ReadingError
from admission.node_agent.nvidia_smi import parse_inventory
from tests.admission.node_agent.recorded import OUTPUTS, failure, inventory_of

CLUSTER = "0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"


@pytest.mark.parametrize(
    ("machine", "count", "first"),
    [
        pytest.param(
            "pcie",
            4,
            Gpu(
                index=0,
                uuid="GPU-aaaaaaaa-0000-4000-8000-000000000000",
                bus_id="0000:3b:00.0",
                model="Tesla T4",
                memory_mib=15109,
            ),
            id="a driver that does not know architectures",
        ),
        pytest.param(
            "dgx1",
            8,
            Gpu(
                index=0,
                uuid="GPU-bbbbbbbb-0000-4000-8000-000000000000",
                bus_id="0000:06:00.0",
                model="Tesla V100-SXM2-32GB",
                memory_mib=32480,
            ),
            id="a driver that does not know MIG",
        ),
        pytest.param(
            "nvswitch",
            8,
            Gpu(
                index=0,
                uuid="GPU-cccccccc-0000-4000-8000-000000000000",
                bus_id="0000:19:00.0",
                model="NVIDIA H100 80GB HBM3",
                architecture="Hopper",
                memory_mib=81559,
            ),
            id="a fabric that ends at the node",
        ),
        pytest.param(
            "bridged",
            4,
            Gpu(
                index=0,
                uuid="GPU-dddddddd-0000-4000-8000-000000000000",
                bus_id="0000:17:00.0",
                model="NVIDIA A100 80GB PCIe",
                architecture="Ampere",
                memory_mib=81920,
            ),
            id="a warning after the document",
        ),
        pytest.param(
            "nvl72",
            4,
            Gpu(
                index=0,
                uuid="GPU-eeeeeeee-0000-4000-8000-000000000000",
                bus_id="0008:01:00.0",
                model="NVIDIA GB200",
                architecture="Blackwell",
                memory_mib=189471,
                fabric=f"{CLUSTER}.32766",
            ),
            id="a fabric over several nodes",
        ),
        pytest.param(
            "mig",
            4,
            Gpu(
                index=0,
                uuid="GPU-ffffffff-0000-4000-8000-000000000000",
                bus_id="0000:07:00.0",
                model="NVIDIA A100-SXM4-40GB",
                architecture="Ampere",
                memory_mib=40960,
                is_split=True,
            ),
            id="a GPU that is split",
        ),
    ],
)
def test_each_gpu_of_a_machine_is_read(machine: str, count: int, first: Gpu) -> None:
    found = inventory_of(machine)

    assert found.gpus[0] == first
    assert [gpu.index for gpu in found.gpus] == list(range(count))
    assert found.faults == ()


def test_a_gpu_that_fell_off_the_bus_is_named_and_the_others_keep_their_numbers() -> None:
    found = inventory_of("lost")

    assert [gpu.index for gpu in found.gpus] == [0, 1, 3]
    assert found.faults == ("GPU 2 at 0000:47:00.0 does not answer: GPU is lost",)


QUERY = (OUTPUTS / "nvl72" / "query.xml").read_text()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("<state>Completed</state>", "<state>In Progress</state>", id="not yet joined"),
        pytest.param("<status>Success</status>", "<status>Failure</status>", id="joining failed"),
        pytest.param(CLUSTER, "N/A", id="no domain"),
        pytest.param(CLUSTER, "00000000-0000-0000-0000-000000000000", id="the domain of zeros"),
        pytest.param("<cliqueId>32766</cliqueId>", "<cliqueId>N/A</cliqueId>", id="no clique"),
    ],
)
def test_without_a_complete_fabric_there_is_none(before: str, after: str) -> None:
    assert before in QUERY

    assert {gpu.fabric for gpu in parse_inventory(QUERY.replace(before, after)).gpus} == {""}


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param("<uuid>GPU-", "<uuid>Unknown Error GPU-", "does not answer: Unknown Error", id="uuid"),
        pytest.param("<product_name>NVIDIA GB200", "<product_name>", "has no uuid or no product", id="model"),
        pytest.param("<total>189471 MiB", "<total>GPU requires reset", "GPU requires reset", id="memory"),
    ],
)
def test_a_gpu_whose_fields_are_errors_is_a_fault(before: str, after: str, want: str) -> None:
    found = parse_inventory(QUERY.replace(before, after, 1))

    assert len(found.gpus) == 3
    assert want in found.faults[0]
    assert found.faults[0].startswith("GPU 0 at 0008:01:00.0 ")


def test_memory_that_the_driver_does_not_know_is_none() -> None:
    found = parse_inventory(QUERY.replace("<total>189471 MiB</total>", "<total>N/A</total>"))

    assert {gpu.memory_mib for gpu in found.gpus} == {0}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(failure("mismatch"), "no XML.*Driver/library version mismatch", id="a sentence"),
        pytest.param("", "no XML.*: nothing", id="nothing"),
        pytest.param(QUERY[:2000], "no XML", id="a document that is cut off"),
        pytest.param("<nvidia_smi_log></nvidia_smi_log>", "lists no GPU", id="no GPU"),
    ],
)
def test_an_output_without_gpus_is_an_error_that_quotes_it(text: str, want: str) -> None:
    with pytest.raises(ReadingError, match=want):
        parse_inventory(text)
