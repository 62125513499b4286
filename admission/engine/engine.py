"""The engine: takes in all that is known, and returns decisions. It owns all mutable state of scheduling.

Objects are put in as values (`objects.upsert`, `objects.remove`) in any order; `cycle` takes the heads of
the ClusterQueues and decides; `queues`, `workloads`, `nodes` and `promises` answer queries. A Workload that
is admitted is *assumed* from then on: its usage counts before the API server has been written to. The event
that shows the admission confirms the assumption; `forget` takes it back if the write failed. An engine does
no I/O, reads no clock and logs nothing. One task owns it, and equal calls give equal decisions.

The events that make parked Workloads active again are Kueue's. Kueue gathers them for a second; here they
are gathered only until the next cycle. A tree whose last cycle changed nothing is not tried until an event
touches it, since a StrictFIFO head that cannot be admitted would otherwise be tried for ever.
Source: Kueue, pkg/cache/scheduler/cache.go, pkg/cache/queue/manager.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from admission.backfill.backfill_cycle import Backfill
from admission.backfill.expected_starts import Forecast, changed_starts
from admission.cache import overadmission
from admission.cache.cache import Cache
from admission.cache.specs import Specs
from admission.cache.workload_store import WorkloadStore
from admission.decisions.decision import Decision, DecisionId, Evict, SecondPassDecision, Wait
from admission.engine import explain_pending
from admission.engine.apply_outcomes import OutcomeApplier
from admission.engine.node_queries import NodeQueries
from admission.engine.promise_queries import PromiseQueries
from admission.engine.queue_queries import QueueQueries
from admission.engine.restore_plan import adopt_history, adopt_plan, tables
from admission.engine.second_pass import second_pass
from admission.engine.time_step import pass_time, settling, take_plans
from admission.engine.under_way import UnderWay
from admission.engine.updates import Updates
from admission.engine.workload_queries import WorkloadQueries
from admission.nomination.nominate import CyclePolicy
from admission.placement.topology.node_health import NodeFailureSettings
from admission.placement.topology.request import PlacementGates
from admission.placement.topology_cache import TopologyCache
from admission.preemption.fair_sharing import FairPreemption
from admission.scheduler.cycle_statistics import CycleStatistics
from admission.scheduler.outcomes import HeadOutcome
from admission.scheduler.resumable_cycle import Cycle, CycleTime
from admission.snapshot.snapshot import QueueState, Snapshot
from admission.status.views import (
    EngineStatistics,
    Touched,
)
from api.jobs.resource_requests import ResourceSettings
from api.policy import KUEUE, AdmissionPolicy
from api.workload import Workload, WorkloadKey
from queues.pending.admission_fair_sharing import AdmissionFairSharing, UsageLedger
from queues.pending.ordering import RequeuingTimestamp
from queues.reservations.plan import PlanTable, PlanValues
from queues.tracked import Tracked

# Caps the length of a cycle where there are very many queues. Cohort trees do not share quota, so it does not
# matter whether a tree is decided in this cycle or in the next.
_MOST_HEADS = 256
# How many seconds pass at least before a changed expected start is reported again.
_EXPECTED_AGAIN_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the configuration says about scheduling. None for `fair_sharing`, `admission_fair_sharing`: off.

    `default_policy` governs ClusterQueues that no AdmissionPolicy is bound to.
    """

    resources: ResourceSettings = field(default_factory=ResourceSettings)
    requeuing_timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION
    fair_sharing: FairPreemption | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    node_failures: NodeFailureSettings = field(default_factory=NodeFailureSettings)
    placement: PlacementGates = field(default_factory=PlacementGates)
    default_policy: AdmissionPolicy = KUEUE


