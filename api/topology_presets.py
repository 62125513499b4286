"""The node labels that describe the position of a node in the network, by their source.

No label key is standard across vendors: the proposal to reserve some (KEP-4962) was closed without adoption,
so every scheduler is configured with a list of levels. This module contains the lists in use. A preset lists
its levels from the widest to the narrowest, without the host, which is always `kubernetes.io/hostname`.

Topograph numbers its tiers from the nearest switch outwards, with no fixed depth, so the levels of its
presets are derived from the labels of the nodes: `tiers` is the prefix of such keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from api.keys import HOSTNAME

_TOPOGRAPH_TIERS = "fabric.topograph.run/tier-"
# Its value `<ClusterUUID>.<CliqueID>` identifies one NVLink partition of a rack. GPU
# Feature Discovery writes it.
CLIQUE = "nvidia.com/gpu.clique"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelPreset:
    """Label keys of one source, the widest first.

    Keys with the prefix `tiers` come first, by descending number.
    """

    name: str
    source: str
    levels: tuple[str, ...]
    tiers: str = ""


PRESETS: tuple[LabelPreset, ...] = (
    LabelPreset(
        name="nvl72",
        source="topograph 1.x with NVLink partitions (GB200, GB300 NVL72)",
        tiers=_TOPOGRAPH_TIERS,
        levels=(CLIQUE,),
    ),
    LabelPreset(
        name="topograph1",
        source="topograph 1.x",
        tiers=_TOPOGRAPH_TIERS,
        levels=("accelerator.topograph.run/domain",),
    ),
    LabelPreset(
        name="topograph0",
        source="topograph up to 0.5",
        levels=(
            "network.topology.nvidia.com/core",
            "network.topology.nvidia.com/spine",
            "network.topology.nvidia.com/leaf",
            "network.topology.nvidia.com/accelerator",
        ),
    ),
    LabelPreset(
        name="aws",
        source="Amazon EKS",
        levels=(
            "topology.k8s.aws/network-node-layer-1",
            "topology.k8s.aws/network-node-layer-2",
            "topology.k8s.aws/network-node-layer-3",
        ),
    ),
    LabelPreset(
        name="gke",
        source="Google GKE",
        levels=(
            "cloud.google.com/gce-topology-block",
            "cloud.google.com/gce-topology-subblock",
            "cloud.google.com/gce-topology-host",
        ),
    ),
    LabelPreset(
        name="oci-rdma",
        source="Oracle OKE, RDMA add-on",
        levels=(
            "oci.oraclecloud.com/rdma.hpc_island_id",
            "oci.oraclecloud.com/rdma.network_block_id",
            "oci.oraclecloud.com/rdma.local_block_id",
        ),
    ),
    LabelPreset(
        name="oci",
        source="Oracle OKE",
        levels=("oci.oraclecloud.com/host.network_block_id", "oci.oraclecloud.com/host.rack_id"),
    ),
    LabelPreset(
        name="coreweave",
        source="CoreWeave",
        levels=(
            "ib.coreweave.cloud/fabric",
            "ib.coreweave.cloud/superpod",
            "ib.coreweave.cloud/leafgroup",
        ),
    ),
    LabelPreset(name="crusoe", source="Crusoe", levels=("crusoe.ai/ib.partition.id", "crusoe.ai/pod.id")),
    LabelPreset(
        name="kueue",
        source="the example of Kueue's documentation",
        levels=("cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"),
    ),
    LabelPreset(
        name="plain",
        source="any cloud",
        levels=("topology.kubernetes.io/region", "topology.kubernetes.io/zone"),
    ),
)
_BY_NAME = {preset.name: preset for preset in PRESETS}


def find_preset(name: str) -> LabelPreset:
    """Return the preset with this name. Raises ValueError that names the known presets."""
    if name not in _BY_NAME:
        raise ValueError(f"no label preset is named {name!r}; known are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def preset_levels(preset: LabelPreset, labels: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return the keys of the preset that any of the nodes has, the widest first, followed by the host.

    A key that no node has is not a level here: AWS instances with three layers lack the fourth, and small
    sites have no core switch. Empty if no key of the preset is found.
    """
    found = {key for one in labels for key in one}
    tiers = [key for key in found if preset.tiers and _tier(preset, key) is not None]
    tiers.sort(key=lambda key: -(_tier(preset, key) or 0))
    own = [key for key in preset.levels if key in found]
    # The preset nvl72 adds the level of NVLink partitions to the tiers of another preset. It applies only if
    # that level exists; otherwise its tiers alone would match every site of topograph.
    if not own and (not tiers or preset.name == "nvl72"):
        return ()
    return (*tiers, *own, HOSTNAME)


def _tier(preset: LabelPreset, key: str) -> int | None:
    # At most three digits, because no network has more tiers, and other keys may have the same prefix.
    match = re.fullmatch(re.escape(preset.tiers) + "([0-9]{1,3})", key)
    return int(match[1]) if match else None
