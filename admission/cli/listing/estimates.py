"""`berth get estimates`: how long similar Workloads ran that succeeded."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from admission.cli.listing.output import Shown, show, table_of
from admission.cli.listing.rights import list_readable, namespace_of, no_kinds
from admission.cli.views.columns import Column
from admission.cli.views.estimate_view import EstimateRow, estimate_rows
from admission.cli.views.tables import duration_text
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import WORKLOADS
from api.objects.workloads import WorkloadObject


async def get_estimates(arguments: argparse.Namespace) -> int:
    """Print the run times. Raises WrongUsageError and KubeError."""
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:
        namespace = namespace_of(arguments, client)

        async def read() -> Sequence[EstimateRow]:
            try:
                found = await list_readable(client, WORKLOADS, type_=WorkloadObject, namespace=namespace)
            except NotFound as error:
                raise no_kinds(client) from error
            rows = estimate_rows(found.items)
            return [row for row in rows if namespace in (None, row.namespace)]

        shown = Shown(
            table=table_of(_COLUMNS),
            name=lambda row: f"estimate/{row.namespace}/{row.stem}/{row.shape}",
            none="no Workload has succeeded so far, so there are no run times",
        )
        return await show(arguments, read, shown)


_COLUMNS: list[Column[EstimateRow]] = [
    Column(heading="NAMESPACE", cell=lambda row: row.namespace, leaves=2),
    Column(heading="NAME", cell=lambda row: row.stem),
    Column(heading="PODS", cell=lambda row: row.shape, leaves=1),
    Column(heading="RUNS", cell=lambda row: str(row.runs), is_right=True),
    Column(heading="MEDIAN", cell=lambda row: duration_text(row.median_seconds)),
    Column(heading="90%", cell=lambda row: duration_text(row.p90_seconds)),
    Column(heading="LONGEST", cell=lambda row: duration_text(row.longest_seconds), leaves=3),
    Column(
        heading="DECLARED",
        cell=lambda row: "" if row.declared_seconds is None else duration_text(row.declared_seconds),
    ),
]
