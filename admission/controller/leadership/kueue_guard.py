"""Who else is there: a live Kueue would decide on the same objects, so Berth does not start beside one."""

from __future__ import annotations

import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.objects import Meta
from api.workload import to_seconds

KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
# A lease renewed within this time has a living holder: Kueue renews every 2 s.
ALIVE_SECONDS = 30.0


class _LeaseSpec(msgspec.Struct, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _Lease(msgspec.Struct):
    metadata: Meta
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class LiveKueue(Exception):
    """A Kueue decides on this cluster; the message says which, and what can be done."""


async def refuse_beside_kueue(client: KubeClient, *, now: float) -> None:
    """Raise LiveKueue when a Kueue has renewed its lease within the last 30 s.

    Without the right to list leases nobody can tell, and the start goes on. Raises KubeError otherwise.
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
