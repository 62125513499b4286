"""Exact Kubernetes quantities: "500m", "2Gi", "1e3" to fractions and integers, and back to canonical text.

All code that works on decoded objects counts in integers (milli-CPU, bytes, devices), so only this module
handles suffixes and rounding. It never uses binary floating point: 0.1 CPU is exactly one tenth.

Grammar, rounding and canonical form follow k8s.io/apimachinery/pkg/api/resource: a value with digits below
one nano is rounded away from zero to a whole number of nanos, a value with a binary suffix is capped at 2^63
- 1, and the canonical form has no fractional digits and the largest suffix that loses nothing.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeVar

_K = TypeVar("_K")
CPU = "cpu"
_BINARY_RESOURCES = frozenset({"memory", "ephemeral-storage"})
_HUGE_PAGES_PREFIX = "hugepages-"
# Others that the configuration says are bytes.
_byte_resources: set[str] = set()

_NANO = Fraction(1, 10**9)
_MAX_INT64 = 2**63 - 1
# Limits the computation for a text such as "1e9999999"; no machine has 1e100 of anything.
_MAX_EXPONENT = 100
# Limits the memory of the caches; a cluster uses a few hundred different quantities.
_CACHE_SIZE = 16_384

_DECIMAL_SUFFIXES = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_TEXT = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_TEXT = {0: "", **{bits // 10: suffix for suffix, bits in _BINARY_SUFFIXES.items()}}

_NUMBER = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?P<suffix>[KMGTPE]i|[eE][+-]?[0-9]+|[numkMGTPE]?)"
)


class QuantityError(ValueError):
    """A text is not a Kubernetes quantity. The message names the value and the expected syntax."""


class Style(StrEnum):
    """The notation of a quantity, which its canonical form keeps."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class _Parsed(NamedTuple):
    value: Fraction
    style: Style


