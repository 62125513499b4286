"""The past usage of a LocalQueue, which its status preserves across restarts: reading and writing.

It is `status.fairSharing.admissionFairSharingStatus` of a LocalQueue, with quantities in the units of the
resources. `queues.pending.admission_fair_sharing` defines its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor
from typing import Any

import msgspec

from api.objects.common import Wire
from api.parsing.quantities import nano_text, parse
from api.parsing.times import to_rfc3339, to_seconds

_NANOS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class PastUsage:
    """Usage in billionths of each resource's unit, as of `updated_at` (whole Unix seconds)."""

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
    """Return the past usage in the status, or None if there is none or it cannot be parsed.

    Only a controller writes it, so malformed data is not reported to a user, but overwritten.
    """
    # Most statuses do not contain it, and they change with every admission, so this
    # check avoids decoding them.
    if b"admissionFairSharingStatus" not in bytes(status):
        return None
    try:
        sharing = _STATUS.decode(status).fair_sharing
        past = sharing.admission_fair_sharing_status if sharing is not None else None
        if past is None:
            return None
        # Truncated to billionths instead of rounded, so that no queue is charged for more than it used.
        consumed = {name: int(parse(text) * _NANOS) for name, text in (past.consumed_resources or {}).items()}
        return PastUsage(consumed=consumed, updated_at=floor(to_seconds(past.last_update)))
    except (ValueError, RecursionError):
        return None


def to_fair_sharing_status(past: PastUsage) -> dict[str, Any]:
    """Return `status.fairSharing` of a LocalQueue; weightedShare is required by the schema but not used."""
    consumed = {name: nano_text(nanos) for name, nanos in sorted(past.consumed.items())}
    return {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": consumed,
            "lastUpdate": to_rfc3339(past.updated_at),
        },
    }


_STATUS = msgspec.json.Decoder(_Status)
