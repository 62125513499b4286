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


# Until versions have passed those of before a restore, they repeat: a write that was decided on a version of
# the lost history is accepted for another object of the same version. `etcdutl --bump-revision` prevents it.
APART: tuple[frozenset[Fault], ...] = (frozenset({Fault.ETCD_RESTORED}),)
