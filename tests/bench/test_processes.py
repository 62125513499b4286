"""The cost of a process includes what it started, and its end ends the work that needs it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from bench.processes import cost_of, cost_of_tree, while_running
from tests.children import Child, ChildError


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


def child(folder: Path, script: str) -> Child:
    """Return a process that runs this script."""
    return Child(name="helper", arguments=("/bin/sh", "-c", script), log=folder / "helper.log")


async def never() -> None:
    """Wait for what never happens."""
    await asyncio.Event().wait()


def test_work_ends_with_the_process_that_it_needs(tmp_path: Path) -> None:
    with (
        child(tmp_path, "echo it cannot go on; exit 4") as helper,
        pytest.raises(ChildError, match=r"(?s)helper ended with 4;.*it cannot go on"),
    ):
        asyncio.run(while_running([helper], never()))


def test_an_error_of_the_work_passes_while_its_process_runs(tmp_path: Path) -> None:
    async def fail() -> None:
        raise LookupError("the work's own")

    with child(tmp_path, "exec sleep 600") as helper, pytest.raises(LookupError, match="the work's own"):
        asyncio.run(while_running([helper], fail()))


def test_work_that_is_done_leaves_its_process_running(tmp_path: Path) -> None:
    with child(tmp_path, "exec sleep 600") as helper:
        asyncio.run(while_running([helper], asyncio.sleep(0)))

        assert helper.is_running()
