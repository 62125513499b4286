"""Our own Redis starts and stops with us, keeps what was written, and names what stops it from starting."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from queues.reservations.reservations import Reserved, StoreRefused, StoreUnreachable
from queues.store.embedded import EmbeddedRedis, find_server
from queues.store.redis_store import RedisReservationStore
from tests import parts
from tests.integration.waiting import PATIENCE_SECONDS
from tests.queues.reservation_builders import make_reservation

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _redis() -> None:
    parts.need("redis")


@pytest.fixture
def short_directory() -> Iterator[str]:
    """Give a directory whose path is short enough for a socket's; pytest's own may not be."""
    with tempfile.TemporaryDirectory() as directory:
        yield directory


def no_space_for(folder: Path) -> str:
    """Return a Redis server that cannot write a byte into a file, as on a full disk."""
    script = folder / "redis-without-space"
    script.write_text(f'#!/bin/sh\nulimit -f 0\nexec {find_server()} "$@"\n')
    script.chmod(0o700)
    return str(script)


def open_files(pid: int) -> list[str]:
    """Return what a process has open."""
    return [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()]


def mode(path: Path) -> int:
    """Return a file's permissions."""
    return path.stat().st_mode & 0o777


async def commit(store: RedisReservationStore, name: str = "a", *, size: int = 10) -> None:
    """Reserve one Workload."""
    reservation = make_reservation(name, request_id=f"r-{name}", write=b"x" * size)
    (answer,) = await store.commit([reservation], fence=5, request_id=f"r-{name}")
    assert isinstance(answer, Reserved)


def is_alive(pid: int) -> bool:
    """Return whether a thread of a process runs; a zombie does not.

    The first one may be a zombie already while others still hold the files of the process, and its locks.
    """
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return False
    return any(_state(thread) not in "ZX" for thread in threads)


def _state(thread: Path) -> str:
    """Return the letter of a thread's state, X of one that is gone."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    # The second, where it ends between opening and reading.
    except (FileNotFoundError, ProcessLookupError):
        return "X"


async def wait_dead(pid: int) -> None:
    """Return when the process is gone, within 20 s."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while is_alive(pid):
            await asyncio.sleep(0.01)


async def test_without_a_directory_nothing_is_left_behind() -> None:
    embedded = EmbeddedRedis()
    store = await embedded.start()
    await store.seed_fence(5)
    await commit(store)
    pid, socket = embedded.pid, (embedded.url or "").removeprefix("unix://")
    assert pid is not None

    await embedded.stop()

    assert not is_alive(pid)
    assert socket
    assert not Path(socket).parent.exists()


