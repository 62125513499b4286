"""A plain port of this machine and the sites that a browser there shows."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping

import aiohttp
import pytest

from api.http.certificates import ServingTls, renewed
from api.http.server import HttpServer, Request, Response, Route, text_response
from api.kube.embedded.server import EmbeddedServer


async def answer(_: Request) -> Response:
    return text_response("well\n")


ROUTES = [Route("GET", "/healthz", answer), Route("POST", "/what-if", answer)]
OTHER_HOST = {"Host": "evil.example:80"}


async def status(url: str, headers: Mapping[str, str], method: str = "GET") -> int:
    """Return the status of the answer. The certificate is not verified, as a browser would."""
    async with (
        aiohttp.ClientSession() as client,
        client.request(method, url, headers=headers, ssl=_unverified()) as got,
    ):
        return got.status


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize(
    ("headers", "want_status", "want"),
    [
        pytest.param(
            OTHER_HOST,
            421,
            "this port answers at 127.0.0.1 and localhost, and not at 'evil.example:80';"
            " have a proxy send one of them as Host",
            id="a name that leads here",
        ),
        pytest.param(
            {"Host": "localhost.evil.example"}, 421, "'localhost.evil.example'", id="a name like ours"
        ),
        pytest.param(
            {"Host": "[::1].evil.example"}, 421, "'[::1].evil.example'", id="an address within a name"
        ),
        pytest.param({"Host": "10.0.0.1:80"}, 421, "'10.0.0.1:80'", id="another address"),
        pytest.param({"Host": ""}, 421, "not at ''", id="no name"),
        pytest.param(
            {"Origin": "https://evil.example"},
            403,
            "pages of https://evil.example may not use this port",
            id="a form of another site",
        ),
        pytest.param(
            {"Origin": "null"}, 403, "pages of null may not use this port", id="a page without a site"
        ),
        pytest.param(
            {"Origin": "http://127.0.0.1:1"}, 403, "http://127.0.0.1:1", id="a form of another port here"
        ),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, "other sites (cross-site)", id="a link"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, "other sites (same-site)", id="a link of a port"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/healthz"), ("POST", "/what-if"), ("GET", "/none")])
async def test_other_sites_in_a_browser_get_nothing_of_a_plain_port_on_loopback(
    method: str, path: str, headers: dict[str, str], want_status: int, want: str
) -> None:
    refused: list[str] = []
    async with (
        HttpServer(ROUTES, on_refused=refused.append) as server,
        aiohttp.ClientSession() as client,
        client.request(method, f"{server.url}{path}", headers=headers) as got,
    ):
        assert got.status == want_status
        assert want in (await got.json())["error"]

    assert refused == ["other-host" if want_status == 421 else "forbidden"]


@pytest.mark.parametrize("host", ["localhost", "localhost.", "LOCALHOST", "127.0.0.1", "127.0.0.2", "[::1]"])
async def test_a_plain_port_on_loopback_answers_at_every_name_of_this_machine(host: str) -> None:
    async with HttpServer(ROUTES) as server:
        own = f"{host}:{server.port}"
        page = {"Host": own, "Origin": f"http://{own}", "Sec-Fetch-Site": "same-origin"}

        assert await status(f"{server.url}/what-if", page, "POST") == 200
        assert await status(f"{server.url}/healthz", {"Host": own, "Sec-Fetch-Site": "none"}) == 200


async def test_a_port_that_others_can_reach_or_that_is_behind_a_proxy_answers_at_any_name() -> None:
    async with HttpServer(ROUTES, host="0.0.0.0") as server:
        assert await status(f"{server.url}/healthz", OTHER_HOST) == 200
    async with HttpServer(ROUTES, is_for_all=True) as server:
        assert await status(f"{server.url}/healthz", OTHER_HOST) == 200
    tls = ServingTls(renewed(None, ["127.0.0.1"], now=time.time()).leaf)
    async with HttpServer(ROUTES, tls=tls) as server:
        assert await status(f"{server.url}/healthz", OTHER_HOST) == 200


async def test_the_embedded_api_server_answers_no_other_site() -> None:
    async with EmbeddedServer() as server:
        path = f"{server.url}/api/v1/namespaces"

        assert await status(path, {}) == 200
        assert await status(path, OTHER_HOST) == 421
        assert await status(path, {"Origin": "https://evil.example"}) == 403


async def test_a_health_check_in_http_1_0_sends_no_host_and_is_answered() -> None:
    async with HttpServer(ROUTES) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")

        assert (await reader.readline()).split()[1] == b"200"
        writer.close()
