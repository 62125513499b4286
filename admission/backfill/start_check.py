"""Judging: may a head that fits start now, in view of what has been promised?

    it leaves the promises of higher rank their quota and places for as long as it runs  ─▶ yes
    it fits elsewhere, clear of what they hold                                           ─▶ yes, there
    it may run in the hold and give way in time (Opportunistic)                          ─▶ yes, on its lease
    else                                                                                 ─▶ it is held back

Whoever starts while someone of higher rank holds a promise has overtaken it, if they share a tree of quota or
may meet on nodes, and runs on a lease for as long as it runs: it gives way to every promise of higher rank
that does not stand with it still there, those made later included. That, not the truth of estimates, is why
backfill moves no promise: an estimate that was a lie costs the one who told it. What runs without a lease (it
overtook nobody) may overrun, and then it does move promises; so do lost nodes, cut quotas, and Workloads of
higher rank that come later.

Source: Lifka 1995 (EASY), Mu'alem and Feitelson 2001 (conservative), Slurm's sched/backfill; article on gang
scheduling, "reservation with backfill" (run in the hold, give way when the larger one is ready).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec
from msgspec import structs

from admission.backfill.planned_starts import Promise
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.nomination.nominate import Entry
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.snapshot import QueueState
from api.keys import OPPORTUNISTIC
from api.policy import BackfillMode
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import is_opportunistic, may_be_evicted
from queues.profile.planned_start import BackfillLease, PlannedStart, Rank
from queues.profile.profile_walk import first_broken, fits_from, stands
from queues.profile.request_horizon import RequestHorizon


class StartCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a head that fits may start: with `entry` (its places may have changed), or `behind` whom not.

    `kept_from` is what the calendar has against it, in words. `lease` is what it runs on where it overtakes
    somebody. `is_outranking`: it takes what is promised to one
    of lower rank. `too_long`: what it would be out of the way for, in seconds, where it waits for that alone,
    and others of equal requests that run as long would, too.
    """

    entry: Entry
    behind: PlannedStart | None = None
    kept_from: str | None = None
    lease: BackfillLease | None = None
    is_outranking: bool = False
    too_long: float | None = None


def judge(visible: VisiblePromises, entry: Entry) -> StartCheck:
    """Return whether the entry, which fits, may start (or have its targets evicted) now."""
    # Appointments come before any promise: they cannot be moved, whatever the rank.
    if visible.schedule_plan.ahead.is_heeded:
        entry, words = _clear_of_calendar(visible, entry)
        if words is not None:
            return StartCheck(entry=entry, kept_from=words)
    if not visible.schedule_plan.promises:
        return StartCheck(entry=entry)
    rank, own = visible.rank_of(entry), visible.schedule_plan.promises.get(entry.pending.key)
    if own is not None:
        # By the rank that it was promised with, if that is higher: an older one of its queue may have been
        # promised to borrow since, and each would wait behind the other for ever.
        rank = min(rank, own.planned.rank)
    # Whoever can be in nobody's way has overtaken nobody.
    above = visible.met(entry.queue, visible.above(rank, entry.pending.key))
    if own is not None and own.planned.start_at <= visible.now <= own.planned.start_at + SLACK_SECONDS:
        # Its time has come, and it overtakes nobody who was promised to begin once it has ended. On a lease
        # it would be in their way for as long as its eviction takes, and each would wait for the other.
        above = [one for one in above if one.planned.start_at < own.planned.ends_at]
    verdict = _clear_of_lower(visible, entry, rank, above)
    if verdict.behind is not None or verdict.kept_from is not None or not above:
        return verdict
    # Its targets will be gone by its start, so what they hold is no obstacle.
    with visible.snapshot.without((target.queue, target.held) for target in entry.targets):
        return structs.replace(
            _judge(visible, verdict.entry, rank, above), is_outranking=verdict.is_outranking
        )


