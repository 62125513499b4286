"""Server-side apply and field ownership as functions of values, without a server."""

from __future__ import annotations

from typing import Any

import pytest

from api.kube.embedded.apply.errors import ApiError, ConflictsOfFields
from api.kube.embedded.apply.managed_fields import Writer, after_update, apply
from api.kube.embedded.apply.structural import structural_schema
from api.kube.embedded.apply.typed import compare, field_set, merge, misfits, remove

TEXT = {"type": "string"}
SCHEMA = structural_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "free": {"type": "object", "additionalProperties": TEXT},
                    "whole": {"type": "array", "items": TEXT},
                    "words": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
                    "items": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "properties": {"name": TEXT, "v": TEXT}},
                    },
                },
            }
        },
    }
)


def spec_of(value: Any) -> Any:
    return {"spec": value}


def writer(manager: str, at: str = "2026-01-01T00:00:00Z") -> Writer:
    return Writer(manager=manager, api_version="g/v1", subresource="", at=at)


def applied(
    manager: str, live: dict[str, Any] | None = None, *, force: bool = False, **spec: Any
) -> dict[str, Any]:
    return apply(SCHEMA, live or {}, {"metadata": {"name": "x"}, "spec": spec}, writer(manager), force=force)


def owned(item: dict[str, Any]) -> dict[str, Any]:
    """Return what each manager owns below spec."""
    return {entry["manager"]: entry["fieldsV1"].get("f:spec") for entry in item["metadata"]["managedFields"]}


@pytest.mark.parametrize(
    ("value", "want"),
    [
        pytest.param({"a": 1}, {"f:a": {}}, id="a value"),
        pytest.param({"free": {"x": "1"}}, {"f:free": {"f:x": {}}}, id="the keys of a free map, not the map"),
        pytest.param({"free": {}}, {"f:free": {}}, id="an empty map itself"),
        pytest.param({"whole": ["x"]}, {"f:whole": {}}, id="an atomic list as a whole"),
        pytest.param({"words": ["x"]}, {"f:words": {'v:"x"': {}}}, id="the words of a set"),
        pytest.param({"words": []}, None, id="nothing of an empty set"),
        pytest.param(
            {"items": [{"name": "i", "v": "1"}]},
            {"f:items": {'k:{"name":"i"}': {".": {}, "f:name": {}, "f:v": {}}}},
            id="an item and its fields",
        ),
    ],
)
def test_what_applying_claims(value: Any, want: Any) -> None:
    assert field_set(SCHEMA, spec_of(value)).get("f:spec") == want


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({"a": 1}, {"a": 1}, ({}, {}, {}), id="nothing"),
        pytest.param({}, {"a": 1}, ({"f:a": {}}, {}, {}), id="added"),
        pytest.param({"a": 1}, {"a": 2}, ({}, {"f:a": {}}, {}), id="modified"),
        pytest.param({"a": 1}, {}, ({}, {}, {"f:a": {}}), id="removed"),
        pytest.param(
            {},
            {"free": {"x": "1"}},
            ({"f:free": {".": {}, "f:x": {}}}, {}, {}),
            id="a container counts with all in it",
        ),
        pytest.param(
            {"whole": ["x"]}, {"whole": ["y"]}, ({}, {"f:whole": {}}, {}), id="an atomic list is one value"
        ),
        pytest.param(
            {"words": ["x", "y"]},
            {"words": ["z", "y"]},
            ({"f:words": {'v:"z"': {}}}, {}, {"f:words": {'v:"x"': {}}}),
            id="words come and go",
        ),
        pytest.param(
            {"words": ["x", "y"]}, {"words": ["y", "x"]}, ({}, {}, {}), id="order is no change of a set"
        ),
    ],
)
def test_how_an_object_changed(old: Any, new: Any, want: tuple[Any, Any, Any]) -> None:
    found = compare(SCHEMA, {"spec": old, "other": 1}, {"spec": new, "other": 1})

    assert tuple(fields.get("f:spec", {}) for fields in found) == want


@pytest.mark.parametrize(
    ("live", "applied_words", "want"),
    [
        pytest.param("ab", "c", "abc", id="new ones follow"),
        pytest.param("abc", "b", "abc", id="what is there keeps its place"),
        pytest.param("abc", "cb", "acb", id="the applied order holds among shared ones"),
        pytest.param("abc", "xb", "axbc", id="a new one goes before the shared one it was applied before"),
        pytest.param("", "ba", "ba", id="from nothing"),
        pytest.param("ab", "", "ab", id="nothing applied"),
        pytest.param("axb", "ba", "xba", id="a shared one waits for its turn"),
    ],
)
def test_lists_are_interleaved(live: str, applied_words: str, want: str) -> None:
    merged = merge(SCHEMA, spec_of({"words": list(live)}), spec_of({"words": list(applied_words)}))

    assert merged["spec"]["words"] == list(want)


