"""Quota reservations: quota held between a decision and the moment when the cluster shows it.

A cycle's decisions are reserved before any of them is written to the cluster. A leader that dies in between
thus leaves a record of what it was about to do, and its successor replays or releases it. A reservation holds
no quota counter: a second source of truth beside the Workloads would drift.

The store is guarded by a *fence*, the number of the lease that its caller holds. It remembers the highest
fence that was presented and refuses lower ones, so a leader that was replaced while it was suspended cannot
reserve. Every write may be repeated: a commit is identified by its request id, and the others state a
result, not a change.

This module holds the values, the contract of a store (`ReservationStore`) and its errors:

    ReservationError
    ├── StoreUnreachable    no answer in time: it is unknown whether the last call took effect
    ├── StoreRefused        an answer, but no service: credentials, memory, disk, a read-only replica
    ├── FenceTooLow         another leader has taken over since
    ├── NoFence             the store is new or was emptied; a leader must seed it
    ├── CorruptValue        a key of Berth's holds a value that Berth did not write
    └── BadStoreUrl         the store's address cannot be parsed

The model that every store must agree with is `queues.reservations.memory_reservations`. The Redis store is in
`queues.store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from api.workload import WorkloadKey

# A reservation belongs to one uid of a Workload. A Workload deleted and created again under the same name has
# another uid, so a reservation of the old one does not block it.
ReservationId = tuple[WorkloadKey, str]

# About how many log entries a store keeps. At 48 decisions a second these are the last minutes,
# in about 2 MB.
LOG_LENGTH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReservation:
    """Quota held for one Workload, with the API request that will write the admission to the cluster.

    `verb`, `path`, `content_type` and `write` are that request to the byte. A new leader reads the
    decision from it and writes that onto the same version, but trusts no amount in it. `resource_version` is
    the version that the decision was made on, so of two writes at most one succeeds. `request_id` names the
    commit and is one word. `reserved_at` is in Unix seconds.
    """

    key: WorkloadKey
    uid: str
    resource_version: str
    request_id: str
    fence: int
    reserved_at: float
    verb: str
    path: str
    content_type: str = "application/json"
    write: bytes

    @property
    def id(self) -> ReservationId:
        """The Workload and its uid."""
        return self.key, self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """One line of the decision log: at `at` (Unix seconds), `by` (a leader's identity) decided `what`.

    `what` names the decision (Admit, Evict, …), `reason` is its reason word, `message` the sentence.
    `cycle` counts the leader's cycles under this fence. `start_at` is the promised start (Unix
    seconds), None without one.
    """

    at: float
    by: str
    fence: int
    key: WorkloadKey
    uid: str
    what: str
    reason: str = ""
    message: str = ""
    cycle: int = 0
    start_at: float | None = None


class LostReason(StrEnum):
    """Why a reservation was not made."""

    ALREADY_RESERVED = "AlreadyReserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserved:
    """The quota is held. `is_duplicate`: this same request had reserved it before, and its reply was lost."""

    request_id: str
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The quota is not held for this request. A result, not an error: the others of its cycle proceed."""

    reason: LostReason
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLife:
    """Which life of which server answers, and which one holds all that was acknowledged.

    `present` changes when the server restarts or is replaced by a replica, after which its last writes may be
    missing. `complete` is the life for which a leader last vouched; None: no leader has.
    """

    present: str
    complete: str | None

    @property
    def is_complete(self) -> bool:
        """Whether nothing that was acknowledged can be missing."""
        return self.present == self.complete


def already_reserved(reservation: QuotaReservation, *, holder: str, holder_fence: int) -> Lost:
    """Return the answer to a reservation whose Workload the request `holder` has already reserved."""
    return Lost(
        reason=LostReason.ALREADY_RESERVED,
        message=f"{reservation.key} is already reserved by request {holder} under fence {holder_fence}",
    )


class ReservationError(Exception):
    """The base of all errors of the store. The message is one sentence and names the fix."""


class StoreUnreachable(ReservationError):
    """The store gave no answer in time. The call may have taken effect, or take effect later."""


class StoreRefused(ReservationError):
    """The store answered that it cannot serve. That lasts until the cause named in the message is fixed."""


class FenceTooLow(ReservationError):
    """A leader with a higher fence has used the store. Stop leading, or raise the lease above that fence."""

    def __init__(self, *, fence: int, highest: int) -> None:
        super().__init__(f"fence {fence} is too low, the store has seen {highest}: another leader came later")
        self.fence = fence
        self.highest = highest


