"""Plain searches for victims: slow and simple, to compare the searches of the engine with.

Every quantity is computed again from its definition, and every loop is written as Kueue's documentation tells
it: no list is kept, nothing is merged or cached. A Workload is gone once its name is in `gone`.
Source: Kueue, pkg/scheduler/preemption, pkg/cache/scheduler; KEP 1714 (fair sharing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from api.queueing import Preemption, PreemptionPolicy
from api.reasons import PreemptionReason

# The names and the reasons of the victims, in the order in which they were found.
Found = list[tuple[str, PreemptionReason]]
_Amounts = Mapping[str, int]
_RECLAMATION = PreemptionReason.IN_COHORT_RECLAMATION


class Job(NamedTuple):
    """A Workload that holds quota of a ClusterQueue."""

    name: str
    queue: str
    amounts: _Amounts
    priority: int = 0
    queued_at: float = 0.0
    started_at: float = 0.0
    is_leaving: bool = False


# A candidate, the reason of its eviction, and its nearest common ancestor with the incoming Workload.
_Candidate = tuple[Job, PreemptionReason, str]


class Group(NamedTuple):
    """A ClusterQueue or Cohort. `lent` is its lending limit, None where it lends all of its quota."""

    name: str
    parent: str | None
    quota: _Amounts
    lent: _Amounts | None = None
    weight: float = 1.0
    is_queue: bool = False


@dataclass(slots=True, kw_only=True)
class PlainSearch:
    """The search of victims for `incoming`, which needs `needed` of its resources from evictions."""

    groups: Mapping[str, Group]
    jobs: Sequence[Job]
    incoming: Job
    needed: frozenset[str]
    rules: Preemption
    # The loss decides between equal priorities; `is_per_amount`: divided by what it frees of the needed.
    loss_of: Callable[[Job], float] | None = None
    is_per_amount: bool = False
    # The Workloads that may be evicted, None: all; and how many victims end a search, None: no number.
    within: frozenset[str] | None = None
    most_taken: int | None = None
    gone: set[str] = field(default_factory=set)
    # Whether the usage of `incoming` is counted too.
    is_counted: bool = False

    # --- the quota tree -----------------------------------------------------------------------------------

    def path(self, name: str) -> list[str]:
        """Return the node and its ancestors, the root last."""
        parent = self.groups[name].parent
        return [name, *(self.path(parent) if parent is not None else ())]

    def children(self, name: str) -> list[str]:
        """Return the nodes right below one, by name."""
        return sorted(one.name for one in self.groups.values() if one.parent == name)

    def subtree(self, name: str, resource: str) -> int:
        """Return the node's own quota with what its children lend to it."""
        lent = (self.subtree(one, resource) - self.kept_back(one, resource) for one in self.children(name))
        return self.groups[name].quota[resource] + sum(lent)

    def kept_back(self, name: str, resource: str) -> int:
        """Return the part of the node's quota that it never lends."""
        limit = self.groups[name].lent
        return 0 if limit is None else max(0, self.subtree(name, resource) - limit[resource])

    def usage(self, name: str, resource: str) -> int:
        """Return what a queue's Workloads hold; of a Cohort, what its children use beyond their own part."""
        below = (
            max(0, self.usage(one, resource) - self.kept_back(one, resource)) for one in self.children(name)
        )
        running = [one for one in self.jobs if one.name not in self.gone]
        if self.is_counted:
            running.append(self.incoming)
        return sum(below) + sum(one.amounts.get(resource, 0) for one in running if one.queue == name)

    def available(self, name: str, resource: str) -> int:
        """Return how much more the node may use."""
        subtree, usage, kept = (one(name, resource) for one in (self.subtree, self.usage, self.kept_back))
        parent = self.groups[name].parent
        return subtree - usage if parent is None else max(0, kept - usage) + self.available(parent, resource)

    def potential(self, name: str, resource: str) -> int:
        """Return the most that the node could ever use."""
        parent = self.groups[name].parent
        if parent is None:
            return self.subtree(name, resource)
        return self.kept_back(name, resource) + self.potential(parent, resource)

    def height(self, name: str) -> int:
        """Return how many levels are below the node."""
        return max((1 + self.height(one) for one in self.children(name)), default=0)

    def borrow_height(self, resource: str, amount: int) -> int:
        """Return the height of the smallest subtree that covers what its queue would borrow for it."""
        path = self.path(self.incoming.queue)
        for name in path:
            if self.usage(name, resource) + amount <= self.subtree(name, resource):
                return self.height(name)
            amount -= max(0, self.kept_back(name, resource) - self.usage(name, resource))
        return self.height(path[-1])

    def is_within_quota(self, name: str) -> bool:
        """Return whether the node uses no more than its own quota of all that is needed."""
        return all(self.usage(name, one) <= self.subtree(name, one) for one in self.needed)

    def fits(self, *, is_borrowing: bool) -> bool:
        """Return whether the incoming Workload fits, borrowing only where that is allowed."""
        queue, amounts = self.incoming.queue, self.incoming.amounts
        return all(
            (is_borrowing or self.usage(queue, one) + amount <= self.subtree(queue, one))
            and (amount == 0 or amount <= self.available(queue, one))
            for one, amount in amounts.items()
        )

    # --- the candidates -----------------------------------------------------------------------------------

    def candidates(self, queue: str) -> list[Job]:
        """Return the Workloads of a queue that may be evicted, in order."""
        policy = self.rules.within_cluster_queue
        if queue != self.incoming.queue:
            policy = self.rules.reclaim_within_cohort
        found = [
            one
            for one in self.jobs
            if one.queue == queue and not self.needed.isdisjoint(one.amounts) and self._allows(policy, one)
            if self.within is None or one.name in self.within
        ]
        return sorted(found, key=self.order)

    def order(self, job: Job) -> tuple[object, ...]:
        """Return the order of eviction: leaving already, of another queue, least priority, last to start."""
        is_own = job.queue == self.incoming.queue
        loss = 0.0 if self.loss_of is None else self.loss_of(job)
        if self.is_per_amount:
            loss /= max(1, sum(job.amounts.get(one, 0) for one in self.needed))
        return not job.is_leaving, is_own, job.priority, loss, -job.started_at, f"uid-{job.name}"

    def _allows(self, policy: PreemptionPolicy, job: Job) -> bool:
        mine, other = self.incoming, job
        match policy:
            case PreemptionPolicy.NEVER:
                return False
            case PreemptionPolicy.ANY:
                return True
            case PreemptionPolicy.LOWER_PRIORITY:
                return mine.priority > other.priority
        is_newer = mine.priority == other.priority and mine.queued_at < other.queued_at
        return mine.priority > other.priority or is_newer

    def _fill_back(self, found: Found, *, is_borrowing: bool) -> Found:
        kept = list(found)
        if self.loss_of is not None:
            for one in sorted(found, key=self._gravity, reverse=True):
                self.gone.remove(one[0])
                if self.fits(is_borrowing=is_borrowing):
                    kept.remove(one)
                else:
                    self.gone.add(one[0])
            return kept
        for index in reversed(range(len(found) - 1)):
            name = kept[index][0]
            self.gone.remove(name)
            if self.fits(is_borrowing=is_borrowing):
                kept[index] = kept[-1]
                kept.pop()
            else:
                self.gone.add(name)
        return kept

    def _gravity(self, found: tuple[str, PreemptionReason]) -> tuple[object, ...]:
        """Return how important it is that a victim stays."""
        (job,) = (one for one in self.jobs if one.name == found[0])
        loss = 0.0 if job.is_leaving or self.loss_of is None else self.loss_of(job)
        return not job.is_leaving, job.priority, loss, f"uid-{job.name}"

    # --- without fair sharing -----------------------------------------------------------------------------

    def classical(self) -> Found:
        """Return the victims without fair sharing."""
        for is_borrowing in self._attempts():
            found: Found = []
            self.gone.clear()
            for job, reason, ancestor in self._sequence():
                is_weak = reason is _RECLAMATION and not self._has_advantage(ancestor)
                if (is_borrowing and is_weak) or not self._overuses(job.queue, ancestor):
                    continue
                if len(found) == self.most_taken:
                    break
                self.gone.add(job.name)
                found.append((job.name, reason))
                if self.fits(is_borrowing=is_borrowing):
                    return self._fill_back(found, is_borrowing=is_borrowing)
        return []

    def _attempts(self) -> tuple[bool, ...]:
        """Return whether to borrow, for each attempt in order."""
        is_never = self.rules.borrow_within_cohort is PreemptionPolicy.NEVER
        queue = self.incoming.queue
        is_below = all(self.groups[queue].quota[one] > self.usage(queue, one) for one in self.needed)
        others = [ancestor for job, _, ancestor in self._sequence() if job.queue != queue]
        if not others or (is_never and not is_below):
            return (True,)
        if is_never and not any(self._has_advantage(one) for one in others):
            return (False, True)
        return (True, False)

    def _sequence(self) -> Iterator[_Candidate]:
        """Yield the candidates in order with the reason and the nearest common ancestor, or their queue."""
        strong: list[_Candidate] = []
        weak: list[_Candidate] = []
        for ancestor in self.path(self.incoming.queue)[1:]:
            for queue in self._queues_below(ancestor):
                of_queue = [(job, self._reason(job, ancestor), ancestor) for job in self.candidates(queue)]
                (strong if self._has_advantage(ancestor) else weak).extend(of_queue)
        own = self.incoming.queue
        same = [(job, PreemptionReason.IN_CLUSTER_QUEUE, own) for job in self.candidates(own)]
        for is_leaving in (True, False):
            for some in (strong, weak, same):
                in_order = sorted(some, key=lambda one: self.order(one[0]))
                yield from (one for one in in_order if one[0].is_leaving is is_leaving)

    def _queues_below(self, ancestor: str) -> list[str]:
        """Return the overusing queues whose nearest common ancestor with the incoming one's is this one."""
        path = self.path(self.incoming.queue)
        return [
            one.name
            for one in self.groups.values()
            if one.is_queue and one.name != path[0]
            if next((node for node in self.path(one.name) if node in path), None) == ancestor
            if self._overuses(one.name, ancestor)
        ]

    def _overuses(self, queue: str, ancestor: str) -> bool:
        """Return whether the queue and the Cohorts between it and the ancestor use more than their quota."""
        path = self.path(queue)
        return not any(self.is_within_quota(one) for one in path[: path.index(ancestor)])

    def _has_advantage(self, ancestor: str) -> bool:
        """Return whether a node below the ancestor covers, from its own quota, what reaches it."""
        amounts = dict(self.incoming.amounts)
        # The candidates were collected before any of them was taken.
        gone, self.gone = self.gone, set()
        found = False
        for name in self.path(self.incoming.queue):
            if name == ancestor:
                break
            found |= all(
                self.usage(name, one) + amount <= self.subtree(name, one) for one, amount in amounts.items()
            )
            for one, amount in amounts.items():
                amounts[one] = max(0, amount - max(0, self.kept_back(name, one) - self.usage(name, one)))
        self.gone = gone
        return found

    def _reason(self, job: Job, ancestor: str) -> PreemptionReason:
        limit = self.rules.borrow_max_priority
        is_lower = job.priority < self.incoming.priority and (limit is None or job.priority <= limit)
        if (
            self._has_advantage(ancestor)
            or self.rules.borrow_within_cohort is PreemptionPolicy.NEVER
            or not is_lower
        ):
            return _RECLAMATION
        return PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING

    # --- with fair sharing --------------------------------------------------------------------------------

    def fair(self, *, final: bool, initial: bool) -> Found:
        """Return the victims by the rule of the final share, of the initial share, or of both in turn."""
        self.gone.clear()
        queues = [one.name for one in self.groups.values() if one.is_queue]
        own = self.incoming.queue
        waiting = {
            one: self.candidates(one)
            for one in queues
            if self.path(one)[-1] == self.path(own)[-1] and (one == own or not self.is_within_quota(one))
        }
        found: Found = []
        refused: dict[str, list[Job]] = {}
        self.is_counted = True
        is_entitled = self.is_within_quota(own)

        def take(job: Job, reason: PreemptionReason) -> bool:
            self.gone.add(job.name)
            found.append((job.name, reason))
            self.is_counted = False
            is_enough = self.fits(is_borrowing=True)
            self.is_counted = True
            return is_enough

        def first_pass() -> bool:
            dropped: set[str] = set()
            while (queue := self._next_queue(waiting, dropped)) is not None:
                heads = waiting[queue]
                if queue == own:
                    if take(heads.pop(0), PreemptionReason.IN_CLUSTER_QUEUE):
                        return True
                    continue
                if is_entitled:
                    if take(heads.pop(0), _RECLAMATION):
                        return True
                    continue
                mine, theirs = self._shares(queue)
                is_hopeless = mine[0] == inf > theirs[0]
                while heads:
                    job = heads.pop(0)
                    self.gone.add(job.name)
                    left = self._shares(queue)[1]
                    self.gone.remove(job.name)
                    if not is_hopeless and (mine <= left if final else mine < theirs):
                        if take(job, PreemptionReason.IN_COHORT_FAIR_SHARING):
                            return True
                        break
                    refused.setdefault(queue, []).append(job)
            return False

        def second_pass() -> bool:
            dropped: set[str] = set()
            while (queue := self._next_queue(refused, dropped)) is not None:
                mine, theirs = self._shares(queue)
                if mine < theirs and take(refused[queue][0], PreemptionReason.IN_COHORT_FAIR_SHARING):
                    return True
                dropped.add(queue)
            return False

        is_done = first_pass() or (final and initial and second_pass())
        self.is_counted = False
        return self._fill_back(found, is_borrowing=True) if is_done else []

    def share(self, name: str) -> tuple[float, float]:
        """Return the dominant resource share; of a node of weight 0 infinity, and its share before that."""
        parent = self.groups[name].parent
        if parent is None:
            return 0.0, 0.0
        ratio = 0.0
        for one in self.groups[name].quota:
            beyond, lendable = self._beyond(name, one), self.potential(parent, one)
            if beyond and lendable:
                ratio = max(ratio, beyond * 1000 / lendable)
        weight = self.groups[name].weight
        if not weight and self._is_borrowing(name):
            return inf, ratio
        return (ratio / weight if weight else 0.0), 0.0

    def _beyond(self, name: str, resource: str) -> int:
        return max(0, self.usage(name, resource) - self.subtree(name, resource))

    def _is_borrowing(self, name: str) -> bool:
        is_root = self.groups[name].parent is None
        return not is_root and any(self._beyond(name, one) for one in self.groups[name].quota)

    def _shares(self, queue: str) -> tuple[tuple[float, float], tuple[float, float]]:
        """Return the shares of both sides, each of the node right below the nearest common ancestor."""
        mine, theirs = self.path(self.incoming.queue), self.path(queue)
        ours = next(one for one in reversed(mine) if one not in theirs)
        other = next(one for one in reversed(theirs) if one not in mine)
        return self.share(ours), self.share(other)

    def _next_queue(self, waiting: Mapping[str, list[Job]], dropped: set[str]) -> str | None:
        """Return the queue of the largest share, from the root down; None once none is left."""
        root = self.path(self.incoming.queue)[-1]
        while root not in dropped:
            if (queue := self._largest(root, waiting, dropped)) is not None:
                return queue
        return None

    def _largest(self, node: str, waiting: Mapping[str, list[Job]], dropped: set[str]) -> str | None:
        own = self.path(self.incoming.queue)
        if self.groups[node].is_queue:
            if not waiting.get(node):
                dropped.add(node)
            return node if waiting.get(node) else None

        def drop(is_out: Callable[[str], bool], some: list[str]) -> list[str]:
            left = [one for one in some if one not in dropped]
            dropped.update(one for one in left if is_out(one))
            return [one for one in left if one not in dropped]

        below = self.children(node)
        queues = drop(
            lambda one: not waiting.get(one) or not (one == own[0] or self._is_borrowing(one)),
            [one for one in below if self.groups[one].is_queue],
        )
        cohorts = drop(
            lambda one: not (one in own or self._is_borrowing(one)),
            [one for one in below if not self.groups[one].is_queue],
        )
        if not queues and not cohorts:
            dropped.add(node)
            return None
        # On a tie the queue of the foremost candidate, the last Cohort, and a Cohort before a queue.
        queues.sort(key=lambda one: self.order(waiting[one][0]))
        queue = max(queues, key=self.share, default=None)
        cohort = max(reversed(cohorts), key=self.share, default=None)
        if cohort is not None and (queue is None or self.share(cohort) >= self.share(queue)):
            return self._largest(cohort, waiting, dropped)
        return queue
