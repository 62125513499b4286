"""Custom objects are pruned, defaulted and validated by their CRD, with the real server's messages."""

from __future__ import annotations

from typing import Any

import pytest

from api.kube.embedded.apply.structural import faults, fit, structural_schema


def schema(**properties: Any) -> Any:
    spec = {"type": "object", "properties": properties}
    return structural_schema({"type": "object", "properties": {"spec": spec}})


def fitted(found: Any, spec: Any) -> tuple[Any, list[str]]:
    unknown: list[str] = []
    return fit(found, {"spec": spec}, unknown)["spec"], unknown


INT, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("properties", "spec", "want", "unknown"),
    [
        pytest.param({"a": INT}, {"a": 1, "b": 2}, {"a": 1}, ["spec.b"], id="an unknown field is dropped"),
        pytest.param({"a": INT | {"default": 3}}, {}, {"a": 3}, [], id="a default is filled"),
        pytest.param(
            {"a": INT | {"default": 3}}, {"a": None}, {"a": 3}, [], id="a default takes the place of null"
        ),
        pytest.param({"a": INT}, {"a": None}, {}, [], id="a null is as good as absent"),
        pytest.param(
            {"a": INT | {"nullable": True}}, {"a": None}, {"a": None}, [], id="a null that is wanted stays"
        ),
        pytest.param(
            {"o": {"type": "object", "properties": {"a": INT | {"default": 1}}}},
            {},
            {},
            [],
            id="defaults do not make the object around them",
        ),
        pytest.param(
            {"o": {"type": "object", "default": {}, "properties": {"a": INT | {"default": 1}}}},
            {},
            {"o": {"a": 1}},
            [],
            id="unless that has one itself",
        ),
        pytest.param(
            {"l": {"type": "array", "items": {"type": "object", "properties": {"a": INT}}}},
            {"l": [{"a": 1, "b": 2}]},
            {"l": [{"a": 1}]},
            ["spec.l[0].b"],
            id="items are pruned too",
        ),
        pytest.param(
            {"o": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            {"o": {"any": {"thing": 1}}},
            {"o": {"any": {"thing": 1}}},
            [],
            id="what is to be preserved is",
        ),
        pytest.param(
            {"m": {"type": "object", "additionalProperties": TEXT}},
            {"m": {"free": "key"}},
            {"m": {"free": "key"}},
            [],
            id="free keys",
        ),
    ],
)
def test_fitting(properties: Any, spec: Any, want: Any, unknown: list[str]) -> None:
    assert fitted(schema(**properties), spec) == (want, unknown)


@pytest.mark.parametrize(
    ("rule", "value", "want"),
    [
        (INT, "x", 'Invalid value: "string": spec.a in body must be of type integer: "string"'),
        (INT, True, 'Invalid value: "boolean": spec.a in body must be of type integer: "boolean"'),
        (TEXT, 1, 'Invalid value: "integer": spec.a in body must be of type string: "integer"'),
        (INT | {"minimum": 1}, 0, "Invalid value: 0: spec.a in body should be greater than or equal to 1"),
        (INT | {"maximum": 5}, 6, "Invalid value: 6: spec.a in body should be less than or equal to 5"),
        (
            INT | {"minimum": 1, "exclusiveMinimum": True},
            1,
            "Invalid value: 1: spec.a in body should be greater than 1",
        ),
        (
            INT | {"format": "int32"},
            2**31,
            "Invalid value: 2147483648: spec.a in body must be of type int32: 2147483648",
        ),
        (TEXT | {"enum": ["A", "B"]}, "C", 'Unsupported value: "C": supported values: "A", "B"'),
        (TEXT | {"pattern": "^a+$"}, "b", "Invalid value: \"b\": spec.a in body should match '^a+$'"),
        (TEXT | {"maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        (TEXT | {"minLength": 1}, "", 'Invalid value: "": spec.a in body should be at least 1 chars long'),
        (
            TEXT | {"format": "date-time"},
            "soon",
            'Invalid value: "soon": spec.a in body must be of type date-time: "soon"',
        ),
        ({"type": "array", "items": INT, "maxItems": 1}, [1, 2], "Too many: 2: must have at most 1 items"),
        (
            {"type": "array", "items": INT, "minItems": 1},
            [],
            "Invalid value: 0: spec.a in body should have at least 1 items",
        ),
        ({"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}, 1, None),
        (
            {"type": "object", "maxProperties": 0, "additionalProperties": INT},
            {"x": 1},
            "Too many: 1: must have at most 0 items",
        ),
    ],
)
def test_rules(rule: Any, value: Any, want: str | None) -> None:
    found = [fault.text for fault in faults(schema(a=rule), {"spec": {"a": value}})]

    assert found == ([] if want is None else [f"spec.a: {want}"])


def test_what_is_required_is_missed_by_its_path() -> None:
    rule = structural_schema(
        {
            "type": "object",
            "required": ["spec"],
            "properties": {"spec": {"type": "object", "required": ["a"], "properties": {"a": INT}}},
        }
    )

    assert [fault.text for fault in faults(rule, {})] == ["spec: Required value"]
    assert [fault.text for fault in faults(rule, {"spec": {}})] == ["spec.a: Required value"]


def test_items_under_one_key_are_duplicates() -> None:
    named = {"type": "object", "properties": {"name": TEXT}}
    rule = {
        "type": "array",
        "items": named,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }

    (fault,) = faults(schema(a=rule), {"spec": {"a": [{"name": "x"}, {"name": "y"}, {"name": "x"}]}})

    assert fault.text == 'spec.a[2]: Duplicate value: {"name":"x"}'


@pytest.mark.parametrize(
    ("rule", "value", "want"),
    [
        ({"oneOf": [{"required": ["x"]}, {"required": ["y"]}]}, {"x": 1, "y": 1}, "(oneOf)"),
        ({"anyOf": [{"required": ["x"]}, {"required": ["y"]}]}, {}, "(anyOf)"),
        ({"not": {"required": ["x"]}}, {"x": 1}, "(not)"),
        ({"allOf": [{"required": ["x"]}]}, {}, "spec.a.x: Required value"),
    ],
)
def test_junctors(rule: Any, value: Any, want: str) -> None:
    found = schema(a={"type": "object", "properties": {"x": INT, "y": INT}, **rule})

    assert [want in fault.text for fault in faults(found, {"spec": {"a": value}})] == [True]
