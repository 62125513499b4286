"""What the control loop does for one object: reconcile it, send its next write, and take in the result.

Reconciling is level-triggered: an object that changed is *marked*, and a look works out the one write that
the object needs now. Three rules keep that from spinning or stalling:

- While a write is in flight the object is left alone; the answer marks it again.
- After a refused write the object rests for a growing pause, since the next look would
  ask for the same write.
- An object that asked for a write on *another* object is remembered, because the refusal of that write marks
  only the object that was to be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from admission.controller.cluster_state.cluster_state import ClusterState, ObjectKey
from admission.controller.cluster_state.object_cache import Seen
from admission.controller.cluster_state.pod_groups import UnitKey
from admission.controller.cluster_state.refused_evictions import RefusedEvictions
from admission.controller.loop.observer import LoopObserver
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.logs import Log
from admission.controller.runtime.timers import Backoffs, Timers
from admission.controller.writer.acting import Acting
from admission.controller.writer.write_order import (
    Moot,
    ObjectTarget,
    Refused,
    Result,
    Vanished,
    Written,
)
from admission.decisions.api_writes import Action, Event, Purpose, Verb, Write
from admission.reconcile.deadlines import PodsReadySettings
from admission.reconcile.job.reconcile import reconcile_queued
from admission.reconcile.pod.gang import GangFacts, reconcile_gang
from admission.reconcile.pod.reconcile import (
    reconcile_empty_group,
    reconcile_pods,
    reconcile_stateful_set,
)
from admission.reconcile.pod.view import GroupOwner, UnitFacts
from admission.reconcile.workload.reconcile import reconcile_workload
from api.jobs.owners.owner import Owner
from api.jobs.pod import Pod
from api.jobs.queued_object import QueuedJob
from api.jobs.stateful_set import STATEFUL_SET_KIND, StatefulSet, template_pod
from api.object_events import EventType
from api.workload import Workload, WorkloadKey

log = Log("berth.control-loop")


class Reconciler:
    """Reconciles Workloads, Jobs and pods, and keeps the state that is not on the objects themselves."""

    def __init__(
        self,
        cluster_state: ClusterState,
        board: StatusWriter,
        observer: LoopObserver,
        events: EventReporter,
        clock: Clock,
    ) -> None:
        self._cluster_state = cluster_state
        self._board = board
        self._observer = observer
        self._events = events
        self._clock = clock
        # When a Workload has to be looked at even if nothing changes (Unix seconds).
        self._deadlines: Timers[WorkloadKey] = Timers()
        # The same for a gang whose pods have to exist, or to have nodes, by then.
        self._gang_deadlines: Timers[UnitKey] = Timers()
        self._backoffs: Backoffs[ObjectTarget] = Backoffs()
        # For each object written on behalf of another (a pod to be ungated, a Workload to be created): which
        # objects asked, and whether their own write was sent. They look again if it was not, or fails.
        self._askers: dict[ObjectTarget, dict[ObjectTarget, bool]] = {}
        self._refusals = RefusedEvictions()

    def begin(self) -> None:
        """Start a term: writes that were refused to an earlier leader are tried again without a pause."""
        self._backoffs.clear()
        self._askers.clear()
        self._refusals.clear()
        self._cluster_state.disruptions.begin()

    def seconds_to_next(self) -> Iterator[float]:
        """Yield how long until the next deadline and the next end of a pause; negative if it has passed."""
        if (deadline := self._deadlines.next_at()) is not None:
            yield deadline - self._clock.now()
        if (gang := self._gang_deadlines.next_at()) is not None:
            yield gang - self._clock.now()
        if (ending := self._cluster_state.ending_pods.next_at()) is not None:
            yield ending - self._clock.now()
        if (rested := self._backoffs.next_at()) is not None:
            yield rested - self._clock.monotonic()
        if (tried := self._refusals.next_at()) is not None:
            yield tried - self._clock.monotonic()

    def note_due(self) -> None:
        """Mark what is to be looked at now because a deadline has come or a pause is over."""
        for key in self._deadlines.take_due(self._clock.now()):
            # Only a mark: a look works out what is needed now.
            self._cluster_state.marks.workload(key)
        for unit in self._gang_deadlines.take_due(self._clock.now()):
            self._cluster_state.pods.mark(unit)
        for target in self._backoffs.take_due(self._clock.monotonic()):
            self._look_again(target)
            self._look_at_askers(target)
        for unit in self._refusals.take_due(self._clock.monotonic()):
            self._cluster_state.pods.mark(unit)

    def fail(self, target: ObjectTarget) -> float:
        """Record a failure on the object. Return for how many seconds the object is left alone."""
        return self._backoffs.fail(target, self._clock.monotonic())

    def is_postponed(self, term: Acting, target: ObjectTarget) -> bool:
        """Return whether a write on the object is in flight, or a refused one waits out its pause."""
        return term.writer.is_busy(target) or self._backoffs.is_resting(target, self._clock.monotonic())

    # --- looking ----------------------------------------------------------------------------------

    def look_at_workload(self, term: Acting, key: ObjectKey) -> None:
        """Send the next write that the Workload needs."""
        target, seen = ObjectTarget("Workload", *key), self._cluster_state.workloads.get(key)
        # The Workload is gone, so its pause and its deadline are dropped.
        if seen is None:
            self._backoffs.forget(target)
            self._deadlines.put(WorkloadKey(*key), None)
            return
        if self.is_postponed(term, target):
            return
        context = self._cluster_state.contexts.of_workload(seen.value)
        result = reconcile_workload(seen.value, seen.raw, context, now=self._clock.now())
        # The next deadline is part of the result even if there is nothing to do.
        self._deadlines.put(seen.value.key, result.wake_at)
        self.do(term, result.actions, target)

    def look_at_job(self, term: Acting, target: ObjectTarget) -> None:
        """Send the next write that the Job, or another owner, and its Workloads need."""
        seen = self._cluster_state.queued.get(target)
        if seen is None:
            self._backoffs.forget(target)
            return
        workloads = self._cluster_state.workloads_of(seen)
        # The Job's own lane comes first, since it is the one that is usually busy.
        lanes = (target, *(ObjectTarget("Workload", *workload.key) for workload, _ in workloads))
        # A Job is judged together with its Workloads. While one of them is being written,
        # its bytes are outdated.
        job = seen.value
        if any(self.is_postponed(term, lane) for lane in lanes) or self._awaits_slice(target, job):
            return
        context = self._cluster_state.job_context
        if isinstance(job, Owner) and job.is_suspended:
            job = self._cluster_state.queued.as_active(job)
        actions = reconcile_queued(job, seen.raw, workloads, context, now=self._clock.now())
        self.do(term, actions, target)

    def _awaits_slice(self, target: ObjectTarget, job: QueuedJob) -> bool:
        """Return whether an elastic Job has asked for a slice that is not there yet.

        Slices are named by the Job's generation, so a change meanwhile would ask for one more.
        """
        if not job.asks_to_be_elastic:
            return False
        return any(target in askers for other, askers in self._askers.items() if other.kind == "Workload")

    def look_at_pods(self, term: Acting, unit: UnitKey) -> None:
        """Send the next writes that the pods of a unit and their Workload need."""
        pods = self._cluster_state.pods.members(unit)
        keeping = self._cluster_state.stateful_sets.of_unit(unit)
        if not pods:
            self._refusals.forget(unit)
            self._gang_deadlines.put(unit, None)
            if keeping is None:
                self._look_at_empty_group(term, unit)
            else:
                self._look_at_set(term, unit, keeping)
            return
        if unit.group and any(pod.value.gang for pod in pods):
            self._look_at_gang(term, unit, pods)
            return
        # The Workload of a group is found by name, that of a single pod by owner.
        workload = self._cluster_state.workload_of(pods)
        targets = [ObjectTarget("Pod", pod.metadata.namespace, pod.metadata.name) for pod in pods]
        lanes = targets if workload is None else [*targets, ObjectTarget("Workload", *workload[0].key)]
        # As for a Job. Nodes are assigned for all pods at once, so no pod may be in the middle of a write
        # that its bytes do not show yet.
        if any(self.is_postponed(term, lane) for lane in lanes):
            return
        context = self._cluster_state.job_context
        seen = [(pod.value, pod.raw) for pod in pods]
        by_eviction = workload is not None and self._cluster_state.is_replica(workload[0])
        if workload is None or not workload[0].is_evicted:
            # The refusal belongs to an earlier eviction.
            self._refusals.forget(unit)
        facts = UnitFacts(
            by_eviction=by_eviction,
            replicas=None if keeping is None else keeping.value.replicas,
            keeper=(
                self._cluster_state.leader_worker_sets.set_of(pod.value for pod in pods)
                if keeping is None
                else GroupOwner(reference=keeping.value.reference)
            ),
            # Read only for pods that a PodDisruptionBudget may protect.
            budgets=self._cluster_state.disruptions.budgets_for(unit) if by_eviction else (),
            refusal=self._refusals.message_of(unit, self._clock.monotonic()),
        )
        actions = reconcile_pods(seen, workload, context, now=self._clock.now(), facts=facts)
        self.do(term, actions, targets[0])

    def _look_at_gang(self, term: Acting, unit: UnitKey, pods: tuple[Seen[Pod], ...]) -> None:
        state = self._cluster_state
        workload, own = state.workload_of(pods), state.own_workloads(pods)
        targets = [ObjectTarget("Pod", pod.metadata.namespace, pod.metadata.name) for pod in pods]
        held = (*own.values(), *(() if workload is None else (workload,)))
        lanes = (*targets, *(ObjectTarget("Workload", *one.key) for one, _ in held))
        if any(self.is_postponed(term, lane) for lane in lanes):
            return
        facts = GangFacts(
            gang=state.gangs.gang_of_pod(pods[0].value),
            own=own,
            units={uid: self._facts_of_replica(unit, workload) for uid, (workload, _) in own.items()},
            backoff=state.contexts.settings.lifecycle.pods_ready or PodsReadySettings(),
        )
        seen = [(pod.value, pod.raw) for pod in pods]
        result = reconcile_gang(seen, workload, state.job_context, now=self._clock.now(), facts=facts)
        self._gang_deadlines.put(unit, result.wake_at)
        self.do(term, result.actions, targets[0])

    def _facts_of_replica(self, unit: UnitKey, workload: Workload) -> UnitFacts:
        """Return what is known of a pod that has a Workload of its own within a group."""
        if not self._cluster_state.is_replica(workload):
            return UnitFacts()
        return UnitFacts(by_eviction=True, budgets=self._cluster_state.disruptions.budgets_for(unit))

    def _look_at_set(self, term: Acting, unit: UnitKey, keeping: Seen[StatefulSet]) -> None:
        """Send the next write that the Workload of a StatefulSet without pods needs."""
        found, key = keeping.value, WorkloadKey(unit.namespace, unit.group)
        if self.is_postponed(term, ObjectTarget("Workload", *key)):
            return
        actions = reconcile_stateful_set(
            template_pod(keeping.raw, unit.group),
            self._cluster_state.look_up(key),
            self._cluster_state.job_context,
            owner=found.reference,
            now=self._clock.now(),
            facts=UnitFacts(replicas=found.replicas, keeper=GroupOwner(reference=found.reference)),
        )
        self.do(term, actions, ObjectTarget(STATEFUL_SET_KIND, found.namespace, found.name))

    def _look_at_empty_group(self, term: Acting, unit: UnitKey) -> None:
        state = self._cluster_state
        left = next(state.stateful_sets.claiming(unit), None)
        if left is not None:
            # The StatefulSet has another group.
            state.stateful_sets.mark_group(left.value)
        group = state.workloads.get((unit.namespace, unit.group))
        if group is None or self.is_postponed(term, ObjectTarget("Workload", *group.value.key)):
            return
        keeper = state.leader_worker_sets.keeper_of_workload(group.value)
        # A LeaderWorkerSet without a place for this group wants no pods of it, nor does a StatefulSet that
        # owns this Workload beside that of its group.
        is_over = keeper is not None and not keeper.has_place
        is_over |= left is not None and state.stateful_sets.owns(left.value, unit)
        self.do(term, reconcile_empty_group(group.value, group.raw, replicas=0 if is_over else None))

    def do(self, term: Acting, actions: tuple[Action, ...], asker: ObjectTarget | None = None) -> None:
        """Record the Events and submit the writes, except for objects that are left alone at the moment."""
        for action in actions:
            if isinstance(action, Event):
                self._events.send(action)
                continue
            target = _target(action)
            is_sent = not self.is_postponed(term, target)
            if is_sent:
                self._submit(term, action)
            # The asker must learn whether its write succeeds. A write in flight or in its pause is reported
            # later, so the asker is remembered. In observe mode no write is ever reported.
            if asker not in (None, target) and self.is_postponed(term, target):
                self._askers.setdefault(target, {})[asker] = is_sent

    def _submit(self, term: Acting, write: Write) -> None:
        term.writer.submit(write)
        if write.purpose is Purpose.UNGATE_POD:
            # Its domain counts as used from now on, otherwise the next pod would be sent there too.
            self._cluster_state.placed_pods.promise(write)
        elif write.purpose is Purpose.ALLOW_EVICTION:
            # So do the evictions that its pods take from their budgets.
            self._cluster_state.disruptions.note_sent(UnitKey(write.namespace, write.name, ""))

    def keep_what_is_in_use(self, term: Acting) -> None:
        """Add finalizers to objects in use, and remove those of objects that may be deleted."""
        # After all other writes: a late finalizer does no harm.
        for write in self._cluster_state.keeping.take_due(partial(self.is_postponed, term)):
            term.writer.submit(write)

    def give_up_pods(self, term: Acting) -> None:
        """End the pods that cannot end by themselves, as far as they allow it."""
        for write in self._cluster_state.ending_pods.take_due(partial(self.is_postponed, term)):
            self._submit(term, write)

    # --- results ----------------------------------------------------------------------------------

    def take_result(self, write: Write, result: Result) -> None:
        """Take in the result of a write."""
        self._observer.note_answer(write, result)
        # The promise of the domain ends with the answer, whatever the answer is.
        try:
            self._take_answer(_target(write), write, result)
        finally:
            # Only after the answer was taken in, which shows the domain as used.
            if write.purpose is Purpose.UNGATE_POD:
                self._cluster_state.placed_pods.answered(write.uid)
            elif write.purpose is Purpose.ALLOW_EVICTION:
                self._cluster_state.disruptions.note_answered(UnitKey(write.namespace, write.name, ""))

    def _take_answer(self, target: ObjectTarget, write: Write, result: Result) -> None:
        match result:
            case Written(raw=raw) | Moot(raw=raw):
                # An unreadable object ends the handling here.
                if not self._take_object(target, write, raw):
                    return
                if raw and isinstance(result, Written):
                    self._board.note_written(write, raw)
            case Refused(error=error) if write.verb is Verb.EVICT:
                # The object does not rest. The refusal is reported, and the unit as a whole rests.
                self._refusals.note(self._unit_of(target), write, error, self._clock.monotonic())
                self._look_again(target)
                return
            case Refused(error=error):
                self.fail(target)
                self._note_refused_request(target, write, error)
                log.warning("write-refused", purpose=write.purpose, target="/".join(target), error=error)
                return
            case Vanished():
                log.debug("object-vanished", target="/".join(target), purpose=write.purpose)
                if self._is_still_wanted(target, write):
                    # Each look would ask for the same write, until the watch shows that the object is gone.
                    self.fail(target)
                    return
                self._backoffs.forget(target)
        # A moot write shows that the object has changed, whatever its kind.
        if self._is_reconciled(write.kind) or isinstance(result, Moot):
            self._look_again(target)
        elif write.kind == "Pod":
            # While the write was in flight the unit was left alone, even if the watch brought changes.
            self._cluster_state.pods.mark_pod((target.namespace, target.name))
        self._look_at_askers(target, is_done=isinstance(result, Written))

    def _note_refused_request(self, target: ObjectTarget, write: Write, error: Exception) -> None:
        """Say at once why a Job gets no Workload, and in a Workload that its nodes cannot be asked for."""
        for created in write.events if write.purpose is Purpose.CREATE_WORKLOAD else ():
            note = f"Error creating Workload: {error}"
            self._events.send(replace(created, type=EventType.WARNING, reason="FailedCreate", note=note))
        if write.purpose in (Purpose.CREATE_POD_TEMPLATE, Purpose.REQUEST_NODES):
            self._cluster_state.provisioning.note_refused(write, error)
            self._look_at_askers(target)

    def _take_object(self, target: ObjectTarget, write: Write, raw: bytes) -> bool:
        """Take in the object that the server returned. Return whether it could be read."""
        if raw and not self._cluster_state.see_raw(write.kind, raw):
            # Another writer made the object unreadable, so the next write would end the same way.
            self.fail(target)
            return False
        if write.kind == "Pod" and write.verb in (Verb.DELETE, Verb.EVICT):
            # The watch may report the deletion late, and until then the pod would count as running.
            self._refusals.forget(self._unit_of(target))
            self._cluster_state.pods.note_deletion((write.namespace, write.name), write.uid)
        if write.purpose is not Purpose.FENCE:
            # A successful fence write does not end the pause: the admission itself was refused.
            self._backoffs.forget(target)
        if raw:
            self._board.see_raw(write.kind, raw)
        return True

    def _is_still_wanted(self, target: ObjectTarget, write: Write) -> bool:
        """Return whether a write that met 404 looks needed: to create an object, or on one that is cached."""
        state, key = self._cluster_state, (target.namespace, target.name)
        cached = {"Workload": state.workloads.get(key), "Pod": state.pods.get(key)}
        known = cached.get(target.kind) or state.queued.get(target)
        return write.verb is Verb.CREATE or known is not None

    def _is_reconciled(self, kind: str) -> bool:
        """Return whether a reconciler looks at the kind. Statuses of others belong to the StatusWriter."""
        return kind == "Workload" or kind in self._cluster_state.queued

    def _unit_of(self, target: ObjectTarget) -> UnitKey | None:
        seen = self._cluster_state.pods.get((target.namespace, target.name))
        return None if seen is None else self._cluster_state.pods.unit_of(seen.value)

    def _look_again(self, target: ObjectTarget) -> None:
        if self._is_reconciled(target.kind) or target.kind in ("Pod", STATEFUL_SET_KIND):
            self._cluster_state.mark(target.kind, (target.namespace, target.name))
        # Queues, policies, flavors: each of the two ignores objects that it does not keep.
        else:
            self._board.mark(*target)
            self._cluster_state.keeping.mark(target)

    def _look_at_askers(self, target: ObjectTarget, *, is_done: bool = False) -> None:
        """Look again at the objects that asked for a write on `target`, which has been answered.

        `is_done`: it was stored, so only those look again whose own write waited behind it and was not sent.
        """
        for asker, is_sent in self._askers.pop(target, {}).items():
            if not (is_done and is_sent):
                self._look_again(asker)


def _target(write: Write) -> ObjectTarget:
    return ObjectTarget(write.kind, write.namespace, write.name)
