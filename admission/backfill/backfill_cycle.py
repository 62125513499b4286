"""Backfill: who cannot start is promised a start, and who comes later starts only where no promise suffers.

    judge    a head fits now: may it start in view of the promises?                       `judge`
    plan     a head cannot start, or is held back: from when on does it fit?              `planner`
    settle   something moved: does every promise still stand?                             `settling`
    expire   a promise is near: whoever overtook it and is in its way gives way now       `leases`

All modes share this. They differ in how many of a ClusterQueue are promised a start at a time (EASY: the
first; Conservative: the first `reservationDepth`) and in who may start in spite of a promise (Opportunistic:
lower priority too, on the lease alone).
"""

from __future__ import annotations

from admission.backfill.leases import expired
from admission.backfill.planner import Planner
from admission.backfill.revise_promises import PromiseReviser
from admission.backfill.schedule_plan import SchedulePlan
from admission.backfill.start_check import StartCheck, judge
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.flavors.feasibility import never_evicts
from admission.nomination.nominate import CyclePolicy, Entry
from admission.snapshot.snapshot import Snapshot
from queues.profile.planned_start import BackfillLease, PlannedStart
from queues.steps import Steps


class Backfill:
    """Judges, plans and settles on one snapshot, which it leaves as it found it."""

    def __init__(
        self, *, snapshot: Snapshot, schedule_plan: SchedulePlan, policy: CyclePolicy, now: float
    ) -> None:
        self._outlook = VisiblePromises(
            snapshot=snapshot, schedule_plan=schedule_plan, policy=policy, now=now
        )
        self._planner = Planner(visible=self._outlook)

    def judge(self, entry: Entry) -> StartCheck:
        """Return whether the entry, which fits, may start (or have its targets evicted) now."""
        return judge(self._outlook, entry)

    def promises_nothing(self, entry: Entry) -> bool:
        """Return whether the entry, which cannot start, has no promise and will not get one.

        Never where its queue is without backfill, or may evict others for it.
        """
        queue, schedule_plan = entry.queue, self._outlook.schedule_plan
        if rules_of(queue) is None or not never_evicts(queue) or entry.pending.key in schedule_plan.promises:
            return False
        return not schedule_plan.may_be_promised(entry.pending, queue)

    def plan(self, entry: Entry) -> Steps[bool]:
        """Promise a start to a head that cannot start now. Returns whether it has a promise."""
        return (yield from self._planner.plan(entry))

    def plan_after_evictions(self, entry: Entry) -> bool:
        """Promise a start to a head for when its targets are gone. Returns whether it has a promise."""
        return self._planner.plan_after_evictions(entry)

    def is_reserved(self, entry: Entry) -> bool:
        """Return whether a place of the entry lies in a domain that is reserved for others now."""
        visible = self._outlook
        kept = visible.schedule_plan.ahead.domains_of_others(entry.pending.workload, begun_by=visible.now)
        return bool(kept) and not visible.footing(entry).spots.keys().isdisjoint(kept)

    def note_admitted(self, verdict: StartCheck) -> None:
        """Take note that the entry starts."""
        self._planner.note_admitted(verdict)

    def finish(self) -> None:
        """Take note that the cycle has ended."""
        self._planner.finish()

    def settling(self) -> Steps[None]:
        """Look at every promise again, one a step. To be called between cycles."""
        return PromiseReviser(visible=self._outlook, planner=self._planner).settling()

    def expired(self) -> tuple[tuple[BackfillLease, PlannedStart], ...]:
        """Return whose time has come to give way, and to which promise; each once."""
        return expired(self._outlook)
