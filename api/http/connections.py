"""Accepts the connections of a server, within bounds that a client cannot exceed.

    connections     `MOST_CONNECTIONS`, or an eighth of the file descriptors that the process may open: five
                    servers leave some for others. A new connection then replaces the one that has waited
                    longest for its client, so clients that hold connections do not lock others out.
    TLS handshake   `HEADER_SECONDS`. It counts as a connection, since its buffers are the largest.
    header          `HEADER_SECONDS` from the connection, or from the first byte of a later request, and
                    `MAX_HEADER_BYTES`. aiohttp bounds each line, but not their sum and not the time.
    response        `STALLED_SECONDS` in which the client reads nothing of it.
    log             one line a minute with a count for each reason. A client cannot fill a disk.

asyncio's own listener accepts without a limit, logs a hundred errors a second if no file descriptor is free,
and does not show connections before their handshake. So sockets are accepted here, and asyncio connects each
to its protocol. The idle time between two requests of a connection is a setting of aiohttp (`server.py`).
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from aiohttp import StreamReader

log = logging.getLogger("berth.http")

# Callers are a few schedulers, API servers and Prometheus, and pods, which report for a moment. A connection
# with TLS takes some 300 KiB: 256 of them take 80 MiB.
MOST_CONNECTIONS = 256
HEADER_SECONDS = 10.0
# A token has 8 KiB at most. The names of a user's groups, which kube-apiserver passes on, can take 20 KiB.
MAX_HEADER_BYTES = 64 << 10
STALLED_SECONDS = 30.0
LOG_SECONDS = 60.0
# As many connections are accepted before other tasks run; asyncio accepts as many as the backlog holds.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 128
# Before the next attempt if none can be accepted, such as without a free file descriptor. asyncio waits 1 s.
_RETRY_SECONDS = 1.0
_HEADER_END = b"\r\n\r\n"


class Tls(Protocol):
    """TLS of a server (`certificates.ServingTls`)."""

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection, which may be another one than for the last."""


class Refusals:
    """Counts what a server refused by reason, and logs the counts: at once, then at most once a minute.

    `observe` is called with each reason, also for requests that an answer refused, which are not logged.
    """

    def __init__(self, observe: Callable[[str], None]) -> None:
        self._observe = observe
        self._counts = Counter[str]()
        self._timer: asyncio.TimerHandle | None = None
        # Set once it is known.
        self.port = 0

    def count(self, reason: str) -> None:
        """Count one request or connection that got no answer."""
        self._observe(reason)
        self._counts[reason] += 1
        if self._timer is None:
            self._write()

    def note_answer(self, reason: str) -> None:
        """Count one request whose answer is that it is refused."""
        self._observe(reason)

    def close(self) -> None:
        """Log what was not logged yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._log()

    def _write(self) -> None:
        self._timer = None
        if self._log():
            self._timer = asyncio.get_running_loop().call_later(LOG_SECONDS, self._write)

    def _log(self) -> bool:
        counts = " ".join(f"{reason}={count}" for reason, count in sorted(self._counts.items()))
        self._counts.clear()
        if counts:
            log.warning("requests_refused port=%d %s", self.port, counts)
        return bool(counts)


class Connection(asyncio.Protocol):
    """One connection: passes everything to the protocol of the HTTP server and closes what takes too long."""

    def __init__(
        self, inner: asyncio.Protocol, *, on_refused: Callable[[str], None], on_lost: Callable[[], None]
    ) -> None:
        self._inner = inner
        self._on_refused = on_refused
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        # The body of the request that was received last.
        self._content: StreamReader | None = None
        self._header_bytes = 0
        # The last bytes of an incomplete header: its end may be split.
        self._header_tail = b""
        self._has_header = False

    @property
    def is_made(self) -> bool:
        """Return whether the connection was made; with TLS, after the handshake."""
        return self._transport is not None

    def begin(self, content: StreamReader) -> None:
        """Note that a request with this body has begun: its header is complete."""
        self._content = content
        self._expect_header()

    def abort(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the header of the first request. Called by asyncio, like the methods below."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._start_deadline()
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End all deadlines."""
        for timer in (self._deadline, self._stalled):
            if timer is not None:
                timer.cancel()
        self._on_lost()
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Pass the data on, unless it makes a header too large."""
        # Until a body has been received as a whole, the data belongs to it.
        if (self._content is None or self._content.is_eof()) and not self._has_header:
            self._take_header(data)
        if self._header_bytes > MAX_HEADER_BYTES:
            self._refuse("large-header")
        else:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Wait until the client reads on."""
        self._inner.pause_writing()
        self._check_again(self._unread_bytes())

    def resume_writing(self) -> None:
        """Note that the client has read."""
        if self._stalled is not None:
            self._stalled.cancel()
        self._inner.resume_writing()

    def _take_header(self, data: bytes) -> None:
        if self._deadline is None:
            self._start_deadline()
        text = self._header_tail + data
        if _HEADER_END in text:
            self._expect_header()
            # The rest is body, until the server has read the header and calls begin().
            self._has_header = True
        else:
            self._header_bytes += len(data)
            self._header_tail = text[1 - len(_HEADER_END) :]

    def _expect_header(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._header_bytes, self._header_tail, self._has_header = 0, b"", False

    def _start_deadline(self) -> None:
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(HEADER_SECONDS, self._refuse, "slow-header")

    def _check_again(self, unread: int) -> None:
        self._stalled = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._check_unread, unread)

    def _check_unread(self, before: int) -> None:
        unread = self._unread_bytes()
        # A slow client may take its time.
        if unread < before:
            self._check_again(unread)
        else:
            self._refuse("unread-response")

    def _unread_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _refuse(self, reason: str) -> None:
        self._on_refused(reason)
        self.abort()


