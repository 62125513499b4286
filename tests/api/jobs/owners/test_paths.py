"""Values by path: what is read, replaced and shared."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.owners.paths import Path, merged, path_text, replaced, value_at

BODY: dict[str, Any] = {"a": {"b": [{"c": 1}, {"c": 2}]}, "d": "text"}


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param(("a", "b", 1, "c"), 2, id="through a list"),
        pytest.param(("a", "b", 7, "c"), None, id="beyond a list"),
        pytest.param(("a", "x", "c"), None, id="a missing field"),
        pytest.param(("d", 0), None, id="a text is no list"),
        pytest.param(("d", "x"), None, id="a text is no object"),
        pytest.param((), BODY, id="the object itself"),
    ],
)
def test_the_value_at_a_path(path: Path, want: object) -> None:
    assert value_at(BODY, path) == want


def test_a_value_is_replaced_and_the_object_stays() -> None:
    changed = replaced(BODY, ("a", "b", 0, "c"), 9)

    assert changed == {"a": {"b": [{"c": 9}, {"c": 2}]}, "d": "text"}
    assert BODY["a"]["b"][0] == {"c": 1}
    assert changed["a"]["b"][1] is BODY["a"]["b"][1]


def test_objects_on_the_way_are_created() -> None:
    assert replaced({}, ("spec", "runPolicy", "suspend"), True) == {"spec": {"runPolicy": {"suspend": True}}}


@pytest.mark.parametrize("path", [("d", "x"), ("a", 0), ("a", "b", "x")])
def test_a_step_of_another_type_is_refused(path: Path) -> None:
    with pytest.raises(TypeError, match="is no"):
        replaced(BODY, path, 1)


def test_a_merge_patch_removes_merges_and_replaces() -> None:
    assert merged({"a": 1, "b": {"c": 1, "d": 2}}, {"a": None, "b": {"c": None, "e": [3]}}) == {
        "b": {"d": 2, "e": [3]}
    }


def test_a_path_as_people_write_it() -> None:
    assert path_text(("spec", "replicatedJobs", 0, "template")) == "spec.replicatedJobs[0].template"
