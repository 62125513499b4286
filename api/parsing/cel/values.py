"""The values of CEL that JSON has not, and the functions and methods that expressions may call."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
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


def _is_valid(read: Callable[[Any], Any], text: Any) -> bool:
    try:
        read(text)
    except CelError:
        return False
    return True


def _order(one: Any, other: Any) -> int:
    if type(one) is not type(other) or not isinstance(one, Quantity | Semver):
        raise TypeError
    return int(one > other) - int(one < other)


def _whole(value: Quantity) -> int:
    if value.value.denominator != 1:
        raise CelError("cannot convert value to integer")
    return int(value.value)


def _number(kind: type[int] | type[float]) -> Callable[[Any], int | float]:
    """Return the conversion of a number or a text."""

    def convert(value: Any) -> int | float:
        if isinstance(value, bool):
            raise TypeError
        try:
            result = kind(value)
        except (ValueError, OverflowError) as error:
            raise CelError(f"cannot convert value to {kind.__name__}: {str(value)[:100]!r}") from error
        if isinstance(result, int) and not -(2**63) <= result < 2**63:
            raise CelError("integer overflow")
        return result

    return convert


def _string(value: Any) -> str:
    if not isinstance(value, bool | int | float | str):
        raise TypeError
    return str(value).lower() if isinstance(value, bool) else str(value)


def _approximate(value: Quantity) -> float:
    try:
        return float(value.value)
    except OverflowError:
        return math.inf if value.value > 0 else -math.inf


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise TypeError
    return len(value)


def _refuse_matches(*_: Any) -> Any:
    raise CelError("uses matches(), which is not evaluated here; compare with ==, startsWith or contains")


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "quantity": to_quantity,
    "isQuantity": lambda text: _is_valid(to_quantity, text),
    "semver": to_semver,
    "isSemver": lambda text: _is_valid(to_semver, text),
    "size": _size,
    "string": _string,
    "int": _number(int),
    "double": _number(float),
    "matches": _refuse_matches,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "contains": lambda text, part: _text(part) in _text(text),
    "lowerAscii": lambda text: _text(text).lower(),
    "upperAscii": lambda text: _text(text).upper(),
    "trim": lambda text: _text(text).strip(),
    "split": lambda text, sign: _text(text).split(_text(sign)) if sign else list(text),
    "matches": _refuse_matches,
    "size": _size,
    "compareTo": _order,
    "isGreaterThan": lambda one, other: _order(one, other) > 0,
    "isLessThan": lambda one, other: _order(one, other) < 0,
    "asInteger": _whole,
    "isInteger": lambda value: value.value.denominator == 1,
    "asApproximateFloat": _approximate,
    "sign": lambda value: (value.value > 0) - (value.value < 0),
    "add": lambda one, other: Quantity(one.value + (other if isinstance(other, int) else other.value)),
    "sub": lambda one, other: Quantity(one.value - (other if isinstance(other, int) else other.value)),
    "major": lambda version: version.major,
    "minor": lambda version: version.minor,
    "patch": lambda version: version.patch,
    "orValue": lambda found, other: found.value if found.has else other,
    "hasValue": lambda found: found.has,
}
