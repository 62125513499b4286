"""A pod and a node as the extender sees them, gathered once per request and not per node and rule.

What they say about hardware is read by `admission.hardware`, as for admission and placement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from admission.hardware.fit import NodeLoad
from admission.hardware.gpu_shares import PodGpus, counted
from admission.hardware.node_hardware import NodeHardware
from admission.hardware.pod_hardware import PodHardware, read_pod
from api.jobs.gpu_share import gpu_ids, gpu_share
from api.jobs.resource_requests import gpus_of, most_gpu_ids, pod_requests
from api.node import NodeInfo
from api.objects.cluster import PodObject


@dataclass(frozen=True, kw_only=True)
class PodFacts:
    """What a pod requests, or uses where it is bound. Amounts are in canonical units."""

    namespace: str
    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @cached_property
    def gpus(self) -> int:
        """The GPUs of all its containers together."""
        return gpus_of(self.requests)

    @cached_property
    def hardware(self) -> PodHardware:
        """What its keys ask of hardware."""
        return read_pod(self.annotations, self.labels)

    @cached_property
    def gpu_ids(self) -> tuple[int, ...]:
        """The indexes of the node's GPUs that the pod was given; () where they are not recorded."""
        return gpu_ids(self.annotations, most_gpu_ids(self.requests))

    @cached_property
    def on_gpus(self) -> PodGpus:
        """What it uses of which GPUs of its node."""
        share = gpu_share((self.annotations, self.labels), self.gpus)
        return PodGpus(0 if share is not None else self.gpus, share, self.gpu_ids)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node with the pods bound to it. `used` sums the requests of those that have not finished."""

    node: NodeInfo
    hardware: NodeHardware
    used: Mapping[str, int] = field(default_factory=dict)
    pods: tuple[PodFacts, ...] = ()

    @cached_property
    def load(self) -> NodeLoad:
        """What the pods bound here use of the node's GPUs."""
        return NodeLoad(
            gpus=gpus_of(self.used),
            pods=tuple(counted((pod.on_gpus for pod in self.pods), self.hardware.slices)),
            inference_mib=sum(
                pod.hardware.memory_mib for pod in self.pods if pod.hardware.kind == "inference"
            ),
        )


def to_ask(pod: PodObject) -> PodFacts:
    """Return the pod as the rules see it. Raises QuantityError where a request cannot be parsed."""
    return PodFacts(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        labels=pod.metadata.labels or {},
        annotations=pod.metadata.annotations or {},
        requests=pod_requests(pod.spec),
    )
