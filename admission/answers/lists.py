"""The lists: where their items come from, who sees them, what each can be filtered and sorted by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, TypeVar

from admission.answers.items import (
    ClusterQueueItem,
    CohortItem,
    DecisionItem,
    Item,
    ItemT,
    Kind,
    LocalQueueItem,
    Page,
    PromiseItem,
    RackItem,
    WorkloadItem,
)
from admission.answers.promise_items import promise_items
from admission.answers.queue_items import as_seen, cluster_queue_items, cohort_items, local_queue_items
from admission.answers.rack_items import rack_items
from admission.answers.selection import Choices, Key, Ranked, Selection, order_of, page_of, ranked, selects
from admission.answers.sight import EVERYTHING, Scope, Sight, scope_of
from admission.answers.workload_items import WorkloadItems, status_of
from admission.engine.engine import Engine
from api.workload import Workload

T = TypeVar("T")
# The filters of a selection, by name.
Filters = tuple[tuple[str, str], ...]
# How many selections of one state are kept: more than clients ask for at once, and few in bytes.
_MOST_KEPT = 32
# Sorts what has no value behind all that has one. Finite, as the token of a page holds it as JSON.
_LAST = 1e18
# The filters whose hidden items are counted: values of the others are names that a caller may not know.
_COUNTED = frozenset({"status", "clusterQueue"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed(Generic[T]):
    """One list. `entries` are what is filtered and sorted; `item` makes an item of one, for the page."""

    item_type: type[Item]
    entries: Callable[[Lists], Iterable[T]]
    item: Callable[[Lists, Sight], Callable[[T], Item]]
    is_seen: Callable[[Scope, T], bool]
    choices: Callable[[Lists], Choices[T]]


class Lists:
    """The lists of an engine that does not change meanwhile. What one page has computed serves the next."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.workload_items = WorkloadItems(engine)
        self._ranked: dict[tuple[Kind, str], Ranked[Any]] = {}
        self._wanted: dict[tuple[Kind, str, Filters], Ranked[Any]] = {}

    def page(self, kind: Kind, sight: Sight, selection: Selection) -> Page[Any]:
        """Return a page of a list, as the sight allows. Raises BadSelectionError.

        The decision log is not in an engine: see `decision_page`.
        """
        order = order_of(selection, choices_of(kind))
        return _page(self, LISTS[kind], self._selected(kind, order, selection), sight, selection)

    def prepare(self) -> None:
        """Compute ahead what most ask for."""
        for kind, order, filters in _COMMON:
            self.page(kind, EVERYTHING, Selection(sort=order, limit=1, filters=filters))

    def _selected(self, kind: Kind, order: str, selection: Selection) -> Ranked[Any]:
        """Return the entries that pass the filters, in order: of thousands, most of the work for a page."""
        entries = self._in_order(kind, order)
        if not selection.filters:
            return entries
        known = kind, order, tuple(sorted(selection.filters.items()))
        if known in self._wanted:
            return self._wanted[known]
        is_wanted = selects(LISTS[kind].choices(self), selection)
        found = [one for one in entries if is_wanted(one[1])]
        if len(self._wanted) < _MOST_KEPT:
            self._wanted[known] = found
        return found

    def _in_order(self, kind: Kind, order: str) -> Ranked[Any]:
        if (kind, order) not in self._ranked:
            listed = LISTS[kind]
            self._ranked[kind, order] = ranked(listed.entries(self), listed.choices(self), order)
        return self._ranked[kind, order]


_COMMON: tuple[tuple[Kind, str, Mapping[str, str]], ...] = (
    (Kind.WORKLOADS, "name", {}),
    (Kind.WORKLOADS, "name", {"status": "pending"}),
    (Kind.WORKLOADS, "position", {}),
    (Kind.WORKLOADS, "position", {"status": "pending"}),
    (Kind.CLUSTER_QUEUES, "name", {}),
    (Kind.LOCAL_QUEUES, "name", {}),
    (Kind.COHORTS, "name", {}),
)


