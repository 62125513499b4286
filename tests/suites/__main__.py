"""`python -m tests.suites [SUITE ...]`: run Kueue's own integration suites against Berth's controller.

A suite is a folder of test/integration/singlecluster of Kueue; without one, all of SUITES run. The first run
builds a suite into the cache, after `make controlplane`.

Exit codes: 0 all applicable cases passed, 1 some failed or a suite cannot be had here, 2 wrong usage, 130
interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.children import ChildError
from tests.controlplane.binaries import AssetsMissing, find_assets
from tests.suites.build import build_source, build_suite, version
from tests.suites.changes import ChangeFailed
from tests.suites.report import Outcome, Result, to_json, to_table
from tests.suites.run import SUITES, Setting, run_suite

_MINUTES = 90.0


def main(arguments: list[str] | None = None) -> int:
    """Run the suites and return the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        results = _run(asked)
    except (AssetsMissing, ChangeFailed, ChildError) as error:
        print(f"suites: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    if asked.build:
        return 0
    if asked.output == "json":
        print(to_json(results, kueue=version()))
    else:
        print(to_table(results))
    return 1 if any(result.has_failed for result in results) else 0


def _run(asked: argparse.Namespace) -> list[Result]:
    try:
        assets = find_assets()
    except AssetsMissing as error:
        raise AssetsMissing(f"{error}; `make controlplane` builds them once") from error
    setting = Setting(
        assets=assets,
        source=build_source(_say),
        focus=asked.focus,
        timeout_seconds=asked.timeout_minutes * 60,
    )
    results = []
    with _folder(asked.keep) as folder:
        for suite in asked.suite or SUITES:
            binary = build_suite(suite, _say)
            if asked.build:
                continue
            _say(f"running {suite}")
            results.append(run_suite(suite, binary, folder / suite, setting))
            counts = ", ".join(f"{results[-1].count(outcome)} {outcome}" for outcome in Outcome)
            _say(f"{suite}: {counts}")
    return results


def _say(line: str) -> None:
    print(f"suites: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="berth-suites-") as name:
        yield Path(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.suites",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("suite", nargs="*", choices=[*SUITES, []], help="default: all", metavar="SUITE")
    parser.add_argument(
        "--focus", metavar="REGEX", help="run only cases whose full names match this expression (Go's syntax)"
    )
    parser.add_argument("--build", action="store_true", help="build the suites and run none")
    parser.add_argument(
        "--timeout-minutes", type=float, default=_MINUTES, metavar="M", help="of one suite; default 90"
    )
    parser.add_argument(
        "--keep", type=_new_folder, metavar="DIR", help="keep logs, configuration files and reports there"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _new_folder(text: str) -> Path:
    if (path := Path(text)).exists():
        raise argparse.ArgumentTypeError(f"{text} exists already")
    return path


if __name__ == "__main__":
    # As with Ctrl-C: the processes end and the temporary folder is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
