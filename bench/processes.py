"""Other processes: what they cost (CPU seconds and peak memory, read from /proc of Linux), and their end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.children import Child, ChildError

_TICKS = os.sysconf("SC_CLK_TCK")
# How often it is looked whether a process has ended.
_LOOK_SECONDS = 0.5


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


async def while_running(children: Sequence[Child], work: Coroutine[None, None, None]) -> None:
    """Do work that needs these processes.

    The first that ends before the work is done ends it by a ChildError, with the end of its log: what waits
    for the answers of a process that has ended would wait for ever.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await asyncio.wait((task,), timeout=_LOOK_SECONDS)
            # Asked first: an error of the work follows from the end of a process that it talks to.
            for child in children:
                if not child.is_running():
                    raise ChildError(f"{child.name} ended with {child.wait(0)}{child.log_tail()}")
        task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
