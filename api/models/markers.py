"""Markers with which a model says what Python types cannot: list types, formats and CEL rules.

A CRD knows more about a field than its type: how a list merges, which strings are quantities, which fields
freeze. pydantic carries such facts as annotations beside the type; api.definitions.structural_schema turns
them into the `x-kubernetes-*` words of a structural schema.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

RULES = "x-kubernetes-validations"
PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
LIST_TYPE = "x-kubernetes-list-type"
LIST_MAP_KEYS = "x-kubernetes-list-map-keys"


Rule = dict[str, str]
"""One CEL rule and the sentence that the API server answers when it is broken, by their schema names."""


def rule(expression: str, message: str) -> Rule:
    """Return a CEL rule; `self` is the marked value, `oldSelf` makes it a rule about changes."""
    return {"rule": expression, "message": message}


def object_rules(*rules: Rule) -> ConfigDict:
    """Return the `model_config` of a model whose objects must keep `rules`."""
    return ConfigDict(json_schema_extra={RULES: [{**rule} for rule in rules]})


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """Schema words added to those that pydantic derives from the type."""

    words: Mapping[str, Any]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), **self.words}


def field_rules(*rules: Rule) -> Extension:
    """Return the marker of a field whose value must keep `rules`."""
    return Extension({RULES: list(rules)})


@dataclass(frozen=True, slots=True, eq=False)
class _UniqueList:
    """A list whose items differ in `keys`, or as a whole where there are none.

    The API server refuses duplicates by itself; a manifest read from a file is checked here.
    """

    words: Mapping[str, Any]
    keys: Sequence[str] = field(default=())

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), **self.words}

    def _check(self, items: list[Any]) -> list[Any]:
        seen = set()
        for item in items:
            identity = tuple(getattr(item, key) for key in self.keys) if self.keys else (item,)
            if identity in seen:
                raise PydanticCustomError(
                    "duplicate", "holds {item} more than once", {"item": "/".join(map(str, identity))}
                )
            seen.add(identity)
        return items


def list_map(*keys: str) -> _UniqueList:
    """Return the marker of a list whose items are told apart by `keys` (Python names of item fields)."""
    return _UniqueList({LIST_TYPE: "map", LIST_MAP_KEYS: [to_camel(key) for key in keys]}, keys)


SET = _UniqueList({LIST_TYPE: "set"})
"""A list that holds each value once and merges value by value."""

ATOMIC = Extension({LIST_TYPE: "atomic"})
"""A list that is always replaced as a whole."""

FROZEN = field_rules(rule("self == oldSelf", "field is immutable"))
"""A field that never changes once it has a value."""

EMPTY = Extension({"default": {}})
"""An object that the API server adds where it is absent, so that the defaults inside it are visible."""
