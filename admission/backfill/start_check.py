"""Start check: may a head that fits now start, given the starts promised to other Workloads?

    it leaves all promises of higher rank their quota and places for as long as it runs   ─▶ yes
    it fits on other quota or places, which no promise needs while it runs                ─▶ yes, there
    it can run inside a promised Workload's hold and leave in time (Opportunistic)        ─▶ yes, on a lease
    otherwise                                                                             ─▶ it is held back

A Workload overtakes a promise if it starts while a Workload of higher rank holds that promise and both
share a quota tree or may need the same nodes. Every Workload that overtakes a promise runs on a lease
until it ends: it is evicted for any promise of higher rank that does not fit beside it, including promises
made after it started. A start that is due overtakes no promise that was made beside its own (`_overtaken`).

The invariant is that backfill moves no promise. It rests on leases and not on correct estimates: if a
Workload underestimates its run time, that Workload is evicted, and the promised one starts on time. Work
without a lease has overtaken no promise. It may overrun its estimate, and then promises do move. A promise
that ranks behind a lease also moves if the holder overruns its estimate, since the holder is not evicted for
it. Promises move as well when nodes are lost, quota is cut, or a Workload of higher rank arrives.

One check walks the claims of the capacity profile once per question asked: O(claims) steps, each of which
tries the Workload on the snapshot at one instant. A search for another place is bounded to a start at `now`.
Every walk ends, since the profile holds finitely many claims and no instant is visited twice.

Source: Lifka 1995 (EASY), Mu'alem and Feitelson 2001 (conservative), Slurm's sched/backfill; for the
Opportunistic mode, the article on gang scheduling, "reservation with backfill" (smaller work runs inside the
hold and is evicted when the larger Workload is ready).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import msgspec
from msgspec import structs

from admission.backfill.planned_starts import Promise
from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.backfill.visible_promises import VisiblePromises, rules_of
from admission.nomination.nominate import Entry
from admission.preemption.checkpoint_before_eviction import leaving_seconds
from admission.snapshot.queue_state import QueueState
from api.keys import OPPORTUNISTIC
from api.policy import BackfillMode
from api.workload import Workload, WorkloadKey
from queues.estimates.estimator import is_opportunistic, may_be_evicted
from queues.pending.equivalence_classes import class_key
from queues.profile.planned_start import BackfillLease, PlannedStart, Rank
from queues.profile.profile_walk import first_broken, first_broken_promise, fits_from
from queues.profile.request_horizon import RequestHorizon


class StartCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a head that fits may start: yes unless `behind` or `kept_from` is set.

    `entry` is the entry to start; its flavors and places may differ from those it was nominated with.
    `behind` is the promise for which it is held back, and `kept_from` the calendar's objection as a message.
    `lease` is set where the start overtakes a promise. `is_outranking` says that the start takes capacity
    that is promised to a Workload of lower rank. `too_long` is set where the entry waits only because it
    would run too long: the seconds that were checked. Every Workload of equal requests that runs as long or
    longer is held back as well.
    """

    entry: Entry
    behind: PlannedStart | None = None
    kept_from: str | None = None
    lease: BackfillLease | None = None
    is_outranking: bool = False
    too_long: float | None = None


