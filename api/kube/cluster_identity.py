"""The identity of a cluster: the uid of its namespace kube-system, which lives as long as the cluster."""

from __future__ import annotations

import msgspec

from api.kube.client import KubeClient
from api.kube.errors import malformed
from api.kube.resources import NAMESPACES
from api.objects.common import NamedObject

_NAMED = msgspec.json.Decoder(NamedObject)


async def cluster_identity(client: KubeClient) -> str:
    """Return the uid of kube-system. Raises KubeError where it cannot be read."""
    raw = await client.get(NAMESPACES, "kube-system")
    try:
        return _NAMED.decode(raw).metadata.uid
    except msgspec.DecodeError as error:
        raise malformed("Namespace", error) from error
