"""The schedule plan: when running work ends, which starts are promised, and which Workloads run on a lease.

This is the engine's bookkeeping of future capacity. Running work enters with the quota it holds (`hold`) and
leaves when it gives the quota back (`release`). Each part of the plan is an object that answers for itself:

    profile      the claims of running work (now ──▶ expected end) and of promises (start ──▶ end)
    promises     the promised starts; they are made, moved and withdrawn there
    ends         when running work ends, by its estimates (`run_estimates`) and leases
    leases       which running work can be ended early, and how long that takes
    expected     the expected starts that were reported for Workloads without a promise
    revision     what has happened that may move promises
    reports      what is to be reported about promises
    due_queues   which ClusterQueues are to be tried because promises have changed
    upcoming     what the calendar holds

Every Workload has at most one claim in the profile: a running one if it holds quota, a promised one if it has
a promise. `validate` checks that. Taking in one Workload costs O(log claims) comparisons, and a search reads
only the claims that it can meet.

One profile serves all quota trees: trees do not share quota, but flavors of two trees may share
nodes. While no policy asks for backfill and there is no calendar, nothing is kept here, so that such
a cluster pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import structs

from admission.backfill.due_queues import DueQueues
from admission.backfill.pending_revision import PendingRevision
from admission.backfill.planned_starts import Promises
from admission.backfill.promise_reports import PromiseReports
from admission.backfill.reported_starts import ReportedStarts
from admission.backfill.running_ends import RunningEnds, assumed_end
from admission.backfill.running_estimates import RunningEstimates
from admission.calendar.upcoming_changes import UpcomingChanges
from admission.placement.topology_cache import TopologyCache
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from api.workload import WorkloadKey
from queues.estimates.estimator import Estimator
from queues.estimates.start_errors import StartErrors, StartInterval
from queues.profile.capacity_profile import CapacityProfile, Claim
from queues.profile.leases import Leases
from queues.profile.planned_start import BackfillLease, MoveCause

# A promise counts as kept, and is not moved, within this many seconds: clocks, API writes and pods need some.
SLACK_SECONDS = 1.0


class SchedulePlan:
    """Claims, promises and leases. One task owns it; `now` is the instant of its owner's latest call."""

    def __init__(self, topology_cache: TopologyCache, estimator: Estimator) -> None:
        self.now = 0.0
        self.is_on = False
        # Whether all queues share one tree, so that a search can meet every claim.
        self.is_one_tree = True
        self.profile = CapacityProfile()
        # Rises whenever the profile is built again.
        self.generation = 0
        # Changes of these since they were last read go to the store, so that the next leader goes on.
        self.leases = Leases()
        self.run_estimates = RunningEstimates(estimator)
        self.ends = RunningEnds(self.run_estimates, self.leases)
        self.revision = PendingRevision()
        self.reports = PromiseReports()
        self.due_queues = DueQueues()
        self.promises = Promises(
            profile=self.profile, freed=self.revision.freed, reports=self.reports, due_queues=self.due_queues
        )
        self.expected = ReportedStarts()
        self.start_errors = StartErrors()
        self.upcoming = UpcomingChanges()
        # When to look again although nothing happens; None: never.
        self.wake_at: float | None = None
        # When `outrun` last looked (Unix seconds).
        self._outrun_at = 0.0
        self._topology_cache = topology_cache
        self._queues: Mapping[str, QueueState] = {}

    # --- what is known -----------------------------------------------------------------------------------

    def set_queues(self, queues: Mapping[str, QueueState], held: Iterable[HeldWorkload]) -> None:
        """Take in ClusterQueues that were built again: quotas, policies or nodes' flavors have changed.

        Promises of queues that have no backfill rules any more, or are inactive, are withdrawn.
        """
        # Where no policy asks for backfill any more, everything is forgotten at the first such refresh.
        self._queues = self.run_estimates.queues = queues
        self.ends.forget_eviction_times()
        was_on = self.is_on
        self.is_one_tree = len({id(queue.tree) for queue in queues.values()}) <= 1
        self.is_on = self.upcoming.affects_admissions or any(
            queue.policy.backfill_rules is not None for queue in queues.values()
        )
        if not self.is_on:
            if was_on:
                self._forget_everything()
            return
        # A list, since withdrawing changes the promises.
        for key in [key for key in self.promises if not self._is_governed(key)]:
            self.promises.withdraw(key)
        self.rebuild(held)
        if self.promises:
            self.revision.causes.add(MoveCause.QUOTA_CUT)
        # Quotas may have risen, so every promise may begin earlier.
        self.revision.freed.note_all()

    def rebuild(self, held: Iterable[HeldWorkload]) -> None:
        """Build the profile again from the Workloads that hold quota and from the promises."""
        # It starts empty: a profile that was amended would keep claims of Workloads that left
        # while it was off.
        self.profile.clear()
        self.generation += 1
        for one in held:
            self.hold(one)
        for promise in self.promises.values():
            self.profile.put(promise.claim)

    def _is_governed(self, key: WorkloadKey) -> bool:
        queue = self._queues.get(self.promises[key].planned.cluster_queue)
        return queue is not None and queue.policy.backfill_rules is not None and not queue.inactive

    def _forget_everything(self) -> None:
        for key in list(self.promises):
            self.promises.withdraw(key)
        self.profile.clear()
        self.expected.clear()
        self.start_errors.clear()
        self.ends.clear()
        self.revision.causes.clear()

    def hold(self, held: HeldWorkload) -> None:
        """Take in a Workload that holds quota, or a change to it. A promise made to it is thereby kept."""
        # A queue that does not exist has no policy to estimate the length by.
        if not self.is_on or held.admission.cluster_queue not in self._queues:
            return
        # It has started, so its expected start is of no more use.
        self.expected.pop(held.key, None)
        self.start_errors.note_start(held.key, held.reserved_at)
        self.promises.note_started(held.key, at=held.reserved_at)
        self.upcoming.join(held.workload)
        known = self.profile.get(held.key)
        if known is not None and known.is_running and dict(known.usage) != dict(held.usage):
            # Some of its pods are done.
            self.revision.freed.note(known, from_at=self.now, until=known.ends_at)
        self.ends.note_held(held, has_reservations=bool(self.upcoming.reservations.kept))
        self.profile.put(
            Claim(
                holder=held.key,
                queue=held.admission.cluster_queue,
                usage=held.usage,
                spots=self._topology_cache.usage.spots(held.places),
                ends_at=self.ends.expected_end(held, now=self.now),
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
            self.revision.freed.note(before, from_at=self.now, until=before.ends_at)
        elif after.ends_at > before.ends_at:
            self.revision.causes.add(MoveCause.OVERRUN)

    def forget(self, key: WorkloadKey) -> None:
        """Forget a Workload that is gone."""
        self.promises.withdraw(key)
        self.due_queues.forget(key)
        self.expected.pop(key, None)
        self.start_errors.forget(key)
        self.run_estimates.forget(key)

    def release(self, key: WorkloadKey) -> None:
        """Record that the Workload no longer holds quota, perhaps earlier than the profile expected."""
        if not self.is_on:
            return
        claim, lease = self.profile.drop(key), self.leases.get(key)
        self.ends.note_released(key)
        if claim is None:
            return
        until = claim.ends_at
        if lease is not None and until <= self.now:
            # It has outrun its lease, and promises that rank behind it assumed that it lasts longer.
            until = assumed_end(claim, lease, now=self.now)
        # Promises can be improved only if it ended earlier than expected by more than the slack.
        if until > self.now + SLACK_SECONDS:
            self.revision.freed.note(claim, from_at=max(self.now, claim.begins_at), until=until)

    def expected_start(self, key: WorkloadKey) -> float | None:
        """Return the promised start, else the one reported last as expected, in Unix seconds; else None."""
        promise, expected = self.promises.get(key), self.expected.get(key)
        if promise is not None:
            return promise.planned.start_at
        return expected[0] if expected is not None else None

    def start_interval(self, key: WorkloadKey) -> StartInterval | None:
        """Return where the start lies in four of five cases, None if none is expected.

        A promise ends the interval. No end of it is in the past, since the Workload has not started.
        """
        promise, expected = self.promises.get(key), self.expected.get(key)
        if promise is not None:
            expected = promise.planned.start_at, promise.planned.made_at
        if expected is None:
            return None
        at, made_at = expected
        earliest_at, latest_at = self.start_errors.interval(at, made_at=made_at)
        ends_at = latest_at if promise is None else at
        return StartInterval(max(earliest_at, self.now), max(ends_at, self.now))

    def take_expected(
        self, starts: Mapping[WorkloadKey, float], after: Mapping[str, float], *, most: int, now: float
    ) -> tuple[WorkloadKey, ...]:
        """Take in the result of a forecast; see `ReportedStarts.take`."""
        for key, at in starts.items():
            self.start_errors.note_estimate(key, at, made_at=now)
        return self.expected.take(starts, after, most=most, now=now)

    def note_nodes(self) -> None:
        """Record that nodes were added, removed or changed."""
        if self.promises:
            self.revision.causes.add(MoveCause.NODE_LOST)
            self.revision.freed.note_all()

    # --- another leader's plan ----------------------------------------------------------------------------

    def forget_plan(self) -> None:
        """Forget promises and leases without reporting them as withdrawn, and all pending reports."""
        for table in (self.promises, self.leases, self.expected, self.run_estimates.stopped_after):
            table.clear()
        self.reports.clear()
        self.run_estimates.forget_raised()
        self.due_queues.clear()

    def note_adopted(self) -> None:
        """Have every promise checked once, since none was revised between the two leaders.

        A promise that no longer holds is late for OVERRUN, the last of all causes, unless a better one is
        known. None is moved earlier for this: a change of the leader should not be noticed by users.
        """
        self.revision.freed.take()
        # Promises kept and runs measured under the other leader were counted by it.
        self.reports.take_kept()
        self.run_estimates.take_measured()
        self.start_errors.take_outcomes()
        if self.promises:
            self.revision.causes.add(MoveCause.OVERRUN)

    # --- the passing of time -----------------------------------------------------------------------------

    def outrun(self, held: Mapping[WorkloadKey, HeldWorkload]) -> None:
        """Raise the estimates of running work that should have ended by now and has not.

        Work on a lease gets no higher estimate: it can be evicted when its capacity is needed. It is not
        evicted for promises of lower rank, which have to move instead.
        """
        before, self._outrun_at = self._outrun_at, self.now
        for claim in self.profile.outrun(self.now):
            one = held.get(claim.holder)
            lease = self.leases.get(claim.holder)
            if one is None:
                continue
            if lease is not None and self.ends.is_enforced(lease) and not one.is_evicted:
                if self._is_waited_for(lease, claim, before):
                    self.revision.causes.add(MoveCause.OVERRUN)
                continue
            if one.is_evicted and claim.ends_at > self.now - SLACK_SECONDS:
                # A Workload that is stopping may take a moment longer than its grace.
                continue
            ends_at = self.ends.raise_end(claim, one, now=self.now)
            self.profile.put(structs.replace(claim, ends_at=ends_at))
            self.revision.causes.add(MoveCause.OVERRUN)

    def _is_waited_for(self, lease: BackfillLease, claim: Claim, before: float) -> bool:
        """Return whether a promise of lower rank than the lease has counted, since `before`, on its end.

        The end has passed or such a promise has come due since then. Otherwise these promises assume a later
        end already, and would move on with every cycle if each recorded a cause.
        """
        return any(
            lease.rank < planned.rank and (before < claim.ends_at or before < planned.start_at <= self.now)
            for planned in (promise.planned for promise in self.promises.values())
        )

    def note_eviction(self, held: HeldWorkload) -> None:
        """Record that the Workload is being stopped."""
        self.ends.note_eviction(held, now=self.now)
        self.hold(held)

    def is_due(self) -> bool:
        """Return whether time alone calls for a cycle: a promise, a lease or an estimate is due."""
        if not self.is_on:
            return bool(self.reports.changed)
        # Promises were decided or came free since the last look, so the time does not matter.
        if self.reports.changed or self.due_queues.freed:
            return True
        # A promised Workload may begin earlier because of what has changed.
        if self.promises and self.revision.is_due(now=self.now):
            return True
        return self.wake_at is not None and self.wake_at <= self.now

    def take_queues_to_try(self) -> set[str]:
        """Return the ClusterQueues to be tried: one of their promises has changed, come free, or come due."""
        promised = (promise.planned for promise in self.promises.values())
        return self.due_queues.take(
            self.reports.changed, promised, self._queues, now=self.now, is_one_tree=self.is_one_tree
        )

    def next_at(self) -> float | None:
        """Return when to look again: work should have ended, a lease ends or a promise is due; else None."""
        if not self.promises and not self.upcoming.reservations.kept:
            return None
        # Ends matter to promises only: a Workload without one is woken by the end itself.
        ends = [self.profile.next_end_at(after=self.now)] if self.promises else []
        instants = [*ends, *self._due_times(), *self.upcoming.clearing_times(self.ends.eviction_times())]
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
