"""What the simulation has found and what is not mended yet: which faults are kept apart, and why.

Runs in which all faults of one set strike may break a law, so the seeds leave one of them out. Each finding
is kept as a schedule in `findings/`, shrunk. `test_faults.py` fails as soon as one no longer breaks its law.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.faults.schedule import Fault, Schedule

_FINDINGS = Path(__file__).parent / "findings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A schedule that breaks a law, named by its word in the report, and why it does, or did."""

    law: str
    reason: str
    schedule: Schedule
    is_mended: bool = False


def findings() -> dict[str, Finding]:
    """Return what is kept in `findings/`, by name."""
    paths = sorted(_FINDINGS.glob("*.json"))
    return {path.stem: msgspec.json.decode(path.read_bytes(), type=Finding) for path in paths}


# With Redis away, or emptied, a reservation is known to the leader alone. If that dies, or loses its lease,
# while its write hangs, the next leader gives the quota to another Workload.
_FORGETTING = (
    Fault.REDIS_RESTARTED,
    Fault.REDIS_STALE,
    Fault.REDIS_FLUSHED,
    Fault.REDIS_LOST_BEFORE,
    Fault.REDIS_LOST_AFTER,
    Fault.REDIS_FULL,
    Fault.REDIS_READ_ONLY,
    Fault.REDIS_HUNG,
    Fault.REDIS_ISOLATED,
)

# A leader that meets one of these may be followed by another.
_DEPOSING = (
    Fault.KILLED,
    Fault.STOPPED,
    Fault.FROZEN,
    Fault.ISOLATED,
    Fault.SERVER_DOWN,
    Fault.SERVER_SLOW,
    Fault.LEASE_DELETED,
    Fault.LEASE_FAILS,
    Fault.ERROR_BEFORE,
    Fault.ERROR_AFTER,
    Fault.LOST_ANSWER,
    Fault.REFUSED,
    Fault.THROTTLED,
    Fault.LATE,
    Fault.VERY_LATE,
)

APART: tuple[frozenset[Fault], ...] = (
    *(frozenset({Fault.VERY_LATE, fault}) for fault in _FORGETTING),
    # The next leader takes what its first list shows for admitted by a leader, and repairs none of it.
    *(frozenset({Fault.FOREIGN_ADMISSION, fault}) for fault in _DEPOSING),
    # Versions that go back are taken for old ones, and ignored.
    frozenset({Fault.ETCD_RESTORED}),
)
