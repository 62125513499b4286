"""The functions and methods that CEL expressions may call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from api.parsing.cel.patterns import cost_of_all, cost_of_search, find, find_all, matches
from api.parsing.cel.values import CelError, Quantity, Semver, to_quantity, to_semver


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


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "quantity": to_quantity,
    "isQuantity": lambda text: _is_valid(to_quantity, text),
    "semver": to_semver,
    "isSemver": lambda text: _is_valid(to_semver, text),
    "size": _size,
    "string": _string,
    "int": _number(int),
    "double": _number(float),
    "matches": matches,
}
METHODS: Mapping[str, Callable[..., Any]] = {
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "contains": lambda text, part: _text(part) in _text(text),
    "lowerAscii": lambda text: _text(text).lower(),
    "upperAscii": lambda text: _text(text).upper(),
    "trim": lambda text: _text(text).strip(),
    "split": lambda text, sign: _text(text).split(_text(sign)) if sign else list(text),
    "matches": matches,
    "find": find,
    "findAll": find_all,
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
# What a call costs beside the length of its texts, in steps.
COSTS: Mapping[str, Callable[..., int]] = {
    "matches": cost_of_search,
    "find": cost_of_search,
    "findAll": cost_of_all,
}
