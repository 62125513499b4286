"""Pending evictions: Workloads that are to save a checkpoint before they are evicted.

The next step for such a Workload depends on two others: on its pods, which report that they have saved, and
on its preemptor, which may be deleted or find room elsewhere. So every Workload with an eviction request is
recorded here under both, and marked when either changes.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.controller.cluster_state.observers import WorkloadTransition
from admission.controller.cluster_state.queued_objects import QueuedObjects
from admission.controller.cluster_state.workload_pods import WorkloadPods
from admission.engine.engine import Engine
from admission.reconcile.checkpoints import rejection_reason
from admission.reconcile.workload.context import SavingContext
from api import keys
from api.eviction import EvictionRequest, eviction_request, has_request
from api.jobs.checkpoint_annotations import checkpoint_facts, parse_instant
from api.jobs.pod_owner_key import pod_owner_key
from api.policy import AdmissionPolicy, PreemptionRules
from api.workload import Workload, WorkloadKey


class PendingEvictions:
    """The Workloads that carry an eviction request. `mark` has a Workload looked at again."""

    def __init__(
        self,
        engine: Engine,
        workload_pods: WorkloadPods,
        jobs: QueuedObjects,
        mark: Callable[[WorkloadKey], None],
    ) -> None:
        self._engine = engine
        self._workload_pods = workload_pods
        self._jobs = jobs
        self._mark = mark
        # By the uid of the preemptor: the Workloads that are to be evicted for it.
        self._for: dict[str, dict[WorkloadKey, None]] = {}
        # Evictions whose preemptor is gone, before a cycle could find out whether another needs their quota.
        self._doubtful: set[WorkloadKey] = set()

    def observe(self, change: WorkloadTransition) -> None:
        """Take a Workload as it is now."""
        before, after = change.before, change.after
        # Mark the Workloads that are evicted for this one: it may have found room elsewhere.
        for key in self._for.get(change.workload.uid, ()):
            self._mark(key)
        # Replace the entries of the former version by those of the new one.
        if before is not None and has_request(before):
            self._leave_out(before)
        if after is not None and has_request(after):
            self._enter(after)

    def context(self, workload: Workload, policy: AdmissionPolicy) -> SavingContext | None:
        """Return what a look at the Workload needs to know of its eviction; None if it carries no request.

        `policy` governs the ClusterQueue whose quota it holds or waits for.
        """
        if not has_request(workload):
            return None
        request = eviction_request(workload)
        rules = policy.preemption or PreemptionRules()
        preemptor_uid = request.preemptor_uid if request is not None else ""
        is_wanted = self._engine.workloads.is_waiting(preemptor_uid)
        successor = self._engine.workloads.joined_eviction_of(workload.key) if not is_wanted else None
        is_undecided = not is_wanted and successor is None and self._is_undecided(workload, request)
        if is_undecided:
            self._doubtful.add(workload.key)
        return SavingContext(
            is_wanted=is_wanted,
            preemptor=self._engine.workloads.key_of(preemptor_uid),
            successor=successor,
            is_undecided=is_undecided,
            saved_at=self.saved_at(workload),
            pods=self._workload_pods.pods_of(pod_owner_key(workload)),
            hold_seconds=float(rules.hold_seconds),
        )

    def settle(self) -> bool:
        """Mark the Workloads about which cycles may have decided since. Return whether there are any."""
        doubtful = sorted(self._doubtful)
        self._doubtful.clear()
        for key in doubtful:
            self._mark(key)
        return bool(doubtful)

    def _is_undecided(self, workload: Workload, request: EvictionRequest | None) -> bool:
        # A drain has no preemptor: only its queue can end it.
        if request is None or not request.preemptor_uid or workload.admission is None:
            return False
        return self._engine.queues.is_undecided(workload.admission.cluster_queue)

    def saved_at(self, workload: Workload) -> float | None:
        """Return when the last checkpoint was complete, by Workload and pods; None if no report is known."""
        # The later of both: a pod's report arrives directly, the Workload's by way of its Job.
        reported = (
            checkpoint_facts(workload).saved_at,
            self._workload_pods.saved_at(pod_owner_key(workload)),
        )
        return max((at for at in reported if at is not None), default=None)

    def saved_before_end(self, workload: Workload, now: float) -> float | None:
        """Return the same at `now` (Unix seconds) by its Job's report too, for pods that may have ended."""
        at = self.saved_at(workload)
        job = self._jobs.by_uid(workload.owner_uid) if workload.owner_uid is not None else None
        # A report that came at the end of the pods is on the Job first; the Workload takes it
        # over one write later.
        if job is None or rejection_reason(job.value.annotations, now=now) is not None:
            return at
        reported = parse_instant(job.value.annotations.get(keys.CHECKPOINT_TIME, ""))
        return max((one for one in (at, reported) if one is not None), default=None)

    def _enter(self, workload: Workload) -> None:
        request = eviction_request(workload)
        if owner_key := pod_owner_key(workload):
            self._workload_pods.watch(owner_key, workload.key)
        if request is not None and request.preemptor_uid:
            self._for.setdefault(request.preemptor_uid, {})[workload.key] = None

    def _leave_out(self, workload: Workload) -> None:
        request = eviction_request(workload)
        self._workload_pods.unwatch(pod_owner_key(workload))
        if request is None or request.preemptor_uid not in self._for:
            return
        members = self._for[request.preemptor_uid]
        members.pop(workload.key, None)
        if not members:
            del self._for[request.preemptor_uid]
