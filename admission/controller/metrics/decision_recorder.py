"""Logs, Events and metrics of decisions and writes, each made from the decision or write itself."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from admission.backfill.promise_reports import PromiseOutcome
from admission.backfill.running_estimates import MeasuredRun
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.controller.metrics.eviction_metrics import EvictionMetrics
from admission.controller.metrics.labels import MetricLabels
from admission.controller.metrics.placement_metrics import PlacementMetrics
from admission.controller.metrics.registry import FOLLOWER, Metrics
from admission.controller.metrics.workload_metrics import WorkloadMetrics
from admission.controller.runtime.logs import Log
from admission.controller.writer.executor import Result, Written
from admission.decisions.api_writes import Event, Purpose, Write, job_ref, workload_ref
from admission.decisions.decision import (
    Admit,
    Decision,
    Evict,
    Plan,
    Reassign,
    SecondPassDecision,
    Unreplaced,
    Wait,
)
from admission.preemption.checkpoint_before_eviction import SaveOutcome
from admission.preemption.device_price import PriceOf
from admission.reconcile.decision_texts import plan_text
from admission.reconcile.decision_writes import unreplaced_event
from admission.reconcile.workload.saving import decision_of
from api.eviction import eviction_request
from api.jobs.checkpoint_annotations import tells_of_checkpoints
from api.kube.errors import KubeError
from api.kube.events import EventRecorder
from api.object_events import EventType
from api.reasons import ConditionType, PendingReason
from api.workload import Workload
from queues.profile.planned_start import PlannedStart

log = Log("berth.decisions")

# An Event whose cause persists is sent again after this long, not at every look.
REPEAT_SECONDS = 600.0
_WAITING = frozenset(PendingReason) - {PendingReason.MISCONFIGURED}
MAX_REMEMBERED = 10_000


class DecisionRecorder:
    """Reports to operators and users. It never blocks and never fails."""

    def __init__(
        self,
        recorder: EventRecorder,
        metrics: Metrics,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        labels: MetricLabels | None = None,
    ) -> None:
        """`labels`: custom labels of metrics, and which LocalQueues have metrics."""
        self._recorder = recorder
        self._metrics = metrics
        self._workload_metrics = WorkloadMetrics(metrics, labels)
        self._dropped = 0
        self._monotonic = monotonic
        self._sent_at: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._placements = PlacementMetrics(metrics)
        self._evictions = EvictionMetrics(metrics)
        # Pairs of uids, victim and preemptor, the latest last.
        self._evicted_for: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def role(self) -> str:
        """Return the value of the label `replica_role`."""
        return self._metrics.role

    def note(self, event: Event, *, is_once: bool = True) -> None:
        """Send a Kubernetes Event. With `is_once` the same Event is sent again only after REPEAT_SECONDS."""
        # The uid is part of the identity: the same sentence about another Job is another Event.
        identity = (event.regarding.uid, event.reason, event.note)
        at = self._monotonic()
        if is_once and at - self._sent_at.get(identity, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return
        # Moved to the end, so that an Event that is sent repeatedly is not forgotten first.
        self._sent_at[identity] = at
        self._sent_at.move_to_end(identity)
        if len(self._sent_at) > MAX_REMEMBERED:
            self._sent_at.popitem(last=False)
        # Like Kueue, waiting Workloads get Warnings too, but waiting is no fault.
        if event.type is EventType.WARNING and event.reason not in _WAITING:
            self._metrics.warnings.labels(self.role, event.reason).inc()
        self._recorder.record(event.regarding, event.type, event.reason, event.note, event.action)

    def note_cycle(self, decisions: tuple[Decision, ...], seconds: float) -> None:
        """Log and count one cycle's decisions. `seconds` is how long the cycle took."""
        # As in Kueue: a cycle that admitted or evicted a Workload is a success.
        is_success = any(not isinstance(decision, Wait) for decision in decisions)
        result = "success" if is_success else "inadmissible"
        self._metrics.attempts.labels(self.role, result).inc()
        self._metrics.attempt_seconds.labels(self.role, result).observe(seconds)
        self._placements.note_cycle(decisions, seconds, monotonic=self._monotonic())
        for decision in decisions:
            self._note_decision(decision)

    def note_repair(self, evictions: tuple[Evict, ...]) -> None:
        """Log the eviction of Workloads that another writer admitted beyond the quota."""
        for eviction in evictions:
            log.warning("over-admitted", workload=eviction.key, cluster_queue=eviction.cluster_queue)
            self._note_decision(eviction)

    def _note_decision(self, decision: Decision) -> None:
        match decision:
            case Admit():
                log.info(
                    "admit",
                    workload=decision.key,
                    cluster_queue=decision.admission.cluster_queue,
                    waited=round(decision.waited_seconds, 3),
                )
            case Evict():
                # An eviction that waits for a checkpoint is only requested. It counts as a
                # preemption once it happens.
                word = "evict" if decision.save_by is None else "request-eviction"
                log.info(word, workload=decision.key, reason=decision.reason, message=decision.message)
                if decision.preemption_reason is not None and decision.save_by is None:
                    self._workload_metrics.note_preemption(decision, decision.preemption_reason)
                    self._note_repeat(decision)
            case Plan():
                self._note_plan(decision)
            case Wait():
                log.debug("wait", workload=decision.key, reason=decision.reason, message=decision.message)

    def _note_plan(self, decision: Plan) -> None:
        planned, former = decision.planned, decision.former
        log.info("plan", workload=decision.key, what=plan_text(decision))
        # A promise that was withdrawn counts for the queue that had made it.
        known = planned or former
        if known is None:
            return
        event = _promise_event(planned, former)
        self._metrics.promises.labels(self.role, known.cluster_queue, event).inc()
        if event == "moved-later" and planned is not None:
            self._metrics.promise_moves.labels(self.role, planned.cluster_queue, planned.cause or "").inc()

    def note_time(self, kept: Iterable[PromiseOutcome], measured: Iterable[MeasuredRun]) -> None:
        """Count kept promises, those broken by more than a second, and the accuracy of estimates."""
        for one in kept:
            queue, late = one.planned.cluster_queue, one.at - one.planned.first_start_at
            event = "kept" if late <= SLACK_SECONDS else "late"
            self._metrics.promises.labels(self.role, queue, event).inc()
            self._metrics.promise_error.labels(self.role, queue).observe(abs(late))
        for run in measured:
            # At least a second: an estimate of zero would make the ratio infinite.
            ratio = run.seconds / max(1.0, run.estimate.seconds)
            self._metrics.estimate_ratio.labels(self.role, run.estimate.source).observe(ratio)

    def note_backfilled(self, cluster_queue: str) -> None:
        """Count a Workload that starts ahead of a promised one."""
        self._metrics.backfilled.labels(self.role, cluster_queue).inc()

    def _note_repeat(self, decision: Evict) -> None:
        """Count a Workload that is preempted again by the same one: work that was lost for nothing."""
        pair = (decision.uid, decision.preemptor_uid)
        if pair in self._evicted_for:
            self._metrics.repeated_preemptions.labels(self.role, decision.preempting_cluster_queue).inc()
            log.warning("evicted-again", workload=decision.key, preemptor=decision.preemptor)
        self._evicted_for[pair] = None
        self._evicted_for.move_to_end(pair)
        if len(self._evicted_for) > MAX_REMEMBERED:
            self._evicted_for.popitem(last=False)

    def note_second_pass(self, decisions: Iterable[SecondPassDecision]) -> None:
        """Log the decisions on Workloads with failed nodes, and report those that have to wait for room."""
        for decision in decisions:
            match decision:
                case Reassign():
                    log.info("reassign", workload=decision.key, lost=decision.lost, found=decision.found)
                case Evict():
                    self._note_decision(decision)
                case Unreplaced():
                    log.info("unreplaced", workload=decision.key, message=decision.message)
                    self.note(unreplaced_event(decision))

    def note_recovery(self, result: str, seconds: float) -> None:
        """Measure a recovery from failed nodes, `replaced` or `evicted`. A follower measures nothing."""
        # Followers see the same objects change and would count each recovery twice.
        if self.role != FOLLOWER:
            self._metrics.recovery_seconds.labels(self.role, result).observe(seconds)

    def note_progress(
        self,
        before: Workload,
        after: Workload,
        *,
        now: float,
        cohorts_above: Callable[[str], tuple[str, ...]] = lambda _: (),
    ) -> None:
        """Count the steps between two versions of a Workload. A follower counts nothing."""
        if self.role != FOLLOWER:
            self._workload_metrics.note(before, after, now=now, cohorts_above=cohorts_above)

    def note_loss(
        self, before: Workload, after: Workload, *, saved_at: float | None, now: float, price_of: PriceOf
    ) -> None:
        """Count the work that an eviction between two versions loses.

        The Workload gets an Event about it if it reports checkpoints.
        """
        if self.role == FOLLOWER:
            return
        lost = self._evictions.note_loss(before, after, saved_at=saved_at, now=now, price_of=price_of)
        # Only for a Workload that uses checkpoints: otherwise there are no Events besides Kueue's.
        if lost is not None and tells_of_checkpoints(after):
            about = workload_ref(after.key.namespace, after.key.name, after.uid)
            normal = EventType.NORMAL
            self.note(
                Event(regarding=about, type=normal, reason="WorkLost", note=lost.text(), action="Evict")
            )

    def note_saving(self, before: Workload, after: Workload, *, saved_at: float | None) -> None:
        """Count the outcome of an eviction that waited for a checkpoint.

        It counts as a preemption once the wait is over: until then the eviction may be taken back.
        """
        if self.role == FOLLOWER:
            return
        outcome, request = self._evictions.note(before, after, saved_at=saved_at), eviction_request(before)
        if outcome in (SaveOutcome.KEPT, SaveOutcome.MISSED) and request is not None:
            self._note_decision(decision_of(before, request))

    def note_created(self, kind: str, seconds: float) -> None:
        """Record how long after its creation a Job of this kind got its Workload."""
        if self.role != FOLLOWER:
            # The clocks of server and controller differ, so the time may come out negative.
            self._metrics.creation_latency.labels(self.role, kind).observe(max(0.0, seconds))

    def note_ungated(self, gate: str, workload: Workload, *, now: float) -> None:
        """Count that a pod of an admitted Workload has been ungated."""
        admitted = workload.conditions.get(ConditionType.ADMITTED)
        if self.role != FOLLOWER and workload.admission is not None and admitted is not None:
            labels = (gate, workload.admission.cluster_queue, "false")
            self._metrics.gate_removal.labels(self.role, *labels).observe(max(0.0, now - admitted.at))

    def drop_series(self, kind: str, namespace: str, name: str) -> None:
        """End the series of a ClusterQueue, LocalQueue or Cohort that is gone."""
        self._workload_metrics.drop(kind, namespace, name)

    def note_write(self, write: Write, result: Result) -> None:
        """Count a write, and send its Events once it has succeeded."""
        self._metrics.writes.labels(self.role, write.purpose, type(result).__name__).inc()
        if not isinstance(result, Written):
            return
        # The write has one Event for each misplaced pod.
        if write.purpose is Purpose.REPORT_PODS:
            self._metrics.misplaced.labels(self.role).inc(len(write.events))
        for event in write.events:
            # Sent each time, since each write is another occurrence.
            self.note(event, is_once=False)
        if write.purpose is Purpose.ADMIT:
            self._placements.note_written(write.namespace, write.name, monotonic=self._monotonic())
        # Not logged: there are hundreds per minute under load, and each only repeats the status.
        if write.purpose is Purpose.QUEUE_STATUS:
            return
        log.debug("written", purpose=write.purpose, kind=write.kind, object=f"{write.namespace}/{write.name}")

    def note_refused(self, write: Write, error: KubeError) -> None:
        """Report on the object that the API server refuses a write."""
        # Objects of other kinds get no Event; the log has the refusal.
        if write.kind not in ("Job", "Workload") or not write.uid:
            return
        ref = job_ref if write.kind == "Job" else workload_ref
        self.note(
            Event(
                regarding=ref(write.namespace, write.name, write.uid),
                type=EventType.WARNING,
                reason="WriteRefused",
                note=f"The API server refuses {write.purpose}: {error}",
                action=write.purpose,
            )
        )

    def note_unreadable(self, kind: str, name: str, error: str) -> None:
        """Log and count an object that could not be read."""
        self._metrics.unreadable.labels(self.role, kind).inc()
        log.warning("unreadable-object", kind=kind, object=name, error=error)

    def note_stumble(self) -> None:
        """Count a bug that affected one object. Its traceback is in the log."""
        self._metrics.stumbles.labels(self.role).inc()

    def note_pause(self, is_paused: bool, unconfirmed: int) -> None:
        """Set the gauges of the cycle's pause and of the unconfirmed decisions, and count dropped Events."""
        self._metrics.cycle_paused.labels(self.role).set(float(is_paused))
        self._metrics.unconfirmed.labels(self.role).set(unconfirmed)
        # The recorder counts a total, and the metric needs the increase since the last call.
        dropped, self._dropped = self._recorder.dropped - self._dropped, self._recorder.dropped
        self._metrics.events_dropped.labels(self.role).inc(dropped)


def _promise_event(planned: PlannedStart | None, former: PlannedStart | None) -> str:
    if planned is None:
        return "withdrawn"
    if former is None:
        return "made"
    # A later move comes first: such a start may still be earlier than the former one.
    if planned.moves > former.moves:
        return "moved-later"
    return "moved-earlier" if planned.start_at < former.start_at else "changed"
