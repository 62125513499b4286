"""The engine: takes in all that is known, and returns decisions. It owns all mutable state of scheduling.

Objects are put in as values (`objects.upsert`, `objects.remove`) in any order; `cycle` takes the heads of
the ClusterQueues and decides; `queues`, `workloads`, `nodes` and `promises` answer queries; `plan`,
`forecasts`, `usage_sampling` and `overadmission` serve the loop between cycles. A Workload that
is admitted is *assumed* from then on: its usage counts before the API server has been written to. The event
that shows the admission confirms the assumption; `forget` takes it back if the write failed. An engine does
no I/O, reads no clock and logs nothing. One task owns it, and equal calls give equal decisions.

The events that make parked Workloads active again are Kueue's. Kueue gathers them for a second; here they
are gathered only until the next cycle. A tree whose last cycle changed nothing is not tried until an event
touches it, since a StrictFIFO head that cannot be admitted would otherwise be tried for ever.
Source: Kueue, pkg/cache/scheduler/cache.go, pkg/cache/queue/manager.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

from admission.backfill.backfill_cycle import Backfill
from admission.cache.cache import Cache
from admission.cache.specs import Specs
from admission.cache.workload_store import WorkloadStore
from admission.decisions.decision import (
    Admit,
    Decision,
    Evict,
    SecondPassDecision,
    Wait,
)
from admission.engine import explain_pending
from admission.engine.apply_outcomes import OutcomeApplier
from admission.engine.node_queries import NodeQueries
from admission.engine.overadmission_check import OveradmissionCheck
from admission.engine.promise_queries import PromiseQueries
from admission.engine.promotions import Promotions
from admission.engine.queue_queries import QueueQueries
from admission.engine.readiness_block import ReadinessBlock
from admission.engine.restore_plan import StoredPlan
from admission.engine.second_pass import SecondPass
from admission.engine.start_forecasts import StartForecasts
from admission.engine.static_addresses import StaticAddresses
from admission.engine.time_step import pass_time, settling, take_plans
from admission.engine.under_way import UnderWay
from admission.engine.updates import Updates
from admission.engine.usage_sampling import UsageSampling
from admission.engine.workload_queries import WorkloadQueries
from admission.hardware.rules import HardwareRules
from admission.nomination.head_outcome import HeadOutcome
from admission.nomination.nominate import CyclePolicy
from admission.placement.topology.node_health import NodeFailureSettings
from admission.placement.topology.request import PlacementGates
from admission.placement.topology_cache import TopologyCache
from admission.preemption.fair_sharing import FairPreemption
from admission.scheduler.cycle_statistics import CycleStatistics
from admission.scheduler.outcomes import starts_at_once
from admission.scheduler.resumable_cycle import Cycle, CycleEffects
from admission.scheduler.scheduler import CycleRules
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from admission.status.views import (
    EngineStatistics,
    Touched,
)
from api.jobs.resource_requests import LimitRange, ResourceSettings
from api.policy import KUEUE, AdmissionPolicy
from api.reasons import ConditionType
from api.workload import Workload, WorkloadKey
from api.workload_status import LEASE_WORDS
from queues.pending.admission_fair_sharing import AdmissionFairSharing, UsageLedger
from queues.pending.ordering import RequeuingTimestamp
from queues.pending.pending_queue import Pending

# Caps the length of a cycle where there are very many queues. Cohort trees do not share quota, so it does not
# matter whether a tree is decided in this cycle or in the next.
_MOST_HEADS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What the configuration says about scheduling. None for `fair_sharing`, `admission_fair_sharing`: off.

    `default_policy` governs ClusterQueues that no AdmissionPolicy is bound to. `blocks_admission`: Workloads
    wait until the pods of all that were admitted before are ready. `heeds_gates`: spec.preemptionGates of a
    Workload hold its evictions of others back. `boosts_priorities`: the annotation
    `kueue.x-k8s.io/priority-boost` adds to the priority of a Workload.

    Changing any of them but `hardware` (`Updates.set_hardware_rules`) takes a new engine: the settings are
    read when it is created. Read from a configuration file by `admission.engine.settings`.
    """

    resources: ResourceSettings = field(default_factory=ResourceSettings)
    requeuing_timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION
    boosts_priorities: bool = False
    fair_sharing: FairPreemption | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    node_failures: NodeFailureSettings = field(default_factory=NodeFailureSettings)
    placement: PlacementGates = field(default_factory=PlacementGates)
    hardware: HardwareRules = field(default_factory=HardwareRules)
    default_policy: AdmissionPolicy = KUEUE
    blocks_admission: bool = False
    heeds_gates: bool = False


