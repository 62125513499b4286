"""Client for one API server: bytes in, bytes out, and `KubeError` for every failure.

Nothing is retried here: the caller of a write decides how to handle a lost response.

Each lane has connections of its own. Many concurrent writes must never delay the renewal of a lease or a
watch, and events must never use a connection that a decision needs.
"""

from __future__ import annotations

import asyncio
import io
import socket
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from yarl import URL

from api.kube.bare_aiohttp import aiohttp
from api.kube.errors import (
    KubeError,
    ServerError,
    Timeout,
    Unauthorized,
    Unreachable,
    error_of_answer,
    malformed,
)
from api.kube.kubeconfig import Endpoint, find_endpoint
from api.kube.listing import KubeObject, ListResult, Reader, collect
from api.kube.resources import Resource
from api.kube.served import ServedVersions

T = TypeVar("T", bound=KubeObject)

DEFAULT_TIMEOUT_SECONDS = 10.0

# Content types of a PATCH: RFC 7386, RFC 6902, and Kubernetes' own, which merges lists by key.
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

# A page of 500 large objects from a busy server, and the start of a watch, may take longer than a write.
LIST_TIMEOUT_SECONDS = 60.0

# Maximum size of a single watch event. etcd stores 1.5 MiB by default, so no API server sends a larger one.
MAX_EVENT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Body:
    """What a request sends. A PATCH says by its content type how it is to be merged.

    `content_type` is that of the whole object by default, which POST and PUT need.
    """

    data: bytes
    content_type: str = "application/json"


class Connection(StrEnum):
    """Lanes of connections that do not wait for each other."""

    REQUESTS = "requests"
    WATCHES = "watches"
    LEASES = "leases"
    EVENTS = "events"


# Maximum number of open connections of each lane; 0 means no limit (a watch holds its connection for
# minutes). Leases have four: electors of several shards renew at the same time, and a second attempt must not
# wait for a connection on which the first one hangs.
_CONNECTIONS = {Connection.REQUESTS: 64, Connection.WATCHES: 0, Connection.LEASES: 4, Connection.EVENTS: 2}


