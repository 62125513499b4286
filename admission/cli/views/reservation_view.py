"""Advance reservations as people want to see them: what is kept for whom, from when to when, or why not.

What is asked for stands in the policy's spec; its status says what became of it and who uses it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from admission.cli.views.policy_view import policy_rows
from api.objects import Wire
from api.policy_objects import AdmissionPolicyObject
from api.workload import to_seconds


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
    """One reservation. `state` is upcoming, active, over, refused, or unknown: no controller has said yet.

    `message` is why it is refused or unknown; `users` are the first of the `user_count` Workloads in it.
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
    """Return a row for each reservation, by start; `now` is in Unix seconds."""
    rows = [row for policy in policies for row in _rows_of(policy, now)]
    return tuple(sorted(rows, key=lambda row: (row.start, row.policy, row.name)))


def _rows_of(policy: AdmissionPolicyObject, now: float) -> Iterator[ReservationRow]:
    (shown,) = policy_rows([policy])
    known = {entry.name: entry for entry in _entries(policy)}
    for one in _reservations(policy):
        entry = known.get(one.name)
        if entry is None:
            # A policy that is not in force has no calendar, and says why it is not.
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
            # By the clock, whether or not a controller is there to write it.
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


def _reservations(policy: AdmissionPolicyObject) -> tuple[_Reservation, ...]:
    try:
        return msgspec.json.decode(policy.spec, type=_Spec).reservations or ()
    except msgspec.DecodeError:
        # The API server checks them; what came past it is named by the policy's condition.
        return ()


def _entries(policy: AdmissionPolicyObject) -> tuple[_Entry, ...]:
    try:
        return msgspec.json.decode(policy.status, type=_Status).reservations or ()
    except msgspec.DecodeError:
        return ()