def decision_page(
    decisions: Iterable[DecisionItem], sight: Sight, selection: Selection
) -> Page[DecisionItem]:
    """Return a page of the decision log, the newest first by default. Raises BadSelectionError."""
    listed = _own(DecisionItem, lambda _: (), DECISION_CHOICES, _by_namespace)
    is_wanted = selects(DECISION_CHOICES, selection)
    entries = ranked(filter(is_wanted, decisions), DECISION_CHOICES, order_of(selection, DECISION_CHOICES))
    found: Page[DecisionItem] = _page(Lists(Engine()), listed, entries, sight, selection)
    return found


def _page(
    lists: Lists, listed: Listed[Any], wanted: Ranked[Any], sight: Sight, selection: Selection
) -> Page[Any]:
    scope, is_seen = scope_of(lists.engine, sight), listed.is_seen
    seen = wanted if sight.sees_all else [one for one in wanted if is_seen(scope, one[1])]
    found, continue_ = page_of(seen, selection)
    return Page(
        items=tuple(map(listed.item(lists, sight), found)),
        total=len(seen),
        hidden=len(wanted) - len(seen) if _counts_hidden(scope, selection) else 0,
        continue_=continue_,
    )


def _counts_hidden(scope: Scope, selection: Selection) -> bool:
    """Return whether the number of hidden items tells no names: that of all, or of a queue of the scope."""
    queues = selection.filters.get("clusterQueue")
    return selection.filters.keys() <= _COUNTED and (
        queues is None or all(map(scope.sees_cluster_queue, queues.split(",")))
    )


@cache
def choices_of(kind: Kind) -> Choices[Any]:
    """Return what the list can be filtered and sorted by. Its functions are of no use without an engine."""
    # Kept, since each request asks, and an engine of its own takes longer than everything else that is asked.
    return DECISION_CHOICES if kind is Kind.DECISIONS else LISTS[kind].choices(Lists(Engine()))


def item_type(kind: Kind) -> type[Item]:
    """Return the class of the list's items."""
    return DecisionItem if kind is Kind.DECISIONS else LISTS[kind].item_type


# --- what each list can be filtered and sorted by -----------------------------------------------------------


def _as_it_is(_: object) -> Key:
    """Return no key: the identity alone decides."""
    return ()


def _workload_choices(lists: Lists) -> Choices[Workload]:
    items, promises = lists.workload_items, lists.engine.promises
    return Choices(
        identity=lambda one: one.key,
        filters={
            "namespace": lambda one: one.key.namespace,
            "name": lambda one: one.key.name,
            "localQueueName": lambda one: one.queue_name,
            "clusterQueue": items.cluster_queue,
            "status": status_of,
            "ownerKind": lambda one: one.owner_kind or "",
            "ownerName": lambda one: one.owner_name or "",
        },
        orders={
            "name": _as_it_is,
            "position": lambda one: (items.cluster_queue(one), items.position(one) or _LAST),
            "priority": lambda one: (one.priority,),
            "createdAt": lambda one: (one.created_at,),
            "expectedStart": lambda one: (promises.expected_start(one.key) or _LAST,),
        },
    )


