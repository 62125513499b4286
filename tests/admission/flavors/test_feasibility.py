"""The cheap conditions before a search: they say no only where a search would certainly fail."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from admission.decisions.assignment_memo import Option
from admission.flavors.feasibility import (
    may_have_quota,
    may_have_room,
    moves_others,
    never_evicts,
    never_preempts,
    rooms_of,
)
from api.policy import Consolidation, PlacementRules
from api.queueing import Preemption, PreemptionPolicy, ResourceQuota
from queues.quota.quota_tree import QuotaCell

LOWER, ANY = PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY
PENDING: Any = SimpleNamespace(shape="shape")
MOVES = PlacementRules(consolidation=Consolidation())


class Room(SimpleNamespace):
    """Room for so many of the pods that are needed."""

    def total(self) -> int:
        found: int = self.found
        return found


def option(flavor: str = "default", *, asked: int = 4, free: int = 4, is_placed: bool = False) -> Option:
    """Return an option that asks for `asked` of a quota of which `free` is left, on nodes or not."""
    cell = QuotaCell(ResourceQuota(nominal=free), height=0, from_children=0)
    request: Any = object() if is_placed else None
    return Option(flavor=flavor, amounts=((cell, asked),), request=request)


def snapshot(**rooms: int) -> Any:
    """Return a snapshot in which each flavor's nodes have room for so many of two pods."""
    found = {flavor: Room(found=number, needed=2) for flavor, number in rooms.items()}
    searches = {flavor: SimpleNamespace(room=lambda _, room=room: room) for flavor, room in found.items()}
    return SimpleNamespace(topology_cache=SimpleNamespace(search=searches.__getitem__))


def queue(*needs: tuple[Option, ...], **fields: Any) -> Any:
    return SimpleNamespace(**{"needs": {"shape": needs}, "reservations": (), **fields})


@pytest.mark.parametrize(
    ("needs", "want_quota", "want_room"),
    [
        pytest.param([], True, True, id="it needs nothing"),
        pytest.param([(option(),)], True, True, id="quota for all of it, and nodes are not checked"),
        pytest.param([(option(asked=5),)], False, False, id="quota for less"),
        pytest.param([(option(asked=1, free=0),)], False, False, id="none of the one that it needs"),
        pytest.param([(option(asked=0, free=-1),)], True, True, id="nothing of a quota that is overused"),
        pytest.param([(option(asked=5), option())], True, True, id="quota of one flavor of two"),
        pytest.param([(option(),), (option(asked=5),)], False, False, id="quota for one pod set of two"),
        pytest.param([(option("roomy", is_placed=True),)], True, True, id="quota and room"),
        pytest.param([(option("full", is_placed=True),)], True, False, id="quota, but too little room"),
        pytest.param(
            [(option("roomy", is_placed=True, asked=5),)], False, False, id="room, but too little quota"
        ),
        pytest.param(
            [(option("roomy", is_placed=True, asked=5), option("full", is_placed=True))],
            True,
            False,
            id="the quota of one flavor and the room of another",
        ),
    ],
)
def test_a_search_is_worth_its_cost_only_where_there_may_be(
    needs: list[tuple[Option, ...]], want_quota: bool, want_room: bool
) -> None:
    now = snapshot(roomy=2, full=1)

    assert may_have_quota(now, queue(*needs), PENDING) is want_quota
    assert may_have_room(now, queue(*needs), PENDING) is want_room


def test_where_capacity_is_reserved_nothing_is_certain() -> None:
    """It may be reserved for this Workload, and then counts as used for all others."""
    reserving = queue((option("full", asked=5, is_placed=True),), reservations=("reservation",))

    assert may_have_quota(snapshot(full=0), reserving, PENDING)
    assert may_have_room(snapshot(full=0), reserving, PENDING)


def test_rooms_are_those_of_pod_sets_that_are_placed_whatever_their_flavor() -> None:
    placed = (option("roomy", is_placed=True), option("full", is_placed=True))
    half = (option("roomy", is_placed=True), option("default"))

    found = rooms_of(snapshot(roomy=2, full=1), queue(placed, half), PENDING)

    assert [[room.total() for room in rooms] for rooms in found] == [[2, 1]]


@pytest.mark.parametrize(
    ("preemption", "turns", "placement", "want_preempts", "want_moves"),
    [
        pytest.param(Preemption(), None, None, False, False, id="no policy allows it"),
        pytest.param(Preemption(within_cluster_queue=LOWER), None, None, True, False, id="of its own queue"),
        pytest.param(Preemption(reclaim_within_cohort=ANY), None, None, True, False, id="what it lent"),
        pytest.param(Preemption(borrow_within_cohort=LOWER), None, None, True, False, id="while it borrows"),
        pytest.param(Preemption(), object(), None, True, False, id="by attained service"),
        pytest.param(Preemption(), None, PlacementRules(), False, False, id="a policy for places alone"),
        pytest.param(Preemption(), None, MOVES, False, True, id="others are moved"),
    ],
)
def test_others_are_evicted_for_a_workload_of_the_queue(
    preemption: Preemption,
    turns: object,
    placement: PlacementRules | None,
    want_preempts: bool,
    want_moves: bool,
) -> None:
    asking = queue(
        turns=turns,
        spec=SimpleNamespace(preemption=preemption),
        policy=SimpleNamespace(placement=placement),
    )

    assert never_preempts(asking) is not want_preempts
    assert moves_others(asking) is want_moves
    assert never_evicts(asking) is not (want_preempts or want_moves)