def check_start(visible: VisiblePromises, entry: Entry) -> StartCheck:
    """Return whether the entry, which fits, may start (or have its targets evicted) now.

    The calendar (quota windows and advance reservations) is checked first, then promises of lower rank, then
    those of higher rank.
    """
    # The calendar comes before any promise: its appointments cannot be moved, whatever the entry's rank.
    if visible.schedule_plan.upcoming.affects_admissions:
        entry, words = _clear_of_calendar(visible, entry)
        if words is not None:
            return StartCheck(entry=entry, kept_from=words)
    if not visible.schedule_plan.promises:
        return StartCheck(entry=entry)
    rank, own = visible.rank_of(entry), visible.schedule_plan.promises.get(entry.pending.key)
    if own is not None:
        # Use the rank of the entry's own promise if that is higher. An older Workload of the same queue may
        # have been promised a start that borrows since then, and each would wait behind the other for ever.
        rank = min(rank, own.planned.rank)
    # Promises that the entry cannot meet, neither in quota nor on nodes, are not overtaken.
    above = visible.met(entry.queue, visible.above(rank, entry.pending.key))
    if own is not None and own.planned.start_at <= visible.now <= own.planned.start_at + SLACK_SECONDS:
        above = _overtaken(visible, entry, rank, own.planned, above)
    verdict, kept = _clear_of_lower(visible, entry, rank, above)
    if verdict.behind is not None or verdict.kept_from is not None or not above:
        return verdict
    # The targets will be gone when the entry starts, so their capacity counts as free.
    with visible.snapshot.trial.without((target.queue, target.held) for target in entry.targets):
        return structs.replace(
            _judge(visible, verdict.entry, rank, above, kept), is_outranking=verdict.is_outranking
        )


def _overtaken(
    visible: VisiblePromises, entry: Entry, rank: Rank, own: PlannedStart, above: Sequence[Promise]
) -> list[Promise]:
    """Return which promises `above` its own the entry overtakes by its start, which is due.

    It does not overtake promises that begin only after it has ended. On a lease it would block them for its
    eviction time, and each of the two would wait for the other. Neither does it overtake promises made after
    its own to Workloads that are merely older, if its promise does not include the time for its own eviction:
    they were made beside its promise, and so were others, for which it has to end in time.
    """
    above = [one for one in above if one.planned.start_at < own.ends_at]
    if _claimed_seconds(visible, entry, rank, above) <= own.seconds:
        return above
    return [
        one
        for one in above
        if one.planned.made_at <= own.made_at
        or own.is_outranked_by(one.planned.rank, one.planned.cluster_queue)
    ]


def _clear_of_calendar(visible: VisiblePromises, entry: Entry) -> tuple[Entry, str | None]:
    """Return the entry clear of the calendar, on other flavors if need be, and the objection, if any.

    The objection is a message that names the appointment, or None where the entry may start. A Workload
    without an estimate counts as endless here, and so does one that may not be evicted and has no enforced
    limit: a promise can be moved, an appointment cannot.
    """
    schedule_plan, queue, now = visible.schedule_plan, entry.queue, visible.now
    workload = entry.pending.workload
    span = _calendar_span(visible, entry)
    if not _meets_appointments(visible, entry, span):
        return entry, None
    leaving = frozenset(target.held.key for target in entry.targets)
    with visible.snapshot.trial.without((target.queue, target.held) for target in entry.targets):
        # Only running work and the calendar count here. Promises are checked separately, by `check_start`.
        rank = visible.rank_of(entry)
        running = visible.horizon(queue, rank, (), leaving=leaving, of=workload)
        horizon = RequestHorizon(edges=schedule_plan.ends.latest_edges(running.edges))
        trial, start_claim = visible.trial_of(entry), visible.usage_of(entry)
        key = first_broken_promise(horizon, visible.stage, trial, start_claim, now=now, until=now + span)
        if key is None:
            return entry, None
        # Targets were chosen for this very assignment and would not match another flavor.
        if not entry.targets:
            found = fits_from(horizon, visible.stage, trial, now=now, seconds=span)
            if found is not None and found.assignment is not None:
                return structs.replace(entry, assignment=found.assignment), None
    if _may_stay_until(visible, entry, key):
        return entry, None
    return entry, schedule_plan.upcoming.words[key]


def _calendar_span(visible: VisiblePromises, entry: Entry) -> float:
    """Return for how many seconds the entry must be clear of the calendar; infinite if its end is unknown."""
    schedule_plan, queue, workload = visible.schedule_plan, entry.queue, entry.pending.workload
    is_known = schedule_plan.run_estimates.estimator.estimate(workload, queue.policy) is not None
    return schedule_plan.run_estimates.span(workload, queue.name) if is_known else inf