def _clear_of_calendar(visible: VisiblePromises, entry: Entry) -> tuple[Entry, str | None]:
    """Return the entry in no way of the calendar, on other flavors if need be; or what is in its way.

    Whoever says nothing of its length, or may not be stopped and has no enforced limit, never ends here:
    a promise can be moved, an appointment cannot.
    """
    schedule_plan, queue, now = visible.schedule_plan, entry.queue, visible.now
    workload = entry.pending.workload
    span = _calendar_span(visible, entry)
    if not _meets_appointments(visible, entry, span):
        return entry, None
    leaving = frozenset(target.held.key for target in entry.targets)
    with visible.snapshot.without((target.queue, target.held) for target in entry.targets):
        # No promise counts here, only running work and the calendar: those have their own questions below.
        rank = visible.rank_of(entry)
        found_ahead = visible.horizon(queue, rank, (), leaving=leaving, of=workload)
        horizon = RequestHorizon(edges=schedule_plan.gone_by(found_ahead.edges))
        trial, footing = visible.trial_of(entry), visible.footing(entry)
        key = stands(horizon, visible.stage, trial, footing, now=now, until=now + span)
        if key is None:
            return entry, None
        # Targets were chosen for this very assignment; with other flavors they would be the wrong ones.
        if not entry.targets:
            found = fits_from(horizon, visible.stage, trial, now=now, seconds=span)
            if found is not None and found.assignment is not None:
                return structs.replace(entry, assignment=found.assignment), None
    if _may_stay_until(visible, entry, key):
        return entry, None
    return entry, schedule_plan.ahead.words[key]


def _calendar_span(visible: VisiblePromises, entry: Entry) -> float:
    """Return for how many seconds the entry must be clear of the calendar, infinity where no end is sure."""
    schedule_plan, queue, workload = visible.schedule_plan, entry.queue, entry.pending.workload
    is_known = schedule_plan.lengths.estimator.estimate(workload, queue.policy) is not None
    return schedule_plan.lengths.span(workload, queue.name) if is_known else inf


def _elsewhere(
    visible: VisiblePromises, entry: Entry, horizon: RequestHorizon, seconds: float
) -> Entry | None:
    """Return the entry on other quota or places, clear of `horizon` for that long and of
    the calendar; or None.

    A place that is clear of the promises may be reserved: `horizon` ends after `seconds`, while the calendar
    may have to be left alone for longer. So the places found are put to the calendar as well, and if it
    objects, places are looked for that are clear of both for as long as the calendar asks.
    """
    trial = visible.trial_of(entry)
    for span in (seconds, _calendar_span(visible, entry)):
        found = fits_from(horizon, visible.stage, trial, now=visible.now, seconds=span)
        if found is None or found.assignment is None:
            return None
        moved = structs.replace(entry, assignment=found.assignment)
        if not visible.schedule_plan.ahead.is_heeded:
            return moved
        cleared, words = _clear_of_calendar(visible, moved)
        if words is None and cleared is moved:
            return moved
    return None


def _meets_appointments(visible: VisiblePromises, entry: Entry, span: float) -> bool:
    """Return whether anything of the calendar begins while it runs: a look at few, before one at all."""
    names = [other.name for other in entry.queue.tree.queues]
    schedule_plan, now = visible.schedule_plan, visible.now
    ahead = schedule_plan.ahead.edges(names, schedule_plan.profile, joining=entry.pending.workload)
    begins = ((at, claim) for at, sign, _, claim in ahead if sign > 0)
    return any(at < now + span and at - now <= claim.lead_seconds for at, claim in begins)


def _may_stay_until(visible: VisiblePromises, entry: Entry, appointment: WorkloadKey) -> bool:
    """Return whether it may run in what a reservation will need, and give way at its start."""
    reservations = visible.schedule_plan.ahead.reservations
    kept = next((one for one in reservations.kept if one.holder == appointment), None)
    workload = entry.pending.workload
    if kept is None or not is_opportunistic(workload):
        return False
    leaving = leaving_seconds(workload, entry.queue.policy)
    # Who would have to go this very instant need not begin, and would be told too late.
    return visible.now + _least_seconds(entry.queue) + leaving < kept.start_at


def _clear_of_lower(
    visible: VisiblePromises, entry: Entry, rank: Rank, above: Sequence[Promise]
) -> StartCheck:
    """Return the entry on quota and places promised to nobody, not even of lower rank, if it fits there.

    Where it does not, it starts all the same if it outranks whom it is in the way of, or if its own promise
    is due; else it waits: a promise that was made is not broken for one that is merely older.
    """
    schedule_plan, queue, now = visible.schedule_plan, entry.queue, visible.now
    others = [one for one in schedule_plan.promises.values() if one.planned.key != entry.pending.key]
    others = visible.met(queue, others)
    if entry.targets or len(others) == len(above):
        return StartCheck(entry=entry, is_outranking=bool(entry.targets))
    workload = entry.pending.workload
    trial, horizon = visible.trial_of(entry), visible.horizon(queue, rank, others, of=workload)
    span = schedule_plan.lengths.length(entry.pending.workload, queue.name)
    footing, until = visible.footing(entry), now + span
    if stands(horizon, visible.stage, trial, footing, now=now, until=until) is None:
        return StartCheck(entry=entry)
    moved = _elsewhere(visible, entry, horizon, span)
    if moved is not None:
        return StartCheck(entry=moved)
    # Its own time has come: it takes what it was promised, even from one of lower rank.
    own = schedule_plan.promises.get(entry.pending.key)
    if own is not None and own.planned.start_at <= now:
        return StartCheck(entry=entry, is_outranking=True)
    # What is left is to break a promise of lower rank, which age alone does not license. By what it would
    # borrow now: it may have been promised to borrow less, but for later.
    firm = visible.firm_below(visible.rank_of(entry), entry.pending.key)
    horizon = visible.horizon(queue, rank, firm, of=workload)
    behind = stands(horizon, visible.stage, trial, footing, now=now, until=until)
    if behind is None:
        return StartCheck(entry=entry, is_outranking=True)
    if behind in schedule_plan.ahead.words:
        return StartCheck(entry=entry, kept_from=schedule_plan.ahead.words[behind])
    return _held_back(visible, entry, schedule_plan.promises[behind].planned)


