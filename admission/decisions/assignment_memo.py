"""Answers of the flavor search that are worth keeping, with the questions that they hang on.

A search asks each cell of the quota tree: is there room for so much, and how far up would it borrow? Whatever
else it looks at (taints, labels, the flavors' order) changes with the specs alone. So a later search for the
same shape ends alike where these questions are answered alike, and asking them again costs a few additions:

    found room    `RememberedAssignment`   every amount fits as it did, and borrows from as high
    found none    `Impasse`                what was missing still is, and no Workload can be evicted

Who may use which of them, and when, is said in `admission.flavors.assignment_cache`. What a shape needs at
least (`Needs`) is asked before any search, see `admission.flavors.feasibility`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from admission.decisions.assignment import Assignment
from admission.decisions.flavor_mode import Grade, Granular
from admission.placement.topology.request import PlacementRequest
from api.parsing.quantities import to_text
from api.reasons import PendingReason
from api.workload import Admission
from queues.quota.quota_tree import BorrowHeight, QuotaCell
from queues.quota.resources import FlavorResource


class RememberedStep(NamedTuple):
    """That `amount`, with what earlier pod sets take, fitted into the cell and borrowed from that height."""

    cell: QuotaCell
    amount: int
    height: int


@dataclass(slots=True, kw_only=True)
class RememberedAssignment:
    """What a search for a shape found, and the questions whose answers it hangs on."""

    steps: tuple[RememberedStep, ...]
    found: Assignment
    admission: Admission

    def holds(self) -> bool:
        """Return whether every question has the answer of then."""
        for cell, amount, height in self.steps:
            if amount > 0 and amount > cell.available:
                return False
            if cell.borrow_height(amount).height != height:
                return False
        return True


class Weighed(NamedTuple):
    """One question of quota and its answer: does `total` of `pair`, earlier pod sets included, fit the cell?

    `reach` is how far up the tree it would borrow, None where that does not matter: not even the empty tree
    could give so much. `message` says what lacks, `reason` is its word where no eviction would help.
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
        """Whether the grade follows from the question alone once nobody can be evicted."""
        return self.grade.mode not in (Granular.PREEMPT, Granular.RECLAIM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Impasse:
    """What a search for a shape found that ended without room and without victims.

    `pairs` are those for which evictions were considered.
    """

    weighed: tuple[Weighed, ...]
    found: Assignment
    pairs: frozenset[FlavorResource]

    def renamed(self) -> dict[str, str] | None:
        """Return which messages read differently now, None where another question has another answer.

        How much lacks is part of the message and moves with every admission; whether it lacks decides.
        """
        changed: dict[str, str] = {}
        for pair, cell, total, reach, grade, message, _ in self.weighed:
            if reach is None:
                continue
            lack = total - max(0, cell.available)
            if (lack <= 0) is not (grade.mode is Granular.FIT) or cell.borrow_height(total) != reach:
                return None
            if lack > 0 and (now := lack_message(pair, lack)) != message:
                changed[message] = now
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One flavor for a pod set: what it takes of which cells, and the request to its nodes, if it has any."""

    flavor: str
    amounts: tuple[tuple[QuotaCell, int], ...]
    request: PlacementRequest | None


# For each pod set and each resource group that it asks for one of
# these is needed (`admission.flavors.feasibility`).
Needs = tuple[tuple[Option, ...], ...]


def lack_message(pair: FlavorResource, lack: int) -> str:
    """Return the sentence for an amount that others use now."""
    return (
        f"insufficient unused quota for {pair.resource} in flavor {pair.flavor}, "
        f"{to_text(pair.resource, lack)} more needed"
    )
