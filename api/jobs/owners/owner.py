"""An object of one of the table's kinds as a frozen value."""

from __future__ import annotations

from dataclasses import dataclass

from api.jobs.owners.paths import Body, value_at
from api.jobs.owners.row import Child, OwnerKind
from api.jobs.queued_object import QueuedJob
from api.keys import EXPECTED_COMPLETION_TIME
from api.objects.cluster import OwnerObject
from api.workload import NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner(QueuedJob):
    """An object that is started and stopped as a whole. Its pod sets are read from its bytes when needed.

    `is_on_hold`: its controller refuses to run it as it is, so it needs no quota.
    """

    row: OwnerKind
    is_on_hold: bool = False


def counts(row: OwnerKind, body: Body, child: Child) -> bool:
    """Return whether the Workload of an owner, as expanded, counts an object that names it."""
    try:
        return row.counts(body, child)
    except (AttributeError, KeyError, TypeError, ValueError):
        # One of the two is malformed, and its own composition reports that.
        return False


def to_owner(row: OwnerKind, obj: OwnerObject) -> Owner:
    """Return the object as a value. Raises ValueError if its status cannot be read."""
    meta, body = obj.metadata, {"spec": obj.spec or {}, "status": obj.status or {}}
    try:
        active, outcome, is_on_hold = row.active(body), row.outcome(body), row.is_on_hold(body)
        completes_at = row.completes_at(body)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"the status of the {row.kind} cannot be read: {error!r}") from error
    annotations = meta.annotations or NOTHING
    # What its author says takes precedence over its status, which is an estimate of its framework.
    if completes_at is not None and EXPECTED_COMPLETION_TIME not in annotations:
        annotations = {**annotations, EXPECTED_COMPLETION_TIME: completes_at}
    return Owner(
        row=row,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        generation=meta.generation,
        labels=meta.labels or NOTHING,
        annotations=annotations,
        owner=meta.controller,
        is_deleted=meta.deletion_timestamp is not None,
        is_suspended=value_at(body, row.suspend) is True,
        active=active,
        outcome=outcome,
        is_on_hold=is_on_hold,
    )
