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
from admission.reconcile.job.held_job import HeldJob, Slices, slices_of
from api import keys
from api.jobs.job_workload import Priority
from api.jobs.owners.table import kind_of
from api.jobs.pod import claims_job
from api.jobs.pod_template import Template, has_gate
from api.jobs.queued_object import QueuedJob
from api.object_events import ObjectRef
from api.workload import Workload


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
        # A slice that another has replaced is kept for users to read.
        self.live = tuple(
            h for h in self.owned if h.workload.deleted_at is None and not h.workload.is_superseded
        )
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
        if self.is_elastic and (current := self.slices.current) is not None:
            is_leaving = current.workload.is_evicted and current.workload.admission is not None
            # One that is evicted is released first, whatever the numbers are by then.
            is_same = current.counts == self.counts and self.has_same_templates(current)
            is_same = is_same and not self.is_ungated
            return current if is_leaving or is_same else None
        return next((held for held in self.live if self.is_match(held)), None)

    @property
    def is_elastic(self) -> bool:
        """Return whether its number of pods may change while it runs, so that it has slices."""
        asks = self.job.asks_to_be_elastic and not self.job.prebuilt_workload
        return asks and self.may_be_elastic and self.context.settings.has_slices

    @cached_property
    def is_ungated(self) -> bool:
        """Return whether an elastic Job may run pods that no slice counts: a template lacks the gate."""
        current = self.slices.current if self.is_elastic and not self.job.is_suspended else None
        if current is None or not current.workload.is_slice:
            return False
        return not all(has_gate(one, keys.ELASTIC_GATE) for one in self.templates())

    @cached_property
    def slices(self) -> Slices:
        """Return the slices of an elastic Job."""
        return slices_of(self.live)

    @property
    def running(self) -> HeldJob | None:
        """Return the Workload that its pods run on; None while they do not run."""
        return self.slices.admitted if self.is_elastic else self.match

    @property
    def goes_on(self) -> bool:
        """Return whether an elastic Job runs on while another slice waits, or for its checks."""
        running = self.running if self.is_elastic and not self.job.is_suspended else None
        if running is None or self.match is None:
            return False
        return self.match is not running or running.workload.replaces is not None

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
    def is_on_hold(self) -> bool:
        """Return whether its controller refuses to run it as it is, so that it needs no quota."""
        return False

    @property
    def terminating(self) -> int:
        """Return how many of its pods have been told to end and have not."""
        return 0

    @property
    def in_use(self) -> Mapping[str, int]:
        """Return how many pods of each pod set of an elastic Job run or have yet to end."""
        return {}

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
    def may_be_elastic(self) -> bool:
        """Return whether objects of its kind may be elastic."""

    @property
    @abstractmethod
    def counts(self) -> dict[str, int]:
        """Return the numbers of pods by pod set that it asks for; {} if they cannot be read."""

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
    def has_same_templates(self, held: HeldJob) -> bool:
        """Return whether the pods that the Workload describes differ from the object's in number at most."""

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
