"""RFC 3339 times, as objects and annotations carry them, and Unix seconds."""

from __future__ import annotations

from datetime import UTC, datetime

# 9999-12-31T23:59:59Z, the last time that RFC 3339 can express.
_LAST_DATE = 253_402_300_799


def to_seconds(text: str | None) -> float:
    """Return an RFC 3339 time as Unix seconds; 0 if absent. Raises ValueError that names the text."""
    if not text:
        return 0.0
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no RFC 3339 time such as 2026-01-31T12:00:00Z") from None
    # Kubernetes always writes a time zone; annotations that people write may lack one.
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def to_rfc3339(at: float) -> str:
    """Return Unix seconds as RFC 3339 in whole seconds, UTC, in the form of metav1.Time.

    A later time than RFC 3339 can express is replaced by the last one that it can: Jobs may declare run times
    of centuries, and their promised start times add up.
    """
    return datetime.fromtimestamp(int(min(at, _LAST_DATE)), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
