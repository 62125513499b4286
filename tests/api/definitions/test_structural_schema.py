"""Models become structural schemas; a model without a structural form is rejected with the field's name."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, create_model

from api.definitions.structural_schema import NotStructural, structural_schema
from api.models.common import Quantity
from api.models.markers import field_rules, list_map, object_rules, rule
from tests.api.structural import faults


class Inner(BaseModel):
    """An inner object."""

    model_config = object_rules(rule("has(self.name)", "needs a name"))

    name: str


class Tree(BaseModel):
    children: list[Tree]


def schema_of(type_: Any, default: Any = ...) -> dict[str, Any]:
    model = create_model("Sample", value=(type_, default))
    value = structural_schema(model)["properties"]["value"]
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    ("type_", "want"),
    [
        pytest.param(str, {"type": "string"}, id="text"),
        pytest.param(str | None, {"type": "string"}, id="an optional field is one that may be absent"),
        pytest.param(
            Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}, id="a choice of words is an enum"
        ),
        pytest.param(Literal["a"], {"type": "string", "enum": ["a"]}, id="a single word too"),
        pytest.param(
            Annotated[int, Field(gt=0)],
            {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            id="an exclusive bound is a bound and a mark",
        ),
        pytest.param(
            dict[str, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
            id="a map says what its values are",
        ),
        pytest.param(
            dict[str, Any],
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            id="a map of anything keeps everything",
        ),
        pytest.param(Any, {"x-kubernetes-preserve-unknown-fields": True}, id="anything is kept"),
        pytest.param(
            Annotated[list[Inner], list_map("name")],
            {
                "type": "array",
                "items": {
                    "description": "An inner object.",
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                    "x-kubernetes-validations": [{"rule": "has(self.name)", "message": "needs a name"}],
                },
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            id="a list of objects with a key is a map list, its items written out",
        ),
    ],
)
def test_a_type_becomes_its_structural_form(type_: Any, want: dict[str, Any]) -> None:
    assert schema_of(type_) == want


def test_a_quantity_is_an_integer_or_a_string_of_its_form() -> None:
    schema = schema_of(Quantity)

    assert schema["x-kubernetes-int-or-string"] is True
    assert "type" not in schema
    assert schema["pattern"].startswith("^[+-]?")


def test_rules_of_a_field_add_to_those_of_its_model() -> None:
    marked = Annotated[Inner, field_rules(rule("self == oldSelf", "field is immutable"))]

    rules = schema_of(marked)["x-kubernetes-validations"]

    assert [entry["message"] for entry in rules] == ["needs a name", "field is immutable"]


def test_a_default_of_none_is_no_default() -> None:
    assert "default" not in schema_of(str | None, None)


def test_a_description_is_one_line() -> None:
    field = Annotated[str, Field(description="first\n    second")]

    assert schema_of(field)["description"] == "first second"


@pytest.mark.parametrize(
    ("type_", "want"),
    [
        pytest.param(int | str, "Sample.value: a union has no structural form", id="a union"),
        pytest.param(
            Tree, "Sample.value.children.items: Tree contains itself", id="a model that contains itself"
        ),
    ],
)
def test_what_has_no_structural_form_is_refused_by_name(type_: Any, want: str) -> None:
    with pytest.raises(NotStructural, match=want):
        schema_of(type_)


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        pytest.param({}, "the root: a type is needed", id="no type"),
        pytest.param({"type": "null"}, "the root: 'null' is no type", id="a type that is none"),
        pytest.param(
            {"type": "integer", "x-kubernetes-int-or-string": True},
            "the root: int-or-string takes no type",
            id="a type beside int-or-string",
        ),
        pytest.param({"type": "array"}, "the root: items are needed", id="a list without items"),
        pytest.param(
            {"type": "object", "properties": {"a": {"$ref": "x", "type": "string"}}},
            ".a: $ref is forbidden",
            id="a reference",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
            "the root: additionalProperties must be a schema",
            id="closed objects",
        ),
        pytest.param(
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "properties": {"name": {"type": "string"}}},
            },
            "the root: the key 'name' of a map list must be required or have a default",
            id="an optional key",
        ),
    ],
)
def test_the_checker_finds(schema: dict[str, Any], want: str) -> None:
    assert want in list(faults(schema))
