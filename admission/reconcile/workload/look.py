"""One look at a Workload, and the answers that several rules give."""

from __future__ import annotations

from dataclasses import dataclass

from admission.decisions.api_writes import Action, Event, workload_ref
from admission.decisions.decision import Evict
from admission.reconcile.workload.context import LifecycleContext, Owner
from api import keys
from api.object_events import EventType, ObjectRef
from api.reasons import EvictionReason
from api.workload import Workload
from api.workload_status import WorkloadStatusEdit

Answer = tuple[Action, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A Workload, its bytes and its context."""

    workload: Workload
    raw: bytes
    context: LifecycleContext
    now: float

    @property
    def owner(self) -> Owner:
        """Return the owner. It is missing if the label names one that is no longer referred to."""
        # The garbage collector, or a deletion that orphans dependents, removed the reference
        # and kept the object.
        if self.context.owner is Owner.NONE and keys.JOB_UID in self.workload.labels:
            return Owner.MISSING
        return self.context.owner

    @property
    def edit(self) -> WorkloadStatusEdit:
        """Return a new edit of the status."""
        return WorkloadStatusEdit(self.raw, now=self.now)

    @property
    def ref(self) -> ObjectRef:
        """Return the reference to the Workload, for Events."""
        return workload_ref(self.workload.key.namespace, self.workload.key.name, self.workload.uid)

    def is_due(self, at: float | None) -> bool:
        """Return whether the instant has come; None never comes."""
        return at is not None and at <= self.now

    def event(self, type_: EventType, reason: str, note: str) -> Event:
        """Return an Event about the Workload."""
        return Event(regarding=self.ref, type=type_, reason=reason, note=note, action="Reconcile")


def eviction(workload: Workload, reason: EvictionReason, message: str, *, cause: str = "") -> Evict:
    """Return the decision to evict the Workload in its present version."""
    return Evict(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        reason=reason,
        message=message,
        cluster_queue=workload.admission.cluster_queue if workload.admission is not None else "",
        underlying_cause=cause,
    )
