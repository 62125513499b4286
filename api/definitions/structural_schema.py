"""Translation of a pydantic model into the structural schema that a CustomResourceDefinition requires.

pydantic writes JSON Schema 2020-12. The API server expects a dialect of OpenAPI 3.0 in which every node has
exactly one type and no node refers to another. Keyword by keyword, the translation is:

    $ref, $defs                     inlined; a recursive model has no structural schema
    anyOf [X, null]                 X; absent and null mean the same to the API server
    const                           enum with one value
    exclusiveMinimum: n             minimum: n, exclusiveMinimum: true (and Maximum likewise)
    additionalProperties: true      x-kubernetes-preserve-unknown-fields, where no properties are named
    additionalProperties: false     dropped, because the API server prunes unknown fields
    {} (Any)                        x-kubernetes-preserve-unknown-fields
    title, default: null            dropped

Unions of objects raise NotStructural: a structural schema needs one object with optional fields
and a CEL rule.
Source: kubernetes.io, "Extend the Kubernetes API with CustomResourceDefinitions", structural schemas.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from api.models.markers import INT_OR_STRING, PRESERVE, RULES

Schema = dict[str, Any]

_DROPPED = frozenset({"title", "examples", "$defs", "discriminator", "readOnly", "writeOnly", "const"})
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}
_TYPE_NAMES: Mapping[type, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}


class NotStructural(ValueError):
    """A model contains something that a structural schema cannot express. The message names the field."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of `model`, with field names as on the wire. Raises NotStructural."""
    # The keywords of the root are in the schema itself; the models that its $refs point to are in $defs.
    root = model.model_json_schema(by_alias=True, mode="validation")
    return _Converter(root.get("$defs", {})).convert(root, model.__name__, ())


class _Converter:
    """Converts a JSON schema into its structural form.

    `definitions` maps the names in its $refs to schemas.
    """

    def __init__(self, definitions: Mapping[str, Schema]) -> None:
        self._definitions = definitions

    def convert(self, schema: Schema, path: str, inside: tuple[str, ...]) -> Schema:
        """Return `schema` converted.

        `inside` holds the names of the enclosing models, to detect recursion.
        """
        schema, inside = self._resolved(schema, path, inside)
        converted = dict(_words(schema))
        # x-kubernetes-int-or-string describes the node completely; a type in addition would contradict it.
        if INT_OR_STRING in schema:
            return converted
        for key, child in _children(schema, path):
            if isinstance(child, _Properties):
                converted[key] = {
                    name: self.convert(inner, f"{path}.{name}", inside) for name, inner in child.items()
                }
            else:
                converted[key] = self.convert(child, f"{path}.{key}", inside)
        return _typed(converted, path)

    def _resolved(self, schema: Schema, path: str, inside: tuple[str, ...]) -> tuple[Schema, tuple[str, ...]]:
        """Follow $ref, allOf with one entry and anyOf with null until the node declares its own type."""
        while True:
            if "$ref" in schema:
                name = schema["$ref"].rsplit("/", 1)[1]
                # Recursion is detected by name along the path and not by identity, because the definitions
                # are resolved again at each place.
                if name in inside:
                    raise NotStructural(f"{path}: {name} contains itself; a structural schema cannot recurse")
                inside = (*inside, name)
                schema = _merged(self._definitions[name], schema, "$ref")
            elif "anyOf" in schema and INT_OR_STRING not in schema:
                schema = _merged(_only_arm(schema["anyOf"], path), schema, "anyOf")
            elif "allOf" in schema:
                schema = _merged(_only_arm(schema["allOf"], path), schema, "allOf")
            else:
                return schema, inside


class _Properties(dict[str, Schema]):
    """The properties of an object; the type distinguishes them from a single child schema."""


def _only_arm(arms: list[Schema], path: str) -> Schema:
    # pydantic expresses an optional field as a union with null; to the API server absent and
    # null are the same.
    real = [arm for arm in arms if arm.get("type") != "null"]
    if len(real) != 1:
        raise NotStructural(f"{path}: a union has no structural form; use optional fields and a CEL rule")
    return real[0]


def _merged(base: Schema, around: Schema, replaced: str) -> Schema:
    """Return `base` with the keywords of `around` except `replaced`.

    Those of `around` win, and rules are joined.

    The keywords beside a $ref (a description, a default) describe this use of the model.
    """
    beside = {key: value for key, value in around.items() if key != replaced}
    rules = [*base.get(RULES, ()), *beside.get(RULES, ())]
    return {**base, **beside, **({RULES: rules} if rules else {})}


def _words(schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield the keywords of a node itself, without those of its children."""
    for key, value in schema.items():
        # Draft 2020-12 uses a number where OpenAPI 3.0 uses a flag beside `minimum`.
        if key in _EXCLUSIVE:
            yield _EXCLUSIVE[key], value
            yield key, True
        elif key == "description":
            # pydantic keeps the line breaks of docstrings, which `kubectl explain` would print.
            yield key, " ".join(value.split())
        elif key == "default":
            if value is not None:
                yield key, value
        elif key not in _DROPPED and key not in ("properties", "items", "additionalProperties"):
            yield key, value
    if "const" in schema:
        yield "enum", [schema["const"]]


def _children(schema: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    # The API server drops an empty `properties`; the stored CRD would then always differ from the file.
    if schema.get("properties"):
        yield "properties", _Properties(schema["properties"])
    if "items" in schema:
        yield "items", schema["items"]
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        if "properties" in schema:
            raise NotStructural(f"{path}: properties and additionalProperties exclude each other")
        yield "additionalProperties", values


def _typed(node: Schema, path: str) -> Schema:
    """Return the node with a type: its own, or the one that its keywords imply. Raises NotStructural."""
    if node.get("type") == "object" and not node.keys() & {"properties", "additionalProperties"}:
        node[PRESERVE] = True
    if "type" in node:
        return node
    if "enum" in node:
        return {"type": _TYPE_NAMES[type(node["enum"][0])], **node}
    if node.keys() <= {"description", "default", PRESERVE}:
        return {**node, PRESERVE: True}
    raise NotStructural(f"{path}: no type can be derived from {sorted(node)}")
