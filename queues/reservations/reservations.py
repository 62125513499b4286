"""Quota reservations: what is held between a decision and the moment the cluster shows it.

A cycle's decisions are reserved before any of them is written to the cluster, so that a leader that dies in
between leaves behind what it was about to do, and its successor replays it or gives it back. The value keeps
no quota: a counter beside the Workloads would be a second truth, and it would drift.

The store is guarded by a *fence*, the number of the lease that its caller holds. It remembers the highest
fence it was shown and refuses lower ones; so a leader that was replaced while it slept cannot reserve. Every
write may be repeated: a commit is known by its request id, the others say what shall be, not what to change.

Here stand the values, the promises of a store (`ReservationStore`) and its errors:

    ReservationError
    ├── StoreUnreachable    no answer in time: nobody knows whether the last call took effect
    ├── StoreRefused        an answer, but no service: credentials, memory, disk, a read-only replica
    ├── FenceTooLow         another leader came after us
    ├── NoFence             the store is new or was emptied; a leader must seed it
    ├── CorruptValue        something that is not ours stands under one of our keys
    └── BadStoreUrl         the store's address cannot be read

The model that every store must agree with is `queues.reservations.memory_reservations`;
Redis lies behind `queues.store`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from api.workload import WorkloadKey

# A reservation belongs to one life of a Workload: one that is deleted and created anew under the same name
# has another uid, and nothing reserved for the old one stands in its way.
ReservationId = tuple[WorkloadKey, str]

# How many log entries a store keeps, about. At 48 decisions a second the last minutes, in some 2 MB.
LOG_LENGTH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaReservation:
    """Quota held for one Workload, with the request that will say so to the cluster.

    `verb`, `path`, `content_type` and `write` are that request to the byte: a new leader replays it as it is.
    `resource_version` is the version that the decision saw; the request carries it too, so that of two
    replays at most one counts. `request_id` names the commit, and is one word. `reserved_at` in Unix seconds.
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
        """Which Workload, in which of its lives."""
        return self.key, self.uid


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """One line of the decision log: at `at` (Unix seconds), `by` (a leader's identity) decided `what`.

    `what` is the decision's word (Admit, Evict, …), `reason` its reason word, `message` the sentence. `cycle`
    numbers the leader's rounds of decisions under this fence, `start_at` is the start that was promised.
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
    """The quota is held. `is_duplicate`: it already was, by this same request, whose reply had got lost."""

    request_id: str
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The quota is not held for this request. An answer, not a fault: the others of its cycle go on."""

    reason: LostReason
    message: str


def already_reserved(reservation: QuotaReservation, *, holder: str, holder_fence: int) -> Lost:
    """Return the answer to a reservation whose Workload another request, `holder`, has reserved."""
    return Lost(
        reason=LostReason.ALREADY_RESERVED,
        message=f"{reservation.key} is already reserved by request {holder} under fence {holder_fence}",
    )


class ReservationError(Exception):
    """The base of all that can go wrong with the store; the message is one sentence with the fix."""


class StoreUnreachable(ReservationError):
    """The store gave no answer in time. The call may have taken effect, or take effect later."""


class StoreRefused(ReservationError):
    """The store answered that it cannot serve; it will not, until somebody does what the message says."""


class FenceTooLow(ReservationError):
    """A leader with a higher fence has been at the store: lead no longer, or raise the lease above it."""

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
    """`key` holds something else than `expected`. Whoever wrote it must take it away."""

    def __init__(self, key: str, *, expected: str) -> None:
        super().__init__(f"{key} in the store does not hold {expected}: find out who wrote it and delete it")
        self.key = key
        self.expected = expected


class BadStoreUrl(ReservationError, ValueError):
    """The address of the store cannot be read; the message says what one looks like."""


