"""The cost of other processes: CPU seconds and peak memory, read from /proc (Linux)."""

from __future__ import annotations

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
