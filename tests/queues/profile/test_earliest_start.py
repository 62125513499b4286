"""The search for the earliest start: among many ends, and how often it asks what is expensive."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

import pytest

from queues.profile.capacity_profile import CapacityProfile, Claim, Rooms
from queues.profile.earliest_start import earliest, searching
from tests.queues.profile.small_cluster import GPU, HOSTS, Stage, Trial, horizon_of, make_claim, make_tree

MANY = 60


@dataclass
class CountingTrial(Trial):
    """Counts the searches. With `is_blind` the cheap tests before a search pass always."""

    is_blind: bool = False
    searches: int = 0
    quota_tests: int = 0

    def may_have_quota(self) -> bool:
        self.quota_tests += 1
        return self.is_blind or super().may_have_quota()

    def rooms(self) -> Rooms:
        return []

    def find(self) -> Claim | None:
        self.searches += 1
        return super().find()


def crowded(claims: Iterable[Claim]) -> tuple[Stage, CapacityProfile]:
    """Return a cluster of `MANY` devices on which these claims run or are promised."""
    stage, profile = Stage(make_tree(nominal=MANY // 2)), CapacityProfile()
    for claim in claims:
        profile.put(claim)
        if claim.is_running:
            stage.run(claim)
    return stage, profile


def one_by_one() -> list[Claim]:
    """Return `MANY` running claims of one device each, of which one ends every ten seconds."""
    return [make_claim(f"x{index}", "a", 1, ends_at=10.0 * (index + 1)) for index in range(MANY)]


@pytest.mark.parametrize("is_blind", [False, True], ids=["quota decides", "only the search decides"])
@pytest.mark.parametrize("amount", [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 58, 59, 60])
def test_a_request_starts_at_the_very_end_that_frees_its_last_device(amount: int, is_blind: bool) -> None:
    stage, profile = crowded(one_by_one())
    before = stage.usage()
    trial = CountingTrial(stage, "b", amount, is_blind=is_blind)

    found = earliest(horizon_of(profile), stage, trial, now=0, seconds=5)

    assert found is not None
    assert found.at == 10.0 * amount
    assert found.value.usage == {GPU: amount}
    assert stage.usage() == before
    # A stride that doubles and a bisection: at most twice the binary logarithm, and the present.
    assert trial.searches <= (1 if not is_blind else 13)
    assert trial.quota_tests <= (10 if not is_blind else 22)


@pytest.mark.parametrize("is_blind", [False, True], ids=["quota decides", "only the search decides"])
def test_a_request_for_more_than_there_is_never_starts(is_blind: bool) -> None:
    stage, profile = crowded(one_by_one())
    trial = CountingTrial(stage, "b", MANY + 1, is_blind=is_blind)

    assert earliest(horizon_of(profile), stage, trial, now=0, seconds=5) is None


@pytest.mark.parametrize(
    ("latest", "want_start"),
    [
        pytest.param(300.0, 300.0, id="an end at the latest instant"),
        pytest.param(299.0, None, id="no end after the latest instant"),
        pytest.param(-5.0, None, id="a latest instant in the past"),
    ],
)
def test_a_start_is_considered_up_to(latest: float, want_start: float | None) -> None:
    stage, profile = crowded(one_by_one())
    trial = CountingTrial(stage, "b", 30)

    found = earliest(horizon_of(profile), stage, trial, now=0, seconds=5, latest=latest)

    assert (None if found is None else found.at) == want_start


def test_a_start_now_is_considered_however_early_the_latest_instant_is() -> None:
    stage, profile = crowded([make_claim("x", "a", 5, ends_at=10)])

    found = earliest(horizon_of(profile), stage, CountingTrial(stage, "b", 30), now=3, seconds=5, latest=0)

    assert found is not None
    assert found.at == 3


def test_ends_at_one_instant_are_one_candidate() -> None:
    together = [make_claim(f"x{index}", "a", 1, ends_at=10.0) for index in range(MANY)]
    stage, profile = crowded(together)
    trial = CountingTrial(stage, "b", MANY + 1, is_blind=True)

    assert earliest(horizon_of(profile), stage, trial, now=0, seconds=5) is None
    # Now, and at 10.
    assert trial.searches == 2


def test_one_look_right_after_a_begin_removes_every_start_that_would_reach_into_it() -> None:
    # One device is free all the time and more of them from end to end; the promise takes all but one.
    promise = make_claim("promise", "b", MANY - 1, begins_at=605, ends_at=700)
    stage, profile = crowded([*one_by_one(), promise])
    trial = CountingTrial(stage, "a", 2)

    found = earliest(horizon_of(profile), stage, trial, now=0, seconds=1000)

    assert found is not None
    assert found.at == 700
    assert trial.searches == 1


@pytest.mark.parametrize(
    ("seconds", "want_start"),
    [
        pytest.param(585.0, 20.0, id="the request that ends just then starts before the promise"),
        pytest.param(586.0, 700.0, id="the request that reaches into it starts after the promise"),
    ],
)
def test_a_promise_that_takes_nearly_all_at_its_begin(seconds: float, want_start: float) -> None:
    promise = make_claim("promise", "b", MANY - 1, begins_at=605, ends_at=700)
    stage, profile = crowded([*one_by_one(), promise])

    found = earliest(horizon_of(profile), stage, CountingTrial(stage, "a", 2), now=0, seconds=seconds)

    assert found is not None
    assert found.at == want_start


def test_of_two_promises_only_the_one_that_lacks_quota_removes_starts() -> None:
    promises = [
        make_claim("small", "b", 10, begins_at=605, ends_at=620),
        make_claim("large", "b", MANY, begins_at=640, ends_at=660),
        make_claim("small too", "b", 10, begins_at=700, ends_at=800),
    ]
    stage, profile = crowded([*one_by_one(), *promises])

    def start(seconds: float) -> float | None:
        trial = CountingTrial(stage, "a", 50)
        found = earliest(horizon_of(profile), stage, trial, now=0, seconds=seconds)
        return None if found is None else found.at

    # It fits from 500 on, beside both small promises, and has 140 seconds until the large one.
    assert start(140) == 500
    assert start(141) == 660
    assert start(inf) == 660


def test_an_end_at_the_instant_of_a_begin_is_tried_once_with_that_begin() -> None:
    # What ends at 10 is promised from 10 on.
    claims = [
        make_claim("x", "a", MANY, ends_at=10),
        make_claim("promise", "b", MANY - 4, begins_at=10, ends_at=30),
    ]
    stage, profile = crowded(claims)
    trial = CountingTrial(stage, "a", 4, is_blind=True)

    found = earliest(horizon_of(profile), stage, trial, now=0, seconds=5)

    assert found is not None
    assert found.at == 10
    assert trial.searches == 2


def test_a_search_pauses_at_every_second_attempt_before_a_promise() -> None:
    # At none of the ends before the promise are there hosts, and quota shows nothing of that.
    claims = [
        *(make_claim(f"x{index}", "a", 1, ends_at=10.0 * (index + 1)) for index in range(7)),
        make_claim("full", "a", 4, hosts=range(4), ends_at=200),
        make_claim("promise", "b", 1, hosts=[0], begins_at=100, ends_at=200),
    ]
    stage, profile = crowded(claims)
    before = stage.usage()
    trial = CountingTrial(stage, "a", 2, hosts=1)

    pauses = 0
    search = searching(horizon_of(profile), stage, trial, now=0, seconds=5)
    while True:
        try:
            next(search)
        except StopIteration as end:
            found = end.value
            break
        assert stage.usage() == before
        pauses += 1

    assert found is not None
    assert (found.at, set(found.value.spots)) == (200, {HOSTS[0]})
    assert pauses == 3
