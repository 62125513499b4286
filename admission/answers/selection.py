"""Selections: which items of a list are wanted, in which order, and which page of them.

A page continues after the last item that was returned and not at an offset. Its place is a value of the sort
key, made unique by the item's own identity, so items that appear or go between two pages shift no others.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

import msgspec

from api.parsing.decimals import whole_number

T = TypeVar("T")
# How many items a page has by default and at most. Larger pages would be decoded in one step of the event
# loop.
DEFAULT_LIMIT = 500
MAX_LIMIT = 1000
_LIMIT, _CONTINUE, _SORT = "limit", "continue", "sort"
PAGING = (_LIMIT, _CONTINUE, _SORT)
# How similar a name must be to be offered in place of an unknown one.
_SIMILARITY = 0.6
# How much of an unknown name is compared and repeated.
_NAME_SIGNS = 64
# How long a token may be. Those made here hold a few names.
_TOKEN_SIGNS = 4096

# What an item is sorted by: compared with others of the same list.
Key = tuple[Any, ...]


class BadSelectionError(ValueError):
    """A query parameter cannot be used. The message names it, its value and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The query of a list. `sort` names an order, with - in front to reverse it; "" is the default."""

    filters: Mapping[str, str] = field(default_factory=dict)
    sort: str = ""
    limit: int = DEFAULT_LIMIT
    continue_after: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices(Generic[T]):
    """What a list can be filtered and sorted by.

    A filter returns the value of an item that has to be one of those given, separated by commas. `identity`
    tells all items of the list apart. The first of `orders` is the default.
    """

    identity: Callable[[T], Key]
    filters: Mapping[str, Callable[[T], str]]
    orders: Mapping[str, Callable[[T], Key]]


def read_selection(query: Mapping[str, str], choices: Choices[Any]) -> Selection:
    """Return the selection that query parameters describe. Raises BadSelectionError."""
    for name in query:
        if name not in PAGING and name not in choices.filters:
            raise BadSelectionError(nearest("query parameter", name, (*choices.filters, *PAGING)))
    sort = query.get(_SORT, "")
    if sort and sort.removeprefix("-") not in choices.orders:
        raise BadSelectionError(nearest("order in sort", sort.removeprefix("-"), choices.orders))
    return Selection(
        filters={name: text for name, text in query.items() if name in choices.filters},
        sort=sort,
        limit=_limit(query.get(_LIMIT, "")),
        continue_after=query.get(_CONTINUE, ""),
    )


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    limit = whole_number(text)
    if not limit:
        raise BadSelectionError(f"limit={text!r}: expected a number from 1 to {MAX_LIMIT}")
    return min(limit, MAX_LIMIT)


def nearest(what: str, name: str, known: Iterable[str]) -> str:
    """Return the sentence about an unknown name, with the nearest known one."""
    name, names = name[:_NAME_SIGNS], sorted(known)
    near = get_close_matches(name, names, n=1, cutoff=_SIMILARITY)
    hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(names)}"
    return f"{name!r} is no {what}; {hint}"


def selects(choices: Choices[T], selection: Selection) -> Callable[[T], bool]:
    """Return whether an item passes all filters. An empty text selects items without a value."""
    tests = [(choices.filters[name], frozenset(text.split(","))) for name, text in selection.filters.items()]

    def is_selected(item: T) -> bool:
        # No generator: this is asked of every Workload of a cluster.
        for value, wanted in tests:  # noqa: SIM110
            if value(item) not in wanted:
                return False
        return True

    return is_selected


Ranked = Sequence[tuple[Key, T]]


def order_of(selection: Selection, choices: Choices[Any]) -> str:
    """Return the name of the selection's order."""
    return selection.sort.removeprefix("-") or next(iter(choices.orders))


def ranked(entries: Iterable[T], choices: Choices[T], order: str) -> Ranked[T]:
    """Return the entries in an order, each with its key; those of equal rank by their identity."""
    key, identity = choices.orders[order], choices.identity
    # Keys are unique, so entries are not compared.
    return sorted(((*key(one), *identity(one)), one) for one in entries)


def page_of(found: Ranked[T], selection: Selection) -> tuple[list[T], str]:
    """Return the page of these that the selection wants, and where the next one continues, "" at the end.

    Raises BadSelectionError.
    """
    is_reverse = selection.sort.startswith("-")
    rest = _behind_token(found[::-1] if is_reverse else found, selection, is_reverse=is_reverse)
    page = rest[: selection.limit]
    is_last = len(page) >= len(rest)
    return [one for _, one in page], "" if is_last else _token(selection.sort, page[-1][0])


def _behind_token(found: Ranked[T], selection: Selection, *, is_reverse: bool) -> Ranked[T]:
    """Return what is behind the item of the selection's token."""
    if not selection.continue_after:
        return found
    sort, after = _read_token(selection.continue_after)
    if sort != selection.sort:
        raise BadSelectionError("continue belongs to a list with another sort; leave it out to begin again")
    try:
        return [(key, one) for key, one in found if (key < after if is_reverse else key > after)]
    # A token that was not made here may hold values of other types.
    except TypeError as error:
        raise BadSelectionError(_BAD_TOKEN) from error


_BAD_TOKEN = "continue is no token of this list; leave it out to begin again"


def _token(sort: str, key: Key) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((sort, key))).decode().rstrip("=")


def _read_token(text: str) -> tuple[str, Key]:
    if len(text) > _TOKEN_SIGNS:
        raise BadSelectionError(_BAD_TOKEN)
    try:
        raw = base64.b64decode(f"{text}{'=' * (-len(text) % 4)}", altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=tuple[str, Key])
    # JSON of great depth needs few signs.
    except (ValueError, RecursionError) as error:
        raise BadSelectionError(_BAD_TOKEN) from error
