"""The tree of Cohorts and ClusterQueues with their quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.answers.items import ClusterQueueItem, CohortItem, QuotaItem
from api.parsing.quantities import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """What a quota is used for, in hundredths of its drawing: own use, borrowed, over it, lent."""

    own: float
    borrowed: float
    over: float
    lent: float


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """A quota and its drawing."""

    item: QuotaItem
    shares: Shares


@dataclass(frozen=True, slots=True)
class QuotaNode:
    """A Cohort with what is below it, or a ClusterQueue."""

    item: CohortItem | ClusterQueueItem
    is_queue: bool
    lines: tuple[QuotaLine, ...]
    children: tuple[QuotaNode, ...] = ()


def quota_trees(cohorts: Iterable[CohortItem], queues: Iterable[ClusterQueueItem]) -> tuple[QuotaNode, ...]:
    """Return the trees, those with a Cohort first. A parent that the caller may not see counts as none."""
    known = {one.name: one for one in cohorts}
    below: dict[str | None, list[CohortItem]] = {}
    for cohort in known.values():
        below.setdefault(cohort.parent if cohort.parent in known else None, []).append(cohort)
    leaves: dict[str | None, list[ClusterQueueItem]] = {}
    for queue in queues:
        leaves.setdefault(queue.cohort if queue.cohort in known else None, []).append(queue)
    roots = tuple(_node(one, below, leaves) for one in below.get(None, ()))
    return roots + tuple(_leaf(one) for one in leaves.get(None, ()))


def _node(
    cohort: CohortItem,
    below: Mapping[str | None, Sequence[CohortItem]],
    leaves: Mapping[str | None, Sequence[ClusterQueueItem]],
) -> QuotaNode:
    cohorts = tuple(_node(one, below, leaves) for one in below.get(cohort.name, ()))
    queues = tuple(_leaf(one) for one in leaves.get(cohort.name, ()))
    return QuotaNode(cohort, False, quota_lines(cohort.quotas), cohorts + queues)


def _leaf(queue: ClusterQueueItem) -> QuotaNode:
    return QuotaNode(queue, True, quota_lines(queue.quotas))


def quota_lines(quotas: Iterable[QuotaItem]) -> tuple[QuotaLine, ...]:
    """Return each quota with its drawing."""
    return tuple(QuotaLine(one, _shares(one)) for one in quotas)


def _shares(one: QuotaItem) -> Shares:
    nominal, used, borrowed, over, lent = (
        amount(one.resource, text) for text in (one.nominal, one.used, one.borrowed, one.over, one.lent)
    )
    scale = 100 / max(nominal, used + lent, 1)
    own = max(0, used - borrowed - over)
    return Shares(
        own=round(own * scale, 1),
        borrowed=round(borrowed * scale, 1),
        over=round(over * scale, 1),
        lent=round(lent * scale, 1),
    )