def parse(text: str | int | float) -> Fraction:
    """Return the exact value of a quantity as it is written in an object, as text or as JSON number.

    The value is in the base unit (cores, bytes, devices). Raises QuantityError for any other
    value, also a boolean.
    Source: k8s.io/apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    return _parsed(_as_text(text)).value


def amount(resource: str, quantity: str | int | float) -> int:
    """Return `quantity` as an integer in the unit that `resource` is counted in.

    This is milli-CPU for cpu, and whole units (bytes, devices) for all other resources. Fractions are rounded
    away from zero, so a request never shrinks. Raises QuantityError.
    Source: Kueue, pkg/resources/requests.go.
    """
    # The key is whether the resource is the CPU, not its name, so that one cache entry for
    # "8Gi" serves all others.
    return _amount(resource == CPU, _as_text(quantity))


def add_amounts(total: dict[_K, int], amounts: Mapping[_K, int], times: int = 1) -> None:
    """Add the amounts to `total`, each multiplied by `times`; -1 subtracts them."""
    for key, value in amounts.items():
        total[key] = total.get(key, 0) + value * times


def set_byte_resources(names: Iterable[str]) -> None:
    """Have the amounts of these resources written like memory, in place of all earlier ones.

    Said by the configuration, once for a process. How an amount is read does not depend on it.
    """
    _byte_resources.clear()
    _byte_resources.update(names)


def to_text(resource: str, amount: int) -> str:
    """Return the canonical quantity for `amount` of `resource`, in the unit that `amount()` returns.

    cpu is written in milli ("1500m", "2"); memory, ephemeral-storage, hugepages-* and what the configuration
    says is bytes with binary suffixes ("8Gi"); all others with decimal suffixes ("20", "5k").
    Source: Kueue, pkg/resources/resource_formatter.go.
    """
    if resource == CPU:
        return _decimal_text(amount, -3)
    is_in_bytes = resource in _BINARY_RESOURCES or resource in _byte_resources
    if is_in_bytes or resource.startswith(_HUGE_PAGES_PREFIX):
        return _binary_text(amount)
    return _decimal_text(amount, 0)


def nano_text(nanos: int) -> str:
    """Return the canonical quantity for a number of billionths of the base unit: 1_500_000_000 is "1500m"."""
    return _decimal_text(nanos, -9)


def canonical(text: str | int | float) -> str:
    """Return the quantity in the form in which the API server prints it: "1000m" as "1", "1024Mi" as "1Gi".

    Raises QuantityError. Source: k8s.io/apimachinery/pkg/api/resource/quantity.go, CanonicalizeBytes.
    """
    value, style = _parsed(_as_text(text))
    # Binary suffixes are only used for whole numbers; any other value is printed in
    # decimal instead of rounded.
    if style is Style.BINARY and value.denominator == 1:
        return _binary_text(value.numerator)
    return _decimal_text(int(value / _NANO), -9, style)


def _as_text(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(value)
    # `repr` returns the shortest text that represents the same number: 0.1 stays one tenth.
    return repr(value)


@lru_cache(maxsize=_CACHE_SIZE)
def _amount(milli: bool, text: str) -> int:
    value = _parsed(text).value
    return _away_from_zero(value * 1000 if milli else value)


@lru_cache(maxsize=_CACHE_SIZE)
def _parsed(text: str) -> _Parsed:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise _refusal(text)
    whole, part, suffix = match["whole"], match["part"] or "", match["suffix"]
    # The pattern also matches a sign or a suffix alone, which are not quantities.
    if not whole and not part:
        raise _refusal(text)
    factor, style = _scale(text, suffix)
    try:
        digits = int(whole + part)
    # More digits than Python converts.
    except ValueError as error:
        raise _refusal(text) from error
    value = _representable(Fraction(digits, 10 ** len(part)) * factor, style)
    return _Parsed(-value if match["sign"] == "-" else value, style)


def _scale(text: str, suffix: str) -> tuple[Fraction, Style]:
    if suffix in _BINARY_SUFFIXES:
        return Fraction(2 ** _BINARY_SUFFIXES[suffix]), Style.BINARY
    if suffix in _DECIMAL_SUFFIXES:
        return Fraction(10) ** _DECIMAL_SUFFIXES[suffix], Style.DECIMAL
    # The pattern leaves only "e" or "E" followed by a number.
    exponent = int(suffix[1:])
    # The exponent is checked before the power is computed.
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(f"quantity {text!r} has an exponent beyond {_MAX_EXPONENT}")
    return Fraction(10) ** exponent, Style.EXPONENT


def _representable(value: Fraction, style: Style) -> Fraction:
    # In lowest terms, a value is a whole number of nanos exactly if its denominator divides 10^9.
    if _NANO.denominator % value.denominator:
        value = _away_from_zero(value / _NANO) * _NANO
    # Kubernetes caps only binary values; it stores larger decimal ones as inf.Dec.
    return Fraction(_MAX_INT64) if style is Style.BINARY and value > _MAX_INT64 else value


def _away_from_zero(value: Fraction) -> int:
    # Floor division of the negated value rounds up without floating point.
    rounded = -(-abs(value.numerator) // value.denominator)
    return rounded if value >= 0 else -rounded


def _decimal_text(digits: int, exponent: int, style: Style = Style.DECIMAL) -> str:
    """Return digits × 10^exponent with the largest exponent that is a multiple of three and loses nothing."""
    if digits == 0:
        return "0"
    # The largest decimal suffix is E; exponent notation has no limit.
    while digits % 1000 == 0 and (style is Style.EXPONENT or exponent < 18):
        digits, exponent = digits // 1000, exponent + 3
    if style is Style.EXPONENT:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_TEXT[exponent]}"


# As in Kubernetes, a value below the first binary suffix is written in decimal.
def _binary_text(value: int) -> str:
    if -1024 < value < 1024:
        return _decimal_text(value, 0)
    power = 0
    while value % 1024 == 0 and power < 6:
        value, power = value // 1024, power + 1
    return f"{value}{_BINARY_TEXT[power]}"


def _refusal(value: object) -> QuantityError:
    return QuantityError(
        f"{value!r} is not a quantity: expected a number with an optional suffix,"
        ' such as "500m", "2", "1.5Gi" or "1e3"'
    )
