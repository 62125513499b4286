"""What a new leader does with the reservations it finds: one rule, one table.

The reservation was made by the leader before, who died, slept or was cut off between reserving and patching.
What the cluster shows is right (a list served by quorum, started after the lease was won):

    Workload                                     verdict     because
    gone, finished, or another of that name      DROP        nothing is left to hold quota for
    has its admission                            CONFIRM     the patch arrived
    unchanged since the decision, and it fits    REPLAY      the same bytes; if the old leader sends them too,
                                                             one of the two meets 409
    unchanged, and it does not fit               RELEASE     its maker has given the quota to another, and
                                                             could not say so any more
    unchanged, but of nobody's knowledge         RELEASE     somebody may have decided since without knowing
                                                             of it, and given its quota away
    changed, and not admitted                    RELEASE     the decision is stale: first the Workload is
                                                             written, so that the old leader's patch, still
                                                             on its way, meets 409, and only then the quota
                                                             is freed

Nobody can have decided in between where the reservation is our own, or our direct predecessor's and we have
not decided without the store either.
"""

from __future__ import annotations

from enum import StrEnum

from api.workload import Workload
from queues.reservations.reservations import QuotaReservation


class RecoveryVerdict(StrEnum):
    """What becomes of a reservation found at the start."""

    DROP = "drop"
    CONFIRM = "confirm"
    REPLAY = "replay"
    RELEASE = "release"


def is_known(reservation: QuotaReservation, *, fence: int, has_decided_blindly: bool) -> bool:
    """Return whether every decision since this reservation was made in knowledge of it.

    `fence` is ours. A reservation of an earlier leader than the one before us was passed over by somebody
    who led while the store was lost.
    """
    # Fences count up by one a leader, so fence - 1 is whoever led directly before us.
    return reservation.fence == fence or (reservation.fence == fence - 1 and not has_decided_blindly)


def judge(
    reservation: QuotaReservation, workload: Workload | None, *, is_known: bool = True
) -> RecoveryVerdict:
    """Return what a new leader does with `reservation`, given the Workload as the cluster shows it."""
    # A uid tells lives apart: the Workload of that name may have been deleted and made again.
    if workload is None or workload.uid != reservation.uid or workload.is_finished:
        return RecoveryVerdict.DROP
    # The cluster shows quota: the patch arrived, whoever sent it.
    if workload.has_quota_reservation:
        return RecoveryVerdict.CONFIRM
    if is_known and workload.resource_version == reservation.resource_version and workload.active:
        return RecoveryVerdict.REPLAY
    return RecoveryVerdict.RELEASE
