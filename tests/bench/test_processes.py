"""The cost of a process includes what it started."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bench.processes import cost_of, cost_of_tree


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="optional: needs the /proc of Linux")
def test_the_cost_of_a_tree_includes_the_children_of_children() -> None:
    script = "sh -c 'sleep 60 & echo started; wait' & wait"
    with subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE, process_group=0) as root:
        assert root.stdout is not None
        assert root.stdout.readline() == b"started\n"
        try:
            own, tree = cost_of(root.pid), cost_of_tree(root.pid)
        finally:
            os.killpg(root.pid, 9)

    # Three processes of about the same size.
    assert tree.peak_mb > 2 * own.peak_mb
    assert tree.cpu_seconds >= own.cpu_seconds
