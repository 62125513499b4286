"""Capacity over time: the laws of the profile, and searches worked out by hand."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import event, given

from queues.profile.capacity_profile import CapacityProfile, Claim, Edge
from queues.profile.earliest_start import earliest, searching
from queues.profile.profile_walk import first_broken_promise
from queues.profile.request_horizon import RequestHorizon
from tests.queues.profile.small_cluster import (
    GPU,
    HOSTS,
    PER_HOST,
    Stage,
    Trial,
    key,
    make_claim,
    stage_and_profile,
)


def start_of(
    claims: Iterable[Claim], *, queue: str = "a", amount: int = 0, hosts: int = 0, seconds: float = 10
) -> float | None:
    stage, profile = stage_and_profile(claims)
    amount = amount or hosts * PER_HOST
    trial = Trial(stage, queue, amount, hosts)
    found = earliest(
        RequestHorizon(edges=profile.edges(), profile=profile), stage, trial, now=0, seconds=seconds
    )
    return None if found is None else found.at


CASES = {
    "on an idle cluster a request starts at once": ([], {"amount": 8}, 0),
    "what exceeds the tree never starts": ([], {"amount": 9}, None),
    "a request waits until enough has ended": (
        [make_claim("x", "a", 4, ends_at=10), make_claim("y", "b", 4, ends_at=30)],
        {"amount": 6},
        30,
    ),
    "work without an end never makes room": ([make_claim("x", "a", 4)], {"amount": 6}, None),
    "what ends before a promise begins may start before it": (
        [make_claim("p", "a", 8, begins_at=10, ends_at=20)],
        {"amount": 1, "seconds": 10},
        0,
    ),
    "what would reach into a promise starts after it": (
        [make_claim("p", "a", 8, begins_at=10, ends_at=20)],
        {"amount": 1, "seconds": 11},
        20,
    ),
    "what leaves a promise its amount starts at once, however long it runs": (
        [make_claim("p", "a", 6, begins_at=10, ends_at=20)],
        {"amount": 2, "seconds": inf},
        0,
    ),
    "a hole between two promises is found": (
        [
            make_claim("x", "a", 8, ends_at=5),
            make_claim("p", "a", 8, begins_at=5, ends_at=20),
            make_claim("q", "b", 8, begins_at=31, ends_at=40),
        ],
        {"amount": 4, "seconds": 11},
        20,
    ),
    "a hole that is too short is passed over": (
        [
            make_claim("x", "a", 8, ends_at=5),
            make_claim("p", "a", 8, begins_at=5, ends_at=20),
            make_claim("q", "b", 8, begins_at=30, ends_at=40),
        ],
        {"amount": 4, "seconds": 11},
        40,
    ),
    "free devices do not help where no whole hosts are free": (
        [make_claim(f"x{n}", "a", 1, hosts=[n], ends_at=10 * (n + 1)) for n in range(4)],
        {"hosts": 2},
        20,
    ),
    "the same hosts must be free for the whole span": (
        # At any instant one host is free, but none of them for eleven seconds before 20.
        [
            make_claim("x", "a", 2, hosts=[1, 2, 3], ends_at=100),
            make_claim("p", "b", 1, hosts=[0], begins_at=10, ends_at=20),
        ],
        {"hosts": 1, "seconds": 11},
        20,
    ),
    "promises on other hosts leave these free": (
        [make_claim("p", "b", 1, hosts=[0], begins_at=10, ends_at=20)],
        {"hosts": 3, "seconds": 100},
        0,
    ),
    "a promise that is overdue counts as begun": (
        [make_claim("p", "a", 8, begins_at=-5, ends_at=20)],
        {"amount": 1},
        20,
    ),
}


@pytest.mark.parametrize(("claims", "request_", "want_start"), CASES.values(), ids=CASES.keys())
def test_the_earliest_start(claims: list[Claim], request_: dict[str, Any], want_start: float | None) -> None:
    assert start_of(claims, **request_) == want_start


def test_a_value_that_would_delay_a_promise_names_it() -> None:
    stage, profile = stage_and_profile(
        [
            make_claim("early", "a", 2, begins_at=10, ends_at=20),
            make_claim("late", "b", 8, begins_at=30, ends_at=40),
        ]
    )
    trial = Trial(stage, "a", 4)
    value = make_claim("new", "a", 4)

    assert (
        first_broken_promise(
            RequestHorizon(edges=profile.edges(), profile=profile), stage, trial, value, now=0, until=30
        )
        is None
    )
    assert first_broken_promise(
        RequestHorizon(edges=profile.edges(), profile=profile), stage, trial, value, now=0, until=31
    ) == key("late")


def test_work_past_its_expected_end_is_named_and_never_counted_as_gone() -> None:
    stage, profile = stage_and_profile([make_claim("x", "a", 8, ends_at=-1)])

    assert [claim.holder for claim in profile.outrun(0)] == [key("x")]
    assert (
        earliest(
            RequestHorizon(edges=profile.edges(), profile=profile),
            stage,
            Trial(stage, "a", 1),
            now=0,
            seconds=1,
        )
        is None
    )


# --- laws ------------------------------------------------------------------------------------------------


@st.composite
def claim_lists(draw: st.DrawFn) -> list[Claim]:
    """Claims that never exceed the tree or the hosts, at any instant."""
    accepted: list[Claim] = []
    for index in range(draw(st.integers(0, 7))):
        hosts = draw(st.lists(st.integers(0, 3), unique=True, max_size=2))
        begin = draw(st.sampled_from([-inf, 1.0, 3.0, 5.0, 8.0]))
        claim = make_claim(
            f"c{index}",
            draw(st.sampled_from(["a", "b"])),
            2 * len(hosts) or draw(st.integers(1, 3)),
            hosts=hosts,
            begins_at=begin,
            ends_at=max(0.0, begin) + draw(st.sampled_from([1.0, 2.0, 4.0, 9.0, inf])),
        )
        if is_possible([*accepted, claim]):
            accepted.append(claim)
    return accepted


def instants(claims: Iterable[Claim]) -> list[float]:
    times = {0.0, *(t for one in claims for t in (one.begins_at, one.ends_at))}
    return sorted(t for t in times if 0 <= t < inf)


def at(claims: Iterable[Claim], instant: float) -> Stage:
    """Return the tree and hosts at an instant, from nothing."""
    stage = Stage()
    for claim in claims:
        if claim.begins_at <= instant < claim.ends_at:
            stage.run(claim)
    return stage


def is_possible(claims: list[Claim]) -> bool:
    for instant in instants(claims):
        stage = at(claims, instant)
        if any(node.cell(GPU).available < 0 for node in stage.queues.values()):
            return False
        if any(used > PER_HOST for used in stage.taken.values()):
            return False
    return True


def brute_force(claims: list[Claim], *, queue: str, amount: int, seconds: float) -> float | None:
    """Return the first of all instants from which the amount fits at every later one of the span."""
    times = instants(claims)
    for start in times:
        span = [t for t in times if start <= t < start + seconds]
        if all(at(claims, t).queues[queue].fits({GPU: amount}) for t in span):
            return start
    return None


def brute_force_hosts(claims: list[Claim], *, hosts: int, seconds: float) -> float | None:
    """The same for whole hosts: `hosts` that are free at every instant of the span, and quota for them."""
    times = instants(claims)
    for start in times:
        span = [at(claims, t) for t in times if start <= t < start + seconds]
        free = [spot for spot in HOSTS if all(stage.taken[spot] == 0 for stage in span)]
        quota = all(stage.queues["a"].fits({GPU: hosts * PER_HOST}) for stage in span)
        if len(free) >= hosts and quota:
            return start
    return None


@given(
    claim_lists(),
    st.sampled_from(["a", "b"]),
    st.integers(1, 8),
    st.sampled_from([0.5, 2.0, 3.5, 20.0, inf]),
)
def test_the_start_agrees_with_a_search_through_all_instants(
    claims: list[Claim], queue: str, amount: int, seconds: float
) -> None:
    got = start_of(claims, queue=queue, amount=amount, seconds=seconds)

    assert got == brute_force(claims, queue=queue, amount=amount, seconds=seconds)


@given(claim_lists(), st.integers(1, 4), st.sampled_from([0.5, 2.0, 3.5, 20.0, inf]))
def test_the_start_on_whole_hosts_agrees_with_a_search_through_all_instants(
    claims: list[Claim], hosts: int, seconds: float
) -> None:
    assert start_of(claims, hosts=hosts, seconds=seconds) == brute_force_hosts(
        claims, hosts=hosts, seconds=seconds
    )


@given(claim_lists(), st.integers(1, 4), st.sampled_from([0.5, 3.5, inf]))
def test_what_is_found_can_be_claimed_and_the_search_leaves_no_trace(
    claims: list[Claim], hosts: int, seconds: float
) -> None:
    stage, profile = stage_and_profile(claims)
    before = stage.usage()

    trial = Trial(stage, "a", hosts * PER_HOST, hosts)
    found = earliest(
        RequestHorizon(edges=profile.edges(), profile=profile), stage, trial, now=0, seconds=seconds
    )

    assert stage.usage() == before
    if found is not None:
        promise = make_claim(
            "new",
            "a",
            hosts * PER_HOST,
            hosts=[HOSTS.index(spot) for spot in found.value.spots],
            begins_at=found.at,
            ends_at=found.at + seconds,
        )
        assert is_possible([*claims, promise])


@given(claim_lists(), st.integers(1, 4), st.sampled_from([0.5, 2.0, 3.5, 20.0]))
def test_a_search_that_pauses_shows_the_present_meanwhile_and_finds_the_same(
    claims: list[Claim], hosts: int, seconds: float
) -> None:
    stage, profile = stage_and_profile(claims)
    before, pauses = stage.usage(), 0
    trial = Trial(stage, "a", hosts * PER_HOST, hosts)
    horizon = RequestHorizon(edges=profile.edges(), profile=profile)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("queues.profile.earliest_start._ATTEMPTS_AT_ONCE", 1)
        search = searching(horizon, stage, trial, now=0, seconds=seconds)
        try:
            while True:
                next(search)
                pauses += 1
                assert stage.usage() == before
        except StopIteration as end:
            found = end.value

    assert stage.usage() == before
    assert (None if found is None else found.at) == brute_force_hosts(claims, hosts=hosts, seconds=seconds)
    event("paused" if pauses else "found at once")


def test_a_search_that_is_closed_in_a_pause_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queues.profile.earliest_start._ATTEMPTS_AT_ONCE", 1)
    claims, *_ = CASES["a hole between two promises is found"]
    stage, profile = stage_and_profile(claims)
    before = stage.usage()

    horizon = RequestHorizon(edges=profile.edges(), profile=profile)
    search = searching(horizon, stage, Trial(stage, "a", 4), now=0, seconds=11)
    next(search)
    search.close()

    assert stage.usage() == before


@given(claim_lists(), st.permutations(range(7)))
def test_putting_in_and_taking_out_in_any_order_is_the_identity(
    claims: list[Claim], order: list[int]
) -> None:
    _, whole = stage_and_profile(claims)
    profile = CapacityProfile()
    for index in order:
        if index < len(claims):
            profile.put(claims[index])
    extra = make_claim("extra", "a", 1, begins_at=2, ends_at=4)

    profile.put(extra)
    profile.validate()
    profile.put(make_claim("extra", "a", 1, begins_at=3, ends_at=9))
    profile.validate()
    profile.drop(key("extra"))

    edges: list[Edge] = profile.edges()
    assert edges == whole.edges()
    assert len(profile) == len(claims)


def test_the_stamp_of_a_spot_lasts_while_its_edges_stay_and_is_of_one_profile() -> None:
    one, other = (stage_and_profile([make_claim("x", "a", 2, hosts=[0], ends_at=5)])[1] for _ in range(2))
    stamp = one.stamp(HOSTS[0])

    # Room noted under the stamp may outlive the profile, and another may follow at its address in memory.
    assert other.stamp(HOSTS[0]) != stamp
    one.put(make_claim("y", "a", 2, hosts=[1], ends_at=5))
    assert one.stamp(HOSTS[0]) == stamp
    one.put(make_claim("x", "a", 2, hosts=[0], ends_at=6))
    assert one.stamp(HOSTS[0]) != stamp
    one.drop(key("x"))
    assert one.stamp(HOSTS[0]) == other.stamp(HOSTS[3])


def test_claims_that_never_end_leave_nothing_behind() -> None:
    profile = CapacityProfile()

    profile.put(make_claim("endless", "a", 2, hosts=[0], ends_at=inf))
    profile.validate()
    profile.drop(key("endless"))

    profile.validate()


def test_a_claim_may_end_when_it_begins_and_not_before() -> None:
    profile = CapacityProfile()

    profile.put(make_claim("brief", "a", 1, begins_at=5, ends_at=5))
    with pytest.raises(ValueError, match="the claim of ns/early ends at 4, before it begins"):
        profile.put(make_claim("early", "a", 1, begins_at=5, ends_at=4))

    assert [claim.holder for claim in profile.claims()] == [key("brief")]


def test_a_profile_that_is_cleared_has_no_claim_no_spot_and_another_version() -> None:
    _, profile = stage_and_profile([make_claim("x", "a", 2, hosts=[0], ends_at=5)])
    version = profile.version

    profile.clear()

    assert (len(profile), profile.edges(), list(profile.spots())) == (0, [], [])
    assert profile.version == version + 1
    assert profile.drop(key("x")) is None
    assert profile.version == version + 1
    profile.validate()


def test_every_change_of_a_profile_raises_its_version() -> None:
    profile = CapacityProfile()
    versions = [profile.version]

    profile.put(make_claim("x", "a", 1))
    versions.append(profile.version)
    profile.put(make_claim("x", "a", 2))
    versions.append(profile.version)
    profile.drop(key("x"))
    versions.append(profile.version)

    assert versions == sorted(set(versions))


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param(0, 5, id="the first end of all"),
        pytest.param(4.9, 5, id="an end just ahead"),
        pytest.param(5, 20, id="not the end at that very instant nor that of a promise"),
        pytest.param(20, None, id="none after the last end of running work"),
    ],
)
def test_the_next_end_of_running_work(after: float, want: float | None) -> None:
    claims = [
        make_claim("x", "a", 1, ends_at=5),
        make_claim("p", "a", 1, begins_at=6, ends_at=10),
        make_claim("y", "a", 1, ends_at=20),
        make_claim("q", "a", 1, begins_at=25, ends_at=30),
    ]

    assert stage_and_profile(claims)[1].next_end_at(after=after) == want


def test_only_the_edges_of_the_claims_that_are_wanted_are_returned() -> None:
    claims = [make_claim("x", "a", 1, ends_at=5), make_claim("p", "b", 1, begins_at=6, ends_at=10)]
    profile = stage_and_profile(claims)[1]

    edges = profile.edges(wants=lambda claim: claim.queue == "b")

    assert [(at, sign) for at, sign, _, _ in edges] == [(6, 1), (10, -1)]
