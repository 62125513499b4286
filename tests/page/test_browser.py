"""The page in a headless Chromium: without accessibility errors, by keyboard, on a phone, live, and safe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from admission.answers.items import Kind
from admission.cli.page.forwarding import forwarded
from admission.controller.page.changes import Changes
from admission.controller.page.routes import PageRoutes
from api.http.server import HttpServer
from tests import parts
from tests.admission.controller.fakes import FakeClock
from tests.browser import Tab, browser, new_tab
from tests.page.pictures import IS_LIVE
from tests.page.scene import NOW, PLAIN, Answering, trusted, workload
from tests.page.test_routes import SCREENS

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]
AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text()
# Each violation with its elements.
VIOLATIONS = "axe.run().then(r => r.violations.map(v => v.id + ': ' + v.nodes.map(n => n.html).join(' ')))"


@pytest.fixture(scope="module")
def browser_port() -> Iterator[int]:
    """Run one browser for the tests of this module."""
    parts.need("chromium")
    with browser() as port:
        yield port


@pytest.fixture
async def tab(browser_port: int) -> AsyncIterator[Tab]:
    """Open a tab."""
    async with new_tab(browser_port) as opened:
        yield opened


class Served:
    """The page with a scene that can be changed."""

    def __init__(self) -> None:
        self.service = Answering()
        self.changes = Changes()
        self.url = ""
        self._port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve, on the same port each time."""
        routes = PageRoutes(self.service, trusted, FakeClock(NOW), changes=self.changes).routes()
        async with HttpServer(routes, port=self._port) as server:
            self.url, self._port = server.url, server.port
            yield

    def add(self, name: str) -> None:
        """Add a Workload."""
        self.service.items[Kind.WORKLOADS] = (*PLAIN[Kind.WORKLOADS], workload(name))  # type: ignore[index]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """Serve the page."""
    served = Served()
    async with served.running():
        yield served


@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 360)])
async def test_no_screen_has_an_accessibility_error_or_scrolls_sideways(
    tab: Tab, served: Served, scheme: str, width: int
) -> None:
    found = {}
    await tab.prefer(scheme)
    await tab.resize(width)
    for path in SCREENS:
        await tab.open(f"{served.url}/{path}")
        await tab.run(AXE)
        found[path] = await tab.run(VIOLATIONS)
        # Wide tables scroll within themselves.
        assert await tab.run("document.documentElement.scrollWidth") == width, path

    assert {path: errors for path, errors in found.items() if errors} == {}
    assert tab.problems == []


async def test_the_bars_of_a_queue_have_the_width_of_a_phone(tab: Tab, served: Served) -> None:
    await tab.resize(360)
    await tab.open(f"{served.url}/queues/team-a")

    # The smallest and the largest edge of all bars, which are drawn in one column.
    edges = "[...document.querySelectorAll('svg.bars')].map(bar => bar.getBoundingClientRect())"
    left, right = await tab.run(
        f"(all => [Math.min(...all.map(b => b.left)), Math.max(...all.map(b => b.right))])({edges})"
    )
    assert (left >= 0, right <= 360, right - left > 280) == (True, True, True)


async def test_hostile_names_run_nothing(tab: Tab, served: Served) -> None:
    await tab.open(served.url)
    assert await tab.run("document.title") == "Work – Berth"
    assert "<script>document.title='taken'</script>" in await tab.run("document.body.innerText")
    # What a page could still be made to contain, the browser does not run.
    await tab.run(
        "new Promise(done => { const image = document.createElement('div');"
        " image.innerHTML = '<img src=x onerror=\"document.title=1\">';"
        " image.firstChild.addEventListener('error', () => done(1)); document.body.append(image); })"
    )
    assert await tab.run("document.title") == "Work – Berth"
    assert any("Content Security Policy" in one for one in tab.problems)


async def test_the_keyboard_alone_reaches_a_workload(tab: Tab, served: Served) -> None:
    await tab.open(served.url)
    await tab.press("Tab", 9)
    assert await tab.run("document.activeElement.innerText") == "Skip to the content"
    await tab.press("Enter", 13, "\r")
    assert await tab.run("document.activeElement.id") == "main"
    for _ in range(20):
        await tab.press("Tab", 9)
        if await tab.run("document.activeElement.innerText") == "team-a/next":
            break
    await tab.press("Enter", 13, "\r")
    await tab.wait("location.pathname === '/workloads/team-a/job-next-1a2b3'")


async def test_an_open_page_shows_a_change_and_keeps_the_focus(tab: Tab, served: Served) -> None:
    await tab.open(served.url)
    await tab.wait(IS_LIVE)
    await tab.run("document.getElementById('to-team-a/job-next-1a2b3').focus()")

    served.add("fresh")
    served.changes.note()

    await tab.wait("document.body.innerText.includes('team-a/fresh')")
    assert await tab.run("document.activeElement.id") == "to-team-a/job-next-1a2b3"


async def test_a_page_that_loses_its_stream_says_so_and_catches_up(tab: Tab) -> None:
    served = Served()
    async with served.running():
        await tab.open(served.url)
        await tab.wait(IS_LIVE)
    await tab.wait("document.getElementById('stream').innerText.startsWith('Not live')")
    served.add("missed")
    served.changes.note()
    async with served.running():
        await tab.wait("document.body.innerText.includes('team-a/missed')")
        await tab.wait(IS_LIVE)


async def test_the_form_for_manifests_can_be_sent_through_the_command(tab: Tab, served: Served) -> None:
    async def no_token() -> None:
        return None

    async with forwarded(served.url, no_token, port=0, is_verified=True) as address:
        await tab.open(f"{address}what-if")
        await tab.run(
            "document.querySelector('textarea').value = 'kind: Job';"
            " document.querySelector('main form').requestSubmit()"
        )
        await tab.wait("document.body.innerText.includes('team-a/new')")

    assert served.service.questions == [{"objects": [{"kind": "Job"}], "namespace": "default"}]


async def test_charts_are_drawn_and_follow_the_theme(tab: Tab, served: Served) -> None:
    drawn = "document.querySelectorAll('.chart canvas').length"
    await tab.open(f"{served.url}/decisions")
    await tab.wait(f"{drawn} === 1")
    await tab.prefer("dark")
    await tab.wait(f"{drawn} === 1")
    assert tab.problems == []


async def test_a_chart_is_drawn_as_soon_as_its_screen_is_refreshed(tab: Tab, served: Served) -> None:
    await tab.open(f"{served.url}/decisions")
    await tab.wait(IS_LIVE)
    await tab.run(
        "document.addEventListener('htmx:afterSwap',"
        " () => { window.shown = document.querySelectorAll('.chart canvas').length; }) || 1"
    )

    served.changes.note()

    await tab.wait("window.shown !== undefined")
    assert await tab.run("window.shown") == 1
