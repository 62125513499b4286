"""The types of the built-in kinds, read from builtin_types.txt, and decoding as in a typed server.

The real server decodes a body into a Go struct and encodes it again. The effects on the object are visible to
every client and are reproduced here: unknown fields are dropped, null counts as absent, an optional field
with its zero value is dropped, a struct that is not a pointer always appears, quantities and times get their
canonical form, and a value of a wrong type is rejected with 400 before any rule of the kind is evaluated.
"""

import binascii
import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.resources import files
from typing import Final

from api.kube.embedded.apply.schema import OPAQUE, Json, JsonObject, Schema, Type
from api.parsing.quantities import QuantityError, canonical

_FIELD = re.compile(
    r"(?P<name>[\w$-]+)(?P<required>!?):(?P<mark>[*=~]?)(?P<type>[\w.]+|\[.+?\](?!\))|\{.+?\}(?!\}))"
    r"(?P<enum>\([^)]*\))?(?P<keys>#[\w,]*)?(?P<merge>\+\w*)?~?(?P<atomic>\^?)(?:=(?P<default>\S+))?"
)
_SCALARS: Final[Mapping[str, Type]] = {
    "str": Type.STRING,
    "bool": Type.BOOLEAN,
    "num": Type.NUMBER,
    "int32": Type.INTEGER,
    "int64": Type.INTEGER,
    "quantity": Type.QUANTITY,
    "time": Type.TIME,
    "microtime": Type.TIME,
    "bytes": Type.BYTES,
    "intstr": Type.INT_OR_STRING,
}
_GO_NAMES: Final[Mapping[Type, str]] = {Type.STRING: "string", Type.BOOLEAN: "bool", Type.NUMBER: "float64"}
_INT_LIMITS: Final[Mapping[str, int]] = {"int32": 2**31, "int64": 2**63}
_EMPTY: Final[tuple[Json, ...]] = ("", 0, [], {})


class DecodeError(ValueError):
    """A body does not match its kind; the message is that of Go's decoder."""


@cache
def builtin_schema(name: str) -> Schema:
    """Return the type `name` of builtin_types.txt with its fields. Raises KeyError for an unknown name."""
    title = name if name in _notation() else f"{name}^"
    fields = _notation()[title]
    return Schema(
        type=Type.OBJECT,
        name=name.rpartition(".")[2],
        atomic=title.endswith("^"),
        properties={key: _field(token) for key, token in fields.items()},
        required=tuple(key for key, token in fields.items() if token["required"]),
    )


