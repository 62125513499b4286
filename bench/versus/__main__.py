"""Kueue and Berth in turns through Kueue's own performance runner, on this machine.

    python -m bench.versus --shape topology --turns 3
    python -m bench.versus --scale 0.05 --turns 1 --only berth --delay-ms 100 -o json

Builds Kueue's controller and its runner once, from Go modules, into the cache that has the control plane of
the tests. A run of 15,000 Workloads takes about ten minutes on two cores, one of 50,000 about half an hour.
Figures depend on the machine and on what else runs on it: compare within one call, and quote medians.

Exit codes: 0 done, 1 something is missing or a run failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.versus.build import build_kueue, version
from bench.versus.report import Turn, to_json, to_table
from bench.versus.shapes import SHAPES, scaled, without_limits, workload_count
from bench.versus.turn import Bench, Controller, Setting, TurnFailed
from tests.controlplane import AssetsMissing, find_assets

_ONLY = {controller.lower(): (controller,) for controller in Controller}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all turns, print the figures, return the exit code."""
    asked = _parser().parse_args(arguments)
    say = _Progress()
    turns: list[Turn] = []
    try:
        bench, setting = _prepare(asked, say)
        with _folder(asked.keep) as folder:
            controllers = _ONLY.get(asked.only, tuple(Controller))
            for number in range(1, asked.turns + 1):
                for controller in controllers:
                    say.about = f"{controller} {number} of {asked.turns}"
                    own = folder / f"{controller.lower()}-{number}"
                    own.mkdir(parents=True)
                    turns.append(turn := bench.run(controller, own, say))
                    say.note(f"{turn.seconds:.0f} s, {turn.workloads / turn.seconds:.1f} Workloads/s")
        code = 0
    except (AssetsMissing, TurnFailed) as error:
        say.end()
        print(f"bench.versus: {say.about}: {error}", file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    say.end()
    if turns:  # also the runs before one that failed
        _print(turns, setting, asked.output)
    return code


def _prepare(asked: argparse.Namespace, say: _Progress) -> tuple[Bench, dict[str, Any]]:
    try:
        assets = find_assets()
    except AssetsMissing as error:
        raise AssetsMissing(f"{error}; `make controlplane` builds them once") from error
    kueue = build_kueue(say)
    config = scaled(kueue.config(asked.shape), asked.scale)
    if asked.without_limits:
        config = without_limits(config)
    setting = Setting(
        shape=asked.shape,
        config=config,
        delay_seconds=asked.delay_ms / 1000,
        timeout_seconds=asked.timeout_minutes * 60,
        berth_config=asked.berth_config,
    )
    described = {
        "shape": asked.shape,
        "scale": asked.scale,
        "without_limits": asked.without_limits,
        "delay_ms": asked.delay_ms,
        "workloads": workload_count(config),
        "kueue": version(),
        "control_plane": assets.version,
        "cores": os.cpu_count(),
    }
    return Bench(assets, kueue, setting), described


def _print(turns: Sequence[Turn], setting: dict[str, Any], output: str) -> None:
    if output == "json":
        print(to_json(turns, setting))
        return
    late = f", answers {setting['delay_ms']:g} ms later" if setting["delay_ms"] else ""
    limits = ", quota for all" if setting["without_limits"] else ""
    print(
        f"{setting['shape']}: {setting['workloads']:,} Workloads{limits}{late}; Kueue {setting['kueue']}, "
        f"{setting['control_plane']}, {setting['cores']} cores\n"
    )
    print(to_table(turns))


class _Progress:
    """Tells on stderr what is going on: on a terminal in one changing line, elsewhere only what is done."""

    def __init__(self) -> None:
        self.about = "preparing"
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, line: str) -> None:
        """Show this line, in place of the one before."""
        if self._is_terminal:
            print(f"\r\x1b[K{self.about}: {line}", end="", file=sys.stderr, flush=True)

    def note(self, line: str) -> None:
        """Print this line for good."""
        self.end()
        print(f"{self.about}: {line}", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the line."""
        if self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="berth-versus-") as name:
        yield Path(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.versus",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--shape",
        choices=SHAPES,
        default="baseline",
        help="Kueue's: 15,000 Workloads in 30 ClusterQueues (default), the same with 640 nodes, "
        "or 50,000 in 1,000 ClusterQueues",
    )
    parser.add_argument(
        "--turns", type=_count, default=3, metavar="N", help="runs of each controller; default 3"
    )
    parser.add_argument("--only", choices=_ONLY, help="run only this controller")
    parser.add_argument("--scale", type=_positive, default=1.0, metavar="F", help="F times the Workloads")
    parser.add_argument(
        "--without-limits",
        action="store_true",
        help="give every ClusterQueue quota for all Workloads: what API server and runner allow at most",
    )
    parser.add_argument(
        "--delay-ms",
        type=_not_negative,
        default=0.0,
        metavar="MS",
        help="hold back each answer of the API server to the controller by so many milliseconds",
    )
    parser.add_argument(
        "--timeout-minutes", type=_positive, default=60.0, metavar="M", help="of one run; default 60"
    )
    parser.add_argument(
        "--berth-config", type=_file, metavar="FILE", help="configuration file of Berth's controller"
    )
    parser.add_argument(
        "--keep", type=_new_folder, metavar="DIR", help="keep logs and what the runner recorded there"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _positive(text: str) -> float:
    if (value := _not_negative(text)) == 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def _not_negative(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return value


def _file(text: str) -> Path:
    if not (path := Path(text)).is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def _new_folder(text: str) -> Path:
    if (path := Path(text)).exists():
        raise argparse.ArgumentTypeError(f"{text} exists already")
    return path


if __name__ == "__main__":
    # As with Ctrl-C: the processes end and the temporary folder is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
