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
from api.http.certificates import KeyPair, make_authority, make_leaf
from tests.admission.controller.extending import pod_object
from tests.admission.controller.proxying import make_client
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


@pytest.mark.covers("004_23")
async def test_a_changed_profile_takes_effect_without_a_restart(
    embedded_server: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission.controller.runtime.config_file.LOOK_SECONDS", 0.01)
    path, head = tmp_path / "config.yaml", "apiVersion: berth.dev/v1alpha1\nkind: ControllerConfig\n"
    path.write_text(f"{head}extender: {{profiles: [{{schedulerName: mine, filters: []}}]}}\n")
    pod = pod_object(gpus=1)
    pod["spec"]["schedulerName"] = "mine"
    asked = {"Pod": pod, "NodeNames": ["unknown"]}

    async def failed(session: aiohttp.ClientSession, url: str) -> object:
        async with session.post(f"{url}/filter", json=asked) as answer:
            return (await answer.json()).get("failedNodes")

    given = {"config_file": str(path)}
    async with running(embedded_server.kubeconfig, **given) as url, aiohttp.ClientSession() as session:
        await wait_ready(url)
        assert await failed(session, url) is None

        path.write_text(f"{head}extender: {{profiles: [{{schedulerName: mine, filters: [GPUAware]}}]}}\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await failed(session, url) != {"unknown": "node not found"}:
                await asyncio.sleep(0.01)


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


@pytest.mark.parametrize(
    ("name", "path", "want"),
    [
        pytest.param("system:kube-scheduler", "/filter", 200, id="kube-scheduler"),
        pytest.param("someone", "/filter", 403, id="another client of the authority"),
        pytest.param(None, "/filter", 401, id="a client without a certificate"),
        pytest.param(None, "/v1/trainingjobs", 401, id="where jobs run, without a certificate"),
        pytest.param(None, "/readyz", 200, id="a probe"),
    ],
)
async def test_with_an_authority_of_clients_it_answers_kube_scheduler_and_probes(
    embedded_server: EmbeddedCluster, tmp_path: Path, name: str | None, path: str, want: int
) -> None:
    authority = make_authority(now=time.time())
    server = make_leaf(authority, ["127.0.0.1"], now=time.time())
    for file, data in (("ca", authority.certificate), ("crt", server.certificate), ("key", server.key)):
        (tmp_path / file).write_bytes(data)
    tls = ssl.create_default_context(cadata=authority.certificate.decode())
    await asyncio.to_thread(
        show, tls, tmp_path / "client.pem", make_client(name, authority) if name else None
    )

    async with running(
        embedded_server.kubeconfig,
        tls_certificate=str(tmp_path / "crt"),
        tls_key=str(tmp_path / "key"),
        client_ca=str(tmp_path / "ca"),
        client_names=("system:kube-scheduler",),
    ) as url:
        await wait_ready(url, tls)
        method = "POST" if path == "/filter" else "GET"
        body = {"Pod": pod_object(), "NodeNames": ["a"]} if method == "POST" else None
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url + path, json=body, ssl=tls) as answer,
        ):
            assert answer.status == want


def show(tls: ssl.SSLContext, file: Path, client: KeyPair | None) -> None:
    """Let clients of this context show the certificate, if there is one."""
    if client is not None:
        file.write_bytes(client.certificate + client.key)
        tls.load_cert_chain(file)


async def test_a_client_of_another_authority_gets_no_connection(
    embedded_server: EmbeddedCluster, tmp_path: Path
) -> None:
    authority, other = make_authority(now=time.time()), make_authority(now=time.time())
    server = make_leaf(authority, ["127.0.0.1"], now=time.time())
    for file, data in (("ca", authority.certificate), ("crt", server.certificate), ("key", server.key)):
        (tmp_path / file).write_bytes(data)
    tls = ssl.create_default_context(cadata=authority.certificate.decode())
    await asyncio.to_thread(show, tls, tmp_path / "client.pem", make_client("system:kube-scheduler", other))

    async with (
        running(
            embedded_server.kubeconfig,
            tls_certificate=str(tmp_path / "crt"),
            tls_key=str(tmp_path / "key"),
            client_ca=str(tmp_path / "ca"),
        ) as url,
        aiohttp.ClientSession() as session,
    ):
        with pytest.raises((aiohttp.ClientError, ssl.SSLError)):
            async with session.get(f"{url}/healthz", ssl=tls) as answer:
                await answer.read()


async def test_a_renewed_authority_of_clients_takes_effect_without_a_restart(
    embedded_server: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("admission.controller.http.client_authority.LOOK_SECONDS", 0.01)
    former, present = make_authority(now=time.time()), make_authority(now=time.time())
    server = make_leaf(former, ["127.0.0.1"], now=time.time())
    for file, data in (("ca", former.certificate), ("crt", server.certificate), ("key", server.key)):
        (tmp_path / file).write_bytes(data)

    async def answers(url: str, authority: KeyPair) -> bool:
        tls = ssl.create_default_context(cadata=former.certificate.decode())
        client = make_client("system:kube-scheduler", authority)
        await asyncio.to_thread(show, tls, tmp_path / "client.pem", client)
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{url}/v1/trainingjobs", ssl=tls) as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, ssl.SSLError):
            return False

    files = {name: str(tmp_path / file) for name, file in (("tls_certificate", "crt"), ("tls_key", "key"))}
    async with running(embedded_server.kubeconfig, client_ca=str(tmp_path / "ca"), **files) as url:
        assert (await answers(url, former), await answers(url, present)) == (True, False)

        (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----")
        (tmp_path / "ca").write_bytes(present.certificate)

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await answers(url, present):
                await asyncio.sleep(0.01)
        assert not await answers(url, former)
