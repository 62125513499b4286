"""The GPUs of one node as values, and the error of an output that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass


class ReadingError(Exception):
    """Hardware or the kubelet cannot be read; the message is one sentence that says what and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU that answers.

    `index` is its number in nvidia-smi, from 0. `bus_id` is its PCI address as in /sys ("0000:3b:00.0").
    `memory_mib` is 0 where the driver does not say. `is_split`: MIG is enabled, so that it is handed out in
    parts. `fabric` is its NVLink domain across nodes, "" outside of one.
    """

    index: int
    uuid: str
    bus_id: str
    model: str
    architecture: str = ""
    memory_mib: int = 0
    is_split: bool = False
    fabric: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The GPUs of a node in the order of nvidia-smi, and a sentence about each one that does not answer."""

    gpus: tuple[Gpu, ...]
    faults: tuple[str, ...] = ()
