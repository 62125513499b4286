"""Kubernetes quantities, exact: "500m", "2Gi", "1e3" to fractions and integers, and back to canonical text.

Everything past the wire counts in integers (milli-CPU, bytes, devices), so this is the one place that knows
suffixes and rounding. Binary floating point is never used: 0.1 CPU is exactly one tenth.

Grammar, rounding and canonical form follow k8s.io/apimachinery/pkg/api/resource, whose rules are:
a value finer than one nano is rounded away from zero to a nano, a value with a binary suffix is capped at
2^63 - 1, and the canonical form has no fractional digits and the largest suffix that loses nothing.
"""

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

CPU = "cpu"
_BINARY_RESOURCES = frozenset({"memory", "ephemeral-storage"})
_HUGE_PAGES_PREFIX = "hugepages-"

_NANO = Fraction(1, 10**9)
_MAX_INT64 = 2**63 - 1
# Caps what "1e9999999" may make us compute; no machine has 1e100 of anything.
_MAX_EXPONENT = 100
# Caps the memory of the caches; a cluster uses a few hundred different quantities.
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
    """A text is no Kubernetes quantity. The message names the value and the form that was expected."""


class Style(StrEnum):
    """How a quantity was written, and so how its canonical form is written."""

    DECIMAL = "DecimalSI"
    BINARY = "BinarySI"
    EXPONENT = "DecimalExponent"


class _Parsed(NamedTuple):
    value: Fraction
    style: Style


def parse(text: str | int | float) -> Fraction:
    """Return the exact value of a quantity as it stands in an object, text or JSON number.

    In the base unit (cores, bytes, devices). Raises QuantityError for anything else, booleans included.
    Source: k8s.io/apimachinery/pkg/api/resource/quantity.go, ParseQuantity.
    """
    return _parsed(_as_text(text)).value


def amount(resource: str, quantity: str | int | float) -> int:
    """Return `quantity` as the integer we count `resource` in: milli-CPU for cpu, whole units for all others.

    Fractions are rounded away from zero, so a request never shrinks. Raises QuantityError.
    Source: Kueue, pkg/resources/requests.go.
    """
    # Asked by whether it is the CPU and not by name, so that one cache entry serves "8Gi" of every resource.
    return _amount(resource == CPU, _as_text(quantity))


def to_text(resource: str, amount: int) -> str:
    """Return the canonical quantity for `amount` of `resource`, in the unit that `amount()` gives.

    cpu in decimal milli ("1500m", "2"); memory, ephemeral-storage, hugepages-* with binary suffixes ("8Gi");
    all others decimal ("20", "5k"). Source: Kueue, pkg/resources/requests.go.
    """
    if resource == CPU:
        return _decimal_text(amount, -3)
    if resource in _BINARY_RESOURCES or resource.startswith(_HUGE_PAGES_PREFIX):
        return _binary_text(amount)
    return _decimal_text(amount, 0)


def nano_text(nanos: int) -> str:
    """Return the canonical quantity for so many billionths of the base unit: 1_500_000_000 is "1500m"."""
    return _decimal_text(nanos, -9)


def canonical(text: str | int | float) -> str:
    """Return the form in which the API server would print this quantity: "1000m" is "1", "1024Mi" is "1Gi".

    Raises QuantityError. Source: k8s.io/apimachinery/pkg/api/resource/quantity.go, CanonicalizeBytes.
    """
    value, style = _parsed(_as_text(text))
    # Binary suffixes hold whole numbers only; a finer value is printed in decimal rather than rounded.
    if style is Style.BINARY and value.denominator == 1:
        return _binary_text(value.numerator)
    return _decimal_text(int(value / _NANO), -9, style)


def _as_text(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refusal(value)
    # `repr` is the shortest text that reads back as the same number: 0.1 stays one tenth.
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
    # A sign or a suffix alone matches the pattern and is none.
    if not whole and not part:
        raise _refusal(text)
    factor, style = _scale(text, suffix)
    try:
        digits = int(whole + part)
    except ValueError as error:  # more digits than Python converts
        raise _refusal(text) from error
    value = _representable(Fraction(digits, 10 ** len(part)) * factor, style)
    return _Parsed(-value if match["sign"] == "-" else value, style)


def _scale(text: str, suffix: str) -> tuple[Fraction, Style]:
    if suffix in _BINARY_SUFFIXES:
        return Fraction(2 ** _BINARY_SUFFIXES[suffix]), Style.BINARY
    if suffix in _DECIMAL_SUFFIXES:
        return Fraction(10) ** _DECIMAL_SUFFIXES[suffix], Style.DECIMAL
    # What is left is "e" or "E" with a number: the pattern lets nothing else through.
    exponent = int(suffix[1:])
    # Before the power is computed, not after.
    if abs(exponent) > _MAX_EXPONENT:
        raise QuantityError(f"quantity {text!r} has an exponent beyond {_MAX_EXPONENT}")
    return Fraction(10) ** exponent, Style.EXPONENT


def _representable(value: Fraction, style: Style) -> Fraction:
    # In lowest terms a value is a whole number of nanos exactly where its denominator divides 10^9.
    if _NANO.denominator % value.denominator:
        value = _away_from_zero(value / _NANO) * _NANO
    # Kubernetes caps binary values only; decimal ones go on as inf.Dec.
    return Fraction(_MAX_INT64) if style is Style.BINARY and value > _MAX_INT64 else value


def _away_from_zero(value: Fraction) -> int:
    # Rounded up without floating point: floor division of the negative.
    rounded = -(-abs(value.numerator) // value.denominator)
    return rounded if value >= 0 else -rounded


def _decimal_text(digits: int, exponent: int, style: Style = Style.DECIMAL) -> str:
    """Return digits × 10^exponent, the exponent a multiple of three and as large as loses nothing."""
    if digits == 0:
        return "0"
    # The largest decimal suffix is E; exponent notation has no end.
    while digits % 1000 == 0 and (style is Style.EXPONENT or exponent < 18):
        digits, exponent = digits // 1000, exponent + 3
    if style is Style.EXPONENT:
        return f"{digits}e{exponent}" if exponent else str(digits)
    return f"{digits}{_DECIMAL_TEXT[exponent]}"


# As Kubernetes does: what is smaller than the first binary suffix is written in decimal.
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
