"""A plain, synchronous Kubernetes client for tests, on nothing but the standard library.

It sets scenes and looks at the outcome, so that what is under test is not also the witness.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

# Method, path, body and headers.
_Request = tuple[str, str, str | None, Mapping[str, str]]

# How it shows that a connection that was idle has been closed.
_CLOSED_BY_SERVER = (http.client.RemoteDisconnected, ConnectionError, ssl.SSLError)

MERGE_PATCH = "application/merge-patch+json"


class RestError(Exception):
    """The API server refused: `status` is the HTTP status, `reason` the word of the Status object."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason


class Rest:
    """Requests to one API server as one user, from any thread.

    A connection serves the next request as well, and is opened again if the server has closed it meanwhile,
    so a restart is no matter. An administrator's token may act for another user: `impersonated`.
    """

    def __init__(
        self, server: str, *, token: str = "", ca_file: str | None = None, impersonated: str = ""
    ) -> None:
        parts = urlsplit(server)
        assert parts.hostname is not None
        self.server = server
        self._host, self._port = parts.hostname, parts.port
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        if impersonated:
            self._headers["Impersonate-User"] = impersonated
        self._tls = ssl.create_default_context(cafile=ca_file) if parts.scheme == "https" else None
        self._idle: list[http.client.HTTPConnection] = []

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        timeout_seconds: float = 10.0,
        comes_again: bool = True,
    ) -> Any:
        """Send one request and return the decoded answer, or its text where it is no JSON.

        A 429 is asked again for as long as the timeout, unless it is the answer that is asked for
        (`comes_again`). Raises RestError for a status of 400 and above, OSError when the server cannot be
        reached.
        """
        deadline = time.monotonic() + (timeout_seconds if comes_again else 0.0)
        while True:
            headers = {**self._headers, "Content-Type": content_type, "Accept": "application/json"}
            request = method, path, None if body is None else json.dumps(body), headers
            response, text = self._exchange(request, timeout_seconds)
            # "storage is (re)initializing": a kind whose definition has just changed asks to come again.
            if response.status != 429 or time.monotonic() >= deadline:
                return _decoded(response.status, text)
            time.sleep(float(response.headers.get("Retry-After") or 1))

    def _exchange(self, request: _Request, timeout_seconds: float) -> tuple[http.client.HTTPResponse, str]:
        """Return the answer to one request, on a connection that is idle if there is one."""
        while self._idle:
            connection = self._idle.pop()
            connection.sock.settimeout(timeout_seconds)
            with contextlib.suppress(*_CLOSED_BY_SERVER):
                return self._answer(connection, request)
        return self._answer(self._connection(timeout_seconds), request)

    def _answer(
        self, connection: http.client.HTTPConnection, request: _Request
    ) -> tuple[http.client.HTTPResponse, str]:
        try:
            connection.request(*request)
            response = connection.getresponse()
            text = response.read().decode()
        except BaseException:
            connection.close()
            raise
        # The library closes what the server does not keep open.
        if connection.sock is not None:
            self._idle.append(connection)
        return response, text

    def stream(
        self,
        path: str,
        *,
        timeout_seconds: float = 10.0,
        on_connected: Callable[[socket.socket], None] | None = None,
    ) -> Iterator[Any]:
        """Yield the JSON objects that the server sends one a line, as a watch does, until it ends the answer.

        Raises as `request` does; OSError also when nothing comes for so long, or when another thread shuts
        the socket down that `on_connected` is given.
        """
        connection = self._connection(timeout_seconds)
        try:
            connection.request("GET", path, headers={**self._headers, "Accept": "application/json"})
            if on_connected is not None:
                on_connected(connection.sock)
            response = connection.getresponse()
            if response.status >= 400:
                _decoded(response.status, response.read().decode())
            yield from (json.loads(line) for line in response if line.strip())
        except http.client.HTTPException as error:
            raise ConnectionError(f"{path}: {error!r}") from error
        finally:
            connection.close()

    def _connection(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_seconds)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_seconds, context=self._tls)

    def get(self, path: str) -> Any:
        """Return the object, list or text at `path`."""
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        """Return whether there is something at `path`."""
        try:
            self.get(path)
        except RestError as error:
            if error.status == 404:
                return False
            raise
        return True

    def create(self, path: str, body: object) -> Any:
        """Create `body` in the collection `path` and return the object as the server keeps it."""
        return self.request("POST", path, body)

    def patch(self, path: str, body: object) -> Any:
        """Merge `body` into the object at `path` and return the outcome."""
        return self.request("PATCH", path, body, content_type=MERGE_PATCH)

    def delete(self, path: str, options: object = None) -> None:
        """Delete the object, or the whole collection, at `path`; it may already be gone."""
        try:
            self.request("DELETE", path, options)
        except RestError as error:
            if error.status != 404:
                raise

    def wait(self, path: str, is_reached: Callable[[Any], bool], *, timeout_seconds: float = 60.0) -> Any:
        """Return what is at `path` once `is_reached` says so of it; a refusal counts as not yet.

        Raises AssertionError, with what was seen last, when time runs out.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                if is_reached(seen := self.get(path)):
                    return seen
            except RestError as error:
                seen = str(error)
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{path} has not got there in {timeout_seconds:.0f} s: {json.dumps(seen)}"
                )
            time.sleep(0.05)


def _decoded(status: int, text: str) -> Any:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = text
    if status < 400:
        return answer
    if isinstance(answer, dict):
        raise RestError(status, answer.get("reason", ""), answer.get("message", ""))
    raise RestError(status, "", text)
