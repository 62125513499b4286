"""The embedded API server of the tests is found through its kubeconfig, as a real one is."""

from __future__ import annotations

import msgspec

from api.kube.client import KubeClient
from api.kube.resources import NAMESPACES
from tests.embedded import EmbeddedCluster


async def test_its_kubeconfig_leads_to_it(embedded_server: EmbeddedCluster) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        space = msgspec.json.decode(await client.get(NAMESPACES, "default"))

    assert client.server == embedded_server.url
    assert space["metadata"]["name"] == "default"
