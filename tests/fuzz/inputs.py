"""What the targets are given: texts, JSON values, samples with some parts changed, and broken bytes.

Nearly valid input finds more than chance: most examples are a valid sample in which one to three parts were
replaced, removed or repeated.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

Json = Any
Path = tuple[str | int, ...]

# Replaced by brackets that are nested this deep, after encoding: json.dumps cannot write them.
_DEEP = "nested deep"
_DEPTH = 5_000

_NUMBERS: tuple[float | int, ...] = (
    *(0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400),
    *(0.5, -0.0, 1e-320, 1e308, float("inf"), float("-inf"), float("nan")),
)
_TEXTS = (
    *(
        "",
        " ",
        "0",
        "-1",
        "1",
        "007",
        "1e3",
        "1e400",
        "1e1000000000",
        "1E",
        "1Ei",
        "16Ei",
        "100000Ei",
        "nan",
        "inf",
    ),
    *(
        "+1",
        "1_000",
        "٣",
        "²",
        "½",
        "1.",
        ".5",
        "9" * 30,
        "9" * 5_000,
        "0x10",
        "1h",
        "99999999h",
        "1h1h",
        "-5m",
    ),
    *(
        "true",
        "null",
        "a",
        "A" * 300,
        "a/b",
        "a/b/c",
        "/",
        "..",
        ".",
        "a b",
        "é",
        "\x00",
        "\r\n",
        "\u2028",
        "\u202e",
    ),
    *(
        "\ud800",
        "😀",
        "{}",
        "[]",
        '"',
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
    ),
    *(
        "2026-13-01T00:00:00Z",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "* * * * *",
        "0 0 31 2 *",
        "Europe/Berlin",
        "../etc",
    ),
    *("cpu", "nvidia.com/gpu", "In", "Exists", "DoesNotExist", "NotIn", "True", "False", "Unknown"),
)

texts = st.one_of(st.sampled_from(_TEXTS), st.text(max_size=12))
numbers = st.one_of(st.sampled_from(_NUMBERS), st.integers(), st.floats())
_leaves = st.one_of(st.none(), st.booleans(), numbers, texts, st.just(_DEEP))
values: st.SearchStrategy[Json] = st.recursive(
    _leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)


def paths_of(value: Json) -> tuple[Path, ...]:
    """Return the paths of all parts of a JSON value, that of the whole left out."""
    return tuple(_paths(value, ()))


def _paths(value: Json, path: Path) -> Iterator[Path]:
    if path:
        yield path
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*path, index))


@st.composite
def changed(draw: st.DrawFn, samples: Sequence[Json], *, fixed: Sequence[Path] = ()) -> Json:
    """Draw one of the samples with one to three parts changed, none of them at or above a `fixed` path."""
    sample = draw(st.sampled_from(samples))
    made = copy.deepcopy(sample)
    paths = [path for path in paths_of(sample) if not any(one[: len(path)] == path for one in fixed)]
    for path in draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3)):
        _change(draw, made, path)
    return made


def _change(draw: st.DrawFn, made: Json, path: Path) -> None:
    """Change one part. An earlier change may have removed it: then nothing changes."""
    parent = made
    for step in path[:-1]:
        if not _has(parent, step):
            return
        parent = parent[step]
    last = path[-1]
    if not _has(parent, last):
        return
    how = draw(st.sampled_from(("replace", "replace", "like", "remove", "add")))
    if how == "replace":
        parent[last] = draw(values)
    elif how == "like":
        parent[last] = draw(_like(parent[last]))
    elif how == "remove":
        del parent[last]
    elif isinstance(parent, dict):
        parent[draw(texts)] = draw(values)
    else:
        parent.append(copy.deepcopy(parent[last]))


def _has(parent: Json, step: str | int) -> bool:
    if isinstance(step, str):
        return isinstance(parent, dict) and step in parent
    return isinstance(parent, list) and step < len(parent)


def _like(value: Json) -> st.SearchStrategy[Json]:
    """Return values of the same JSON type: they come further than those of another."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int | float):
        return numbers
    return texts if isinstance(value, str) else values


def to_json(value: Json) -> bytes:
    """Return the value as JSON text; what JSON cannot express, such as NaN, is in it as Python writes it."""
    nested = "[" * _DEPTH + "]" * _DEPTH
    return json.dumps(value).replace(json.dumps(_DEEP), nested).encode()


@st.composite
def broken_bytes(draw: st.DrawFn, whole: st.SearchStrategy[bytes]) -> bytes:
    """Draw bytes that were cut off, or in which some were inserted or written over; seldom whole ones."""
    made = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(made)))
        junk = draw(
            st.one_of(
                st.binary(max_size=4),
                st.sampled_from((b"\xff", b"\x00", b"{", b"]", b'"', b"\n", b"\xed\xa0\x80")),
            )
        )
        match draw(st.sampled_from(("cut", "insert", "overwrite"))):
            case "cut":
                del made[at:]
            case "insert":
                made[at:at] = junk
            case _:
                made[at : at + len(junk)] = junk
    return bytes(made)
