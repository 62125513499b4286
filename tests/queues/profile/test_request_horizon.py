"""The horizon of a request: which claims count for it, in time and by spot."""

from __future__ import annotations

from math import inf

import pytest

from queues.profile.capacity_profile import BEGIN, RELEASE, CapacityProfile, Claim, Edge, Spot
from queues.profile.request_horizon import RequestHorizon
from tests.queues.profile.small_cluster import HOSTS, horizon_of, make_claim, stage_and_profile

# One running claim on each of the first two hosts, and one promise on the second and third.
SOON = make_claim("soon", "a", 2, hosts=[0], ends_at=10)
LATE = make_claim("late", "a", 2, hosts=[1], ends_at=20)
PROMISE = make_claim("promise", "b", 4, hosts=[1, 2], begins_at=25, ends_at=40)
# A request may know that the Workload `late` is being evicted.
EVICTED = make_claim("late", "a", 2, hosts=[1], ends_at=5)


def release_of(claim: Claim) -> Edge:
    return claim.ends_at, RELEASE, claim.holder, claim


def begin_of(claim: Claim) -> Edge:
    return claim.begins_at, BEGIN, claim.holder, claim


def profile_of(*claims: Claim) -> CapacityProfile:
    return stage_and_profile(claims)[1]


def names(edges: object) -> list[tuple[str, float]]:
    assert isinstance(edges, list)
    return [(holder.name, at) for at, _, holder, _ in edges]


@pytest.mark.parametrize(
    ("now", "want"),
    [
        pytest.param(9, [("soon", 10), ("late", 20), ("promise", 25), ("promise", 40)], id="none is past"),
        pytest.param(10, [("late", 20), ("promise", 25), ("promise", 40)], id="an end at now is past"),
        pytest.param(22, [("promise", 25), ("promise", 40)], id="all ends up to now are past"),
        pytest.param(30, [("promise", 25), ("promise", 40)], id="a begin in the past counts as begun"),
        pytest.param(40, [("promise", 25)], id="even the end of a promise is past"),
    ],
)
def test_from_now_on_ends_of_the_past_are_ignored(now: float, want: list[tuple[str, float]]) -> None:
    profile = profile_of(SOON, LATE, PROMISE)

    horizon = horizon_of(profile).since(now)

    assert names(list(horizon.edges)) == want
    at_hosts = {one for spot in HOSTS for one in names(list(horizon.at_spot(spot)))}
    assert at_hosts == set(want)


def test_a_horizon_without_ends_in_the_past_is_used_as_it_is() -> None:
    horizon = horizon_of(profile_of(LATE, make_claim("begun", "b", 1, begins_at=-3, ends_at=50)))

    assert horizon.since(0) is horizon


def test_claims_that_are_left_out_stay_left_out_from_now_on() -> None:
    profile = profile_of(SOON, LATE, PROMISE)
    edges = [release_of(SOON), release_of(LATE)]

    horizon = RequestHorizon(edges=edges, profile=profile, left_out=[PROMISE]).since(10)

    assert list(horizon.edges) == [release_of(LATE)]
    assert list(horizon.at_spot(HOSTS[1])) == [release_of(LATE)]
    assert list(horizon.at_spot(HOSTS[2])) == []


def test_the_begins_are_found_by_their_positions() -> None:
    second = make_claim("second", "b", 1, begins_at=15, ends_at=30)

    assert horizon_of(profile_of(SOON, LATE, PROMISE, second)).begins() == [1, 3]
    assert horizon_of(profile_of(SOON, LATE)).begins() == []


@pytest.mark.parametrize(
    ("last", "seconds", "want"),
    [
        pytest.param(9, 1, [], id="nothing changes before the first end"),
        pytest.param(10, 1, [0], id="an end at the last instant counts"),
        pytest.param(9, 11, [], id="an end while the request runs does not matter"),
        pytest.param(10, 14, [0], id="a promise after the request does not matter"),
        pytest.param(10, 15, [0, 1, 2], id="a promise just when the request ends is looked at"),
        pytest.param(20, 1, [0, 1], id="all ends up to the last instant count"),
        pytest.param(40, 1, [0, 1, 2, 3], id="every spot of the profile where all edges count"),
    ],
)
def test_the_spots_that_matter_for_a_request(last: float, seconds: float, want: list[int]) -> None:
    after = make_claim("after", "b", 2, hosts=[3], begins_at=40, ends_at=inf)
    horizon = horizon_of(profile_of(SOON, LATE, PROMISE, after))

    assert set(horizon.spots_until(last, seconds=seconds)) == {HOSTS[index] for index in want}


