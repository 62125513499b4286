"""The cost of other processes: CPU seconds and peak memory, read from /proc (Linux)."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """CPU seconds, user and system together, and the peak resident memory in MB."""

    cpu_seconds: float
    peak_mb: float


def cost_of(pid: int) -> Cost:
    """Return the cost of a process since its start, including its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = sum(int(field) for field in fields[11:15])
    status = Path(f"/proc/{pid}/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return Cost(cpu_seconds=ticks / _TICKS, peak_mb=int(peak.split()[1]) / 1024)


def cost_of_tree(pid: int) -> Cost:
    """Return the cost of a process and of all that descend from it; the peaks are added up."""
    costs = [cost_of(pid)]
    for child in _descendants(pid):
        with contextlib.suppress(OSError):  # it has ended, and what it used counts as its parent's
            costs.append(cost_of(child))
    return Cost(
        cpu_seconds=sum(cost.cpu_seconds for cost in costs), peak_mb=sum(cost.peak_mb for cost in costs)
    )


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = children.get(pid, [])
    for one in found:
        found.extend(children.get(one, ()))
    return found
