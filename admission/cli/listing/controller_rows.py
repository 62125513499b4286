"""Workloads as the controller shows them: positions and starts as it knows them now, with their intervals.

A controller knows more than the objects say: the interval of a start, the present reason of each Workload,
and the place of a tenant's Workload among those of others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import msgspec

from admission.answers.items import Page, WorkloadItem
from admission.cli.common.errors import WrongUsageError
from admission.cli.common.way_flags import check_way
from admission.cli.listing.output import show
from admission.cli.listing.workloads import shown_workloads
from admission.cli.page.asking import Queries, controller_of
from admission.cli.views.workload_view import WorkloadRow, in_row_order
from api.workload import to_seconds

_PAGE = 1000


async def get_from_controller(arguments: argparse.Namespace) -> int:
    """Print the Workloads. Raises WrongUsageError and UnreachableError."""
    check_way(arguments)
    if arguments.selector is not None:
        raise WrongUsageError("-l is read by the API server: give it without --controller")
    async with controller_of(arguments) as (asking, way):
        namespace = None if arguments.all_namespaces else arguments.namespace or way.own_namespace

        async def read() -> Sequence[WorkloadRow]:
            return await rows_of_controller(asking, namespace=namespace, now=time.time())

        return await show(arguments, read, shown_workloads(namespace))


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
