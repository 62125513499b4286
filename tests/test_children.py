"""Child processes end with the tests, also when those are killed, and keep their ports to themselves."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.children import Child, ChildError, Port

_FOREVER = (sys.executable, "-ISc", "import threading; print('up', flush=True); threading.Event().wait()")

# Starts a child, waits until it is itself, prints its pid and waits to be killed.
_PARENT = """
import pathlib, sys, threading
from tests.children import Child
child = Child(name="child", arguments=sys.argv[2:], log=pathlib.Path(sys.argv[1]))
child.start()
child.wait_ready(lambda: 'up' in child.log.read_text(), timeout_seconds=20)
print(child.pid, flush=True)
threading.Event().wait()
"""

# The same with a worker of a pool, which waits for work.
_POOL = """
import os, threading
from concurrent.futures import ProcessPoolExecutor
from tests.children import tie_to_parent
pool = ProcessPoolExecutor(1, initializer=tie_to_parent, initargs=(os.getpid(),))
print(pool.submit(os.getpid).result(), flush=True)
threading.Event().wait()
"""


def make_child(folder: Path, *arguments: str) -> Child:
    return Child(name="child", arguments=arguments or _FOREVER, log=folder / "log")


def start_and_wait(child: Child) -> None:
    child.start()
    child.wait_ready(lambda: "up" in child.log.read_text(), timeout_seconds=20)


def has_ended(pid: int) -> bool:
    """A zombie has ended: whether it is reaped is up to the machine's init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a parent-death signal")
@pytest.mark.parametrize("program", [_PARENT, _POOL], ids=["of its own program", "of a pool"])
def test_a_child_dies_with_a_parent_that_is_killed(tmp_path: Path, program: str) -> None:
    arguments = [sys.executable, "-c", program, str(tmp_path / "log"), *_FOREVER]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not has_ended(pid)
        parent.kill()

    deadline = time.monotonic() + 10
    while not has_ended(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert has_ended(pid)


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    with make_child(tmp_path) as child:
        child.stop()
        child.log.unlink()
        thread = threading.Thread(target=start_and_wait, args=[child])
        thread.start()
        thread.join()

        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)


def test_a_child_that_ends_while_starting_is_reported_with_its_log(tmp_path: Path) -> None:
    child = make_child(tmp_path, sys.executable, "-c", "print('no such disk')")
    child.start()

    with pytest.raises(ChildError, match=r"(?s)child ended while starting.*no such disk"):
        child.wait_ready(lambda: False, timeout_seconds=20)


def test_a_child_that_does_not_get_ready_is_reported(tmp_path: Path) -> None:
    with make_child(tmp_path) as child, pytest.raises(ChildError, match="was not ready in 0 s"):
        child.wait_ready(lambda: False, timeout_seconds=0.1)


def test_a_paused_child_stops_in_order(tmp_path: Path) -> None:
    with make_child(tmp_path) as child:
        child.pause()
        assert child.is_running()

        child.stop()

        assert not child.is_running()


def test_a_child_that_was_killed_has_no_pid(tmp_path: Path) -> None:
    with make_child(tmp_path) as child:
        child.kill()

        with pytest.raises(ChildError, match="child is not running"):
            _ = child.pid


def test_a_held_port_takes_a_server_again_and_again() -> None:
    port = Port()
    try:
        for _ in range(2):
            with socket.create_server(("127.0.0.1", port.number)) as server:
                socket.create_connection(server.getsockname()).close()
                server.accept()[0].close()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port.number))
    finally:
        port.release()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a port is not held")
def test_a_held_port_is_given_to_no_other_process() -> None:
    port = Port()
    try:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port.number))
    finally:
        port.release()
