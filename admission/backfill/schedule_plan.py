"""The schedule plan: when running work ends, which starts are promised, and which Workloads run on a lease.

This is the engine's bookkeeping of future capacity. Running work enters with the quota it holds (`hold`) and
leaves when it gives the quota back (`release`). Promises are kept, moved and withdrawn here, but the other
modules of `admission.backfill` decide about them.

    claims of running work   now ──▶ expected end        raised by `outrun` once the end has passed
    claims of promises       promised start ──▶ end      replaced by a running claim when the Workload starts
    leases                   which running claims can be ended early, and how long that takes

Every Workload has at most one claim in the profile: a running one if it holds quota, a promised one if it has
a promise. `validate` checks that. What changes that may move promises is recorded in two places: `causes` for
a move to a later start, and `slack` (capacity that came free) for one to an earlier start. While both are
empty no promise needs another look, which is what keeps the plan cheap: taking in one Workload costs
O(log claims) comparisons, and a search reads only the claims that it can meet.

One profile serves all quota trees: trees do not share quota, but flavors of two trees may share
nodes. While no policy asks for backfill and there is no calendar, nothing is kept here, so that such
a cluster pays nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import inf

from msgspec import structs

from admission.backfill.due_queues import DueQueues
from admission.backfill.planned_starts import Promise, PromiseOutcome, Promises
from admission.backfill.running_estimates import RunningEstimates, started_at_of
from admission.calendar.upcoming_changes import UpcomingChanges
from admission.flavors.feasibility import never_evicts
from admission.placement.topology_cache import TopologyCache
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.snapshot import HeldWorkload, QueueState
from api.policy import BackfillMode, OnOverrun
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import Estimator, eviction_seconds
from queues.pending.pending_queue import Pending
from queues.profile.capacity_profile import CapacityProfile, Claim, Edge, Spots
from queues.profile.freed_capacity import FreedCapacity
from queues.profile.leases import Leases
from queues.profile.planned_start import BackfillLease, MoveCause, PlannedStart
from queues.quota.resources import Quantities
from queues.tracked import Tracked

# A promise counts as kept, and is not moved, within this many seconds: clocks, API writes and pods need some.
SLACK_SECONDS = 1.0
# How many kept promises are remembered until metrics read them. Offline they are never read.
_MOST_REMEMBERED = 1000


class SchedulePlan:
    """Claims, promises and leases. One task owns it; `now` is the instant of its owner's latest call."""

    def __init__(self, topology_cache: TopologyCache, estimator: Estimator) -> None:
        self.now = 0.0
        self.lengths = RunningEstimates(estimator)
        self.is_on = False
        self.profile = CapacityProfile()
        # Changes of these two since they were last read go to the store, so that the next leader goes on.
        self.promises = Promises()
        self.leases = Leases()
        # When a Workload without a promise is expected to start, and when that was computed (Unix seconds).
        self.expected: Tracked[WorkloadKey, tuple[float, float]] = Tracked()
        # By ClusterQueue: no Workload behind those in `expected` is expected to start before this.
        self.expected_after: dict[str, float] = {}
        # What has happened since promises were last revised that may move them, later or earlier.
        self.causes: set[MoveCause] = set()
        # What came free since then that counted as taken when promises were made.
        self.slack = FreedCapacity()
        # Promises made, moved or withdrawn (None) since they were last reported, and those reported.
        self.changed: dict[WorkloadKey, PlannedStart | None] = {}
        self.told: dict[WorkloadKey, PlannedStart] = {}
        # The promises kept since they were last read, for metrics.
        self.kept: deque[PromiseOutcome] = deque(maxlen=_MOST_REMEMBERED)
        # Which ClusterQueues are to be tried because promises have changed.
        self.dues = DueQueues()
        # What the calendar holds: changes of quota and advance reservations.
        self.ahead = UpcomingChanges()
        # When to look again although nothing happens; None: never.
        self.wake_at: float | None = None
        self._topology_cache = topology_cache
        self._queues: Mapping[str, QueueState] = {}
        # Whether all queues share one tree, so that a search can meet every claim.
        self.is_one_tree = True
        # Workloads that hold quota and are being evicted.
        self._stopping: set[WorkloadKey] = set()

    # --- what is known -----------------------------------------------------------------------------------

    def set_queues(self, queues: Mapping[str, QueueState], held: Iterable[HeldWorkload]) -> None:
        """Take in ClusterQueues that were built again: quotas, policies or nodes' flavors have changed.

        Promises of queues that have no backfill rules any more, or are inactive, are withdrawn.
        """
        # Where no policy asks for backfill any more, everything is forgotten at the first such refresh.
        self._queues = self.lengths.queues = queues
        was_on = self.is_on
        self.is_one_tree = len({id(queue.tree) for queue in queues.values()}) <= 1
        self.is_on = self.ahead.is_heeded or any(
            queue.policy.backfill_rules is not None for queue in queues.values()
        )
        if not self.is_on:
            if was_on:
                self._forget_everything()
            return
        # A list, since withdrawing changes the promises.
        for key in [key for key in self.promises if not self._is_governed(key)]:
            self.withdraw(key)
        self.rebuild(held)
        if self.promises:
            self.causes.add(MoveCause.QUOTA_CUT)
        # Quotas may have risen, so every promise may begin earlier.
        self.slack.note_all()

    def rebuild(self, held: Iterable[HeldWorkload]) -> None:
        """Build the profile again from the Workloads that hold quota and from the promises."""
        # It starts empty: a profile that was amended would keep claims of Workloads that left
        # while it was off.
        self.profile = CapacityProfile()
        for one in held:
            self.hold(one)
        for promise in list(self.promises.values()):
            self.keep(promise.planned, promise.claim.usage, promise.claim.spots)

    def _is_governed(self, key: WorkloadKey) -> bool:
        queue = self._queues.get(self.promises[key].planned.cluster_queue)
        return queue is not None and queue.policy.backfill_rules is not None and not queue.inactive

    def _forget_everything(self) -> None:
        for key in list(self.promises):
            self.withdraw(key)
        self.profile = CapacityProfile()
        self.expected.clear()
        self.expected_after.clear()
        self.leases.clear()
        self.lengths.forget_raised()
        self.causes.clear()

    def hold(self, held: HeldWorkload) -> None:
        """Take in a Workload that holds quota, or a change to it. A promise made to it is thereby kept."""
        # A queue that does not exist has no policy to estimate the length by.
        if not self.is_on or held.admission.cluster_queue not in self._queues:
            return
        # It has started, so its expected start is of no more use.
        self.expected.pop(held.key, None)
        promise = self.promises.pop(held.key, None)
        if promise is not None:
            self.kept.append(PromiseOutcome(planned=promise.planned, at=held.reserved_at))
            self.changed.pop(held.key, None)
            self.told.pop(held.key, None)
            self.dues.note_left(promise.planned.cluster_queue, is_on_nodes=bool(promise.claim.spots))
        self.ahead.join(held.workload)
        if self.ahead.reservations.kept:
            policy = self._queues[held.admission.cluster_queue].policy
            self.ahead.graces[held.key] = leaving_seconds(held.workload, policy)
        known = self.profile.get(held.key)
        if known is not None and known.is_running and dict(known.usage) != dict(held.usage):
            # Some of its pods are done.
            self.slack.note(known, from_at=self.now, until=known.ends_at)
        (self._stopping.add if held.is_evicted else self._stopping.discard)(held.key)
        self.profile.put(
            Claim(
                holder=held.key,
                queue=held.admission.cluster_queue,
                usage=held.usage,
                spots=self._topology_cache.spots(held.places),
                ends_at=self.expected_end(held),
            )
        )

    def hold_again(self, held: HeldWorkload) -> None:
        """Take in that running work now expects another end, which promises may depend on."""
        before = self.profile.get(held.key)
        self.hold(held)
        after = self.profile.get(held.key)
        if before is None or after is None:
            return
        if after.ends_at < before.ends_at:
            self.slack.note(before, from_at=self.now, until=before.ends_at)
        elif after.ends_at > before.ends_at:
            self.causes.add(MoveCause.OVERRUN)

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that is gone."""
        self.withdraw(key)
        self.dues.forget(key)
        self.expected.pop(key, None)
        self.lengths.forget(key)

    def release(self, key: WorkloadKey) -> None:
        """Record that the Workload no longer holds quota, perhaps earlier than the profile expected."""
        claim = self.profile.drop(key)
        self.leases.pop(key, None)
        self.lengths.note_ended(key)
        self._stopping.discard(key)
        # Promises can be improved only if it ended earlier than expected by more than the slack.
        if claim is not None and claim.ends_at > self.now + SLACK_SECONDS:
            self.slack.note(claim, from_at=max(self.now, claim.begins_at), until=claim.ends_at)

    def expected_end(self, held: HeldWorkload) -> float:
        """Return when the Workload's quota is expected to come free, never before now."""
        # It has been asked to save a checkpoint; its deadline is its end, whatever its estimate was.
        if held.leaves_by is not None:
            return max(self.now, held.leaves_by) + eviction_seconds(held.workload)
        if held.is_evicted:
            evicted = None if held.is_evicting else held.workload.eviction
            # Counted from the transition time in its object, so that a later leader expects the same end.
            since = self.now if evicted is None else evicted.at
            return since + eviction_seconds(held.workload)
        started_at = started_at_of(held)
        lease = self.leases.get(held.key)
        seconds = self.lengths.of_running(
            held, started_at=started_at, now=self.now, is_leased=lease is not None
        )
        if lease is not None and self.gives_way(lease):
            # Its estimate is believed until it is up; then it is evicted, and no promise can begin earlier.
            seconds += lease.eviction_seconds
        return started_at + seconds

    @property
    def may_move(self) -> bool:
        """Whether anything has happened that may move promises, later or earlier."""
        return bool(self.causes) or self.slack.until >= self.now

    def waits_for_its_time(self, workload: Workload) -> bool:
        """Return whether the Workload is promised a later start, before which it need not be tried.

        If it could start earlier, its promise would have been moved. That does not hold where other Workloads
        may be evicted for it, where it may run inside another's hold, or with fewer pods than promised.
        """
        key = workload.key
        promise = self.promises.get(key)
        if promise is None or self.dues.may_try(promise.planned, now=self.now):
            return False
        queue = self._queues[promise.planned.cluster_queue]
        rules = queue.policy.backfill_rules
        is_opportunistic = rules is None or rules.mode is BackfillMode.OPPORTUNISTIC
        is_whole = all(pod_set.min_count is None for pod_set in workload.pod_sets)
        return is_whole and never_evicts(queue) and not is_opportunistic

    def may_be_promised(self, pending: Pending, queue: QueueState) -> bool:
        """Return whether the Workload would be promised a start if it were tried, as far as depth goes."""
        rules = queue.policy.backfill_rules
        return rules is not None and self.promises.before(pending, queue.name) < rules.reservation_depth

    def note_nodes(self) -> None:
        """Record that nodes were added, removed or changed."""
        if self.promises:
            self.causes.add(MoveCause.NODE_LOST)
            self.slack.note_all()

    # --- promises ----------------------------------------------------------------------------------------

    def keep(self, planned: PlannedStart, usage: Quantities, spots: Spots) -> None:
        """Make a promise, or move one. Raise ValueError where it ends before it begins."""
        claim = Claim(
            holder=planned.key,
            queue=planned.cluster_queue,
            usage=usage,
            spots=spots,
            begins_at=planned.start_at,
            ends_at=planned.ends_at,
        )
        # The profile goes first: if it refuses the span, no promise has been recorded.
        self.profile.put(claim)
        known = self.promises.get(planned.key)
        self.promises[planned.key] = Promise(planned=planned, claim=claim)
        # A promise kept as it was is not reported again.
        if known is None or known.planned != planned:
            self.changed[planned.key] = planned
            self.dues.note_moved(is_on_nodes=known is not None and bool(known.claim.spots))

    def withdraw(self, key: WorkloadKey) -> None:
        """Withdraw a promise: its Workload no longer waits, or cannot be promised a start any more."""
        promise = self.promises.pop(key, None)
        if promise is None:
            return
        claim = self.profile.get(key)
        # It may have started meanwhile. Then the claim is its running one and stays.
        if claim is not None and not claim.is_running:
            self.profile.drop(key)
        self.changed[key] = None
        # Its queue may promise a start to the next in line.
        self.dues.note_left(promise.planned.cluster_queue, is_on_nodes=bool(promise.claim.spots))
        self.slack.note(promise.claim, from_at=promise.planned.start_at, until=promise.planned.ends_at)

    # --- another leader's plan ----------------------------------------------------------------------------

    def forget_plan(self) -> None:
        """Forget promises and leases without reporting them as withdrawn, and all pending reports."""
        for table in (self.promises, self.leases, self.expected, self.lengths.stopped_after):
            table.clear()
        for told in (self.changed, self.told):
            told.clear()
        self.lengths.forget_raised()
        self.dues.clear()

    def adopt(self, planned: PlannedStart, usage: Quantities, spots: Spots) -> None:
        """Take over a promise that another leader has made and reported.

        If this process has made one as well, its start counts, and the older of the two tells when and for
        when a start was first promised.
        """
        known = self.promises.get(planned.key)
        if known is not None:
            if planned.made_at < known.planned.made_at:
                planned = replace(
                    known.planned, made_at=planned.made_at, first_start_at=planned.first_start_at
                )
                self.promises[planned.key] = replace(known, planned=planned)
            return
        self.keep(planned, usage, spots)
        # The leader that made it has reported it.
        self.changed.pop(planned.key)
        self.told[planned.key] = planned

    def note_adopted(self) -> None:
        """Have every promise checked once, since none was revised between the two leaders.

        A promise that no longer holds is late for OVERRUN, the last of all causes, unless a better one is
        known. None is moved earlier for this: a change of the leader should not be noticed by users.
        """
        self.slack.take()
        # Promises kept and runs measured under the other leader were counted by it.
        self.kept.clear()
        self.lengths.measured.clear()
        if self.promises:
            self.causes.add(MoveCause.OVERRUN)

    # --- the passing of time -----------------------------------------------------------------------------

    def outrun(self, held: Mapping[WorkloadKey, HeldWorkload]) -> None:
        """Raise the estimates of running work that should have ended by now and has not.

        Work on a lease gets no higher estimate: it can be evicted when its capacity is needed.
        """
        for claim in self.profile.outrun(self.now):
            one = held.get(claim.holder)
            lease = self.leases.get(claim.holder)
            if one is None or (lease is not None and self.gives_way(lease) and not one.is_evicted):
                continue
            if one.is_evicted and claim.ends_at > self.now - SLACK_SECONDS:
                # A Workload that is stopping may take a moment longer than its grace.
                continue
            self.profile.put(structs.replace(claim, ends_at=self._later_end(claim, one)))
            self.causes.add(MoveCause.OVERRUN)

    def has_outrun(self, key: WorkloadKey) -> bool:
        """Return whether the Workload has run longer than its estimate, which was raised since.

        A promise relies on the raised estimate, since it can be moved. An appointment cannot, so there the
        Workload counts as staying.
        """
        return self.lengths.has_outrun(key) and key not in self._stopping

    def gone_by(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return the edges, in order, with the ends of running work put at the latest possible instant.

        This is for appointments, which cannot be moved. Work that has outrun its estimate counts as staying;
        all other work ends as late as if it had to be evicted at its expected end.
        """
        late = []
        for at, sign, key, claim in edges:
            if claim.is_running and not claim.is_appointment:
                if self.has_outrun(key):
                    continue
                at += self._stopping_seconds(key)
            late.append((at, sign, key, claim))
        return sorted(late, key=lambda edge: edge[:3])

    def gone_at(self, claim: Claim) -> float:
        """Return when the holder of a running claim is gone at the latest; infinity if that is unknown."""
        # Work on a lease gets no higher estimate: its end has passed and it is still there.
        if self.has_outrun(claim.holder) or claim.ends_at <= self.now:
            return inf
        return claim.ends_at + self._stopping_seconds(claim.holder)

    def _stopping_seconds(self, key: WorkloadKey) -> float:
        return 0.0 if key in self._stopping else self.ahead.graces.get(key, 0.0)

    def _later_end(self, claim: Claim, held: HeldWorkload) -> float:
        if held.is_evicted:
            # It is stopping, and takes longer than its grace.
            return self.now + eviction_seconds(held.workload)
        started_at = started_at_of(held)
        believed, elapsed = claim.ends_at - started_at, self.now - started_at
        lengths = self.lengths
        return started_at + lengths.raise_beyond(
            claim.holder, claim.queue, believed=believed, elapsed=elapsed
        )

    # --- leases ------------------------------------------------------------------------------------------

    def lend(self, lease: BackfillLease) -> None:
        """Let a Workload run on this lease, which replaces the one that it had."""
        self.leases[lease.key] = lease

    def longest_eviction(self) -> float | None:
        """Return the longest eviction time of all leases in seconds, None if there are none."""
        return max(self.leases.eviction_times(), default=None)

    def gives_way(self, lease: BackfillLease) -> bool:
        """Return whether the holder is evicted when the lease ends, by its queue's policy (`onOverrun`)."""
        rules = self._queues[lease.cluster_queue].policy.backfill_rules
        return lease.is_evictable and (rules is None or rules.on_overrun is OnOverrun.EVICT)

    def can_leave(self, lease: BackfillLease) -> bool:
        """Return whether the holder can be evicted: its policy allows it, and it is not stopping yet."""
        return self.gives_way(lease) and lease.key not in self._stopping

    def note_eviction(self, held: HeldWorkload) -> None:
        """Record that the Workload is being stopped. It counts as needing at least as long as it has run."""
        if held.key in self.leases or self.has_outrun(held.key):
            self.lengths.stopped_after[held.key, held.workload.uid] = self.now - started_at_of(held)
        self.hold(held)

    def take_woken(self) -> set[str]:
        """Return the ClusterQueues to be tried: one of their promises has changed, come free, or come due."""
        promised = (promise.planned for promise in self.promises.values())
        return self.dues.take(
            self.changed, promised, self._queues, now=self.now, is_one_tree=self.is_one_tree
        )

    def next_at(self) -> float | None:
        """Return when to look again: work should have ended, a lease ends or a promise is due; else None."""
        if not self.promises and not self.ahead.reservations.kept:
            return None
        # Ends matter to promises only: a Workload without one is woken by the end itself.
        ends = [self.profile.next_end_at(after=self.now)] if self.promises else []
        instants = [*ends, *self._due_times(), *self.ahead.clearing_times()]
        return min((at for at in instants if at is not None and at > self.now), default=None)

    def _due_times(self) -> Iterator[float]:
        times = self.leases.eviction_times()
        for promise in self.promises.values():
            yield promise.planned.start_at
            yield promise.planned.start_at + SLACK_SECONDS
            for seconds in times:
                yield promise.planned.start_at - seconds

    def validate(self, held: Mapping[WorkloadKey, HeldWorkload]) -> None:
        """Raise AssertionError where claims, promises and the Workloads that hold quota disagree."""
        self.profile.validate()
        self.leases.validate()
        if not self.is_on:
            return
        for key, one in held.items():
            if one.admission.cluster_queue in self._queues:
                claim = self.profile.get(key)
                assert claim is not None, f"{key} holds quota but claims none"
                assert claim.is_running, f"{key} holds quota but is promised some"
                assert dict(claim.usage) == dict(one.usage), f"{key} claims {claim.usage}, holds {one.usage}"
        for key, promise in self.promises.items():
            assert key not in held, f"{key} holds quota and is promised some"
            assert self.profile.get(key) == promise.claim, f"the promise to {key} is not in the profile"
        assert len(self.profile) <= len(held) + len(self.promises), (
            "a Workload has a claim but neither holds quota nor has a promise"
        )
