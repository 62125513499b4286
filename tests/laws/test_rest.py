"""The law of rest: a Workload that waits would also wait in an engine built from scratch.

An inadmissible Workload is not tried again before something changes that may help it. What that is, is
decided in many places (parking, classes of equal requests, wakes, holds, promises, cheap conditions asked
before a search), each of which could forget a Workload. So at every rest, another engine that knows the same
objects and the plan tries every Workload: it may admit none.

What it would evict is left open. An admitted Workload may thereby become one that another may evict, and as
in Kueue that alone wakes no Workload.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given

from admission.backfill.schedule_plan import SLACK_SECONDS
from admission.decisions.decision import Admit
from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.node import NodeInfo
from api.policy import (
    AdmissionPolicy,
    Backfill,
    BackfillMode,
    Consolidation,
    FlavorRules,
    Ordering,
    OrderingMode,
    PlacementRules,
    PreemptionRules,
)
from api.queueing import (
    ClusterQueue,
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Topology,
)
from api.workload import TopologyRequest, Workload, WorkloadKey
from tests.admission.succession import successor
from tests.admission.timed import TimedWorld, template
from tests.builders import EVERY_NAMESPACE, make_pod_set, make_quota
from tests.examples import trying

START = 1000.0
HOST, RACK = "kubernetes.io/hostname", "rack"
QUEUES = ("q0", "q1", "q2")
_NEVER, _LOWER, _ANY = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY
_NEWER = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
_FLAVORS = ("default", "spot")
_NODES = 4


@dataclass(frozen=True)
class Piece:
    """One Workload. `share` is what it says of its length, as a factor; `within` the level of its domain."""

    queue: str
    pods: int
    gpus: int
    priority: int
    length: int
    share: float
    after: int
    within: str | None
    least: int | None


@dataclass(frozen=True)
class Change:
    """Something that happens to a node, a queue, its policy or a Workload (`number` says to which)."""

    kind: str
    after: int
    number: int
    amount: int


@dataclass(frozen=True)
class Queue:
    """One ClusterQueue: `quotas` by flavor, how much of each it lends and borrows (None: all), and what it
    may evict (`own`, `others`, `borrowing`).
    """

    name: str
    cohort: str | None
    quotas: tuple[int, ...]
    lends: int | None
    borrows: int | None
    is_strict: bool
    own: PreemptionPolicy
    others: PreemptionPolicy
    borrowing: PreemptionPolicy


@dataclass(frozen=True)
class Rules:
    """The policy of all queues. `depth`: how many are promised a start; `hold`, `runtime`: None without rules
    for evictions; `moves_after`: how long a gang waits before others are moved for it, None: they are not;
    `scores`: flavors are chosen by score.
    """

    mode: BackfillMode | None
    depth: int
    hold: int | None
    runtime: int
    moves_after: int | None
    ordering: OrderingMode | None
    scores: bool = False


@dataclass(frozen=True)
class Setup:
    """The cluster: its queues, and how it is decided."""

    queues: tuple[Queue, ...]
    rules: Rules | None
    is_fair: bool
    has_nodes: bool


@st.composite
def cluster_queues(draw: st.DrawFn, name: str, flavors: int) -> Queue:
    others = draw(st.sampled_from([_NEVER, _NEVER, _LOWER, _ANY]))
    may_borrow = others is not _NEVER and draw(st.booleans())
    return Queue(
        name=name,
        cohort=draw(st.sampled_from(["all", "all", None])),
        quotas=tuple(draw(st.integers(0, 5)) for _ in range(flavors)),
        lends=draw(st.sampled_from([None, None, 0, 1])),
        borrows=draw(st.sampled_from([None, None, 0, 1])),
        is_strict=draw(st.sampled_from([False, False, True])),
        own=draw(st.sampled_from([_NEVER, _NEVER, _LOWER, _NEWER])),
        others=others,
        borrowing=_LOWER if may_borrow else _NEVER,
    )


_BY_LENGTH = (OrderingMode.SHORTEST_PREDICTED, OrderingMode.EARLIEST_EXPECTED_END)


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    mode = draw(st.sampled_from([None, *BackfillMode]))
    return Rules(
        mode=None if mode is BackfillMode.NONE else mode,
        depth=draw(st.sampled_from([1, 2, 100])),
        hold=draw(st.sampled_from([None, 0, 30, 300])),
        runtime=draw(st.sampled_from([0, 30])),
        moves_after=draw(st.sampled_from([None, None, 0, 20])),
        ordering=draw(st.sampled_from([None, *_BY_LENGTH])),
        scores=draw(st.booleans()),
    )


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    has_nodes = draw(st.booleans())
    flavors = draw(st.integers(1, 2))
    return Setup(
        queues=tuple(draw(cluster_queues(name, flavors)) for name in QUEUES),
        rules=draw(st.one_of(rules(), rules(), st.none())),
        is_fair=draw(st.sampled_from([False, False, True])),
        has_nodes=has_nodes,
    )


@st.composite
def pieces(draw: st.DrawFn) -> Piece:
    return Piece(
        queue=draw(st.sampled_from(QUEUES)),
        pods=draw(st.sampled_from([1, 1, 2, 4])),
        gpus=draw(st.sampled_from([1, 2])),
        priority=draw(st.integers(0, 2)),
        length=draw(st.sampled_from([20, 45, 100, 300])),
        share=draw(st.sampled_from([0.5, 1.0, 2.0])),
        after=draw(st.sampled_from([0, 1, 15, 40])),
        within=draw(st.sampled_from([None, HOST, RACK])),
        least=draw(st.sampled_from([None, None, 1])),
    )


@st.composite
def changes(draw: st.DrawFn) -> Change:
    kinds = ["node", "quota", "priority", "delete", "stop", "policy"]
    return Change(
        kind=draw(st.sampled_from(kinds)),
        after=draw(st.sampled_from([1, 15, 40])),
        number=draw(st.integers(0, 9)),
        amount=draw(st.integers(0, 5)),
    )


class Resting(TimedWorld):
    """A world in which each rest is compared with that of an engine that tries all Workloads from scratch."""

    has_nodes: bool
    rules: Rules | None
    to_come: list[tuple[float, Change]]

    def _decide(self) -> None:
        self._change()
        super()._decide()
        other = successor(self.engine, settings=self.settings, now=self.now)
        for name, queue in self.engine._cache.queues.items():
            # Without rules for evictions only the queue's own leader knows which head evicted others.
            preemptor = queue.pending.precedence.preemptor
            owed = queue.pending.members.get(preemptor) if preemptor else None
            if owed is not None:
                other._cache.queues[name].pending.precedence.prefer_preemptor(owed.workload)
        # The same holds for since when it no longer believes a Workload that outran its estimate.
        theirs, ours = (
            other._cache.schedule_plan.run_estimates,
            self.engine._cache.schedule_plan.run_estimates,
        )
        theirs._raised.update(ours._raised)
        other._cache.rebuild_time()
        for _ in range(500):
            if not other.wake_heads(now=self.now):
                return
            for decision in other.cycle(now=self.now):
                is_news = isinstance(decision, Admit) and not self._waits_for_it(decision.key)
                assert not is_news, f"at {self.now} another engine would decide {decision}"
        raise AssertionError(f"another engine still decides at {self.now}")

    def _waits_for_it(self, key: WorkloadKey) -> bool:
        """Return whether others are stopping for it, or its promise is to be kept, not to be moved earlier.

        That is so within a second of its start, a margin within which no start is moved, and where another
        is promised a start that it outranks by more than age: a promise that moves earlier moves no other,
        but a trial as if it had none gives it what the other was promised.
        """
        promises = self.engine._cache.schedule_plan.promises
        own = promises.get(key)
        if own is None:
            return key in self.engine._cache.holds.kept
        is_due = own.planned.start_at <= self.now + SLACK_SECONDS
        return is_due or any(
            one.planned.is_outranked_by(own.planned.rank, own.planned.cluster_queue)
            for one in promises.values()
            if one is not own
        )

    def _next_at(self) -> float | None:
        at = super()._next_at()
        coming = [at] if at is not None else []
        return min((*coming, *(when for when, _ in self.to_come)), default=None)

    def _change(self) -> None:
        due = [one for when, one in self.to_come if when <= self.now]
        self.to_come = [(when, one) for when, one in self.to_come if when > self.now]
        for change in due:
            self._make(change)

    def _make(self, change: Change) -> None:
        match change.kind:
            case "node" if self.has_nodes:
                self.put(node(change.number % _NODES, gpus=change.amount % 3))
            case "quota":
                spec = self.engine._cache.specs.cluster_queues[QUEUES[change.number % len(QUEUES)]]
                quotas = FlavorQuotas(name="default", resources={"gpu": make_quota(change.amount)})
                (group,) = spec.resource_groups
                changed = replace(group, flavors=(quotas, *group.flavors[1:]))
                self.put(replace(spec, resource_groups=(changed,)))
            case "stop":
                spec = self.engine._cache.specs.cluster_queues[QUEUES[change.number % len(QUEUES)]]
                is_to_stop = spec.stop_policy is StopPolicy.NONE
                self.put(replace(spec, stop_policy=StopPolicy.HOLD if is_to_stop else StopPolicy.NONE))
            case "policy" if self.rules is not None and change.amount % 2:
                self.put(policy(self.rules))
            case "policy" if "policy" in self.engine._cache.specs.policies:
                self.remove(AdmissionPolicy, "policy")
            case "priority" | "delete":
                known = [one for one in self.engine.workloads.workloads() if not one.is_finished]
                if known:
                    workload = known[change.number % len(known)]
                    self._edit(workload, change)

    def _edit(self, workload: Workload, change: Change) -> None:
        if change.kind == "priority":
            generation = workload.generation + 1
            self.put(replace(workload, priority=change.amount % 3, generation=generation))
            return
        self.remove(Workload, workload.key)
        for table in (self.ends, self.stops):
            table.pop(workload.key.name, None)


def node(number: int, *, gpus: int = 2) -> NodeInfo:
    name = f"n{number}"
    return NodeInfo(
        name=name, labels={HOST: name, RACK: f"r{number // 2}"}, allocatable={"gpu": gpus, "pods": 100}
    )


def _quota(queue: Queue, nominal: int) -> ResourceQuota:
    if queue.cohort is None:
        return make_quota(nominal)
    lends = None if queue.lends is None else min(queue.lends, nominal)
    return make_quota(nominal, borrowing=queue.borrows, lending=lends)


def cluster_queue(queue: Queue) -> ClusterQueue:
    strategy = QueueingStrategy.STRICT_FIFO if queue.is_strict else QueueingStrategy.BEST_EFFORT_FIFO
    quotas = tuple(
        FlavorQuotas(name=flavor, resources={"gpu": _quota(queue, nominal)})
        for flavor, nominal in zip(_FLAVORS, queue.quotas, strict=False)
    )
    return ClusterQueue(
        name=queue.name,
        cohort=queue.cohort,
        namespace_selector=EVERY_NAMESPACE,
        resource_groups=(ResourceGroup(covered_resources=("gpu",), flavors=quotas),),
        queueing_strategy=strategy,
        preemption=Preemption(
            within_cluster_queue=queue.own,
            reclaim_within_cohort=queue.others,
            borrow_within_cohort=queue.borrowing,
        ),
    )


def policy(rules: Rules) -> AdmissionPolicy:
    evicting = moving = backfill = None
    if rules.mode is not None:
        backfill = Backfill(mode=rules.mode, reservation_depth=rules.depth, resolution_seconds=1)
    if rules.hold is not None:
        evicting = PreemptionRules(
            hold_seconds=rules.hold, minimum_runtime_seconds=rules.runtime, grace_seconds=0
        )
    wanted = None
    if rules.moves_after is not None:
        wanted = Consolidation(min_waiting_seconds=rules.moves_after, max_lost_seconds=10_000)
    if wanted is not None or rules.scores:
        moving = PlacementRules(consolidation=wanted, flavors=FlavorRules() if rules.scores else None)
    return AdmissionPolicy(
        name="policy",
        ordering=None if rules.ordering is None else Ordering(mode=rules.ordering),
        backfill=backfill,
        preemption=evicting,
        placement=moving,
    )


def make_world(setup: Setup) -> Resting:
    sharing = FairPreemption() if setup.is_fair else None
    world = Resting(settings=EngineSettings(fair_sharing=sharing), now=START)
    world.has_nodes, world.rules, world.to_come = setup.has_nodes, setup.rules, []
    topology = "t" if setup.has_nodes else None
    world.put(ResourceFlavor(name="spot", cost_per_device_hour=1.0, topology_name=topology))
    if setup.has_nodes:
        world.put(Topology(name="t", levels=(RACK, HOST)), ResourceFlavor(name="default", topology_name="t"))
        world.put(*(node(number) for number in range(_NODES)))
    world.put(*(cluster_queue(queue) for queue in setup.queues))
    if setup.rules is not None:
        world.put(policy(setup.rules))
    return world


def submit(world: Resting, work: list[Piece]) -> None:
    at = START
    for number, piece in enumerate(work):
        at += piece.after
        topology = TopologyRequest(required=piece.within) if piece.within and world.has_nodes else None
        pods = make_pod_set(
            count=piece.pods,
            template=template(piece.gpus),
            topology_request=topology,
            min_count=min(piece.least, piece.pods) if piece.least else None,
        )
        says = max(1, int(piece.length * piece.share))
        world.submit(
            f"w{number}",
            runs=piece.length,
            says=says,
            at=at,
            queue=piece.queue,
            priority=piece.priority,
            pod_sets=(pods,),
        )


def run(setup: Setup, work: list[Piece], what: list[Change]) -> Resting:
    world = make_world(setup)
    submit(world, work)
    at = START
    for change in what:
        at += change.after
        world.to_come.append((at, change))
    world.run(until=START + 2000)
    return world


def _queue(name: str, quota: int, *, is_strict: bool = False) -> Queue:
    return Queue(
        name=name,
        cohort="all",
        quotas=(quota,),
        lends=None,
        borrows=None,
        is_strict=is_strict,
        own=_NEVER,
        others=_NEVER,
        borrowing=_NEVER,
    )


def _piece(queue: str, pods: int, gpus: int, length: int, share: float, after: int, **fields: Any) -> Piece:
    asked = {"priority": 0, "within": None, "least": None, **fields}
    return Piece(queue=queue, pods=pods, gpus=gpus, length=length, share=share, after=after, **asked)


# A promise that is moved later leaves its place to one of higher rank, which was looked at before it.
_LEFT_BY_A_LATER_PROMISE = (
    Setup(
        queues=(_queue("q0", 5), _queue("q1", 3, is_strict=True), _queue("q2", 3)),
        rules=Rules(
            mode=BackfillMode.EASY, depth=100, hold=None, runtime=30, moves_after=None, ordering=None
        ),
        is_fair=False,
        has_nodes=True,
    ),
    [
        _piece("q1", 2, 2, 100, 2.0, 2, priority=1, within=RACK),
        _piece("q0", 2, 2, 300, 0.5, 1, priority=1, within=RACK),
        _piece("q0", 1, 1, 100, 1.0, 15, priority=2),
        _piece("q2", 1, 2, 300, 1.0, 56, priority=1, within=HOST),
        _piece("q0", 1, 2, 45, 1.0, 15),
        _piece("q0", 1, 2, 45, 1.0, 15),
        _piece("q0", 1, 2, 45, 0.5, 15, priority=1, within=RACK),
        _piece("q0", 1, 1, 20, 0.5, 40, priority=1, within=HOST),
    ],
)

# w9 outranks the promise of w10 and outruns its lease: what w8 is held back for cannot start meanwhile.
_LEFT_BY_AN_OVERRUN_LEASE = (
    Setup(
        queues=(
            replace(_queue("q0", 3), quotas=(0, 3)),
            replace(_queue("q1", 3), quotas=(0, 3), own=_LOWER, others=_LOWER),
            replace(_queue("q2", 0), quotas=(0, 0), borrows=0),
        ),
        rules=Rules(
            mode=BackfillMode.OPPORTUNISTIC, depth=1, hold=None, runtime=0, moves_after=None, ordering=None
        ),
        is_fair=False,
        has_nodes=False,
    ),
    [
        _piece("q2", 1, 1, 20, 0.5, 0),
        _piece("q1", 1, 1, 100, 0.5, 0),
        _piece("q0", 1, 1, 100, 0.5, 0),
        _piece("q0", 4, 1, 20, 0.5, 0, priority=2),
        _piece("q1", 1, 1, 20, 0.5, 0, priority=1),
        _piece("q0", 1, 1, 300, 0.5, 1),
        _piece("q0", 1, 2, 20, 2.0, 0, priority=2, least=1),
        _piece("q0", 1, 1, 300, 2.0, 1, priority=2),
        _piece("q0", 2, 1, 100, 2.0, 1),
        _piece("q1", 1, 1, 300, 0.5, 1, priority=2, least=1),
        _piece("q0", 4, 1, 20, 2.0, 40, priority=2),
        _piece("q2", 4, 1, 20, 1.0, 0, priority=1, least=1),
    ],
)


# When w1 and w2 end, w5 could have the places of w3 at once, which borrows. It is promised others two seconds
# later, and keeps to that.
_OUTRANKS_A_PROMISE = (
    Setup(
        queues=(_queue("q0", 5), _queue("q1", 1), _queue("q2", 2)),
        rules=Rules(mode=BackfillMode.EASY, depth=1, hold=None, runtime=0, moves_after=None, ordering=None),
        is_fair=False,
        has_nodes=True,
    ),
    [
        _piece("q0", 2, 1, 45, 0.5, 0),
        _piece("q1", 2, 2, 20, 0.5, 0),
        _piece("q0", 1, 1, 20, 0.5, 0),
        _piece("q0", 2, 2, 20, 0.5, 0),
        _piece("q0", 1, 2, 20, 0.5, 1, priority=1),
        _piece("q2", 1, 2, 100, 0.5, 0),
        _piece("q0", 1, 1, 45, 0.5, 0, priority=2),
    ],
)


@trying(60)
@given(setups(), st.lists(pieces(), min_size=1, max_size=12), st.lists(changes(), max_size=6))
@example(*_LEFT_BY_A_LATER_PROMISE, [])
@example(*_OUTRANKS_A_PROMISE, [])
@example(*_LEFT_BY_AN_OVERRUN_LEASE, [])
def test_a_pending_workload_would_also_wait_in_an_engine_built_from_scratch(
    setup: Setup, work: list[Piece], what: list[Change]
) -> None:
    run(setup, work, what)
