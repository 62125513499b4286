"""The controller's rows of Workloads, also for a reader whose own rights show only a part of the cluster.

The client of the controller is imported once it is needed: most readers ask the API server alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import msgspec

from admission.answers.items import Page, WorkloadItem
from admission.cli.common.errors import CommandError
from admission.cli.views.workload_view import WorkloadRow, in_row_order
from api.parsing.times import to_seconds

if TYPE_CHECKING:
    from admission.cli.page.asking import Queries

_PAGE = 1000


class WhereRightsEnd:
    """The controller's rows of Workloads, for a reader who may read only a part of the cluster."""

    def __init__(self, arguments: argparse.Namespace, stack: AsyncExitStack) -> None:
        self._arguments = arguments
        self._stack = stack
        self._asking: Queries | None = None
        self._has_failed = False

    async def rows(self, namespace: str | None) -> Sequence[WorkloadRow] | None:
        """Return the rows, None if the controller cannot be asked; the first time, a line says why."""
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


async def rows_of_controller(
    asking: Queries, *, namespace: str | None, now: float
) -> tuple[WorkloadRow, ...]:
    """Return a row for each Workload that the user may see, in the order of `workload_rows`."""
    query = {"limit": str(_PAGE), **({"namespace": namespace} if namespace is not None else {})}
    rows: list[WorkloadRow] = []
    while True:
        page = msgspec.convert(await asking.list("workloads", query), Page[WorkloadItem])
        rows += [_row(item, now) for item in page.items]
        if not page.continue_:
            return in_row_order(rows)
        query["continue"] = page.continue_


def _row(item: WorkloadItem, now: float) -> WorkloadRow:
    message = item.message
    if item.status == "admitted" and not message:
        message = f"runs on {', '.join(item.flavors)}" if item.flavors else "runs"
    return WorkloadRow(
        namespace=item.namespace,
        name=item.name,
        job=item.owner_name or "",
        queue=item.local_queue_name,
        cluster_queue=item.cluster_queue,
        status=item.status,
        position=item.position,
        priority=item.priority,
        reason=item.reason,
        message=message,
        age_seconds=round(max(0.0, now - to_seconds(item.created_at)), 1),
        expected_start=item.expected_start or "",
        expected_after=item.expected_after or "",
        is_promised=item.is_promised,
        can_start=item.can_start,
        earliest_start=item.earliest_start or "",
        latest_start=item.latest_start or "",
    )
