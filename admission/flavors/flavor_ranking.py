"""Which of the flavors that fit now is the best for a Workload, by the weights of its policy.

What the score (`admission.flavors.flavor_score`) is computed from:

    run             the estimate of the run time, an hour where there is none
    wait            usage and quota of the flavor over the whole tree of the queue, and its share of the
                    Workloads that are pending in queues with this flavor
    cost            the prices of the flavor's nodes, else of the flavor
    loss            the share of spot nodes, the policy's `spotMeanSeconds`, the checkpoints of the Workload
    generation, left over    the flavor's nodes

All flavors that the Workload could ever use are compared, whether they fit now or not, so that `berth
explain` shows the numbers that decide. A ranking depends on usage and learned run times and is never cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.decisions.assignment import Assignment, Mode
from admission.flavors.flavor_score import (
    FlavorScore,
    FlavorTerms,
    expected_loss,
    expected_wait,
    left_over,
    score_flavors,
)
from admission.hardware.inventory import NodeSummary
from admission.snapshot.queue_state import QueueGroup, QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.checkpoint_annotations import CheckpointFacts, checkpoint_facts
from api.policy import FlavorRules, PreemptionRules
from api.workload import Workload
from queues.estimates.estimator import Estimator

# How long a run without an estimate counts as.
UNKNOWN_RUN_SECONDS = 3600.0
# A run of seconds would make every wait and loss look endless beside it.
SHORTEST_RUN_SECONDS = 60.0
_SECONDS_PER_HOUR = 3600.0
_NO_NODES = NodeSummary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What pod sets that share their flavors ask for: totals by resource, and pods with the GPUs of each."""

    totals: Mapping[str, int]
    pods: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A Workload that has flavors already, and may stay in them.

    A move to another flavor repeats `move_seconds` of its work. The score of staying is raised by `margin`.
    """

    flavors: frozenset[str]
    move_seconds: float
    margin: float


@dataclass(slots=True, kw_only=True)
class FlavorRanking:
    """Scores flavors for one Workload. `rules` are those of its queue's policy.

    `passed_over` are flavors in which no place was found: they count as not fitting. `stay` is set for a
    Workload that holds quota.
    """

    snapshot: Snapshot
    queue: QueueState
    rules: FlavorRules
    run_seconds: float
    checkpoints: CheckpointFacts
    passed_over: set[str] = field(default_factory=set)
    stay: Stay | None = None

    def scores(self, group: QueueGroup, indexes: Sequence[int], asked: Asked) -> tuple[FlavorScore, ...]:
        """Return the scores of the flavors with these indexes in the group, in their order."""
        found = score_flavors([self._terms(group, index, asked) for index in indexes], self.rules.weights)
        if self.stay is None:
            return found
        here, margin = self.stay.flavors, self.stay.margin
        return tuple(
            replace(one, score=one.score + margin) if group.flavors[index] in here else one
            for index, one in zip(indexes, found, strict=True)
        )

    def pass_over(self, assignment: Assignment) -> bool:
        """Let the flavors of pod sets without a place count as not fitting. Return whether any is new."""
        failed = {
            chosen.flavor
            for choice in assignment.pod_sets
            if choice.mode is not Mode.FIT
            for chosen in choice.choices.values()
            if self.snapshot.topology_cache.has_topology(chosen.flavor)
        }
        is_new = not failed <= self.passed_over
        self.passed_over |= failed
        return is_new

    def _terms(self, group: QueueGroup, index: int, asked: Asked) -> FlavorTerms:
        name = group.flavors[index]
        flavor = self.snapshot.objects.flavors.get(name)
        nodes = _NO_NODES
        if flavor is not None:
            nodes = self.snapshot.topology_cache.hardware.summary(flavor.node_labels)
        given = flavor.cost_per_device_hour if flavor is not None else None
        price = given if nodes.device_price is None else nodes.device_price
        lost, devices = self._lost_seconds(nodes, asked), sum(count * gpus for count, gpus in asked.pods)
        if self.stay is not None and name not in self.stay.flavors:
            lost += self.stay.move_seconds
        hours = (self.run_seconds + lost) / _SECONDS_PER_HOUR
        return FlavorTerms(
            run_seconds=self.run_seconds,
            wait_seconds=self._wait_seconds(group, index, asked),
            cost=None if price is None else price * devices * hours,
            lost_seconds=lost,
            generation=nodes.generation,
            left_over=left_over(asked.pods, nodes.gpus_per_node),
        )

    def _wait_seconds(self, group: QueueGroup, index: int, asked: Asked) -> float:
        """Return the expected wait for the resource that is the scarcest in the flavor."""
        name = group.flavors[index]
        waits = [0.0]
        for resource, (_, cell) in group.cells[index].items():
            amount = asked.totals.get(resource, 0)
            if not amount:
                continue
            # From where the queue stands: what others use of quota that it could borrow is not free for it.
            used = cell.potential - max(0, cell.available)
            demand = used + amount * max(1.0, self._pending_share(name, resource))
            waits.append(
                expected_wait(self.run_seconds, asked=amount, demand=demand, capacity=cell.potential)
            )
        return max(waits)

    def _pending_share(self, flavor: str, resource: str) -> float:
        """Return how many Workloads wait for the flavor; each counts for all its flavors in equal parts."""
        share = 0.0
        for queue in self.queue.tree.queues:
            group = queue.groups.get(resource)
            if group is not None and flavor in group.flavors:
                share += len(queue.pending) / len(group.flavors)
        return share

    def _lost_seconds(self, nodes: NodeSummary, asked: Asked) -> float:
        spot_pods = nodes.spot_share * sum(count for count, _ in asked.pods)
        costs, facts = self.queue.policy.preemption or PreemptionRules(), self.checkpoints
        restart = costs.default_restart_seconds if facts.restart_seconds is None else facts.restart_seconds
        # A Workload that saves and does not say how often may lose as much as the policy ever counts.
        often = float(costs.max_counted_loss_seconds) if facts.takes_part else None
        return expected_loss(
            self.run_seconds,
            # Each of its pods may be the one that is interrupted, and then all of them start again.
            mean_seconds=self.rules.spot_mean_seconds / spot_pods if spot_pods else None,
            interval_seconds=often if facts.interval_seconds is None else facts.interval_seconds,
            restart_seconds=min(restart, costs.max_declared_seconds),
        )


def ranks_flavors(queue: QueueState) -> bool:
    """Return whether the queue's policy chooses flavors by score."""
    return queue.policy.placement is not None and queue.policy.placement.flavors is not None


def ranking_of(
    snapshot: Snapshot, queue: QueueState, workload: Workload, estimator: Estimator
) -> FlavorRanking | None:
    """Return the ranking of flavors for a Workload of the queue, None where Kueue's order decides."""
    placement = queue.policy.placement
    if placement is None or placement.flavors is None:
        return None
    estimate = estimator.estimate(workload, queue.policy)
    run_seconds = UNKNOWN_RUN_SECONDS if estimate is None else estimate.seconds
    return FlavorRanking(
        snapshot=snapshot,
        queue=queue,
        rules=placement.flavors,
        run_seconds=max(SHORTEST_RUN_SECONDS, run_seconds),
        checkpoints=checkpoint_facts(workload, with_aliases=queue.policy.reads_aliases),
    )
