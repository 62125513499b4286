"""The cluster's priority classes, which Jobs that are not submitted may name."""

from __future__ import annotations

import msgspec

from admission.cli.common.manifest_files import Manifest
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES


async def priority_classes(client: KubeClient) -> list[Manifest]:
    """Return the cluster's priority classes, as far as they may be read."""
    found = []
    for kind in (WORKLOAD_PRIORITY_CLASSES, PRIORITY_CLASSES):
        try:
            items = msgspec.json.decode(await client.request("GET", kind.path())).get("items") or ()
        except (Forbidden, NotFound):
            continue
        found += [Manifest(client.server, msgspec.json.encode({**one, "kind": kind.kind})) for one in items]
    return found
