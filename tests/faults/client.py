"""One process's way to the model API server: the client that informers, electors and executors expect."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from urllib.parse import unquote

import msgspec

from api.kube.client import DEFAULT_TIMEOUT_SECONDS, Body, Connection, KubeClient
from api.kube.errors import KubeError, ServerError, Timeout, Unreachable
from tests.faults.apiserver import ApiServer
from tests.faults.etcd import Change, Key
from tests.faults.loop import ShuffledLoop

# How often a watch gets the version of now; the real server takes a minute.
_BOOKMARK_SECONDS = 20.0


class WatchStream:
    """The lines of one watch, in order, each some time after its change."""

    def __init__(self, plural: str) -> None:
        self.plural = plural
        self.error: KubeError | None = None
        self.has_ended = False
        self.ready: deque[bytes] = deque()
        self.wake = asyncio.Event()
        self._coming: deque[bytes] = deque()
        self._due = 0.0

    def add(self, line: bytes, loop: ShuffledLoop, seconds: float) -> None:
        """Have a line arrive in some seconds, and after all lines before it."""
        self._due = max(self._due, loop.time() + seconds)
        self._coming.append(line)
        loop.later(self._due - loop.time(), self._arrive)

    def _arrive(self) -> None:
        self.ready.append(self._coming.popleft())
        self.wake.set()

    def end(self, error: KubeError | None = None) -> None:
        """Break the watch; by an error, or as a server does that closes it."""
        self.error, self.has_ended = error, True
        self.wake.set()


class ModelClient(KubeClient):
    """The client of one process."""

    def __init__(self, server: ApiServer, loop: ShuffledLoop, process: str) -> None:
        # Not the real one's, which has connections.
        self.server, self.origin = "model", "the model"
        # How far the watches lag behind, of all kinds or of the one with the plural `lagging` alone.
        self.watch_lag, self.lagging = 0.0, ""
        self._model = server
        self._loop = loop
        self._process = process
        # A dict and no set: their order must not depend on addresses.
        self._streams: dict[WatchStream, None] = {}
        server.etcd.listeners.append(self._on_change)

    def close_watches(self, error: KubeError | None = None) -> None:
        """Break every watch."""
        for stream in list(self._streams):
            stream.end(error)

    def stop_listening(self) -> None:
        """Forget the process, which is no more."""
        self._model.etcd.listeners.remove(self._on_change)
        self._streams.clear()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Body | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        lane: Connection = Connection.REQUESTS,
    ) -> bytes:
        """Send one request. Raises Timeout where no answer comes in time; the request goes its way."""
        key, subresource = _address(path)
        data = body.data if body is not None else b""
        try:
            async with asyncio.timeout(timeout_seconds):
                return await self._model.send(self._process, method, key, subresource, data)
        except TimeoutError as error:
            raise Timeout(f"no answer to {method} {path} in {timeout_seconds:g} s") from error

    async def watch(
        self, path: str, params: Mapping[str, str], *, idle_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield the lines of a watch, an empty one first."""
        key, _ = _address(path)
        await self._open()
        stream = WatchStream(key.plural)
        etcd, since = self._model.etcd, int(params["resourceVersion"])
        if since > etcd.version:
            raise ServerError("Too large resource version", status=504)
        if since < etcd.oldest:
            yield b""
            yield _EXPIRED
            return
        for change in etcd.log:
            if change.version > since and change.key.plural == key.plural:
                stream.add(_line(change), self._loop, 0.0)
        self._streams[stream] = None
        ends_at = self._loop.time() + float(params["timeoutSeconds"])
        self._loop.later(_BOOKMARK_SECONDS, self._bookmark, stream)
        self._loop.later(ends_at - self._loop.time(), stream.end)
        try:
            yield b""
            while True:
                while stream.ready:
                    yield stream.ready.popleft()
                if stream.error is not None:
                    raise stream.error
                if stream.has_ended:
                    return
                stream.wake.clear()
                await stream.wake.wait()
        finally:
            self._streams.pop(stream, None)

    async def _open(self) -> None:
        """Wait as long as it takes to begin a watch. Raises KubeError."""
        await asyncio.sleep(0.003)
        while self._process in self._model.silent:
            await asyncio.sleep(1.0)
        if self._loop.time() < self._model.down_until:
            raise Unreachable("the server is down")

    def _on_change(self, change: Change) -> None:
        for stream in self._streams:
            if stream.plural == change.key.plural:
                stream.add(_line(change), self._loop, self._delay(stream))

    def _delay(self, stream: WatchStream) -> float:
        return 0.002 + (self.watch_lag if self.lagging in ("", stream.plural) else 0.0)

    def _bookmark(self, stream: WatchStream) -> None:
        if stream not in self._streams:
            return
        metadata = {"resourceVersion": str(self._model.etcd.version)}
        line = msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": metadata}})
        stream.add(line, self._loop, self._delay(stream))
        self._loop.later(_BOOKMARK_SECONDS, self._bookmark, stream)


_EXPIRED = msgspec.json.encode(
    {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
)


def _line(change: Change) -> bytes:
    return b'{"type":"' + change.type.encode() + b'","object":' + change.after.raw + b"}"


def _address(path: str) -> tuple[Key, str]:
    """Return what a path leads to, and the subresource."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return Key(rest[0], namespace, name), "/".join(rest[2:])
