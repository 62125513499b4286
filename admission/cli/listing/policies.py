"""`berth get policies` and `berth get reservations`: what AdmissionPolicies say, and what is in force."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from admission.cli.listing.output import Shown, show, table_of
from admission.cli.listing.rights import namespace_of, no_kinds
from admission.cli.views.columns import Column
from admission.cli.views.policy_view import PolicyRow, policy_rows
from admission.cli.views.reservation_view import ReservationRow, reservation_rows
from admission.cli.views.tables import names_text
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import ADMISSION_POLICIES
from api.objects.policies import AdmissionPolicyObject

# How many Workloads of a reservation the table names; JSON has all of the status.
_SHOWN_USERS = 3
_ACCEPTED = {True: "yes", False: "no", None: "unknown"}


async def get_policies(arguments: argparse.Namespace) -> int:
    """Print the policies. Raises WrongUsageError and KubeError."""
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:

        async def read() -> Sequence[PolicyRow]:
            return policy_rows(await read_policies(client))

        shown = Shown(
            table=table_of(_POLICY_COLUMNS),
            name=lambda row: f"admissionpolicy/{row.name}",
            none="there is no AdmissionPolicy",
        )
        return await show(arguments, read, shown)


async def get_reservations(arguments: argparse.Namespace) -> int:
    """Print the advance reservations. Raises WrongUsageError and KubeError."""
    async with await KubeClient.connect(arguments.kubeconfig, context=arguments.context) as client:
        namespace = namespace_of(arguments, client)

        async def read() -> Sequence[ReservationRow]:
            rows = reservation_rows(await read_policies(client), now=time.time())
            return [row for row in rows if namespace in (None, row.namespace)]

        shown = Shown(
            table=table_of(_RESERVATION_COLUMNS),
            name=lambda row: f"reservation/{row.policy}/{row.name}",
            none="there is no reservation",
        )
        return await show(arguments, read, shown)


async def read_policies(client: KubeClient) -> Sequence[AdmissionPolicyObject]:
    """Return all policies. Raises WrongUsageError if the kind is not installed, because the user named it."""
    try:
        return (await client.list(ADMISSION_POLICIES, type_=AdmissionPolicyObject)).items
    except NotFound as error:
        raise no_kinds(client, "berth.dev/v1alpha1") from error
    except Forbidden as error:
        raise Forbidden(
            f"{error}; policies belong to all tenants: ask an administrator for the ClusterRole"
            " berth-admissionpolicy-viewer-role",
            status=error.status,
        ) from error


_POLICY_COLUMNS: list[Column[PolicyRow]] = [
    Column(heading="NAME", cell=lambda row: row.name),
    Column(heading="PRECEDENCE", cell=lambda row: str(row.precedence), is_right=True, leaves=3),
    Column(heading="ACCEPTED", cell=lambda row: _ACCEPTED[row.accepted]),
    Column(heading="CLUSTERQUEUES", cell=lambda row: str(row.cluster_queue_count), is_right=True, leaves=4),
    Column(heading="SECTIONS", cell=lambda row: ",".join(row.sections), leaves=2),
    Column(heading="MESSAGE", cell=lambda row: row.message, leaves=1, is_sentence=True),
]

_RESERVATION_COLUMNS: list[Column[ReservationRow]] = [
    Column(heading="NAME", cell=lambda row: row.name),
    Column(heading="POLICY", cell=lambda row: row.policy, leaves=1),
    Column(heading="NAMESPACE", cell=lambda row: row.namespace, leaves=3),
    Column(heading="LOCALQUEUE", cell=lambda row: row.local_queue, leaves=4),
    Column(heading="KEEPS", cell=lambda row: ", ".join(row.keeps), leaves=6),
    Column(heading="START", cell=lambda row: row.start),
    Column(heading="END", cell=lambda row: row.end, leaves=7),
    Column(heading="STATE", cell=lambda row: row.state),
    Column(
        heading="USED BY",
        cell=lambda row: names_text(row.users, most=_SHOWN_USERS, count=row.user_count),
        leaves=5,
    ),
    Column(heading="MESSAGE", cell=lambda row: row.message, leaves=2, is_sentence=True),
]
