"""The page over HTTP: what it shows, safe whatever names there are, small, and at any sub-path."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import aiohttp
import pytest

from admission.answers.items import Kind
from admission.controller.page.changes import Changes
from admission.controller.page.routes import PageRoutes
from admission.controller.queries.callers import Caller
from api.http.server import HttpError, HttpServer, Request, Response, Route, Stream
from tests.admission.controller.fakes import FakeClock
from tests.page.scene import HOSTILE, NOW, Answering, trusted, workload

WORKLOAD = "workloads/team-a/job-next-1a2b3"
SCREENS = (
    "",
    WORKLOAD,
    "queues",
    "queues/team-a",
    "cohorts",
    "racks",
    "calendar",
    "what-if",
    "decisions",
    "health",
)
# What the page may weigh, compressed, when nothing of it is cached.
MOST_BYTES = 150_000


@dataclass
class Elements(HTMLParser):
    """The elements of a page."""

    found: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.found.append((tag, dict(attrs)))


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the elements of a page with their attributes."""
    parser = Elements()
    parser.feed(text)
    return parser.found


@asynccontextmanager
async def served(
    service: Answering | None = None, *, below: str = ""
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Serve the page, `below` a path as a proxy does that cuts it off. Yield a client and the address."""
    service = service or Answering()
    routes = PageRoutes(service, trusted, FakeClock(NOW), changes=Changes()).routes()
    async with (
        HttpServer([_below(below, one) for one in routes]) as server,
        aiohttp.ClientSession() as client,
    ):
        yield client, f"{server.url}{below}/"


def _below(prefix: str, route: Route) -> Route:
    async def handle(request: Request) -> Response | Stream:
        return await route.handler(replace(request, path=request.path.removeprefix(prefix)))

    return replace(route, path=prefix + route.path, handler=handle)


async def text_of(path: str, service: Answering | None = None) -> str:
    """Return a screen."""
    async with served(service) as (client, url), client.get(url + path) as answer:
        assert answer.status == 200
        return await answer.text()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        (
            "",
            ("6 Workloads", "has its quota", "team-a/next", "in 11 min", "promised", "cannot start as it is"),
        ),
        (
            WORKLOAD,
            ("insufficient unused quota", "position 1", "start as promised first", "16 nvidia.com/gpu"),
        ),
        ("workloads/team-a/job-later-1a2b3", ("in 30 min", "in four of five cases between")),
        ("queues", ("team-b", "36 of 32 nvidia.com/gpu")),
        ("queues/team-a", ("20 of 32 nvidia.com/gpu", "team-a/later", "runs", "15 min ago")),
        ("cohorts", ("Cohort research", "Nominal", "Lent", "Borrowed", "Over", "alone")),
        ("racks", ("h100-rack-2", "26 of 32 GPUs free", "13 pods of 2 GPUs", "3 × 8 or 6 × 4")),
        (
            "calendar",
            ("job-next-1a2b3", "in 11 min", "moved 1 time: Overrun", "79 of 100 Workloads (79%)", "9 later"),
        ),
        ("decisions", ("fits in flavor h100", "Evict", "7 s ago")),
        (
            "health",
            ("berth-0, leader, Berth 9.9", "Redis", "answers", "79 of 100", "team-b", "references missing"),
        ),
    ],
    ids=[
        "work",
        "workload",
        "interval",
        "queues",
        "queue",
        "cohorts",
        "racks",
        "calendar",
        "decisions",
        "health",
    ],
)
async def test_a_screen_shows_what_the_query_service_answers(path: str, wanted: tuple[str, ...]) -> None:
    text = await text_of(path)

    assert [one for one in wanted if one not in text] == []


@pytest.mark.parametrize("path", SCREENS)
async def test_no_page_has_scripts_or_styles_of_its_own(path: str) -> None:
    async with served() as (client, url), client.get(url + path) as answer:
        policy, found = answer.headers["Content-Security-Policy"], elements(await answer.text())

    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
    assert [tag for tag, given in found if tag == "style" or "style" in given] == []
    assert [given for tag, given in found if tag == "script" and not given.get("src")] == []
    assert [name for _, given in found for name in given if name.startswith("on")] == []


async def test_hostile_names_stay_text() -> None:
    text = await text_of("")

    assert HOSTILE not in text
    assert "&lt;script&gt;document.title" in text
    # A template of its own is not run either.
    assert "{{ 7 * 7 }}" in text
    assert [given for tag, given in elements(text) if tag == "img"] == []


async def test_the_page_weighs_little_when_nothing_is_cached() -> None:
    weights = {}
    async with aiohttp.ClientSession(auto_decompress=False) as client, served() as (_, url):
        headers = {"Accept-Encoding": "gzip"}
        async with client.get(url, headers=headers) as answer:
            weights["page"] = len(await answer.read())
        for link in linked(await text_of("")):
            async with client.get(url + link, headers=headers) as answer:
                assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
                assert "immutable" in answer.headers["Cache-Control"]
                weights[link] = len(await answer.read())

    assert len(weights) == 7
    assert sum(weights.values()) < MOST_BYTES


def linked(text: str) -> list[str]:
    """Return the files that a page loads."""
    found = elements(text)
    scripts = [given["src"] for tag, given in found if tag == "script"]
    sheets = [given["href"] for tag, given in found if tag == "link" and given["rel"] == "stylesheet"]
    return [one for one in (*sheets, *scripts) if one is not None]


@pytest.mark.parametrize("path", SCREENS)
async def test_a_page_below_a_sub_path_links_to_what_is_there(path: str) -> None:
    async with served(below="/tools/berth") as (client, url):
        async with client.get(url + path) as answer:
            at, text = answer.url, await answer.text()
        links = [given["href"] for tag, given in elements(text) if tag == "a" and given.get("href")]
        for link in {*links, *linked(text)}:
            if link is not None and not link.startswith("#"):
                async with client.get(at.join(type(at)(link))) as answer:
                    assert answer.url.path.startswith("/tools/berth/"), link
                    # Decisions may be about Workloads that are gone.
                    assert answer.status == 200 or "/job-" in answer.url.path, link


@pytest.mark.parametrize(
    ("path", "status", "wanted"),
    [
        ("queues/none", 404, "there is no clusterqueues none"),
        ("static/000000000000/page.css", 404, "there is nothing at /static/000000000000/page.css"),
    ],
)
async def test_what_is_not_there_is_named(path: str, status: int, wanted: str) -> None:
    async with served() as (client, url), client.get(url + path) as answer:
        assert (answer.status, wanted in await answer.text()) == (status, True)


async def test_a_refused_caller_reads_why_and_what_to_wait_for() -> None:
    async def refused(request: Request) -> Caller:
        raise HttpError(429, "u asks <b>too</b> often; retry in 3 s", headers={"Retry-After": "3"})

    routes = PageRoutes(Answering(), refused, FakeClock(NOW), changes=Changes()).routes()
    async with (
        HttpServer(routes) as server,
        aiohttp.ClientSession() as client,
        client.get(server.url + "/") as answer,
    ):
        text = await answer.text()

    assert (answer.status, answer.headers["Retry-After"]) == (429, "3")
    assert "u asks &lt;b&gt;too&lt;/b&gt; often; retry in 3 s" in text


async def test_filters_and_pages_are_those_of_the_query_service() -> None:
    service = Answering(continue_="abc", hidden=2)

    text = await text_of("?namespace=team-a&status=pending&continue=xyz", service)

    kind, query = service.asked[0]
    assert (kind, query) == (
        Kind.WORKLOADS,
        {"namespace": "team-a", "status": "pending", "sort": "position", "continue": "xyz", "limit": "100"},
    )
    assert 'href="?namespace=team-a&amp;status=pending&amp;continue=abc"' in text
    assert 'href="?namespace=team-a&amp;status=pending"' in text
    assert "2 more are in namespaces that you may not read" in text


async def test_names_with_signs_of_addresses_can_be_followed() -> None:
    odd = workload("x", name="a?b#c%d")
    service = Answering(items={Kind.WORKLOADS: (odd,)})
    async with served(service) as (client, url):
        async with client.get(url) as answer:
            (link,) = [
                given["href"]
                for tag, given in elements(await answer.text())
                if tag == "a" and "workloads/" in (given.get("href") or "")
            ]
        async with client.get(answer.url.join(type(answer.url)(link or "", encoded=True))) as answer:
            assert answer.status == 200


async def test_a_workload_has_its_verdict_what_holds_it_and_what_helps() -> None:
    text = await text_of(WORKLOAD)

    wanted = ("It is at position 1", "team-a/job-train-1a2b3", "withinClusterQueue", "8 GPUs less: starts")
    assert [one for one in (*wanted, "3 of other namespaces", "in 30 min") if one not in text] == []


async def test_the_name_of_a_job_leads_to_its_workload() -> None:
    assert "job-next-1a2b3" in await text_of("workloads/team-a/next")


async def test_a_refresh_of_a_workload_tries_nothing_again() -> None:
    service = Answering()
    async with served(service) as (client, url):
        async with client.get(url + WORKLOAD) as answer:
            first = await answer.text()
        async with client.get(url + WORKLOAD, headers={"HX-Request": "true"}) as answer:
            refreshed = await answer.text()

    assert service.explained == 1
    assert first[first.index('id="live"') :] == refreshed[refreshed.index('id="live"') :]


async def posted(text: str, service: Answering | None = None) -> tuple[int, str]:
    """Return what the form for manifests is answered."""
    async with served(service) as (client, url):
        form = {"manifests": text, "namespace": "team-a"}
        async with client.post(url + "what-if", data=form) as answer:
            return answer.status, await answer.text()


async def test_pasted_manifests_are_asked_about_and_kept_in_the_form() -> None:
    service = Answering()

    status, text = await posted(
        "kind: Job\nmetadata: {name: new}\n---\nkind: Node\nat: 2026-01-01\n", service
    )

    assert status == 200
    assert service.questions == [
        {
            "objects": [{"kind": "Job", "metadata": {"name": "new"}}, {"kind": "Node", "at": "2026-01-01"}],
            "namespace": "team-a",
        }
    ]
    wanted = (
        "metadata: {name: new}",
        "team-a/new",
        "in 5 min",
        "in four of five cases between",
        "job-old",
        "evicted",
        "a Secret was left out",
    )
    assert [one for one in (*wanted, "2 would start at another time") if one not in text] == []
    assert HOSTILE not in text


@pytest.mark.parametrize(
    ("manifests", "want"),
    [
        ("a: [", "the manifests are neither YAML nor JSON"),
        ("- 1", "the manifests hold a list; expected objects with a kind"),
        ("a: &x [1]\nb: *x", "YAML aliases (*name), which are not read here"),
        ("? [1]\n: 2", "the manifests"),
        ("a: .inf\n? {b: 1}\n: 2", "the manifests"),
        ("[" * 10_000 + "]" * 10_000, "the manifests are nested too deep: more than 100 levels"),
        ("- " * 25_000, "the manifests are nested too deep"),
        ("a: " + "1:" * 1_000 + "1.0", "the manifests cannot be read"),
        ("a: !!bool maybe", "the manifests cannot be read"),
        ("a: !!int ''", "the manifests cannot be read"),
        ("!!python/object/apply:os.system [ls]", "the manifests are neither YAML nor JSON"),
    ],
    ids=[
        "broken",
        "no object",
        "aliases",
        "a key that is a list",
        "a key that is a map",
        "deep",
        "deep lists",
        "a number that is too large",
        "a truth value that is none",
        "a number that is none",
        "code",
    ],
)
async def test_manifests_that_cannot_be_read_are_refused_beside_the_form(manifests: str, want: str) -> None:
    service = Answering()

    status, text = await posted(manifests, service)

    assert (status, want in text, service.questions) == (400, True, [])
    assert 'role="alert"' in text
    assert "<textarea" in text


async def test_a_form_that_is_too_large_is_refused() -> None:
    status, _ = await posted("a: " + "x" * 70_000)

    assert status == 413
