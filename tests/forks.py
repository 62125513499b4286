"""Starts `berth` and programs like it as forks of a process that has imported their code.

A controller imports a thousand modules before it does anything, which takes more processor time than most
tests need it for, and tests start hundreds. A fork begins where the imports have ended. Apart from that it is
a child like any other: with its own log, environment and process group, reaped by the tests, and killed with
them.

    tests ── arguments, log, environment, directory ──▶ fork server      (one message each)
    tests ◀── pid ── the fork, once it is a child of the tests

The fork server forks twice and ends the process in between, so that the kernel gives the second to the
nearest ancestor that takes orphans (Linux: a child subreaper), which the tests are meanwhile. Forks of one
process share the seed of hashes, by which the order of sets may differ: two servers take turns, so that two
controllers of a test differ in it, as they do elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import itertools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.children import TIE, Child, ChildError, Process, tie_to_parent

_ROOT = Path(__file__).parents[1]
# What tests start often imports these, and little else.
_IMPORTED = (
    "admission.cli.commands.controller",
    "admission.cli.commands.apiserver",
    "api.kube.embedded.standins.standins",
)
_TURNS = itertools.cycle(range(2))
_PR_SET_CHILD_SUBREAPER = 36
_ADOPTED_SECONDS = 60.0
_LONGEST_ORDER = 1 << 20


@dataclass(slots=True, kw_only=True)
class ForkedChild(Child):
    """A program of Python: its `arguments` begin with the path of `berth`, or are those of `python -m`.

    It is started as a program where there are no subreapers, and where its lines are counted: by
    `make coverage`.
    """

    def _spawn(self) -> Process:
        is_measured = any(name.startswith("COVERAGE_") for name in os.environ)
        if sys.platform != "linux" or is_measured:
            return Child._spawn(self)
        return _server(next(_TURNS)).fork(self)


def _of_module(arguments: Sequence[str]) -> Sequence[str]:
    """Return the module that is run, as `python -m` is told, and its arguments."""
    if arguments[0] == sys.executable and arguments[1] == "-m":
        return arguments[2:]
    assert Path(arguments[0]).name == "berth"
    return ["admission.cli", *arguments[1:]]


class _Server:
    """One fork server, which ends with the tests."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", __name__, str(theirs.fileno()), str(os.getpid())]
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", TIE, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                cwd=_ROOT,
                process_group=0,
            )

    def fork(self, child: Child) -> Process:
        """Start a child. Raises ChildError when the server has ended."""
        order = {
            "arguments": _of_module(child.arguments),
            "log": os.path.abspath(child.log),
            "environment": {**os.environ, **child.environment},
            "directory": str(child.directory or Path.cwd()),
        }
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
        try:
            self._line.send(json.dumps(order).encode())
            answer = self._line.recv(_LONGEST_ORDER)
        finally:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 0)
        if not answer:
            raise ChildError("the fork server has ended; what it said is in the output of this test")
        return _Fork(pid=int(answer), arguments=child.arguments)


@dataclass(slots=True, kw_only=True)
class _Fork:
    """A fork as its parent sees it; the same as `subprocess.Popen` of a program."""

    pid: int
    arguments: Sequence[str]
    _code: int | None = field(default=None, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.arguments, timeout or 0.0)
            time.sleep(0.005)
        return code

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        # A child that has been reaped may have given its id to another process.
        if self.poll() is None:
            os.kill(self.pid, number)


@functools.cache
def _server(turn: int) -> _Server:
    del turn
    return _Server()


# --- in the fork server ------------------------------------------------------------------------------


def _serve(line: socket.socket, parent: int) -> Sequence[str]:
    """Fork for each order until the tests have ended; return in each fork its module and arguments."""
    while order := line.recv(_LONGEST_ORDER):
        between = os.fork()
        if between == 0:
            if os.fork() != 0:
                os._exit(0)
            return _become(json.loads(order), line, parent)
        os.waitpid(between, 0)
    sys.exit()


def _become(order: Any, line: socket.socket, parent: int) -> Sequence[str]:
    """Make this fork the child that is ordered; return its module and arguments."""
    os.setpgid(0, 0)
    deadline = time.monotonic() + _ADOPTED_SECONDS
    while os.getppid() != parent and time.monotonic() < deadline:
        time.sleep(0.001)
    tie_to_parent(parent)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.chdir(order["directory"])
    os.environ.clear()
    os.environ.update(order["environment"])
    line.send(str(os.getpid()).encode())
    line.close()
    arguments: Sequence[str] = order["arguments"]
    return arguments


def _main() -> None:
    line, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    line.set_inheritable(False)
    for name in _IMPORTED:
        importlib.import_module(name)
    module, *sys.argv[1:] = _serve(line, parent)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