async def test_what_is_kept_in_a_directory_outlives_the_server(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        store = await embedded.start(tmp_path / "new" / "store")
        await store.seed_fence(5)
        await commit(store)
    async with EmbeddedRedis() as embedded:
        store = await embedded.start(tmp_path / "new" / "store")

        assert await store.live(fence=5) == (make_reservation(request_id="r-a", write=b"x" * 10),)


async def test_only_this_user_may_enter(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        await embedded.start(tmp_path / "store")
        socket = Path((embedded.url or "").removeprefix("unix://"))

        assert [mode(socket), mode(socket.parent), mode(tmp_path / "store")] == [0o700] * 3


def is_logged(directory: Path, words: bytes) -> bool:
    """Whether Redis has written these words to its log."""
    return any(words in log.read_bytes() for log in directory.rglob("*.aof"))


async def test_a_child_that_dies_is_started_again_with_its_data(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        store = await embedded.start(tmp_path)
        await store.seed_fence(5)
        await commit(store)
        # With everysec Redis may hold its log back for a moment while an earlier write is synced.
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not is_logged(tmp_path, b"reservations"):
                await asyncio.sleep(0.01)
        first = embedded.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await wait_dead(first)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while embedded.pid == first:
                await asyncio.sleep(0.01)
            while True:
                try:
                    found = await store.live(fence=5)
                    break
                except StoreUnreachable:
                    await asyncio.sleep(0.01)

        assert [r.key.name for r in found] == ["a"]


_PARENT = """
import asyncio, sys
from queues.store.embedded import EmbeddedRedis

async def main():
    embedded = EmbeddedRedis()
    await embedded.start(sys.argv[1] or None)
    print(embedded.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="optional: only Linux ties a child to its parent")
async def test_the_child_dies_with_a_killed_parent(tmp_path: Path, short_directory: str) -> None:
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PARENT, str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": short_directory},  # what a killed parent leaves, the test removes
    )
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert is_alive(child)

    parent.kill()
    await parent.wait()

    await wait_dead(child)


@pytest.mark.skipif(sys.platform != "linux", reason="optional: only Linux ties a child to its parent")
async def test_what_a_killed_process_leaves_is_deleted_by_the_next_one(
    short_directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", short_directory)
    kept = Path(tempfile.mkdtemp(prefix="berth-of-another-program-", dir=short_directory))
    async with EmbeddedRedis() as running:
        await running.start()
        parent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _PARENT, ""),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "TMPDIR": short_directory},
        )
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        assert len(directories(short_directory)) == 3
        parent.kill()
        await parent.wait()
        await wait_dead(child)

        async with EmbeddedRedis() as another:
            await another.start()

            present = {Path((one.url or "").removeprefix("unix://")).parent for one in (running, another)}
            assert directories(short_directory) == {kept, *present}

    assert directories(short_directory) == {kept}


def directories(base: str) -> set[Path]:
    """Return what is in a directory."""
    return set(Path(base).iterdir())


async def test_two_stores_do_not_share_a_directory(tmp_path: Path) -> None:
    async with EmbeddedRedis() as first, EmbeddedRedis() as second:
        await first.start(tmp_path)

        with pytest.raises(StoreRefused, match=rf"in use by the embedded store of .*\({os.getpid()}\)"):
            await second.start(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="optional: /proc is Linux's")
async def test_a_server_that_outlives_its_parent_keeps_the_lock(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        await embedded.start(tmp_path)
        assert embedded.pid is not None

        assert str(tmp_path / "berth.lock") in open_files(embedded.pid)


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(StoreRefused, match="cannot be made the directory of the embedded store") as refusal:
        await EmbeddedRedis().start(tmp_path / "file" / "store")

    assert str(tmp_path / "file" / "store") in str(refusal.value)


async def test_data_that_redis_cannot_read_is_named(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        store = await embedded.start(tmp_path)
        await store.seed_fence(5)
    for path in (tmp_path / "appendonlydir").glob("*.incr.aof"):
        path.write_bytes(b"*1\r\n$7\r\nnonsens\r\n*broken")

    with pytest.raises(StoreRefused, match=r"ended at once .* repair that directory") as refusal:
        await EmbeddedRedis().start(tmp_path)

    assert str(tmp_path) in str(refusal.value)


@pytest.mark.skipif(sys.platform != "linux", reason="optional: prlimit is Linux's")
async def test_a_disk_that_fills_up_is_named_with_the_directory(tmp_path: Path) -> None:
    async with EmbeddedRedis() as embedded:
        store = await embedded.start(tmp_path)
        await store.seed_fence(5)
        await commit(store, "before")
        assert embedded.pid is not None
        resource.prlimit(embedded.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

        async def commit_on_and_on() -> None:
            for number in range(1000):
                await commit(store, f"w{number}", size=8192)

        with pytest.raises(StoreRefused, match=r"cannot save its data") as refusal:
            await commit_on_and_on()
        assert f"free space on the disk of {tmp_path}" in str(refusal.value)

        # Redis tries again each second, and serves as soon as there is room.
        resource.prlimit(
            embedded.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await commit(store, "after")
                    break
                except StoreRefused:
                    await asyncio.sleep(0.1)


async def test_a_disk_that_is_full_from_the_start_is_named(tmp_path: Path) -> None:
    embedded = EmbeddedRedis(find_server=lambda: no_space_for(tmp_path))

    with pytest.raises(StoreRefused, match=r"File too large.* free space on its disk") as refusal:
        await embedded.start(tmp_path / "store")

    assert str(tmp_path / "store") in str(refusal.value)


async def test_without_any_server_the_state_ends_with_the_process(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with EmbeddedRedis(find_server=lambda: None) as embedded:
            store = await embedded.start()
            await store.seed_fence(5)
            await commit(store)

            assert len(await store.live(fence=5)) == 1
            assert embedded.url is None

    assert "ends with this process" in caplog.text


async def test_the_bundled_server_serves_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    bundled = find_server()
    assert bundled is not None
    async with EmbeddedRedis(find_server=lambda: bundled) as embedded:
        store = await embedded.start()
        await store.seed_fence(5)
        await commit(store)

        assert len(await store.live(fence=5)) == 1
