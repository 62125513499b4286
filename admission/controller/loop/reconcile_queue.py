"""What the brain does for one object: look at it, ask for its next write, and take in how that went.

Level-triggered: an object that changed is *marked*, and a look works out the one write that it needs now.
Three things keep that from spinning or stalling:

- a write on its way is waited for, since its answer marks the object again;
- a write that was refused rests for a growing pause, since the next look would ask for the very same;
- who asked for a write on *another* object is remembered, because the refusal of that write marks only the
  object that it was meant for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from admission.controller.cluster_state.cluster_state import ClusterState, ObjectKey
from admission.controller.cluster_state.pod_groups import UnitKey
from admission.controller.cluster_state.refused_evictions import RefusedEvictions
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.decision_recorder import DecisionRecorder
from admission.controller.runtime.clock import Clock
from admission.controller.runtime.logs import Log
from admission.controller.runtime.timers import Backoffs, Timers
from admission.controller.writer.acting import Acting
from admission.controller.writer.executor import Moot, ObjectTarget, Refused, Result, Vanished, Written
from admission.decisions.api_writes import Action, Event, Purpose, Verb, Write
from admission.reconcile.job import reconcile_job
from admission.reconcile.pod import UnitFacts, reconcile_empty_group, reconcile_pods
from admission.reconcile.workload import reconcile_workload
from api.workload import WorkloadKey

log = Log("berth.brain")

# Kinds that are looked at by a reconciler; the status of others is the board's affair.
_RECONCILED = ("Job", "Workload")


class Reconciler:
    """Looks at Workloads and Jobs, and keeps what a look has to know beside the object itself."""

    def __init__(
        self,
        cluster_state: ClusterState,
        board: StatusWriter,
        decision_recorder: DecisionRecorder,
        clock: Clock,
    ) -> None:
        self._cluster_state = cluster_state
        self._board = board
        self._decision_recorder = decision_recorder
        self._clock = clock
        # When a Workload has to be looked at though nothing happens (Unix seconds).
        self._deadlines: Timers[WorkloadKey] = Timers()
        self._backoffs: Backoffs[ObjectTarget] = Backoffs()
        # Who asked for a write on another object (a pod to be let go, a Workload to be made): to be looked at
        # again where that write does not come about.
        self._askers: dict[ObjectTarget, dict[ObjectTarget, None]] = {}
        self._refusals = RefusedEvictions()

    def begin(self) -> None:
        """Start a term: what was refused to an earlier leader is tried afresh."""
        self._backoffs.clear()
        self._askers.clear()
        self._refusals.clear()
        self._cluster_state.disruptions.begin()

    def seconds_to_next(self) -> Iterator[float]:
        """Yield how long until a deadline, and until a rest is over; below zero where it is past."""
        if (deadline := self._deadlines.next_at()) is not None:
            yield deadline - self._clock.now()
        if (rested := self._backoffs.next_at()) is not None:
            yield rested - self._clock.monotonic()
        if (tried := self._refusals.next_at()) is not None:
            yield tried - self._clock.monotonic()

    def note_due(self) -> None:
        """Mark what is to be looked at again now: a deadline has come, or a rest is over."""
        for key in self._deadlines.take_due(self._clock.now()):
            self._cluster_state.marks.workload(key)
        for target in self._backoffs.take_due(self._clock.monotonic()):
            # The deadline has come: what is needed now is worked out by looking.
            self._look_again(target)
            self._look_at_askers(target)
        for unit in self._refusals.take_due(self._clock.monotonic()):
            self._cluster_state.pods.mark(unit)

    def fail(self, target: ObjectTarget) -> float:
        """Note that something came to nothing on the object. Returns how long it is to rest, in seconds."""
        return self._backoffs.fail(target, self._clock.monotonic())

    def is_left_alone(self, term: Acting, target: ObjectTarget) -> bool:
        """Return whether a write is on its way, which reports back, or a refused one waits out its pause."""
        return term.is_busy(target) or self._backoffs.is_resting(target, self._clock.monotonic())

    # --- looking ----------------------------------------------------------------------------------

    def look_at_workload(self, term: Acting, key: ObjectKey) -> None:
        """Ask for the next write that the Workload's life needs."""
        target, seen = ObjectTarget("Workload", *key), self._cluster_state.workloads.get(key)
        # Gone: neither pause nor deadline may outlive it.
        if seen is None:
            self._backoffs.forget(target)
            self._deadlines.put(WorkloadKey(*key), None)
            return
        if self.is_left_alone(term, target):
            return
        context = self._cluster_state.contexts.of_workload(seen.value)
        result = reconcile_workload(seen.value, seen.raw, context, now=self._clock.now())
        # Kept also where there is nothing to do: the next deadline is part of the answer.
        self._deadlines.put(seen.value.key, result.wake_at)
        self.do(term, result.actions, target)

    def look_at_job(self, term: Acting, key: ObjectKey) -> None:
        """Ask for the next write that the Job and its Workloads need."""
        target, seen = ObjectTarget("Job", *key), self._cluster_state.jobs.get(key)
        if seen is None:
            self._backoffs.forget(target)
            return
        workloads = self._cluster_state.workloads_of(seen)
        # In this order the Job's own lane is asked first, and mostly answers.
        lanes = (target, *(ObjectTarget("Workload", *workload.key) for workload, _ in workloads))
        # A Job is judged together with its Workloads: while one of them is being written, its bytes are old.
        if any(self.is_left_alone(term, lane) for lane in lanes):
            return
        context = self._cluster_state.job_context
        actions = reconcile_job(seen.value, seen.raw, workloads, context, now=self._clock.now())
        self.do(term, actions, target)

    def look_at_pods(self, term: Acting, unit: UnitKey) -> None:
        """Ask for the next writes that the pods of a unit and their Workload need."""
        pods, replicas = self._cluster_state.pods.members(unit), self._cluster_state.pods.replicas_of(unit)
        if not pods:
            self._refusals.forget(unit)
            self._look_at_empty_group(term, unit, replicas)
            return
        # A group's Workload by name, a single pod's by owner.
        workload = self._cluster_state.workload_of(pods)
        targets = [ObjectTarget("Pod", pod.metadata.namespace, pod.metadata.name) for pod in pods]
        lanes = targets if workload is None else [*targets, ObjectTarget("Workload", *workload[0].key)]
        # As for a Job. Who stands where is worked out from all pods at once, so that none of them may be on
        # its way to a place that its bytes do not show yet.
        if any(self.is_left_alone(term, lane) for lane in lanes):
            return
        context = self._cluster_state.job_context
        seen = [(pod.value, pod.raw) for pod in pods]
        by_eviction = workload is not None and self._cluster_state.is_replica(workload[0])
        if workload is None or not workload[0].is_evicted:
            # What was refused was an eviction before the next one.
            self._refusals.forget(unit)
        facts = UnitFacts(
            by_eviction=by_eviction,
            replicas=replicas,
            keeper=self._cluster_state.pods.leader_sets.keeper_of(pod.value for pod in pods),
            # Read for those alone whom budgets may keep.
            budgets=self._cluster_state.disruptions.budgets_for(unit) if by_eviction else (),
            refusal=self._refusals.standing(unit, self._clock.monotonic()),
        )
        actions = reconcile_pods(seen, workload, context, now=self._clock.now(), facts=facts)
        self.do(term, actions, targets[0])

    def _look_at_empty_group(self, term: Acting, unit: UnitKey, replicas: int | None) -> None:
        group = self._cluster_state.workloads.get((unit.namespace, unit.group))
        if group is None or self.is_left_alone(term, ObjectTarget("Workload", *group.value.key)):
            return
        schedule_plan = self._cluster_state.pods.leader_sets.keeper_of_workload(group.value)
        # A LeaderWorkerSet that has no place for this group any more wants no pods of it.
        wanted = 0 if schedule_plan is not None and not schedule_plan.has_place else replicas
        self.do(term, reconcile_empty_group(group.value, group.raw, replicas=wanted))

    def do(self, term: Acting, actions: tuple[Action, ...], asker: ObjectTarget | None = None) -> None:
        """Note the events and submit the writes, but those on objects that are left alone just now."""
        for action in actions:
            if isinstance(action, Event):
                self._decision_recorder.note(action)
                continue
            target = _target(action)
            if not self.is_left_alone(term, target):
                self._submit(term, action)
            # Left alone or under way, it is heard of again; one who only observes never hears of anything.
            # A write that this asker wanted is under way or was put off: whether it comes about,
            # the asker must hear.
            if asker not in (None, target) and self.is_left_alone(term, target):
                self._askers.setdefault(target, {})[asker] = None

    def _submit(self, term: Acting, write: Write) -> None:
        term.submit(write)
        if write.purpose is Purpose.UNGATE_POD:
            # Its place counts as taken from now on, else the next pod would be sent there too.
            self._cluster_state.ground.promise(write)
        elif write.purpose is Purpose.ALLOW_EVICTION:
            # So does what its pods take of their budgets.
            self._cluster_state.disruptions.note_sent(UnitKey(write.namespace, write.name, ""))

    def keep_what_is_in_use(self, term: Acting) -> None:
        """Put finalizers on, and take them off what may go."""
        # Behind everything else: a finalizer that comes late costs nobody anything.
        for write in self._cluster_state.keeping.take_due(partial(self.is_left_alone, term)):
            term.submit(write, priority=3)

    # --- results ----------------------------------------------------------------------------------

    def take_result(self, write: Write, result: Result) -> None:
        """Take in how a write went."""
        self._decision_recorder.note_write(write, result)
        # The place counts as promised until the answer is in, and not longer, whatever the answer.
        try:
            self._take_answer(_target(write), write, result)
        finally:
            # Only now: with the answer taken in, its place is seen to be taken, and what it says is known.
            if write.purpose is Purpose.UNGATE_POD:
                self._cluster_state.ground.answered(write.uid)
            elif write.purpose is Purpose.ALLOW_EVICTION:
                self._cluster_state.disruptions.note_answered(UnitKey(write.namespace, write.name, ""))

    def _take_answer(self, target: ObjectTarget, write: Write, result: Result) -> None:
        match result:
            case Written(raw=raw) | Moot(raw=raw):
                # An object that we cannot read ends the look here.
                if not self._take_object(target, write, raw):
                    return
                if raw and isinstance(result, Written):
                    self._board.note_written(write, raw)
            case Refused(error=error) if write.verb is Verb.EVICT:
                # Not left alone: what keeps it is told, and the unit rests as a whole.
                self._refusals.note(self._unit_of(target), write, error, self._clock.monotonic())
                self._look_again(target)
                return
            case Refused(error=error):
                self.fail(target)
                self._decision_recorder.note_refused(write, error)
                log.warning("write-refused", purpose=write.purpose, target="/".join(target), error=error)
                return
            case Vanished():
                self._backoffs.forget(target)
                log.debug("object-vanished", target="/".join(target), purpose=write.purpose)
        # A write that was moot shows that the object is another by now, of whatever kind.
        if write.kind in _RECONCILED or isinstance(result, Moot):
            self._look_again(target)
        elif write.kind == "Pod":
            # While the write was on its way its unit was left alone, whatever the watch brought.
            self._cluster_state.pods.mark_pod((target.namespace, target.name))
        if isinstance(result, Written):
            # What was asked for has happened; nobody needs to look again.
            self._askers.pop(target, None)
        else:
            self._look_at_askers(target)

    def _take_object(self, target: ObjectTarget, write: Write, raw: bytes) -> bool:
        """Take in the object that the server answered with. Returns whether it could be read."""
        if raw and not self._cluster_state.see_raw(write.kind, raw):
            # We cannot read what somebody made of it, so the next write would meet the same.
            self.fail(target)
            return False
        if write.kind == "Pod" and write.verb in (Verb.DELETE, Verb.EVICT):
            # The watch may bring the deletion late; until then the pod would count as alive.
            self._refusals.forget(self._unit_of(target))
            self._cluster_state.pods.note_deletion((write.namespace, write.name), write.uid)
        if write.purpose is not Purpose.FENCE:
            # A Workload whose admission was given up is fenced off with ease: that mends nothing.
            self._backoffs.forget(target)
        if raw:
            self._board.see_raw(write.kind, raw)
        return True

    def _unit_of(self, target: ObjectTarget) -> UnitKey | None:
        seen = self._cluster_state.pods.get((target.namespace, target.name))
        return None if seen is None else self._cluster_state.pods.unit_of(seen.value)

    def _look_again(self, target: ObjectTarget) -> None:
        if target.kind in (*_RECONCILED, "Pod"):
            self._cluster_state.mark(target.kind, (target.namespace, target.name))
        # Queues, policies, flavors: each of the two looks whether it is one of its own.
        else:
            self._board.mark(*target)
            self._cluster_state.keeping.mark(target)

    def _look_at_askers(self, target: ObjectTarget) -> None:
        """What they asked for has not come about: let them see whether they still want it."""
        for asker in self._askers.pop(target, ()):
            self._look_again(asker)


def _target(write: Write) -> ObjectTarget:
    return ObjectTarget(write.kind, write.namespace, write.name)
