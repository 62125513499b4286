"""Redis servers that replace each other: a primary with replicas and a Sentinel, and a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.crc import key_slot

from tests.children import Child, Port
from tests.redisserver import Guard, RedisServer, find_redis

SERVICE = "berth"
PATIENCE_SECONDS = 30.0
_SLOTS = 16384


def wait_until(is_so: Callable[[], bool]) -> None:
    """Return when it is so. Raises TimeoutError; an error of Redis means not yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if is_so():
                return
        except redis.RedisError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {PATIENCE_SECONDS:.0f} s: {is_so}")
        time.sleep(0.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A primary and what can replace it. `url` names the group, not the primary."""

    url: str
    primary: RedisServer
    replicas: Sequence[RedisServer]

    def wait_promoted(self) -> RedisServer:
        """Return the replica that has become primary."""
        found: list[RedisServer] = []

        def is_promoted() -> bool:
            for one in self.replicas:
                with one.client() as client:
                    if client.info("replication")["role"] == "master":
                        found.append(one)
            return bool(found)

        wait_until(is_promoted)
        return found[0]

    def wait_moved(self, key: str) -> None:
        """Return once every node of the cluster knows that the replica serves the key's slot."""
        promoted, slot = self.wait_promoted().port, key_slot(key.encode())
        ports = [self.primary.port, *(one.port for one in self.replicas)]
        ports += [int(host.rpartition(":")[2]) for host in self.url.rpartition("/")[2].split(",")]
        wait_until(lambda: all(_owner_port(port, slot) == promoted for port in ports))


@contextmanager
def sentinel_group(
    folder: Path, *, replicas: int, program: str = "", guard: Guard | None = None, password: str = ""
) -> Iterator[Group]:
    """Run a primary, its replicas and a Sentinel, which replaces a primary after 0.5 s of silence.

    All of them ask for what `guard` says, and the Sentinel for a `password` of its own.
    """
    with ExitStack() as stack:
        at_once = {"repl-diskless-sync-delay": "0"}
        primary = stack.enter_context(RedisServer(folder / "primary", at_once, program=program, guard=guard))
        followers = [
            stack.enter_context(
                RedisServer(folder / f"replica-{n}", _following(primary), program=program, guard=guard)
            )
            for n in range(replicas)
        ]
        for one in (primary, *followers):
            wait_until(lambda one=one: _replication(one, primary=primary, replicas=replicas))  # type: ignore[misc]
        sentinel = stack.enter_context(_sentinel(folder, primary, guard=guard, password=password))
        wait_until(lambda: sentinel.known_replicas() == replicas)
        scheme = "redis" if guard is None else "rediss"
        url = f"{scheme}+sentinel://127.0.0.1:{sentinel.port}/{SERVICE}/0"
        yield Group(url=url, primary=primary, replicas=followers)


def _following(primary: RedisServer) -> dict[str, str]:
    return {"replicaof": f"127.0.0.1 {primary.port}", "repl-diskless-sync-delay": "0"}


def _replication(server: RedisServer, *, primary: RedisServer, replicas: int) -> bool:
    with server.client() as client:
        found = client.info("replication")
    if server is primary:
        return int(found["connected_slaves"]) == replicas
    return bool(found["master_link_status"] == "up")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentinel:
    """How to ask a Sentinel."""

    port: int
    guard: Guard | None
    password: str

    def known_replicas(self) -> int:
        """Return how many replicas it knows; -1 if it does not answer."""
        tls = {} if self.guard is None else {"ssl": True, "ssl_ca_certs": str(self.guard.ca)}
        password = self.password or None
        try:
            with redis.Redis(
                "127.0.0.1",
                self.port,
                password=password,
                socket_timeout=2.0,
                **tls,  # type: ignore[arg-type]
            ) as client:
                return int(client.sentinel_masters()[SERVICE]["num-slaves"])
        except redis.RedisError:
            return -1


@contextmanager
def _sentinel(
    folder: Path, primary: RedisServer, *, guard: Guard | None, password: str
) -> Iterator[_Sentinel]:
    port = Port()
    home = folder / "sentinel"
    home.mkdir()
    configuration = home / "sentinel.conf"
    own = {"port": str(port.number)} if guard is None else guard.tls_settings(port.number)
    lines = [
        *(f"{name} {value}" for name, value in own.items()),
        *([f"requirepass {password}"] if password else []),
        "bind 127.0.0.1",
        f"dir {home}",
        f"sentinel monitor {SERVICE} 127.0.0.1 {primary.port} 1",
        *([f"sentinel auth-pass {SERVICE} {guard.password}"] if guard is not None else []),
        f"sentinel down-after-milliseconds {SERVICE} 500",
        f"sentinel failover-timeout {SERVICE} 3000",
    ]
    configuration.write_text("\n".join(lines) + "\n")
    arguments = [str(find_redis()[0]), str(configuration), "--sentinel"]
    sentinel = _Sentinel(port=port.number, guard=guard, password=password)
    try:
        with Child(name="sentinel", arguments=arguments, log=home / "log") as child:
            child.wait_ready(lambda: sentinel.known_replicas() >= 0, timeout_seconds=60.0)
            yield sentinel
    finally:
        port.release()


@contextmanager
def cluster_group(folder: Path, *, key: str) -> Iterator[Group]:
    """Run a cluster of three primaries; `primary` serves the slot of `key` and has a replica."""
    settings = {"cluster-enabled": "yes", "cluster-node-timeout": "1000", "repl-diskless-sync-delay": "0"}
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer(folder / f"node-{n}", settings)) for n in range(4)]
        clients = [stack.enter_context(one.client()) for one in servers]
        for client in clients[1:]:
            client.execute_command("CLUSTER MEET", "127.0.0.1", servers[0].port)
        edges = [0, _SLOTS // 3, 2 * _SLOTS // 3, _SLOTS]
        for client, first, end in zip(clients, edges, edges[1:], strict=False):
            client.execute_command("CLUSTER ADDSLOTSRANGE", first, end - 1)
        slot = key_slot(key.encode())
        owner = next(n for n in range(3) if edges[n] <= slot < edges[n + 1])
        identity = clients[owner].execute_command("CLUSTER MYID")
        # It has to have heard of that node first.
        wait_until(lambda: bool(clients[3].execute_command("CLUSTER REPLICATE", identity)))
        for client in clients:
            wait_until(lambda client=client: _is_complete(client))  # type: ignore[misc]
        wait_until(lambda: _replication(servers[3], primary=servers[owner], replicas=1))
        wait_until(lambda: _replication(servers[owner], primary=servers[owner], replicas=1))
        # The owner comes last, so that others are asked as well.
        others = [one for n, one in enumerate(servers[:3]) if n != owner]
        hosts = ",".join(f"127.0.0.1:{one.port}" for one in (*others, servers[owner]))
        yield Group(url=f"redis+cluster://{hosts}", primary=servers[owner], replicas=servers[3:])


def _is_complete(client: redis.Redis) -> bool:
    found = client.execute_command("CLUSTER INFO")  # type: ignore[no-untyped-call]
    return bool(found["cluster_state"] == "ok" and found["cluster_known_nodes"] == "4")


def _owner_port(port: int, slot: int) -> int:
    """Return the port of the primary that serves the slot, as the node at `port` knows it."""
    with redis.Redis(port=port) as client:
        ranges = client.execute_command("CLUSTER SLOTS")
    # Each begins with its first slot, its last one, and the primary: host, port, id.
    return next(int(primary[1]) for first, last, primary, *_ in ranges if first <= slot <= last)