class NoFence(ReservationError):
    """The store knows no fence. Only a leader that renewed its lease after this answer may seed one."""

    def __init__(self) -> None:
        super().__init__(
            "the store knows no fence, it is new or was emptied: a leader that has just renewed seeds it"
        )


class CorruptValue(ReservationError):
    """`key` holds something other than `expected`. It must be deleted by its owner.

    `is_unsigned`: it does not carry this installation's signature.
    """

    def __init__(self, key: str, *, expected: str, is_unsigned: bool = False) -> None:
        super().__init__(f"{key} in the store does not hold {expected}: find out who wrote it and delete it")
        self.key = key
        self.expected = expected
        self.is_unsigned = is_unsigned


class BadStoreUrl(ReservationError, ValueError):
    """The address of the store cannot be parsed. The message shows the form of a valid one."""


class ReservationStore(Protocol):
    """The contract of a store of reservations.

    Any call may raise StoreUnreachable or StoreRefused, and CorruptValue where a key holds a foreign value. A
    call with a fence may also raise FenceTooLow or NoFence, and then has changed nothing. A fence higher than
    the remembered one is remembered from then on. After StoreUnreachable the same call may be repeated.
    """

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve for a whole cycle in one step. Return one answer for each reservation, in order.

        Only a Workload that another request has reserved gets Lost; the others are reserved all the same. A
        repeated request id gets its first answer again and changes nothing. `log` is appended to the decision
        log, except for Workloads that got Lost. Raises ValueError where `check_commit` does.
        """

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows by now. Unknown ids are ignored."""

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn, or rejected by the API server."""

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make `held` reserved, whatever held the Workloads before, and `gone` not reserved.

        For a leader that decided without the store for a while. It proves that the store accepts writes, even
        where there is nothing to change.
        """

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations, oldest first, then by key. Unreadable ones are reported and dropped."""

    async def highest_fence(self) -> int | None:
        """Return the highest fence ever presented to the store; None where it knows none."""

    async def seed_fence(self, fence: int) -> None:
        """Remember `fence` where there is none or a lower one; FenceTooLow where there is a higher one."""

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` entries of the decision log, the newest first."""

    async def ping(self) -> None:
        """Return when the store answers."""

    async def close(self) -> None:
        """Close connections. The store must not be used afterwards."""


class LivingStore(Protocol):
    """What a server says of its own life. Errors are those of `ReservationStore`."""

    async def life(self) -> ServerLife:
        """Return the life of the server. It needs no fence."""

    async def vouch(self, life: str, *, fence: int) -> None:
        """Note that the store holds all that was acknowledged, if it is still in this `life`.

        `life` is `ServerLife.present` as of before everything was written back: if the server has restarted
        since, it stays incomplete.
        """


def check_commit(reservations: Sequence[QuotaReservation], *, fence: int, request_id: str) -> None:
    """Raise ValueError for a commit that no cycle can produce.

    That is a commit with a request id that is not one word, with a reservation whose request id or fence
    differs from the call's, or with two reservations of one Workload.
    """
    if not request_id or len(request_id.split()) != 1:
        # The request id is part of a space-separated line of the stored value (`queues.store.encoding`).
        raise ValueError(f"request id {request_id!r} is not one word")
    for reservation in reservations:
        if (reservation.request_id, reservation.fence) != (request_id, fence):
            raise ValueError(
                f"reservation of {reservation.key} carries request {reservation.request_id} and fence "
                f"{reservation.fence}, its commit {request_id} and {fence}"
            )
    if len({reservation.id for reservation in reservations}) < len(reservations):
        # The store would report the second as held by another request. A cycle that decides twice on one
        # Workload is a programming error.
        raise ValueError(f"request {request_id} reserves a Workload twice")


def check_repeated(request_id: str, *, answers: int, reservations: int) -> None:
    """Raise ValueError where a repeated request id has another number of reservations than the first time."""
    if answers != reservations:
        raise ValueError(
            f"request {request_id} was for {answers} reservations and comes back with {reservations}"
        )


def logged(
    log: Sequence[LoggedDecision],
    reservations: Sequence[QuotaReservation],
    answers: Sequence[Reserved | Lost],
) -> tuple[LoggedDecision, ...]:
    """Return the entries that a commit appends: all except those of Workloads that got Lost."""
    # Matched by Workload and uid, because a log entry names no request.
    lost = {r.id for r, answer in zip(reservations, answers, strict=True) if isinstance(answer, Lost)}
    return tuple(entry for entry in log if (entry.key, entry.uid) not in lost)
