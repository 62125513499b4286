"""Kubeconfigs with certificates, and the service account of a pod, against a server that speaks TLS."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from api.http.certificates import Certificates, ServingTls, renewed
from api.http.server import HttpServer, Request, Response, Route, json_response
from api.kube import errors
from api.kube.client import Connection, KubeClient
from api.kube.kubeconfig import find_endpoint

NAME = "api.berth.test"


async def version(request: Request) -> Response:
    """Respond with the Authorization header of the request as the version."""
    return json_response({"gitVersion": request.headers.get("authorization", "none")})


@asynccontextmanager
async def serving(certificates: Certificates, *, asks_clients: bool = False) -> AsyncIterator[HttpServer]:
    tls = ServingTls(certificates.leaf)
    if asks_clients:
        tls.accept_clients(certificates.trusted.decode(), is_required=True)
    async with HttpServer([Route("GET", "/version", version)], tls=tls) as server:
        yield server


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return renewed(None, [NAME, "127.0.0.1"], now=time.time())


@pytest.fixture(scope="module")
def elsewhere() -> Certificates:
    return renewed(None, [NAME, "127.0.0.1"], now=time.time())


@pytest.fixture
async def server(certificates: Certificates) -> AsyncIterator[HttpServer]:
    async with serving(certificates) as server:
        yield server


def client_certificate(certificates: Certificates) -> tuple[bytes, bytes]:
    """Return a certificate of the client jane, signed by the authority, and its key."""
    issuer = x509.load_pem_x509_certificate(certificates.authority.certificate)
    signer = serialization.load_pem_private_key(certificates.authority.key, password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(signer, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return made.public_bytes(pem), key.private_bytes(pem, form, none)


def write(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> str:
    config = {
        "current-context": "main",
        "contexts": [{"name": "main", "context": {"cluster": "here", "user": "me"}}],
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": user or {}}],
    }
    (folder / "config").write_text(yaml.safe_dump(config))
    return str(folder / "config")


def put(file: Path, data: bytes) -> None:
    """Put a new file in the place of the one that is there, as the kubelet does in a mounted Secret."""
    other = file.with_suffix(".next")
    other.write_bytes(data)
    other.replace(file)


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def ask(kubeconfig: str) -> str:
    async with await KubeClient.connect(kubeconfig) as client:
        return await client.server_version()


async def test_the_authority_may_be_in_the_kubeconfig(
    server: HttpServer, certificates: Certificates, tmp_path: Path
) -> None:
    cluster = {"certificate-authority-data": text(certificates.trusted)}

    assert await ask(write(tmp_path, server.url, cluster, {"token": "t"})) == "Bearer t"


async def test_the_authority_may_be_a_file_beside_the_kubeconfig(
    server: HttpServer, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(certificates.trusted)

    assert await ask(write(tmp_path, server.url, {"certificate-authority": "ca.pem"})) == "none"


async def test_a_server_may_go_by_another_name(
    server: HttpServer, certificates: Certificates, tmp_path: Path
) -> None:
    url = f"https://localhost:{server.port}"
    cluster = {"certificate-authority-data": text(certificates.trusted)}

    with pytest.raises(errors.Unreachable, match=r"certificate is not trusted .*localhost"):
        await ask(write(tmp_path, url, cluster))
    assert await ask(write(tmp_path, url, {**cluster, "tls-server-name": NAME})) == "none"


async def test_an_unknown_authority_is_not_trusted_unless_configured(
    server: HttpServer, elsewhere: Certificates, tmp_path: Path
) -> None:
    cluster = {"certificate-authority-data": text(elsewhere.trusted)}

    with pytest.raises(errors.Unreachable, match=r"is not trusted .*; check the certificate-authority"):
        await ask(write(tmp_path, server.url, cluster))
    assert await ask(write(tmp_path, server.url, {"insecure-skip-tls-verify": True})) == "none"


async def test_a_client_certificate_may_be_in_the_kubeconfig_or_in_files(
    certificates: Certificates, tmp_path: Path
) -> None:
    certificate, key = client_certificate(certificates)
    (tmp_path / "jane.crt").write_bytes(certificate)
    (tmp_path / "jane.key").write_bytes(key)
    data = {"client-certificate-data": text(certificate), "client-key-data": text(key)}
    files = {"client-certificate": "jane.crt", "client-key": "jane.key"}
    cluster = {"certificate-authority-data": text(certificates.trusted)}

    async with serving(certificates, asks_clients=True) as server:
        assert await ask(write(tmp_path, server.url, cluster, data)) == "none"
        assert await ask(write(tmp_path, server.url, cluster, files)) == "none"
        with pytest.raises(errors.Unreachable):
            await ask(write(tmp_path, server.url, cluster))


async def test_a_client_certificate_may_come_of_an_exec_plugin(
    certificates: Certificates, tmp_path: Path
) -> None:
    """kubernetes.io, "client-go credential plugins": status.clientCertificateData with its key, both PEM."""
    certificate, key = (one.decode() for one in client_certificate(certificates))
    status = {"clientCertificateData": certificate, "clientKeyData": key}
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    (tmp_path / "answer").write_text(json.dumps(answer))
    plugin = {"apiVersion": answer["apiVersion"], "command": "cat", "args": [str(tmp_path / "answer")]}
    cluster = {"certificate-authority-data": text(certificates.trusted)}

    async with serving(certificates, asks_clients=True) as server:
        assert await ask(write(tmp_path, server.url, cluster, {"exec": plugin})) == "none"


async def test_a_renewed_authority_is_trusted_without_a_restart(
    certificates: Certificates, elsewhere: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_bytes(certificates.trusted)
    tls = ServingTls(certificates.leaf)

    async with HttpServer([Route("GET", "/version", version)], tls=tls) as server:
        kubeconfig = write(tmp_path, server.url, {"certificate-authority": "ca.pem"})
        async with await KubeClient.connect(kubeconfig) as client:
            await client.server_version()
            tls.load(elsewhere.leaf)
            put(tmp_path / "ca.pem", elsewhere.trusted)

            assert await client.server_version() == "none"

            # The former authority is not trusted any more; another lane has no connection yet.
            tls.load(certificates.leaf)
            with pytest.raises(errors.Unreachable, match="is not trusted"):
                await client.request("GET", "/version", lane=Connection.EVENTS)


async def test_a_renewed_client_certificate_is_shown_without_a_restart(
    certificates: Certificates, elsewhere: Certificates, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def issue(authority: Certificates) -> None:
        certificate, key = client_certificate(authority)
        put(tmp_path / "jane.crt", certificate)
        put(tmp_path / "jane.key", key)

    issue(elsewhere)
    cluster = {"certificate-authority-data": text(certificates.trusted)}
    files = {"client-certificate": "jane.crt", "client-key": "jane.key"}

    async with (
        serving(certificates, asks_clients=True) as server,
        await KubeClient.connect(write(tmp_path, server.url, cluster, files)) as client,
    ):
        with pytest.raises(errors.Unreachable):
            await client.server_version()

        put(tmp_path / "jane.crt", b"half")
        with pytest.raises(errors.Unreachable):
            await client.server_version()
        assert "tls_files_not_taken" in caplog.text

        issue(certificates)
        assert await client.server_version() == "none"


async def test_https_spoken_to_a_plain_server_is_reported(tmp_path: Path) -> None:
    async with HttpServer([]) as plain:
        with pytest.raises(errors.Unreachable, match=r"TLS failed .*; check that it speaks https"):
            await ask(write(tmp_path, plain.url.replace("http:", "https:"), {}))


async def test_a_pod_uses_its_service_account(
    server: HttpServer, certificates: Certificates, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.trusted)
    (tmp_path / "token").write_text("of-the-pod")
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.port)}
    endpoint = find_endpoint(environment=environment, service_account=tmp_path)

    async with KubeClient(endpoint) as client:
        assert await client.server_version() == "Bearer of-the-pod"


def test_the_address_of_an_ipv6_cluster_is_bracketed(certificates: Certificates, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(certificates.trusted)

    endpoint = find_endpoint(environment={"KUBERNETES_SERVICE_HOST": "fd00::1"}, service_account=tmp_path)

    assert endpoint.server == "https://[fd00::1]:443"


def test_connections_read_the_systems_authorities_although_aiohttp_did_not(
    certificates: Certificates, tmp_path: Path
) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_bytes(certificates.trusted)
    script = (
        "import api.kube.client, aiohttp.connector, os, ssl\n"
        "contexts = aiohttp.connector._SSL_CONTEXT_VERIFIED, ssl.create_default_context()\n"
        "print(*[context.cert_store_stats()['x509'] for context in contexts], os.environ.get('SSL_CERT_DIR'))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "SSL_CERT_DIR"}

    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**environment, "SSL_CERT_FILE": str(authority)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert run.stdout == "0 1 None\n"