class Engine:
    """All state of scheduling, and the cycle that decides on it.

    Its own methods are the steps of the control loop's protocol. Taking objects in, answering queries and
    what is done beside the cycles are left to the objects that it is made of.
    """

    def __init__(self, settings: EngineSettings | None = None) -> None:
        settings = settings or EngineSettings()
        self._policy = CyclePolicy(
            quota_check=settings.resources.quota_check,
            fair_sharing=settings.fair_sharing,
            heeds_gates=settings.heeds_gates,
        )
        sharing = settings.admission_fair_sharing
        cache = Cache(
            ledger=UsageLedger(sharing) if sharing is not None else None,
            specs=Specs(default_policy=settings.default_policy),
            topology_cache=TopologyCache(settings.placement, settings.hardware),
        )
        workload_store = WorkloadStore(
            cache,
            resources=settings.resources,
            requeuing_timestamp=settings.requeuing_timestamp,
            boosts_priorities=settings.boosts_priorities,
        )
        self._cache, self._workload_store = cache, workload_store
        self._under_way = UnderWay(cache, workload_store.trees)
        self.tally = CycleStatistics()
        self.objects = Updates(cache, workload_store, self._under_way, self.tally)
        self.queues = QueueQueries(cache, workload_store)
        self.workloads = WorkloadQueries(cache, workload_store, self.queues)
        self.nodes = NodeQueries(cache, workload_store)
        self.addresses = StaticAddresses(cache, self._under_way)
        self.promises = PromiseQueries(cache, workload_store, self.queues, estimate=self.workloads.estimate)
        self.plan = StoredPlan(cache, workload_store, self._under_way)
        self.forecasts = StartForecasts(cache, workload_store, self._under_way, self._policy)
        self.usage_sampling = UsageSampling(cache, workload_store)
        self.overadmission = OveradmissionCheck(cache, workload_store, self._under_way, self.tally)
        self._applier = OutcomeApplier(cache, workload_store, self.tally)
        self._second_pass = SecondPass(
            cache, workload_store.index, workload_store.admitted, settings.node_failures
        )
        self._readiness = ReadinessBlock(cache, workload_store.index, is_on=settings.blocks_admission)
        self.promotions = Promotions(cache, workload_store.index, self._policy, settings.requeuing_timestamp)
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
        """Take back an Admit that could not be written; the Workload queues again.

        An eviction or move of the same Workload is taken back with it. `decided_on` is the resource version
        that the decision was made on: an admission that was decided on another version is kept. None takes
        back whatever was decided.
        """
        self._under_way.begin_change(now)
        self._workload_store.admitted.forget(key, uid, decided_on)

    def withdraw(self, key: WorkloadKey, uid: str, *, now: float) -> None:
        """Take back an Evict or a Reassign that could not be written.

        The Workload keeps its quota, also where its object does not show its admission yet: what became of
        one decision says nothing of the other.
        """
        self._under_way.begin_change(now)
        self._workload_store.admitted.withdraw(key, uid)

    def adopt(self, workload: Workload, *, now: float, always: bool = False) -> Admit | None:
        """Let a known Workload hold the admission of `workload`, which another leader decided.

        Like a decision of this engine it counts from now on, until its object shows it or the returned
        decision is forgotten. Only flavors, pods and domains are taken from `workload`: what they charge, and
        the admission checks, follow from the objects that are known here. Returns None and changes nothing if
        the uid differs, if the Workload holds quota already, or if a cycle could not decide the same now (no
        room, another ClusterQueue, flavors that it does not offer); with `always` that is not checked.
        """
        self._under_way.begin_change(now)
        # Room is checked on trees that include all that has been put in so far.
        self._workload_store.refresh()
        held = self._workload_store.admitted.adopt(workload, always=always)
        if held is None:
            return None
        present, checks = held.workload, self.workloads.required_checks(held.workload)
        reserved = workload.conditions.get(ConditionType.QUOTA_RESERVED)
        return Admit(
            key=present.key,
            uid=present.uid,
            resource_version=present.resource_version,
            admission=held.admission,
            is_admitted=starts_at_once(present, held.admission, checks),
            checks=checks,
            on_lease=reserved is not None and reserved.message.endswith(LEASE_WORDS),
        )

    def forget_all(self, *, now: float) -> None:
        """Take back every unconfirmed decision, since the leader that was to carry them out has stopped.

        Called when a term ends. Workloads that were admitted queue again, and Workloads that were evicted may
        be chosen again.
        """
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

        At most `_MOST_HEADS` heads are taken. Evictions that time alone brings about are the first decisions
        of the cycle. Stepping it to the end gives the same decisions as `cycle`.
        """
        settled = self._under_way.settled
        self._under_way.begin_change(now)
        self._workload_store.refresh()
        schedule_plan = self._cache.schedule_plan
        # Not if the refresh has changed the basis of promises: a quota window may open at this very instant.
        is_settled = settled == schedule_plan.generation and not schedule_plan.revision.causes
        # What time alone changes comes first: ended back-offs and expired leases affect which
        # Workload is a head.
        evictions = pass_time(
            self._cache, self._workload_store.trees, self._policy, now=now, is_settled=is_settled
        )
        # After that, so that the Workloads it woke are among the heads of this very cycle.
        self._workload_store.settle()
        heads = self._pop_heads()
        if not heads and not self._readiness.is_closed:
            # Pending Workloads come first: only what none of them takes is there for a move.
            evictions += self.promotions.decide(now=now)
        self.tally.evicts += len(evictions)
        self._cycles += bool(heads)

        def apply(outcome: HeadOutcome, decisions: list[Decision]) -> None:
            self.tally.count((outcome,))
            awaits_pods = self._readiness.note(outcome)
            # The tree has changed for its other heads, so they are tried again.
            if self._applier.apply(outcome, decisions, now=now) or awaits_pods:
                self._workload_store.trees.settle_again(outcome.queue.tree)
            if outcome.is_displaced:
                self._workload_store.trees.note_displaced(outcome.queue.tree)

        snapshot = self._cache.snapshot(now=now)
        rules = CycleRules(
            policy=self._policy,
            now=now,
            backfill=self._backfill(snapshot, now),
            estimator=self._cache.estimator,
            claims=self._cache.claims(heads),
            is_spent=self._cache.holds.is_spent,
            readiness=self._readiness.gate(),
        )
        effects = CycleEffects(
            apply=apply,
            finish=lambda: take_plans(self._cache, self._workload_store.index),
            undo=self._cache.rebuild_time,
        )
        self._under_way.cycle = Cycle(snapshot, heads, rules, evictions=evictions, effects=effects)
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
        decisions = self._second_pass.decide()
        self.tally.evicts += sum(isinstance(decision, Evict) for decision in decisions)
        return decisions

    def next_second_pass_at(self) -> float | None:
        """Return when `second_pass` has to be called next (Unix seconds); None: after an event only."""
        return self._workload_store.admitted.second_pass.next_at()

    def wake_heads(self, *, now: float) -> bool:
        """Make active what may fit now or is due. Return whether a cycle would decide on anything.

        True also where only promises are due, which a cycle examines even without heads.
        """
        self._under_way.begin_change(now)
        # Holds end here and not in the cycle. Otherwise none would run when the end of a hold is the only
        # thing due.
        self._end_holds(now)
        self._workload_store.settle()
        if self._cache.schedule_plan.is_due():
            return True
        if self._readiness.is_closed:
            return False
        return self._workload_store.trees.has_heads() or self.promotions.is_due(now=now)

    def comparable_queues(self) -> int:
        """Return how many ClusterQueues the next cycle may compare. O(ClusterQueues).

        Those with waiting Workloads, as events decide which are tried again. Only one where all Workloads of
        the others have been tried, and its own have not: it has none to be compared with.
        """
        if self._workload_store.trees.queues_with_heads() == 1:
            return 1
        return sum(1 for queue in self._cache.queues.values() if queue.pending)

    def explain(self, limit: int) -> tuple[Wait, ...]:
        """Return the reasons for waiting of at most `limit` Workloads that were not tried themselves.

        A cycle tries one Workload of a class of equal requests, since what does not fit for one does not fit
        for the others, and behind a StrictFIFO head none. To be called when no cycle would decide anything.
        """
        self._workload_store.settle()
        return explain_pending.explain(
            self._cache, self._workload_store.index, self._workload_store.pending, limit=limit
        )

    def next_wake_at(self) -> float | None:
        """Return when time alone next changes something (Unix seconds), None for never.

        A back-off, a hold or a minimum runtime ends, a promise is due, a turn begins, a quota window or a
        reservation begins or ends, or running Workloads are looked at for better flavors.
        """
        boundary_at = self._cache.next_boundary_at
        ends = (
            self._workload_store.trees.next_wake_at(),
            self._workload_store.pending.next_turn_at(),
            self._cache.schedule_plan.wake_at,
            self._cache.holds.next_end_at(),
            self.promotions.next_at(),
            boundary_at if boundary_at < inf else None,
        )
        return min((end for end in ends if end is not None), default=None)

    # --- state of the engine itself -----------------------------------------------------------------------

    def drain_touched(self) -> Touched:
        """Return the objects whose status may have changed since the last call.

        Names only: the caller asks for the views that it needs. Cohorts above a touched queue are included,
        because their status sums up those below.
        """
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
            checks=frozenset(touched.checks),
        )
        # Returned once: the caller is the one that writes the statuses.
        touched.clear()
        return result

    def _policies_of(self, touched: Sequence[QueueState]) -> set[str]:
        """Return the policies whose status may change because it lists members of reservations."""
        if not self._cache.reservations.kept:
            return set()
        names, members = {queue.name for queue in touched}, self._cache.schedule_plan.upcoming.members
        # Without members, starts and ends in the queue do not change that status.
        return {
            kept.id.policy
            for kept in self._cache.reservations.kept
            if kept.queue in names and members.get(kept.id)
        }

    def limits_of(self, namespace: str) -> tuple[LimitRange, ...]:
        """Return the LimitRanges of a namespace, by name."""
        return self._cache.specs.limits.get(namespace, ())

    def statistics(self) -> EngineStatistics:
        """Return the sizes of the state and the counts of decisions.

        Counts since the engine was created; sizes as of now. O(ClusterQueues + held Workloads).
        """
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
            admits=self.tally.admits,
            evicts=self.tally.evicts,
        )

    def validate(self) -> None:
        """Raise AssertionError naming the first broken invariant.

        O(everything known), so tests call it after each event and no controller does.
        """
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

    def _pop_heads(self) -> list[tuple[QueueState, Pending]]:
        """Return the heads of the next cycle, at most one of each ClusterQueue; see `ReadinessBlock`."""
        if self._readiness.is_closed:
            return []
        waited = self._readiness.pop_waiting()
        return [waited] if waited is not None else self._workload_store.trees.pop_heads(_MOST_HEADS)

    def _backfill(self, snapshot: Snapshot, now: float) -> Backfill | None:
        """Return the backfill of a cycle, None where neither a policy nor the calendar needs one."""
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
                queue.pending.precedence.end_hold(room.hold.key)
                self._workload_store.trees.wake(queue.name)
            # Trees share nodes, so Workloads of other trees may have waited for these.
            self._workload_store.admitted.note_left(room.places)
