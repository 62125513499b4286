"""Flavor promotion: would a Workload that holds quota be better off in another flavor, and by how much?

    gain = score of moving − score of staying        moved where gain > minGain

Both are the scores by which flavors are chosen (`admission.flavors.flavor_score`), for the rest of the run.
What the move itself loses is part of the score of moving, as work that is done again: it lengthens the run,
which costs money, and lowers the part for lost work.

    rest of the run   the estimate of the run time − the time that it has run
    loss of the move  work since the last checkpoint + restart; nothing for a Workload that has not started

The search is that of a nomination, without evictions: the other flavor has the quota and the places now. The
Workload itself counts as gone, since it leaves before it starts again. It does not move where its start would
delay a promise or touch what the calendar keeps. The snapshot is left as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from admission.backfill.backfill_cycle import Backfill
from admission.decisions.assignment import Assignment, Mode
from admission.flavors.flavor_ranking import (
    SHORTEST_RUN_SECONDS,
    UNKNOWN_RUN_SECONDS,
    Asked,
    FlavorRanking,
    Stay,
    ranking_of,
)
from admission.nomination.nominate import Entry, Nominator
from admission.preemption.checkpoint_before_eviction import credible_checkpoint, plan_save, saves_at_sigterm
from admission.preemption.eviction_cost import restart_seconds_of, save_seconds_of
from admission.preemption.lost_work import started_at
from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.queue_state import QueueGroup, QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import gpus_of
from api.policy import FlavorPromotion, PreemptionRules
from queues.estimates.estimator import Estimator, may_be_evicted
from queues.pending.pending_queue import Pending
from queues.steps import finish


@dataclass(frozen=True, slots=True, kw_only=True)
class FlavorMove:
    """A move that pays: `entry` is what the Workload would start with in its new flavors.

    `former` and `flavors` are the flavors that it leaves and takes, in the order of the resource groups.
    `gain` is a difference of scores, after the loss of `lost_seconds` for each of its pods.
    """

    held: HeldWorkload
    entry: Entry
    former: tuple[str, ...]
    flavors: tuple[str, ...]
    gain: float
    lost_seconds: float

    @property
    def message(self) -> str:
        """The move in words, for the condition and for `berth explain`."""
        return (
            f"{', '.join(self.flavors)} is better than {', '.join(self.former)}: the score gains "
            f"{self.gain:.3f} after {self.lost_seconds:.0f} s that are lost by the move"
        )


def rules_of(queue: QueueState) -> FlavorPromotion | None:
    """Return the promotion section of the queue's policy, None where its Workloads stay in their flavors."""
    placement = queue.policy.placement
    flavors = placement.flavors if placement is not None else None
    return flavors.promote if flavors is not None else None