def _elsewhere(
    visible: VisiblePromises, entry: Entry, horizon: RequestHorizon, seconds: float
) -> Entry | None:
    """Return the entry on other quota or places that are free for `seconds`, or None.

    `horizon` knows the promises and ends after `seconds`, but the calendar may require a longer span. So the
    places found are checked against the calendar too. If it objects, the search is repeated once, for places
    that are free for as long as the calendar requires.
    """
    trial = visible.trial_of(entry)
    for span in (seconds, _calendar_span(visible, entry)):
        found = fits_from(horizon, visible.stage, trial, now=visible.now, seconds=span)
        if found is None or found.assignment is None:
            return None
        moved = structs.replace(entry, assignment=found.assignment)
        if not visible.schedule_plan.upcoming.affects_admissions:
            return moved
        cleared, words = _clear_of_calendar(visible, moved)
        if words is None and cleared is moved:
            return moved
    return None


def _meets_appointments(visible: VisiblePromises, entry: Entry, span: float) -> bool:
    """Return whether any appointment begins while the entry would run.

    This cheap test reads only the calendar and saves most entries the full walk.
    """
    names = [other.name for other in entry.queue.tree.queues]
    schedule_plan, now = visible.schedule_plan, visible.now
    upcoming = schedule_plan.upcoming.edges(names, schedule_plan.profile, joining=entry.pending.workload)
    begins = ((at, claim) for at, sign, _, claim in upcoming if sign > 0)
    return any(at < now + span and at - now <= claim.lead_seconds for at, claim in begins)


def _may_stay_until(visible: VisiblePromises, entry: Entry, appointment: WorkloadKey) -> bool:
    """Return whether the entry may run on capacity of a coming reservation and be evicted at its start."""
    reservations = visible.schedule_plan.upcoming.reservations
    kept = next((one for one in reservations.kept if one.holder == appointment), None)
    workload = entry.pending.workload
    if kept is None or not is_opportunistic(workload):
        return False
    leaving = leaving_seconds(workload, entry.queue.policy)
    # A Workload that would have to leave at once should not start: its eviction would come too late.
    return visible.now + _least_seconds(entry.queue) + leaving < kept.start_at


def _clear_of_lower(
    visible: VisiblePromises, entry: Entry, rank: Rank, above: Sequence[Promise]
) -> tuple[StartCheck, Sequence[Promise]]:
    """Return the entry on quota and places that no promise needs, of lower rank included, if it fits there.

    If it does not, it starts all the same on what it was promised, where that is due, or where it outranks
    the promises that it would break by more than age. Otherwise it waits: a promise is not broken for a
    Workload that is merely older.

    Returned with it are the promises that it must leave alone if it has to start elsewhere after all.
    """
    schedule_plan, queue, workload = visible.schedule_plan, entry.queue, entry.pending.workload
    others = [one for one in schedule_plan.promises.values() if one.planned.key != entry.pending.key]
    others = visible.met(queue, others)
    if entry.targets or len(others) == len(above):
        return StartCheck(entry=entry, is_outranking=bool(entry.targets)), above
    seconds = _claimed_seconds(visible, entry, rank, above)
    if _conflict(visible, entry, rank, others, seconds) is None:
        return StartCheck(entry=entry), others
    moved = _elsewhere(visible, entry, visible.horizon(queue, rank, others, of=workload), seconds)
    if moved is not None:
        return StartCheck(entry=moved), others
    # What remains is to break a promise of lower rank, which age alone does not permit. The rank used here is
    # that of what it would borrow now: its own promise may borrow less, but begins later.
    present, overtaken = visible.rank_of(entry), {one.planned.key for one in above}
    rest = [one for one in others if one.planned.key not in overtaken]
    firm = [one for one in rest if not one.planned.is_outranked_by(present, queue.name)]
    promised = _as_promised(visible, entry)
    if promised is not None:
        is_outranking = _conflict(visible, promised, rank, others, seconds) is not None
        return StartCheck(entry=promised, is_outranking=is_outranking), [*above, *firm]
    verdict = _beside_firm(visible, entry, rank, above, firm, seconds)
    return structs.replace(verdict, is_outranking=len(firm) < len(rest)), [*above, *firm]


