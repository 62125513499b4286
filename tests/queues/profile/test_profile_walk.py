"""A walk along the edges: what fits at its position, and which promise would be broken."""

from __future__ import annotations

from collections.abc import Iterable, KeysView
from dataclasses import dataclass
from math import inf

import pytest

from api.queueing import ResourceQuota
from api.workload import WorkloadKey
from queues.profile.capacity_profile import CapacityProfile, Claim, Rooms, Spots
from queues.profile.earliest_start import earliest
from queues.profile.profile_walk import (
    ClaimConflict,
    ProfileWalk,
    first_broken,
    first_broken_promise,
    fits_from,
    holds_at,
)
from queues.quota.quota_tree import QuotaNode
from queues.quota.resources import FlavorResource
from tests.queues.profile.small_cluster import (
    GPU,
    HOSTS,
    Stage,
    Trial,
    horizon_of,
    key,
    make_claim,
    stage_and_profile,
)

SMALL = make_claim("small", "b", 2, begins_at=10, ends_at=20)
WHOLE = make_claim("whole", "b", 8, begins_at=30, ends_at=40)
ON_HOST = make_claim("on host", "b", 1, hosts=[0], begins_at=10, ends_at=20)
OVERDUE = make_claim("overdue", "b", 6, begins_at=-5, ends_at=50)


@pytest.mark.parametrize(
    ("claims", "value", "until", "want"),
    [
        pytest.param([SMALL, WHOLE], make_claim("new", "a", 4), 30, None, id="none if it ends just then"),
        pytest.param(
            [SMALL, WHOLE], make_claim("new", "a", 4), 31, ClaimConflict(key("whole"), 30), id="the second"
        ),
        pytest.param(
            [SMALL, WHOLE],
            make_claim("new", "a", 7),
            inf,
            ClaimConflict(key("small"), 10),
            id="the first one of two",
        ),
        pytest.param(
            [ON_HOST], make_claim("new", "a", 1, hosts=[1]), inf, None, id="none on other hosts than its own"
        ),
        pytest.param(
            [ON_HOST],
            make_claim("new", "a", 1, hosts=[0]),
            inf,
            ClaimConflict(key("on host"), 10),
            id="one on its own host although there is quota for both",
        ),
        pytest.param(
            [make_claim("x", "b", 8, ends_at=5), SMALL],
            make_claim("new", "a", 6),
            inf,
            None,
            id="none where work ends before the promise begins",
        ),
        pytest.param(
            [OVERDUE], make_claim("new", "a", 2), inf, None, id="none beside one that should have begun"
        ),
        pytest.param(
            [OVERDUE],
            make_claim("new", "a", 3),
            inf,
            ClaimConflict(key("overdue"), 0),
            id="one that should have begun is broken now",
        ),
        pytest.param(
            [OVERDUE, make_claim("latest", "b", 1, begins_at=-2, ends_at=50)],
            make_claim("new", "a", 3),
            inf,
            ClaimConflict(key("latest"), 0),
            id="of two that should have begun, the later one",
        ),
    ],
)
def test_the_first_promise_that_is_broken(
    claims: list[Claim], value: Claim, until: float, want: ClaimConflict | None
) -> None:
    stage, profile = stage_and_profile(claims)
    before = stage.usage()

    found = first_broken(horizon_of(profile), stage, Trial(stage, "a", 1), value, now=0, until=until)

    assert found == want
    assert stage.usage() == before
    assert first_broken_promise(
        horizon_of(profile), stage, Trial(stage, "a", 1), value, now=0, until=until
    ) == (None if want is None else want.key)


def test_without_an_end_a_value_is_held_for_ever() -> None:
    stage, profile = stage_and_profile([make_claim("whole", "b", 8, begins_at=1e9, ends_at=2e9)])

    found = first_broken(horizon_of(profile), stage, Trial(stage, "a", 1), make_claim("new", "a", 1), now=7)

    assert found == ClaimConflict(key("whole"), 1e9)


