"""Laws of choosing victims, for any cluster that is full enough to need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from admission.engine.engine import Engine, EngineSettings
from admission.nomination.nominate import CyclePolicy, Entry, Nominator
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.scheduler.scheduler import CycleRules, schedule
from api.queueing import LocalQueue, Namespace, PreemptionPolicy, ResourceFlavor
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import Quantities
from queues.steps import finish
from tests.builders import NAMESPACE, reserved
from tests.examples import trying
from tests.laws.generators import FLAVORS, QUEUES, cluster_queues, cohorts, workloads

_settings = trying(is_hard_to_draw=True)
_sharing = st.sampled_from([None, FairPreemption()])


@st.composite
def full_clusters(draw: st.DrawFn) -> list[Any]:
    """A cluster with many running Workloads, some over the quota, and some that wait."""
    queues = [draw(cluster_queues(name)) for name in QUEUES]
    values: list[Any] = [Namespace(name=NAMESPACE), *(ResourceFlavor(name=name) for name in FLAVORS)]
    for queue in queues:
        values += [queue, LocalQueue(namespace=NAMESPACE, name=queue.name, cluster_queue=queue.name)]
    values += draw(cohorts())
    for index in range(draw(st.integers(0, 10))):
        running = draw(workloads(f"r{index}", at=float(index)))
        values.append(reserved(running, flavor=draw(st.sampled_from(FLAVORS)), at=float(index)))
    for index in range(draw(st.integers(1, 6))):
        values.append(draw(workloads(f"w{index}", at=50.0 + index)))
    return values


def build(values: list[Any], sharing: FairPreemption | None) -> Engine:
    engine = Engine(EngineSettings(fair_sharing=sharing))
    for value in values:
        engine.objects.upsert(value, now=0)
    engine.validate()
    return engine


def usage(engine: Engine) -> dict[tuple[bool, str, str], int]:
    nodes: list[QuotaNode] = [
        *engine._cache.hierarchy.queues.values(),
        *engine._cache.hierarchy.cohorts.values(),
    ]
    return {
        (node.is_queue, node.name, str(pair)): cell.usage
        for node in nodes
        for pair, cell in (*node.cells.items(), *node.undeclared.items())
        if cell.usage
    }


def nominated(engine: Engine, sharing: FairPreemption | None) -> Iterator[Entry]:
    """Nominate every head on the snapshot as it is."""
    engine.wake_heads(now=0)
    snapshot = engine._cache.snapshot()
    preemptor = Preemptor(snapshot=snapshot, losses=EvictionLosses(now=0.0), fair_sharing=sharing)
    for queue, pending in engine._workload_store.trees.pop_heads(256):
        policy = CyclePolicy(fair_sharing=sharing)
        nominator = Nominator(snapshot=snapshot, preemptor=preemptor, policy=policy)
        yield finish(nominator.nominate(queue, pending))


@_settings
@given(full_clusters(), _sharing)
def test_deciding_leaves_the_snapshot_unchanged(values: list[Any], sharing: FairPreemption | None) -> None:
    engine = build(values, sharing)
    engine.wake_heads(now=0)
    before = usage(engine)

    snapshot = engine._cache.snapshot()
    rules = CycleRules(policy=CyclePolicy(fair_sharing=sharing), now=0)
    for _ in schedule(snapshot, engine._workload_store.trees.pop_heads(256), rules):
        pass

    assert usage(engine) == before
    assert not snapshot.trial.is_open


@_settings
@given(full_clusters(), _sharing)
def test_the_victims_are_enough_and_none_of_them_could_stay(
    values: list[Any], sharing: FairPreemption | None
) -> None:
    engine = build(values, sharing)
    for entry in nominated(engine, sharing):
        if not entry.targets:
            continue
        node, need = entry.queue.node, entry.assignment.usage
        for target in entry.targets:
            target.queue.node.remove(target.held.usage)
        assert node.fits(need)
        takes_from_others = any(target.queue is not entry.queue for target in entry.targets)
        for target in entry.targets:
            target.queue.node.add(target.held.usage)
            assert not _fits(node, need, is_borrowing=not takes_from_others), f"{target.held.key} could stay"
            target.queue.node.remove(target.held.usage)
        for target in entry.targets:
            target.queue.node.add(target.held.usage)


def _fits(node: QuotaNode, need: Quantities, *, is_borrowing: bool) -> bool:
    """Return whether `need` fits; if others are evicted for it, only what fits without borrowing counts."""
    return node.fits(need) and (
        is_borrowing or not any(node.cell(pair).is_borrowing_with(amount) for pair, amount in need.items())
    )


@_settings
@given(full_clusters(), _sharing)
def test_no_victim_is_taken_that_the_policy_protects(
    values: list[Any], sharing: FairPreemption | None
) -> None:
    engine = build(values, sharing)
    for entry in nominated(engine, sharing):
        policies = entry.queue.spec.preemption
        for target in entry.targets:
            is_own = target.queue is entry.queue
            policy = policies.within_cluster_queue if is_own else policies.reclaim_within_cohort
            priority = entry.pending.workload.priority
            assert policy is not PreemptionPolicy.NEVER
            if policy is PreemptionPolicy.LOWER_PRIORITY:
                assert target.held.workload.priority < priority
            if policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY:
                assert target.held.workload.priority <= priority
            if not is_own:
                assert not target.queue.node.is_within_nominal(entry.assignment.preempting())


@_settings
@given(full_clusters(), st.data())
def test_the_quota_before_evictions_is_as_if_each_were_taken_back_by_itself(
    values: list[Any], data: st.DataObject
) -> None:
    engine = build(values, None)
    snapshot = engine._cache.snapshot()
    running = [(queue, held) for queue in snapshot.queues.values() for held in queue.held.values()]
    leaving = [one for one in running if data.draw(st.booleans())]
    for one in leaving:
        snapshot.evictions.evict(*one)
    expected = [(queue, held.usage, held.places) for queue, held in running if data.draw(st.booleans())]
    for kept in expected:
        snapshot.trial.reserve(*kept)
    decided = usage(engine)

    with snapshot.evictions.taken_back(expected, ()):
        found = usage(engine)

    assert usage(engine) == decided
    with snapshot.evictions.counted_again():
        for kept in expected:
            snapshot.trial.remove(*kept)
        assert found == usage(engine)
    snapshot.rollback()
    engine.validate()
