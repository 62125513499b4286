"""A queued object and its Workloads during one look: what was given, and what follows from it.

`View` is what the rules of `admission.reconcile.job.reconcile` ask of any object that is started and stopped
as a whole. `job_view` answers for batch/v1 Jobs, `owner_view` for the kinds of `api.jobs.owners`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from admission.decisions.api_writes import Action, ObjectVersion
from admission.reconcile.job.context import Ancestor, JobContext
from api.jobs.job_workload import Priority
from api.jobs.owners.table import kind_of
from api.jobs.pod import claims_job
from api.jobs.pod_template import Template
from api.jobs.queued_object import QueuedJob
from api.object_events import ObjectRef
from api.workload import PodSetAssignment, Workload


class HeldJob:
    """A Workload with the bytes in which it was seen."""

    def __init__(self, workload: Workload, raw: bytes) -> None:
        self.workload = workload
        self.raw = raw

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Return the decoded object."""
        return _DECODER.decode(self.raw)

    @property
    def pod_sets(self) -> Sequence[Mapping[str, Any]]:
        """Return spec.podSets."""
        return self.body.get("spec", {}).get("podSets") or ()

    @property
    def pod_set(self) -> Mapping[str, Any] | None:
        """Return the only pod set; None if there is not exactly one, which no Workload of a Job has."""
        return self.pod_sets[0] if len(self.pod_sets) == 1 else None

    @property
    def assignments(self) -> tuple[PodSetAssignment, ...]:
        """Return the assignments of the pod sets; () without a reservation."""
        admission = self.workload.admission
        return admission.pod_sets if admission is not None else ()

    @property
    def assignment(self) -> PodSetAssignment | None:
        """Return the assignment of the only pod set; None without a reservation."""
        return next(iter(self.assignments), None)

    @property
    def admitted_count(self) -> int | None:
        """Return how many pods it was admitted with; None while it holds no quota."""
        return None if self.assignment is None else self.assignment.count


class Prioritised(NamedTuple):
    """A pod spec that may name the priority class of an object, and its path."""

    spec: Mapping[str, Any]
    where: str


class View(ABC):
    """A queued object, its own Workloads, and the context. Bytes are decoded only when a step needs them."""

    # What a message calls the kind, and the key of the kind in writes.
    kind: str
    kind_key: str
    job: QueuedJob

    def __init__(
        self,
        job: QueuedJob,
        raw: bytes,
        workloads: Sequence[tuple[Workload, bytes]],
        *,
        context: JobContext,
        now: float,
    ) -> None:
        self.job = job
        self.context = context
        self.now = now
        self._raw = raw
        held = [HeldJob(workload, seen) for workload, seen in workloads]
        # By admission, then by reservation, then by age. A Workload that holds quota comes first, so that of
        # two that match the idle one is deleted.
        self.owned = tuple(
            sorted(
                (h for h in held if h.workload.owner_uid == job.uid), key=lambda h: _precedence(h.workload)
            )
        )
        self.live = tuple(h for h in self.owned if h.workload.deleted_at is None)
        self.prebuilt = next((h for h in held if h.workload.key.name == job.prebuilt_workload), None)

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Return the decoded object."""
        return _DECODER.decode(self._raw)

    @property
    def title(self) -> str:
        """Return what messages call the object: `Job NAMESPACE/NAME`."""
        return f"{self.kind} {self.job}"

    @property
    def version(self) -> ObjectVersion:
        """Return the version that was seen, for writes."""
        return ObjectVersion.of(self.kind_key, self.job)

    @cached_property
    def match(self) -> HeldJob | None:
        """Return the Workload that matches this object; None if none does."""
        if self.job.prebuilt_workload:
            # A prebuilt Workload that is being deleted does not count.
            return self.prebuilt if self.prebuilt in self.live else None
        return next((held for held in self.live if self.is_match(held)), None)

    @cached_property
    def ancestor(self) -> Ancestor:
        """Return the state of its topmost queued ancestor."""
        return self.context.ancestor(self.job)

    @property
    def uncounted_note(self) -> str | None:
        """Return that its controller does not count it; None if it has none that could."""
        owner = self.job.owner
        if owner is None or not (claims_job(owner) or kind_of(owner.api_version, owner.kind)):
            return None
        return (
            f"{self.title} is queued by itself, although {owner.kind} {owner.name} is its controller: the"
            f" Workload of a {owner.kind} counts only what this {owner.kind} creates"
        )

    @property
    def is_left_alone(self) -> bool:
        """Return whether it runs on what another object has, so that it is not queued at all."""
        return False

    @property
    def terminating(self) -> int:
        """Return how many of its pods have been told to end and have not."""
        return 0

    def thaw(self) -> tuple[Action, ...] | None:
        """Return what makes its pod templates changeable; None if they are, () to wait."""
        return None

    @property
    @abstractmethod
    def ref(self) -> ObjectRef:
        """Return the reference to the object, for Events."""

    @property
    @abstractmethod
    def owner_reference(self) -> dict[str, Any]:
        """Return the reference by which its Workload names it as controlling owner."""

    @property
    @abstractmethod
    def workload_name(self) -> str:
        """Return the name of its Workload."""

    @property
    @abstractmethod
    def is_stopping(self) -> bool:
        """Return whether it has to be restored before another start, or before its quota is released."""

    @property
    @abstractmethod
    def has_pods_ready(self) -> bool:
        """Return whether all pods that run concurrently are ready or have succeeded."""

    @property
    @abstractmethod
    def reclaimable(self) -> Mapping[str, int]:
        """Return how many pods of each pod set need their quota no longer."""

    @abstractmethod
    def is_match(self, held: HeldJob) -> bool:
        """Return whether the Workload still describes the object."""

    @abstractmethod
    def is_up_to_date(self, held: HeldJob) -> bool:
        """Return whether a waiting Workload that matches has also the rest of the pod templates."""

    @abstractmethod
    def check(self) -> None:
        """Raise ComposeError if the object cannot be queued."""

    @abstractmethod
    def pod_sets(self) -> list[dict[str, Any]]:
        """Return spec.podSets of its Workload. Raises ComposeError."""

    @abstractmethod
    def workload_body(self, priority: Priority) -> dict[str, Any]:
        """Return its Workload, ready for creation. Raises ComposeError."""

    @abstractmethod
    def templates(self) -> Iterable[Template]:
        """Return its pod templates, as far as they can be read."""

    @abstractmethod
    def faults(self) -> Iterable[tuple[str, Sequence[str]]]:
        """Return faults that do not prevent queueing: the reason of an Event, and sentences."""

    @abstractmethod
    def prioritised(self) -> Prioritised:
        """Return the pod spec whose priority class applies."""

    @abstractmethod
    def start(self, held: HeldJob) -> dict[str, Any] | None:
        """Return the patch that starts it as admitted, None if the admission is incomplete.

        Raises StartConflict.
        """

    @abstractmethod
    def suspension(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that begins to stop it; it will be restored from `source` if there is one."""

    @abstractmethod
    def restoration(self, source: HeldJob | None) -> dict[str, Any]:
        """Return the patch that completes a stop."""

    def has_leftovers(self, held: HeldJob) -> bool:
        """Return whether a suspended object has to be restored before it is started as admitted."""
        del held
        return self.is_stopping


def _precedence(workload: Workload) -> tuple[bool, bool, float, str]:
    return (not workload.is_admitted, workload.admission is None, workload.created_at, workload.key.name)


_DECODER = msgspec.json.Decoder(dict[str, Any])
