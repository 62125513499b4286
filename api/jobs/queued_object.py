"""The fields that queued Jobs and pods have in common: their identity, and what their Workload copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.objects.common import OwnerReference
from api.workload import NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """An object that is queued itself. `owner` is its controller, None if it has none."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    owner: OwnerReference | None = None
    is_deleted: bool = False
    active_deadline_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"
