"""Advance reservations as people want to see them: what is kept for whom, from when to when, or why not.

Worked out from the policies alone. Whether one is kept stands in its policy's condition `Accepted`, which
names every reservation that keeps nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from admission.cli.policy_view import policy_rows
from api.objects import Wire
from api.policyspec import AdmissionPolicyObject
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationRow:
    """One reservation. `state` is unknown, refused, upcoming, kept or ended; `message` why it is refused."""

    name: str
    policy: str
    namespace: str
    local_queue: str
    keeps: tuple[str, ...]
    start: str
    end: str
    state: str
    message: str = ""


def reservation_rows(policies: Iterable[AdmissionPolicyObject], *, now: float) -> tuple[ReservationRow, ...]:
    """Return a row for each reservation, by start; `now` is in Unix seconds."""
    rows = [row for policy in policies for row in _rows_of(policy, now)]
    return tuple(sorted(rows, key=lambda row: (row.start, row.policy, row.name)))


def _rows_of(policy: AdmissionPolicyObject, now: float) -> Iterator[ReservationRow]:
    (shown,) = policy_rows([policy])
    for index, one in enumerate(_reservations(policy)):
        problem = _problem(shown.message, index) if shown.accepted else shown.message
        yield ReservationRow(
            name=one.name,
            policy=shown.name,
            namespace=one.namespace,
            local_queue=one.local_queue,
            keeps=(f"domain {one.domain}",)
            if one.domain is not None
            else tuple(f"{each.amount} {each.flavor}/{each.resource}" for each in one.resources or ()),
            start=one.start,
            end=one.end,
            state=_state(one, now, accepted=shown.accepted, is_refused=bool(problem)),
            message=problem,
        )


def _state(one: _Reservation, now: float, *, accepted: bool | None, is_refused: bool) -> str:
    if to_seconds(one.end) <= now:
        return "ended"
    if accepted is None:
        return "unknown"
    if is_refused:
        return "refused"
    return "kept" if to_seconds(one.start) <= now else "upcoming"


def _problem(message: str, index: int) -> str:
    """Return what the condition says of the reservation, "" where it says nothing."""
    found = re.search(rf"spec\.reservations\[{index}\].*?; nothing is kept", message)
    if found is not None:
        return found.group()
    return next((part for part in message.split("; ") if f"spec.reservations[{index}]" in part), "")


def _reservations(policy: AdmissionPolicyObject) -> tuple[_Reservation, ...]:
    try:
        return msgspec.json.decode(policy.spec, type=_Spec).reservations or ()
    except msgspec.DecodeError:
        # The API server checks them; what came past it is named by the policy's condition.
        return ()
