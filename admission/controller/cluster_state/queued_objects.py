"""The objects that are started and stopped as a whole, by kind: Jobs, and the owners that are configured.

A Workload, a pod or a Job names its owner by uid. Here it is found whatever its kind is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from admission.controller.cluster_state.object_cache import ObjectCache, Seen
from admission.controller.writer.write_order import ObjectTarget
from api.jobs.job import JOB_KIND, Job
from api.jobs.owners.owner import Owner
from api.jobs.owners.row import OwnerKind
from api.jobs.queued_object import QueuedJob


class QueuedObjects:
    """The caches of all these kinds. Kinds that are not configured have none."""

    def __init__(self, kinds: Iterable[OwnerKind]) -> None:
        self.rows: Mapping[str, OwnerKind] = {row.kind: row for row in kinds}
        self.jobs: ObjectCache[Job] = ObjectCache()
        self.owners: Mapping[str, ObjectCache[Owner]] = {kind: ObjectCache() for kind in self.rows}
        self._caches: dict[str, ObjectCache[Any]] = {JOB_KIND: self.jobs, **self.owners}

    def __iter__(self) -> Iterator[tuple[ObjectTarget, Seen[QueuedJob]]]:
        for kind, cache in self._caches.items():
            for seen in cache:
                yield ObjectTarget(kind, seen.metadata.namespace, seen.metadata.name), seen

    def __len__(self) -> int:
        return sum(len(cache) for cache in self._caches.values())

    def __contains__(self, kind: str | None) -> bool:
        return kind in self._caches

    def get(self, target: ObjectTarget) -> Seen[QueuedJob] | None:
        """Return the object as last seen; None if there is none, or its kind is not kept."""
        cache = self._caches.get(target.kind)
        return cache.get((target.namespace, target.name)) if cache is not None else None

    def by_uid(self, uid: str) -> Seen[QueuedJob] | None:
        """Return the object with this uid; None if there is none."""
        found = (cache.by_uid(uid) for cache in self._caches.values())
        return next((seen for seen in found if seen is not None), None)

    def has_gone(self, uid: str) -> bool:
        """Return whether the object with this uid was seen to be deleted."""
        return any(cache.has_gone(uid) for cache in self._caches.values())

    def as_active(self, owner: Owner) -> Owner:
        """Return the owner as active as what it owns: its status may not show yet what its Jobs do.

        Of a row whose status may be stale only what it owns counts, as far as that is known.
        """
        owned = [child.value for child in self.owned_by(owner.uid)]
        if owner.row.has_stale_status and owned:
            # One that is not suspended yet has pods, or is about to create them.
            return replace(owner, active=sum(max(one.active, not one.is_suspended) for one in owned))
        active = sum(one.active for one in owned)
        return replace(owner, active=active) if active > owner.active else owner

    def owned_by(self, uid: str) -> list[Seen[QueuedJob]]:
        """Return the objects whose controlling owner has this uid."""
        return [seen for cache in self._caches.values() for seen in cache.owned_by(uid)]


def target_of(job: QueuedJob) -> ObjectTarget:
    """Return the name of a Job or another owner, as marks and writes use it."""
    kind = job.row.kind if isinstance(job, Owner) else JOB_KIND
    return ObjectTarget(kind, job.namespace, job.name)
