"""Specifications of the simulated nodes of apiserver, demo and replay."""

from __future__ import annotations

from collections.abc import Mapping

from admission.cli.common.job_manifests import GPU, NODE_POOL_LABEL, SIMULATED_KEY
from api.kube.embedded.standins.kubelet import NodeSpec

# A typical number for a machine with eight GPUs. It exceeds the pods' requests, so that
# GPUs are the bottleneck.
_FEWEST_CPUS_PER_NODE = 64
_CPUS_PER_GPU = 8
_MEMORY_PER_NODE = "512Gi"
_TAINT = {"key": SIMULATED_KEY, "value": "true", "effect": "NoSchedule"}


def cpus_per_node(gpus: int) -> int:
    """Return the CPUs of a node with `gpus` GPUs."""
    return max(_FEWEST_CPUS_PER_NODE, gpus * _CPUS_PER_GPU)


def pool_nodes(
    pool: str,
    count: int,
    gpus: int,
    *,
    product: str = "",
    is_tainted: bool = True,
    labels: Mapping[str, str] | None = None,
) -> tuple[NodeSpec, ...]:
    """Return `count` equal nodes `pool-0` … with `gpus` GPUs each.

    `product` becomes NVIDIA's product label. Tainted nodes accept only pods that tolerate simulated nodes.
    """
    own = {NODE_POOL_LABEL: pool, **(labels or {})}
    if product:
        own["nvidia.com/gpu.product"] = product
    allocatable = {"cpu": str(cpus_per_node(gpus)), "memory": _MEMORY_PER_NODE}
    if gpus:
        allocatable[GPU] = str(gpus)
    return tuple(
        NodeSpec(
            name=f"{pool}-{number}",
            allocatable=allocatable,
            labels=own,
            taints=(_TAINT,) if is_tainted else (),
        )
        for number in range(count)
    )
