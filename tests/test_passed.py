"""What CI has run without the real parts and runs with them again: `-p tests.passed`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_SETTINGS = Path(__file__).parents[1] / "pyproject.toml"
_TESTS = """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError

def test_passes(): pass
def test_passes_too(): pass
def test_skips_itself(): pytest.skip("no mood")
def test_fails(): assert False
def test_leaves_a_mess(broken): pass
@pytest.mark.xfail
def test_is_known_to_fail(): assert False
@pytest.mark.xfail
def test_is_said_to_fail(): pass
"""


def closing_line(folder: Path, *options: str) -> str:
    """Run pytest on the files of `folder`; return its last line without the time."""
    command = [sys.executable, "-m", "pytest", "-p", "tests.passed", "-c", str(_SETTINGS), "-q", *options]
    environment = {**os.environ, "PYTHONPATH": str(_SETTINGS.parent)}
    done = subprocess.run(
        [*command, "."], cwd=folder, capture_output=True, text=True, env=environment, check=False
    )
    return done.stdout.splitlines()[-1].partition(" in ")[0]


def test_what_has_passed_is_left_out_of_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "test_samples.py").write_text(_TESTS)
    passed = tmp_path / "passed"

    first = closing_line(tmp_path, "--passed-to", str(passed))
    second = closing_line(tmp_path, "--not-again", str(passed))

    assert first == "1 failed, 3 passed, 1 skipped, 1 xfailed, 1 xpassed, 1 error"
    assert [name.rpartition("::")[2] for name in json.loads(passed.read_text())] == [
        "test_passes",
        "test_passes_too",
    ]
    assert second == "1 failed, 1 passed, 1 skipped, 2 deselected, 1 xfailed, 1 xpassed, 1 error"


# What modules say whose tests may do otherwise with all parts.
MODULES = {
    "looks_for_a_part": "from tests import parts",
    "starts_a_redis": "from tests.redisserver import RedisServer",
    "looks_for_a_program": "import shutil; shutil.which('sh')",
    "reads_what_ci_sets": "import os; os.environ.get('CI')",
    "has_laws": "from hypothesis import given",
}


def test_modules_that_may_do_otherwise_are_run_again(tmp_path: Path) -> None:
    modules = {**MODULES, "decides": "import math"}
    for name, line in modules.items():
        (tmp_path / f"test_{name}.py").write_text(f"{line}\ndef test_it(): pass\n")
    passed, again = tmp_path / "passed", tmp_path / "again"
    passed.write_text(json.dumps([f"test_{name}.py::test_it" for name in modules]))

    line = closing_line(tmp_path, "--not-again", str(passed), "--passed-to", str(again))

    assert line == "5 passed, 1 deselected"
    assert json.loads(again.read_text()) == sorted(f"test_{name}.py::test_it" for name in MODULES)
