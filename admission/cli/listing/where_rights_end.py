"""Asks the controller for what the reader's own rights do not show, once that is known to be needed.

Its client is imported then: most readers need no HTTP client beside that of the API server.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from admission.cli.common.errors import CommandError
from admission.cli.views.workload_view import WorkloadRow

if TYPE_CHECKING:
    from admission.cli.page.asking import Queries


class WhereRightsEnd:
    """The controller's rows of Workloads, for a reader who may read only a part of the cluster."""

    def __init__(self, arguments: argparse.Namespace, stack: AsyncExitStack) -> None:
        self._arguments = arguments
        self._stack = stack
        self._asking: Queries | None = None
        self._has_failed = False

    async def rows(self, namespace: str | None) -> Sequence[WorkloadRow] | None:
        """Return the rows, None if the controller cannot be asked; the first time, a line says why."""
        from admission.cli.listing.controller_rows import rows_of_controller
        from admission.cli.page.asking import controller_of

        if self._has_failed:
            return None
        try:
            if self._asking is None:
                asking, _ = await self._stack.enter_async_context(controller_of(self._arguments))
                self._asking = asking
            return await rows_of_controller(self._asking, namespace=namespace, now=time.time())
        except CommandError as error:
            # Asked for by its address, it is what the user wants to hear about.
            if self._arguments.url is not None:
                raise
            self._has_failed = True
            said = f"the controller, which knows all positions, cannot be asked: {error}"
            print(f"berth get: {said}", file=sys.stderr)
            return None
