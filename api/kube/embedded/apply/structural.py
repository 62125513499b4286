"""The types of custom kinds, read from a CRD, and the conversion and validation of objects.

`fit` prunes unknown fields and sets defaults; `faults` applies the value validations of OpenAPI. Both
follow k8s.io/apiextensions-apiserver: an object is valid here exactly if it is valid there, and the
messages are the same.

CEL rules (x-kubernetes-validations) are not evaluated, because this would need an interpreter for CEL.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from api.kube.embedded.apply.builtin_types import builtin_schema
from api.kube.embedded.apply.errors import (
    FieldError,
    duplicate,
    invalid_value,
    required,
    too_long,
    too_many,
    unsupported,
    wrong_type,
)
from api.kube.embedded.apply.field_sets import item_element
from api.kube.embedded.apply.schema import Json, JsonObject, Schema, Type

_TYPES: Final[Mapping[str, Type]] = {
    "object": Type.OBJECT,
    "array": Type.ARRAY,
    "string": Type.STRING,
    "integer": Type.INTEGER,
    "number": Type.NUMBER,
    "boolean": Type.BOOLEAN,
}
_ALWAYS_KNOWN: Final = ("apiVersion", "kind", "metadata")
_INT_BITS: Final[Mapping[str, int]] = {"int32": 31, "int64": 63}


@dataclass(slots=True, kw_only=True, eq=False)
class Structural(Schema):
    """One node of a CRD's schema: its type, and the validations of its values, by their OpenAPI names."""

    rules: Mapping[str, Any]
    pattern: re.Pattern[str] | None = None
    is_embedded: bool = False
    is_nullable: bool = False
    has_default: bool = False
    all_of: Sequence["Structural"] = ()
    any_of: Sequence["Structural"] = ()
    one_of: Sequence["Structural"] = ()
    none_of: "Structural | None" = None
    has_junctors: bool = False


def structural_schema(document: JsonObject, *, name: str = "") -> Structural:
    """Return the type that a CRD's openAPIV3Schema describes.

    Its root has the metadata of built-in kinds.
    """
    # One tree per version of a CRD, built once and used for all objects.
    root = _node(document, name)
    metadata = builtin_schema("ObjectMeta")
    root.properties = {
        **root.properties,
        "apiVersion": Schema(type=Type.STRING),
        "kind": Schema(type=Type.STRING),
        "metadata": metadata,
    }
    return root


def _node(document: JsonObject, name: str = "") -> Structural:
    schema = Structural(type=_type(document), name=name, rules=document)
    schema.description = document.get("description", "")
    schema.is_open = bool(document.get("x-kubernetes-preserve-unknown-fields"))
    schema.is_embedded = bool(document.get("x-kubernetes-embedded-resource"))
    schema.is_nullable = bool(document.get("nullable"))
    schema.has_default = "default" in document
    schema.default = document.get("default")
    # A tuple is sufficient for `in`, because enums are short.
    schema.enum = tuple(document.get("enum", ()))
    schema.required = tuple(document.get("required", ()))
    schema.pattern = re.compile(document["pattern"]) if "pattern" in document else None
    schema.properties = {key: _node(below, key) for key, below in document.get("properties", {}).items()}
    _read_containers(schema, document)
    _read_junctors(schema, document)
    return schema


def _type(document: JsonObject) -> Type:
    if document.get("x-kubernetes-int-or-string"):
        return Type.INT_OR_STRING
    found = _TYPES.get(document.get("type", ""), Type.ANY)
    # additionalProperties makes an object a map, with free keys and typed values.
    has_free_keys = found is Type.OBJECT and document.get("additionalProperties")
    return Type.MAP if has_free_keys else found


def _read_containers(schema: Structural, document: JsonObject) -> None:
    if isinstance(values := document.get("additionalProperties"), dict):
        schema.values = _node(values)
    elif values is True:
        schema.is_open = True
    if isinstance(items := document.get("items"), dict):
        schema.items = _node(items)
    # Lists are atomic unless the CRD declares another type, as in the API.
    list_type = document.get("x-kubernetes-list-type", "atomic")
    schema.is_set = list_type == "set"
    schema.keys = tuple(document.get("x-kubernetes-list-map-keys", ())) if list_type == "map" else ()
    is_atomic_list = schema.type is Type.ARRAY and list_type == "atomic"
    schema.atomic = is_atomic_list or document.get("x-kubernetes-map-type") == "atomic"


