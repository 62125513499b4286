"""Logs, Events and metrics of decisions and writes, each made from the decision or write itself.

Preemptions are counted by the preemptor's ClusterQueue, and so are those that are repeated.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from admission.backfill.promise_reports import PromiseOutcome
from admission.backfill.running_estimates import MeasuredRun
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.controller.metrics.labels import CLUSTER_QUEUE
from admission.controller.metrics.placement_metrics import PlacementMetrics
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from admission.controller.runtime.logs import Log
from admission.controller.writer.write_order import Refused, Result, Written
from admission.decisions.api_writes import Event, Purpose, Verb, Write, job_ref, workload_ref
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
from admission.reconcile.decision_texts import plan_text
from admission.reconcile.decision_writes import unreplaced_event
from api.kube.errors import KubeError
from api.object_events import EventType
from queues.estimates.start_errors import StartOutcome
from queues.profile.planned_start import PlannedStart

log = Log("berth.decisions")

_NAMING = ("preempting_cluster_queue",)
# How many pairs of victim and preemptor are remembered.
MAX_REMEMBERED = 10_000


class DecisionRecorder:
    """Reports to operators and users what the control loop decides and writes. It never blocks."""

    def __init__(
        self,
        metrics: Metrics,
        events: EventReporter,
        series: QueueSeries,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._events = events
        self._monotonic = monotonic
        self._sent, self._dropped = 0, 0
        self._placements = PlacementMetrics(metrics)
        self._preemptions = PreemptionMetrics(metrics, series)

    def note_cycle(self, decisions: tuple[Decision, ...], seconds: float) -> None:
        """Log and count one cycle's decisions. `seconds` is how long the cycle took."""
        # As in Kueue: a cycle that admitted or evicted a Workload is a success.
        is_success = any(not isinstance(decision, Wait) for decision in decisions)
        result = "success" if is_success else "inadmissible"
        self._metrics.attempts.labels(self._metrics.role, result).inc()
        self._metrics.attempt_seconds.labels(self._metrics.role, result).observe(seconds)
        self._placements.note_cycle(decisions, seconds, monotonic=self._monotonic())
        for decision in decisions:
            self._note_decision(decision)

    def note_repair(self, evictions: tuple[Evict, ...]) -> None:
        """Log the eviction of Workloads that another writer admitted beyond the quota."""
        for eviction in evictions:
            log.warning("over-admitted", workload=eviction.key, cluster_queue=eviction.cluster_queue)
            self.note_eviction(eviction)

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
                self.note_eviction(decision)
            case Plan():
                self._note_plan(decision)
            case Wait():
                log.debug("wait", workload=decision.key, reason=decision.reason, message=decision.message)

    def note_eviction(self, decision: Evict) -> None:
        """Log an eviction or the request to save before it, and count an eviction that is a preemption."""
        # An eviction that waits for a checkpoint is only requested. It counts once it happens.
        word = "evict" if decision.save_by is None else "request-eviction"
        log.info(word, workload=decision.key, reason=decision.reason, message=decision.message)
        if decision.save_by is None:
            self._preemptions.note(decision)

    def _note_plan(self, decision: Plan) -> None:
        planned, former = decision.planned, decision.former
        log.info("plan", workload=decision.key, what=plan_text(decision))
        # A promise that was withdrawn counts for the queue that had made it.
        known = planned or former
        if known is None:
            return
        event = _promise_event(planned, former)
        self._metrics.promises.labels(self._metrics.role, known.cluster_queue, event).inc()
        if event == "moved-later" and planned is not None:
            self._metrics.promise_moves.labels(
                self._metrics.role, planned.cluster_queue, planned.cause or ""
            ).inc()

    def note_promises(self, kept: Iterable[PromiseOutcome], measured: Iterable[MeasuredRun]) -> None:
        """Count kept promises, those broken by more than a second, and the accuracy of estimates."""
        for one in kept:
            queue, late = one.planned.cluster_queue, one.at - one.planned.first_start_at
            event = "kept" if late <= SLACK_SECONDS else "late"
            self._metrics.promises.labels(self._metrics.role, queue, event).inc()
            self._metrics.promise_error.labels(self._metrics.role, queue).observe(abs(late))
        for run in measured:
            # At least a second: an estimate of zero would make the ratio infinite.
            ratio = run.seconds / max(1.0, run.estimate.seconds)
            self._metrics.estimate_ratio.labels(self._metrics.role, run.estimate.source).observe(ratio)

    def note_starts(self, outcomes: Iterable[StartOutcome]) -> None:
        """Count starts by the side of their first interval, and how wrong the first estimate was."""
        for one in outcomes:
            self._metrics.start_estimates.labels(self._metrics.role, one.side).inc()
            self._metrics.start_error.labels(self._metrics.role).observe(abs(one.error_seconds))

    def note_backfilled(self, cluster_queue: str) -> None:
        """Count a Workload that starts ahead of a promised one."""
        self._metrics.backfilled.labels(self._metrics.role, cluster_queue).inc()

    def note_second_pass(self, decisions: Iterable[SecondPassDecision]) -> None:
        """Log the decisions on Workloads with failed nodes, and report those that have to wait for room."""
        for decision in decisions:
            match decision:
                case Reassign():
                    log.info("reassign", workload=decision.key, lost=decision.lost, found=decision.found)
                case Evict():
                    self.note_eviction(decision)
                case Unreplaced():
                    log.info("unreplaced", workload=decision.key, message=decision.message)
                    self._events.send(unreplaced_event(decision))

    def note_answer(self, write: Write, result: Result) -> None:
        """Count a write, and send its Events once it has succeeded, or the Event of its refusal."""
        self._metrics.writes.labels(self._metrics.role, write.purpose, type(result).__name__).inc()
        if isinstance(result, Refused):
            self._note_refused(write, result.error)
        if not isinstance(result, Written):
            return
        if write.eviction is not None:
            self.note_eviction(write.eviction)
        # The write has one Event for each misplaced pod.
        if write.purpose is Purpose.REPORT_PODS:
            self._metrics.misplaced.labels(self._metrics.role).inc(len(write.events))
        for event in write.events:
            # Sent each time, since each write is another occurrence.
            self._events.send(event, is_once=False)
        if write.purpose is Purpose.ADMIT:
            self._placements.note_written(write.namespace, write.name, monotonic=self._monotonic())
        # Not logged: there are hundreds per minute under load, and each only repeats the status.
        if write.purpose is Purpose.QUEUE_STATUS:
            return
        log.debug("written", purpose=write.purpose, kind=write.kind, object=f"{write.namespace}/{write.name}")

    def _note_refused(self, write: Write, error: KubeError) -> None:
        """Report on the object that the API server refuses a write."""
        # Objects of other kinds get no Event; the log has the refusal. A refused eviction is reported on the
        # Workload of its pod (`admission.controller.cluster_state.refused_evictions`).
        if write.kind not in ("Job", "Workload") or not write.uid or write.verb is Verb.EVICT:
            return
        ref = job_ref if write.kind == "Job" else workload_ref
        self._events.send(
            Event(
                regarding=ref(write.namespace, write.name, write.uid),
                type=EventType.WARNING,
                reason="WriteRefused",
                note=f"The API server refuses {write.purpose}: {error}",
                action=write.purpose,
            )
        )

    def note_error(self) -> None:
        """Count a bug that affected one object. Its traceback is in the log."""
        self._metrics.control_loop_errors.labels(self._metrics.role).inc()

    def note_pause(self, is_paused: bool, unconfirmed: int) -> None:
        """Set the gauges of the cycle's pause and of the unconfirmed decisions, and count Events."""
        self._metrics.cycle_paused.labels(self._metrics.role).set(float(is_paused))
        self._metrics.unconfirmed.labels(self._metrics.role).set(unconfirmed)
        # The reporter counts totals, and the metrics need the increase since the last call.
        sent, self._sent = self._events.sent - self._sent, self._events.sent
        dropped, self._dropped = self._events.dropped - self._dropped, self._events.dropped
        self._metrics.events_sent.labels(self._metrics.role).inc(sent)
        self._metrics.events_dropped.labels(self._metrics.role).inc(dropped)


