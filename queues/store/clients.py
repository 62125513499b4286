"""The client for a store's URL: one server, the primary that Sentinels name, or a node of a cluster.

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]                               one server
    unix:///PATH                                                             one server on this machine
    redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT],…/SERVICE[/DB]            the primary of a service
    redis+cluster://[[USER]:PASSWORD@]HOST[:PORT],…                          the node of a cluster
    rediss://, rediss+sentinel://, rediss+cluster://                         the same by TLS

All keys of a shard are in one slot of a cluster. The store therefore talks to one server in each case, and
only the way of finding it differs: each new connection asks for the present one. A connection whose server
says that it is not the one any more is closed, and the next one asks again. Each new connection reads the
files of its TLS, so that renewed ones need no restart.

The library's cluster client is not used: it sends each command on any of its connections, while WAIT is about
the writes of its own connection.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

import redis
from redis.asyncio import BlockingConnectionPool, Connection, ConnectionPool, Redis, SSLConnection
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool, SentinelManagedSSLConnection
from redis.backoff import NoBackoff
from redis.crc import key_slot

from queues.reservations.reservations import BadStoreUrl
from queues.store.access import PasswordFile, StoreAccess, access_options
from queues.store.faults import StoreLocation
from queues.store.keys import Keys
from queues.store.tls import TlsConnection

# For calls that may take longer: a ping, because it opens the connections that later calls use, possibly with
# TLS over a long distance; and reading all reservations, or the whole plan.
SLOW_SECONDS = 2.0
# Calls in flight. The leader commits, confirms and probes; more calls at once would only queue up in Redis.
CONNECTIONS = 8
# How long one Sentinel, or one node of a cluster, is asked for the server. Several that are silent must fit
# into a ping.
_ASK_SECONDS = 0.25

_SENTINEL_PORT = 26379
_REDIS_PORT = 6379

_URL_FORM = (
    "a store's URL is redis://[[USER]:PASSWORD@]HOST[:PORT][/DB], unix:///PATH, "
    "redis+sentinel://HOST[:PORT],…/SERVICE[/DB] or redis+cluster://HOST[:PORT],…; rediss… for TLS"
)

_OPTIONS: Mapping[str, Any] = {
    # RESP2: RESP3 has no advantage here, and several proxies do not support it.
    "protocol": 2,
    # The library's own retry would silently send a script again after a lost reply.
    "retry": Retry(NoBackoff(), 0),
    # The only time limit is asyncio.timeout around the whole call.
    "socket_timeout": None,
    "socket_connect_timeout": SLOW_SECONDS,
}


def to_client(url: str, place: StoreLocation, access: StoreAccess, *, shard: str) -> Redis:
    """Return the client of a shard's store, without connecting yet. Raises BadStoreUrl."""
    try:
        parts = urlsplit(url)
        kind = parts.scheme.partition("+")[2]
        if kind != "sentinel" and access.sentinel_password_file is not None:
            raise ValueError(
                "a password of Sentinels is given, and the URL does not begin with redis+sentinel"
            )
        if kind == "sentinel":
            return _sentinel_client(parts, access)
        if kind == "cluster":
            return _cluster_client(parts, access, shard=shard)
        return _single_client(parts, access)
    except (ValueError, TypeError) as error:
        raise BadStoreUrl(f"{place.address!r} is no store's URL ({error}); {_URL_FORM}") from error


def _single_client(parts: SplitResult, access: StoreAccess) -> Redis:
    if parts.scheme != "unix":
        _check_database(parts.path)
    parts, of_files = access_options(parts, access)
    # Blocking: a caller waits for a free connection instead of getting an error.
    pool = BlockingConnectionPool.from_url(
        parts.geturl(), **_OPTIONS, max_connections=CONNECTIONS, **of_files
    )
    _check_options(pool.connection_class, pool.connection_kwargs)
    _read_files_again(pool)
    return Redis.from_pool(pool)


def _read_files_again(pool: ConnectionPool) -> None:
    """Let connections that the library's own pool makes read the files of their TLS whenever they connect."""
    if pool.connection_class is SSLConnection:
        pool.connection_class = TlsConnection


def _check_database(path: str) -> None:
    # The library would silently use database 0 for anything that is not a number.
    if not path.removeprefix("/").isdecimal() and path.strip("/"):
        raise ValueError(f"{path!r} is no database number")


