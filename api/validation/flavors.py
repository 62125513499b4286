"""Rules of ResourceFlavors and Topologies that a schema cannot express.

Source: Kueue, pkg/webhooks/resourceflavor_webhook.go; Topology's rules are those of its CRD.
"""

from collections.abc import Iterator

from api.keys import HOSTNAME
from api.models.resource_flavor import ResourceFlavor, Topology
from api.parsing.faults import FieldError
from api.validation.names import duplicates, label_errors, taint_errors, toleration_errors


def resource_flavor_errors(flavor: ResourceFlavor) -> Iterator[FieldError]:
    """Yield the faults of a ResourceFlavor."""
    spec = flavor.spec
    yield from label_errors("spec.nodeLabels", spec.node_labels)
    yield from taint_errors("spec.nodeTaints", spec.node_taints)
    yield from toleration_errors("spec.tolerations", spec.tolerations)
    if spec.topology_name and not spec.node_labels:
        yield FieldError(
            path="spec.topologyName", value=spec.topology_name, rule="needs at least one of spec.nodeLabels"
        )


def topology_errors(topology: Topology) -> Iterator[FieldError]:
    """Yield the faults of a Topology: duplicate levels, and a hostname level that is not the last one."""
    levels = [level.node_label for level in topology.spec.levels]
    for name in duplicates(levels):
        yield FieldError(path="spec.levels", value=name, rule="must be unique")
    if HOSTNAME in levels[:-1]:
        rule = f"the {HOSTNAME} label can only be used at the lowest level of topology"
        yield FieldError(path="spec.levels", value=levels, rule=rule)