class Engine:
    """All state of scheduling, and the cycle that decides on it.

    It has more than 15 public methods because each is a step of the control loop's protocol. Taking objects
    in and answering queries are left to the objects that it is made of.
    """

    def __init__(self, settings: EngineSettings | None = None) -> None:
        settings = settings or EngineSettings()
        self._policy = CyclePolicy(
            quota_check=settings.resources.quota_check, fair_sharing=settings.fair_sharing
        )
        self._node_failures = settings.node_failures
        sharing = settings.admission_fair_sharing
        cache = Cache(
            ledger=UsageLedger(sharing) if sharing is not None else None,
            specs=Specs(default_policy=settings.default_policy),
            topology_cache=TopologyCache(settings.placement),
        )
        workload_store = WorkloadStore(
            cache, resources=settings.resources, requeuing_timestamp=settings.requeuing_timestamp
        )
        self._cache, self._workload_store = cache, workload_store
        self._under_way = UnderWay(cache, workload_store.trees)
        self.objects = Updates(cache, workload_store, self._under_way)
        self.queues = QueueQueries(cache, workload_store)
        self.workloads = WorkloadQueries(cache, workload_store, self.queues)
        self.nodes = NodeQueries(cache, workload_store)
        self.promises = PromiseQueries(cache, workload_store)
        self.tally = CycleStatistics()
        self._applier = OutcomeApplier(cache, workload_store)
        self._cycles = 0

    # --- taking changes in, step by step ------------------------------------------------------------------

    def catch_up(self, most: int = 200, *, now: float) -> bool:
        """Let changed specs take effect for at most `most` Workloads. Return whether more work is left.

        A policy or a LimitRange may affect every Workload, which would block the controller for too long in
        one piece. A caller that decides does the rest at once, and one that only asks sees the progress so
        far. The overlaps of quota windows, which a policy's status shows, are computed here too, as they
        may take as long.
        """
        if self._workload_store.has_to_catch_up:
            self._under_way.begin_change(now)
            if self._workload_store.catch_up(most):
                return True
        return self._cache.overlaps.step(self._cache.specs.policies.values(), now=now)

    # --- decisions that failed ----------------------------------------------------------------------------

    def forget(self, key: WorkloadKey, uid: str, *, now: float, decided_on: str | None = None) -> None:
        """Take back an Admit or Evict that could not be written; an admitted Workload queues again.

        `decided_on` is the resource version that the decision was made on: an admission that was decided on
        another version is kept. None takes back whatever was decided.
        """
        self._under_way.begin_change(now)
        self._workload_store.admitted.forget(key, uid, decided_on)

    def adopt(self, workload: Workload, *, now: float, always: bool = False) -> DecisionId | None:
        """Let a known Workload hold the admission of `workload`, which another leader decided.

        Like a decision of this engine it counts from now on, until its object shows it or the returned id is
        forgotten. Returns None and changes nothing if the uid differs, if the Workload holds quota already,
        or if there is no room; with `always` room is not checked.
        """
        self._under_way.begin_change(now)
        # Room is checked on trees that include all that has been put in so far.
        self._workload_store.refresh()
        return self._workload_store.admitted.adopt(workload, always=always)

    def forget_all(self, *, now: float) -> None:
        """Take back every unconfirmed decision, since the leader that was to carry them out has stopped."""
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        self._workload_store.admitted.forget_all()

    # --- deciding ----------------------------------------------------------------------------------------

    def cycle(self, *, now: float) -> tuple[Decision, ...]:
        """Decide on one head of each ClusterQueue that is due. What is admitted is assumed on return.

        Empty if there was no head. Decisions are in the order in which to carry them out; a Wait is included
        only if its reason or message differs from what was last reported for the Workload.
        """
        cycle = self.begin_cycle(now=now)
        while cycle.step():
            pass
        return tuple(cycle.decisions)

    def settle(self, *, now: float) -> bool:
        """Check one more promise that may have to move. Return whether more are left.

        A hundred promises would block the controller for too long in one piece. To be called right before
        a cycle, which does at once what is left. Any change of what is known abandons the check, and the
        next call starts over.
        """
        if self._under_way.settling is None:
            self._under_way.begin_change(now)
            self._workload_store.refresh()
            self._under_way.settling = settling(self._cache, self._policy, now=now)
        if next(self._under_way.settling, self) is not self:
            return True
        self._under_way.settling, self._under_way.settled = None, self._cache.schedule_plan.generation
        return False

    def begin_cycle(self, *, now: float) -> Cycle:
        """Begin a cycle; the caller steps it to the end, and pauses it before anything else uses the engine.

        A cycle that is still under way is interrupted, as it is by every change of what is known.
        """
        settled = self._under_way.settled
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        schedule_plan = self._cache.schedule_plan
        # Not if the refresh has changed the basis of promises: a quota window may open at this very instant.
        is_settled = settled == schedule_plan.generation and not schedule_plan.revision.causes
        # What time alone changes comes first: ended back-offs and expired leases affect which
        # Workload is a head.
        evictions = pass_time(self._cache, self._workload_store, self._policy, now=now, is_settled=is_settled)
        self._applier.evicts += len(evictions)
        # After that, so that the Workloads it woke are among the heads of this very cycle.
        self._workload_store.settle()
        heads = self._workload_store.trees.pop_heads(_MOST_HEADS)
        self._cycles += bool(heads)

        def apply(outcome: HeadOutcome, decisions: list[Decision]) -> None:
            self.tally.count((outcome,))
            # The tree has changed for its other heads, so they are tried again.
            if self._applier.apply(outcome, decisions, now=now):
                self._workload_store.trees.settle_again(outcome.queue.tree)
            if outcome.is_displaced:
                self._workload_store.trees.note_displaced(outcome.queue.tree)

        snapshot = self._cache.snapshot(now=now)
        self._under_way.cycle = Cycle(
            snapshot,
            heads,
            policy=self._policy,
            apply=apply,
            now=now,
            time=CycleTime(
                evictions=evictions,
                backfill=self._backfill(snapshot, now),
                estimator=self._cache.schedule_plan.lengths.estimator,
                claims=self._cache.claims(heads),
                is_spent=self._cache.holds.is_spent,
                undo=self._cache.rebuild_time,
                finish=lambda: take_plans(self._cache, self._workload_store),
            ),
        )
        return self._under_way.cycle

    def second_pass(self, *, now: float) -> tuple[SecondPassDecision, ...]:
        """Decide on Workloads that have lost nodes or wait for places; see `admission.engine.second_pass`.

        Empty if there are none. To be called before a cycle: running work that lost nodes takes
        precedence over pending Workloads.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        # Called before every cycle, and as a rule there is nothing to decide.
        if not self._workload_store.admitted.second_pass:
            return ()
        decisions = second_pass(self._cache, self._workload_store, self._node_failures)
        self._applier.evicts += sum(isinstance(decision, Evict) for decision in decisions)
        return decisions

    def has_heads(self, *, now: float) -> bool:
        """Return whether a cycle would decide on anything."""
        self._under_way.begin_change(now)
        # Holds end here, where the caller asks whether to run a cycle. Otherwise none would run when the end
        # of a hold is the only thing due.
        self._end_holds(now)
        self._workload_store.settle()
        if self._cache.schedule_plan.is_due():
            return True
        return self._workload_store.trees.has_heads()

    def explain(self, limit: int) -> tuple[Wait, ...]:
        """Return the reasons for waiting of at most `limit` Workloads that were not tried themselves.

        A cycle tries one Workload of a class of equal requests, since what does not fit for one does not fit
        for the others, and behind a StrictFIFO head none. To be called when no cycle would decide anything.
        """
        self._workload_store.settle()
        return explain_pending.explain(self._cache, self._workload_store, limit=limit)

    def begin_forecast(self, *, now: float) -> Forecast | None:
        """Begin to compute when pending Workloads are expected to start; None where no policy has backfill.

        The caller steps the forecast to its end between cycles, and passes it to `take_forecast`.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        schedule_plan = self._cache.schedule_plan
        if not schedule_plan.is_on:
            return None
        # The snapshot has no time, since Workloads spared at this instant may not be spared later.
        return Forecast(
            snapshot=self._cache.snapshot(), schedule_plan=schedule_plan, policy=self._policy, now=now
        )

    def take_forecast(self, forecast: Forecast, *, most: int, now: float) -> tuple[WorkloadKey, ...]:
        """Take in a finished forecast. Return at most `most` Workloads whose expected start is news."""
        schedule_plan = self._cache.schedule_plan
        news = changed_starts(
            schedule_plan.expected, forecast.starts, now=now, least_seconds=_EXPECTED_AGAIN_SECONDS
        )
        # The rest is not marked as reported, so it is returned next time.
        taken = tuple(news)[:most]
        schedule_plan.expected_after = forecast.after
        schedule_plan.expected.update({key: (news[key], now) for key in taken})
        return taken

    def sample_usage(self, *, now: float) -> None:
        """Bring the past usage of LocalQueues up to now, once every sampling interval.

        That may change which Workload is the head of its queue. Without admission
        fair sharing nothing happens.
        """
        at = self.next_sample_at()
        if self._cache.ledger is None or at is None or at > now:
            # Called at every turn of the control loop, so a call too early has to be cheap.
            return
        local_queues = self._cache.sharing_local_queues()
        self._cache.ledger.sample(local_queues, now=now)
        self._workload_store.touched.local_queues.update(local_queues)
        for queue in self._cache.queues.values():
            if queue.usage_of is not None:
                # A sample changes the order of the queue, which no event reports.
                self._workload_store.trees.settle_again(queue.tree)

    def next_sample_at(self) -> float | None:
        """Return when past usage is next to be sampled (Unix seconds); None if no ClusterQueue uses it."""
        self._workload_store.see()
        ledger, queues = self._cache.ledger, self._cache.queues.values()
        if ledger is None or all(queue.usage_of is None for queue in queues):
            return None
        return ledger.next_sample_at()

    def weigh_all(self, *, now: float) -> None:
        """Take every admission that is known now as checked against the quota by an earlier leader.

        To be called when a term begins, after all that the cluster shows has been put in.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        self._workload_store.admitted.unweighed.clear()

    def repair(self, *, now: float) -> tuple[Evict, ...]:
        """Return the evictions of what other writers have admitted beyond the quota since `weigh_all`.

        Each is returned once; use `forget` if it could not be written.
        """
        workload_store = self._workload_store
        # Checked before anything is refreshed, since nearly every call has nothing to do.
        due_at = overadmission.due_at(self._cache, workload_store.admitted.unweighed)
        if due_at is None or due_at > now:
            return ()
        self._under_way.begin_change(now)
        workload_store.refresh()
        fitting, evictions = overadmission.judge(self._cache, workload_store.admitted.unweighed, now=now)
        for key in fitting:
            # It is within the quota, and from here on treated as if this engine had admitted it.
            del workload_store.admitted.unweighed[key]
        for eviction in evictions:
            self._applier.evicts += 1
            # It holds its quota until it has stopped, but cannot be chosen as a preemption target again.
            self._cache.held[eviction.key].is_evicting = True
        return tuple(evictions)

    def next_repair_at(self) -> float | None:
        """Return when `repair` next has something to check (Unix seconds), None for never."""
        return overadmission.due_at(self._cache, self._workload_store.admitted.unweighed)

    def next_wake_at(self) -> float | None:
        """Return when time alone next changes something (Unix seconds), None for never.

        A back-off, a hold or a minimum runtime ends, a promise is due, a turn begins, or a quota window or
        a reservation begins or ends.
        """
        boundary_at = self._cache.next_boundary_at
        ends = (
            self._workload_store.trees.next_wake_at(),
            self._workload_store.pending.next_turn_at(),
            self._cache.schedule_plan.wake_at,
            self._cache.holds.next_end_at(),
            boundary_at if boundary_at < inf else None,
        )
        return min((end for end in ends if end is not None), default=None)

    # --- the plan that outlives this process -------------------------------------------------------------

    def plan_tables(self) -> Mapping[PlanTable, Tracked[Any, Any]]:
        """Return the tables that the store keeps for the next leader; each tracks its changes."""
        return tables(self._cache)

    def adopt_plan(self, plan: PlanValues, *, now: float, is_whole: bool) -> int:
        """Take in what another leader has promised and learned; see `admission.engine.restore_plan`.

        `is_whole`: it replaces all promises and leases known here. Returns how many
        entries no longer applied.
        """
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        # The schedule plan dates what is taken in by its own time, and no cycle may have set that yet.
        self._cache.schedule_plan.now = now
        # History comes first, since the claims of promises depend on learned run times.
        adopt_history(self._cache, plan)
        return adopt_plan(self._cache, self._workload_store, plan, now=now, is_whole=is_whole)

    # --- state of the engine itself -----------------------------------------------------------------------

    def drain_touched(self) -> Touched:
        """Return the objects whose status may have changed since the last call."""
        self._workload_store.see()
        # A queue may have been deleted since it was touched; its status went with it.
        touched, queues = self._workload_store.touched, self._cache.queues
        present = [queues[name] for name in touched.cluster_queues if name in queues]
        above = {node.name for queue in present for node in queue.node.ancestors()}
        result = Touched(
            cluster_queues=frozenset(touched.cluster_queues),
            local_queues=frozenset(touched.local_queues),
            cohorts=frozenset(touched.cohorts | above),
            policies=frozenset(touched.policies | self._policies_of(present)),
        )
        # Returned once: the caller is the one that writes the statuses.
        touched.clear()
        return result

    def _policies_of(self, touched: Sequence[QueueState]) -> set[str]:
        """Return the policies whose status may change because it lists members of reservations."""
        if not self._cache.reservations.kept:
            return set()
        names, members = {queue.name for queue in touched}, self._cache.schedule_plan.ahead.members
        # Without members, starts and ends in the queue do not change that status.
        return {
            kept.id.policy
            for kept in self._cache.reservations.kept
            if kept.queue in names and members.get(kept.id)
        }

    def statistics(self) -> EngineStatistics:
        """Return the sizes of the state and the counts of decisions."""
        self._workload_store.see()
        pending = [queue.pending.statistics() for queue in self._cache.queues.values()]
        return EngineStatistics(
            workloads=len(self._workload_store.index.records),
            cluster_queues=len(self._cache.specs.cluster_queues),
            local_queues=len(self._cache.specs.local_queues),
            active_pending=sum(one.active for one in pending),
            parked_pending=sum(one.parked for one in pending),
            reserving=len(self._cache.held),
            assumed=sum(1 for held in self._cache.held.values() if held.is_assumed),
            cycles=self._cycles,
            admits=self._applier.admits,
            evicts=self._applier.evicts,
        )

    def validate(self) -> None:
        """Raise AssertionError naming the first broken invariant."""
        self._workload_store.refresh()
        self._cache.validate()
        records = self._workload_store.index.records
        for queue in self._cache.queues.values():
            queue.pending.validate()
            for pending in queue.pending.in_order():
                record = records.get(pending.key)
                assert record is not None, f"{pending.key} waits in {queue.name} but is not known"
                assert record.queued_in == queue.name, f"{pending.key} waits in {queue.name} and elsewhere"
                assert pending.key not in self._cache.held, f"{pending.key} is both pending and holding quota"
        for key, record in records.items():
            if record.queued_in is not None:
                waits = key in self._cache.queues[record.queued_in].pending
                assert waits, f"{key} is said to wait in {record.queued_in} but does not"

    # --- the cycle ---------------------------------------------------------------------------------------

    def _backfill(self, snapshot: Snapshot, now: float) -> Backfill | None:
        schedule_plan = self._cache.schedule_plan
        if not schedule_plan.is_on:
            return None
        return Backfill(snapshot=snapshot, schedule_plan=schedule_plan, policy=self._policy, now=now)

    def _end_holds(self, now: float) -> None:
        """End holds that have lasted too long or are no longer needed; their Workloads lose precedence."""
        if self._cache.holds.is_empty:
            return
        # `take_ended` compares holds with the queues, so changed specs have to be in effect.
        self._workload_store.refresh()
        for room in self._cache.holds.take_ended(self._cache.queues, now=now):
            queue = self._cache.queues.get(room.hold.cluster_queue)
            if queue is not None:
                queue.pending.precedence.forgive(room.hold.key)
                self._workload_store.trees.wake(queue.name)
            # Trees share nodes, so Workloads of other trees may have waited for these.
            self._workload_store.admitted.note_freed({place.flavor for place in room.places})
