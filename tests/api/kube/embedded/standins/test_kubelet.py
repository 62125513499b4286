"""The simulated kubelet, if an object changes between the event and its processing."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import Kubelet, NodeSpec
from api.kube.embedded.standins.mirror import StandInCache
from api.kube.embedded.standins.objects import Pod
from api.kube.informer import Change, ChangeType

KEY = ("team", "p-0")


def pod(uid: str, **spec: Any) -> Pod:
    metadata = {"name": KEY[1], "namespace": KEY[0], "uid": uid, "resourceVersion": "1"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}, Pod)


async def test_a_pod_that_took_the_name_of_another_and_has_no_node_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Mock(spec=KubeClient)
    mirror = StandInCache(client)
    kubelet = Kubelet(client, mirror, [NodeSpec(name="n", allocatable={"cpu": "1"})])
    synced: list[tuple[str, str]] = []
    monkeypatch.setattr(kubelet._pods, "add", synced.append)
    bound, unbound = pod("old", nodeName="n"), pod("new")
    mirror.pod_listeners[0](Change(ChangeType.MODIFIED, bound, None, None))
    mirror.pods[KEY] = unbound

    assert synced == [KEY]
    assert await kubelet._sync_pod(KEY) is None
    client.request.assert_not_called()
