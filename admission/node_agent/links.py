"""Reads `nvidia-smi topo -m`: how many NVLinks connect each pair of GPUs.

    \tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
    GPU0\t X \tNV12\tSYS\t0-31\t0
    GPU1\tNV12\t X \tSYS\t0-31\t0

Only the square of the GPUs is read. The columns of network adapters and affinities differ between drivers and
machines, and the header is underlined by an escape sequence, also in a pipe.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from admission.node_agent.gpus import ReadingError

# How many NVLinks connect two GPUs, by their indexes, the smaller one first; unlinked pairs are left out.
Links = Mapping[tuple[int, int], int]

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_NAME = re.compile(r"GPU([0-9]{1,4})")
_LINK = re.compile(r"NV([0-9]{1,3})")


def parse_links(text: str) -> Links:
    """Return the NVLinks in the output of `nvidia-smi topo -m`. Raises ReadingError."""
    lines = [_cells(line) for line in text.splitlines()]
    begin = next((at for at, cells in enumerate(lines) if cells[:1] == [""] and _is_gpu(cells[1:2])), None)
    if begin is None:
        shown = " ".join(text.split())[:200] or "nothing"
        raise ReadingError(f"nvidia-smi topo -m printed no matrix of GPUs: {shown}")
    columns = {at: _index(name) for at, name in enumerate(lines[begin]) if _is_gpu([name])}
    rows = {_index(cells[0]): cells for cells in lines[begin + 1 :] if _is_gpu(cells[:1])}
    if sorted(rows) != sorted(columns.values()):
        raise ReadingError("the rows of nvidia-smi topo -m are not those of its columns")
    counts = {
        (row, column): _count(cells, at, row, column)
        for row, cells in rows.items()
        for at, column in columns.items()
        if row != column
    }
    # A link that only one side reports is taken for none.
    return {
        (one, other): min(count, counts[other, one])
        for (one, other), count in counts.items()
        if one < other and min(count, counts[other, one]) > 0
    }


def _count(cells: Sequence[str], at: int, row: int, column: int) -> int:
    if at >= len(cells) or not cells[at]:
        raise ReadingError(f"nvidia-smi topo -m says nothing of GPU{row} and GPU{column}")
    found = _LINK.fullmatch(cells[at])
    return int(found[1]) if found else 0


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _ESCAPES.sub("", line).split("\t")]


def _is_gpu(cells: Sequence[str]) -> bool:
    return bool(cells) and _NAME.fullmatch(cells[0]) is not None


def _index(name: str) -> int:
    return int(name.removeprefix("GPU"))
