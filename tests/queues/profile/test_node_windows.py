"""Room over time, spot by spot: against a plain look at every instant of the span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import hypothesis.strategies as st
import pytest
from hypothesis import given

from api.workload import WorkloadKey
from queues.profile.capacity_profile import CapacityProfile, Claim, Course, Spot
from queues.profile.node_windows import has_room_within, open_instants
from queues.profile.request_horizon import RequestHorizon

HOSTS: tuple[Spot, ...] = tuple(("", (f"h{index}",)) for index in range(3))
SIZE = 4


@dataclass
class PodsOfTwo:
    """Room for pods of two devices on hosts of four, of which running work takes some already."""

    needed: int
    taken: dict[Spot, int]
    noted: dict[Spot, tuple[object, Course]] = field(default_factory=dict)

    def total(self) -> int:
        return sum(self.at(spot, {}) for spot in HOSTS)

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        return max(0, SIZE - self.taken.get(spot, 0) - change.get("gpu", 0)) // 2

    def known(self, spot: Spot, stamp: object) -> Course | None:
        noted = self.noted.get(spot)
        return noted[1] if noted is not None and noted[0] == stamp else None

    def note(self, spot: Spot, stamp: object, course: Course) -> None:
        self.noted[spot] = stamp, course


@dataclass
class AskedRoom(PodsOfTwo):
    """Writes down each spot that it is asked about."""

    asked: list[Spot] = field(default_factory=list)

    def at(self, spot: Spot, change: Mapping[str, int]) -> int:
        self.asked.append(spot)
        return super().at(spot, change)


def make_claim(index: int, host: int, amount: int, begins_at: float, ends_at: float) -> Claim:
    spots: dict[Spot, dict[str, int]] = {HOSTS[host]: {"gpu": amount}}
    holder = WorkloadKey("ns", f"c{index}")
    return Claim(holder=holder, queue="q", usage={}, spots=spots, begins_at=begins_at, ends_at=ends_at)


@st.composite
def claims(draw: st.DrawFn) -> list[Claim]:
    found = []
    for index in range(draw(st.integers(0, 7))):
        begins_at = draw(st.sampled_from([-inf, -inf, 1.0, 3.0, 5.0, 8.0]))
        ends_at = max(0.0, begins_at) + draw(st.sampled_from([1.0, 2.0, 4.0, 9.0, inf]))
        found.append(make_claim(index, draw(st.integers(0, 2)), draw(st.integers(1, 3)), begins_at, ends_at))
    return found


def taken_at(found: list[Claim], instant: float) -> dict[Spot, int]:
    taken: dict[Spot, int] = {}
    for claim in found:
        if claim.begins_at <= instant < claim.ends_at:
            for spot, amounts in claim.spots.items():
                taken[spot] = taken.get(spot, 0) + amounts["gpu"]
    return taken


def least_room(found: list[Claim], spot: Spot, start: float, seconds: float) -> int:
    """The judge: the least of all instants of the span at which anything changes."""
    instants = {start, *(t for one in found for t in (one.begins_at, one.ends_at))}
    span = [t for t in instants if start <= t < start + seconds]
    return min(PodsOfTwo(0, taken_at(found, t)).at(spot, {}) for t in span)


def make_profile(found: list[Claim]) -> CapacityProfile:
    profile = CapacityProfile()
    for claim in found:
        profile.put(claim)
    return profile


SECONDS = st.sampled_from([0.5, 2.0, 3.5, 20.0, inf])


@given(claims(), st.integers(1, 6), SECONDS, st.integers(1, 8), st.booleans())
def test_the_instants_with_room_equal_those_of_a_look_at_every_instant(
    found: list[Claim], needed: int, seconds: float, count: int, is_asked_before: bool
) -> None:
    room = PodsOfTwo(needed, taken_at(found, 0.0))
    profile = make_profile(found)
    horizon = RequestHorizon(edges=profile.edges(), profile=profile)
    instants = [0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 9.0, 12.0][:count]
    if is_asked_before:
        # What was noted then is for any length and any instants.
        open_instants(horizon, [[room]], [0.0], seconds=1.0)

    got = open_instants(horizon, [[room]], instants, seconds=seconds)

    want = [t for t in instants if sum(least_room(found, spot, t, seconds) for spot in HOSTS) >= needed]
    assert got == want


@given(claims(), SECONDS, st.data())
def test_claims_that_are_left_out_or_put_in_count_so_by_spot(
    found: list[Claim], seconds: float, data: st.DataObject
) -> None:
    promised = [claim for claim in found if not claim.is_running]
    left_out = [claim for claim in promised if data.draw(st.booleans())]
    extra = make_claim(99, 0, 2, 4.0, 6.0)
    put_in = [(4.0, 1, extra.holder, extra), (6.0, -1, extra.holder, extra)]
    profile = make_profile(found)
    edges = sorted(
        (*(edge for edge in profile.edges() if edge[3] not in left_out), *put_in), key=lambda edge: edge[:3]
    )
    horizon = RequestHorizon(edges=edges, profile=profile, left_out=left_out, put_in=put_in)
    room = PodsOfTwo(3, taken_at(found, 0.0))
    open_instants(RequestHorizon(edges=profile.edges(), profile=profile), [[room]], [0.0], seconds=1.0)
    instants = [0.0, 2.0, 5.0, 9.0][: data.draw(st.integers(1, 4))]

    got = open_instants(horizon, [[room]], instants, seconds=seconds)

    kept = [*(claim for claim in found if claim not in left_out), extra]
    want = [t for t in instants if sum(least_room(kept, spot, t, seconds) for spot in HOSTS) >= room.needed]
    assert got == want


@given(claims(), SECONDS, st.integers(0, 2))
def test_a_spot_has_room_within_a_time_if_it_has_it_from_some_instant_of_it(
    found: list[Claim], seconds: float, host: int
) -> None:
    profile, room = make_profile(found), PodsOfTwo(1, taken_at(found, 0.0))
    horizon = RequestHorizon(edges=(), profile=profile)

    got = has_room_within(horizon, room, HOSTS[host], now=0.0, within=(2.0, 6.0), seconds=seconds)

    quarters = [2.0 + index / 4 for index in range(17)]
    assert got >= any(least_room(found, HOSTS[host], t, seconds) > 0 for t in quarters)


@pytest.mark.parametrize("full", [0, 1, 2])
def test_a_host_whose_room_never_changes_does_not_hide_the_others(full: int) -> None:
    # One device comes free on the full host, which is too little for a pod of two; all on the others.
    found = [
        make_claim(0, full, 3, -inf, inf),
        make_claim(1, full, 1, -inf, 5.0),
        *(make_claim(2 + host, host, 4, -inf, 5.0) for host in range(3) if host != full),
    ]
    profile, room = make_profile(found), PodsOfTwo(4, taken_at(found, 0.0))
    horizon = RequestHorizon(edges=profile.edges(), profile=profile)

    assert open_instants(horizon, [[room]], [0.0, 4.0, 5.0, 6.0], seconds=1.0) == [5.0, 6.0]


def test_a_host_whose_claims_are_left_out_does_not_hide_the_others() -> None:
    ignored = make_claim(0, 0, 4, 3.0, 9.0)
    profile = make_profile([ignored, make_claim(1, 1, 4, -inf, 5.0)])
    horizon = RequestHorizon(
        edges=[edge for edge in profile.edges() if edge[3] is not ignored],
        profile=profile,
        left_out=[ignored],
    )
    room = PodsOfTwo(6, {HOSTS[1]: 4})

    assert open_instants(horizon, [[room]], [0.0, 4.0, 5.0, 6.0], seconds=1.0) == [5.0, 6.0]


def test_the_room_of_a_host_over_time_is_worked_out_once_until_its_edges_change() -> None:
    profile = make_profile([make_claim(0, 0, 4, -inf, 5.0), make_claim(1, 1, 4, -inf, 5.0)])
    room = AskedRoom(2, {HOSTS[0]: 4, HOSTS[1]: 4})

    def asked() -> dict[Spot, int]:
        room.asked.clear()
        horizon = RequestHorizon(edges=profile.edges(), profile=profile)
        open_instants(horizon, [[room]], [0.0, 9.0], seconds=1.0)
        return {spot: room.asked.count(spot) - 1 for spot in HOSTS}

    # Each host is looked at once for the total; two looks are for the room now and from 5 on.
    assert asked() == {HOSTS[0]: 2, HOSTS[1]: 2, HOSTS[2]: 0}
    assert asked() == {HOSTS[0]: 0, HOSTS[1]: 0, HOSTS[2]: 0}
    profile.put(make_claim(0, 0, 4, -inf, 6.0))
    assert asked() == {HOSTS[0]: 2, HOSTS[1]: 0, HOSTS[2]: 0}


def test_alternatives_add_up_to_the_instants_of_any_and_all_groups_must_find_room() -> None:
    found = [make_claim(0, 0, 4, -inf, 5.0), make_claim(1, 1, 4, -inf, 7.0)]
    profile, taken = make_profile(found), taken_at(found, 0.0)
    horizon = RequestHorizon(edges=profile.edges(), profile=profile)
    instants = [0.0, 5.0, 7.0]

    def opened(*rooms: list[int]) -> list[float]:
        groups = [[PodsOfTwo(needed, taken) for needed in needs] for needs in rooms]
        return open_instants(horizon, groups, instants, seconds=1.0)

    assert opened() == instants
    assert opened([4]) == [5.0, 7.0]
    assert opened([6, 4]) == [5.0, 7.0]
    assert opened([4], [6]) == [7.0]
    assert opened([9], [2]) == []
