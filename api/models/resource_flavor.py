"""ResourceFlavor and Topology: kinds of nodes, and the tree of domains that the nodes are in."""

from typing import Annotated, Literal

from pydantic import Field

from api.keys import HOSTNAME
from api.models.common import DnsSubdomain, KueueObject, LabelKey, Model, Taints, Tolerations
from api.models.markers import ATOMIC, field_rules, object_rules, rule


class ResourceFlavorSpec(Model):
    """Nodes of this flavor, and what pods need in order to run on them."""

    model_config = object_rules(
        rule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) > 0)",
            "at least one nodeLabel is required when topology is set",
        ),
        rule(
            "!has(oldSelf.topologyName) ||"
            " (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName is immutable when topologyName is set",
        ),
        # Running pods were placed by what these say.
        *(
            rule(
                f"!has(oldSelf.topologyName) || (has(self.{field}) == has(oldSelf.{field}) &&"
                f" (!has(self.{field}) || self.{field} == oldSelf.{field}))",
                f"{field} are immutable when topologyName is set",
            )
            for field in ("nodeLabels", "tolerations")
        ),
    )

    node_labels: Annotated[dict[str, str], Field(max_length=8)] | None = None
    """Labels of the nodes. Admitted pods get them as nodeSelector. The node selector and node affinity of a
    pod for these keys decide whether the flavor matches."""
    node_taints: Taints | None = None
    """Taints of the nodes. A Workload must tolerate those with NoSchedule and NoExecute to get the flavor."""
    tolerations: Tolerations | None = None
    """Tolerations that are added to admitted pods. Taints that they tolerate do not exclude the flavor."""
    topology_name: DnsSubdomain | None = None
    """Topology of these nodes; if set, pods are placed by domain. Immutable once set."""


class ResourceFlavor(KueueObject):
    """A kind of node, such as a GPU model or a price class."""

    kind: Literal["ResourceFlavor"] = "ResourceFlavor"
    spec: ResourceFlavorSpec = Field(default_factory=ResourceFlavorSpec)
    """Nodes of this flavor, and what pods need in order to run on them."""


_LEVEL_RULES = field_rules(
    rule("self.all(l, self.exists_one(m, m.nodeLabel == l.nodeLabel))", "must be unique"),
    rule(
        f"!self.exists(l, l.nodeLabel == '{HOSTNAME}') || self[size(self) - 1].nodeLabel == '{HOSTNAME}'",
        f"the {HOSTNAME} label can only be used at the lowest level of topology",
    ),
    rule("self == oldSelf", "field is immutable"),
)


class TopologyLevel(Model):
    """One level of the tree."""

    node_label: Annotated[LabelKey, Field(min_length=1, max_length=316)]
    """Node label whose value names the domain at this level."""


class TopologySpec(Model):
    """The levels of the tree."""

    levels: Annotated[list[TopologyLevel], Field(min_length=1, max_length=16), ATOMIC, _LEVEL_RULES]
    """Levels, from the widest to the narrowest."""


class Topology(KueueObject):
    """The tree of domains that the nodes are in, for example blocks, racks and hosts."""

    kind: Literal["Topology"] = "Topology"
    spec: TopologySpec
    """The levels of the tree."""