@dataclass(slots=True, kw_only=True)
class PromotionSearch:
    """Looks for better flavors on one snapshot. `backfill` None: there are no promises and no calendar."""

    snapshot: Snapshot
    nominator: Nominator
    estimator: Estimator
    backfill: Backfill | None
    now: float

    def better(self, queue: QueueState, held: HeldWorkload, pending: Pending) -> FlavorMove | None:
        """Return the move of the Workload to the best flavor that has room now; None where it stays.

        `pending` is the Workload as it would queue. The snapshot is left as it was.
        """
        rules, current = rules_of(queue), _flavors_of(queue, held)
        if rules is None or current is None or not has_room_elsewhere(queue, held):
            return None
        ranking = ranking_of(self.snapshot, queue, held.workload, self.estimator)
        if ranking is None:
            return None
        lost = self.lost_seconds(queue, held)
        ranking.run_seconds = self._rest_seconds(queue, held)
        ranking.stay = Stay(flavors=frozenset(current.values()), move_seconds=lost, margin=rules.min_gain)
        with self.snapshot.trial.without([(queue, held)]):
            entry = finish(self.nominator.nominate_ranked(queue, pending, ranking))
            if entry.assignment.mode is not Mode.FIT:
                return None
            changes = tuple(_changes(queue, current, entry.assignment))
            if not changes:
                return None
            gain = self._gain(queue, pending, entry.assignment, current, ranking)
        # Rounding aside, the search takes another flavor only where it gains more than the margin.
        if gain <= rules.min_gain or not self._may_start(entry):
            return None
        return FlavorMove(
            held=held,
            entry=entry,
            former=tuple(former for former, _ in changes),
            flavors=tuple(flavor for _, flavor in changes),
            gain=gain,
            lost_seconds=lost,
        )

    def lost_seconds(self, queue: QueueState, held: HeldWorkload) -> float:
        """Return how many seconds of work the move repeats, its restart included; 0 before the start.

        A Workload that is asked to save loses no more than the save takes. One that never reported a
        checkpoint, but declares how often it saves, counts as losing at most two intervals.
        """
        start = started_at(held.workload)
        if start is None:
            return 0.0
        rules = queue.policy.preemption or PreemptionRules()
        facts = held.facts(with_aliases=queue.policy.reads_aliases)
        saved_at = credible_checkpoint(facts, now=self.now, started_at=start)
        lost = max(0.0, self.now - max(start, start if saved_at is None else saved_at))
        if facts.saved_at is None and facts.interval_seconds is not None:
            lost = min(lost, 2 * facts.interval_seconds)
        plan = plan_save(held.workload, queue.policy, now=self.now, facts=held.facts())
        if saves_at_sigterm(held.workload, facts):
            lost = min(lost, save_seconds_of(facts, rules))
        elif plan is not None:
            lost = 0.0 if plan.ask_at > self.now else min(lost, save_seconds_of(facts, rules))
        return lost + restart_seconds_of(facts, rules)

    def _rest_seconds(self, queue: QueueState, held: HeldWorkload) -> float:
        """Return how long the Workload is expected to run on; the shortest run where it has outrun that."""
        start = started_at(held.workload)
        begun = self.now if start is None else start
        estimate = self.estimator.running_estimate(held.workload, queue.policy, started_at=begun)
        if estimate is None:
            return UNKNOWN_RUN_SECONDS
        return max(SHORTEST_RUN_SECONDS, begun + estimate.seconds - self.now)

    def _gain(
        self,
        queue: QueueState,
        pending: Pending,
        assignment: Assignment,
        current: dict[int, str],
        ranking: FlavorRanking,
    ) -> float:
        """Return by how much the assignment's flavors are better: the mean over all pods and groups.

        A group that keeps its flavor gains nothing. Pods count by their GPUs, or each alone where none has
        any.
        """
        gains, weights = 0.0, 0.0
        for choice, asked in zip(assignment.pod_sets, pending.requests, strict=True):
            gpus = gpus_of(asked.on_node)
            totals = {resource: amount * choice.count for resource, amount in asked.per_pod.items()}
            wanted = Asked(totals=totals, pods=((choice.count, gpus),))
            chosen = {queue.groups[name].index: one.flavor for name, one in choice.choices.items()}
            for group in _groups(queue, chosen):
                flavor, former = chosen[group.index], current[group.index]
                if flavor == former:
                    continue
                scores = ranking.scores(group, range(len(group.flavors)), wanted)
                by_name = dict(zip(group.flavors, scores, strict=True))
                weight = float(choice.count * max(1, gpus))
                weights += weight
                margin = ranking.stay.margin if ranking.stay is not None else 0.0
                gains += weight * (by_name[flavor].score - (by_name[former].score - margin))
        return gains / weights if weights else 0.0

    def _may_start(self, entry: Entry) -> bool:
        """Return whether the start there leaves every promise and the calendar alone.

        The Workload's present usage counts beside it, which only makes this stricter.
        """
        if self.backfill is None:
            return True
        check = self.backfill.check_start(entry)
        is_held_back = check.behind is not None or check.kept_from is not None
        # On a lease, or on what was promised to others, it would only be evicted again.
        return not (is_held_back or check.lease is not None or check.is_outranking) and check.entry is entry


def may_move(queue: QueueState, held: HeldWorkload) -> bool:
    """Return whether the Workload may ever be moved: it is settled, no inference, and kept by no guard."""
    workload = held.workload
    return (
        not (held.is_assumed or held.is_evicted or workload.is_finished or queue.is_dispatching)
        and held.former is None
        and not held.admission.is_delayed
        # Inference is never stopped just to be moved.
        and may_be_evicted(workload)
        and not held.facts(with_aliases=queue.policy.reads_aliases).is_inference
        # Partly admitted, it would be compared with all its pods elsewhere.
        and all(
            one.count == pod_set.count
            for one, pod_set in zip(held.admission.pod_sets, workload.pod_sets, strict=False)
        )
    )


def has_room_elsewhere(queue: QueueState, held: HeldWorkload) -> bool:
    """Return whether any other flavor has quota for it now: cheap, and rules out most in a busy cluster."""
    for pair, amount in held.usage.items():
        group = queue.groups.get(pair.resource)
        for flavor, cells in zip(group.flavors, group.cells, strict=True) if group is not None else ():
            cell = cells[pair.resource][1]
            if flavor != pair.flavor and 0 < amount <= min(cell.potential, cell.available):
                return True
    return False


def _flavors_of(queue: QueueState, held: HeldWorkload) -> dict[int, str] | None:
    """Return the flavor that the Workload has of each resource group.

    None where its pod sets differ, or where the queue no longer offers one of them.
    """
    found: dict[int, str] = {}
    for one in held.admission.pod_sets:
        for resource, flavor in one.flavors.items():
            group = queue.groups.get(resource)
            if group is None or flavor not in group.flavors:
                return None
            if found.setdefault(group.index, flavor) != flavor:
                return None
    return found


def _changes(queue: QueueState, current: dict[int, str], assignment: Assignment) -> Iterator[tuple[str, str]]:
    """Yield the flavors that change, each with the one before, in the order of the groups."""
    chosen = {
        (queue.groups[resource].index, one.flavor)
        for choice in assignment.pod_sets
        for resource, one in choice.choices.items()
    }
    for index, flavor in sorted(chosen):
        if index in current and current[index] != flavor:
            yield current[index], flavor


def _groups(queue: QueueState, indexes: dict[int, str]) -> Iterator[QueueGroup]:
    """Yield the groups with these indexes, each once."""
    groups = {group.index: group for group in queue.groups.values()}
    return (groups[index] for index in sorted(indexes))
