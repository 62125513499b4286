"""A minimal set of Workloads to evict: remove candidates until the preemptor fits, then fill back.

Theory of operation. Finding the smallest set is a covering problem. This is Kueue's heuristic instead, kept
because users know which Workloads it selects:

    1 take       remove candidates from the snapshot, in their order, until the preemptor fits
    2 fill back  in reverse order, put back each one whose eviction is not needed

The result is minimal, since no single target can be left out, but a smaller set may exist. Invariant: after
every step of either loop the removed usage is exactly that of the targets; at the end all of it is restored.

Each candidate is taken and put back at most once for each attempt (with and without borrowing), so the search
ends. It costs one test of fit for each step: a few additions, and with a topology a search for places. After
the first few victims a cheap count of nodes ends searches that cannot succeed (`_cannot_succeed`).
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
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.queueing import PreemptionPolicy
from api.reasons import PreemptionReason
from queues.steps import Steps

# A search that succeeds mostly does so within its first few victims. One that has taken this many may fail
# after all candidates, so it is worth counting beforehand whether all of them would be enough.
_TAKEN_BEFORE_A_COUNT = 16
# Without places a test of fit is a few additions: a search pauses after so many.
_LOOKS_AT_ONCE = 64


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A Workload to evict, and the reason."""

    held: HeldWorkload
    queue: QueueState
    reason: PreemptionReason


def classical_targets(snapshot: Snapshot, need: PreemptionRequest, pools: Pools) -> Steps[tuple[Target, ...]]:
    """Return the Workloads to evict so that `need` fits, () where no set of candidates would do.

    The snapshot is left as it was.
    """
    candidates = collect(pools, need)
    if candidates.is_empty:
        return ()
    mark = snapshot.trial.mark()
    # Kueue's order of attempts, which decides which Workloads users see evicted.
    for is_borrowing in _attempts(need, candidates):
        targets = yield from _take_until_it_fits(snapshot, need, candidates, is_borrowing=is_borrowing)
        # After the loop, because only then it is known which victims are not needed.
        if targets:
            targets = yield from fill_back(snapshot, need, targets, is_borrowing=is_borrowing)
        snapshot.trial.rollback(mark)
        if targets:
            return tuple(targets)
    return ()


def fits(snapshot: Snapshot, need: PreemptionRequest, *, is_borrowing: bool) -> bool:
    """Return whether `need` fits now, places and all, borrowing only where that is allowed."""
    node = need.queue.node
    # Borrowing is checked first, because that is cheaper than the search for room.
    if not is_borrowing and any(
        node.cell(pair).is_borrowing_with(amount) for pair, amount in need.usage.items()
    ):
        return False
    if not node.fits(need.usage):
        return False
    # Places last: a test of quota is a few additions, a place needs a search.
    return not need.placing or snapshot.topology_cache.has_place(need.placing)


def fill_back(
    snapshot: Snapshot, need: PreemptionRequest, targets: list[Target], *, is_borrowing: bool
) -> Steps[list[Target]]:
    """Return the targets that are needed.

    Fill back in reverse: a Workload evicted early may have become unnecessary once a later, larger one was
    chosen. The last target is always needed. As in Kueue, it takes the position of one that is put back.
    """
    if need.order is not CandidateOrder.KUEUE:
        return (yield from _fill_back_by_loss(snapshot, need, targets, is_borrowing=is_borrowing))
    kept = list(targets)
    for index in range(len(kept) - 2, -1, -1):
        if _is_to_pause(need, index):
            yield
        target = kept[index]
        snapshot.trial.add(target.queue, target.held.usage, target.held.places)
        if fits(snapshot, need, is_borrowing=is_borrowing):
            # As in Kueue, the last target fills the gap; targets at lower positions are still to be tried.
            kept[index] = kept[-1]
            kept.pop()
        else:
            snapshot.trial.remove(target.queue, target.held.usage, target.held.places)
    return kept


