"""What one run measured, the medians of several, and both as a table and as JSON."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml

# In the order of the rows. `large-required-rack`, of the topology shape, counts as `large`.
CLASSES = ("large", "medium", "small")

_Get = Callable[["Turn"], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What the runner recorded: evictions, and the mean seconds from creation to admission by class.

    `unfinished` Workloads remained at its end. It recorded nothing of `dropped_events`, because it was busy.
    """

    evictions: int
    admission_seconds: Mapping[str, float]
    unfinished: int
    dropped_events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one controller. CPU is in seconds, user and system together; `peak_mb` is the controller's.

    The controller's figures include its child processes, such as Berth's embedded Redis. `leader_losses` is
    None for Kueue's minimal controller, which elects no leader. `writes` are those of Berth by purpose.
    """

    controller: str
    workloads: int
    seconds: float
    controller_cpu: float
    apiserver_cpu: float
    etcd_cpu: float
    runner_cpu: float
    peak_mb: float
    recorded: Recorded
    leader_losses: int | None = None
    writes: Mapping[str, int] = field(default_factory=dict)

    @property
    def other_cpu(self) -> float:
        """The CPU seconds of API server, etcd and runner together."""
        return self.apiserver_cpu + self.etcd_cpu + self.runner_cpu


class Figure(NamedTuple):
    """One row of the table, with its key in JSON, and how it is read from a run."""

    key: str
    label: str
    of: _Get
    digits: int = 0


def read_recorded(folder: Path) -> Recorded:
    """Return what the runner left in its output folder, about the Workloads that it created itself."""
    summary = yaml.safe_load((folder / "summary.yaml").read_text())
    counts: dict[str, int] = {}
    waited_ms: dict[str, int] = {}
    classes = {name: found for name, found in summary["workloadClasses"].items() if name}
    for name, found in classes.items():
        of = name.partition("-")[0]
        counts[of] = counts.get(of, 0) + found["count"]
        waited_ms[of] = waited_ms.get(of, 0) + found["count"] * found["averageTimeToAdmissionMs"]
    with (folder / "wlStates.csv").open(newline="") as file:
        unfinished = sum(row["ms to finish"] == "0" for row in csv.DictReader(file) if row["class name"])
    return Recorded(
        evictions=sum(found["totalEvictions"] for found in classes.values()),
        admission_seconds={of: waited_ms[of] / count / 1000 for of, count in counts.items()},
        unfinished=unfinished,
        dropped_events=summary["droppedWorkloadEvents"],
    )


def figures(turns: Sequence[Turn]) -> list[Figure]:
    """Return the rows for these runs: only classes and purposes of writes that occur in them."""
    purposes = sorted({purpose for turn in turns for purpose in turn.writes})
    classes = [one for one in CLASSES if any(one in turn.recorded.admission_seconds for turn in turns)]
    return [
        Figure("seconds", "seconds", lambda turn: turn.seconds, 1),
        Figure("workloads_per_second", "Workloads/s", lambda turn: turn.workloads / turn.seconds, 1),
        Figure("controller_cpu", "CPU s, controller", lambda turn: turn.controller_cpu, 1),
        Figure("apiserver_cpu", "CPU s, API server", lambda turn: turn.apiserver_cpu, 1),
        Figure("etcd_cpu", "CPU s, etcd", lambda turn: turn.etcd_cpu, 1),
        Figure("runner_cpu", "CPU s, runner", lambda turn: turn.runner_cpu, 1),
        Figure("other_cpu", "CPU s, all but controller", lambda turn: turn.other_cpu, 1),
        Figure("peak_mb", "peak MB, controller", lambda turn: turn.peak_mb),
        Figure("evictions", "evictions", lambda turn: turn.recorded.evictions),
        *(Figure(f"admission_seconds.{one}", f"s to admission, {one}", _seconds(one), 1) for one in classes),
        Figure("unfinished", "Workloads left unfinished", lambda turn: turn.recorded.unfinished),
        Figure("dropped_events", "events the runner dropped", lambda turn: turn.recorded.dropped_events),
        Figure("leader_losses", "leadership lost", lambda turn: turn.leader_losses),
        *(Figure(f"writes.{purpose}", f"writes, {purpose}", _writes(purpose)) for purpose in purposes),
    ]


def _seconds(name: str) -> _Get:
    return lambda turn: turn.recorded.admission_seconds.get(name)


def _writes(purpose: str) -> _Get:
    # A purpose that Berth had no write for is 0; Kueue does not count its writes.
    return lambda turn: turn.writes.get(purpose, 0) if turn.writes else None


def median_of(figure: Figure, turns: Sequence[Turn]) -> float | None:
    """Return the median of a row over these runs; None where no run has it."""
    found = [value for turn in turns if (value := figure.of(turn)) is not None]
    return median(found) if found else None


def to_table(turns: Sequence[Turn]) -> str:
    """Return a table: a row for each figure, a column for each run and each median, and their ratio."""
    controllers = list(dict.fromkeys(turn.controller for turn in turns))
    rows = [list(_headings(turns, controllers))]
    for figure in figures(turns):
        cells, medians = [figure.label], []
        for controller in controllers:
            own = [turn for turn in turns if turn.controller == controller]
            cells += [_cell(figure.of(turn), figure.digits) for turn in own]
            medians.append(median_of(figure, own))
            if len(own) > 1:
                cells.append(_cell(medians[-1], figure.digits))
        if len(controllers) == 2:
            cells.append(_ratio(*medians))
        rows.append(cells)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def _headings(turns: Sequence[Turn], controllers: Sequence[str]) -> Iterator[str]:
    yield ""
    for controller in controllers:
        count = sum(turn.controller == controller for turn in turns)
        yield from [controller] if count == 1 else [f"{controller} {one + 1}" for one in range(count)]
        if count > 1:
            yield "median"
    if len(controllers) == 2:
        yield f"{controllers[1]} ÷ {controllers[0]}"


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def _ratio(first: float | None, second: float | None) -> str:
    return f"{second / first:.2f}" if first and second is not None else ""


def to_json(turns: Sequence[Turn], setting: Mapping[str, Any]) -> str:
    """Return the setting, every run and the medians by controller as JSON."""
    medians = {
        controller: {
            figure.key: median_of(figure, [turn for turn in turns if turn.controller == controller])
            for figure in figures(turns)
        }
        for controller in dict.fromkeys(turn.controller for turn in turns)
    }
    return json.dumps({**setting, "turns": [asdict(turn) for turn in turns], "medians": medians}, indent=1)
