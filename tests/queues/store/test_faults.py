"""What Redis says when it will not serve becomes one sentence that names the place and the fix."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from queues.reservations.reservations import BadStoreUrl, ReservationError, StoreRefused, StoreUnreachable
from queues.store.access import StoreAccess
from queues.store.faults import StoreLocation, unreachable, without_password
from queues.store.redis_store import RedisReservationStore
from tests.children import Port


@asynccontextmanager
async def serving(answer: bytes, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Give the port of a server that answers each command with `answer`."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (said := await reader.read(65536)) and answer:
            commands = len(re.findall(rb"^\*\d+\r\n", said, re.MULTILINE))
            writer.write(answer * max(commands, 1))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def failure(url: str) -> ReservationError:
    """Return the error of a call to the store at `url`."""
    store = RedisReservationStore.from_url(url, call_seconds=5.0)
    try:
        await store.live(fence=1)
    except ReservationError as error:
        return error
    finally:
        await store.close()
    raise AssertionError("the call succeeded")


@pytest.mark.parametrize(
    ("answer", "kind", "want"),
    [
        pytest.param(
            b"-LOADING Redis is loading the dataset in memory\r\n",
            StoreUnreachable,
            "is still loading its data",
            id="it is loading",
        ),
        pytest.param(
            b"-BUSY Redis is busy running a script.\r\n",
            StoreUnreachable,
            "`redis-cli SCRIPT KILL` ends it",
            id="another client's script holds it up",
        ),
        pytest.param(
            b"-MASTERDOWN Link with MASTER is down\r\n",
            StoreUnreachable,
            "give the URL of the primary",
            id="it is a replica without a primary",
        ),
        pytest.param(
            b"-CLUSTERDOWN The cluster is down\r\n",
            StoreUnreachable,
            r"a Redis Cluster that is down \(The cluster is down\)",
            id="its cluster is down",
        ),
        pytest.param(
            b"-MOVED 3999 10.0.0.7:6381\r\n",
            StoreRefused,
            "give the URL of 10.0.0.7:6381",
            id="the keys lie on another node",
        ),
        pytest.param(
            b"-DENIED Redis is running in protected mode\r\n",
            StoreRefused,
            "set a password there",
            id="it is in protected mode",
        ),
        pytest.param(
            b"-MISCONF Errors writing to the AOF file: No space left on device\r\n",
            StoreRefused,
            r"cannot save its data \(Errors writing to the AOF file: No space left on device\): free space",
            id="its disk is full",
        ),
        pytest.param(
            b"-NOAUTH Authentication required.\r\n",
            StoreRefused,
            r"does not accept the credentials \(Authentication required\): correct user and password",
            id="it wants a password",
        ),
        pytest.param(
            b"-ERR unknown command 'EVALSHA'\r\n",
            StoreRefused,
            "does not serve Berth: unknown command 'EVALSHA'",
            id="it runs no scripts",
        ),
        pytest.param(
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            StoreRefused,
            "is not Redis: check host and port",
            id="it speaks HTTP",
        ),
        pytest.param(
            b"",
            StoreUnreachable,
            "if it expects TLS, begin its URL with rediss://",
            id="it hangs up",
        ),
    ],
)
async def test_an_answer_that_is_no_service(answer: bytes, kind: type[ReservationError], want: str) -> None:
    async with serving(answer) as port:
        error = await failure(f"redis://127.0.0.1:{port}")

    assert type(error) is kind
    assert f"redis://127.0.0.1:{port}" in str(error)
    with pytest.raises(kind, match=want):
        raise error


async def test_a_port_that_is_closed() -> None:
    async with serving(b"") as port:
        pass

    error = await failure(f"redis://127.0.0.1:{port}")

    assert isinstance(error, StoreUnreachable)
    assert str(error).endswith("start it there, or correct its URL")


async def test_a_socket_that_does_not_exist(tmp_path: Path) -> None:
    error = await failure(f"unix://{tmp_path}/none.sock")

    assert isinstance(error, StoreUnreachable)
    assert f"{tmp_path}/none.sock" in str(error)


async def test_tls_where_none_is_spoken() -> None:
    async with serving(b"-ERR unknown command\r\n") as port:
        error = await failure(f"rediss://127.0.0.1:{port}")

    assert isinstance(error, StoreRefused)
    assert "does not speak TLS" in str(error)
    assert str(error).endswith("begin its URL with redis://")


async def test_a_certificate_without_a_trusted_authority(tmp_path: Path) -> None:
    async with serving(b"+PONG\r\n", tls=make_tls(tmp_path)) as port:
        error = await failure(f"rediss://127.0.0.1:{port}")

    assert isinstance(error, StoreRefused)
    assert "a certificate that is not trusted (self-signed certificate)" in str(error)
    assert str(error).endswith("rediss://…?ssl_ca_certs=FILE")


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param("http://localhost", "is no store's URL", id="another scheme"),
        pytest.param("localhost:6379", "is no store's URL", id="no scheme"),
        pytest.param("redis://localhost:70000", "Port out of range", id="a port out of range"),
        pytest.param("redis://localhost/mine", "'/mine' is no database number", id="a database by name"),
        pytest.param("redis://localhost?nonsense=1", "nonsense", id="an option that does not exist"),
        pytest.param("redis+sentinel://localhost", "the name of the service is missing", id="no service"),
        pytest.param(
            "redis+sentinel://a,b/s/mine", "'mine' is no database number", id="a service's database"
        ),
        pytest.param("redis+sentinel://a,:26379/s", "':26379' is no host", id="a port alone"),
        pytest.param("redis+sentinel://a:x/s", "Port could not be cast", id="a port that is no number"),
        pytest.param("redis+cluster://a,b/1", "a cluster has no database numbers", id="a cluster's database"),
        pytest.param("redis+cluster://a?nonsense=1", "nonsense", id="an option of a cluster"),
        pytest.param("redis+other://a", "is no store's URL", id="another group"),
        pytest.param("http+cluster://a", "is not known", id="a cluster of another scheme"),
        pytest.param("redis://localhost?db=x", "Invalid value for 'db'", id="an option's value"),
    ],
)
def test_an_address_that_cannot_be_read(url: str, want: str) -> None:
    with pytest.raises(BadStoreUrl, match=want) as refusal:
        RedisReservationStore.from_url(url)

    assert "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]" in str(refusal.value)


@pytest.mark.parametrize(
    ("url", "want"),
    [
        pytest.param("redis://h:6379/0", "redis://h:6379/0", id="none to hide"),
        pytest.param("redis://u:secret@h:6379/0", "redis://u:***@h:6379/0", id="user and password"),
        pytest.param("redis://:secret@h", "redis://:***@h", id="password alone"),
        pytest.param("redis://u:se/cr@t@h:1", "redis://u:***@h:1", id="a password that breaks the URL"),
        pytest.param("unix:///r?password=secret&db=1", "unix:///r?password=***&db=1", id="an option"),
    ],
)
def test_a_password_is_never_shown(url: str, want: str) -> None:
    assert without_password(url) == want


def make_tls(folder: Path) -> ssl.SSLContext:
    """Return a server's context with a certificate that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redis")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "tls.pem").write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.pem")
    return context


