"""The values of CEL that JSON has not."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any, NamedTuple

from api.parsing.quantities import QuantityError
from api.parsing.quantities import parse as parse_quantity


class CelError(ValueError):
    """An expression cannot be parsed or evaluated. The message says where and why."""


class Quantity(NamedTuple):
    """A Kubernetes quantity, compared by its exact value."""

    value: Fraction


class Semver(NamedTuple):
    """A semantic version in the order of precedence: numbers, then no suffix above any suffix."""

    major: int
    minor: int
    patch: int
    is_release: bool
    suffix: tuple[tuple[int, int, str], ...]


class OptionalValue(NamedTuple):
    """The value of `a.?b`, if there is one."""

    has: bool
    value: Any = None


_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")


# Kubernetes allows versions of devices 64 characters.
_MOST_VERSION = 256


def to_quantity(text: Any) -> Quantity:
    """Return a text or number of a JSON object as Quantity. Raises CelError."""
    try:
        return Quantity(parse_quantity(text))
    except QuantityError as error:
        raise CelError(str(error)) from error


def to_semver(text: str) -> Semver:
    """Return a text such as 1.2.3-rc.1 as Semver. Raises CelError."""
    found = _VERSION.fullmatch(text)
    if found is not None and len(text) > _MOST_VERSION:
        raise CelError(f"{text[:_MOST_VERSION]!r}... is too long for a semantic version")
    if found is None:
        raise CelError(f"{text!r} is no semantic version such as 1.2.3")
    parts = (found[4] or "").split(".") if found[4] else []
    # Numbers come before words, in numeric order. Source: semver.org, number 11.
    suffix = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
    return Semver(int(found[1]), int(found[2]), int(found[3]), not suffix, suffix)
