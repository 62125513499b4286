"""A TCP proxy that holds back everything that a server sends by a fixed time, as a distant server would.

It works below TLS, so it need not know what it forwards, and answers that are on their way together stay so:
the delay is latency, not a limit on throughput. A new connection waits for it two or three times.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 65536


class DelayingProxy:
    """Accepts connections on a free loopback port while it is entered, and forwards them to `target_port`."""

    def __init__(self, target_port: int, delay_seconds: float) -> None:
        self._target_port = target_port
        self._delay_seconds = delay_seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="delaying-proxy", daemon=True)
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())  # which cancels the open connections at its end

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side closes it."""
        try:
            answers, requests = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.close()
            return
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.create_task(_copy(reader, requests))
        holding = asyncio.create_task(self._hold(answers, held))
        releasing = asyncio.create_task(self._release(held, writer))
        try:
            # What is held when the server closes is still delivered, so the end of `holding` ends nothing.
            await asyncio.wait({sending, releasing}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, holding, releasing):
                task.cancel()
            await asyncio.gather(sending, holding, releasing, return_exceptions=True)
            writer.close()
            requests.close()

    async def _hold(self, reader: asyncio.StreamReader, held: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Put what the server sends into `held`, with the time at which it is due; b"" is its end."""
        data = b"-"
        while data:
            try:
                data = await reader.read(_CHUNK_BYTES)
            except OSError:
                data = b""
            held.put_nowait((self._loop.time() + self._delay_seconds, data))

    async def _release(self, held: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await held.get()
            await asyncio.sleep(due - self._loop.time())
            if not data:
                return
            writer.write(data)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
