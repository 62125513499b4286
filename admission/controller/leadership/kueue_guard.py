"""The check for a running Kueue, which would decide on the same objects: Berth does not start beside one."""

from __future__ import annotations

import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.objects.common import Meta
from api.parsing.times import to_seconds

KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
# A lease renewed within this time has a running holder: Kueue renews its lease every 2 s.
ALIVE_SECONDS = 30.0


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class LiveKueue(Exception):
    """A Kueue is running on this cluster. The message names its lease and says what to do."""


async def refuse_beside_kueue(client: KubeClient, *, now: float) -> None:
    """Raise LiveKueue if a Kueue has renewed its lease within the last 30 s.

    Without the permission to list leases this cannot be checked, and Berth starts. Raises KubeError if
    the list fails otherwise.
    """
    try:
        listed = await client.list(
            resources.LEASES, type_=_Lease, params={"fieldSelector": f"metadata.name={KUEUE_LEASE}"}
        )
    except (Forbidden, NotFound):
        return
    for lease in listed.items:
        age = now - to_seconds(lease.spec.renew_time)
        if lease.spec.holder_identity and age < ALIVE_SECONDS:
            raise LiveKueue(
                f"a Kueue is running on this cluster: {lease.spec.holder_identity} renewed the lease "
                f"{lease.metadata.namespace}/{KUEUE_LEASE} {max(age, 0):.0f} s ago; stop it first, or start "
                "berth with --observe, which decides and writes nothing"
            )
