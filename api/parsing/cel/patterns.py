"""Regular expressions in RE2's syntax: `matches` of CEL, `find` and `findAll` of Kubernetes.

A tenant writes the expression, so no search may take longer than its budget. That rules out Python's `re`,
which tries one way after the other; RE2 reads each character once for each instruction at most.
"""

from __future__ import annotations

from typing import Any

import re2

from api.parsing.cel.values import CelError

# Bytes of a compiled expression: some thousand instructions.
_MOST_MEMORY = 1 << 16
# Instructions that are tried in the time of a step, beside what a call costs anyway.
_INSTRUCTIONS_OF_A_STEP = 64

_OPTIONS = re2.Options()
_OPTIONS.max_mem = _MOST_MEMORY
_OPTIONS.log_errors = False


def matches(text: str, expression: str) -> bool:
    """Return whether a part of the text matches. Raises CelError if the expression is none."""
    return _compiled(expression).search(text) is not None


def find(text: str, expression: str) -> str:
    """Return the first part of the text that matches, or an empty text. Raises CelError."""
    found = _compiled(expression).search(text)
    return str(found[0]) if found is not None else ""


def find_all(text: str, expression: str, most: int = -1) -> list[str]:
    """Return the parts that match, at most so many; all for a negative number. Raises CelError."""
    if not isinstance(most, int) or isinstance(most, bool):
        raise TypeError
    found = [str(match[0]) for match in _compiled(expression).finditer(text)]
    return found if most < 0 else found[:most]


def cost_of_search(text: str, expression: str) -> int:
    """Return how many steps a search takes at most. Raises CelError if the expression is none."""
    return (len(text) + 1) * int(_compiled(expression).programsize) // _INSTRUCTIONS_OF_A_STEP


def cost_of_all(text: str, expression: str, *_: Any) -> int:
    """Return how many steps the search for all matches takes at most: one search from each character."""
    return (len(text) + 1) * cost_of_search(text, expression)


def _compiled(expression: str) -> Any:
    if not isinstance(expression, str):
        raise TypeError
    try:
        # The library keeps the last ones.
        return re2.compile(expression, _OPTIONS)
    except re2.error as error:
        why = error.args[0].decode(errors="replace")
        raise CelError(
            f"{expression[:100]!r} is no regular expression that can be evaluated: {why[:200]}"
        ) from None
