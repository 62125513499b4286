"""Answers of the flavor search that are worth caching, with the questions that they depend on.

For each cell of the quota tree a search asks: does this amount fit, and how far up would it borrow?
Everything else it reads (taints, labels, the flavors' order) changes only with the specs. So a later search
for the same shape has the same result where these questions have the same answers, and asking them again
costs a few additions:

    found room    `RememberedAssignment`   every amount still fits, and borrows from the same height
    found none    `Impasse`                what was missing still is, and no Workload can be evicted

`admission.flavors.assignment_cache` asks them again, and decides when each result may be used. The minimum
that a shape needs (`Needs`) is checked before any search, see `admission.flavors.feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from admission.decisions.assignment import Assignment
from admission.decisions.flavor_mode import Grade, Granular
from admission.placement.topology.request import PlacementRequest
from api.reasons import PendingReason
from queues.quota.quota_tree import BorrowHeight, QuotaCell
from queues.quota.resources import FlavorResource


class RememberedStep(NamedTuple):
    """The answer that `amount`, earlier pod sets included, fits the cell and borrows from that height."""

    cell: QuotaCell
    amount: int
    height: int


@dataclass(slots=True, kw_only=True)
class RememberedAssignment:
    """What a search for a shape found, admission included, and the questions whose answers it depends on."""

    steps: tuple[RememberedStep, ...]
    found: Assignment


class QuotaAnswer(NamedTuple):
    """One question of quota and its answer: does `total` of `pair`, earlier pod sets included, fit the cell?

    `reach` is how far up the tree it would borrow, None where that does not matter because even an empty tree
    could not give so much. `message` says what is missing, `reason` is set where no eviction would help.
    """

    pair: FlavorResource
    cell: QuotaCell
    total: int
    reach: BorrowHeight | None
    grade: Grade
    message: str = ""
    reason: PendingReason | None = None

    @property
    def is_lasting(self) -> bool:
        """Whether the grade follows from the question alone once no Workload can be evicted."""
        return self.grade.mode not in (Granular.PREEMPT, Granular.RECLAIM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Impasse:
    """The result of a search for a shape that ended without room and without victims.

    `pairs` are those for which evictions were considered.
    """

    weighed: tuple[QuotaAnswer, ...]
    found: Assignment
    pairs: frozenset[FlavorResource]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One flavor for a pod set: the amounts it takes of which cells, and its placement request, if any."""

    flavor: str
    amounts: tuple[tuple[QuotaCell, int], ...]
    request: PlacementRequest | None


# For each pod set and each resource group that it requests, one of these options is needed.
# `admission.flavors.feasibility` computes and checks them.
Needs = tuple[tuple[Option, ...], ...]
