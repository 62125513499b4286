"""Markers for what Python types cannot express: list types, formats and CEL rules.

A CRD says more about a field than its type: how a list merges, which strings are quantities, which fields are
immutable. pydantic carries these facts as annotations beside the type; api.definitions.structural_schema
writes them as the `x-kubernetes-*` keywords of a structural schema.
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
"""One CEL rule and the message that the API server returns when the rule is violated,
by their schema keys."""


def rule(expression: str, message: str) -> Rule:
    """Return a CEL rule.

    `self` is the marked value; a rule that uses `oldSelf` is evaluated on updates only.
    """
    return {"rule": expression, "message": message}


def object_rules(*rules: Rule) -> ConfigDict:
    """Return the `model_config` of a model whose objects must satisfy `rules`."""
    return ConfigDict(json_schema_extra={RULES: [{**rule} for rule in rules]})


@dataclass(frozen=True, slots=True, eq=False)
class Extension:
    """Schema keywords added to those that pydantic derives from the type."""

    words: Mapping[str, Any]

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), **self.words}


def field_rules(*rules: Rule) -> Extension:
    """Return the marker of a field whose value must satisfy `rules`."""
    return Extension({RULES: list(rules)})


@dataclass(frozen=True, slots=True, eq=False)
class _UniqueList:
    """A list whose items have different values of `keys`, or are different as a whole if `keys` is empty.

    The API server rejects duplicates itself; for a manifest that is read from a file, the check runs here.
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
    """Return the marker of a list whose items are identified by `keys` (Python names of item fields)."""
    return _UniqueList({LIST_TYPE: "map", LIST_MAP_KEYS: [to_camel(key) for key in keys]}, keys)


SET = _UniqueList({LIST_TYPE: "set"})
"""A list that contains each value once and is merged value by value."""

ATOMIC = Extension({LIST_TYPE: "atomic"})
"""A list that is always replaced as a whole."""

FROZEN = field_rules(rule("self == oldSelf", "field is immutable"))
"""A field that cannot change once it has a value."""

EMPTY = Extension({"default": {}})
"""An object that the API server adds if it is absent, so that the defaults of its fields are visible."""