@pytest.mark.parametrize(
    ("middle", "want"),
    [
        pytest.param(
            [make_claim("x", "b", 4, ends_at=15), make_claim("second", "b", 4, begins_at=16, ends_at=60)],
            None,
            id="a promise at less usage than an earlier one is kept like that",
        ),
        pytest.param(
            [make_claim("second", "b", 1, begins_at=16, ends_at=60)],
            ClaimConflict(key("second"), 16),
            id="a promise at more usage than an earlier one is tried",
        ),
        pytest.param(
            [make_claim("x", "b", 4, ends_at=15), make_claim("second", "b", 5, begins_at=16, ends_at=60)],
            ClaimConflict(key("second"), 16),
            id="a promise at more usage is tried even after work ended",
        ),
    ],
)
def test_beside_an_earlier_promise_of_four_devices(middle: list[Claim], want: ClaimConflict | None) -> None:
    first = make_claim("first", "b", 4 - sum(4 for one in middle if one.is_running), begins_at=10, ends_at=90)
    stage, profile = stage_and_profile([first, *middle])

    found = first_broken(horizon_of(profile), stage, Trial(stage, "a", 1), make_claim("new", "a", 4), now=0)

    assert found == want


def test_a_value_and_a_promise_share_one_of_several_hosts() -> None:
    promises = [
        make_claim("elsewhere", "b", 1, hosts=[3], begins_at=5, ends_at=9),
        make_claim("shared", "b", 1, hosts=[2, 1], begins_at=10, ends_at=20),
    ]
    stage, profile = stage_and_profile(promises)
    before = stage.usage()

    found = first_broken(
        horizon_of(profile), stage, Trial(stage, "a", 1), make_claim("new", "a", 1, hosts=[0, 1]), now=0
    )

    assert found == ClaimConflict(key("shared"), 10)
    assert stage.usage() == before


# --- starts now, and promises that are verified -----------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "amount", "hosts", "seconds", "want_hosts"),
    [
        pytest.param([], 8, 0, inf, [], id="all of an idle cluster"),
        pytest.param([make_claim("x", "a", 1)], 8, 0, 1, None, id="not what running work takes"),
        pytest.param([WHOLE], 1, 0, 30, [], id="what ends just when a promise begins"),
        pytest.param([WHOLE], 1, 0, 31, None, id="not what would reach into a promise"),
        pytest.param([OVERDUE], 3, 0, 1, None, id="not what a promise that should have begun takes"),
        pytest.param([OVERDUE], 2, 0, 1, [], id="what such a promise leaves"),
        pytest.param([ON_HOST], 4, 2, 11, [1, 2], id="the hosts that are free throughout"),
        pytest.param([ON_HOST], 4, 2, 10, [0, 1], id="the hosts that are promised only afterwards"),
        pytest.param([ON_HOST], 8, 4, 11, None, id="not more hosts than are free throughout"),
        pytest.param(
            [make_claim("x", "a", 1, hosts=[0], ends_at=-1)], 8, 4, 1, None, id="not hosts of overdue work"
        ),
    ],
)
def test_what_may_start_now(
    claims: list[Claim], amount: int, hosts: int, seconds: float, want_hosts: list[int] | None
) -> None:
    stage, profile = stage_and_profile(claims)
    before = stage.usage()

    found = fits_from(horizon_of(profile), stage, Trial(stage, "a", amount, hosts), now=0, seconds=seconds)

    assert (None if found is None else set(found.spots)) == (
        None if want_hosts is None else {HOSTS[index] for index in want_hosts}
    )
    assert stage.usage() == before


@dataclass
class Unsearchable(Trial):
    """Fails the test where a search for nodes begins."""

    def find(self) -> Claim | None:
        pytest.fail("single nodes or quota already showed that nothing fits")


@pytest.mark.parametrize(
    "trial_of",
    [
        pytest.param(lambda stage: Unsearchable(stage, "a", 1, hosts=4), id="single nodes have no room"),
        pytest.param(lambda stage: Unsearchable(stage, "a", 9), id="quota does not suffice"),
    ],
)
def test_no_search_begins_where(trial_of: object) -> None:
    assert callable(trial_of)
    stage, profile = stage_and_profile([make_claim("x", "b", 1, hosts=[3], ends_at=10)])

    assert fits_from(horizon_of(profile), stage, trial_of(stage), now=0, seconds=1) is None


