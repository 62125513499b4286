"""The chain of controllers above a Job or another owner: whether one of them is queued, and counts it.

Any user can name any owner, because the API server verifies none. So the reference alone exempts nothing from
quota: the row of the owner's kind says what its Workload counts (`api.jobs.owners`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from admission.controller.cluster_state.object_cache import ObjectCache, Seen
from admission.controller.cluster_state.owner_sources import OwnerSources
from admission.controller.cluster_state.queued_objects import QueuedObjects, target_of
from admission.controller.writer.write_order import ObjectTarget
from admission.reconcile.job.context import Ancestor, JobSettings
from api.jobs.job import ComposeError
from api.jobs.owners.composing import expanded
from api.jobs.owners.owner import Owner, counts
from api.jobs.owners.paths import Body
from api.jobs.owners.row import Child
from api.jobs.owners.table import kind_of
from api.jobs.queued_object import QueuedJob
from api.jobs.resource_requests import LimitRange
from api.objects.common import OwnerReference
from api.workload import Workload

# A Job nested more deeply than this below its queued ancestor is reported as too deep.
MAX_NESTING = 10

_COUNTED = {Ancestor.ADMITTED: Ancestor.COUNTED_ADMITTED, Ancestor.WAITING: Ancestor.COUNTED_WAITING}


@dataclass(frozen=True, slots=True)
class Ancestors:
    """Judges the controllers that an object names. It owns no state."""

    objects: QueuedObjects
    workloads: ObjectCache[Workload]
    settings: JobSettings
    sources: OwnerSources
    limits_of: Callable[[str], tuple[LimitRange, ...]]

    def of(self, job: QueuedJob, *, depth: int = 0) -> Ancestor:
        """Return the state of the topmost ancestor that is queued, and whether that counts the object.

        `depth` is how many objects below have been looked at.
        """
        if job.owner is None:
            return Ancestor.NONE
        if depth >= MAX_NESTING:
            return Ancestor.TOO_DEEP
        counting = self._counting(job)
        if counting is None:
            return self._topmost(job)
        return self.of_children(counting, depth=depth + 1)

    def of_children(self, parent: Seen[QueuedJob], *, depth: int = 0) -> Ancestor:
        """Return the state of the topmost queued ancestor of what this owner counts, itself included."""
        # What counts it may itself be counted by another.
        above = self.of(parent.value, depth=depth)
        if above in _COUNTED.values():
            return above
        return _COUNTED[self._state(parent)] if self._is_queued(parent.value) else Ancestor.NONE

    def is_awaited(self, owner: OwnerReference) -> bool:
        """Return whether an owner of a kind that is watched here is not known yet.

        The watch of its kind may lag behind. One that never was is no way around quota: the garbage collector
        deletes what names it.
        """
        row = kind_of(owner.api_version, owner.kind)
        if row is None or row.kind not in self.objects.rows:
            return False
        return self.objects.by_uid(owner.uid) is None and not self.objects.has_gone(owner.uid)

    def _counting(self, job: QueuedJob) -> Seen[QueuedJob] | None:
        """Return the controller of the object if its Workload counts the object; None otherwise."""
        parent = self.objects.by_uid(job.owner.uid) if job.owner is not None else None
        if parent is None or not isinstance(parent.value, Owner) or parent.value.namespace != job.namespace:
            return None
        seen = self.objects.by_uid(job.uid)
        if seen is None:
            return None
        child = Child(
            kind=target_of(job).kind,
            name=job.name,
            body=msgspec.json.decode(seen.raw),
            limits=self.limits_of(job.namespace),
        )
        body = self.expanded(parent.value, parent.raw)
        return parent if body is not None and counts(parent.value.row, body, child) else None

    def expanded(self, owner: Owner, raw: bytes) -> Body | None:
        """Return an owner with what the objects that it refers to say of its pods; None if they are gone."""
        try:
            return expanded(owner.row, msgspec.json.decode(raw), self.read)
        except ComposeError:
            return None

    def read(self, kind: str, namespace: str, name: str) -> Body | None:
        """Return an object that owners refer to, or that an owner has created; None if there is none."""
        if (source := self.sources.read(kind, namespace, name)) is not None:
            return source
        seen = self.objects.get(ObjectTarget(kind, namespace, name))
        return None if seen is None else msgspec.json.decode(seen.raw, type=dict[str, Any])

    def _topmost(self, job: QueuedJob) -> Ancestor:
        found, depth = job.owner, 0
        top: Seen[QueuedJob] | None = None
        while found is not None:
            if self.is_awaited(found):
                return Ancestor.COUNTED_WAITING
            parent = self.objects.by_uid(found.uid)
            # An owner in another namespace owns nothing: the garbage collector deletes what names it.
            if parent is None or parent.value.namespace != job.namespace:
                break
            if self._is_queued(parent.value):
                top = parent
            found, depth = parent.value.owner, depth + 1
            if depth >= MAX_NESTING:
                # A cycle of owners, or a nesting that has no use: the search must end in bounded time.
                return Ancestor.TOO_DEEP
        return Ancestor.NONE if top is None else self._state(top)

    def _is_queued(self, job: QueuedJob) -> bool:
        return bool(job.queue_name) or self.settings.manages_without_queue_name

    def _state(self, job: Seen[QueuedJob]) -> Ancestor:
        if job.value.outcome is not None:
            return Ancestor.WAITING
        workloads = [seen.value for seen in workloads_of(job, self.workloads)]
        # A finished Workload keeps its condition Admitted.
        is_admitted = any(one.is_admitted and not one.is_finished for one in workloads)
        return Ancestor.ADMITTED if is_admitted else Ancestor.WAITING


def workloads_of(job: Seen[QueuedJob], workloads: ObjectCache[Workload]) -> tuple[Seen[Workload], ...]:
    """Return the Workloads that the Job owns, and the prebuilt one that it names."""
    owned = {seen.value.key: seen for seen in workloads.owned_by(job.metadata.uid)}
    if job.value.prebuilt_workload:
        named = workloads.get((job.value.namespace, job.value.prebuilt_workload))
        if named is not None:
            owned[named.value.key] = named
    return tuple(owned.values())