def _read_junctors(schema: Structural, document: JsonObject) -> None:
    schema.all_of = [_node(below) for below in document.get("allOf", ())]
    schema.any_of = [_node(below) for below in document.get("anyOf", ())]
    schema.one_of = [_node(below) for below in document.get("oneOf", ())]
    schema.none_of = _node(document["not"]) if "not" in document else None
    schema.has_junctors = not document.keys().isdisjoint(("allOf", "anyOf", "oneOf", "not"))


def fit(schema: Schema, value: Json, unknown: list[str], path: str = "") -> Json:
    """Return `value` pruned and with defaults; add the paths of pruned fields to `unknown`.

    Values of a wrong type are kept, because `faults` reports them.
    """
    if isinstance(value, dict):
        return _fit_object(schema, value, unknown, path)
    if isinstance(value, list) and schema.items is not None:
        return [fit(schema.items, item, unknown, f"{path}[{index}]") for index, item in enumerate(value)]
    return value


def _fit_object(schema: Schema, value: JsonObject, unknown: list[str], path: str) -> JsonObject:
    if not isinstance(schema, Structural):
        return value
    # A new object, because bodies are shared with the store.
    out: JsonObject = {}
    for key, item in value.items():
        here = f"{path}.{key}" if path else key
        below = schema.properties.get(key) or schema.values
        if below is not None:
            # A null for a field that is not nullable is dropped, so that a default can replace it.
            if not (item is None and _drops_null(below)):
                out[key] = fit(below, item, unknown, here)
        elif schema.is_open or (schema.is_embedded and key in _ALWAYS_KNOWN):
            out[key] = item
        else:
            unknown.append(here)
    # Last, so that a default also replaces a null that was dropped above.
    for key, below in schema.properties.items():
        if isinstance(below, Structural) and below.has_default and key not in out:
            # The default is converted too, because its own type may have defaults.
            out[key] = fit(below, deepcopy(below.default), unknown, f"{path}.{key}")
    return out


def _drops_null(schema: Schema) -> bool:
    # Such a null counts as absent, and a default replaces it; in a list it is a value of a wrong type.
    return isinstance(schema, Structural) and not schema.is_nullable


