"""The watchdog: ends a process whose control loop or event loop makes no progress.

A process in such a state would keep its lease, or take it again after giving it back, and admit nothing. Only
a restart helps, so this does not wait for a liveness probe, which some ways of running Berth do not have.

- **A turn of the control loop does not end** while other tasks run: a task of the event loop ends the
  process. The lease is given back, and /healthz answers 503 until then.
- **A step of the event loop does not end**, so nothing else runs: a thread ends the process. Renewals of the
  lease have stopped with the event loop, and /healthz does not answer.

The thread is Python's own (`faulthandler`), which needs neither the event loop nor the interpreter's lock. It
prints the stack of every thread, and ends the process without any cleanup: the lease runs out by itself.
"""

from __future__ import annotations

import asyncio
import faulthandler
import sys
import traceback
from types import CoroutineType, FrameType
from typing import Any

from admission.controller.loop.progress import Progress
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.logs import Log

log = Log("berth.watchdog")

# How often it looks: often enough to see a stall of the event loop of 50 ms, too rarely to cause one.
SAMPLE_SECONDS = 0.25


class ControlLoopStalled(Exception):
    """The control loop has finished no turn in time. The process has to end."""


class Watchdog:
    """Watches the progress of the control loop and of the event loop that it runs on.

    `deadline_seconds`: how long a turn, or a single step of the event loop, may take.
    """

    def __init__(self, progress: Progress, metrics: Metrics, *, deadline_seconds: float) -> None:
        self._progress = progress
        self._metrics = metrics
        self._deadline_seconds = deadline_seconds

    @property
    def is_stalled(self) -> bool:
        """Return whether no turn has been finished in time."""
        return self._progress.unfinished_seconds > self._deadline_seconds

    async def run(self, control_loop: asyncio.Task[None]) -> None:
        """Watch until cancelled. `control_loop` is the task to show in the log.

        Raises ControlLoopStalled.
        """
        loop = asyncio.get_running_loop()
        rearm_at = loop.time()
        try:
            while True:
                due = loop.time() + SAMPLE_SECONDS
                await asyncio.sleep(SAMPLE_SECONDS)
                role = self._metrics.role
                # Such a delay also delays the renewal of the lease.
                self._metrics.loop_lag.labels(role).observe(max(0.0, loop.time() - due))
                self._metrics.turn_age.labels(role).set(self._progress.unfinished_seconds)
                if self.is_stalled:
                    self._give_up(control_loop)
                if loop.time() >= rearm_at:
                    rearm_at = loop.time() + self._deadline_seconds / 8
                    self._arm_thread()
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _arm_thread(self) -> None:
        """Have the process end unless this is called again in time."""
        # The process's own stderr, because a test may have replaced `sys.stderr` by one without a file.
        assert sys.__stderr__ is not None
        faulthandler.dump_traceback_later(self._deadline_seconds, exit=True, file=sys.__stderr__)

    def _give_up(self, control_loop: asyncio.Task[None]) -> None:
        seconds = self._progress.unfinished_seconds
        log.error("control-loop-stalled", seconds=round(seconds, 1), stack=stack_of(control_loop))
        raise ControlLoopStalled(
            f"the control loop has finished no turn for {seconds:.0f} s "
            f"(execution.progressDeadlineSeconds is {self._deadline_seconds:g}); the process ends"
        )


def stack_of(task: asyncio.Task[None]) -> str:
    """Return where a task waits, from its outermost call to the innermost.

    `Task.print_stack` shows the outermost alone, which in the control loop is always the same.
    """
    frames: list[FrameType] = []
    awaited: Any = task.get_coro()
    while isinstance(awaited, CoroutineType):
        if awaited.cr_frame is not None:
            frames.append(awaited.cr_frame)
        awaited = awaited.cr_await
    summary = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    return "".join(summary.format())
