"""The evictions of a cycle: which Workloads are gone, and what the state is with and without them."""

from __future__ import annotations

import pytest

from admission.snapshot.usage_overlay import UsageOverlay
from queues.profile.capacity_profile import Spots
from tests.admission.snapshot.small_cluster import GPU, PRESENT, SmallCluster, key_of, make_cluster


def evicting(*names: str) -> SmallCluster:
    cluster = make_cluster()
    for name in names:
        cluster.snapshot.evictions.evict(*cluster.taken(name))
    return cluster


def with_holds(*, used: int = -4, on_n1: int = -2, on_n3: int = -2) -> SmallCluster:
    """Return the cluster as if v1 had left for a Workload that takes the rest of its usage."""
    cluster = make_cluster()
    spots: Spots = {("", ("n1",)): {"gpu": on_n1}, ("", ("n3",)): {"gpu": on_n3}}
    overlay = UsageOverlay(usage=((cluster.queues["a"].node, {GPU: used}),), spots=spots)
    cluster.snapshot.evictions.apply_holds(overlay, {key_of("v1"): cluster.taken("v1")})
    return cluster


def test_an_evicted_workload_is_gone_with_its_usage_for_the_rest_of_the_cycle() -> None:
    cluster = evicting("v1", "v2")
    evictions = cluster.snapshot.evictions

    assert cluster.usage() == ([4, 0], [8, 6, 6])
    assert evictions.gone == {key_of("v1"), key_of("v2")}
    assert list(evictions.leaving()) == [cluster.taken("v1"), cluster.taken("v2")]
    assert [evictions.is_gone(cluster.held(name)) for name in ("v1", "v2", "v3")] == [True, True, False]
    assert cluster.snapshot.trial.decided == 2
    assert not cluster.snapshot.trial.is_open


def test_the_usage_of_the_evicted_is_that_of_one_queue_and_one_resource() -> None:
    cluster = evicting("v1", "v2", "v3")
    evictions, other = cluster.snapshot.evictions, GPU._replace(resource="cpu")

    assert [evictions.usage(cluster.queues[name], GPU) for name in "ab"] == [8, 4]
    assert evictions.usage(cluster.queues["a"], other) == 0


def test_a_workload_that_is_readmitted_is_back_with_its_usage() -> None:
    cluster = evicting("v1", "v2")

    cluster.snapshot.evictions.readmit(*cluster.taken("v1"))

    assert cluster.usage() == ([8, 0], [6, 6, 4])
    assert cluster.snapshot.evictions.gone == {key_of("v2")}
    with pytest.raises(KeyError):
        cluster.snapshot.evictions.readmit(*cluster.taken("v3"))


def test_at_the_end_of_the_cycle_none_is_gone() -> None:
    cluster = evicting("v1")

    cluster.snapshot.rollback()

    assert cluster.usage() == PRESENT
    assert cluster.snapshot.evictions.gone == frozenset()
    with cluster.snapshot.evictions.counted_again():
        assert cluster.usage() == PRESENT


def test_the_evicted_count_again_within_the_block_and_blocks_may_be_nested() -> None:
    cluster = evicting("v1", "v2")
    evictions = cluster.snapshot.evictions

    with evictions.counted_again():
        assert cluster.usage() == PRESENT
        with evictions.counted_again():
            assert cluster.usage() == ([12, 8], [0, 2, 2])
        assert cluster.usage() == PRESENT

    assert cluster.usage() == ([4, 0], [8, 6, 6])


def test_capacity_holds_apply_for_the_whole_cycle_and_their_victims_are_gone() -> None:
    cluster = with_holds(used=-1, on_n1=-1, on_n3=1)

    assert cluster.usage() == ([7, 4], [5, 4, 3])
    assert cluster.snapshot.evictions.gone == {key_of("v1")}
    assert cluster.snapshot.trial.decided == 1
    assert not cluster.snapshot.trial.is_open

    cluster.snapshot.rollback()
    assert cluster.usage() == PRESENT
    with cluster.snapshot.evictions.taken_back((), cluster.held("v1").places):
        assert cluster.usage() == PRESENT


def test_before_the_evictions_their_quota_is_back_in_full_and_only_the_nodes_that_are_named() -> None:
    cluster = evicting("v1", "v2", "v3")

    # Of the nodes n2 and n3; the Workload v1 is on n1 and n3, v2 on n2 and n1: each has one of them.
    with cluster.snapshot.evictions.taken_back((), cluster.held("v3").places):
        used, free = cluster.usage()
    assert used == [8, 4]
    assert free[1:] == [4, 4]

    with cluster.snapshot.evictions.taken_back((), ()):
        assert cluster.usage() == ([8, 4], [8, 8, 8])
    assert cluster.usage() == ([0, 0], [8, 8, 8])


def test_before_the_evictions_a_hold_counts_for_nothing_and_its_victim_once() -> None:
    cluster = with_holds(used=-1, on_n1=-1, on_n3=1)
    cluster.snapshot.evictions.evict(*cluster.taken("v3"))
    everywhere = [place for name in ("v1", "v2", "v3") for place in cluster.held(name).places]

    with cluster.snapshot.evictions.taken_back((), everywhere):
        assert cluster.usage() == PRESENT
    with cluster.snapshot.evictions.taken_back((), ()):
        assert cluster.usage() == ([8, 4], [5, 6, 5])

    assert cluster.usage() == ([3, 4], [5, 6, 5])


def test_before_the_evictions_the_expected_usage_counts_as_free() -> None:
    cluster = evicting("v1")
    (queue, other), places = cluster.taken("v3"), cluster.held("v1").places
    expected = [
        (queue, {GPU: 1}, ()),
        (queue, other.usage, other.places),
        (cluster.queues["b"], {GPU: 3}, ()),
    ]

    with cluster.snapshot.evictions.taken_back(expected, places):
        used, free = cluster.usage()

    assert used == [3, 1]
    # Both of its nodes come with it, since one of them is named.
    assert free == [4, 6, 6]
    assert cluster.usage() == ([4, 4], [6, 4, 6])
