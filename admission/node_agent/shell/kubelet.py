"""Asks the kubelet which devices it gave to which pods: pod-resources v1 List, gRPC over a unix socket."""

from __future__ import annotations

from typing import Any

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.encoding.base import CodecBase
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from admission.node_agent.gpus import ReadingError
from admission.node_agent.pod_devices import PodDevices, parse_pod_devices

LIST = "/v1.PodResourcesLister/List"
_TIMEOUT_SECONDS = 10.0


class BytesCodec(CodecBase):
    """Messages as their bytes: the one answer that is read has a reader of its own (`pod_devices`)."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        """Return the message, which is encoded already."""
        del message_type
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        """Return the bytes of a message."""
        del message_type
        return data


class Kubelet:
    """The kubelet of this node, at the path of its pod-resources socket."""

    def __init__(self, socket: str, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> None:
        self._socket = socket
        self._timeout_seconds = timeout_seconds

    async def list_pods(self) -> tuple[PodDevices, ...]:
        """Return the pods that the kubelet knows, with their GPUs. Raises ReadingError."""
        # A connection for each call: the kubelet removes its socket when it restarts.
        channel = Channel(path=self._socket, codec=BytesCodec())
        try:
            reply = await UnaryUnaryMethod[bytes, bytes](channel, LIST, bytes, bytes)(
                b"", timeout=self._timeout_seconds
            )
        except GRPCError as error:
            raise self._failed(f"{error.status.name} {error.message or ''}") from error
        except (OSError, TimeoutError, ProtocolError, StreamTerminatedError) as error:
            raise self._failed(str(error) or type(error).__name__) from error
        finally:
            channel.close()
        return parse_pod_devices(reply)

    def _failed(self, why: str) -> ReadingError:
        return ReadingError(
            f"cannot list pod resources at the kubelet's socket {self._socket}: {why.strip()}"
        )
