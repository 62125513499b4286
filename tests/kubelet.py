"""A stand-in of the kubelet's pod-resources API: v1 List over a unix socket, with what a test assigns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from threading import Thread
from typing import Any, Self

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server, Stream

from admission.node_agent.shell.kubelet import LIST, BytesCodec

GPU = "nvidia.com/gpu"
# Device ids by container and resource.
Containers = Sequence[Mapping[str, Sequence[str]]]


def message(number: int, content: str | bytes) -> bytes:
    """Return a field with a text or a message."""
    data = content.encode() if isinstance(content, str) else content
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    """Return a field with a number."""
    return _varint(field << 3) + _varint(value)


def pod_resources(namespace: str, name: str, containers: Containers) -> bytes:
    """Return the entry of one pod, with the fields that the agent does not read as well."""
    built = message(1, name) + message(2, namespace)
    for at, resources in enumerate(containers):
        devices = b"".join(
            message(2, _devices(resource, ids, numa_node=at)) for resource, ids in resources.items()
        )
        # Also cpu_ids, packed, and the memory of the container.
        rest = message(3, b"\x00\x01") + message(4, number(2, 7))
        built += message(3, message(1, f"c{at}") + devices + rest)
    return message(1, built)


def _devices(resource: str, ids: Sequence[str], *, numa_node: int) -> bytes:
    topology = message(1, number(1, numa_node))
    return message(1, resource) + b"".join(message(2, one) for one in ids) + message(3, topology)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


class KubeletStandin:
    """Serves `answer` at a socket, in the loop that it is entered in. `error` is answered instead, if set."""

    def __init__(self, socket: str) -> None:
        self.answer = b""
        self.error: GRPCError | None = None
        self.asked = 0
        self._socket = socket
        self._server = Server([self], codec=BytesCodec())

    def assign(self, *pods: bytes) -> None:
        """Answer with these entries of `pod_resources` from now on."""
        self.answer = b"".join(pods)

    def fail(self, status: Status, text: str) -> None:
        """Answer with an error from now on."""
        self.error = GRPCError(status, text)

    def __mapping__(self) -> dict[str, Handler]:
        return {LIST: Handler(self._list, Cardinality.UNARY_UNARY, bytes, bytes)}

    async def _list(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        self.asked += 1
        if self.error is not None:
            raise self.error
        await stream.send_message(self.answer)

    async def __aenter__(self) -> Self:
        await self._server.start(path=self._socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()


class KubeletThread:
    """A stand-in in a thread of its own, for tests without a loop."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._stack = AsyncExitStack()
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> KubeletStandin:
        self._thread.start()
        return asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)

    async def _open(self) -> KubeletStandin:
        return await self._stack.enter_async_context(KubeletStandin(self._socket))

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stack.aclose(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
