"""SpecError: an object in the cluster is invalid, with a message from which its owner can correct it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeVar

from api.parsing.quantities import QuantityError, amount

_E = TypeVar("_E", bound=StrEnum)


class SpecError(ValueError):
    """An object is invalid. The message names the field, its value, and what was expected."""


def read_amount(field: str, resource: str, quantity: str | int | float) -> int:
    """Return a non-negative quantity in canonical units. Raises SpecError that names `field`."""
    try:
        value = amount(resource, quantity)
    except QuantityError as error:
        raise SpecError(f"{field}: {error}") from error
    if value < 0:
        raise SpecError(f"{field} is {quantity}, but must not be negative")
    return value


def read_word(field: str, words: type[_E], text: str | None, default: _E) -> _E:
    """Return the enum member for `text`, or `default` if it is empty.

    Raises SpecError with the allowed values.
    """
    # On the wire, absent and empty mean the same.
    if not text:
        return default
    try:
        return words(text)
    except ValueError:
        raise SpecError(f"{field} is {text!r}, but must be one of {', '.join(words)}") from None


def require_unique(field: str, names: Iterable[str]) -> None:
    """Raise SpecError if a name occurs twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise SpecError(f"{field} names {name!r} twice; each may occur once")
        seen.add(name)


def require_at_most_one(field: str, given: Sequence[str]) -> None:
    """Raise SpecError if more than one of the alternatives is given."""
    if len(given) > 1:
        raise SpecError(f"{field} sets {' and '.join(given)}; set one of them")
