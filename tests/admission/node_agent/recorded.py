"""Outputs of nvidia-smi as machines of several kinds print them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from admission.node_agent.gpus import Inventory
from admission.node_agent.links import Links, parse_links
from admission.node_agent.node_labels import node_labels
from admission.node_agent.nvidia_smi import parse_inventory

OUTPUTS = Path(__file__).parent / "outputs"


def inventory_of(machine: str) -> Inventory:
    """Return what `nvidia-smi -q -x` says on a machine."""
    return parse_inventory((OUTPUTS / machine / "query.xml").read_text())


def links_of(machine: str) -> Links:
    """Return what `nvidia-smi topo -m` says on a machine."""
    return parse_links((OUTPUTS / machine / "topology.txt").read_text())


def failure(name: str) -> str:
    """Return what nvidia-smi prints when it fails."""
    return (OUTPUTS / "failures" / f"{name}.txt").read_text()


def labels_of(
    machine: str, *, numa_nodes: Mapping[int, int] | None = None, taken: Collection[int] = ()
) -> dict[str, str]:
    """Return the labels of a machine."""
    return node_labels(inventory_of(machine).gpus, links_of(machine), numa_nodes or {}, taken)