@pytest.mark.parametrize(
    ("at", "seconds", "value", "want"),
    [
        pytest.param(0, 10, make_claim("new", "a", 4), True, id="now beside the running work"),
        pytest.param(0, 10, make_claim("new", "a", 5), False, id="not now with more than is free"),
        pytest.param(12, 10, make_claim("new", "a", 8), True, id="at the very end of the running work"),
        pytest.param(11, 10, make_claim("new", "a", 5), False, id="not before that end"),
        pytest.param(12, 18, make_claim("new", "a", 1), True, id="up to the begin of the next promise"),
        pytest.param(12, 19, make_claim("new", "a", 1), False, id="not into the next promise"),
        pytest.param(0, 10, make_claim("new", "a", 1, hosts=[1]), True, id="on a free host"),
        pytest.param(0, 10, make_claim("new", "a", 1, hosts=[0]), False, id="not on a taken host"),
        pytest.param(12, 10, make_claim("new", "a", 1, hosts=[0]), True, id="on a host that is free then"),
    ],
)
def test_a_promise_holds(at: float, seconds: float, value: Claim, want: bool) -> None:
    stage, profile = stage_and_profile([make_claim("x", "b", 4, hosts=[0], ends_at=12), WHOLE])
    before = stage.usage()

    held = holds_at(horizon_of(profile), stage, Trial(stage, "a", 1), value, at=at, seconds=seconds)

    assert held is want
    assert stage.usage() == before


def test_a_promise_holds_although_an_end_before_it_is_overdue() -> None:
    stage, profile = stage_and_profile([make_claim("x", "b", 8, ends_at=-1)])

    assert holds_at(
        horizon_of(profile), stage, Trial(stage, "a", 1), make_claim("new", "a", 8), at=0, seconds=10
    )


# --- quota windows of the calendar -------------------------------------------------------------------------

OTHER_GPU = FlavorResource("other", "gpu")


@dataclass
class FirstFlavor:
    """The trial of a request for `amount` devices of the first of two flavors that has quota for them."""

    stage: Stage
    amount: int

    def may_have_quota(self) -> bool:
        return any(self.stage.queues["a"].fits({pair: self.amount}) for pair in (GPU, OTHER_GPU))

    def rooms(self) -> Rooms:
        return []

    def pairs_of(self, value: FlavorResource) -> KeysView[FlavorResource]:
        return {value: self.amount}.keys()

    def spots_of(self, value: FlavorResource) -> Spots:
        del value
        return {}

    def find(self) -> FlavorResource | None:
        fits = [pair for pair in (GPU, OTHER_GPU) if self.has_quota(pair)]
        return fits[0] if fits else None

    def has_quota(self, value: FlavorResource) -> bool:
        return self.stage.queues["a"].fits({value: self.amount})

    def has_spots(self, value: FlavorResource) -> bool:
        del value
        return True


def window(
    pair: FlavorResource, amount: int, *, begins_at: float, ends_at: float = inf, lead_seconds: float = inf
) -> Claim:
    """Return a quota window that lowers the nominal quota of queue a."""
    return Claim(
        holder=WorkloadKey("", f"{pair.flavor}-{begins_at}"),
        queue="a",
        usage={},
        quota={pair: amount},
        begins_at=begins_at,
        ends_at=ends_at,
        lead_seconds=lead_seconds,
    )


def promise(pair: FlavorResource, amount: int, *, begins_at: float) -> Claim:
    """Return a promised start in queue a."""
    return Claim(holder=WorkloadKey("team", "promised"), queue="a", usage={pair: amount}, begins_at=begins_at)


