"""The cluster that a command brings along, and the files it may write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from admission.cli.common.errors import NotHoldingError, WrongUsageError
from admission.cli.trial import child_cluster
from admission.cli.trial.embedded_cluster import (
    check_may_write,
    embedded_server,
    in_background,
    install_kinds,
)
from api.definitions.crds import KINDS
from api.kube.client import KubeClient


async def test_the_kinds_are_served_and_installed_once(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with embedded_server(kubeconfig), await KubeClient.connect(str(kubeconfig)) as client:
        assert len(await install_kinds(client)) == len(KINDS)
        assert await install_kinds(client) == ()


async def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    async with embedded_server(tmp_path / "one") as server:
        port = int(server.url.rpartition(":")[2])
        with pytest.raises(WrongUsageError, match=f"cannot listen on port {port}"):
            async with embedded_server(tmp_path / "two", port=port):
                pytest.fail("two servers listen on one port")


async def test_a_child_that_says_nothing_is_named_with_the_time_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child_cluster, "_START_SECONDS", 0.0)
    with pytest.raises(NotHoldingError, match="the embedded cluster did not start within 0 s"):
        async with child_cluster.child_cluster(tmp_path / "kubeconfig", pace=1.0, nodes=()):
            pytest.fail("it was not waited for")


async def test_the_kubeconfig_of_another_cluster_is_never_overwritten(tmp_path: Path) -> None:
    precious = tmp_path / "config"
    precious.write_text("apiVersion: v1\nkind: Config\nclusters: [{name: production, cluster: {}}]\n")

    with pytest.raises(WrongUsageError, match="give --kubeconfig a new file"):
        check_may_write(precious)

    assert "production" in precious.read_text()


async def test_an_own_kubeconfig_is_overwritten(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    async with embedded_server(kubeconfig):
        first = kubeconfig.read_text()

    async with embedded_server(kubeconfig):
        assert kubeconfig.read_text() != first


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("no/such/folder/kubeconfig", "cannot write the kubeconfig", id="a missing folder"),
        pytest.param(".", "cannot be used as kubeconfig", id="a folder"),
    ],
)
async def test_a_place_that_cannot_hold_a_kubeconfig_is_named(tmp_path: Path, name: str, want: str) -> None:
    with pytest.raises(WrongUsageError, match=want):
        async with embedded_server(tmp_path / name):
            pytest.fail("the server runs without a kubeconfig")


async def test_work_in_the_background_ends_with_the_body() -> None:
    events: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("work ended")

    async with in_background(work=work()):
        await asyncio.sleep(0)
        events.append("body ended")

    assert events == ["body ended", "work ended"]


async def test_work_that_fails_ends_the_body() -> None:
    async def fail() -> None:
        raise WrongUsageError("out of nodes")

    with pytest.raises(ExceptionGroup) as group:
        async with in_background(work=fail()):
            await asyncio.Event().wait()

    assert group.group_contains(WrongUsageError, match="out of nodes")
