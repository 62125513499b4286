"""The TLS ports of a controller: a certificate that is renewed reaches all that listen."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from admission.controller.http import client_authority, serving_certificates
from admission.controller.http.listening import listen
from admission.controller.http.port_certificates import PortCertificates
from admission.controller.http.ports import SidePorts
from admission.controller.http.serving_certificates import SECRET
from admission.controller.runtime.large_reads import LargeReads
from admission.controller.settings import Options
from api.http.certificates import KeyPair, make_authority, make_leaf, renewal_at
from api.kube import resources
from api.kube.client import KubeClient
from tests.admission.controller.fakes import FakeClock
from tests.admission.controller.known import Known
from tests.admission.controller.proxying import make_client
from tests.embedded import EmbeddedCluster

NAMESPACE = "default"
PATIENCE_SECONDS = 30.0


@pytest.fixture
async def client(embedded_server: EmbeddedCluster) -> AsyncIterator[KubeClient]:
    """Give a client of the embedded server."""
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        yield client


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let certificates be looked at again at once, which otherwise takes up to six hours."""
    monkeypatch.setattr(serving_certificates, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(serving_certificates, "FILE_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(client_authority, "LOOK_SECONDS", 0.01)


@asynccontextmanager
async def listening(client: KubeClient, clock: FakeClock, **given: str) -> AsyncIterator[dict[str, str]]:
    """Run the two ports with their tasks; give their URLs by name."""
    options = Options(visibility_port=0, webhook_port=0, **given)  # type: ignore[arg-type]
    certificates = PortCertificates(client, clock, options, namespace=NAMESPACE)
    ports = SidePorts(
        client,
        Known().cluster_state,
        options,
        certificates=certificates,
        reads=LargeReads(clock),
        is_ready=lambda: True,
    )
    await ports.prepare()
    async with AsyncExitStack() as stack:
        urls = {port.name: await listen(stack, port) for port in ports.ports()}
        running = [*certificates.tasks(), *ports.tasks()]
        tasks = [asyncio.create_task(one, name=name) for name, one in running]
        try:
            yield urls
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def served(url: str) -> str:
    """Return the certificate that a new connection is shown, in PEM."""
    parts = urlsplit(url)
    assert parts.scheme == "https", url
    assert parts.hostname is not None
    assert parts.port is not None
    return await asyncio.to_thread(ssl.get_server_certificate, (parts.hostname, parts.port))


async def reach(urls: list[str], want: bytes) -> None:
    """Wait until all of these ports serve the certificate."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for url in urls:
            while await served(url) != want.decode():
                await asyncio.sleep(0.01)


def write_pair(folder: Path, pair: KeyPair) -> None:
    """Write certificate and key as cert-manager's Secret is mounted."""
    folder.joinpath("tls.key").write_bytes(pair.key)
    folder.joinpath("tls.crt").write_bytes(pair.certificate)


@pytest.mark.covers("000_42")
async def test_files_that_were_renewed_reach_every_port_that_listens(
    client: KubeClient, tmp_path: Path
) -> None:
    authority = make_authority(now=1000.0)
    first, second = (make_leaf(authority, ["localhost"], now=1000.0) for _ in range(2))
    write_pair(tmp_path, first)
    files = {"tls_certificate": str(tmp_path / "tls.crt"), "tls_key": str(tmp_path / "tls.key")}

    async with listening(client, FakeClock(), **files) as urls:
        assert set(urls) == {"visibility", "webhook"}
        await reach([*urls.values()], first.certificate)
        write_pair(tmp_path, second)
        await reach([*urls.values()], second.certificate)


async def test_a_certificate_of_our_own_that_is_due_is_renewed_on_every_port_that_listens(
    client: KubeClient,
) -> None:
    async def leaf() -> bytes:
        held = json.loads(await client.get(resources.SECRETS, SECRET, NAMESPACE))
        return base64.b64decode(held["data"]["tls.crt"])

    clock = FakeClock()
    async with listening(client, clock) as urls:
        ports = [urls["visibility"], urls["webhook"]]
        first = await leaf()
        await reach(ports, first)

        clock.at = renewal_at(first)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (second := await leaf()) == first:
                await asyncio.sleep(0.01)
        await reach(ports, second)


async def test_a_front_proxy_of_a_renewed_authority_may_ask_without_a_restart(
    client: KubeClient, tmp_path: Path
) -> None:
    former, present = (make_authority(now=time.time()) for _ in range(2))
    name = "extension-apiserver-authentication"

    def published(authority: KeyPair) -> bytes:
        data = {"requestheader-client-ca-file": authority.certificate.decode()}
        return json.dumps({"metadata": {"name": name}, "data": data}).encode()

    async def answers(url: str, authority: KeyPair) -> bool:
        held = json.loads(await client.get(resources.SECRETS, SECRET, NAMESPACE))
        tls = ssl.create_default_context(cadata=base64.b64decode(held["data"]["ca.crt"]).decode())
        own = make_client("front-proxy-client", authority)
        (tmp_path / "client.pem").write_bytes(own.certificate + own.key)
        tls.load_cert_chain(tmp_path / "client.pem")
        try:
            async with aiohttp.ClientSession() as session, session.get(f"{url}/apis", ssl=tls) as answer:
                return answer.status == 200
        except (aiohttp.ClientError, ssl.SSLError):
            return False

    await client.create(resources.CONFIG_MAPS, published(former), "kube-system")
    async with listening(client, FakeClock(time.time()), bind="0.0.0.0") as urls:
        url = urls["visibility"]
        assert (await answers(url, former), await answers(url, present)) == (True, False)

        await client.merge_patch(resources.CONFIG_MAPS, name, published(present), "kube-system")

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await answers(url, present):
                await asyncio.sleep(0.01)
        assert not await answers(url, former)
