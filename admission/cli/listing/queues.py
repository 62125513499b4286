"""`berth get queues`: ClusterQueues with their quota in use, or what a tenant may read: its LocalQueues."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from admission.cli.common.errors import WrongUsageError
from admission.cli.listing.output import Shown, show
from admission.cli.listing.rights import namespace_of, no_kinds
from admission.cli.views.columns import Column, print_rows
from admission.cli.views.policy_view import quotas_in_force
from admission.cli.views.queue_view import QueueRow, QuotaRow, local_queue_rows, queue_rows
from admission.cli.views.tables import make_console, quota_text
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import ADMISSION_POLICIES, CLUSTER_QUEUES, LOCAL_QUEUES
from api.objects.policies import AdmissionPolicyObject
from api.objects.queues import ClusterQueueObject, LocalQueueObject
from api.parsing.quantities import to_text


async def get_queues(arguments: argparse.Namespace) -> int:
    """Print the queues. Raises WrongUsageError and KubeError."""
    if arguments.selector is not None:
        raise WrongUsageError("-l selects Workloads only; leave it out for queues")
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:

        async def read() -> Sequence[QueueRow]:
            try:
                return await _rows(client, namespace_of(arguments, client))
            except NotFound as error:
                raise no_kinds(client) from error

        shown = Shown(
            table=_print_table,
            name=lambda row: (
                f"localqueue/{row.namespace}/{row.name}" if row.namespace else f"clusterqueue/{row.name}"
            ),
            none="there is no ClusterQueue",
        )
        return await show(arguments, read, shown)


async def _rows(client: KubeClient, namespace: str | None) -> Sequence[QueueRow]:
    try:
        found = (await client.list(CLUSTER_QUEUES, type_=ClusterQueueObject)).items
    except Forbidden:
        if namespace is None:
            raise
        # A tenant's rights: the LocalQueues of its namespace show what it uses of the queues behind them.
        return local_queue_rows((await client.list(LOCAL_QUEUES, namespace, type_=LocalQueueObject)).items)
    queues: Sequence[ClusterQueueObject] = found
    if namespace is not None:
        # A ClusterQueue has no namespace; show those that LocalQueues of this namespace lead to.
        served = await client.list(LOCAL_QUEUES, namespace, type_=LocalQueueObject)
        names = {queue.spec.cluster_queue for queue in served.items}
        queues = [queue for queue in queues if queue.metadata.name in names]
    return queue_rows(queues, quotas_in_force(await _policies(client)))


async def _policies(client: KubeClient) -> Sequence[AdmissionPolicyObject]:
    """Return all policies, or none if the kind is not installed or not readable: queues work without it."""
    try:
        return (await client.list(ADMISSION_POLICIES, type_=AdmissionPolicyObject)).items
    except (NotFound, Forbidden):
        return ()


# --- the table ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A line of the table: one flavor-resource of a queue; only its first line names the queue."""

    row: QueueRow
    quota: QuotaRow | None
    is_first: bool


def _print_table(rows: Sequence[QueueRow], is_wide: bool) -> None:
    lines = [
        _Line(row=row, quota=quota, is_first=place == 0)
        # A queue without quota is probably a mistake; without this line it would not be listed.
        for row in rows
        for place, quota in enumerate(row.quotas or (None,))
    ]
    is_plain = not make_console().is_terminal
    print_rows(lines, _local_columns() if rows[0].namespace else _columns(is_plain=is_plain), is_wide=is_wide)


def _columns(*, is_plain: bool) -> list[Column[_Line]]:
    return [
        _of_queue("NAME", lambda row: row.name),
        _of_queue("COHORT", lambda row: row.cohort, leaves=3),
        _of_queue("STRATEGY", lambda row: row.strategy, leaves=1),
        _of_queue("ACTIVE", _active, leaves=6, is_sentence=True),
        *_counts(),
        _of_quota("FLAVOR", lambda quota: quota.flavor),
        _of_quota("RESOURCE", lambda quota: quota.resource),
        Column(heading="USED", cell=lambda line: _used(line, is_plain=is_plain)),
    ]


def _local_columns() -> list[Column[_Line]]:
    return [
        _of_queue("NAME", lambda row: row.name),
        _of_queue("CLUSTERQUEUE", lambda row: row.cluster_queue, leaves=3),
        _of_queue("ACTIVE", _active, leaves=6, is_sentence=True),
        *_counts(),
        _of_quota("FLAVOR", lambda quota: quota.flavor),
        _of_quota("RESOURCE", lambda quota: quota.resource),
        # A LocalQueue has no quota of its own to compare with.
        _of_quota("USED", lambda quota: to_text(quota.resource, quota.used)),
    ]


def _counts() -> Iterator[Column[_Line]]:
    yield _of_queue("PENDING", lambda row: str(row.pending), is_right=True)
    yield _of_queue("RESERVING", lambda row: str(row.reserving), leaves=2, is_right=True)
    yield _of_queue("ADMITTED", lambda row: str(row.admitted), leaves=4, is_right=True)


def _of_queue(heading: str, cell: Callable[[QueueRow], str], **fields: Any) -> Column[_Line]:
    return Column(heading=heading, cell=lambda line: cell(line.row) if line.is_first else "", **fields)


def _of_quota(heading: str, cell: Callable[[QuotaRow], str]) -> Column[_Line]:
    return Column(heading=heading, cell=lambda line: cell(line.quota) if line.quota is not None else "")


def _active(row: QueueRow) -> str:
    return {True: "yes", False: f"no: {row.message or row.reason}", None: "unknown"}[row.active]


def _used(line: _Line, *, is_plain: bool) -> str | Text:
    return "no quota" if line.quota is None else quota_text(line.quota, is_plain=is_plain)
