"""Reads the kubelet's answer about the devices of pods: which GPUs of the node each pod has.

    ListPodResourcesResponse { 1: PodResources { 1: name, 2: namespace, 3: ContainerResources {
        2: ContainerDevices { 1: resource_name, 2: device_ids } } } }

NVIDIA's device plugin names a GPU by its UUID, or by its index if it is configured so; a GPU that pods share
by "<UUID>::<number>"; a part of one (MIG) by a UUID of its own.

Source: Kubernetes, staging/src/k8s.io/kubelet/pkg/apis/podresources/v1/api.proto.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from admission.node_agent.gpus import Gpu, ReadingError
from api import keys
from api.parsing.decimals import whole_number
from api.parsing.protobuf_wire import read_fields

# Resources of whole GPUs; the second is the name of shared ones if the device plugin renames them.
_GPU_RESOURCES = frozenset({keys.GPU_RESOURCE, f"{keys.GPU_RESOURCE}.shared"})
_SHARED = "::"
_PART = "MIG-"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDevices:
    """The GPU devices that the kubelet gave to a pod, as it names them; () for none."""

    namespace: str
    name: str
    devices: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def parse_pod_devices(reply: bytes) -> tuple[PodDevices, ...]:
    """Return the pods in the answer to List. Raises ReadingError."""
    try:
        return tuple(_pod(_message(value)) for number, value in read_fields(reply) if number == 1)
    except (ValueError, IndexError) as error:
        raise ReadingError(f"the kubelet's answer about pod resources cannot be read: {error}") from error


def gpu_ids(pod: PodDevices, gpus: Sequence[Gpu]) -> tuple[int, ...]:
    """Return the indexes of the pod's GPUs, ascending; () where it has none, or parts of GPUs.

    Raises ReadingError for a device that is none of `gpus`: some of a pod's ids would be as wrong as none.
    """
    index_of = {gpu.uuid: gpu.index for gpu in gpus}
    found = set()
    for device in pod.devices:
        name = device.partition(_SHARED)[0]
        if name.startswith(_PART):
            return ()
        index = index_of.get(name, whole_number(name))
        if index is None or index not in index_of.values():
            raise ReadingError(f"pod {pod} has the device {device}, which is no GPU that nvidia-smi lists")
        found.add(index)
    return tuple(sorted(found))


def given_twice(pods: Iterable[PodDevices]) -> list[str]:
    """Return a sentence for each unshared device that two pods have."""
    holder: dict[str, PodDevices] = {}
    found = []
    for pod in pods:
        for device in pod.devices:
            first = holder.setdefault(device, pod)
            if first is not pod:
                found.append(f"the kubelet gave {device} to both {first} and {pod}")
    return found


def annotation_of(ids: Sequence[int]) -> str | None:
    """Return the value of the annotation for a pod's GPUs; None where it is to be absent."""
    return ",".join(map(str, ids)) or None


def _pod(data: bytes) -> PodDevices:
    fields = _fields(data)
    devices = [
        device
        for container in fields.get(3, ())
        for entry in _fields(container).get(2, ())
        for device in _gpu_devices(entry)
    ]
    return PodDevices(namespace=_text(fields, 2), name=_text(fields, 1), devices=tuple(devices))


def _gpu_devices(data: bytes) -> Iterator[str]:
    fields = _fields(data)
    if _text(fields, 1) in _GPU_RESOURCES:
        yield from (device.decode() for device in fields.get(2, ()))


def _fields(data: bytes) -> Mapping[int, list[bytes]]:
    """Return the texts and messages in a message, by number. Numbers are left out."""
    found: dict[int, list[bytes]] = {}
    for number, value in read_fields(data):
        if isinstance(value, bytes):
            found.setdefault(number, []).append(value)
    return found


def _text(fields: Mapping[int, list[bytes]], number: int) -> str:
    return fields[number][-1].decode() if number in fields else ""


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("found a number where a message is expected")
    return value
