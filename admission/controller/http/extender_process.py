"""The scheduler extender of a controller, in a child process.

kube-scheduler's requests are large: to read 8 MiB takes up to a second in which the process does nothing
else, threads included, because the parser keeps Python's interpreter lock. In the process that leads that
would cost the lease. The child has its own watch of nodes and pods.

    parent ── one JSON line: options of the extender, of its logs ──▶ child      (stdin)
    parent ◀── Listening or Failed, then Ready, Refused …: JSON lines ─ child      (stdout)

The child exits when its stdin ends, so it always ends with its parent. It is started again if it ends by
itself.
"""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import msgspec

from admission.controller.http.extender_server import ExtenderOptions, run_extender
from admission.controller.runtime.logs import Log, LogSettings, configure
from api.http.errors import ListenError
from api.kube.errors import KubeError

log = Log("berth.extender")

# The child imports Python modules for half a second, more on a busy machine, and connects to the API server.
START_SECONDS = 60.0
STOP_SECONDS = 5.0
# The waits before a child that ended by itself is started again. They are doubled.
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
# How often the child reports what it refused: more often than Prometheus asks for it.
REPORT_SECONDS = 5.0
# Profiles of the configuration file, which an administrator writes.
_LONGEST_LINE = 4 << 20


class Listening(msgspec.Struct, frozen=True, tag=True):
    """The child listens at this URL."""

    url: str


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The child could not start, for this reason, and exits."""

    message: str


class Ready(msgspec.Struct, frozen=True, tag=True):
    """The child knows all nodes and pods."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """How many requests were refused since the last such line, by reason."""

    counts: dict[str, int]


class _Order(msgspec.Struct, frozen=True):
    options: ExtenderOptions
    logs: LogSettings


_Line = Listening | Failed | Ready | Refused
_LINE = msgspec.json.Decoder(_Line)


class ExtenderProcess:
    """The child. Use it as `async with`, which starts it, and run `run` meanwhile.

    `on_refused` is called with reasons for which requests were refused, and how many.
    """

    def __init__(
        self, options: ExtenderOptions, logs: LogSettings, *, on_refused: Callable[[str, int], None]
    ) -> None:
        self._on_refused = on_refused
        self._options = options
        self._logs = logs
        self._child: asyncio.subprocess.Process | None = None
        # Not reset when the child is started again: its replica must not leave the Service for it.
        self.is_ready = False
        self.url = ""

    @property
    def pid(self) -> int | None:
        """The child's process id; None before the start."""
        return self._child.pid if self._child is not None else None

    async def __aenter__(self) -> Self:
        """Start the child. Raises ListenError if it cannot start."""
        try:
            await self._start()
        # BaseException, because a cancelled start must not leave a child either.
        except BaseException:
            await self._stop()
            raise
        # A child that is started again must be found at the same place.
        self._options = dataclasses.replace(self._options, port=int(self.url.rpartition(":")[2]))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop()

    async def run(self) -> None:
        """Follow the child until cancelled, and start it again whenever it ends."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            if await self._follow():
                pause = FIRST_PAUSE_SECONDS
            log.warning("extender-ended", restart_in_seconds=pause)
            await self._stop()
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            try:
                await self._start()
            except ListenError as error:
                log.warning("extender-not-started", error=error)

    async def _start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", __name__),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Ctrl-C in the terminal is for the parent to handle.
            start_new_session=True,
        )
        assert self._child.stdin is not None
        self._child.stdin.write(msgspec.json.encode(_Order(self._options, self._logs)) + b"\n")
        try:
            async with asyncio.timeout(START_SECONDS):
                said = await self._next_line()
        except TimeoutError as error:
            said_nothing = f"the scheduler extender did not start within {START_SECONDS:.0f} s"
            raise ListenError(f"{said_nothing}: give the controller more CPU") from error
        if not isinstance(said, Listening):
            message = said.message if isinstance(said, Failed) else "see its message above"
            raise ListenError(f"the scheduler extender did not start: {message}")
        self.url = said.url

    async def _follow(self) -> bool:
        """Return when the child has ended: whether it had become ready."""
        has_been_ready = False
        while (line := await self._next_line()) is not None:
            if isinstance(line, Refused):
                for reason, count in line.counts.items():
                    self._on_refused(reason, count)
            else:
                self.is_ready = has_been_ready = True
        return has_been_ready

    async def _next_line(self) -> _Line | None:
        """Return what the child says next; None when it has ended."""
        assert self._child is not None, "it was started"
        assert self._child.stdout is not None
        line = await self._child.stdout.readline()
        return _LINE.decode(line) if line else None

    async def _stop(self) -> None:
        child = self._child
        if child is None:
            return
        assert child.stdin is not None
        child.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await child.wait()
                return
        # It answers requests alone, so a kill loses nothing.
        child.kill()
        await child.wait()


# --- the child ---------------------------------------------------------------------------------------


async def _serve() -> None:
    """Serve until stdin ends."""
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    reader = asyncio.StreamReader(limit=_LONGEST_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    order = msgspec.json.decode(await reader.readline(), type=_Order)
    configure(level=order.logs.level, as_json=order.logs.as_json)

    async def wait_end() -> None:
        await reader.read()
        stop.set()

    async def report() -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            if refused:
                _say(Refused(dict(refused)))
                refused.clear()

    refused = Counter[str]()
    tasks = (
        asyncio.create_task(wait_end(), name="end-of-stdin"),
        asyncio.create_task(report(), name="report"),
    )
    try:
        await run_extender(
            order.options,
            on_listening=lambda urls: _say(Listening(urls["extender"])),
            on_ready=lambda: _say(Ready()),
            on_refused=lambda _, reason: refused.update([reason]),
            stop=stop,
        )
    except (KubeError, ListenError, OSError, ValueError) as error:
        _say(Failed(str(error)))
    finally:
        for task in tasks:
            task.cancel()


def _say(line: _Line) -> None:
    # The parent may have gone; then stdin ends, too.
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(_serve())