def two_flavors(claims: Iterable[Claim]) -> tuple[Stage, CapacityProfile]:
    quotas = {GPU: ResourceQuota(nominal=4), OTHER_GPU: ResourceQuota(nominal=4)}
    queue = QuotaNode("a", is_queue=True, quotas=quotas, weight_milli=1000)
    queue.build()
    profile = CapacityProfile()
    for claim in claims:
        profile.put(claim)
    return Stage({"a": queue}), profile


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        pytest.param([], GPU, id="the first flavor if nothing is to come"),
        pytest.param([window(GPU, 2, begins_at=10)], OTHER_GPU, id="not the flavor that is about to shrink"),
        pytest.param([window(GPU, 1, begins_at=10)], GPU, id="a flavor that shrinks and still suffices"),
        pytest.param([window(GPU, 2, begins_at=20)], GPU, id="a flavor that shrinks only afterwards"),
        pytest.param(
            [window(GPU, 2, begins_at=10), window(OTHER_GPU, 2, begins_at=12)],
            None,
            id="nothing where both shrink, one after the other",
        ),
        pytest.param(
            [window(GPU, 2, begins_at=10), window(OTHER_GPU, 1, begins_at=12)],
            OTHER_GPU,
            id="the flavor that still suffices where both shrink",
        ),
        pytest.param(
            [window(GPU, 2, begins_at=10, lead_seconds=9)],
            GPU,
            id="a flavor that shrinks more than its lead from now",
        ),
        pytest.param(
            [window(GPU, 2, begins_at=10, lead_seconds=10)],
            OTHER_GPU,
            id="not a flavor that shrinks just its lead from now",
        ),
        pytest.param(
            [window(GPU, 2, begins_at=10, lead_seconds=9), promise(OTHER_GPU, 2, begins_at=12)],
            GPU,
            id="a flavor that shrinks more than its lead from now, while another is promised",
        ),
        pytest.param(
            [window(GPU, 2, begins_at=10, lead_seconds=9), promise(GPU, 2, begins_at=12)],
            None,
            id="nothing where what a flavor shrinks to is promised",
        ),
    ],
)
def test_with_quota_windows_a_request_for_three_devices_takes(
    claims: list[Claim], want: FlavorResource | None
) -> None:
    stage, profile = two_flavors(claims)
    trial = FirstFlavor(stage, 3)

    assert fits_from(horizon_of(profile), stage, trial, now=0, seconds=20) == want
    # The stage shows the present again.
    assert [stage.queues["a"].fits({pair: 4}) for pair in (GPU, OTHER_GPU)] == [True, True]


def test_a_window_that_shrinks_a_flavor_is_no_reason_to_break_a_promise_of_the_other() -> None:
    promise = Claim(holder=key("promise"), queue="a", usage={OTHER_GPU: 2}, begins_at=15, ends_at=30)
    stage, profile = two_flavors([window(GPU, 2, begins_at=10), promise])

    assert fits_from(horizon_of(profile), stage, FirstFlavor(stage, 3), now=0, seconds=20) is None
    assert fits_from(horizon_of(profile), stage, FirstFlavor(stage, 3), now=0, seconds=15) == OTHER_GPU


# --- moving ------------------------------------------------------------------------------------------------


def walk_of(
    stage: Stage, profile: CapacityProfile, trial: Trial, *, seconds: float = inf
) -> ProfileWalk[Claim]:
    return ProfileWalk(horizon_of(profile), stage=stage, trial=trial, at=0, seconds=seconds)


def test_a_walk_shows_the_state_at_its_position_forward_and_back() -> None:
    stage, profile = stage_and_profile(
        [make_claim("x", "b", 2, hosts=[0], ends_at=5), make_claim("p", "b", 4, hosts=[0, 1], begins_at=8)]
    )
    before = stage.usage()
    walk = walk_of(stage, profile, Trial(stage, "a", 1))
    shown = []

    for at in (0, 5, 8, 7, 4, 8):
        walk.go_to_time(at)
        walk.find()
        shown.append(
            (walk.due(), stage.queues["b"].cell(GPU).usage, stage.taken[HOSTS[0]], stage.taken[HOSTS[1]])
        )
    walk.leave()

    assert shown == [(0, 2, 2, 0), (1, 0, 0, 0), (2, 4, 2, 2), (1, 0, 0, 0), (0, 2, 2, 0), (2, 4, 2, 2)]
    assert stage.usage() == before


