"""The smallest set of Workloads to evict: take candidates away until it fits, then put back who need not go.

The order of candidates decides who goes, so a smaller set may exist; it is not looked for. This is Kueue's
heuristic, kept because users know whom it takes.
Source: Kueue, pkg/scheduler/preemption, classicalPreemptionStrategy and fillBackWorkloads.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from admission.preemption.candidate_pools import Pools
from admission.preemption.candidates import Candidates, collect
from admission.preemption.node_cover import may_make_room
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest
from admission.preemption.replicas import Floors
from admission.snapshot.snapshot import HeldWorkload, QueueState, Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PreemptionReason
from queues.steps import Steps

# Most who find victims find them among the first few. Whoever has taken so many may search in vain, through
# all who run: then it pays to count beforehand whether all of them would be enough.
_TAKEN_BEFORE_A_COUNT = 16
# Without places a look whether it fits is a few additions: a search pauses after so many.
_LOOKS_AT_ONCE = 64


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload to evict, and by which right."""

    held: HeldWorkload
    queue: QueueState
    reason: PreemptionReason


def classical_targets(snapshot: Snapshot, need: PreemptionRequest, pools: Pools) -> Steps[tuple[Target, ...]]:
    """Return whom to evict so that `need` fits, () where no set of candidates would do.

    The snapshot is left as it was found.
    """
    candidates = collect(pools, need)
    if candidates.is_empty:
        return ()
    mark = snapshot.mark()
    # In Kueue's order of attempts, which decides whom users see evicted.
    for is_borrowing in _attempts(need, candidates):
        targets = yield from _take_until_it_fits(snapshot, need, candidates, is_borrowing=is_borrowing)
        # From the whole set of those taken, not while taking: only in the end it is known who is not needed.
        if targets:
            targets = yield from fill_back(snapshot, need, targets, is_borrowing=is_borrowing)
        snapshot.rollback(mark)
        if targets:
            return tuple(targets)
    return ()


def fits(snapshot: Snapshot, need: PreemptionRequest, *, is_borrowing: bool) -> bool:
    """Return whether `need` fits now, places and all, borrowing only where that is allowed."""
    node = need.queue.node
    # Borrowing is refused before room is looked for: the cheaper question.
    if not is_borrowing and any(
        node.cell(pair).is_borrowing_with(amount) for pair, amount in need.usage.items()
    ):
        return False
    if not node.fits(need.usage):
        return False
    # Places last: quota is a few numbers, a place a search.
    return not need.placing or snapshot.topology_cache.has_place(need.placing)


def fill_back(
    snapshot: Snapshot, need: PreemptionRequest, targets: list[Target], *, is_borrowing: bool
) -> Steps[list[Target]]:
    """Return the targets without those whose place is not needed after all.

    Fill back in reverse: a Workload evicted early may have become unnecessary once a later, larger one was
    chosen. The last is always needed. As in Kueue, it moves into the place of one that is put back.
    """
    if need.order is not CandidateOrder.KUEUE:
        return (yield from _fill_back_by_loss(snapshot, need, targets, is_borrowing=is_borrowing))
    kept = list(targets)
    for index in range(len(kept) - 2, -1, -1):
        if _is_to_pause(need, index):
            yield
        target = kept[index]
        snapshot.add(target.queue, target.held.usage, target.held.places)
        if fits(snapshot, need, is_borrowing=is_borrowing):
            # Kueue moves the last target into the gap; the order of the rest decides who is asked next.
            kept[index] = kept[-1]
            kept.pop()
        else:
            snapshot.remove(target.queue, target.held.usage, target.held.places)
    return kept


def _fill_back_by_loss(
    snapshot: Snapshot, need: PreemptionRequest, targets: list[Target], *, is_borrowing: bool
) -> Steps[list[Target]]:
    """Return the targets that are needed, each asked in turn: the most important first, then the greatest
    loss. The order of taking has no say in that, so the last may stay too.
    """
    kept = list(targets)
    for number, target in enumerate(sorted(targets, key=lambda one: _grief(need, one), reverse=True)):
        if _is_to_pause(need, number):
            yield
        snapshot.add(target.queue, target.held.usage, target.held.places)
        if fits(snapshot, need, is_borrowing=is_borrowing):
            kept.remove(target)
        else:
            snapshot.remove(target.queue, target.held.usage, target.held.places)
    return kept


def _grief(need: PreemptionRequest, target: Target) -> tuple[bool, int, float, str]:
    held = target.held
    # Whoever is leaving anyway is put back last: evicting it costs nothing.
    loss = 0.0 if held.is_evicted else need.losses.of(held, need.queue)
    return not held.is_evicted, held.workload.priority, loss, held.workload.uid


def _attempts(need: PreemptionRequest, candidates: Candidates) -> tuple[bool, ...]:
    """Return whether to try with borrowing, without, or both, and in which order.

    Evicting others' Workloads while borrowing needs the borrowWithinCohort policy, else two queues would
    evict each other for ever.
    """
    is_forbidden = need.queue.spec.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
    if is_forbidden and not _is_below_nominal(need):
        # Whoever is above its own quota borrows in any case: one attempt, with the rules for borrowers.
        return (True,)
    has_advantage = candidates.has_foreign(has_advantage=True)
    if not has_advantage and not candidates.has_foreign(has_advantage=False):
        return (True,)
    # With the tree's advantage borrowing is tried first, since it reaches those with the weakest claim.
    return (False, True) if is_forbidden and not has_advantage else (True, False)


def _is_below_nominal(need: PreemptionRequest) -> bool:
    node = need.queue.node
    return all((cell := node.cell(pair)).nominal > cell.usage for pair in need.pairs)


def _is_to_pause(need: PreemptionRequest, number: int) -> bool:
    """Return whether the search lets others have a turn before its look of this number."""
    return bool(need.placing) or number % _LOOKS_AT_ONCE == _LOOKS_AT_ONCE - 1


def _is_in_vain(
    snapshot: Snapshot, need: PreemptionRequest, candidates: Candidates, targets: Collection[Target]
) -> bool:
    """Return whether it is certain that the search ends with nobody."""
    everybody = candidates.all_that_may_go()
    if everybody is None:
        return False
    taken = {target.held.key for target in targets}
    return not may_make_room(snapshot, need, (held for held in everybody if held.key not in taken))


def _take_until_it_fits(
    snapshot: Snapshot, need: PreemptionRequest, candidates: Candidates, *, is_borrowing: bool
) -> Steps[list[Target]]:
    targets: list[Target] = []
    floors = Floors(snapshot)
    is_open = not need.placing
    for candidate in candidates.in_order(is_borrowing=is_borrowing):
        # Too many for an answer that could still be the cheapest; () is not "nobody", but the
        # caller has a plain answer to fall back on.
        if len(targets) == need.most_taken:
            return []
        if len(targets) == _TAKEN_BEFORE_A_COUNT and not is_open:
            is_open = True
            if _is_in_vain(snapshot, need, candidates, targets):
                return []
        if (guard := floors.take(candidate.held, candidate.queue)) is not None:
            # Its application, or a budget, cannot do without it: the next one.
            need.losses.note_kept(need.pending.key, candidate.held, guard)
            continue
        if _is_to_pause(need, len(targets)):
            yield
        snapshot.remove(candidate.queue, candidate.held.usage, candidate.held.places)
        targets.append(Target(held=candidate.held, queue=candidate.queue, reason=candidate.right.reason))
        # After each single one: the first set that is enough is taken.
        if fits(snapshot, need, is_borrowing=is_borrowing):
            return targets
    return []