def _as_promised(visible: VisiblePromises, entry: Entry) -> Entry | None:
    """Return the entry on what it was promised, None where that is not due, or not free for all its pods.

    The search for flavors takes the first with enough quota, and that one may be promised to another
    Workload a moment later, although what the entry itself was promised is free.
    """
    own = visible.schedule_plan.promises.get(entry.pending.key)
    if own is None or own.planned.start_at > visible.now:
        return None
    assignment = visible.trial_of(entry).again(own.planned.admission)
    return None if assignment is None else structs.replace(entry, assignment=assignment)


def _beside_firm(
    visible: VisiblePromises,
    entry: Entry,
    rank: Rank,
    above: Sequence[Promise],
    firm: Sequence[Promise],
    seconds: float,
) -> StartCheck:
    """Return whether the entry fits for `seconds` beside the promises of lower rank that it may not break.

    Promises of higher rank are judged later, because it may be evicted for them in time. But it can fit
    beside those of higher rank, and beside those of lower rank, and yet not beside both.
    """
    behind = _conflict(visible, entry, rank, firm, seconds)
    if behind is None and firm and above and _conflict(visible, entry, rank, above, seconds) is None:
        behind = _conflict(visible, entry, rank, [*above, *firm], seconds)
    if behind is None:
        return StartCheck(entry=entry)
    words = visible.schedule_plan.upcoming.words.get(behind)
    if words is not None:
        return StartCheck(entry=entry, kept_from=words)
    return _held_back(visible, entry, visible.schedule_plan.promises[behind].planned)


def _conflict(
    visible: VisiblePromises, entry: Entry, rank: Rank, promises: Sequence[Promise], seconds: float
) -> WorkloadKey | None:
    """Return whose promise, or which appointment, leaves the entry no room for `seconds`; None for none."""
    queue, workload, now = entry.queue, entry.pending.workload, visible.now
    horizon = visible.horizon(queue, rank, promises, of=workload)
    trial, start_claim = visible.trial_of(entry), visible.usage_of(entry)
    return first_broken_promise(horizon, visible.stage, trial, start_claim, now=now, until=now + seconds)


def _claimed_seconds(visible: VisiblePromises, entry: Entry, rank: Rank, above: Sequence[Promise]) -> float:
    """Return for how many seconds the entry will hold its quota: with the lease that `above` make it need."""
    lease = _lease(visible, entry, rank) if above else None
    return visible.schedule_plan.ends.claimed_seconds(entry.pending.workload, entry.queue.name, lease)


def _lease(visible: VisiblePromises, entry: Entry, rank: Rank) -> BackfillLease:
    workload, queue = entry.pending.workload, entry.queue
    return BackfillLease(
        key=workload.key,
        uid=workload.uid,
        cluster_queue=queue.name,
        rank=rank,
        started_at=visible.now,
        eviction_seconds=leaving_seconds(workload, queue.policy),
        is_evictable=may_be_evicted(workload),
    )


