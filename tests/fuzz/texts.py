"""The parsers of texts that people write into objects: a value, or the error that the docstring names."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from hypothesis import strategies as st

from api.keys import NAMESPACE_SELECTOR
from api.parsing.class_namespaces import class_namespaces
from api.parsing.cron import parse_cron
from api.parsing.decimals import finite_number, whole_number
from api.parsing.durations import parse_duration
from api.parsing.prices import price
from api.parsing.quantities import amount, canonical, parse, to_text
from api.parsing.schedule import firings, last_firing, next_firing
from api.parsing.times import to_seconds
from tests.fuzz.inputs import numbers, texts
from tests.fuzz.target import Target

_NOW = 1_790_000_000.0
_MAX_INT64 = 2**63 - 1
_YEAR = 366 * 86_400.0
_ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Antarctica/Troll")


def _of_alphabet(alphabet: str, size: int = 12) -> st.SearchStrategy[str]:
    return st.one_of(st.text(alphabet, max_size=size), texts)


def _refuses(read: Callable[[Any], object], given: Any) -> None:
    """Let `read` return a value or raise ValueError with a sentence."""
    try:
        read(given)
    except ValueError as error:
        sentence = str(error)
    else:
        return
    assert sentence, f"no sentence for {given!r}"


def _returns(read: Callable[[Any], object], given: Any) -> None:
    """Let `read` return a value or None; it raises nothing."""
    read(given)


def _quantity(text: str | float) -> None:
    """Check that what can be read is written and read again as the same amount."""
    parse(text)
    for resource in ("cpu", "memory"):
        there = amount(resource, text)
        # Above it a binary quantity is capped, as in Kubernetes.
        if abs(there) <= _MAX_INT64:
            assert amount(resource, to_text(resource, there)) == there
    canonical(text)


def _schedule(given: tuple[str, str]) -> None:
    line, zone = given
    parse_cron(line)
    last_firing(line, zone, _NOW)
    next_firing(line, zone, _NOW)
    _exhaust(islice(firings(line, zone, after=_NOW, until=_NOW + _YEAR), 20))


def _exhaust(found: Iterable[object]) -> None:
    for _ in found:
        pass


_CRON_FIELD = _of_alphabet("0123456789*/,-monju?LW#", 6)
_CRON = st.one_of(st.lists(_CRON_FIELD, min_size=4, max_size=6).map(" ".join), texts)

TARGETS = (
    Target(
        name="quantities",
        inputs=st.one_of(_of_alphabet("0123456789.eE+-KMGTPimunk"), numbers),
        check=partial(_refuses, _quantity),
        examples=300,
    ),
    Target(
        name="durations", inputs=_of_alphabet("0123456789.-+hmsµun"), check=partial(_refuses, parse_duration)
    ),
    Target(
        name="schedules",
        # The rules of a policy have checked the zone before.
        inputs=st.tuples(_CRON, st.sampled_from(_ZONES)),
        check=partial(_refuses, _schedule),
        examples=200,
    ),
    Target(name="times", inputs=_of_alphabet("0123456789-:TZ+.", 26), check=partial(_refuses, to_seconds)),
    Target(
        name="whole numbers", inputs=_of_alphabet("0123456789 _+-"), check=partial(_returns, whole_number)
    ),
    Target(
        name="numbers", inputs=_of_alphabet("0123456789 _+-.einf"), check=partial(_returns, finite_number)
    ),
    Target(name="prices", inputs=_of_alphabet("0123456789._"), check=partial(_returns, price)),
    Target(
        name="namespaces of priority classes",
        inputs=_of_alphabet('{}[]":,matchLabels', 30),
        check=partial(_refuses, lambda text: class_namespaces({NAMESPACE_SELECTOR: text})),
    ),
)
