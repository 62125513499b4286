"""A `berth` command that is forked does what the program does, and ends with the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import Child
from tests.forks import ForkedChild
from tests.integration.replica import BERTH
from tests.integration.waiting import wait_for
from tests.test_children import has_ended

# Starts a server as a fork, prints its pid and waits to be killed.
_PARENT = """
import pathlib, sys, threading
from tests.forks import ForkedChild
folder = pathlib.Path(sys.argv[1])
kubeconfig = folder / "kubeconfig"
arguments = [sys.argv[2], "apiserver", "--nodes", "1x1", "--kubeconfig", str(kubeconfig)]
child = ForkedChild(name="child", arguments=arguments, log=folder / "log")
child.start()
child.wait_ready(kubeconfig.exists, timeout_seconds=60)
print(child.pid, flush=True)
threading.Event().wait()
"""


@pytest.mark.parametrize(
    ("arguments", "want_code"),
    [
        pytest.param(["version"], 0, id="that succeeds"),
        pytest.param(["controller", "--no-such-flag"], 2, id="that is used wrongly"),
        pytest.param(["controller", "--kubeconfig", "missing"], 2, id="that finds no file in its folder"),
    ],
)
def test_a_fork_says_and_returns_what_the_program_does(
    tmp_path: Path, arguments: list[str], want_code: int
) -> None:
    said = {}
    for kind in (Child, ForkedChild):
        log = tmp_path / kind.__name__
        child = kind(name="child", arguments=[BERTH, *arguments], log=log, directory=tmp_path)
        child.start()
        assert child.wait(60.0) == want_code
        said[kind] = log.read_text()

    assert said[ForkedChild] == said[Child] != ""


def test_a_fork_is_given_its_environment(tmp_path: Path) -> None:
    child = ForkedChild(
        name="child",
        arguments=[BERTH, "controller", "--kubeconfig", "missing", "--enable-failpoints"],
        log=tmp_path / "log",
        environment={"BERTH_FAILPOINT": "no-such-point"},
    )
    child.start()

    assert child.wait(60.0) == 2
    assert "no-such-point" in child.log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
def test_a_fork_dies_with_tests_that_are_killed(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", _PARENT, str(tmp_path), BERTH]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
        parent.kill()

    wait_for(lambda: has_ended(pid), "the end of the fork")
