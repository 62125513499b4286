"""The question to the kubelet, over a unix socket."""

from __future__ import annotations

import asyncio
import socket as socketlib
from pathlib import Path

import pytest
from grpclib.const import Status

from admission.node_agent.gpus import ReadingError
from admission.node_agent.pod_devices import PodDevices
from admission.node_agent.shell.kubelet import Kubelet
from tests.kubelet import GPU, KubeletStandin, pod_resources


async def test_the_pods_of_a_kubelet_are_listed_each_time(tmp_path: Path) -> None:
    socket = str(tmp_path / "kubelet.sock")
    async with KubeletStandin(socket) as standin:
        assert await Kubelet(socket).list_pods() == ()
        standin.assign(*(pod_resources("team", f"p{at}", [{GPU: [f"GPU-{at}"]}]) for at in range(2000)))

        found = await Kubelet(socket).list_pods()

    assert found[1999] == PodDevices(namespace="team", name="p1999", devices=("GPU-1999",))
    assert standin.asked == 2


async def test_a_kubelet_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    socket = str(tmp_path / "kubelet.sock")

    with pytest.raises(ReadingError, match=f"cannot list pod resources at the kubelet's socket {socket}: "):
        await Kubelet(socket).list_pods()


async def test_the_error_of_a_kubelet_is_quoted(tmp_path: Path) -> None:
    socket = str(tmp_path / "kubelet.sock")
    async with KubeletStandin(socket) as standin:
        standin.fail(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")

        with pytest.raises(ReadingError, match="RESOURCE_EXHAUSTED rejected by rate limit"):
            await Kubelet(socket).list_pods()


async def test_a_kubelet_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    socket = str(tmp_path / "kubelet.sock")
    with socketlib.socket(socketlib.AF_UNIX) as silent:
        silent.bind(socket)
        silent.listen()
        with pytest.raises(ReadingError, match=r"kubelet\.sock: "):
            await Kubelet(socket, timeout_seconds=0.2).list_pods()


async def test_an_answer_that_is_no_grpc_is_an_error(tmp_path: Path) -> None:
    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    socket = str(tmp_path / "kubelet.sock")
    async with await asyncio.start_unix_server(reply, socket):
        with pytest.raises(ReadingError, match=r"kubelet\.sock: "):
            await Kubelet(socket).list_pods()