def _check_options(connection_class: Callable[..., object], options: Mapping[str, Any]) -> None:
    # An unknown option only shows when a connection object is created; it is not opened here.
    connection_class(**options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Several:
    """A URL with several hosts: who they are, how connections to them and to the store are made."""

    hosts: Sequence[tuple[str, int]]
    uses_tls: bool
    #: Of the TLS of all connections.
    tls: Mapping[str, Any]
    #: Of connections to the store, with user, password and database.
    options: Mapping[str, Any]


def _several(parts: SplitResult, access: StoreAccess, *, database: str, port: int) -> _Several:
    """Return what a URL with several hosts says. Raises ValueError."""
    scheme = parts.scheme.partition("+")[0]
    if scheme not in ("redis", "rediss"):
        raise ValueError(f"{parts.scheme}:// is not known")
    parts, of_files = access_options(parts, access)
    credentials, _, names = parts.netloc.rpartition("@")
    hosts = [_to_host(name, port) for name in names.split(",")]
    # The library reads credentials and options as in the URL of one server.
    netloc = f"{credentials}@host" if credentials else "host"
    single = parts._replace(scheme=scheme, netloc=netloc, path=database)
    options: dict[str, Any] = {**parse_url(single.geturl()), **_OPTIONS, **of_files}
    for name in ("host", "connection_class"):
        options.pop(name, None)
    uses_tls = scheme == "rediss"
    _check_options(SSLConnection if uses_tls else Connection, options)
    tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
    return _Several(hosts=hosts, uses_tls=uses_tls, tls=tls, options=options)


def _to_host(name: str, port: int) -> tuple[str, int]:
    found = urlsplit(f"//{name}")
    if not found.hostname:
        raise ValueError(f"{name!r} is no host")
    return found.hostname, found.port or port


def _sentinel_client(parts: SplitResult, access: StoreAccess) -> Redis:
    service, _, database = parts.path.removeprefix("/").partition("/")
    if not service:
        raise ValueError("the name of the service is missing")
    _check_database(database)
    several = _several(parts, access, database=database, port=_SENTINEL_PORT)
    asking: dict[str, Any] = {
        **_OPTIONS,
        **several.tls,
        "ssl": several.uses_tls,
        "socket_timeout": _ASK_SECONDS,
        "socket_connect_timeout": _ASK_SECONDS,
    }
    if access.sentinel_password_file is not None:
        asking["credential_provider"] = PasswordFile("", access.sentinel_password_file)
    sentinel = Sentinel(several.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    for one in sentinel.sentinels:
        _read_files_again(one.connection_pool)
    of_tls = {"connection_class": _SentinelTlsConnection} if several.uses_tls else {}
    pool = _SentinelPool(service, sentinel, **of_tls, **several.options)  # type: ignore[no-untyped-call]
    return Redis.from_pool(pool)


class _SentinelTlsConnection(TlsConnection, SentinelManagedSSLConnection):
    """A connection by TLS to the primary that the Sentinels name."""


class _SentinelPool(SentinelConnectionPool):
    """Connections to the primary that the Sentinels name."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections; all of them also means those to the Sentinels."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            await self.sentinel_manager.aclose()


def _cluster_client(parts: SplitResult, access: StoreAccess, *, shard: str) -> Redis:
    if parts.path.strip("/"):
        raise ValueError("a cluster has no database numbers")
    several = _several(parts, access, database="", port=_REDIS_PORT)
    asking: dict[str, Any] = {
        **several.options,
        "ssl": several.uses_tls,
        "socket_timeout": _ASK_SECONDS,
        "socket_connect_timeout": _ASK_SECONDS,
    }
    nodes = [Redis(host=host, port=port, **asking) for host, port in several.hosts]
    for node in nodes:
        _read_files_again(node.connection_pool)
    pool = _ClusterPool(
        _SlotOwner(nodes, slot=key_slot(Keys(shard).prefix.encode())),
        connection_class=_SlotTlsConnection if several.uses_tls else _SlotConnection,
        max_connections=CONNECTIONS,
        **several.options,
    )
    return Redis.from_pool(pool)


class _SlotOwner:
    """Finds the node of a cluster that serves one slot."""

    def __init__(self, nodes: Sequence[Redis], *, slot: int) -> None:
        self._nodes = deque(nodes)
        self._slot = slot

    async def find(self) -> tuple[str, int]:
        """Return host and port. Raises redis.ConnectionError if no node knows one."""
        last: Exception | None = None
        for _ in range(len(self._nodes)):
            node = self._nodes[0]
            # Another one is asked first next time: a node that is cut off from the others still names itself.
            self._nodes.rotate(-1)
            try:
                return await self._ask(node)
            except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
                last = error
        raise redis.ConnectionError(f"no node of the cluster knows who serves slot {self._slot}: {last}")

    async def _ask(self, node: Redis) -> tuple[str, int]:
        ranges = await node.execute_command("CLUSTER SLOTS")  # type: ignore[no-untyped-call]
        # Each begins with its first slot, its last one, and the primary: host, port, id.
        for first, last, (host, port, *_), *_ in ranges:
            if first <= self._slot <= last:
                # A node that does not know its own address leaves it empty.
                asked = str(node.connection_pool.connection_kwargs["host"])
                return (host.decode() if host else asked), int(port)
        raise redis.ConnectionError(f"slot {self._slot} is served by no node")

    async def close(self) -> None:
        """Close the connections."""
        for node in self._nodes:
            await node.aclose()


class _ClusterPool(BlockingConnectionPool):
    """Connections to the node that serves the slot."""

    def __init__(self, owner: _SlotOwner, **options: Any) -> None:
        super().__init__(owner=owner, **options)
        self._owner = owner

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections; all of them also means those that ask for the node."""
        await super().disconnect(inuse_connections)
        if inuse_connections:
            await self._owner.close()


class _SlotConnection(Connection):
    """A connection to the node that serves the slot when it is opened."""

    def __init__(self, *, owner: _SlotOwner, **options: Any) -> None:
        super().__init__(**options)
        self._owner = owner

    async def connect(self) -> None:
        """Connect unless connected."""
        if not self.is_connected:
            self.host, self.port = await self._owner.find()
        await super().connect()  # type: ignore[no-untyped-call]

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Return an answer. A node that does not serve the slot now counts as a lost connection."""
        try:
            return await super().read_response(*args, **options)
        # MOVED is a kind of ASK.
        except (redis.exceptions.AskError, redis.exceptions.ClusterDownError, redis.ReadOnlyError) as error:
            await self.disconnect()
            raise redis.ConnectionError(f"this node does not serve the slot now ({error})") from error


class _SlotTlsConnection(_SlotConnection, TlsConnection):
    """The same by TLS."""
