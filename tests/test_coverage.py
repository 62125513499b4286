"""`make coverage`: its report shows what tests ran, also in the processes that they started."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
# A module of Berth runs here, others in a child that works elsewhere.
A_TEST = """
import subprocess, sys
import queues.quota.quota_windows

def test_a_command(tmp_path):
    subprocess.run([sys.executable, "-m", "admission.cli", "crds"], cwd=tmp_path, check=True)
"""
ALL = 'source_pkgs = ["admission", "queues", "api"]'
FEW = 'source_pkgs = ["admission.cli", "queues"]'


def coverage_command(*arguments: str | Path) -> list[str]:
    """Return how `make coverage` starts pytest, with these arguments more."""
    given = f"PYTEST_ARGS={shlex.join(map(str, arguments))}"
    printed = subprocess.run(
        ["make", "-n", "coverage", given], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    [line] = [line for line in printed.splitlines() if " -m pytest " in line]
    return [sys.executable, *shlex.split(line)[1:]]


@pytest.mark.slow
@pytest.mark.covers("002_28")
def test_make_coverage_shows_which_lines_ran_here_and_in_a_child(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text(A_TEST)
    # To report on all of Berth takes a minute.
    settings = (ROOT / "pyproject.toml").read_text().replace(ALL, FEW)
    (tmp_path / "pyproject.toml").write_text(settings)
    environment = {name: word for name, word in os.environ.items() if not name.startswith("COVERAGE_")}
    environment["COVERAGE_FILE"] = str(tmp_path / "data")
    report = tmp_path / "coverage.xml"
    command = coverage_command(
        f"--cov-config={tmp_path / 'pyproject.toml'}",
        "--cov-report=",
        f"--cov-report=xml:{report}",
        tmp_path / "test_one.py",
    )

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    ran = {
        one.get("filename"): any(int(line.get("hits", "0")) for line in one.iter("line"))
        for one in ElementTree.parse(report).iter("class")
    }
    assert ran["queues/quota/quota_windows.py"]
    assert ran["admission/cli/commands/crds.py"], "the command ran in a child"
    assert not ran["admission/cli/commands/demo.py"], "no test ran the demo"
