"""What the simulation has found and what is not mended yet: which faults are kept apart, and why.

Runs in which all faults of one set strike may break a law, so the seeds leave one of them out. Each finding
is kept as a schedule in `findings/`, shrunk. `test_faults.py` fails as soon as one no longer breaks its law.
"""

from __future__ import annotations

from tests.faults.schedule import Fault

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

APART: tuple[frozenset[Fault], ...] = (
    *(frozenset({Fault.VERY_LATE, fault}) for fault in _FORGETTING),
    # Versions that go back are taken for old ones, and ignored.
    frozenset({Fault.ETCD_RESTORED}),
)
