"""The type of a field of a served object, in one tree of types for built-in kinds and CRDs.

Patches, field ownership and printing use only this tree, so they do not depend on its source. `builtin_types`
reads the tree of the built-in kinds from the notation in builtin_types.txt, `structural` reads that of a
custom kind from its CRD. These two modules also convert request bodies to their types, in different ways.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# A JSON value as msgspec decodes it. Objects in the store are JSON objects and are
# never changed once committed.
Json = Any
JsonObject = dict[str, Any]


class Type(StrEnum):
    """The types of a value. OBJECT has named fields, MAP has free keys, ANY is not restricted."""

    OBJECT = "object"
    MAP = "map"
    ARRAY = "array"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    QUANTITY = "quantity"
    TIME = "time"
    BYTES = "bytes"
    INT_OR_STRING = "int-or-string"
    ANY = "any"


@dataclass(slots=True, kw_only=True, eq=False)
class Schema:
    """One node of the tree. It is filled while it is read, and not changed afterwards.

    `atomic` values are owned and replaced as a whole; other arrays are sets (`is_set`) or maps with `keys`.
    Strategic merge uses `merge_key` and `merges`, which differ from `keys` for a few fields.
    """

    type: Type
    name: str = ""
    description: str = ""
    properties: Mapping[str, "Schema"] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    values: "Schema | None" = None
    items: "Schema | None" = None
    atomic: bool = False
    keys: tuple[str, ...] = ()
    is_set: bool = False
    merges: bool = False
    merge_key: str = ""
    # For built-in fields: a pointer keeps a zero value that was given, and an always-written field appears
    # even if it was not given.
    pointer: bool = False
    always: bool = False
    width: str = ""
    enum: tuple[Json, ...] = ()
    default: Json = None
    # Whether an object with named fields accepts other fields too.
    is_open: bool = False

    @property
    def is_granular_array(self) -> bool:
        """Whether the items of this array are owned individually."""
        return bool(self.keys) or self.is_set

    def child(self, key: str) -> "Schema":
        """Return the type of the field or key `key`; ANY if none is declared."""
        return self.properties.get(key) or self.values or ANY

    def item(self) -> "Schema":
        """Return the type of this array's items."""
        return self.items or ANY


ANY = Schema(type=Type.ANY)
# An undeclared value that is owned as a whole, such as the fields of a managedFields entry.
OPAQUE = Schema(type=Type.ANY, atomic=True)
