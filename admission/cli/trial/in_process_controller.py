"""The controller inside a command: the same code as `berth controller`, its errors in the command's words."""

from __future__ import annotations

import asyncio

from admission.cli.common.errors import NotHoldingError, WrongUsageError
from admission.controller.app import run_controller
from admission.controller.leadership.kueue_guard import LiveKueue
from admission.controller.settings import Options
from api.http.server import ListenError


async def run_inner_controller(
    kubeconfig: str | None, *, listening: asyncio.Event, namespace: str | None = None
) -> None:
    """Run a controller with a store of its own until cancelled; set `listening` once it is up.

    `namespace` holds its lease. Raises NotHoldingError beside a live Kueue.
    """
    options = Options(
        kubeconfig=kubeconfig,
        namespace=namespace,
        # Its own, so that nothing of the user's Redis is touched, and nothing has to be installed.
        embedded_store=True,
        http_port=0,
        # Only one process of a machine can have the usual ports, and nobody asks at these.
        metrics_port=-1,
        extender_port=-1,
        visibility_port=-1,
        webhook_port=-1,
    )
    try:
        await run_controller(options, on_listening=lambda _: listening.set())
    # No fault of this program's, and none of the user's input: the cluster is in another's hands.
    except LiveKueue as error:
        raise NotHoldingError(str(error)) from error
    except ListenError as error:
        raise WrongUsageError(str(error)) from error