class ReservationStore(Protocol):
    """What a store of reservations promises.

    Any call may raise StoreUnreachable or StoreRefused, and CorruptValue where a key of ours is taken. A call
    with a fence raises FenceTooLow or NoFence as well, and then has changed nothing; a fence higher than the
    remembered one is remembered from then on. After StoreUnreachable a call may be repeated as it was.
    """

    async def commit(
        self,
        reservations: Sequence[QuotaReservation],
        *,
        fence: int,
        request_id: str,
        log: Sequence[LoggedDecision] = (),
    ) -> tuple[Reserved | Lost, ...]:
        """Reserve for a whole cycle in one step; return one answer each, in order.

        Lost goes to a Workload that another request holds, alone: the rest is reserved all the same. The same
        request id is answered as the first time, and changes nothing. `log` is appended to the decision log,
        but for what was Lost. Raises ValueError where `check_commit` does.
        """

    async def confirm(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations that the cluster shows by now. Unknown ones are none of its business."""

    async def release(self, ids: Sequence[ReservationId], *, fence: int) -> None:
        """Delete reservations whose decision was withdrawn, or refused by the cluster."""

    async def restore(
        self, held: Sequence[QuotaReservation], gone: Sequence[ReservationId], *, fence: int
    ) -> None:
        """Make it so that `held` are reserved, whoever was before, and `gone` are not: the caller knows.

        For a leader that decided without the store for a while. It proves that the store takes writes, also
        where there is nothing to do.
        """

    async def live(self, *, fence: int) -> tuple[QuotaReservation, ...]:
        """Return all reservations, oldest first, then by key. What cannot be read is reported, dropped."""

    async def highest_fence(self) -> int | None:
        """Return the highest fence ever shown to the store; None when it knows none."""

    async def seed_fence(self, fence: int) -> None:
        """Remember `fence` where there is none, or a lower one. FenceTooLow where there is a higher one."""

    async def decisions(self, *, limit: int) -> tuple[LoggedDecision, ...]:
        """Return the last `limit` entries of the decision log, the newest first."""

    async def ping(self) -> None:
        """Return when the store answers."""

    async def close(self) -> None:
        """Let go of connections; the store is not used after."""


def check_commit(reservations: Sequence[QuotaReservation], *, fence: int, request_id: str) -> None:
    """Raise ValueError for a commit that no cycle can mean.

    That is one whose reservations carry another request id or fence than the call's, one that reserves a
    Workload twice, and a request id that is not one word.
    """
    if not request_id or len(request_id.split()) != 1:
        # The request id stands in a space-separated line of the stored value (`queues.store.encoding`).
        raise ValueError(f"request id {request_id!r} is not one word")
    for reservation in reservations:
        if (reservation.request_id, reservation.fence) != (request_id, fence):
            raise ValueError(
                f"reservation of {reservation.key} carries request {reservation.request_id} and fence "
                f"{reservation.fence}, its commit {request_id} and {fence}"
            )
    if len({reservation.id for reservation in reservations}) < len(reservations):
        # The second would meet the first as somebody else's; a cycle that decides twice on one
        # Workload is a fault of ours.
        raise ValueError(f"request {request_id} reserves a Workload twice")


def check_repeated(request_id: str, *, answers: int, reservations: int) -> None:
    """Raise ValueError when a request id comes back with another number of reservations than it first had."""
    if answers != reservations:
        raise ValueError(
            f"request {request_id} was for {answers} reservations and comes back with {reservations}"
        )


def logged(
    log: Sequence[LoggedDecision],
    reservations: Sequence[QuotaReservation],
    answers: Sequence[Reserved | Lost],
) -> tuple[LoggedDecision, ...]:
    """Return the entries that a commit appends: all but those of Workloads whose reservation was Lost."""
    # By Workload and life: a log entry names no request.
    lost = {r.id for r, answer in zip(reservations, answers, strict=True) if isinstance(answer, Lost)}
    return tuple(entry for entry in log if (entry.key, entry.uid) not in lost)
