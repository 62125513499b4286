"""A door to an API server that a test can hold, slam and lie at: what networks and servers do on bad days.

Clients speak plain HTTP to it and need no credentials; it forwards as an administrator. Each request is
matched against the rules in the order in which they were set; the first that applies decides its fate.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

# Of one hop only; the proxy speaks its own.
_HOP_HEADERS = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive", "host"})
_UPSTREAM_SECONDS = 60.0
_END_SECONDS = 10.0


@dataclass(slots=True, kw_only=True)
class Rule:
    """What happens to requests of a method whose path and query match, the first `times` of them.

    `status` answers at once, without the server: with `headers` and, as JSON, `body`. Otherwise the request
    is forwarded: after `gate` is opened, where there is one, and with `is_answer_lost` the client never
    receives its answer. `seen` counts requests, `answers` what the server said to those forwarded.
    """

    method: str
    path: re.Pattern[str]
    times: int = 1_000_000
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    gate: threading.Event | None = None
    is_answer_lost: bool = False
    seen: int = 0
    answers: list[int] = field(default_factory=list)

    def applies(self, method: str, path: str) -> bool:
        """Return whether the rule decides about this request."""
        return self.method == method and self.seen < self.times and self.path.search(path) is not None


class Proxy:
    """Forwards to one API server from `__enter__` to `__exit__`."""

    def __init__(self, server: str, *, token: str = "", ca_file: str | None = None) -> None:
        parts = urlsplit(server)
        self.host, self.port = parts.hostname or "", parts.port
        self.tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self.authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._watches: set[socket.socket] = set()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join(_END_SECONDS)
        for rule in self._rules:
            if rule.gate is not None:
                rule.gate.set()
        _cut(self._taken(self._sockets))
        self._server.server_close()

    def write_kubeconfig(self, folder: Path) -> str:
        """Write a kubeconfig that leads through this door; return its path."""
        path = folder / "proxy.kubeconfig"
        cluster = {"server": f"http://127.0.0.1:{self._server.server_port}"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "proxy",
            "clusters": [{"name": "proxy", "cluster": cluster}],
            "contexts": [{"name": "proxy", "context": {"cluster": "proxy", "user": "anonymous"}}],
            "users": [{"name": "anonymous", "user": {}}],
        }
        path.write_text(json.dumps(document))
        return str(path)

    def add(self, method: str, path: str, **what: object) -> Rule:
        """Set a rule for requests whose path and query match a regular expression; see Rule."""
        rule = Rule(method=method, path=re.compile(path), **what)  # type: ignore[arg-type]  # checked there
        with self._lock:
            self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Let requests pass as before the rule; what it holds stays held."""
        with self._lock:
            self._rules.remove(rule)

    def clear(self) -> None:
        """Let all requests pass; what is held stays held."""
        with self._lock:
            self._rules.clear()

    def cut_watches(self) -> int:
        """Break every watch in the middle and return how many there were."""
        ends = self._taken(self._watches)
        _cut(ends)
        return len(ends) // 2

    # --- for the handlers ---------------------------------------------------------------------------

    def rule_for(self, method: str, path: str) -> Rule | None:
        """Return the rule that decides, having counted the request."""
        with self._lock:
            rule = next((one for one in self._rules if one.applies(method, path)), None)
            if rule is not None:
                rule.seen += 1
            return rule

    def note(self, connection: socket.socket, *, is_watch: bool) -> None:
        """Take note of a connection, that it may be cut."""
        with self._lock:
            self._sockets.add(connection)
            if is_watch:
                self._watches.add(connection)
            else:
                self._watches.discard(connection)

    def forget(self, connection: socket.socket) -> None:
        """The connection is over."""
        with self._lock:
            self._sockets.discard(connection)
            self._watches.discard(connection)

    def _taken(self, connections: set[socket.socket]) -> list[socket.socket]:
        with self._lock:
            return list(connections)


class _Server(ThreadingHTTPServer):
    daemon_threads = False

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy

    def handle_error(self, request: object, client_address: object) -> None:
        """Connections break here on purpose; nothing is worth a log line."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.note(self.connection, is_watch=False)

    def finish(self) -> None:
        self.server.proxy.forget(self.connection)
        with suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Handle every method alike."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        rule = self.server.proxy.rule_for(self.command, self.path)
        if rule is not None and rule.status is not None:
            self._answer(rule.status, rule.headers, json.dumps(rule.body or _status(rule.status)).encode())
            return
        if rule is not None and rule.gate is not None:
            rule.gate.wait()
        self._forward(body, rule)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the names that the base class looks for

    def _forward(self, body: bytes, rule: Rule | None) -> None:
        proxy = self.server.proxy
        upstream = _connect(proxy)
        try:
            headers = _end_to_end(self.headers.items())
            upstream.connect()
            self._note_both(upstream)
            upstream.request(self.command, self.path, body or None, {**headers, **proxy.authorization})
            response = upstream.getresponse()
            if rule is not None:
                rule.answers.append(response.status)
            if rule is not None and rule.is_answer_lost:
                response.read()
                self.close_connection = True
            elif "watch=" in self.path:
                self._stream(response)
            else:
                given = {
                    key: value for key, value in response.getheaders() if key.lower() not in _HOP_HEADERS
                }
                self._answer(response.status, given, response.read())
        finally:
            proxy.forget(upstream.sock)
            upstream.close()

    def _note_both(self, upstream: http.client.HTTPConnection) -> None:
        """Either end may be cut: a watch waits at the server's, an idle client at its own."""
        is_watch = "watch=" in self.path
        self.server.proxy.note(upstream.sock, is_watch=is_watch)
        self.server.proxy.note(self.connection, is_watch=is_watch)

    def _answer(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in _chunks(response):
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        self.wfile.write(b"0\r\n\r\n")


def _end_to_end(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    return {key: value for key, value in headers if key.lower() not in _HOP_HEADERS}


def _connect(proxy: Proxy) -> http.client.HTTPConnection:
    if proxy.tls is None:
        return http.client.HTTPConnection(proxy.host, proxy.port, timeout=_UPSTREAM_SECONDS)
    return http.client.HTTPSConnection(proxy.host, proxy.port, timeout=_UPSTREAM_SECONDS, context=proxy.tls)


def _chunks(response: http.client.HTTPResponse) -> Iterator[bytes]:
    while chunk := response.read1(65536):
        yield chunk


def _status(code: int) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": code,
        "reason": {409: "Conflict", 410: "Expired", 429: "TooManyRequests"}.get(code, "InternalError"),
        "message": "as the test asked for",
    }


def _cut(connections: list[socket.socket]) -> None:
    for connection in connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
