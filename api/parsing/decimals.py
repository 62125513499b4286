"""Whole numbers as people and programs write them into labels, annotations and query strings.

Such a text is a stranger's. `str.isdecimal` alone lets two kinds through that `int` answers otherwise than
expected: digits of other scripts, which no other reader of the object understands, and thousands of digits,
for which Python raises (its guard against quadratic conversion) in the middle of whatever is being decided.
"""

from __future__ import annotations

# Seconds of 317 years, and more pods, replicas or MiB than there are: no person means a longer number.
MOST_DIGITS = 10


def whole_number(text: str | None) -> int | None:
    """Return the number that `text` is in up to MOST_DIGITS plain digits; None for anything else."""
    if text is None or not (text.isascii() and text.isdecimal()) or len(text) > MOST_DIGITS:
        return None
    return int(text)
