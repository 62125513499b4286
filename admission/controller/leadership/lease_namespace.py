"""The namespace that the lease of the leader is in: created at the first start where it is missing."""

from __future__ import annotations

import msgspec

from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import AlreadyExists, Forbidden, KubeError


async def ensure_namespace(client: KubeClient, name: str) -> None:
    """Create the namespace if it is missing and we may. Raises Forbidden with what to do otherwise."""
    try:
        await client.get(resources.NAMESPACES, name)
    except KubeError as error:
        # 403: without permission to read namespaces it may exist all the same. The create then says so.
        if error.status not in (403, 404):
            raise
        await _create(client, name)


async def _create(client: KubeClient, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    try:
        await client.create(resources.NAMESPACES, msgspec.json.encode(body))
    except AlreadyExists:
        return
    except Forbidden as refused:
        message = (
            f"{client.server} does not let this user read or create the namespace {name}"
            f" ({refused.message}); create it, and bind the roles of deploy/rbac.yaml to this user"
        )
        raise Forbidden(message, status=refused.status, reason=refused.reason) from refused
