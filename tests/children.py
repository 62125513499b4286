"""Servers that tests run as child processes, each sure to die with the tests.

A test run that is killed must leave nothing behind, so a child is tied to this process by the kernel (Linux:
the parent-death signal), and not by clean-up code that a SIGKILL would skip. Ports are held by a bound socket
that never listens: no two runs are given the same one, and a server that is restarted gets its old one back.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

# The kernel sends the parent-death signal when the *thread* that started the child ends. Children start on
# this thread, which lives as long as the process, so that a server started from asyncio.to_thread or from
# a fixture of another thread is not killed with that thread.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawn")

# Runs in the child before the server does, given the parent's id and the server's command line: ask for
# SIGKILL at the parent's death (1 is PR_SET_PDEATHSIG), look whether the parent died in the meantime, become
# the server. Where there is no prctl (macOS) a killed run leaves its servers. A preexec_fn would do the same,
# but may deadlock when other threads run.
TIE = """
import ctypes, os, sys
parent = int(sys.argv[1])
try:
    ctypes.CDLL(None).prctl(1, 9)
except AttributeError:
    pass
if os.getppid() != parent:
    sys.exit("the parent has died")
os.execv(sys.argv[2], sys.argv[2:])
"""


def tie_to_parent(parent: int) -> None:
    """End this process, a worker of a pool, with the process that started it, whose id is `parent`."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent has died")


class ChildError(Exception):
    """A child process ended, or did not become ready, when it was needed. The message ends with its log."""


class Port:
    """A free loopback port that stays ours until `release`, also while no server listens on it.

    On Linux a bound socket that never listens keeps others away, and a server that sets SO_REUSEADDR (Go's
    and Redis's do) may still listen there. Elsewhere the port is only known to have been free just now.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]
        if sys.platform != "linux":
            self.release()

    def release(self) -> None:
        """Let others have the port. Doing it twice is harmless."""
        self._socket.close()


class Process(Protocol):
    """What a child is to its parent: of `subprocess.Popen`, what is used here."""

    @property
    def pid(self) -> int:
        """The process id."""

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once it has ended. Raises subprocess.TimeoutExpired."""

    def terminate(self) -> None:
        """Send SIGTERM."""

    def kill(self) -> None:
        """Send SIGKILL."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One server process: start, stop, kill, pause, resume, as often as a test likes.

    `arguments[0]` is the path of the program. What it prints goes to `log`, over all its lives. It works in
    `directory`, by default in that of the tests.
    """

    name: str
    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    _process: Process | None = None

    @property
    def pid(self) -> int:
        """The process id of the present life. Raises ChildError when there is none."""
        if self._process is None or not self.is_running():
            raise ChildError(f"{self.name} is not running{self.log_tail()}")
        return self._process.pid

    def start(self) -> None:
        """Start the process; nothing happens when it runs already."""
        if not self.is_running():
            self._process = _SPAWNER.submit(self._spawn).result()

    def _spawn(self) -> Process:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-ISc", TIE, str(os.getpid()), *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env={**os.environ, **self.environment},
                process_group=0,  # Ctrl-C in the terminal is for the tests to handle
            )

    def is_running(self) -> bool:
        """Return whether the process is alive; a paused one is."""
        return self._process is not None and self._process.poll() is None

    def wait(self, timeout_seconds: float) -> int:
        """Wait for the end of the process and return its exit code, negative for a signal.

        Raises subprocess.TimeoutExpired when it goes on, ChildError when it was never started.
        """
        if self._process is None:
            raise ChildError(f"{self.name} was never started")
        return self._process.wait(timeout_seconds)

    def wait_ready(self, is_ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until `is_ready()`. Raises ChildError when the process ends first or time runs out."""
        deadline = time.monotonic() + timeout_seconds
        while not is_ready():
            if not self.is_running():
                raise ChildError(f"{self.name} ended while starting{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ChildError(f"{self.name} was not ready in {timeout_seconds:.0f} s{self.log_tail()}")
            time.sleep(0.05)

    def stop(self, *, grace_seconds: float = 10.0) -> None:
        """Ask the process to end (SIGTERM), wait for it, and kill it when its grace is over."""
        if self._process is None or not self.is_running():
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the process at once (SIGKILL) and wait until it is gone; a dead one stays dead."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): its connections stay open, nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self, lines: int = 30) -> str:
        """Return the last lines of the log under a headline, to end a message with; empty without a log."""
        if not self.log.exists():
            return ""
        tail = self.log.read_text(errors="replace").splitlines()[-lines:]
        return "\n".join([f"; the end of {self.log}:", *tail])

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
