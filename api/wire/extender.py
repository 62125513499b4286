"""The wire types of the scheduler extender: requests of kube-scheduler and the responses.

kube-scheduler's types have no JSON names, so it sends `Pod`, `Nodes`, `NodeNames`; older versions sent
`pod`, `nodes`, `nodenames`. Go matches keys case-insensitively, so all of these spellings are accepted here,
and responses use lower case. Only fields that are used are decoded: 5,000 whole nodes are 25 MB, of which
only names and three labels are needed. The bytes of the nodes are kept, because nodes that pass are sent
back unchanged. Source: k8s.io/kube-scheduler/extender/v1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from api import keys
from api.objects.common import Meta, Wire
from api.parsing.quantities import QuantityError, amount
from api.wire.extender_nodes import NodeTexts

_Node = TypeVar("_Node")
_Labels = TypeVar("_Labels")


class LabelledMeta(Wire, Generic[_Labels], frozen=True):
    """metadata with only the labels that are needed.

    All other labels of each of 5,000 nodes stay undecoded.
    """

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: _Labels | None = None


class NodeLabels(Wire, frozen=True):
    """The labels of a node that the extender compares; empty if the node does not have the label."""

    gpu_model: str = msgspec.field(name=keys.NODE_GPU_MODEL, default="")
    numa_node: str = msgspec.field(name=keys.NODE_NUMA_NODE, default="")
    fabric: str = msgspec.field(name=keys.NODE_FABRIC, default="")


NO_LABELS = NodeLabels()


def node_labels(labels: Mapping[str, str]) -> NodeLabels:
    """Return the labels that the extender compares, out of all labels of a node."""
    return NodeLabels(
        gpu_model=labels.get(keys.NODE_GPU_MODEL, ""),
        numa_node=labels.get(keys.NODE_NUMA_NODE, ""),
        fabric=labels.get(keys.NODE_FABRIC, ""),
    )


class LabelledNode(Wire, frozen=True):
    """A node of which only the labels are needed."""

    metadata: LabelledMeta[NodeLabels] = LabelledMeta()


class _Amounts(Wire, frozen=True):
    gpus: str | int | float | None = msgspec.field(name=keys.GPU_RESOURCE, default=None)


class _Resources(Wire, frozen=True):
    limits: _Amounts | None = None
    requests: _Amounts | None = None


class _Container(Wire, frozen=True):
    resources: _Resources | None = None
    restart_policy: str | None = None


class _PodSpec(Wire, frozen=True):
    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    scheduler_name: str | None = None


class _Pod(Wire, frozen=True):
    metadata: Meta = Meta()
    spec: _PodSpec = _PodSpec()


class _NodeList(Wire, Generic[_Node], frozen=True):
    items: tuple[_Node, ...] | None = None


class _Args(msgspec.Struct, Generic[_Node], gc=False):
    """ExtenderArgs, with every spelling that kube-scheduler has used for each key."""

    pod: _Pod | None = None
    pod_of_go: _Pod | None = msgspec.field(name="Pod", default=None)
    nodes: _NodeList[_Node] | None = None
    nodes_of_go: _NodeList[_Node] | None = msgspec.field(name="Nodes", default=None)
    names: tuple[str, ...] | None = msgspec.field(name="nodeNames", default=None)
    names_of_go: tuple[str, ...] | None = msgspec.field(name="NodeNames", default=None)
    names_of_old: tuple[str, ...] | None = msgspec.field(name="nodenames", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodNeeds:
    """The requirements of a pod on its node. Empty strings and 0 GPUs mean no requirement.

    `gpus` are those of its limits, `requested_gpus` those of its requests, or of its limits if
    it has no requests.
    """

    namespace: str
    name: str
    gpu_model: str = ""
    gpus: int = 0
    requested_gpus: int = 0
    numa_node: str = "0"
    training_job: str = ""
    scheduler_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeNodes:
    """The whole nodes of a request: the decoded part of each, and its bytes if they were kept."""

    read: tuple[LabelledNode, ...]
    raw: tuple[msgspec.Raw, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderArgs:
    """A request. `nodes` is set if it contains whole nodes, `node_names` if the extender caches the nodes."""

    pod: PodNeeds | None
    nodes: WholeNodes | None
    node_names: tuple[str, ...] | None


class NodeListAnswer(msgspec.Struct):
    """The nodes that passed, unchanged."""

    items: Sequence[msgspec.Raw]


class FilterResult(msgspec.Struct, rename="camel", omit_defaults=True):
    """ExtenderFilterResult.

    The field of `nodes` and `node_names` that the request used is set, even if empty.

    `failed_and_unresolvable_nodes` repeats the failures that an eviction cannot resolve. Preemption in
    kube-scheduler does not call the extender; without this field, it would evict pods from a node of the
    wrong GPU model for nothing.
    """

    nodes: NodeListAnswer | None = None
    node_names: Sequence[str] | None = None
    failed_nodes: Mapping[str, str] = msgspec.field(default_factory=dict)
    failed_and_unresolvable_nodes: Mapping[str, str] = msgspec.field(default_factory=dict)
    error: str = ""


class HostPriority(msgspec.Struct, gc=False):
    """The score of one node, from 0 to 10."""

    host: str
    score: int


def read_args(
    body: bytes | bytearray, *, keeps_nodes: bool, texts: NodeTexts[LabelledNode] | None = None
) -> ExtenderArgs:
    """Return the contents of a request. Raises ValueError if the body is not an ExtenderArgs.

    `keeps_nodes`: also keep the bytes of whole nodes, which doubles the time. `texts` caches the nodes of
    earlier requests: a node with unchanged text is not decoded again.
    """
    try:
        cut = texts.cut(body) if texts is not None else None
        if cut is not None:
            args = _ARGS.decode(cut.rest)
            nodes = args.nodes_of_go
            # If the text was cut anywhere but in the request's own list, that list would not be empty now.
            if nodes is not None and nodes.items == ():
                return _args(args, WholeNodes(read=cut.nodes, raw=cut.raw))
        if keeps_nodes:
            kept = _ARGS_WITH_BYTES.decode(body)
            return _args(kept, _with_bytes(kept.nodes or kept.nodes_of_go))
        args = _ARGS.decode(body)
        nodes = args.nodes or args.nodes_of_go
        return _args(args, None if nodes is None else WholeNodes(read=nodes.items or ()))
    # JSON that is nested too deeply is the client's fault, like any other malformed body.
    except (msgspec.DecodeError, QuantityError, RecursionError) as error:
        raise ValueError(str(error)) from error


def _args(args: _Args[Any], nodes: WholeNodes | None) -> ExtenderArgs:
    spellings = (args.names, args.names_of_go, args.names_of_old)
    return ExtenderArgs(
        pod=_needs(args.pod or args.pod_of_go),
        nodes=nodes,
        node_names=next((names for names in spellings if names is not None), None),
    )


def _with_bytes(nodes: _NodeList[msgspec.Raw] | None) -> WholeNodes | None:
    if nodes is None:
        return None
    raw = nodes.items or ()
    return WholeNodes(read=tuple(map(_NODE.decode, raw)), raw=raw)


def _needs(pod: _Pod | None) -> PodNeeds | None:
    if pod is None:
        return None
    labels, annotations = pod.metadata.labels or {}, pod.metadata.annotations or {}
    return PodNeeds(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        gpu_model=annotations.get(keys.WANTED_GPU_MODEL) or labels.get(keys.WANTED_GPU_MODEL, ""),
        gpus=_gpus(pod.spec, _limit),
        requested_gpus=_gpus(pod.spec, _request),
        numa_node=annotations.get(keys.NUMA_NODE, "0"),
        training_job=labels.get(keys.TRAINING_JOB, ""),
        scheduler_name=pod.spec.scheduler_name or "",
        labels=labels,
        annotations=annotations,
    )


def _gpus(spec: _PodSpec, of: Callable[[_Container], int]) -> int:
    """Return the pod's GPUs: the sum of its containers, or the maximum during initialization if that is more.

    An init container that restarts (a sidecar) runs beside the containers. Raises QuantityError.
    """
    together, alone, sidecars = sum(map(of, spec.containers or ())), 0, 0
    for container in spec.init_containers or ():
        if container.restart_policy == "Always":
            sidecars += of(container)
            alone = max(alone, sidecars)
        else:
            alone = max(alone, sidecars + of(container))
    return max(together + sidecars, alone)


def _limit(container: _Container) -> int:
    limits = container.resources.limits if container.resources is not None else None
    if limits is None or limits.gpus is None:
        return 0
    return amount(keys.GPU_RESOURCE, limits.gpus)


def _request(container: _Container) -> int:
    requests = container.resources.requests if container.resources is not None else None
    if requests is None or requests.gpus is None:
        # In the API server, the request of an extended resource defaults to its limit.
        return _limit(container)
    return amount(keys.GPU_RESOURCE, requests.gpus)


def node_texts() -> NodeTexts[LabelledNode]:
    """Return an empty cache of whole nodes."""
    return NodeTexts(_NODE)


_ARGS = msgspec.json.Decoder(_Args[LabelledNode])
_ARGS_WITH_BYTES = msgspec.json.Decoder(_Args[msgspec.Raw])
_NODE = msgspec.json.Decoder(LabelledNode)
