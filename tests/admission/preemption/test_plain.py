"""The searches for victims find those of a plain search by Kueue's definitions, in every small cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
from hypothesis import assume, given
from msgspec.structs import replace

from admission.decisions.flavor_mode import Grade, Granular
from admission.engine.engine import Engine
from admission.preemption.candidate_pools import Pools
from admission.preemption.fair_sharing import FairPreemption, FairRule, fair_targets
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemption_request import CandidateOrder, PreemptionRequest
from admission.preemption.preemptor import Preemptor
from admission.preemption.targets import Target, classical_targets
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from api.reasons import ConditionType, PreemptionReason
from api.workload import Workload, WorkloadKey
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource
from queues.steps import finish
from tests.admission.preemption.plain import Found, Group, Job, PlainSearch
from tests.builders import (
    EVERY_NAMESPACE,
    NAMESPACE,
    make_condition,
    make_pod_set,
    make_workload,
    reserved,
    with_conditions,
)
from tests.examples import trying

RESOURCES = ("gpu", "disk")
# By name, a queue comes before all Cohorts and others after them.
QUEUES = ("q0", "a1", "q2", "q3")
COHORTS = {"root": None, "left": "root", "right": "root", "inner": "left"}
NEVER, LOWER = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY
NEWER_EQUAL, ANY = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY, PreemptionPolicy.ANY
_SOME = st.none() | st.frozensets(st.integers(0, 9))
_FINAL, _INITIAL = FairRule.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, FairRule.LESS_THAN_INITIAL_SHARE


@st.composite
def searches(draw: st.DrawFn) -> PlainSearch:
    """Return queues in a tree of Cohorts, most of them full, and a Workload that lacks something."""
    groups = {name: draw(_groups(name, parent)) for name, parent in COHORTS.items()}
    for name in QUEUES:
        groups[name] = draw(_groups(name, draw(st.sampled_from(["root", *COHORTS])), is_queue=True))
    running = st.builds(
        Job,
        name=st.just(""),
        queue=st.sampled_from(QUEUES),
        amounts=_amounts(3),
        priority=st.integers(0, 2),
        queued_at=st.sampled_from([0.0, 9.0]),
        started_at=st.integers(0, 3).map(float),
        is_leaving=st.sampled_from([False, False, False, True]),
    )
    jobs = [
        job._replace(name=f"r{number}")
        for number, job in enumerate(draw(st.lists(running, min_size=4, max_size=10)))
    ]
    incoming = Job("incoming", "q0", draw(_amounts(9, least=2)), draw(st.integers(1, 2)), queued_at=5.0)
    search = PlainSearch(
        groups=groups,
        jobs=jobs,
        incoming=incoming,
        needed=frozenset(),
        rules=Preemption(
            within_cluster_queue=draw(st.sampled_from([NEWER_EQUAL, LOWER, NEVER])),
            reclaim_within_cohort=draw(st.sampled_from([ANY, LOWER, NEWER_EQUAL, ANY, LOWER, NEVER])),
            borrow_within_cohort=draw(st.sampled_from([NEVER, LOWER])),
            borrow_max_priority=draw(st.sampled_from([None, 0])),
        ),
    )
    # Little is free: the root has as much of its own as makes up for what is used beyond all other quota.
    lacking = {one: draw(st.integers(0, 2)) - search.available("root", one) for one in RESOURCES}
    own = {one: max(0, count + lacking[one]) for one, count in groups["root"].quota.items()}
    groups["root"] = groups["root"]._replace(quota=own)
    # As where its flavor is chosen: evictions are needed for what is not free now.
    search.needed = frozenset(
        one for one, amount in incoming.amounts.items() if amount > search.available("q0", one)
    ) or frozenset(incoming.amounts)
    return search


def _amounts(most: int, *, least: int = 1) -> st.SearchStrategy[dict[str, int]]:
    one = st.integers(least, most)
    return st.one_of(
        st.fixed_dictionaries({"gpu": one}),
        st.fixed_dictionaries({"gpu": one}),
        st.fixed_dictionaries({"gpu": st.integers(0, most), "disk": one}),
    )


@st.composite
def _groups(draw: st.DrawFn, name: str, parent: str | None, *, is_queue: bool = False) -> Group:
    quota = {one: draw(st.integers(0, 4 if is_queue else 2)) for one in RESOURCES}
    keeps = draw(st.sampled_from([False, False, True])) and parent is not None
    return Group(
        name=name,
        parent=parent,
        quota=quota,
        lent={one: draw(st.integers(0, 2)) for one in RESOURCES} if keeps else None,
        weight=draw(st.sampled_from([1.0, 1.0, 0.5, 2.0, 0.0])),
        is_queue=is_queue,
    )


_BY_AMOUNT = CandidateOrder.LOSS_PER_AMOUNT


def _keys(names: frozenset[str] | None) -> frozenset[WorkloadKey] | None:
    return None if names is None else frozenset(WorkloadKey(NAMESPACE, name) for name in names)


class _Case:
    """The cluster of a plain search in an engine: its snapshot, and the Workload that needs room."""

    def __init__(self, plain: PlainSearch, *others: Job, policy: AdmissionPolicy | None = None) -> None:
        engine = Engine()
        values: list[Any] = [Namespace(name=NAMESPACE), ResourceFlavor(name="default")]
        values += [policy] if policy is not None else []
        for group in plain.groups.values():
            values.append(_spec(group, plain.rules))
            if group.is_queue:
                values.append(LocalQueue(namespace=NAMESPACE, name=group.name, cluster_queue=group.name))
        values += [_held(job) for job in plain.jobs]
        values += [_pending(job) for job in (plain.incoming, *others)]
        for value in values:
            engine.objects.upsert(value, now=100.0)
        engine.wake_heads(now=100.0)
        heads = engine._workload_store.trees.pop_heads(256)
        self.heads: dict[str, tuple[QueueState, Pending]] = {queue.name: (queue, one) for queue, one in heads}
        pending = self.heads[plain.incoming.queue][1]
        self.snapshot: Snapshot = engine._cache.snapshot(now=100.0)
        self.before = self.usage()
        self.need = PreemptionRequest(
            queue=self.snapshot.queues[plain.incoming.queue],
            pending=pending,
            usage={FlavorResource("default", one): count for one, count in plain.incoming.amounts.items()},
            pairs=frozenset(FlavorResource("default", one) for one in plain.needed),
            losses=EvictionLosses(now=100.0),
            order=CandidateOrder.KUEUE,
            within=_keys(plain.within),
            most_taken=plain.most_taken,
        )
        if plain.loss_of is not None:
            self.need = replace(self.need, order=_BY_AMOUNT if plain.is_per_amount else CandidateOrder.LOSS)

    def usage(self) -> dict[tuple[str, str], int]:
        """Return what each queue uses, and each Cohort above it."""
        nodes = [one.node for one in self.snapshot.queues.values()]
        every = {id(node): node for one in nodes for node in (one, *one.ancestors())}.values()
        return {(node.name, str(pair)): cell.usage for node in every for pair, cell in node.cells.items()}

    def names(self, targets: tuple[Target, ...]) -> Found:
        """Return the victims by name, once the snapshot is found to be as it was."""
        assert self.usage() == self.before
        assert not self.snapshot.trial.is_open
        return [(one.held.key.name, one.reason) for one in targets]


def _spec(group: Group, rules: Preemption) -> ClusterQueue | Cohort:
    quotas = {
        one: ResourceQuota(nominal=count, lending_limit=None if group.lent is None else group.lent[one])
        for one, count in group.quota.items()
    }
    shared: dict[str, Any] = {
        "name": group.name,
        "resource_groups": (
            ResourceGroup(
                covered_resources=RESOURCES, flavors=(FlavorQuotas(name="default", resources=quotas),)
            ),
        ),
        "fair_weight_milli": int(group.weight * 1000),
    }
    if not group.is_queue:
        return Cohort(parent=group.parent, **shared)
    return ClusterQueue(cohort=group.parent, namespace_selector=EVERY_NAMESPACE, preemption=rules, **shared)


def _pending(job: Job) -> Workload:
    pods = make_pod_set(requests=job.amounts)
    return make_workload(job.name, queue=job.queue, pod_sets=(pods,), priority=job.priority, at=job.queued_at)


def _held(job: Job) -> Workload:
    workload = reserved(_pending(job), at=job.started_at)
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=50.0)
    return with_conditions(workload, evicted) if job.is_leaving else workload


@trying(120)
@given(searches(), st.sampled_from([(_FINAL, _INITIAL), (_FINAL,), (_INITIAL,)]))
def test_under_fair_sharing_the_victims_are_those_of_the_definition(
    plain: PlainSearch, rules: tuple[FairRule, ...]
) -> None:
    case = _Case(plain)

    found = case.names(finish(fair_targets(case.snapshot, case.need, FairPreemption(rules=rules))))

    assert found == plain.fair(final=_FINAL in rules, initial=_INITIAL in rules)


@trying(120)
@given(searches())
def test_without_fair_sharing_the_victims_are_those_of_the_definition(plain: PlainSearch) -> None:
    case = _Case(plain)

    found = case.names(finish(classical_targets(case.snapshot, case.need, Pools(case.snapshot))))

    assert found == plain.classical()


@trying(120)
@given(
    searches(),
    st.sampled_from(CandidateOrder),
    _SOME,
    st.none() | st.integers(1, 3),
)
def test_victims_by_loss_those_of_some_and_few_are_found_likewise(
    plain: PlainSearch, order: CandidateOrder, within: frozenset[int] | None, most_taken: int | None
) -> None:
    if order is not CandidateOrder.KUEUE:
        # None reports checkpoints, so all work is lost.
        plain.loss_of = lambda job: max(1, job.amounts["gpu"]) * (100 - job.started_at + 30)
        plain.is_per_amount = order is _BY_AMOUNT
    plain.within = None if within is None else frozenset(f"r{number}" for number in within)
    plain.most_taken = most_taken
    # No search begins where it fits without evictions: by loss the definition then puts back every victim.
    assume(not plain.fits(is_borrowing=True))
    case = _Case(plain)

    found = case.names(finish(classical_targets(case.snapshot, case.need, Pools(case.snapshot))))

    assert found == plain.classical()


@trying(100)
@given(searches(), st.sampled_from(RESOURCES), st.integers(1, 6), st.booleans())
def test_a_flavor_is_graded_by_its_victims_and_by_how_far_it_borrows_without_them(
    plain: PlainSearch, resource: str, amount: int, is_fair: bool
) -> None:
    case = _Case(plain)
    sharing = FairPreemption() if is_fair else None
    preemptor = Preemptor(snapshot=case.snapshot, losses=EvictionLosses(now=100.0), fair_sharing=sharing)
    pair = FlavorResource("default", resource)
    plain.incoming = plain.incoming._replace(amounts={resource: amount})
    plain.needed = frozenset({resource})

    has_none = preemptor.finds_no_victim(*case.heads["q0"], [pair])
    grade = preemptor.grade(*case.heads["q0"], pair, amount, 7)

    found = plain.fair(final=True, initial=True) if is_fair else plain.classical()
    if found:
        assert not has_none
        plain.gone = {name for name, _ in found}
        is_own = any(reason is PreemptionReason.IN_CLUSTER_QUEUE for _, reason in found)
        mode = Granular.PREEMPT if is_own else Granular.RECLAIM
        assert grade == Grade(mode, plain.borrow_height(resource, amount))
    else:
        assert grade == Grade(Granular.NO_CANDIDATES, 7)
    assert case.usage() == case.before


_OTHERS = st.lists(
    st.builds(
        Job,
        name=st.just(""),
        queue=st.sampled_from(QUEUES[1:]),
        amounts=_amounts(6, least=2),
        priority=st.integers(1, 2),
        queued_at=st.sampled_from([5.0, 12.0]),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda job: job.queue,
)


@trying(100)
@given(searches(), _OTHERS, st.booleans(), st.booleans(), st.data())
def test_what_was_found_before_changes_no_answer(
    plain: PlainSearch, others: list[Job], is_fair: bool, has_policy: bool, data: st.DataObject
) -> None:
    """A preemptor that is asked for one head after another, while the cycle decides, answers as a new one."""
    policy = AdmissionPolicy(name="policy", uid="p", preemption=PreemptionRules(minimum_runtime_seconds=0))
    named = [job._replace(name=f"{job.queue}-head") for job in others]
    case = _Case(plain, *named, policy=policy if has_policy else None)
    sharing = FairPreemption() if is_fair else None
    preemptor = Preemptor(snapshot=case.snapshot, losses=EvictionLosses(now=100.0), fair_sharing=sharing)
    asked = {job.queue: job.amounts for job in (plain.incoming, *named)}
    running = [(queue, held) for queue in case.snapshot.queues.values() for held in queue.held.values()]

    for _ in range(6):
        name = data.draw(st.sampled_from(sorted(case.heads)))
        queue, pending = case.heads[name]
        usage = {FlavorResource("default", one): count for one, count in asked[name].items()}
        pairs = data.draw(st.sampled_from([frozenset(usage), *(frozenset({pair}) for pair in usage)]))
        assignment: Any = SimpleNamespace(usage=usage, preempting=lambda pairs=pairs: pairs, placing=())
        fresh = Preemptor(snapshot=case.snapshot, losses=EvictionLosses(now=100.0), fair_sharing=sharing)
        answers = [
            [(one.held.key.name, one.reason) for one in finish(asked_one.targets(queue, pending, assignment))]
            for asked_one in (preemptor, fresh)
        ]
        assert answers[0] == answers[1]
        pair = data.draw(st.sampled_from(sorted(usage)))
        amount = data.draw(st.integers(1, 4))
        grades = [one.grade(queue, pending, pair, amount, 0) for one in (preemptor, fresh)]
        assert grades[0] == grades[1]
        assert preemptor.finds_no_victim(queue, pending, pairs) is fresh.finds_no_victim(
            queue, pending, pairs
        )
        is_evicting, is_reserving = data.draw(st.tuples(st.booleans(), st.booleans()))
        if running and is_evicting:
            case.snapshot.evictions.evict(*running.pop(data.draw(st.integers(0, len(running) - 1))))
        elif is_reserving:
            case.snapshot.trial.reserve(queue, usage)
