"""Rows of `berth get reservations`: what is kept for which LocalQueue, from when to when, or why not.

The policy's spec has the reservation; its status has the state and the Workloads that use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from admission.cli.views.policy_view import decoded, policy_rows
from api.objects.common import Wire
from api.objects.policies import AdmissionPolicyObject
from api.parsing.times import to_seconds


class _Amount(Wire, frozen=True):
    flavor: str
    resource: str
    amount: str | int | float


class _Reservation(Wire, frozen=True):
    name: str
    namespace: str
    local_queue: str
    start: str
    end: str
    resources: tuple[_Amount, ...] | None = None
    domain: str | None = None


class _Spec(Wire, frozen=True):
    reservations: tuple[_Reservation, ...] | None = None


class _Entry(Wire, frozen=True):
    name: str
    state: str
    nodes: int | None = None
    user_count: int = 0
    users: tuple[str, ...] | None = None
    message: str = ""


class _Status(Wire, frozen=True):
    reservations: tuple[_Entry, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """One reservation. `state` is upcoming, active, over, refused, or unknown if no controller has set it.

    `message` says why it is refused or unknown; `users` are the first of the `user_count` Workloads in it.
    """

    name: str
    policy: str
    namespace: str
    local_queue: str
    keeps: tuple[str, ...]
    start: str
    end: str
    state: str
    user_count: int = 0
    users: tuple[str, ...] = ()
    message: str = ""


def reservation_rows(policies: Iterable[AdmissionPolicyObject], *, now: float) -> tuple[ReservationRow, ...]:
    """Return a row for each reservation, sorted by start; `now` is in Unix seconds."""
    rows = [row for policy in policies for row in _rows_of(policy, now)]
    return tuple(sorted(rows, key=lambda row: (row.start, row.policy, row.name)))


def _rows_of(policy: AdmissionPolicyObject, now: float) -> Iterator[ReservationRow]:
    (shown,) = policy_rows([policy])
    known = {entry.name: entry for entry in decoded(policy.status, _Status).reservations or ()}
    for one in decoded(policy.spec, _Spec).reservations or ():
        entry = known.get(one.name)
        if entry is None:
            # A policy that is not in force has no calendar; its condition says why.
            state = "refused" if shown.accepted is False else "unknown"
            entry = _Entry(name=one.name, state=state, message=shown.message if not shown.accepted else "")
        yield ReservationRow(
            name=one.name,
            policy=shown.name,
            namespace=one.namespace,
            local_queue=one.local_queue,
            keeps=tuple(_keeps(one, entry)),
            start=one.start,
            end=one.end,
            # Use the clock, because there may be no controller to update the state.
            state="over" if to_seconds(one.end) <= now else entry.state.lower(),
            user_count=entry.user_count,
            users=entry.users or (),
            message=entry.message,
        )


def _keeps(one: _Reservation, entry: _Entry) -> Iterator[str]:
    if one.domain is not None:
        nodes = f" ({entry.nodes} nodes)" if entry.nodes is not None else ""
        yield f"domain {one.domain}{nodes}"
    for each in one.resources or ():
        yield f"{each.amount} {each.flavor}/{each.resource}"
