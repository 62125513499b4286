"""TopologyAssignment: where the pods of a pod set are to run, packed for gangs of thousands of nodes.

An assignment is a list of domains with a pod count each. Domains are told by one value per level, and values
repeat (the same block) or share a beginning (`block-7-rack-`), so a slice of domains stores what they have in
common once:

    levels: [block, rack]                 domains: (b1, r1) × 4, (b1, r2) × 2
    slices: [{domainCount: 2,
              valuesPerLevel: [{universal: b1}, {individual: {prefix: r, roots: ["1", "2"]}}],
              podCounts: {individual: [4, 2]}}]

Source: Kueue, apis/kueue/v1beta2/workload_types.go.
"""

from typing import Annotated

from pydantic import Field

from api.models.common import Model, PositiveCount
from api.models.markers import ATOMIC, object_rules, rule

ShortValue = Annotated[str, Field(max_length=63)]

_ONE_FORM = rule(
    "has(self.universal) != has(self.individual)", "exactly one of universal and individual must be set"
)


class IndividualValues(Model):
    """Values that differ from domain to domain, each being prefix + root + suffix."""

    prefix: ShortValue | None = None
    """What all values begin with."""
    roots: Annotated[list[ShortValue], Field(min_length=1, max_length=100_000), ATOMIC]
    """What is left of each value, one entry per domain."""
    suffix: ShortValue | None = None
    """What all values end with."""


class LevelValues(Model):
    """Values of one level for all domains of a slice."""

    model_config = object_rules(_ONE_FORM)

    individual: IndividualValues | None = None
    """Values that differ."""
    universal: ShortValue | None = None
    """The value that all domains of the slice have."""


class PodCounts(Model):
    """Pods per domain of a slice."""

    model_config = object_rules(_ONE_FORM)

    individual: Annotated[list[PositiveCount], Field(min_length=1, max_length=100_000), ATOMIC] | None = None
    """One number per domain."""
    universal: PositiveCount | None = None
    """The number that all domains of the slice have."""


class AssignmentSlice(Model):
    """Some of the domains, packed together."""

    model_config = object_rules(
        rule(
            "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "roots must have domainCount entries",
        ),
        rule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "individual podCounts must have domainCount entries",
        ),
    )

    domain_count: PositiveCount
    """Number of domains in this slice."""
    pod_counts: PodCounts
    """Pods per domain."""
    values_per_level: Annotated[list[LevelValues], Field(min_length=1, max_length=16), ATOMIC]
    """For each level the values of the domains."""


class TopologyAssignment(Model):
    """The domains that pods go to."""

    model_config = object_rules(
        rule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have one entry for each of the levels",
        )
    )

    levels: Annotated[list[Annotated[str, Field(max_length=317)]], Field(min_length=1, max_length=16), ATOMIC]
    """Node labels that tell the domains, the widest first; the host alone if the topology ends in hosts."""
    slices: Annotated[list[AssignmentSlice], Field(max_length=1000), ATOMIC]
    """Domains; the assignment is all slices in their order."""
