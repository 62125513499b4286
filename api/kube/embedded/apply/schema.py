"""What a field of a served object is: one tree of types, whether a built-in kind or a CRD described it.

Patches, ownership of fields and printing only ask this tree, so they need not know where it came from.
`builtin` reads the tree of the built-in kinds from the notation in builtin_types.txt, `structural` that of
a custom kind from its CRD. The two differ in how a request body is made to fit: that is theirs, not this
module's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

# A JSON value as msgspec decodes it. Objects of the store are JSON objects and never altered once committed.
Json = Any
JsonObject = dict[str, Any]


class Type(StrEnum):
    """The forms a value may have. OBJECT has named fields, MAP free keys, ANY whatever it likes."""

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
    """One node of the tree. Filled while it is read, never changed afterwards.

    `atomic` values are owned and replaced whole; other arrays are sets (`is_set`) or maps under `keys`.
    `merge_key` and `merges` are what strategic merge goes by, which for a few fields differs from `keys`.
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
    retains_keys: bool = False
    # Of a built-in field: a pointer keeps a zero value that was given, an always-written
    # one shows it unasked.
    pointer: bool = False
    always: bool = False
    width: str = ""
    enum: tuple[Json, ...] = ()
    default: Json = None
    # Whether an object with named fields takes others too.
    is_open: bool = False

    @property
    def is_granular_array(self) -> bool:
        """Whether the items of this array are owned one by one."""
        return bool(self.keys) or self.is_set

    def child(self, key: str) -> "Schema":
        """Return the type of the field or key `key`; ANY where none was declared."""
        return self.properties.get(key) or self.values or ANY

    def item(self) -> "Schema":
        """Return the type of this array's items."""
        return self.items or ANY


ANY = Schema(type=Type.ANY)
# An undeclared value whose parts nobody owns apart, such as the fields of a managedFields entry.
OPAQUE = Schema(type=Type.ANY, atomic=True)
