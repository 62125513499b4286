"""Reservations and log entries for tests: sane defaults, and only what matters named."""

from __future__ import annotations

from api.workload import WorkloadKey
from queues.reservations.reservations import LoggedDecision, QuotaReservation, ReservationId


def make_reservation(
    name: str = "a",
    *,
    request_id: str = "r1",
    fence: int = 5,
    reserved_at: float = 100.0,
    write: bytes = b"{}",
) -> QuotaReservation:
    """Return the reservation of Workload team/`name`, of its life uid-`name`."""
    return QuotaReservation(
        key=WorkloadKey("team", name),
        uid=f"uid-{name}",
        resource_version="17",
        request_id=request_id,
        fence=fence,
        reserved_at=reserved_at,
        verb="PUT",
        path=f"/apis/kueue.x-k8s.io/v1beta2/namespaces/team/workloads/{name}/status",
        write=write,
    )


def make_id(name: str = "a") -> ReservationId:
    """Return the id of `make_reservation(name)`."""
    return WorkloadKey("team", name), f"uid-{name}"


def make_entry(name: str = "a", *, what: str = "Admit", message: str = "", fence: int = 5) -> LoggedDecision:
    """Return the log's line on Workload team/`name`."""
    return LoggedDecision(
        at=100.0,
        by="node-1",
        fence=fence,
        key=WorkloadKey("team", name),
        uid=f"uid-{name}",
        what=what,
        message=message,
    )