class Connections:
    """Listens on one address and connects what it accepts to protocols of `make_protocol`."""

    def __init__(self, make_protocol: Callable[[], asyncio.Protocol], refusals: Refusals) -> None:
        self._make_protocol = make_protocol
        self._refusals = refusals
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = files == resource.RLIM_INFINITY
        self._most = MOST_CONNECTIONS if unlimited else min(MOST_CONNECTIONS, max(1, files // 8))
        self._tls: Tls | None = None
        self._listeners: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self._open: dict[asyncio.Protocol, Connection] = {}
        # Those whose client has to act, each with its handshake. The one that waits longest comes first.
        self._waiting: dict[asyncio.Protocol, asyncio.Task[None]] = {}
        self._handshakes: dict[asyncio.Protocol, asyncio.Task[None]] = {}

    async def listen(self, host: str, port: int, tls: Tls | None) -> int:
        """Start to accept; return the port. Raises OSError or OverflowError if the address cannot be used."""
        self._tls = tls
        loop = asyncio.get_running_loop()
        # asyncio resolves the host and binds a socket to each of its addresses.
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
        try:
            self._listeners = [one.dup() for one in server.sockets]
        finally:
            server.close()
        for one in self._listeners:
            one.setblocking(False)
            one.listen(_BACKLOG)
        self._accepting = [
            asyncio.create_task(self._accept(one), name="accept-http") for one in self._listeners
        ]
        return int(self._listeners[0].getsockname()[1])

    async def close(self) -> None:
        """Stop to accept. Open connections stay, those in their handshake do not."""
        tasks = [*self._accepting, *self._handshakes.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in self._listeners:
            one.close()

    def abort(self) -> None:
        """Close all connections that are still open."""
        for connection in list(self._open.values()):
            connection.abort()

    def begin(self, protocol: asyncio.Protocol, content: StreamReader) -> None:
        """Note that the connection of this protocol has received the header of a request."""
        if protocol in self._open:
            self._open[protocol].begin(content)

    @contextmanager
    def handling(self, protocol: asyncio.Protocol) -> Iterator[None]:
        """Keep the connection of this protocol while its request, received as a whole, is handled."""
        handshake = self._waiting.pop(protocol, None)
        try:
            yield
        finally:
            if handshake is not None and protocol in self._open:
                self._waiting[protocol] = handshake

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            for _ in range(_ACCEPTED_AT_ONCE):
                await self._accept_one(listener)
            # The calls above do not wait while connections are there.
            await asyncio.sleep(0)

    async def _accept_one(self, listener: socket.socket) -> None:
        try:
            sock, _ = await asyncio.get_running_loop().sock_accept(listener)
        except ConnectionError:
            return
        except OSError:
            self._refusals.count("not-accepted")
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if len(self._open) >= self._most and not self._make_room():
            self._refusals.count("too-many-connections")
            sock.close()
            return
        inner = self._make_protocol()
        connection = Connection(inner, on_refused=self._refusals.count, on_lost=partial(self._forget, inner))
        self._open[inner] = connection
        task = asyncio.create_task(self._connect(connection, sock), name="connect-http")
        self._waiting[inner] = self._handshakes[inner] = task
        # Not a `finally` of the task: one that is cancelled before it begins runs no line.
        task.add_done_callback(lambda _: self._end_handshake(inner, sock))

    async def _connect(self, connection: Connection, sock: socket.socket) -> None:
        context = self._tls.context if self._tls is not None else None
        timeout = HEADER_SECONDS if context is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=context, ssl_handshake_timeout=timeout
            )
        # Also what ssl raises, and a handshake that takes too long.
        except OSError:
            self._refusals.count("tls-handshake")

    def _end_handshake(self, inner: asyncio.Protocol, sock: socket.socket) -> None:
        self._handshakes.pop(inner, None)
        if inner in self._open and not self._open[inner].is_made:
            self._forget(inner)
            sock.close()

    def _make_room(self) -> bool:
        """Close the connection that waits longest for its client. Return False if there is none."""
        inner = next(iter(self._waiting), None)
        if inner is None:
            return False
        self._refusals.count("made-room")
        self._open[inner].abort()
        self._waiting[inner].cancel()
        # Now, not when asyncio reports the end: the next one that is accepted must not close it again.
        self._forget(inner)
        return True

    def _forget(self, inner: asyncio.Protocol) -> None:
        self._open.pop(inner, None)
        self._waiting.pop(inner, None)
