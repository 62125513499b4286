"""Pictures of the page, taken of `berth demo --page` in Chromium; as a program it writes docs/images."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.browser import Tab, browser, new_tab

FOLDER = Path(__file__).parents[2] / "docs/images"
EXAMPLE = FOLDER.parents[1] / "examples/job.yaml"
_ROWS = "[...document.querySelectorAll('tr')]"
# The rows of Workloads of the team vision that wait for a promised start: the demo's largest gangs.
PROMISED = f"{_ROWS}.filter(row => row.innerText.includes('promised') && row.innerText.includes('vision/'))"

IS_LIVE = "document.getElementById('stream').innerText === 'Live'"
# What has to be on a screen, which a busy machine may take some time for.
_SHOWS = {
    # A bar of each kind: what runs, and what is promised a start.
    "queue": f"{_ROWS}.some(row => row.innerText.includes('promised'))",
    "decisions": "document.querySelector('.chart canvas') !== null",
    "health": "document.body.innerText.includes('Berth works')",
}


@asynccontextmanager
async def demo() -> AsyncIterator[str]:
    """Run the demo, and yield the address of its page."""
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "BROWSER")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "admission.cli", "demo", "--page"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=environment,
    )
    assert process.stdout is not None
    try:
        async for line in process.stdout:
            if line.startswith(b"PAGE="):
                break
        else:
            raise RuntimeError("the demo ended before its page was there")
        # What the demo prints meanwhile must not fill the pipe.
        async with asyncio.TaskGroup() as group:
            group.create_task(process.stdout.read())
            yield line.decode().strip().removeprefix("PAGE=")
            process.terminate()
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def taken(tab: Tab, url: str) -> dict[str, bytes]:
    """Return the pictures by name, taken as soon as several starts are promised."""
    await tab.resize(1000, 620)
    await tab.prefer("light")
    await tab.open(url)
    # The page refreshes itself.
    await tab.wait(f"{PROMISED}.length")
    workload, queue = await tab.run(f"[...{PROMISED}.pop().querySelectorAll('a')].map(link => link.href)")
    pictures = {}
    for name, address in (
        ("workload", workload),
        # The team whose queue has the most running Workloads at that time.
        ("queue", f"{url}queues/web"),
        ("work", url),
        ("racks", f"{url}racks"),
        ("calendar", f"{url}calendar"),
        ("decisions", f"{url}decisions"),
        ("health", f"{url}health"),
    ):
        await tab.open(address)
        while await tab.run("document.title.startsWith('Service Unavailable')"):
            # Redis is late on a busy machine, and the page of an error does not refresh itself.
            await tab.open(address)
        await tab.wait(IS_LIVE)
        if name in _SHOWS:
            await tab.wait(_SHOWS[name])
        pictures[name] = await tab.picture()
    await tab.open(f"{url}what-if")
    fields = json.dumps([EXAMPLE.read_text(), "vision"])
    await tab.run(f"[manifests.value, of.value] = {fields}; document.querySelector('form').requestSubmit()")
    await tab.wait("document.body.innerText.includes('What becomes of others')")
    pictures["what-if"] = await tab.picture()
    await tab.prefer("dark")
    await tab.open(f"{url}cohorts")
    pictures["quota"] = await tab.picture()
    await tab.resize(360, 640)
    await tab.open(queue)
    pictures["phone"] = await tab.picture()
    return pictures


async def draw() -> dict[str, bytes]:
    """Return all pictures of a new demo."""
    with browser() as port:
        async with demo() as url, new_tab(port) as tab:
            return await taken(tab, url)


def main() -> None:
    """Write all pictures."""
    for name, picture in asyncio.run(draw()).items():
        (FOLDER / f"page-{name}.png").write_bytes(picture)


if __name__ == "__main__":
    main()
