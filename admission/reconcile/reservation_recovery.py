"""What a new leader does with the reservations that it finds: one rule, one table.

A reservation was made by an earlier leader, which died, was suspended or was cut off between reserving and
writing. The state of the cluster is authoritative (a list served by quorum, started after the lease was won):

    Workload                                     verdict     because
    gone, finished, or another of that name      DROP        there is nothing left to hold quota for
    has its admission                            CONFIRM     the write was stored
    unchanged since the decision, and it fits    REPLAY      it is written onto the same version; if the old
                                                             leader writes it too, one of the two meets 409
    unchanged, and it does not fit               RELEASE     the leader that made it had given the quota to
                                                             another Workload, and could not record that
    unchanged, but possibly unknown since        RELEASE     a leader may have decided without knowing of it
                                                             and given its quota to another Workload
    changed, and not admitted                    RELEASE     the decision is outdated. First the Workload is
                                                             written, so that the old leader's write, if still
                                                             in flight, meets 409; then the quota is freed

No leader can have decided without knowing of a reservation if it is our own, or if it is our direct
predecessor's and we have not decided without the store either.
"""

from __future__ import annotations

from enum import StrEnum

from api.workload import Workload
from queues.reservations.reservations import QuotaReservation


class RecoveryVerdict(StrEnum):
    """What happens to a reservation that is found at the start of a term."""

    DROP = "drop"
    CONFIRM = "confirm"
    REPLAY = "replay"
    RELEASE = "release"


def is_known(reservation: QuotaReservation, *, fence: int, decided_without_store: bool) -> bool:
    """Return whether every decision since this reservation was made with knowledge of it.

    `fence` is ours. Between a reservation that is older than our direct predecessor's and now, a leader may
    have decided while the store was lost.
    """
    # Each leader raises the fence by one, so fence - 1 is our direct predecessor's.
    return reservation.fence == fence or (reservation.fence == fence - 1 and not decided_without_store)


def verdict_of(
    reservation: QuotaReservation, workload: Workload | None, *, is_known: bool = True
) -> RecoveryVerdict:
    """Return what a new leader does with `reservation`, given the Workload as the cluster shows it."""
    # The uid differs if the Workload of that name was deleted and created again.
    if workload is None or workload.uid != reservation.uid or workload.is_finished:
        return RecoveryVerdict.DROP
    # The cluster shows the quota: the write was stored, whichever leader sent it.
    if workload.has_quota_reservation:
        return RecoveryVerdict.CONFIRM
    if is_known and workload.resource_version == reservation.resource_version and workload.active:
        return RecoveryVerdict.REPLAY
    return RecoveryVerdict.RELEASE
