"""Backfill: a head that cannot start is promised a start; later Workloads start only if no promise suffers.

    check_start   a head fits now: may it start, given the promises?                       `start_check`
    plan          a head cannot start or is held back: when does it fit at the earliest?   `planner`
    settle        something has changed: do all promises still hold?                       `revise_promises`
    expire        a promise is near: which Workloads that overtook it are evicted now?     `leases`

All modes share this. They differ in how many Workloads of a ClusterQueue are promised a start at a time
(EASY: the first; Conservative: the first `reservationDepth`) and in which may start in spite of a promise
(Opportunistic: also those of lower priority, which then run on a lease).

Theory. EASY backfill (Lifka 1995) reserves a start for the first job only; conservative backfill (Mu'alem and
Feitelson 2001) reserves one for every job. Both let a later job run now if no reservation is delayed by it.
Slurm's backfill plugin computes such reservations from the time limits of running jobs. Here the capacity is
a quota tree with nodes below it instead of a number of processors, so a promise names concrete quota and
domains.
"""

from __future__ import annotations

from admission.backfill.leases import expired
from admission.backfill.near_promises import promise_to_await
from admission.backfill.planner import Planner
from admission.backfill.revise_promises import PromiseReviser
from admission.backfill.schedule_plan import SchedulePlan
from admission.backfill.start_check import StartCheck, check_start
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.flavors.feasibility import never_evicts
from admission.nomination.nominate import CyclePolicy, Entry
from admission.preemption.lost_work import EvictionLosses
from admission.snapshot.snapshot import Snapshot
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.steps import Steps


class Backfill:
    """The backfill of one cycle on one snapshot, which is left as it was found."""

    def __init__(
        self, *, snapshot: Snapshot, schedule_plan: SchedulePlan, policy: CyclePolicy, now: float
    ) -> None:
        self._visible = VisiblePromises(
            snapshot=snapshot, schedule_plan=schedule_plan, policy=policy, now=now
        )
        self._planner = Planner(visible=self._visible)

    def check_start(self, entry: Entry) -> StartCheck:
        """Return whether the entry, which fits, may start (or have its targets evicted) now.

        The cases, and what each answers, are in `admission.backfill.start_check`. The snapshot is left as it
        was.
        """
        return check_start(self._visible, entry)

    def promises_nothing(self, entry: Entry) -> bool:
        """Return whether the entry, which cannot start, has no promise and will not get one.

        Always False where its queue has no backfill, or may evict others for it.

        Then the search for a start may be skipped: its result would be kept nowhere.
        """
        queue, schedule_plan = entry.queue, self._visible.schedule_plan
        if rules_of(queue) is None or not never_evicts(queue) or entry.pending.key in schedule_plan.promises:
            return False
        return not schedule_plan.promises.may_promise(entry.pending, queue)

    def plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to a head that cannot start now. Return whether it has a promise.

        False where it fits at no time, where the queue's promises are all taken by Workloads before it, or
        where its queue has no backfill.
        """
        return (yield from self._planner.plan(entry))

    def plan_after_evictions(self, entry: Entry) -> bool:
        """Promise a start to a head for when its targets are gone. Return whether it has a promise."""
        return self._planner.plan_after_evictions(entry)

    def promise_to_await(self, entry: Entry, losses: EvictionLosses) -> PlannedStart | None:
        """Return the entry's promise if awaiting it is better than evicting its targets now, else None."""
        return promise_to_await(self._visible.schedule_plan, entry, losses, now=self._visible.now)

    def is_reserved(self, entry: Entry) -> bool:
        """Return whether the entry was given a place in a domain that is now reserved for others.

        Such a place is refused although it is free: the reservation has begun.
        """
        visible = self._visible
        kept = visible.schedule_plan.upcoming.domains_of_others(entry.pending.workload, begun_by=visible.now)
        return bool(kept) and not visible.usage_of(entry).spots.keys().isdisjoint(kept)

    def note_admitted(self, verdict: StartCheck) -> None:
        """Record that the entry starts."""
        self._planner.note_admitted(verdict)

    def finish(self) -> None:
        """Record that the cycle has ended."""
        self._planner.finish()

    def settling(self) -> Steps[None]:
        """Look at every promise again, one per step. May be called only between cycles.

        The last step has been taken when the generator ends. A change of what is known in between makes the
        rest worthless, and the caller closes the generator then.
        """
        return PromiseReviser(visible=self._visible, planner=self._planner).settling()

    def expired(self) -> tuple[tuple[BackfillLease, PlannedStart], ...]:
        """Return the leases to end now, each once, with the promise that each is ended for."""
        return expired(self._visible)