def faults(schema: Schema, value: Json, path: str = "") -> Iterator[FieldError]:
    """Yield every violation of the schema by `value`."""
    # Values without a structural schema have no validations.
    if not isinstance(schema, Structural) or (value is None and schema.is_nullable):
        return
    if not _has_type(schema, value):
        # Other validations assume the right type.
        yield _type_fault(schema, value, path)
        return
    if schema.enum and value not in schema.enum:
        yield unsupported(path, value, schema.enum)
    if isinstance(value, str):
        yield from _string_faults(schema, value, path)
    elif isinstance(value, list):
        yield from _array_faults(schema, value, path)
    elif isinstance(value, dict):
        yield from _object_faults(schema, value, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_faults(schema.rules, value, path)
    if schema.has_junctors:
        yield from _junctor_faults(schema, value, path)


# Only exact types match, because Python treats JSON's true and false as numbers.
_FORMS: Final[Mapping[Type, tuple[type, ...]]] = {
    Type.OBJECT: (dict,),
    Type.MAP: (dict,),
    Type.ARRAY: (list,),
    Type.STRING: (str,),
    Type.BOOLEAN: (bool,),
    Type.INTEGER: (int,),
    Type.NUMBER: (int, float),
    Type.INT_OR_STRING: (int, str),
}


def _has_type(schema: Structural, value: Json) -> bool:
    forms = _FORMS.get(schema.type)
    if forms is None or type(value) in forms:
        return True
    # JSON has a single number type, so 3.0 is an integer.
    return schema.type is Type.INTEGER and isinstance(value, float) and value.is_integer()


def _type_fault(schema: Structural, value: Json, path: str) -> FieldError:
    got = _type_name(value)
    want = {Type.MAP: "object", Type.INT_OR_STRING: "integer,string"}.get(schema.type, str(schema.type))
    return wrong_type(path, got, f'{path} in body must be of type {want}: "{got}"')


def _type_name(value: Json) -> str:
    if isinstance(value, bool):
        return "boolean"
    names: Mapping[type, str] = {
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return names.get(type(value), "null")


def _string_faults(schema: Structural, value: str, path: str) -> Iterator[FieldError]:
    rules = schema.rules
    if "maxLength" in rules and len(value) > rules["maxLength"]:
        yield too_long(path, rules["maxLength"])
    if "minLength" in rules and len(value) < rules["minLength"]:
        why = f"{path} in body should be at least {rules['minLength']} chars long"
        yield invalid_value(path, value, why)
    # `search` and not `match`, because OpenAPI patterns are not anchored.
    if schema.pattern is not None and not schema.pattern.search(value):
        yield invalid_value(path, value, f"{path} in body should match '{schema.pattern.pattern}'")
    if rules.get("format") == "date-time" and not _is_date_time(value):
        yield invalid_value(path, value, f'{path} in body must be of type date-time: "{value}"')


def _is_date_time(text: str) -> bool:
    try:
        # RFC 3339 requires a time zone, which Python's parser does not.
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _number_faults(rules: Mapping[str, Any], value: float, path: str) -> Iterator[FieldError]:
    if "minimum" in rules:
        low, is_open = rules["minimum"], rules.get("exclusiveMinimum", False)
        if value <= low if is_open else value < low:
            limit = f"greater than {low}" if is_open else f"greater than or equal to {low}"
            yield invalid_value(path, value, f"{path} in body should be {limit}")
    if "maximum" in rules:
        high, is_open = rules["maximum"], rules.get("exclusiveMaximum", False)
        if value >= high if is_open else value > high:
            limit = f"less than {high}" if is_open else f"less than or equal to {high}"
            yield invalid_value(path, value, f"{path} in body should be {limit}")
    # The API server also computes the remainder of floats.
    if (multiple := rules.get("multipleOf")) and value % multiple:
        yield invalid_value(path, value, f"{path} in body should be a multiple of {multiple}")
    if (bits := _INT_BITS.get(rules.get("format", ""))) and not -(2**bits) <= value < 2**bits:
        yield invalid_value(path, value, f"{path} in body must be of type {rules['format']}: {value}")


def _array_faults(schema: Structural, value: list[Json], path: str) -> Iterator[FieldError]:
    rules = schema.rules
    if "maxItems" in rules and len(value) > rules["maxItems"]:
        yield too_many(path, len(value), rules["maxItems"])
    if "minItems" in rules and len(value) < rules["minItems"]:
        why = f"{path} in body should have at least {rules['minItems']} items"
        yield invalid_value(path, len(value), why)
    if schema.items is not None:
        for index, item in enumerate(value):
            yield from faults(schema.items, item, f"{path}[{index}]")
    if schema.is_granular_array:
        yield from _duplicates(schema, value, path)


def _duplicates(schema: Structural, value: list[Json], path: str) -> Iterator[FieldError]:
    seen = set()
    for index, item in enumerate(value):
        element = item_element(schema, item)
        if element in seen:
            shown = {key: item.get(key) for key in schema.keys} if isinstance(item, dict) else item
            yield duplicate(f"{path}[{index}]", shown)
        seen.add(element)


def _object_faults(schema: Structural, value: JsonObject, path: str) -> Iterator[FieldError]:
    rules = schema.rules
    for key in schema.required:
        if key not in value:
            yield required(f"{path}.{key}" if path else key)
    if "maxProperties" in rules and len(value) > rules["maxProperties"]:
        yield too_many(path, len(value), rules["maxProperties"])
    if "minProperties" in rules and len(value) < rules["minProperties"]:
        why = f"{path} in body should have at least {rules['minProperties']} properties"
        # In the order in which the real server reports violations.
        yield invalid_value(path, len(value), why)
    for key, item in value.items():
        below = schema.properties.get(key) or schema.values
        if below is not None:
            yield from faults(below, item, f"{path}.{key}" if path else key)


def _junctor_faults(schema: Structural, value: Json, path: str) -> Iterator[FieldError]:
    for below in schema.all_of:
        yield from faults(below, value, path)
    if schema.any_of and not any(_passes(below, value) for below in schema.any_of):
        why = f"{path} in body must validate at least one schema (anyOf)"
        yield invalid_value(path, value, why)
    if schema.one_of and sum(_passes(below, value) for below in schema.one_of) != 1:
        why = f"{path} in body must validate one and only one schema (oneOf)"
        yield invalid_value(path, value, why)
    if schema.none_of is not None and _passes(schema.none_of, value):
        why = f"{path} in body must not validate the schema (not)"
        yield invalid_value(path, value, why)


def _passes(schema: Structural, value: Json) -> bool:
    return next(faults(schema, value), None) is None
