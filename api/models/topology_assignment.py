"""TopologyAssignment: the domains of a pod set's pods, in a compact encoding for thousands of nodes.

An assignment is a list of domains, each with a pod count. A domain is identified by one value per level.
Values repeat (the same block) or have a common prefix (`block-7-rack-`), so a slice of domains stores the
common parts only once:

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

# The most domains of one slice: as many as one list of their values may have entries.
_MOST_VALUES = 100_000

ShortValue = Annotated[str, Field(max_length=63)]

_ONE_FORM = rule(
    "has(self.universal) != has(self.individual)",
    "exactly one of the fields in [universal individual] must be set",
)


class IndividualValues(Model):
    """Values that differ between domains; each is prefix + root + suffix."""

    prefix: ShortValue | None = None
    """Common prefix of all values."""
    roots: Annotated[list[ShortValue], Field(min_length=1, max_length=_MOST_VALUES), ATOMIC]
    """Remaining part of each value, one entry per domain."""
    suffix: ShortValue | None = None
    """Common suffix of all values."""


class LevelValues(Model):
    """Values of one level for all domains of a slice."""

    model_config = object_rules(_ONE_FORM)

    individual: IndividualValues | None = None
    """Values, if they differ between domains."""
    universal: ShortValue | None = None
    """Value, if all domains of the slice have the same one."""


class PodCounts(Model):
    """Number of pods in each domain of a slice."""

    model_config = object_rules(_ONE_FORM)

    individual: (
        Annotated[list[PositiveCount], Field(min_length=1, max_length=_MOST_VALUES), ATOMIC] | None
    ) = None
    """Numbers, one per domain, if they differ."""
    universal: PositiveCount | None = None
    """Number, if it is the same in all domains of the slice."""


class AssignmentSlice(Model):
    """A part of the domains, encoded together."""

    model_config = object_rules(
        rule(
            "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
            "valuesPerLevel.individual, if set, must have roots of length equal to domainCount of this"
            " TopologyAssignmentSlice",
        ),
        rule(
            "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
            "podCounts.individual must have length equal to domainCount",
        ),
    )

    domain_count: Annotated[PositiveCount, Field(le=_MOST_VALUES)]
    """Number of domains in this slice."""
    pod_counts: PodCounts
    """Number of pods in each domain."""
    values_per_level: Annotated[list[LevelValues], Field(min_length=1, max_length=16), ATOMIC]
    """Values of the domains, one entry per level."""


class TopologyAssignment(Model):
    """The domains in which the pods run."""

    model_config = object_rules(
        rule(
            "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
            "valuesPerLevel must have the same length as the number of levels in this TopologyAssignment",
        )
    )

    levels: Annotated[list[Annotated[str, Field(max_length=317)]], Field(min_length=1, max_length=16), ATOMIC]
    """Node labels that identify a domain, the widest level first; only the host if it is the lowest level."""
    slices: Annotated[list[AssignmentSlice], Field(max_length=1000), ATOMIC]
    """Slices of domains; the assignment is their concatenation."""
