"""Whole numbers in labels, annotations and query strings.

These texts are untrusted. `str.isdecimal` alone accepts two kinds that must be rejected: digits of other
scripts, which no other reader of the object understands, and thousands of digits, for which `int` raises
ValueError (Python's guard against quadratic conversion) in the middle of a decision.
"""

from __future__ import annotations

# Ten digits are enough for 317 years in seconds, and for any realistic number of pods, replicas or MiB.
MOST_DIGITS = 10


def whole_number(text: str | None) -> int | None:
    """Return the number that `text` represents in up to MOST_DIGITS ASCII digits; None for any other text."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS:
        return None
    return int(text)
