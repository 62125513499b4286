"""Workloads as the controller shows them: positions and starts as it knows them now, with their intervals.

A controller knows more than the objects say: the interval of a start, the present reason of each Workload,
and the place of a tenant's Workload among those of others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from admission.cli.common.errors import WrongUsageError
from admission.cli.common.way_flags import check_way
from admission.cli.listing.from_controller import rows_of_controller
from admission.cli.listing.output import show
from admission.cli.listing.workloads import shown_workloads
from admission.cli.page.asking import controller_of
from admission.cli.views.workload_view import WorkloadRow


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