def test_a_promise_too_late_ends_the_look_at_the_spots_that_are_taken() -> None:
    later = make_claim("later", "b", 2, hosts=[3], begins_at=60, ends_at=70)
    horizon = horizon_of(profile_of(SOON, PROMISE, later))

    assert set(horizon.spots_until(10, seconds=20)) == {HOSTS[0], HOSTS[1], HOSTS[2]}


@pytest.mark.parametrize(
    ("horizon", "want"),
    [
        pytest.param(RequestHorizon(edges=[release_of(SOON)]), [0], id="its own where there is no profile"),
        pytest.param(
            RequestHorizon(edges=[release_of(LATE)], profile=profile_of(LATE)), [1], id="the profile's"
        ),
        pytest.param(
            RequestHorizon(edges=[release_of(SOON)], profile=profile_of(LATE), put_in=[release_of(SOON)]),
            [0, 1],
            id="the profile's and those of edges that are put in",
        ),
    ],
)
def test_the_spots_that_may_change(horizon: RequestHorizon, want: list[int]) -> None:
    assert set(horizon.spots()) == {HOSTS[index] for index in want}


def test_the_edges_of_one_spot_are_those_that_count_in_order_of_time() -> None:
    profile = profile_of(SOON, LATE, PROMISE)
    extra = make_claim("extra", "b", 2, hosts=[1], begins_at=6, ends_at=8)
    put_in = [release_of(EVICTED), begin_of(extra), release_of(extra)]
    horizon = RequestHorizon(edges=(), profile=profile, left_out=[LATE], put_in=put_in)

    assert list(horizon.at_spot(HOSTS[0])) == [release_of(SOON)]
    assert list(horizon.at_spot(HOSTS[1])) == [*put_in, begin_of(PROMISE), release_of(PROMISE)]
    assert list(horizon.at_spot(HOSTS[3])) == []


def test_only_the_claims_left_out_are_missing_at_a_spot_of_several() -> None:
    other = make_claim("other", "b", 1, hosts=[2], begins_at=50, ends_at=60)
    profile = profile_of(LATE, PROMISE, other)
    horizon = RequestHorizon(edges=(), profile=profile, left_out=[PROMISE, LATE])

    assert list(horizon.at_spot(HOSTS[1])) == []
    assert list(horizon.at_spot(HOSTS[2])) == [begin_of(other), release_of(other)]


def stamp_at(horizon: RequestHorizon, spot: Spot) -> object:
    return horizon.stamp(spot, horizon.at_spot(spot))


def test_a_spot_has_the_stamp_of_the_profile_where_no_edge_differs() -> None:
    profile = profile_of(SOON, LATE, PROMISE)
    horizon = RequestHorizon(edges=(), profile=profile, left_out=[PROMISE])

    assert stamp_at(horizon, HOSTS[0]) is profile.stamp(HOSTS[0])
    assert stamp_at(horizon, HOSTS[1]) is None
    assert RequestHorizon(edges=[release_of(SOON)]).stamp(HOSTS[0], [release_of(SOON)]) is None


def test_a_spot_has_no_stamp_from_the_instant_at_which_an_end_there_is_ignored() -> None:
    profile = profile_of(SOON, LATE)

    assert stamp_at(horizon_of(profile).since(10), HOSTS[0]) is None
    assert stamp_at(horizon_of(profile).since(10), HOSTS[1]) is profile.stamp(HOSTS[1])


def test_a_spot_that_no_edge_names_has_no_edges() -> None:
    assert list(RequestHorizon(edges=[release_of(SOON)]).at_spot(HOSTS[3])) == []