def _promise_event(planned: PlannedStart | None, former: PlannedStart | None) -> str:
    if planned is None:
        return "withdrawn"
    if former is None:
        return "made"
    # A later move comes first: such a start may still be earlier than the former one.
    if planned.moves > former.moves:
        return "moved-later"
    return "moved-earlier" if planned.start_at < former.start_at else "changed"


class PreemptionMetrics:
    """Counts preemptions from their decisions."""

    def __init__(self, metrics: Metrics, series: QueueSeries) -> None:
        self._metrics = metrics
        self._labels = series.labels
        self._preempted = series.keep(
            _NAMING,
            metrics.counter(
                "kueue_preempted_workloads",
                "Preemptions",
                (*_NAMING, "reason", *series.labels.names(CLUSTER_QUEUE)),
            ),
        )
        self._repeated = series.keep(
            _NAMING,
            metrics.counter(
                "berth_repeated_preemptions",
                "Preemptions of a Workload for one that it was evicted for before",
                _NAMING,
            ),
        )
        # Pairs of uids, victim and preemptor, the latest last.
        self._evicted_for: OrderedDict[tuple[str, str], None] = OrderedDict()

    def note(self, decision: Evict) -> None:
        """Count an eviction that frees quota for a preemptor; ignore any other."""
        if decision.preemption_reason is None:
            return
        queue = decision.preempting_cluster_queue
        custom = self._labels.values(CLUSTER_QUEUE, "", queue)
        self._preempted.labels(self._metrics.role, queue, decision.preemption_reason, *custom).inc()
        self._note_repeat(decision)

    def _note_repeat(self, decision: Evict) -> None:
        """Count a Workload that is preempted again by the same one: work that was lost for nothing."""
        pair = (decision.uid, decision.preemptor_uid)
        if pair in self._evicted_for:
            self._repeated.labels(self._metrics.role, decision.preempting_cluster_queue).inc()
            log.warning("evicted-again", workload=decision.key, preemptor=decision.preemptor)
        self._evicted_for[pair] = None
        self._evicted_for.move_to_end(pair)
        if len(self._evicted_for) > MAX_REMEMBERED:
            self._evicted_for.popitem(last=False)
