"""Times as the page shows them."""

from __future__ import annotations

from datetime import UTC, datetime

from api.parsing.times import to_seconds

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, such as "3 h 20 min"."""
    whole = round(max(0.0, seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    for unit, name, smaller, smaller_name in (
        (_DAY, "d", _HOUR, "h"),
        (_HOUR, "h", _MINUTE, "min"),
        (_MINUTE, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // smaller
            # Seconds do not matter beyond a few minutes.
            is_shown = rest and (smaller > 1 or whole < 10 * _MINUTE)
            return f"{whole // unit} {name} {rest} {smaller_name}" if is_shown else f"{whole // unit} {name}"
    raise AssertionError("a minute is the smallest unit")


def relative_text(at: float, now: float) -> str:
    """Return an instant relative to another (both in Unix seconds), such as "in 5 min"."""
    if abs(at - now) < 1:
        return "now"
    return f"in {duration_text(at - now)}" if at > now else f"{duration_text(now - at)} ago"


def clock_text(instant: str | float | None) -> str:
    """Return an instant (RFC 3339 or Unix seconds) as date and time of day in UTC, "" for none."""
    if instant is None or instant == "":
        return ""
    at = to_seconds(instant) if isinstance(instant, str) else instant
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