@cache
def _notation() -> Mapping[str, Mapping[str, re.Match[str]]]:
    notation: dict[str, dict[str, re.Match[str]]] = {}
    fields: dict[str, re.Match[str]] = {}
    for line in files(__package__).joinpath("builtin_types.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            fields = notation.setdefault(line, {})
            continue
        for token in line.split():
            match = _FIELD.fullmatch(token)
            # Checked when the first type is used, so that no typing error stays unnoticed.
            assert match, f"builtin_types.txt: {token!r} is no field"
            fields[match["name"]] = match
    return notation


def _field(token: re.Match[str]) -> Schema:
    schema = _typed(token["type"] + (token["enum"] or ""))
    keys = token["keys"]
    # A struct that is not a pointer cannot be absent, except for the few that are omitted
    # when they are empty.
    always_by_type = schema.type in (Type.OBJECT, Type.TIME) and not token["mark"]
    is_set = keys == "#"
    return replace(
        schema,
        pointer=token["mark"] == "*",
        always=token["mark"] == "=" or always_by_type,
        atomic=bool(token["atomic"]) or schema.atomic or (schema.type is Type.ARRAY and keys is None),
        is_set=is_set,
        keys=tuple(keys[1:].split(",")) if keys and not is_set else (),
        merges=token["merge"] is not None,
        merge_key=(token["merge"] or "+")[1:],
        default=token["default"],
    )


def _typed(text: str) -> Schema:
    if text.startswith("["):
        return Schema(type=Type.ARRAY, items=_typed(text[1:-1]))
    if text.startswith("{"):
        return Schema(type=Type.MAP, values=_typed(text[1:-1]))
    name, _, words = text.partition("(")
    if name == "any":
        return replace(OPAQUE)
    if name in _SCALARS:
        return Schema(type=_SCALARS[name], width=name, enum=tuple(words[:-1].split("|")) if words else ())
    return builtin_schema(name)


class Decoder:
    """Decodes request bodies into objects of one built-in type.

    `unknown` contains the paths of the fields that the last `decode` dropped, for warnings and for the strict
    mode that kubectl requests.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self.unknown: list[str] = []

    def decode(self, body: JsonObject) -> JsonObject:
        """Return the object that `body` describes, in the form of the server. Raises DecodeError."""
        self.unknown = []
        top: JsonObject = {key: body[key] for key in ("apiVersion", "kind") if key in body}
        rest = {key: value for key, value in body.items() if key not in top}
        return {**top, **self._object(self._schema, rest, "")}

    def empty(self) -> JsonObject:
        """Return the object of this type that results from an empty body, without metadata."""
        return self._object(self._schema, {}, "")

    def _object(self, schema: Schema, value: Json, path: str) -> JsonObject:
        properties = schema.properties
        out: JsonObject = {}
        for key, given in value.items():
            field = properties.get(key)
            if field is None:
                self.unknown.append(f"{path}{key}")
            elif field.type is Type.STRING and type(given) is str:
                # By far the most frequent case, so it has a shortcut.
                if given or field.always or field.pointer:
                    out[key] = given
            elif given is not None:
                decoded = self._value(field, given, f"{path}{key}", schema.name)
                if field.always or field.pointer or decoded not in _EMPTY:
                    out[key] = decoded
        for key, field in _always_written(schema):
            if key not in out:
                out[key] = self._zero(field)
        return out

    def _value(self, schema: Schema, value: Json, path: str, owner: str) -> Json:
        match schema.type:
            case Type.STRING:
                if isinstance(value, str):
                    return value
            case Type.OBJECT:
                if isinstance(value, dict):
                    return self._object(schema, value, f"{path}.")
            case Type.ARRAY:
                if isinstance(value, list):
                    items = self._array(schema.item(), value, path, owner)
                    # Storage does not preserve an empty list: one that is always written appears as null.
                    return None if schema.always and not items else items
            case Type.MAP:
                if isinstance(value, dict):
                    values = schema.values or OPAQUE
                    return {
                        key: self._value(values, item, f"{path}.{key}", owner)
                        for key, item in value.items()
                        if item is not None
                    }
            case Type.ANY:
                return value
            case _:
                return _scalar(schema, value, path, owner)
        raise _mismatch(schema, value, path, owner)

    def _array(self, item: Schema, values: list[Json], path: str, owner: str) -> list[Json]:
        if item.type is Type.OBJECT:
            return [
                self._value(item, value if value is not None else {}, f"{path}[{index}]", owner)
                for index, value in enumerate(values)
            ]
        return [self._value(item, value, path, owner) for value in values]

    def _zero(self, schema: Schema) -> Json:
        if schema.type is Type.OBJECT:
            return self._object(schema, {}, "")
        return _ZEROS.get(schema.type)


_ZEROS: Final[Mapping[Type, Json]] = {
    Type.STRING: "",
    Type.BOOLEAN: False,
    Type.INTEGER: 0,
    Type.NUMBER: 0,
    Type.QUANTITY: "0",
    Type.INT_OR_STRING: 0,
}


def _always_written(schema: Schema) -> tuple[tuple[str, Schema], ...]:
    plan = _PLANS.get(id(schema.properties))
    if plan is None:
        plan = tuple((key, field) for key, field in schema.properties.items() if field.always)
        _PLANS[id(schema.properties)] = plan
    return plan


# The fields that a type always writes, by the identity of its properties, which exist as long as the process.
_PLANS: dict[int, tuple[tuple[str, Schema], ...]] = {}


def _scalar(schema: Schema, value: Json, path: str, owner: str) -> Json:
    match schema.type:
        case Type.BOOLEAN if isinstance(value, bool):
            return value
        case Type.INTEGER if isinstance(value, int) and not isinstance(value, bool):
            limit = _INT_LIMITS[schema.width]
            if -limit <= value < limit:
                return value
        case Type.NUMBER if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        case Type.INT_OR_STRING if isinstance(value, int | str) and not isinstance(value, bool):
            return value
        case Type.QUANTITY if isinstance(value, int | float | str) and not isinstance(value, bool):
            return _quantity(value)
        case Type.TIME if isinstance(value, str):
            return _time(value, micro=schema.width == "microtime")
        case Type.BYTES if isinstance(value, str):
            return _bytes(value)
    raise _mismatch(schema, value, path, owner)


@lru_cache(maxsize=4096)
def _quantity(value: int | float | str) -> str:
    try:
        return canonical(value.strip() if isinstance(value, str) else value)
    except QuantityError as error:
        raise DecodeError(
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from error


def _time(text: str, *, micro: bool) -> str:
    form = "2006-01-02T15:04:05.000000Z07:00" if micro else "2006-01-02T15:04:05Z07:00"
    if not _RFC3339.fullmatch(text):
        raise DecodeError(f'parsing time "{text}" as "{form}": cannot parse "{text}" as "2006"')
    # The most frequent form, which is also the canonical one, so parsing is unnecessary.
    if len(text) == (27 if micro else 20) and text.endswith("Z"):
        return text
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)")


def _bytes(text: str) -> str:
    try:
        # Only validated, because the text itself is stored.
        b64decode(text, validate=True)
    except binascii.Error as error:
        raise DecodeError("illegal base64 data at input byte 0") from error
    return text


def _mismatch(schema: Schema, value: Json, path: str, owner: str) -> DecodeError:
    got = _json_word(value)
    # Go decodes a time from a string, so its message names that type.
    if schema.type is Type.TIME:
        return DecodeError(f"json: cannot unmarshal {got} into Go struct field {owner}.{path} of type string")
    return DecodeError(
        f"json: cannot unmarshal {got} into Go struct field {owner}.{path} of type {_go(schema)}"
    )


def _json_word(value: Json) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return f"number {value}" if isinstance(value, float) else "number"
    return _JSON_WORDS.get(type(value), "null")


_JSON_WORDS: Final[Mapping[type, str]] = {str: "string", list: "array", dict: "object"}


def _go(schema: Schema) -> str:
    match schema.type:
        case Type.OBJECT:
            return f"v1.{schema.name}"
        case Type.ARRAY:
            return f"[]{_go(schema.item())}"
        case Type.MAP:
            return f"map[string]{_go(schema.values or OPAQUE)}"
        case Type.INTEGER:
            return schema.width
        case _:
            return _GO_NAMES.get(schema.type, "string")