class KubeClient:
    """Client for one API server.

    Use it as `async with await KubeClient.connect(...) as client`, or close() it.

    Safe to use from several tasks of one event loop. No method retries. Every method raises a KubeError:
    Unreachable or Timeout where it is unknown whether a write happened, and the class of the status otherwise
    (`api.kube.errors`). Times out after DEFAULT_TIMEOUT_SECONDS where a call does not say otherwise. `served`
    tells which groups and versions the server serves.
    """

    def __init__(self, endpoint: Endpoint, *, user_agent: str = "berth") -> None:
        self.server = endpoint.server
        self.origin = endpoint.origin
        # Of the context, or of the pod that this runs in; None where neither names one.
        self.namespace = endpoint.namespace
        self._endpoint = endpoint
        self._headers = [
            ("User-Agent", user_agent),
            ("Accept", "application/json"),
            # The API server limits the throughput, and compression would cost it CPU.
            ("Accept-Encoding", "identity"),
            *endpoint.headers,
        ]
        self._sessions: dict[Connection, aiohttp.ClientSession] = {}
        self._closed = False
        self.served = ServedVersions(partial(self.request, "GET", "/apis"))

    @classmethod
    async def connect(
        cls, kubeconfig: str | None = None, *, context: str | None = None, user_agent: str = "berth"
    ) -> KubeClient:
        """Return a client for a kubeconfig, else $KUBECONFIG, else in-cluster, else ~/.kube/config.

        Reads files but sends nothing; `server_version()` checks whether the server answers. Raises
        InvalidKubeconfig with a sentence that names the file and the fix.
        """
        return cls(find_endpoint(kubeconfig, context=context), user_agent=user_agent)

    async def close(self) -> None:
        """Close every connection; pending and later requests fail with Unreachable.

        May be called more than once. Requests of other tasks fail, so call it last.
        """
        self._closed = True
        sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            if session.connector is not None:
                # TLS connections are aborted: an orderly shutdown would outlive the event loop of a command
                # that exits right after, and leave sockets open.
                await session.connector.close(abort_ssl=True)
            await session.close()

    async def __aenter__(self) -> KubeClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def server_version(self) -> str:
        """Return the server's version ("v1.36.3").

        The cheapest check that it answers and accepts the credentials.

        Raises ServerError if the answer is not that of an API server.
        """
        body = await self.request("GET", "/version")
        try:
            return msgspec.json.decode(body, type=_Version).git_version
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise malformed(f"version of an API server at {self.server}", error) from error

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
        """Return the body of the response to one request.

        `timeout_seconds` limits the total time, including the wait for a connection of the lane, so that a
        write is never sent later than the caller allows. Raises only KubeErrors.
        """
        try:
            # Includes the credentials and the wait for a free connection, which aiohttp's
            # own timeouts do not.
            async with asyncio.timeout(timeout_seconds):
                headers = await self._authorized({"Content-Type": body.content_type} if body else {})
                async with self._session(lane).request(
                    method,
                    self._url(path),
                    params=params,
                    data=_data(body),
                    headers=headers,
                    **self._options(),
                ) as response:
                    # Read within the timeout: headers may arrive early and the body late or never.
                    answer = await response.read()
        except TimeoutError as error:
            raise Timeout(
                f"{self.server} gave no answer to {method} {path} in {timeout_seconds:g} s"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error
        if not 200 <= response.status < 300:
            raise self._refused(response, answer)
        return answer

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> bytes:
        """Return the object's JSON. Raises NotFound if it does not exist."""
        return await self.request("GET", resource.path(namespace, name))

    async def create(self, resource: Resource, body: bytes, namespace: str | None = None) -> bytes:
        """Create the object and return it as stored. Raises AlreadyExists.

        Raises Invalid if the server rejects the object, with its sentence. ValueError for a missing namespace
        is an error of the caller, not of the cluster.
        """
        if resource.namespaced and not namespace:
            raise ValueError(f"a {resource.kind} is created in a namespace")
        return await self.request("POST", resource.path(namespace), body=Body(body))

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        subresource: str = "",
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> bytes:
        """Replace the whole object (PUT) and return it as stored.

        Raises Conflict if the resourceVersion in `body` is not the current one.

        Raises NotFound if the object is gone. With `subresource` "status" only the status is stored.
        """
        path = resource.path(namespace, name, subresource)
        return await self.request("PUT", path, body=Body(body), timeout_seconds=timeout_seconds)

    async def merge_patch(
        self,
        resource: Resource,
        name: str,
        body: bytes,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> bytes:
        """Merge `body` into the object (RFC 7386) and return it as stored.

        If `body` contains a `metadata.resourceVersion` that is not the current one, raises Conflict.

        Fields that are null in `body` are removed, and lists are replaced as a whole.
        """
        path = resource.path(namespace, name, subresource)
        return await self.request("PATCH", path, body=Body(body, MERGE_PATCH))

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        propagation: str = "Background",
        body: bytes | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Request the deletion of the object; with finalizers, it continues to exist for a while.

        `body` is a complete DeleteOptions (for preconditions) and replaces the other
        two settings. Raises NotFound.
        """
        # A policy is always sent: without one, batch/v1 still orphans the pods of a deleted Job.
        options = body or msgspec.json.encode(_delete_options(propagation, grace_period_seconds))
        await self.request("DELETE", resource.path(namespace, name), body=Body(options))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        type_: type[T],
        params: Mapping[str, str] | None = None,
    ) -> ListResult[T]:
        """Return all objects of the kind at one resourceVersion, read from a quorum of etcd, page by page.

        An object that cannot be decoded as `type_` is listed in `unreadable`; the others are returned.

        `params` are query parameters such as labelSelector. A list whose continue token expires on the way is
        started again, so the result is of one version in any case.
        """
        reader = Reader(type_, resource)
        return await collect(self.fetch_page, resource.path(namespace), params or {}, reader)

    async def fetch_page(self, path: str, params: Mapping[str, str]) -> bytes:
        """Return one page of a list."""
        return await self.request("GET", path, params=params, timeout_seconds=LIST_TIMEOUT_SECONDS)

    async def watch(
        self, path: str, params: Mapping[str, str], *, idle_seconds: float
    ) -> AsyncGenerator[bytes, None]:
        """Yield each line of a watch as it arrives, until the server ends the watch.

        The first line yielded is empty: it signals that the server has accepted the watch. A line that
        is truncated by the end of the connection is dropped. Raises Timeout if no byte arrives in
        `idle_seconds`, because the connection may be half-open. Close the generator
        (contextlib.aclosing) when leaving early.
        """
        try:
            response = await self._begin_watch(path, params, idle_seconds)
            async with response:
                if response.status != 200:
                    raise self._refused(response, await response.read())
                yield b""
                async for line in _lines(response.content):
                    yield line
        except TimeoutError as error:
            raise Timeout(f"the watch of {path} was silent for {idle_seconds:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise self._unreachable(error) from error

    async def _begin_watch(
        self, path: str, params: Mapping[str, str], idle_seconds: float
    ) -> aiohttp.ClientResponse:
        """Send the request of a watch. Return the response once its headers have arrived."""
        headers = await self._authorized({})
        try:
            async with asyncio.timeout(min(idle_seconds, LIST_TIMEOUT_SECONDS)) as patience:
                return await self._session(Connection.WATCHES).get(
                    self._url(path),
                    params={**params, "watch": "true"},
                    headers=headers,
                    # `total` would end a healthy watch; only silence indicates a dead connection.
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=idle_seconds),
                    **self._options(),
                )
        except TimeoutError as error:
            # Both timeouts raise the same exception. The other one, for reading, is reported
            # as a silent watch.
            if patience.expired():
                raise Timeout(f"{self.server} did not begin the watch of {path}") from error
            raise

    def _url(self, path: str) -> URL:
        """Return the URL of a path that is quoted already."""
        # `Resource.path` returns quoted paths; aiohttp's own quoting would decode "%2F" in names.
        return URL(self.server + path, encoded=True)

    async def authorization(self) -> str | None:
        """Return the Authorization header of this client's requests, None for none. Raises KubeError."""
        return await self._endpoint.credentials.authorization()

    async def _authorized(self, headers: dict[str, str]) -> dict[str, str]:
        """Add the Authorization header, if the credentials have one."""
        authorization = await self.authorization()
        if authorization:
            headers["Authorization"] = authorization
        return headers

    def _options(self) -> dict[str, Any]:
        """Return what aiohttp expects with each request; without TLS there are no TLS options."""
        tls = self._endpoint.tls
        return {
            # A redirect would send the credentials to another host; API servers send no redirects.
            "allow_redirects": False,
            "proxy": self._endpoint.proxy,
            "server_hostname": self._endpoint.server_hostname,
            # Asked for each time: a renewed authority or certificate is for new connections.
            "ssl": tls.context() if tls is not None else True,
        }

    def _session(self, lane: Connection) -> aiohttp.ClientSession:
        """Return the connections of a lane. Raises Unreachable when the client is closed."""
        if self._closed:
            raise Unreachable(f"the client of {self.server} is closed")
        # Created on first use: a session needs a running event loop, and most commands use a single lane.
        session = self._sessions.get(lane)
        if session is None:
            session = self._sessions[lane] = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=_CONNECTIONS[lane],
                    socket_factory=_socket_that_notices_death,
                ),
                headers=self._headers,
                # The cookie of a load balancer would bind all lanes to one server, even while it is drained.
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
            # aiohttp repeats a PUT by itself if a kept-alive connection breaks. The first one may have
            # been stored; then the second one fails with a Conflict with our own write, which looks
            # like a lost race.
            session._retry_connection = False
        return session

    def _refused(self, response: aiohttp.ClientResponse, body: bytes) -> KubeError:
        """Return the error for a response that is not a success, with what the user can do about it."""
        error = error_of_answer(response.status, body, retry_after=response.headers.get("Retry-After"))
        if isinstance(error, Unauthorized):
            # A rotated token is read again at the next request, instead of up to a minute later.
            self._endpoint.credentials.invalidate()
            message = f"{self.server} does not accept the credentials of {self.origin}: {error}; renew them"
            return Unauthorized(message, status=error.status, reason=error.reason)
        if 300 <= response.status < 400:
            place = response.headers.get("Location", "elsewhere")
            message = (
                f"{self.server} redirects to {place}; give the URL of the API server itself in {self.origin}"
            )
            return ServerError(message, status=response.status)
        return error

    def _unreachable(self, error: Exception) -> Unreachable:
        """Return the error for a request that got no response."""
        return Unreachable(f"cannot reach the API server {self.server} of {self.origin}: {_why(error)}")


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


def _delete_options(propagation: str, grace_period_seconds: int | None) -> dict[str, object]:
    """Return the body of a DELETE. None for the grace period leaves it to the object."""
    options: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": propagation,
    }
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    return options