def _fill_back_by_loss(
    snapshot: Snapshot, need: PreemptionRequest, targets: list[Target], *, is_borrowing: bool
) -> Steps[list[Target]]:
    """Return the targets that are needed, the most important tried first, then the greatest loss.

    The order of taking does not matter here, so the last one taken may be put back too.
    """
    kept = list(targets)
    for number, target in enumerate(sorted(targets, key=lambda one: _gravity(need, one), reverse=True)):
        if _is_to_pause(need, number):
            yield
        snapshot.trial.add(target.queue, target.held.usage, target.held.places)
        if fits(snapshot, need, is_borrowing=is_borrowing):
            kept.remove(target)
        else:
            snapshot.trial.remove(target.queue, target.held.usage, target.held.places)
    return kept


def _gravity(need: PreemptionRequest, target: Target) -> tuple[bool, int, float, str]:
    held = target.held
    # A target that is leaving anyway is put back last: evicting it costs nothing.
    loss = 0.0 if held.is_evicted else need.losses.of(held, need.queue)
    return not held.is_evicted, held.workload.priority, loss, held.workload.uid


def _attempts(need: PreemptionRequest, candidates: Candidates) -> tuple[bool, ...]:
    """Return whether to try with borrowing, without, or both, in the order of the attempts.

    Evicting Workloads of other queues while borrowing needs borrowWithinCohort. Without it two queues would
    evict each other for ever.
    """
    is_forbidden = need.queue.spec.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
    if is_forbidden and not _is_below_nominal(need):
        # A queue above its own quota borrows in any case: one attempt, with the rules for borrowers.
        return (True,)
    has_advantage = candidates.has_foreign(has_advantage=True)
    if not has_advantage and not candidates.has_foreign(has_advantage=False):
        return (True,)
    # With hierarchical advantage, borrowing is tried first, since it reaches the candidates of weakest right.
    return (False, True) if is_forbidden and not has_advantage else (True, False)


def _is_below_nominal(need: PreemptionRequest) -> bool:
    node = need.queue.node
    return all((cell := node.cell(pair)).nominal > cell.usage for pair in need.pairs)


def _is_to_pause(need: PreemptionRequest, number: int) -> bool:
    """Return whether the search pauses before step `number`, so that other tasks can run."""
    return bool(need.placing) or number % _LOOKS_AT_ONCE == _LOOKS_AT_ONCE - 1


def _cannot_succeed(
    snapshot: Snapshot, need: PreemptionRequest, candidates: Candidates, targets: Collection[Target]
) -> bool:
    """Return whether it is certain that the search will find no set of victims."""
    all_candidates = candidates.all_candidates()
    if all_candidates is None:
        return False
    taken = {target.held.key for target in targets}
    return not may_make_room(snapshot, need, (held for held in all_candidates if held.key not in taken))


def _take_until_it_fits(
    snapshot: Snapshot, need: PreemptionRequest, candidates: Candidates, *, is_borrowing: bool
) -> Steps[list[Target]]:
    targets: list[Target] = []
    floors = Floors(snapshot)
    is_open = not need.placing
    for candidate in candidates.in_order(is_borrowing=is_borrowing):
        # Too many for an answer that could still be the cheapest. The empty result does not mean that there
        # are no victims; the caller has Kueue's answer to fall back on.
        if len(targets) == need.most_taken:
            return []
        if len(targets) == _TAKEN_BEFORE_A_COUNT and not is_open:
            is_open = True
            if _cannot_succeed(snapshot, need, candidates, targets):
                return []
        if (guard := floors.take(candidate.held, candidate.queue)) is not None:
            # Its application or a budget cannot spare it, so the next candidate is tried.
            need.losses.note_kept(need.pending.key, candidate.held, guard)
            continue
        if _is_to_pause(need, len(targets)):
            yield
        snapshot.trial.remove(candidate.queue, candidate.held.usage, candidate.held.places)
        targets.append(Target(held=candidate.held, queue=candidate.queue, reason=candidate.right.reason))
        # Tested after each candidate: the first sufficient set is taken.
        if fits(snapshot, need, is_borrowing=is_borrowing):
            return targets
    return []
