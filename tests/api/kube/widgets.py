"""The kind that these tests list and watch, decoded as the hot kinds are."""

from __future__ import annotations

import msgspec


class Metadata(msgspec.Struct, rename="camel"):
    """What every kind has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class Spec(msgspec.Struct):
    """A field that may be of a wrong type."""

    size: int = 0


class Widget(msgspec.Struct):
    """An object of the tests' own kind."""

    metadata: Metadata
    spec: Spec = msgspec.field(default_factory=Spec)
