"""Promised starts, and entries of the decision log, as items of a list."""

from __future__ import annotations

from collections.abc import Iterator

from admission.answers.items import DecisionItem, PromiseItem, instant
from admission.engine.engine import Engine
from api.parsing.times import to_rfc3339
from queues.profile.planned_start import PlannedStart
from queues.reservations.reservations import LoggedDecision


def promise_items(engine: Engine) -> Iterator[PromiseItem]:
    """Yield all promises, the highest rank first."""
    return map(promise_item, engine.promises.plan()[0])


def promise_item(planned: PlannedStart) -> PromiseItem:
    """Return a promised start as an item."""
    return PromiseItem(
        namespace=planned.key.namespace,
        name=planned.key.name,
        cluster_queue=planned.cluster_queue,
        start_at=to_rfc3339(planned.start_at),
        first_start_at=to_rfc3339(planned.first_start_at),
        made_at=to_rfc3339(planned.made_at),
        domain=planned.domain,
        borrows=planned.borrows,
        moves=planned.moves,
        cause=planned.cause,
    )


def decision_item(one: LoggedDecision) -> DecisionItem:
    """Return an entry of the decision log as an item."""
    return DecisionItem(
        at=to_rfc3339(one.at),
        by=one.by,
        fence=one.fence,
        cycle=one.cycle,
        namespace=one.key.namespace,
        name=one.key.name,
        decision=one.what,
        reason=one.reason,
        message=one.message,
        start_at=instant(one.start_at),
    )