def test_an_embedded_store_that_does_not_answer_is_not_the_users_to_start() -> None:
    place = StoreLocation(address="unix:///tmp/berth/socket", directory="/data/store")

    message = str(unreachable(place, "nothing within 125 ms"))

    assert message.startswith("the embedded Redis in /data/store does not answer (nothing within 125 ms)")
    assert "started again by itself" in message
    assert "URL" not in message


@pytest.mark.parametrize(
    "form",
    [
        "redis+sentinel://u:p@{},{}/berth/2",
        "redis+cluster://u:p@{},{}",
        "rediss+sentinel://{},{}/berth",
        "rediss+cluster://{}",
    ],
)
async def test_a_group_without_a_server_that_answers_is_unreachable(form: str) -> None:
    port = Port()
    try:
        error = await failure(form.format(f"127.0.0.1:{port.number}", f"[::1]:{port.number}"))
    finally:
        port.release()

    assert isinstance(error, StoreUnreachable)
    assert "does not answer" in str(error)
    assert ":p@" not in str(error)


def test_the_password_of_sentinels_is_for_sentinels() -> None:
    with pytest.raises(BadStoreUrl, match=r"the URL does not begin with redis\+sentinel"):
        RedisReservationStore.from_url("redis://h", access=StoreAccess(sentinel_password_file="f"))
