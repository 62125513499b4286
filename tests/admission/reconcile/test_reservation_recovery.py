"""What a new leader does with each reservation that it finds:
`admission.reconcile.reservation_recovery`, row by row.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.reconcile.reservation_recovery import RecoveryVerdict, is_known, verdict_of
from api.workload import Workload
from queues.reservations.reservations import QuotaReservation
from tests.builders import finished, make_workload, released, reserved

SEEN = make_workload(resource_version="7")
CHANGED = replace(SEEN, resource_version="8")


def reservation(*, fence: int = 1) -> QuotaReservation:
    """Return the reservation that a leader made when it saw SEEN."""
    return QuotaReservation(
        key=SEEN.key,
        uid=SEEN.uid,
        resource_version=SEEN.resource_version,
        request_id="r",
        fence=fence,
        reserved_at=0.0,
        verb="PUT",
        path="/",
        write=b"{}",
    )


@pytest.mark.parametrize(
    ("workload", "known", "want"),
    [
        pytest.param(None, True, RecoveryVerdict.DROP, id="its Workload is gone"),
        pytest.param(replace(SEEN, uid="new"), True, RecoveryVerdict.DROP, id="another has taken its name"),
        pytest.param(finished(CHANGED), True, RecoveryVerdict.DROP, id="its work is over"),
        pytest.param(finished(reserved(CHANGED)), True, RecoveryVerdict.DROP, id="it ran and is over"),
        pytest.param(reserved(CHANGED), True, RecoveryVerdict.CONFIRM, id="its admission arrived"),
        pytest.param(
            reserved(CHANGED), False, RecoveryVerdict.CONFIRM, id="it arrived, whether known or not"
        ),
        pytest.param(SEEN, True, RecoveryVerdict.REPLAY, id="nothing has happened since"),
        pytest.param(SEEN, False, RecoveryVerdict.RELEASE, id="its quota may have been given away"),
        pytest.param(replace(SEEN, active=False), True, RecoveryVerdict.RELEASE, id="it is deactivated"),
        pytest.param(CHANGED, True, RecoveryVerdict.RELEASE, id="it has changed"),
        pytest.param(
            released(CHANGED), True, RecoveryVerdict.RELEASE, id="it was admitted and evicted since"
        ),
        pytest.param(
            replace(CHANGED, deleted_at=1.0), True, RecoveryVerdict.RELEASE, id="it is being deleted"
        ),
    ],
)
def test_a_reservation_found_at_the_start(
    workload: Workload | None, known: bool, want: RecoveryVerdict
) -> None:
    assert verdict_of(reservation(), workload, is_known=known) is want


@pytest.mark.parametrize(
    ("made_under", "ours", "without_store", "want"),
    [
        pytest.param(5, 5, False, True, id="it is our own"),
        pytest.param(5, 5, True, True, id="it is our own, made while the store was away"),
        pytest.param(4, 5, False, True, id="our direct predecessor made it"),
        pytest.param(4, 5, True, False, id="we have decided without the store since"),
        pytest.param(3, 5, False, False, id="a leader between us passed it over"),
    ],
)
def test_whether_every_decision_since_was_made_in_knowledge_of_it(
    made_under: int, ours: int, without_store: bool, want: bool
) -> None:
    assert is_known(reservation(fence=made_under), fence=ours, decided_without_store=without_store) is want