_CLUSTER_QUEUES: Choices[ClusterQueueItem] = Choices(
    identity=lambda one: (one.name,),
    filters={"name": lambda one: one.name, "cohort": lambda one: one.cohort or ""},
    orders={
        "name": _as_it_is,
        "pending": lambda one: (one.pending,),
        "admitted": lambda one: (one.admitted,),
        "weightedShare": lambda one: (one.weighted_share,),
    },
)
_LOCAL_QUEUES: Choices[LocalQueueItem] = Choices(
    identity=lambda one: (one.namespace, one.name),
    filters={
        "namespace": lambda one: one.namespace,
        "name": lambda one: one.name,
        "clusterQueue": lambda one: one.cluster_queue,
    },
    orders={
        "name": _as_it_is,
        "pending": lambda one: (one.pending,),
        "admitted": lambda one: (one.admitted,),
    },
)
_COHORTS: Choices[CohortItem] = Choices(
    identity=lambda one: (one.name,),
    filters={"name": lambda one: one.name, "parent": lambda one: one.parent or ""},
    orders={"name": _as_it_is, "admitted": lambda one: (one.admitted,)},
)
_RACKS: Choices[RackItem] = Choices(
    identity=lambda one: (one.flavor, one.domain),
    filters={
        "flavor": lambda one: one.flavor,
        "level": lambda one: one.level,
        "domain": lambda one: one.domain,
    },
    orders={
        "name": _as_it_is,
        "freeGpus": lambda one: (one.free_gpus,),
        "freeNodes": lambda one: (one.free_nodes,),
    },
)
_PROMISES: Choices[PromiseItem] = Choices(
    identity=lambda one: (one.namespace, one.name),
    filters={
        "namespace": lambda one: one.namespace,
        "name": lambda one: one.name,
        "clusterQueue": lambda one: one.cluster_queue,
    },
    orders={
        "startAt": lambda one: (one.start_at,),
        "name": _as_it_is,
        "moves": lambda one: (one.moves,),
    },
)
DECISION_CHOICES: Choices[DecisionItem] = Choices(
    # The begin of the sentence, so that a page's token is short.
    identity=lambda one: (one.fence, one.cycle, one.namespace, one.name, one.decision, one.message[:256]),
    filters={
        "namespace": lambda one: one.namespace,
        "name": lambda one: one.name,
        "workload": lambda one: f"{one.namespace}/{one.name}",
        "what": lambda one: one.decision,
        "reason": lambda one: one.reason,
        "by": lambda one: one.by,
    },
    # Text of one length in UTC, whose letters are turned around so that the newest comes first.
    orders={"newest": lambda one: (_newest(one.at),), "at": lambda one: (one.at,)},
)


def _newest(at: str) -> str:
    return "".join(chr(0x7F - ord(sign)) for sign in at)


# --- the table ----------------------------------------------------------------------------------------------


def _by_namespace(scope: Scope, one: Any) -> bool:
    return scope.sight.sees(one.namespace)


def _own(
    item_type: type[ItemT],
    entries: Callable[[Engine], Iterable[ItemT]],
    choices: Choices[ItemT],
    is_seen: Callable[[Scope, ItemT], bool],
    as_seen: Callable[[ItemT, Sight], Item] = lambda one, _: one,
) -> Listed[ItemT]:
    """Return a list whose entries are its items. `as_seen` takes out of one what the sight does not reach."""

    return Listed(
        item_type=item_type,
        entries=lambda lists: entries(lists.engine),
        item=lambda _, sight: lambda one: as_seen(one, sight),
        is_seen=is_seen,
        choices=lambda _: choices,
    )


LISTS: Mapping[Kind, Listed[Any]] = {
    Kind.WORKLOADS: Listed(
        item_type=WorkloadItem,
        entries=lambda lists: lists.engine.workloads.workloads(),
        item=lambda lists, _: lists.workload_items.item,
        is_seen=lambda scope, one: scope.sight.sees(one.key.namespace),
        choices=_workload_choices,
    ),
    Kind.CLUSTER_QUEUES: _own(
        ClusterQueueItem,
        cluster_queue_items,
        _CLUSTER_QUEUES,
        lambda scope, one: scope.sees_cluster_queue(one.name),
        as_seen,
    ),
    Kind.LOCAL_QUEUES: _own(LocalQueueItem, local_queue_items, _LOCAL_QUEUES, _by_namespace),
    Kind.COHORTS: _own(CohortItem, cohort_items, _COHORTS, lambda scope, one: scope.sees_cohort(one.name)),
    Kind.RACKS: _own(RackItem, rack_items, _RACKS, lambda scope, one: scope.sees_flavor(one.flavor)),
    Kind.PROMISES: _own(PromiseItem, promise_items, _PROMISES, _by_namespace),
}