def _judge(visible: VisiblePromises, entry: Entry, rank: Rank, above: Sequence[Promise]) -> StartCheck:
    workload, queue, now = entry.pending.workload, entry.queue, visible.now
    span = visible.schedule_plan.lengths.span(workload, queue.name)
    trial = visible.trial_of(entry)
    leaving = frozenset(target.held.key for target in entry.targets)
    horizon = visible.horizon(queue, rank, above, leaving=leaving, of=workload)
    footing = visible.footing(entry)
    # On and on, beyond its span: whom it overtakes now, it may have to give way to much later.
    broken = first_broken(horizon, visible.stage, trial, footing, now=now)
    if broken is not None and broken.at < now + span:
        moved = None if entry.targets else _elsewhere(visible, entry, horizon, span)
        words, promise = visible.schedule_plan.ahead.words, visible.schedule_plan.promises.get(broken.key)
        if moved is not None:
            entry = moved
            broken = first_broken(horizon, visible.stage, trial, visible.footing(entry), now=now)
        elif promise is None:
            # There is room until then, but not beside those who are promised theirs.
            return StartCheck(entry=entry, kept_from=words[broken.key])
        elif not _is_opportunity(visible, workload, promise.planned, queue):
            return _held_back(visible, entry, promise.planned)
    lease = BackfillLease(
        key=workload.key,
        uid=workload.uid,
        cluster_queue=queue.name,
        rank=rank,
        started_at=now,
        eviction_seconds=leaving_seconds(workload, queue.policy),
        is_evictable=may_be_evicted(workload),
        promised=broken.key if broken is not None and broken.key in visible.schedule_plan.promises else None,
    )
    return StartCheck(entry=entry, lease=lease)


def _held_back(visible: VisiblePromises, entry: Entry, behind: PlannedStart) -> StartCheck:
    """Return that the entry waits. Its length says it for others, unless more than that was looked at:
    evictions, what this very cycle has decided, who may run in the hold or in a reservation.
    """
    rules = rules_of(entry.queue)
    is_in_hold = rules is not None and rules.mode is BackfillMode.OPPORTUNISTIC
    # Each of these makes a refusal this head's own, of which the others of its class learn nothing.
    has_more = entry.targets or entry.queue.reservations or visible.snapshot.decided
    if has_more or is_in_hold:
        return StartCheck(entry=entry, behind=behind)
    span = visible.schedule_plan.lengths.span(entry.pending.workload, entry.queue.name)
    # Who may never be stopped says nothing of those who may.
    return StartCheck(entry=entry, behind=behind, too_long=span if span < inf else None)


def _is_opportunity(
    visible: VisiblePromises, workload: Workload, promised: PlannedStart, queue: QueueState
) -> bool:
    """Return whether it may run in what is held for the promise, and give way when that is due."""
    rules = rules_of(queue)
    if rules is None or rules.mode is not BackfillMode.OPPORTUNISTIC or not may_be_evicted(workload):
        return False
    is_lower = -workload.priority > promised.rank.negative_priority
    if not is_lower and workload.annotations.get(OPPORTUNISTIC) != "true":
        return False
    # Told in time to be gone when the promise is due, and no sooner than its minimum runtime allows.
    leaving = leaving_seconds(workload, queue.policy)
    return visible.now + _least_seconds(queue) + leaving <= promised.start_at


def _least_seconds(queue: QueueState) -> int:
    """Return how long work of the queue runs at least before it is sent away for an equal."""
    preemption = queue.policy.preemption
    return preemption.minimum_runtime_seconds if preemption is not None else 0
