"""Numbers in labels, annotations, query strings, flags and traces.

These texts are untrusted. For whole numbers `str.isdecimal` alone accepts two kinds that must be rejected:
digits of other scripts, which no other reader of the object understands, and thousands of digits, for which
`int` raises ValueError (Python's guard against quadratic conversion) in the middle of a decision.
"""

from __future__ import annotations

from math import isfinite

# Ten digits are enough for 317 years in seconds, and for any realistic number of pods, replicas or MiB.
MOST_DIGITS = 10


def whole_number(text: str | None) -> int | None:
    """Return the number that `text` represents in up to MOST_DIGITS ASCII digits; None for any other text."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS:
        return None
    return int(text)


def finite_number(text: str) -> float | None:
    """Return the number that `text` represents; None for any other text, for infinity and for NaN."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