def test_a_question_about_single_spots_leaves_the_next_search_the_right_ones() -> None:
    promise = make_claim("p", "b", 1, hosts=[0, 1], begins_at=8, ends_at=20)
    stage, profile = stage_and_profile([promise])
    walk = walk_of(stage, profile, Trial(stage, "a", 2, hosts=3), seconds=50)

    # Verified right after the begin, on one of its hosts; the search then is at the present again.
    assert walk.first_conflict(make_claim("new", "a", 1, hosts=[1])) == ClaimConflict(key("p"), 8)
    found = walk.find()
    walk.leave()

    assert walk.position == 0
    assert found is not None
    assert set(found.spots) == set(HOSTS[:3])


def test_a_walk_goes_on_after_a_rest_as_if_there_had_been_none() -> None:
    stage, profile = stage_and_profile(
        [make_claim("x", "b", 2, hosts=[0], ends_at=5), make_claim("p", "b", 4, hosts=[1], begins_at=8)]
    )
    before = stage.usage()
    walk = walk_of(stage, profile, Trial(stage, "a", 2, hosts=1))
    walk.go_to_time(8)
    walk.find()

    walk.rest()

    assert stage.usage() == before
    walk.go_to_time(8)
    found = walk.find()
    assert (stage.taken[HOSTS[0]], stage.taken[HOSTS[1]]) == (0, 2)
    assert found is not None
    assert set(found.spots) == {HOSTS[0]}
    walk.leave()
    assert stage.usage() == before


def test_a_search_counts_the_most_that_each_spot_takes_over_the_duration() -> None:
    # Between the promises host 0 is free, as host 1 is before and after its own.
    claims = [
        make_claim("p", "b", 1, hosts=[0], begins_at=5, ends_at=7),
        make_claim("q", "b", 1, hosts=[1], begins_at=6, ends_at=8),
        make_claim("r", "b", 1, hosts=[0], begins_at=9, ends_at=11),
    ]
    stage, profile = stage_and_profile(claims)
    before = stage.usage()
    walk = walk_of(stage, profile, Trial(stage, "a", 2, hosts=1), seconds=10)

    found = walk.attempt()
    walk.leave()

    assert found is not None
    assert set(found.spots) == {HOSTS[2]}
    assert stage.usage() == before


def test_a_search_sees_the_spots_as_taken_by_the_promises_within_the_duration() -> None:
    seen: list[dict[object, int]] = []

    @dataclass
    class Looking(Trial):
        def find(self) -> Claim | None:
            seen.append(dict(self.stage.taken))
            return super().find()

    promise = make_claim("p", "b", 1, hosts=[0, 3], begins_at=5, ends_at=7)
    stage, profile = stage_and_profile([make_claim("x", "b", 1, hosts=[1], ends_at=99), promise])

    assert fits_from(horizon_of(profile), stage, Looking(stage, "a", 2, hosts=1), now=0, seconds=10)
    assert [[taken[spot] for spot in HOSTS] for taken in seen] == [[2, 2, 0, 2]]


def test_the_time_that_a_value_is_held_is_counted_from_now() -> None:
    stage, profile = stage_and_profile([make_claim("whole", "b", 8, begins_at=130, ends_at=140)])
    trial, value = Trial(stage, "a", 1), make_claim("new", "a", 1)

    assert first_broken(horizon_of(profile), stage, trial, value, now=100, until=130) is None
    assert first_broken(horizon_of(profile), stage, trial, value, now=100, until=131) is not None


def test_a_later_start_may_run_into_a_window_beyond_its_lead_while_another_flavor_is_promised() -> None:
    running = Claim(holder=WorkloadKey("team", "running"), queue="a", usage={GPU: 4}, ends_at=15)
    far = window(GPU, 2, begins_at=30, lead_seconds=9)
    stage, profile = two_flavors([running, far, promise(OTHER_GPU, 1, begins_at=32)])
    stage.charge("a", {GPU: 4, OTHER_GPU: 3})

    start = earliest(horizon_of(profile), stage, FirstFlavor(stage, 3), now=0, seconds=20)

    assert start is not None
    assert (start.at, start.value) == (15, GPU)
