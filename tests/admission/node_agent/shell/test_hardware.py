"""nvidia-smi as a program that works, fails, is missing or hangs, and the NUMA nodes of /sys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from admission.node_agent.gpus import ReadingError
from admission.node_agent.shell.hardware import Hardware
from tests.admission.node_agent.machine import Machine
from tests.admission.node_agent.recorded import inventory_of, links_of


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Give a machine with a program nvidia-smi."""
    return Machine(tmp_path / "machine")


async def test_a_machine_is_read(machine: Machine) -> None:
    machine.become("dgx1")
    hardware = Hardware(machine.nvidia_smi, machine.sys_root)

    assert await hardware.read_inventory() == inventory_of("dgx1")
    assert await hardware.read_links() == links_of("dgx1")


@pytest.mark.parametrize(
    ("name", "code", "want"),
    [
        pytest.param("mismatch", 18, "exit code 18: .*Driver/library version mismatch", id="another version"),
        pytest.param("not-loaded", 9, "exit code 9: .*communicate with the NVIDIA driver", id="not loaded"),
        pytest.param("no-library", 12, "exit code 12: .*libnvidia-ml.so", id="no library"),
        pytest.param("no-device", 6, "exit code 6: No devices were found", id="no device"),
        pytest.param("unknown-error", 255, "exit code 255: Unable to determine", id="a lost GPU"),
    ],
)
async def test_a_driver_that_fails_is_quoted_in_one_sentence(
    machine: Machine, name: str, code: int, want: str
) -> None:
    machine.fail(name, code)
    hardware = Hardware(machine.nvidia_smi, machine.sys_root)

    with pytest.raises(ReadingError, match=f"nvidia-smi -q -x failed with {want}") as found:
        await hardware.read_inventory()
    with pytest.raises(ReadingError, match=f"nvidia-smi topo -m failed with {want}"):
        await hardware.read_links()
    assert "\n" not in str(found.value)


async def test_a_document_counts_although_the_program_fails(machine: Machine) -> None:
    machine.become("lost")
    machine.fail("unknown-error", 15)
    with (machine.folder / "failure").open("a") as file:
        file.write((machine.folder / "query.xml").read_text())

    assert await Hardware(machine.nvidia_smi, machine.sys_root).read_inventory() == inventory_of("lost")


async def test_a_program_that_is_not_there_is_an_error(machine: Machine) -> None:
    hardware = Hardware(str(machine.folder / "absent"), machine.sys_root)

    with pytest.raises(ReadingError, match=r"cannot run .*absent .*is the NVIDIA driver in this container"):
        await hardware.read_inventory()


async def test_a_program_that_hangs_is_given_up(machine: Machine) -> None:
    machine.hang()
    hardware = Hardware(machine.nvidia_smi, machine.sys_root, timeout_seconds=0.2)

    with pytest.raises(ReadingError, match=r"nvidia-smi topo -m gave no answer in 0.2 s"):
        await hardware.read_links()


@pytest.mark.parametrize(
    ("numa_nodes", "online", "want"),
    [
        pytest.param({0: 0, 1: 0, 2: 1, 3: 1}, "0-1", {0: 0, 1: 0, 2: 1, 3: 1}, id="two nodes"),
        pytest.param({0: 0}, "0-1", {0: 0}, id="the firmware does not say"),
        pytest.param({}, "0", {0: 0, 1: 0, 2: 0, 3: 0}, id="one node, and the firmware does not say"),
        pytest.param({}, "", {}, id="no NUMA in the kernel"),
    ],
)
def test_the_numa_nodes_of_gpus(
    machine: Machine, numa_nodes: Mapping[int, int], online: str, want: Mapping[int, int]
) -> None:
    gpus = machine.become("pcie", numa_nodes)
    if online:
        machine.write_sys("devices/system/node/online", f"{online}\n")

    assert Hardware(machine.nvidia_smi, machine.sys_root).read_numa_nodes(gpus) == want
