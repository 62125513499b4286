"""The extender as a process of its own."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from admission.cli.__main__ import main
from admission.controller.http.extender_server import ExtenderOptions, run_extender
from api.http.certificates import make_authority, make_leaf
from tests.admission.controller.extending import pod_object
from tests.embedded import EmbeddedCluster

PATIENCE_SECONDS = 30.0


@asynccontextmanager
async def running(kubeconfig: str, **given: Any) -> AsyncIterator[str]:
    """Run one until the block ends; yield its URL."""
    found, stop = asyncio.get_running_loop().create_future(), asyncio.Event()
    options = ExtenderOptions(kubeconfig=kubeconfig, port=0, **given)
    task = asyncio.create_task(
        run_extender(options, on_listening=lambda urls: found.set_result(urls["extender"]), stop=stop)
    )
    try:
        await asyncio.wait({task, found}, timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        yield found.result()
    finally:
        stop.set()
        await task


async def wait_ready(url: str, tls: ssl.SSLContext | bool = True) -> None:
    """Wait until /readyz says so."""
    async with asyncio.timeout(PATIENCE_SECONDS), aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/readyz", ssl=tls) as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.02)


async def test_it_answers_once_it_is_ready(embedded_server: EmbeddedCluster) -> None:
    async with running(embedded_server.kubeconfig) as url, aiohttp.ClientSession() as session:
        await wait_ready(url)
        async with session.post(f"{url}/filter", json={"Pod": pod_object(), "NodeNames": ["a"]}) as answer:
            assert await answer.json() == {"nodeNames": ["a"]}


@pytest.mark.covers("000_42")
async def test_it_serves_tls_with_a_certificate_that_others_issue_and_renew(
    embedded_server: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission.controller.http.serving_certificates.FILE_LOOK_SECONDS", 0.01)
    authority = make_authority(now=time.time())
    first, second = (make_leaf(authority, ["127.0.0.1"], now=time.time()) for _ in range(2))
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(first.certificate)
    key.write_bytes(first.key)
    tls = ssl.create_default_context(cadata=authority.certificate.decode())

    files = {"tls_certificate": str(certificate), "tls_key": str(key)}
    async with running(embedded_server.kubeconfig, **files) as url:
        assert url.startswith("https://")
        await wait_ready(url, tls)

        key.write_bytes(second.key)
        certificate.write_bytes(second.certificate)
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await asyncio.to_thread(ssl.get_server_certificate, address) != second.certificate.decode():
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", ["extender", "controller"])
@pytest.mark.parametrize(
    ("flags", "want"),
    [
        (["--tls-key", "k"], "--tls-certificate and --tls-key go together; give both, or neither"),
        (["--tls-certificate", "c"], "--tls-certificate and --tls-key go together; give both, or neither"),
        (["--tls-certificate", "/no/c", "--tls-key", "/no/k"], "cannot serve /no/c with /no/k: "),
    ],
)
def test_a_certificate_that_cannot_be_served_is_wrong_usage(
    capsys: pytest.CaptureFixture[str], command: str, flags: list[str], want: str
) -> None:
    assert main([command, *flags]) == 2
    assert f"berth {command}: {want}" in capsys.readouterr().err
