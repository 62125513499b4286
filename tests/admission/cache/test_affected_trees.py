"""A change of ClusterQueues builds their own trees again, and no other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from admission.cache.cache import Cache
from api.queueing import ClusterQueue, Cohort, ResourceFlavor
from tests.builders import World, admits, make_cluster_queue, make_cohort, make_workload, reserved

_COHORTS = (None, "a", "b", "c", "new")


def make_cache() -> Cache:
    """Return a cache with Cohorts `a` and `b` under `root`, `c` without a parent, and no queue."""
    cache = Cache()
    cache.specs.put_spec(ResourceFlavor(name="default"))
    for name, parent in (("root", None), ("a", "root"), ("b", "root"), ("c", None)):
        cache.specs.put_spec(make_cohort(name, parent=parent))
    cache.refresh()
    return cache


def put(cache: Cache, name: str, cohort: str | None, quota: int = 1) -> None:
    cache.specs.put_spec(make_cluster_queue(name, cohort=cohort, quota=quota))
    cache.refresh()


def described(cache: Cache) -> object:
    queues = {name: (queue.spec, queue.tree.describe()) for name, queue in cache.queues.items()}
    members = {name: [one.name for one in queue.tree.queues] for name, queue in cache.queues.items()}
    nodes = {name: node.path() for name, node in cache.hierarchy.queues.items()}
    cohorts = {name: node.path() for name, node in cache.hierarchy.cohorts.items()}
    return list(queues.items()), members, list(nodes.items()), list(cohorts.items())


_CHANGES = st.tuples(
    st.sampled_from(("q0", "q1", "q2", "q3")), st.sampled_from((*_COHORTS, "gone")), st.integers(0, 2)
)


@given(st.lists(st.lists(_CHANGES, min_size=1, max_size=3), max_size=8))
def test_trees_are_as_if_all_had_been_built_from_the_present_specs(
    bursts: list[list[tuple[str, str | None, int]]],
) -> None:
    cache = make_cache()
    for burst in bursts:
        for name, cohort, quota in burst:
            if cohort == "gone":
                cache.specs.remove_spec(ClusterQueue, name)
            else:
                cache.specs.put_spec(make_cluster_queue(name, cohort=cohort, quota=quota))
        cache.refresh()

        fresh = make_cache()
        for spec in cache.specs.cluster_queues.values():
            fresh.specs.put_spec(spec)
        fresh.refresh()
        assert described(cache) == described(fresh)
        cache.validate()


def test_queues_of_other_trees_are_kept() -> None:
    cache = make_cache()
    for name, cohort in (("one", "a"), ("beside", "b"), ("other", "c"), ("alone", None)):
        put(cache, name, cohort)
    before = dict(cache.queues)

    put(cache, "one", "a", quota=5)

    # `a` and `b` share a root.
    assert {name for name in before if cache.queues[name] is before[name]} == {"other", "alone"}


def test_a_queue_that_moves_concerns_the_tree_that_it_leaves_and_the_one_that_it_joins() -> None:
    cache = make_cache()
    for name, cohort in (("one", "a"), ("beside", "b"), ("other", "c"), ("alone", None)):
        put(cache, name, cohort)
    before = dict(cache.queues)

    put(cache, "one", "c")

    assert {name for name in before if cache.queues[name] is before[name]} == {"alone"}


def test_a_changed_cohort_builds_all_again() -> None:
    cache = make_cache()
    put(cache, "one", "a")
    put(cache, "alone", None)
    before = dict(cache.queues)

    cache.specs.put_spec(Cohort(name="c", parent="root"))
    cache.refresh()

    assert not any(cache.queues[name] is before[name] for name in before)


def test_usage_follows_a_queue_into_another_cohort_and_back() -> None:
    world = World().put(
        make_cluster_queue("lender", quota=2, cohort="a"),
        make_cluster_queue("other", quota=2, cohort="b"),
        make_cluster_queue("mover", quota=1, cohort="a"),
        reserved(make_workload("running", queue="mover", gpus=2)),
        make_workload("waiting", queue="lender", gpus=2),
    )
    assert admits(world.settle()) == []

    # What it borrowed is then borrowed from the other cohort, and `put` checks all sums.
    world.put(make_cluster_queue("mover", quota=1, cohort="b"))
    assert admits(world.settle()) == ["waiting"]

    world.put(make_workload("second", queue="other", gpus=2))
    assert admits(world.settle()) == []
    world.put(make_cluster_queue("mover", quota=1, cohort=None))
    assert admits(world.settle()) == ["second"]
