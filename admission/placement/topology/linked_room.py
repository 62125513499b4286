"""How many pods with linked GPUs the islands of each host hold, beside the pods that are there.

Idle nodes of one kind have the same room, so a full pass costs a comparison for most leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.placement.topology.flavor_topology import FlavorTopology


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedRoom:
    """The room for pods of `gpus` linked GPUs each, on a site of hosts. `is_empty`: without placed pods."""

    site: FlavorTopology
    gpus: int
    is_empty: bool

    def at(self, leaf: int) -> int:
        """Return how many more of the pods find an island on the leaf, whatever else they need."""
        site = self.site
        hardware, placed = site.hardware, () if self.is_empty else ((site.owner, site.names[leaf]),)
        return sum(
            hardware.gpu_pods.linked_room(hardware.of(node).islands, (node.name, *placed), self.gpus)
            for node in site.nodes[leaf].values()
        )

    def limit(self, pods: list[int]) -> None:
        """Lower the number of pods of each leaf to what its islands hold."""
        site, gpu_pods = self.site, self.site.hardware.gpu_pods
        names, owner, nodes = site.names, site.owner, site.nodes
        for kind, leaves in site.kinds.items():
            # Where all GPUs of a node are linked, those that are free are, too.
            if any(island.size >= kind.gpus for island in kind.islands):
                continue
            idle = gpu_pods.linked_room(kind.islands, (), self.gpus)
            for leaf in leaves:
                if not pods[leaf]:
                    continue
                is_used = not self.is_empty and (owner, names[leaf]) in gpu_pods
                is_idle = not is_used and not any(name in gpu_pods for name in nodes[leaf])
                # Two nodes of one host add up.
                room = idle if is_idle and len(nodes[leaf]) == 1 else self.at(leaf)
                if room < pods[leaf]:
                    pods[leaf] = room
