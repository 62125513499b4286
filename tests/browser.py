"""A headless Chromium, driven by the DevTools protocol over a WebSocket: what tests of the page need.

Only aiohttp is used, so no driver has to match the browser. Source:
https://chromedevtools.github.io/devtools-protocol
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp

_NAVIGATED = "Inspected target navigated or closed"
_NAMES = ("chromium", "chromium-browser", "google-chrome")
# How long a command may take, and how long a page is waited for.
_SECONDS, _WAIT_SECONDS = 60.0, 50.0


class BrowserMissing(Exception):
    """There is no Chromium on PATH."""


class BrowserError(Exception):
    """The browser refused a command, or what it was to show did not come; the message says which."""


def find_browser() -> str:
    """Return the path of Chromium. Raises BrowserMissing."""
    for name in _NAMES:
        if path := shutil.which(name):
            return path
    raise BrowserMissing("no chromium on PATH")


class Tab:
    """One tab of a browser. What it logs and what breaks in it is kept in `problems`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []

    async def read(self) -> None:
        """Take what the browser says, until it is closed."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            elif said["method"] == "Runtime.exceptionThrown":
                self.problems.append(json.dumps(said["params"]["exceptionDetails"])[:500])
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                entry = said["params"]["entry"]
                self.problems.append(f"{entry['text']} {entry.get('url', '')}")

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return the result of a command. Raises BrowserError."""
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(_SECONDS):
            said = await answer
        if "error" in said:
            raise BrowserError(f"{method}: {said['error']['message']}")
        result: dict[str, Any] = said["result"]
        return result

    async def run(self, script: str) -> Any:
        """Return the value of a script, awaited if it is a promise. Raises BrowserError."""
        said = await self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True, userGesture=True
        )
        if "exceptionDetails" in said:
            raise BrowserError(json.dumps(said["exceptionDetails"])[:800])
        return said["result"].get("value")

    async def wait(self, condition: str) -> None:
        """Wait until a script's value is true. Raises BrowserError."""
        script = (
            f"new Promise((done, fail) => {{ const until = Date.now() + {_WAIT_SECONDS * 1000};"
            f" const look = () => {{ if (document.body && ({condition})) done(true);"
            " else if (Date.now() > until)"
            " fail(new Error('waited in vain: ' + document.body?.innerText.slice(0, 500)));"
            " else setTimeout(look, 20); }; look(); })"
        )
        while True:
            try:
                await self.run(script)
            except BrowserError as error:
                # A new page has come: it is what is looked at from now on.
                if _NAVIGATED in str(error):
                    continue
                raise
            return

    async def open(self, url: str) -> None:
        """Go to an address, and wait until it is loaded."""
        await self.send("Page.navigate", url=url)
        await self.wait(
            f"location.href !== 'about:blank' && document.readyState === 'complete' && {_at(url)}"
        )

    async def resize(self, width: int, height: int = 800) -> None:
        """Set the size of the window, in CSS pixels."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )

    async def prefer(self, scheme: str) -> None:
        """Let the user prefer the scheme dark or light."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            more = {"text": text} if text and kind == "keyDown" else {}
            await self.send(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more
            )

    async def picture(self) -> bytes:
        """Return what the window shows as PNG."""
        said = await self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(said["data"])


def _at(url: str) -> str:
    return f"location.href.split('#')[0] === new URL({json.dumps(url)}).href.split('#')[0]"


@contextmanager
def browser() -> Iterator[int]:
    """Run a browser with an empty profile, and yield the port of its protocol. Raises BrowserMissing."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [
                find_browser(),
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--force-color-profile=srgb",
                "--no-first-run",
                "--disable-extensions",
                "--disable-background-networking",
                "--remote-debugging-port=0",
                f"--user-data-dir={profile}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "HOME": profile},
        )
        try:
            yield _port(process)
        finally:
            process.terminate()
            process.communicate()


def _port(process: subprocess.Popen[bytes]) -> int:
    """Return the port of the protocol, which the browser says on stderr. Raises BrowserError."""
    assert process.stderr is not None, "it was asked for"
    said = b""
    for line in process.stderr:
        said += line
        if line.startswith(b"DevTools listening on"):
            return int(line.split(b":")[-1].split(b"/")[0])
    raise BrowserError(f"chromium does not start: {said.decode(errors='replace')[-500:]}")


@asynccontextmanager
async def new_tab(port: int) -> AsyncIterator[Tab]:
    """Open a tab in the browser of this port, and close it at the end."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        async with session.put("/json/new?about:blank") as answer:
            target = await answer.json()
        async with session.ws_connect(target["webSocketDebuggerUrl"], max_msg_size=1 << 26) as socket:
            tab = Tab(socket)
            reading = asyncio.create_task(tab.read())
            try:
                for domain in ("Page", "Runtime", "Log"):
                    await tab.send(f"{domain}.enable")
                yield tab
            finally:
                reading.cancel()
                async with session.get(f"/json/close/{target['id']}") as answer:
                    await answer.read()
