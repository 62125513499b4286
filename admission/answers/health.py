"""Health: whether the replica that answers works, and which objects are of no use as they are."""

from __future__ import annotations

from itertools import islice

from admission.answers.items import Item
from admission.answers.sight import Sight, scope_of
from admission.engine.engine import Engine

# More are of no use on a screen; the others are counted.
MOST_PROBLEMS = 100


class ReplicaItem(Item, frozen=True, kw_only=True):
    """The replica that answers. `role` is leader, follower or standalone.

    `waitingFor` are the kinds that it has not listed yet, `failedWatches` those whose changes do not arrive
    now. `isStoreUp` says whether Redis answers, null where the replica does not lead.
    """

    name: str
    role: str
    version: str
    waiting_for: tuple[str, ...] = ()
    failed_watches: tuple[str, ...] = ()
    is_store_up: bool | None = None


class ProblemItem(Item, frozen=True, kw_only=True):
    """An object that is of no use as it is, with the reason; `namespace` "" where its kind has none."""

    kind: str
    namespace: str
    name: str
    message: str


class StartsItem(Item, frozen=True, kw_only=True):
    """How many Workloads started inside the interval that was first shown for them, before, and after it."""

    inside: int
    early: int
    late: int


class Health(Item, frozen=True, kw_only=True):
    """The health of a replica, and of the objects that the caller may see; `more` problems are not listed.

    `starts` counts since this replica decides.
    """

    replica: ReplicaItem
    starts: StartsItem
    problems: tuple[ProblemItem, ...]
    more: int


def health(engine: Engine, replica: ReplicaItem, sight: Sight) -> Health:
    """Return the health, with the objects that the sight reaches."""
    scope, accuracy = scope_of(engine, sight), engine.promises.start_accuracy()

    def is_seen(kind: str, namespace: str, name: str) -> bool:
        if namespace:
            return sight.sees(namespace)
        return scope.sees_cluster_queue(name) if kind == "ClusterQueue" else sight.sees_all

    seen = (one for one in engine.queues.problems() if is_seen(one.kind, one.namespace, one.name))
    listed = tuple(
        ProblemItem(kind=one.kind, namespace=one.namespace, name=one.name, message=one.message)
        for one in islice(seen, MOST_PROBLEMS)
    )
    return Health(
        replica=replica,
        starts=StartsItem(inside=accuracy.inside, early=accuracy.early, late=accuracy.late),
        problems=listed,
        more=sum(1 for _ in seen),
    )
