"""What a LocalQueue has consumed, as its status keeps it across restarts: read, and written.

`status.fairSharing.admissionFairSharingStatus` of a LocalQueue, with quantities of the resources' own units.
What it means stands in `queues.pending.admission_fair_sharing`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

import msgspec

from api.objects import Wire
from api.parsing.quantities import nano_text, parse
from api.workload import to_rfc3339, to_seconds

_NANOS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUsage:
    """Consumption in billionths of each resource's unit, as of `updated_at`: Unix seconds, whole ones."""

    consumed: Mapping[str, int]
    updated_at: int


class _Past(Wire, frozen=True):
    consumed_resources: dict[str, str | int | float] | None = None
    last_update: str = ""


class _FairSharing(Wire, frozen=True):
    admission_fair_sharing_status: _Past | None = None


class _Status(Wire, frozen=True):
    fair_sharing: _FairSharing | None = None


def read_past_usage(status: bytes | msgspec.Raw) -> PastUsage | None:
    """Return what the status remembers of the past, None where it says nothing that can be read.

    Nobody but a controller writes it, so what is broken there is no user's mistake: it is written anew.
    """
    # Most statuses say nothing of it, and they change with every admission.
    if b"admissionFairSharingStatus" not in bytes(status):
        return None
    try:
        sharing = _STATUS.decode(status).fair_sharing
        past = sharing.admission_fair_sharing_status if sharing is not None else None
        if past is None:
            return None
        # Cut off and not rounded, in billionths: nobody is charged for what was not used.
        consumed = {name: int(parse(text) * _NANOS) for name, text in (past.consumed_resources or {}).items()}
        return PastUsage(consumed=consumed, updated_at=floor(to_seconds(past.last_update)))
    except (ValueError, RecursionError):
        return None


def to_fair_sharing_status(past: PastUsage) -> dict[str, Any]:
    """Return `status.fairSharing` of a LocalQueue; weightedShare is required there and means nothing."""
    consumed = {name: nano_text(nanos) for name, nanos in sorted(past.consumed.items())}
    return {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": consumed,
            "lastUpdate": to_rfc3339(past.updated_at),
        },
    }


_STATUS = msgspec.json.Decoder(_Status)
