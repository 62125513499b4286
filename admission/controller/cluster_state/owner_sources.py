"""Objects that owners refer to for what their pods are, such as the runtimes of TrainJobs, as last seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api.kube.informer import Change, ChangeType
from api.objects.common import NamedObject


class OwnerSources:
    """The bytes of these objects by kind, namespace and name. They are few, and decoded when asked for."""

    def __init__(self) -> None:
        self._raws: dict[tuple[str, str, str], bytes] = {}

    def take(self, kind: str, change: Change[NamedObject]) -> None:
        """Take a change of an object."""
        metadata = change.object.metadata
        key = (kind, metadata.namespace, metadata.name)
        if change.type is ChangeType.DELETED:
            self._raws.pop(key, None)
        else:
            self._raws[key] = change.raw or b"{}"

    def read(self, kind: str, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Return the object; None if there is none. `namespace` is "" for kinds without one."""
        raw = self._raws.get((kind, namespace, name))
        return None if raw is None else msgspec.json.decode(raw, type=dict[str, Any])
