"""Leave out of a run what another one has just shown: `pytest -p tests.passed`.

CI runs tests without the real parts first, and all tests with them later. A test whose module names no part
does the same both times. So it runs once: without the parts, where one that it uses all the same is missed.

`--passed-to FILE` writes the ids of the tests that pass, as JSON. `--not-again FILE` leaves those out that
are in such a file, but for tests that may do otherwise in this run: those of modules that name a part or a
variable of the environment that CI sets, and laws, which draw other examples.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path

import pytest

# What a module says that looks for a part, starts one, acts by what CI sets differently, or draws examples.
_NAMES_A_PART = re.compile(
    r"(?i:redis|valkey|kubectl|promtool|chromium|browser|helm|assets)|import parts|tests\.parts|which\("
    r"""|["'](?:PATH|HOME|CI|VIRTUAL_ENV|XDG_\w+|PYTHON\w*|BERTH_\w+)["']|hypothesis|trying\("""
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add both options."""
    parser.addoption("--passed-to", type=Path, metavar="FILE", help="write the ids of passed tests to FILE")
    parser.addoption("--not-again", type=Path, metavar="FILE", help="leave out what FILE says has passed")


def pytest_configure(config: pytest.Config) -> None:
    """Count reports in the process that gets those of all."""
    path = config.getoption("--passed-to")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Record(path))


class _Record:
    """The ids of tests of which every part has passed: set-up, call and teardown."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._called: set[str] = set()
        self._others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of one part of a test."""
        if not report.passed or hasattr(report, "wasxfail"):
            self._others.add(report.nodeid)
        elif report.when == "call":
            self._called.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(sorted(self._called - self._others)))


@pytest.hookimpl(trylast=True)  # ids are complete once tests/conftest.py has named the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has passed and does the same again."""
    path = config.getoption("--not-again")
    if path is None:
        return
    passed = frozenset(json.loads(path.read_text()))
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if item.nodeid in passed and not may_differ(item.path) else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@functools.cache
def may_differ(module: Path) -> bool:
    """Return whether tests of this module may do otherwise where a part is there, or where one is missing."""
    return _NAMES_A_PART.search(module.read_text()) is not None
