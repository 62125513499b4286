"""`berth get workloads`: which Workloads wait, run and have ended, when they start and why they wait."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from admission.cli.common.cluster_engine import (
    Listing,
    engine_of,
    kinds_for,
    list_cluster,
    published_places,
    queue_places,
)
from admission.cli.common.errors import WrongUsageError
from admission.cli.common.settings_file import read_settings_of_cluster
from admission.cli.common.way_flags import check_way
from admission.cli.listing.from_controller import WhereRightsEnd
from admission.cli.listing.output import Shown, show, table_of
from admission.cli.listing.rights import namespace_of, no_kinds, unreadable
from admission.cli.views.columns import Column
from admission.cli.views.tables import between_text, duration_text, starts_text
from admission.cli.views.workload_view import STATUSES, WorkloadRow, workload_rows
from admission.engine.engine import EngineSettings
from api.kube.client import KubeClient
from api.kube.resources import WORKLOADS
from api.objects.common import NamedObject
from api.workload import WorkloadKey


async def get_workloads(arguments: argparse.Namespace) -> int:
    """Print the Workloads. Raises WrongUsageError and KubeError."""
    unknown = set((arguments.status or STATUSES[0]).split(",")) - set(STATUSES)
    if unknown:
        raise WrongUsageError(f"--status {arguments.status}: expected some of {', '.join(STATUSES)}")
    settings = read_settings_of_cluster(arguments.config)
    check_way(arguments)
    async with (
        await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client,
        AsyncExitStack() as stack,
    ):
        controller = WhereRightsEnd(arguments, stack)

        async def read() -> Sequence[WorkloadRow]:
            return await _rows(client, arguments, settings, controller)

        return await show(arguments, read, shown_workloads(namespace_of(arguments, client)))


def shown_workloads(namespace: str | None) -> Shown[WorkloadRow]:
    """Return the table of the Workloads of a namespace, or of all."""
    return Shown(table=table_of(_columns(namespace)), name=_name, none="there is no Workload")


async def _rows(
    client: KubeClient, arguments: argparse.Namespace, settings: EngineSettings, controller: WhereRightsEnd
) -> Sequence[WorkloadRow]:
    namespace = namespace_of(arguments, client)
    # Of all namespaces, where that may be read: a position includes Workloads of other namespaces.
    listing = await list_cluster(client, kinds_for(settings, of_order=True), namespace=namespace)
    for kind in ("Workload", "LocalQueue"):
        if kind in listing.forbidden:
            raise unreadable(listing.forbidden[kind], namespace)
        if kind not in listing.found:
            raise no_kinds(client)
    workloads, queues = listing.found["Workload"].items, listing.found["LocalQueue"].items
    now = time.time()
    places = await _places(client, listing, settings, now=now)
    rows: Sequence[WorkloadRow] = workload_rows(workloads, queues, now=now, places=places)
    if places is None or (listing.is_of_one_namespace and any(map(_lacks_its_position, rows))):
        found = await controller.rows(namespace)
        if found is None and places is None:
            for problem in listing.problems:
                print(
                    f"berth get: positions are only by priority and age, because {problem}", file=sys.stderr
                )
        rows = rows if found is None else found
    wanted = await _selected(client, namespace, arguments.selector)
    return [
        row
        for row in rows
        if namespace in (None, row.namespace) and (wanted is None or (row.namespace, row.name) in wanted)
    ]


async def _selected(
    client: KubeClient, namespace: str | None, selector: str | None
) -> set[tuple[str, str]] | None:
    """Return the Workloads with these labels, None without a selector. The API server reads the selector."""
    if selector is None:
        return None
    params = {"labelSelector": selector}
    found = await client.list(WORKLOADS, namespace, type_=NamedObject, params=params)
    return {(one.metadata.namespace, one.metadata.name) for one in found.items}


async def _places(
    client: KubeClient, listing: Listing, settings: EngineSettings, *, now: float
) -> dict[WorkloadKey, int] | None:
    """Return the places in all queues, or None without permission to read a kind that their order needs."""
    if listing.is_of_one_namespace:
        return await published_places(client, listing)
    if listing.forbidden:
        return None
    # Unreadable objects have no position; `berth explain` and the controller's log report the cause.
    engine, _ = engine_of(listing, settings, now=now)
    queues = listing.found.get("ClusterQueue")
    return queue_places(engine, (queue.metadata.name for queue in queues.items) if queues is not None else ())


def _lacks_its_position(row: WorkloadRow) -> bool:
    return row.status == "pending" and row.can_start and row.position is None


def _name(row: WorkloadRow) -> str:
    return f"workload/{row.namespace}/{row.name}"


def _columns(namespace: str | None) -> list[Column[WorkloadRow]]:
    # Columns leave a narrow terminal by how easily a user does without: the queue is mostly the same for all.
    return [
        Column(
            heading="NAMESPACE",
            cell=lambda row: row.namespace,
            leaves=7,
            is_wide=namespace is not None,
        ),
        Column(heading="NAME", cell=lambda row: row.name),
        Column(heading="STATUS", cell=lambda row: row.status),
        Column(heading="POSITION", cell=_position, is_right=True),
        Column(heading="STARTS", cell=lambda row: starts_text(row, now=time.time())),
        Column(heading="BETWEEN", cell=lambda row: between_text(row, now=time.time()), is_wide=True),
        Column(heading="AGE", cell=lambda row: duration_text(row.age_seconds), leaves=5),
        Column(heading="PRIORITY", cell=lambda row: str(row.priority), is_right=True, is_wide=True),
        Column(heading="JOB", cell=lambda row: row.job, is_wide=True),
        Column(heading="QUEUE", cell=lambda row: row.queue, leaves=3),
        Column(heading="CLUSTERQUEUE", cell=lambda row: row.cluster_queue, leaves=2),
        Column(heading="REASON", cell=lambda row: row.reason, leaves=6),
        Column(heading="MESSAGE", cell=lambda row: row.message, leaves=4, is_sentence=True),
    ]


def _position(row: WorkloadRow) -> str:
    return "" if row.position is None else str(row.position)