def _data(body: Body | None) -> bytes | io.BytesIO | None:
    """Return the body in the form that aiohttp expects.

    Large ones (Kueue's CRD is over 1 MiB) are sent in chunks.
    """
    if body is None:
        return None
    return io.BytesIO(body.data) if len(body.data) > 1 << 20 else body.data


async def _lines(stream: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
    """Yield the complete lines of a stream. aiohttp's own reader rejects lines above 512 KiB."""
    parts: list[bytes] = []
    size = 0
    async for chunk in stream.iter_any():
        if b"\n" not in chunk:
            # Collected in a list and joined once: appending to a bytes object would copy a large
            # event with each chunk.
            parts.append(chunk)
            size += len(chunk)
            if size > MAX_EVENT_BYTES:
                raise ServerError(f"an event of a watch is larger than {MAX_EVENT_BYTES} bytes")
            continue
        *lines, rest = b"".join((*parts, chunk)).split(b"\n")
        # The text after the last newline is the beginning of the next event, or empty.
        parts, size = [rest], len(rest)
        for line in lines:
            if line:
                yield line


def _why(error: Exception) -> str:
    """Return what happened and what to check."""
    # From the most to the least specific class: each class is a subclass of a later one.
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error}); check the certificate-authority"
    if isinstance(error, aiohttp.ClientSSLError):
        return f"TLS failed ({error.os_error}); check that it speaks https and takes the client certificate"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"its name is not known ({error.os_error}); check the address"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{error.os_error}; check that it runs and that the address is right"
    return f"the connection broke ({error or type(error).__name__})"


# TCP keep-alive distinguishes a dead peer (host gone, NAT entry dropped) from a silent one: probes
# start after 30 s without traffic, and the connection is lost after three more, 10 s apart. Linux'
# default is two hours. A request that the peer's kernel has not acknowledged for 5,000 ms has met a dead
# peer: the timeout of a write is much longer, because a slow server has acknowledged it and needs the time.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 5_000}


def _socket_that_notices_death(
    address: tuple[int, int, int, str, tuple[Any, ...]],
) -> socket.socket:
    """Return a socket with TCP keepalive, which finds a dead connection within about a minute."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family=family, type=kind, proto=protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Some systems do not define all options (macOS has no TCP_KEEPIDLE); there the
        # default idle time applies.
        if hasattr(socket, name):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return made
