"""A living Kueue ends the start; one that has gone does not."""

from __future__ import annotations

import contextlib
from typing import Any, cast

import msgspec
import pytest

from admission.controller.leadership.kueue_guard import KUEUE_LEASE, LiveKueue, refuse_beside_kueue
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, Unreachable
from api.kube.resources import LEASES
from api.parsing.times import to_rfc3339
from tests.embedded import EmbeddedCluster

NOW = 1_800_000_000.0


def lease(name: str, holder: str | None, *, age: float) -> bytes:
    """Return a Lease that was renewed `age` seconds ago."""
    renewed = to_rfc3339(NOW - age).replace("Z", ".000000Z")
    return msgspec.json.encode(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"renewTime": renewed, **({"holderIdentity": holder} if holder else {})},
        }
    )


@pytest.mark.parametrize(
    ("body", "is_refused"),
    [
        pytest.param(lease(KUEUE_LEASE, "kueue-0", age=5), True, id="one that renews its lease is alive"),
        pytest.param(lease(KUEUE_LEASE, "kueue-0", age=31), False, id="one that has not for 30 s is not"),
        pytest.param(lease(KUEUE_LEASE, None, age=5), False, id="a lease that was given back is free"),
        pytest.param(lease("other", "kueue-0", age=5), False, id="other leases do not matter"),
    ],
)
async def test_a_live_lease_of_kueue_keeps_berth_from_starting(
    embedded_server: EmbeddedCluster, body: bytes, *, is_refused: bool
) -> None:
    async with await KubeClient.connect(embedded_server.kubeconfig) as client:
        await client.create(LEASES, body, "default")

        with (
            pytest.raises(LiveKueue, match=r"kueue-0.*stop it first")
            if is_refused
            else contextlib.nullcontext()
        ):
            await refuse_beside_kueue(client, now=NOW)


class Refusing:
    """An API server that answers every list with one error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def list(self, *_: Any, **__: Any) -> None:
        """Answer."""
        raise self._error


async def test_without_the_right_to_list_leases_it_starts_all_the_same() -> None:
    client = cast(KubeClient, Refusing(Forbidden("may not list leases", status=403)))

    await refuse_beside_kueue(client, now=NOW)


async def test_an_unreachable_server_is_no_empty_cluster() -> None:
    with pytest.raises(Unreachable):
        await refuse_beside_kueue(cast(KubeClient, Refusing(Unreachable("refused"))), now=NOW)
