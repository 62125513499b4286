"""Runs the controller inside a command: the code of `berth controller`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from admission.controller.app import run_controller
from admission.controller.settings import Options


async def run_inner_controller(
    kubeconfig: str | None,
    *,
    listening: asyncio.Event,
    namespace: str | None = None,
    on_page: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a controller with an embedded store until cancelled, and set `listening` once it listens.

    Its lease is in `namespace`. `on_page` is called with the address of its page. Raises LiveKueue beside a
    live Kueue.
    """
    options = Options(
        kubeconfig=kubeconfig,
        namespace=namespace,
        # Without a URL the store is embedded: the user's Redis is not touched, and nothing must be installed.
        redis_url=None,
        http_port=0,
        # Only one process of a machine can use the default ports, and this command needs none of them.
        metrics_port=-1,
        extender_port=-1,
        visibility_port=-1,
        webhook_port=-1,
    )

    def begin(urls: Mapping[str, str]) -> None:
        on_page(f"{urls['http']}/")
        listening.set()

    await run_controller(options, on_listening=begin)
