"""Self-signed certificates: creation, storage, renewal, and replacement while serving."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from api.http.certificates import (
    Certificates,
    KeyPair,
    ServingTls,
    certificates_of_secret,
    key_pair_of_files,
    names_of,
    renewal_at,
    renewed,
)
from api.http.server import HttpServer, Request, Response, Route, text_response

NAMES = ["berth.berth-system.svc", "127.0.0.1"]
DAY = 86400.0
NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def made() -> Certificates:
    return renewed(None, NAMES, now=NOW)


def subject_key(certificate: bytes) -> bytes:
    read = x509.load_pem_x509_certificate(certificate)
    return read.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest


def count(bundle: bytes) -> int:
    return len(x509.load_pem_x509_certificates(bundle))


def test_the_leaf_is_for_the_names_and_signed_by_the_authority(made: Certificates) -> None:
    authority = x509.load_pem_x509_certificate(made.authority.certificate)
    leaf = x509.load_pem_x509_certificate(made.leaf.certificate)

    leaf.verify_directly_issued_by(authority)
    assert names_of(made.leaf.certificate) == set(NAMES)
    assert made.trusted == made.authority.certificate


def test_they_come_back_from_a_secret(made: Certificates) -> None:
    assert certificates_of_secret(made.to_secret()) == made


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"tls.crt": b""}, id="an empty leaf"),
        pytest.param({"tls.key": b"garbage"}, id="a broken key"),
        pytest.param({"ca.crt": b"garbage"}, id="a broken authority"),
        pytest.param({"ca.crt": b""}, id="no authority"),
    ],
)
def test_a_secret_that_is_broken_counts_as_none(made: Certificates, changed: dict[str, bytes]) -> None:
    assert certificates_of_secret({**made.to_secret(), **changed}) is None


def test_a_secret_that_lacks_a_key_counts_as_none(made: Certificates) -> None:
    for key in made.to_secret():
        data = made.to_secret()
        del data[key]
        assert certificates_of_secret(data) is None


def test_a_secret_of_parts_that_do_not_belong_together_counts_as_none(made: Certificates) -> None:
    other = renewed(None, NAMES, now=NOW)

    assert certificates_of_secret(replace(made, leaf=other.leaf).to_secret()) is None
    mixed = KeyPair(certificate=made.leaf.certificate, key=other.leaf.key)
    assert certificates_of_secret(replace(made, leaf=mixed).to_secret()) is None


@pytest.mark.parametrize(
    ("days", "want_new_leaf", "want_new_authority", "want_trusted"),
    [
        pytest.param(0, False, False, 1, id="new ones stay"),
        pytest.param(243, False, False, 1, id="until two thirds of the leaf's year are over"),
        pytest.param(244, True, False, 1, id="then the leaf is renewed"),
        pytest.param(
            2434, True, True, 2, id="after two thirds of ten years the authority, with an ended leaf"
        ),
    ],
)
def test_what_is_renewed_when(
    made: Certificates, days: float, want_new_leaf: bool, want_new_authority: bool, want_trusted: int
) -> None:
    later = renewed(made, NAMES, now=NOW + days * DAY)

    assert (later.leaf != made.leaf) == want_new_leaf
    assert (later.authority != made.authority) == want_new_authority
    assert count(later.trusted) == want_trusted
    assert (later is made) == (not want_new_leaf)


def test_a_leaf_for_other_names_is_made_at_once(made: Certificates) -> None:
    other = renewed(made, ["elsewhere"], now=NOW)

    assert names_of(other.leaf.certificate) == {"elsewhere"}
    assert other.authority == made.authority


def test_a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_its_leaves_have_ended(
    made: Certificates,
) -> None:
    due = NOW + 2433 * DAY
    before = renewed(made, NAMES, now=due - 100 * DAY)
    changed = renewed(before, NAMES, now=due + DAY)
    later = renewed(changed, NAMES, now=due + 200 * DAY)
    at_last = renewed(later, NAMES, now=due + 400 * DAY)

    assert changed.authority != before.authority
    assert (changed.leaf, count(changed.trusted)) == (before.leaf, 2)
    assert certificates_of_secret(changed.to_secret()) == changed
    assert (later.leaf != changed.leaf, count(later.trusted)) == (True, 2)
    assert at_last.trusted == changed.authority.certificate


def test_two_thirds_of_a_life(made: Certificates) -> None:
    assert renewal_at(made.leaf.certificate) == pytest.approx(NOW + 365 * DAY * 2 / 3, abs=300)


def test_a_server_needs_a_name() -> None:
    with pytest.raises(ValueError, match="needs a name"):
        renewed(None, [], now=NOW)


def test_a_certificate_with_anothers_key_is_not_served(made: Certificates) -> None:
    with pytest.raises(ValueError, match="the certificate cannot be served"):
        ServingTls(KeyPair(certificate=made.leaf.certificate, key=made.authority.key))


def serial(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


class Connection:
    """One TLS connection that stays open from request to request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        peer = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        self.serial = x509.load_der_x509_certificate(peer).serial_number

    async def get(self) -> bytes:
        """Return the first line of the answer to one request."""
        self._writer.write(b"HEAD / HTTP/1.1\r\nHost: berth\r\n\r\n")
        return (await self._reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]


@asynccontextmanager
async def connected(server: HttpServer, trusted: bytes) -> AsyncIterator[Connection]:
    context = ssl.create_default_context(cadata=trusted.decode())
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    try:
        yield Connection(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


async def answer(_: Request) -> Response:
    return text_response("well")


async def test_certificates_are_exchanged_while_serving() -> None:
    first = renewed(None, NAMES, now=time.time())
    second = renewed(first, [*NAMES, "more"], now=time.time())
    tls = ServingTls(first.leaf)

    async with (
        HttpServer([Route("GET", "/", answer)], tls=tls) as server,
        connected(server, first.trusted) as kept,
    ):
        assert server.url.startswith("https://")
        assert kept.serial == serial(first.leaf)
        tls.load(second.leaf)

        assert await kept.get() == b"HTTP/1.1 200 OK"
        async with connected(server, first.trusted) as fresh:
            assert fresh.serial == serial(second.leaf)
            assert await fresh.get() == b"HTTP/1.1 200 OK"


async def test_a_client_of_another_authority_does_not_trust_it(made: Certificates) -> None:
    current = renewed(None, NAMES, now=time.time())
    async with HttpServer([], tls=ServingTls(current.leaf)) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            async with connected(server, made.trusted):
                pass


async def test_a_certificate_that_cannot_be_loaded_leaves_the_one_that_is_served(made: Certificates) -> None:
    current = renewed(None, NAMES, now=time.time())
    tls = ServingTls(current.leaf)
    with pytest.raises(ValueError, match="cannot be served"):
        tls.load(KeyPair(certificate=made.leaf.certificate, key=current.leaf.key))

    async with HttpServer([], tls=tls) as server, connected(server, current.trusted) as connection:
        assert connection.serial == serial(current.leaf)


def test_certificates_of_files_are_read(tmp_path: Path, made: Certificates) -> None:
    (tmp_path / "tls.crt").write_bytes(made.leaf.certificate)
    (tmp_path / "tls.key").write_bytes(made.leaf.key)

    assert key_pair_of_files(tmp_path / "tls.crt", tmp_path / "tls.key") == made.leaf
