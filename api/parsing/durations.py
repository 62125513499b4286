"""Durations in the syntax of Go and Kubernetes: "90s", "1h30m", "1.5s", "250ms"; and as people read them.

Source: Go, time.ParseDuration, which parses metav1.Duration.
"""

import re

_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)"
_WHOLE = re.compile(rf"[+-]?({_PART})+", re.ASCII)
_PARTS = re.compile(_PART, re.ASCII)


class DurationError(ValueError):
    """A text is not a duration. The message names the text and the expected syntax."""


def parse_duration(text: str) -> float:
    """Return the duration in seconds; negative with a minus sign. Raises DurationError."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if _WHOLE.fullmatch(text) is None:
        raise DurationError(f"{text!r} is not a duration: expected numbers with units, such as 30s or 1h30m")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _PARTS.findall(text))
    return -seconds if text.startswith("-") else seconds


def seconds_text(seconds: float) -> str:
    """Return a rounded duration: 0.4 s, 12 s, 3.5 min, 2.1 h."""
    # Show only as many digits as matter.
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
