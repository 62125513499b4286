"""What placed Workloads take of the nodes: taken, given back, asked about, and checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.placement.topology.place import Place
from admission.placement.topology_usage import TopologyUsage
from queues.profile.capacity_profile import Spot, Spots
from tests.admission.snapshot.small_cluster import SmallCluster, make_cluster

N1: Spot = ("", ("n1",))
N2: Spot = ("", ("n2",))
N3: Spot = ("", ("n3",))
GONE: Spot = ("", ("n9",))


def usage_of(cluster: SmallCluster) -> TopologyUsage:
    return cluster.snapshot.topology_cache.usage


def free(cluster: SmallCluster) -> list[int]:
    return cluster.usage()[1]


def test_places_are_taken_and_given_back_and_those_of_a_lost_flavor_count_nowhere() -> None:
    cluster = make_cluster()
    usage, places = usage_of(cluster), cluster.held("v1").places
    lost = [replace(place, flavor="lost") for place in places]

    usage.use([*places, *lost], sign=1)
    assert free(cluster) == [2, 4, 2]
    usage.use([*lost, *places], sign=-1)
    usage.use(places, sign=-1)

    assert free(cluster) == [6, 4, 6]


def test_the_spots_of_places_add_up_by_host_and_those_of_a_lost_flavor_are_missing() -> None:
    cluster = make_cluster()
    places = [*cluster.held("v1").places, *cluster.held("v2").places]

    spots = usage_of(cluster).spots([replace(places[0], flavor="lost"), *places])

    assert {spot: amounts["gpu"] for spot, amounts in spots.items()} == {N1: 4, N2: 2, N3: 2}


@pytest.mark.parametrize(
    ("times", "fits"),
    [
        pytest.param(1, True, id="once"),
        pytest.param(2, True, id="twice, which takes all that is free"),
        pytest.param(3, False, id="not three times"),
    ],
)
def test_places_fit_together(times: int, fits: bool) -> None:
    cluster = make_cluster()
    places = [*cluster.held("v1").places] * times

    assert usage_of(cluster).fits(places) is fits


def test_places_of_a_lost_flavor_do_not_fit() -> None:
    cluster = make_cluster()
    place: Place = replace(cluster.held("v1").places[0], flavor="lost")

    assert not usage_of(cluster).fits([place])


@pytest.mark.parametrize(
    ("spots", "has_free", "has_nodes"),
    [
        pytest.param({}, True, True, id="no spot"),
        pytest.param({N1: {"gpu": 4}, N2: {"gpu": 1}}, True, True, id="spots with just enough"),
        pytest.param({N1: {"gpu": 1}, N2: {"gpu": 5}}, False, True, id="a spot with one too few"),
        pytest.param({N1: {"gpu": -9, "other": 0}}, True, True, id="amounts that are given back or zero"),
        pytest.param({N1: {"gpu": 1}, GONE: {"gpu": 1}}, False, False, id="a node that is absent"),
        pytest.param({("lost", ("n1",)): {"gpu": 1}}, False, False, id="a leaf of a flavor that is absent"),
    ],
)
def test_what_is_free_of(spots: Spots, has_free: bool, has_nodes: bool) -> None:
    cluster = make_cluster()

    assert usage_of(cluster).has_free(spots) is has_free
    assert usage_of(cluster).has_nodes(spots) is has_nodes


def test_spots_are_occupied_within_the_block_alone_even_where_it_raises() -> None:
    cluster = make_cluster()
    spots: Spots = {N1: {"gpu": 3}, N2: {"gpu": -2}, ("lost", ("n1",)): {"gpu": 1}}

    within = []

    def interrupted() -> None:
        with usage_of(cluster).occupied(spots):
            within.append(free(cluster))
            raise InterruptedError

    with pytest.raises(InterruptedError):
        interrupted()
    assert within == [[1, 6, 4]]
    assert free(cluster) == [4, 4, 4]


def test_usage_that_is_not_the_sum_over_the_places_is_noticed() -> None:
    cluster = make_cluster()
    usage = usage_of(cluster)
    places = [place for name in ("v1", "v2", "v3") for place in cluster.held(name).places]
    usage.validate(places)

    with pytest.raises(AssertionError, match="its Workloads hold"):
        usage.validate(places[1:])
    usage.occupy({N1: {"gpu": 1}})
    with pytest.raises(AssertionError, match="its Workloads hold"):
        usage.validate(places)
