"""What a Kubernetes Event says besides its words: its type, and the object that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventType(StrEnum):
    """The type of an Event; kubectl highlights warnings."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRef:
    """The object that an Event is about. `namespace` is "" for cluster-scoped objects."""

    api_version: str
    kind: str
    namespace: str = ""
    name: str
    uid: str = ""