def _judge(
    visible: VisiblePromises, entry: Entry, rank: Rank, above: Sequence[Promise], kept: Sequence[Promise]
) -> StartCheck:
    """Return whether the entry may start in view of the promises `above` it, and the lease that it needs.

    Where it has to start on other quota or places, it leaves the promises in `kept` alone.
    """
    workload, queue, now = entry.pending.workload, entry.queue, visible.now
    span = visible.schedule_plan.run_estimates.span(workload, queue.name)
    trial = visible.trial_of(entry)
    leaving = frozenset(target.held.key for target in entry.targets)
    horizon = visible.horizon(queue, rank, above, leaving=leaving, of=workload)
    start_claim = visible.usage_of(entry)
    # The walk goes on beyond its span: the first promise that it will have to leave for may begin much later.
    broken = first_broken(horizon, visible.stage, trial, start_claim, now=now)
    if broken is not None and broken.at < now + span:
        beside = horizon if kept is above else visible.horizon(queue, rank, kept, of=workload)
        moved = None if entry.targets else _elsewhere(visible, entry, beside, span)
        words, promise = visible.schedule_plan.upcoming.words, visible.schedule_plan.promises.get(broken.key)
        if moved is not None:
            entry = moved
            broken = first_broken(horizon, visible.stage, trial, visible.usage_of(entry), now=now)
        elif promise is None:
            # The appointment leaves room until it begins, but the promises beside it take that room.
            return StartCheck(entry=entry, kept_from=words[broken.key])
        elif not _is_opportunity(visible, workload, promise.planned, queue):
            return _held_back(visible, entry, promise.planned)
    lease = _lease(visible, entry, rank)
    if broken is not None and broken.key in visible.schedule_plan.promises:
        lease = replace(lease, promised=broken.key)
    return StartCheck(entry=entry, lease=lease)


def _held_back(visible: VisiblePromises, entry: Entry, behind: PlannedStart) -> StartCheck:
    """Return that the entry waits behind a promise, and whether its length alone is the reason.

    The length is no reason for others where the check also considered evictions, decisions of this very
    cycle, reservations, or a run inside the hold, or where one of them is promised a start that is due.
    """
    rules = rules_of(entry.queue)
    is_in_hold = rules is not None and rules.mode is BackfillMode.OPPORTUNISTIC
    # Each of these makes the refusal specific to this head, so it says nothing about others of its class.
    has_more = entry.targets or entry.queue.reservations or visible.snapshot.trial.decided
    if has_more or is_in_hold or _is_equal_due(visible, entry):
        return StartCheck(entry=entry, behind=behind)
    span = visible.schedule_plan.run_estimates.span(entry.pending.workload, entry.queue.name)
    # An infinite span is that of a Workload that may not be evicted; it says nothing about those that may.
    return StartCheck(entry=entry, behind=behind, too_long=span if span < inf else None)


def _is_equal_due(visible: VisiblePromises, entry: Entry) -> bool:
    """Return whether a Workload of equal requests in the same queue is to be tried for its promised start."""
    queue, schedule_plan = entry.queue, visible.schedule_plan
    for promise in schedule_plan.promises.values():
        planned = promise.planned
        if planned.cluster_queue == queue.name and schedule_plan.due_queues.may_try(planned, now=visible.now):
            other = queue.pending.members.get(planned.key)
            if other is not None and class_key(other) == class_key(entry.pending):
                return True
    return False


def _is_opportunity(
    visible: VisiblePromises, workload: Workload, promised: PlannedStart, queue: QueueState
) -> bool:
    """Return whether the entry may run on what is held for the promise and be evicted when that is due."""
    rules = rules_of(queue)
    if rules is None or rules.mode is not BackfillMode.OPPORTUNISTIC or not may_be_evicted(workload):
        return False
    is_lower = -workload.priority > promised.rank.negative_priority
    if not is_lower and workload.annotations.get(OPPORTUNISTIC) != "true":
        return False
    # It must be able to leave before the promise is due, and not before its minimum runtime has passed.
    leaving = leaving_seconds(workload, queue.policy)
    return visible.now + _least_seconds(queue) + leaving <= promised.start_at


def _least_seconds(queue: QueueState) -> int:
    """Return for how many seconds the queue's work runs at least before it may be preempted by equal work."""
    preemption = queue.policy.preemption
    return preemption.minimum_runtime_seconds if preemption is not None else 0
