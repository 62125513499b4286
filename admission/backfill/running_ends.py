"""Running ends: when does a Workload that holds quota give it back?

    expected    what promises rely on, since they can be moved: its estimate, the end of its lease and its
                eviction time, or the end of its eviction once that has begun
    latest      what appointments of the calendar rely on, since they cannot be moved: as if it had to be
                evicted at its expected end; never, for work that has outrun its estimate

How long a Workload is expected to run is `admission.backfill.running_estimates`.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from admission.backfill.running_estimates import RunningEstimates, started_at_of
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.held_workload import HeldWorkload
from api.policy import OnOverrun
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import eviction_seconds
from queues.profile.capacity_profile import Claim, Edge
from queues.profile.leases import Leases
from queues.profile.planned_start import BackfillLease

# The least step, in seconds, in which the assumed end of an overrun lease is put off.
_PATIENCE_SECONDS = 60.0


class RunningEnds:
    """The ends of running work, by its estimates, its leases and the evictions under way.

    Lengths come from `RunningEstimates`, leases from the schedule plan. All instants are Unix seconds.
    """

    def __init__(self, run_estimates: RunningEstimates, leases: Leases) -> None:
        self._run_estimates = run_estimates
        self._leases = leases
        # Workloads that hold quota and are being evicted.
        self._stopping: set[WorkloadKey] = set()
        # How many seconds the eviction of each Workload takes, known while there are advance reservations.
        self._eviction_seconds: dict[WorkloadKey, float] = {}

    # --- what is recorded --------------------------------------------------------------------------------

    def note_held(self, held: HeldWorkload, *, has_reservations: bool) -> None:
        """Record a Workload that holds quota. Its eviction time matters while there are reservations.

        To be called again when its eviction begins or ends, because the state of an eviction changes its end.
        """
        if has_reservations:
            policy = self._run_estimates.queues[held.admission.cluster_queue].policy
            self._eviction_seconds[held.key] = leaving_seconds(held.workload, policy)
        (self._stopping.add if held.is_evicted else self._stopping.discard)(held.key)

    def note_eviction(self, held: HeldWorkload, *, now: float) -> None:
        """Record that the Workload is being stopped. It counts as needing at least as long as it has run.

        Only work on a lease, or that has outrun its estimate, is noted: its estimate was too short, and it
        would otherwise be started again into the same gap.
        """
        if held.key in self._leases or self.has_outrun(held.key):
            self._run_estimates.stopped_after[held.key, held.workload.uid] = now - started_at_of(held)

    def note_released(self, key: WorkloadKey) -> None:
        """Record that the Workload no longer holds quota."""
        self._leases.pop(key, None)
        self._run_estimates.note_ended(key)
        self._stopping.discard(key)
        self._eviction_seconds.pop(key, None)

    def clear(self) -> None:
        """Forget leases, raised estimates and evictions under way."""
        self._leases.clear()
        self._run_estimates.forget_raised()
        self._stopping.clear()

    def forget_eviction_times(self) -> None:
        """Forget the eviction times: reservations and policies have changed."""
        self._eviction_seconds.clear()

    def raise_end(self, claim: Claim, held: HeldWorkload, *, now: float) -> float:
        """Raise the estimate of work that should have ended by now, and return its new expected end.

        The new end (Unix seconds) is not in the past. For a Workload that is being evicted its grace is
        counted once more.
        """
        if held.is_evicted:
            # It is stopping, and takes longer than its grace.
            return now + eviction_seconds(held.workload)
        started_at = started_at_of(held)
        return started_at + self._run_estimates.raise_beyond(
            claim.holder, claim.queue, believed=claim.ends_at - started_at, elapsed=now - started_at
        )

    # --- what follows ------------------------------------------------------------------------------------

    def expected_end(self, held: HeldWorkload, *, now: float) -> float:
        """Return when the Workload's quota is expected to come free (Unix seconds).

        May be in the past for work that has outrun its estimate; `raise_end` then gives a later one.
        """
        # It has been asked to save a checkpoint; its deadline is its end, whatever its estimate was.
        if held.leaves_by is not None:
            return max(now, held.leaves_by) + eviction_seconds(held.workload)
        if held.is_evicted:
            evicted = None if held.is_evicting else held.workload.eviction
            # Counted from the transition time in its object, so that a later leader expects the same end.
            since = now if evicted is None else evicted.at
            return since + eviction_seconds(held.workload)
        started_at = started_at_of(held)
        lease = self._leases.get(held.key)
        seconds = self._run_estimates.of_running(
            held, started_at=started_at, now=now, is_leased=lease is not None
        )
        if lease is not None and self.is_enforced(lease):
            # Its estimate is believed until it is up; then it is evicted, and no promise can begin earlier.
            seconds += lease.eviction_seconds
        return started_at + seconds

    def claimed_seconds(self, workload: Workload, queue: str, lease: BackfillLease | None) -> float:
        """Return for how many seconds a Workload that starts now will hold its quota, on the lease if any."""
        seconds = self._run_estimates.length(workload, queue)
        # At its end it may have to be evicted and may use its whole grace, so no promise begins earlier.
        return seconds + lease.eviction_seconds if lease is not None and self.is_enforced(lease) else seconds

    def latest_end(self, claim: Claim, *, now: float) -> float:
        """Return when the holder of a running claim is gone at the latest; infinity if that is unknown.

        An upper bound for work that can be evicted; in Unix seconds.
        """
        # Work on a lease gets no higher estimate: its end has passed and it is still there.
        if self.has_outrun(claim.holder) or claim.ends_at <= now:
            return inf
        return claim.ends_at + self._stopping_seconds(claim.holder)

    def latest_edges(self, edges: Iterable[Edge]) -> list[Edge]:
        """Return the edges, in order, with the ends of running work put at the latest possible instant.

        Those of work that has outrun its estimate are left out: it counts as staying.
        """
        late = []
        for at, sign, key, claim in edges:
            if claim.is_running and not claim.is_from_calendar:
                if self.has_outrun(key):
                    continue
                at += self._stopping_seconds(key)
            late.append((at, sign, key, claim))
        return sorted(late, key=lambda edge: edge[:3])

    def has_outrun(self, key: WorkloadKey) -> bool:
        """Return whether the Workload has run longer than its estimate, which was raised since.

        A promise relies on the raised estimate, since it can be moved. An appointment cannot, so there the
        Workload counts as staying.
        """
        return self._run_estimates.has_outrun(key) and key not in self._stopping

    def is_enforced(self, lease: BackfillLease) -> bool:
        """Return whether the holder is evicted when the lease ends, by its queue's policy (`onOverrun`)."""
        rules = self._run_estimates.queues[lease.cluster_queue].policy.backfill_rules
        return lease.is_evictable and (rules is None or rules.on_overrun is OnOverrun.EVICT)

    def can_leave(self, lease: BackfillLease) -> bool:
        """Return whether the holder can be evicted: its policy allows it, and it is not stopping yet."""
        return self.is_enforced(lease) and lease.key not in self._stopping

    def eviction_times(self) -> set[float]:
        """Return the distinct times, in seconds, that evictions for reservations may take."""
        return set(self._eviction_seconds.values())

    def _stopping_seconds(self, key: WorkloadKey) -> float:
        """Return how long an eviction of the holder takes; 0 where it is under way."""
        return 0.0 if key in self._stopping else self._eviction_seconds.get(key, 0.0)


def assumed_end(claim: Claim, lease: BackfillLease, *, now: float) -> float:
    """Return when work that has outrun its lease is assumed to end (Unix seconds), as it is not evicted.

    Counted in equal steps from its expected end and not from `now`: promises that wait for it would move on
    with each look at them, and another leader would assume another end.
    """
    step = max(lease.eviction_seconds, _PATIENCE_SECONDS)
    return claim.ends_at + step * ((now - claim.ends_at) // step + 1)