def test_removing_empties_to_nothing() -> None:
    value = spec_of({"a": 1, "free": {"x": "1", "y": "2"}})

    assert remove(SCHEMA, value, {"f:spec": {"f:free": {"f:x": {}}}}) == spec_of({"a": 1, "free": {"y": "2"}})
    assert remove(SCHEMA, value, {"f:spec": {"f:free": {"f:x": {}, "f:y": {}}}})["spec"]["free"] is None


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"a": "x"}, [".spec.a: expected numeric (int or float), got string"], id="text for a number"
        ),
        pytest.param({"b": 1}, [".spec.b: field not declared in schema"], id="an unknown field"),
        pytest.param(
            {"words": ["x", "x"]}, ['.spec.words: duplicate entries for key [="x"]'], id="a word twice"
        ),
        pytest.param({"free": {"x": "1"}, "items": [{"name": "i"}]}, [], id="what fits"),
    ],
)
def test_what_cannot_be_applied(spec: Any, want: list[str]) -> None:
    assert list(misfits(SCHEMA, spec_of(spec))) == want


def test_each_manager_owns_what_it_applied() -> None:
    first = applied("alice", a=1, items=[{"name": "i"}])

    both = applied("bob", first, items=[{"name": "j"}])

    assert both["spec"]["items"] == [{"name": "i"}, {"name": "j"}]
    assert owned(both) == {
        "alice": {"f:a": {}, "f:items": {'k:{"name":"i"}': {".": {}, "f:name": {}}}},
        "bob": {"f:items": {'k:{"name":"j"}': {".": {}, "f:name": {}}}},
    }


def test_conflicts_name_every_field_and_owner() -> None:
    live = applied("bob", applied("alice", a=1), free={"x": "1"})

    with pytest.raises(ConflictsOfFields) as refused:
        applied("carol", live, a=2, free={"x": "2"})

    assert refused.value.message == (
        "Apply failed with 2 conflicts: "
        'conflicts with "alice":\n- .spec.a\nconflicts with "bob":\n- .spec.free.x'
    )


def test_the_same_value_is_shared_without_conflict() -> None:
    live = applied("alice", a=1)

    assert owned(applied("bob", live, a=1)) == {"alice": {"f:a": {}}, "bob": {"f:a": {}}}


def test_what_is_no_longer_applied_goes_unless_another_owns_it() -> None:
    live = applied("bob", applied("alice", a=1, free={"x": "1", "y": "2"}), free={"y": "2"})

    left = applied("alice", live, whole=["z"])

    assert left["spec"] == {"free": {"y": "2"}, "whole": ["z"]}
    assert owned(left) == {"alice": {"f:whole": {}}, "bob": {"f:free": {"f:y": {}}}}


def test_what_a_plain_write_added_is_not_removed_by_applying() -> None:
    live = applied("alice", items=[{"name": "i"}])
    written = {**live, "spec": {"items": [{"name": "i", "v": "1"}]}}
    written["metadata"] = {
        **live["metadata"],
        "managedFields": after_update(SCHEMA, live, written, writer("kubectl")),
    }

    again = applied("alice", written, items=[{"name": "i"}])

    assert again["spec"]["items"] == [{"name": "i", "v": "1"}]


def test_a_plain_write_takes_what_it_changed() -> None:
    live = applied("alice", a=1, free={"x": "1"})
    changed = {**live, "spec": {**live["spec"], "a": 2}}

    entries = after_update(SCHEMA, live, changed, writer("bob"))

    assert [(entry["manager"], entry["fieldsV1"]) for entry in entries] == [
        ("alice", {"f:spec": {"f:free": {"f:x": {}}}}),
        ("bob", {"f:spec": {"f:a": {}}}),
    ]


def test_fields_without_an_owner_before_the_first_apply_are_kept_apart() -> None:
    live = {"metadata": {"name": "x", "uid": "u"}, "spec": {"a": 1}}

    with pytest.raises(ConflictsOfFields, match='"before-first-apply" using g/v1'):
        applied("alice", live, a=2)


def test_the_time_of_an_entry_is_that_of_its_last_change() -> None:
    first = applied("alice", a=1)

    again = apply(
        SCHEMA, first, {"metadata": {"name": "x"}, "spec": {"a": 1}}, writer("alice", "later"), force=False
    )

    assert again == first


def test_many_plain_writers_are_merged_into_one() -> None:
    item: dict[str, Any] = {"metadata": {"name": "x"}, "spec": {"free": {}}}
    for number in range(13):
        new = {**item, "spec": {"free": {**item["spec"]["free"], f"k{number}": "1"}}}
        entries = after_update(SCHEMA, item, new, writer(f"m{number:02}", f"2026-01-01T00:00:{number:02}Z"))
        item = {**new, "metadata": {"name": "x", "uid": "u", "managedFields": entries}}

    managers = [entry["manager"] for entry in item["metadata"]["managedFields"]]
    assert managers[0] == "ancient-changes"
    assert len(managers) == 10


def test_an_applied_body_has_no_entries_of_its_own() -> None:
    body = {"metadata": {"name": "x", "managedFields": []}, "spec": {}}

    with pytest.raises(ApiError, match="managedFields must be nil"):
        apply(SCHEMA, {}, body, writer("alice"), force=False)
