"""The YAML loader: text that would end the process is refused before anything is built from it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from api.parsing.yaml_loader import MOST_LEVELS, load, load_all

DEEP = {
    "lists": "[" * 31_000 + "]" * 31_000,
    "lists in lines": "- " * 25_000,
    "keys": "? " * 30_000,
    "objects": "{a: " * 30_000 + "}" * 30_000,
    "a later document": "a: 1\n---\n" + "[" * 31_000 + "]" * 31_000,
}


@pytest.mark.parametrize("read", [load, lambda text: list(load_all(text))], ids=["one", "all"])
@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_text_is_refused_before_anything_is_built(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(RecursionError, match="nested in more than 100 levels"):
        read(text)


def test_as_many_levels_as_are_allowed_are_read() -> None:
    text = "[" * MOST_LEVELS + "]" * MOST_LEVELS

    assert [load(text)] == [*load_all(text)]


def test_levels_beside_each_other_are_not_added_up() -> None:
    assert load("[" + "[{a: 1}]," * 1000 + "]") == [[{"a": 1}]] * 1000
