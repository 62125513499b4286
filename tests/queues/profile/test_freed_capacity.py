"""Freed capacity: what is recorded, what is merged, and what is given back after an unfinished check."""

from __future__ import annotations

from math import inf

import pytest

from queues.profile.capacity_profile import Claim, Spots
from queues.profile.freed_capacity import FreedCapacity, Piece
from tests.queues.profile.small_cluster import GPU, HOSTS, make_claim

CLAIM = make_claim("x", "a", 2, hosts=[1])


def piece(*, from_at: float, until: float) -> Piece:
    """Return the piece that is recorded where `CLAIM` frees its capacity."""
    spots: Spots = {HOSTS[1]: {"gpu": 2}}
    return Piece(queue="a", usage={GPU: 2}, spots=spots, from_at=from_at, until=until)


def freed_until(*instants: float) -> FreedCapacity:
    freed = FreedCapacity()
    for until in instants:
        freed.note(CLAIM, from_at=0, until=until)
    return freed


def test_a_piece_holds_what_the_claim_took_and_from_when_to_when_it_is_free() -> None:
    freed = FreedCapacity()

    freed.note(CLAIM, from_at=8, until=20)

    assert freed.pieces == [piece(from_at=8, until=20)]
    assert freed.whole_until == -inf


@pytest.mark.parametrize(
    ("freed", "want_until"),
    [
        pytest.param(FreedCapacity(), -inf, id="nothing is free until an instant if nothing came free"),
        pytest.param(freed_until(20, 30, 10), 30, id="the piece that is free longest counts"),
        pytest.param(
            FreedCapacity(pieces=[piece(from_at=0, until=5)], whole_until=7),
            7,
            id="what may be free anywhere counts as well",
        ),
    ],
)
def test_capacity_may_be_free_until_the_last_of_these_instants(
    freed: FreedCapacity, want_until: float
) -> None:
    assert freed.until == want_until


def test_sixty_four_pieces_are_kept_one_by_one() -> None:
    freed = freed_until(*range(1, 65))

    assert [one.until for one in freed.pieces] == list(range(1, 65))
    assert freed.whole_until == -inf


@pytest.mark.parametrize(
    ("instants", "want_whole_until"),
    [
        pytest.param([*range(1, 65), 10], 64, id="until the last instant of the pieces"),
        pytest.param([*range(1, 65), 100], 100, id="until that of the piece that is one too many"),
    ],
)
def test_one_piece_more_merges_them_into_anything_may_be_free(
    instants: list[float], want_whole_until: float
) -> None:
    freed = freed_until(*instants)

    assert freed == FreedCapacity(pieces=[], whole_until=want_whole_until)


def test_a_second_merge_keeps_the_later_instant_of_the_first() -> None:
    freed = FreedCapacity(pieces=[piece(from_at=0, until=5)] * 64, whole_until=90)

    freed.note(CLAIM, from_at=0, until=7)

    assert freed == FreedCapacity(pieces=[], whole_until=90)


@pytest.mark.parametrize(
    ("until", "is_kept"),
    [
        pytest.param(19, False, id="a piece that ends before that says nothing new"),
        pytest.param(20, False, id="a piece that ends just then says nothing new"),
        pytest.param(21, True, id="a piece that ends later is kept"),
    ],
)
def test_while_anything_may_be_free_until_an_instant(until: float, is_kept: bool) -> None:
    freed = FreedCapacity(whole_until=20)

    freed.note(CLAIM, from_at=0, until=until)

    assert freed.pieces == ([piece(from_at=0, until=until)] if is_kept else [])
    assert freed.whole_until == 20


def test_where_anything_may_have_come_free_single_pieces_say_nothing_new() -> None:
    freed = freed_until(20)

    freed.note_all()
    freed.note(CLAIM, from_at=0, until=1e12)

    assert freed == FreedCapacity(pieces=[], whole_until=inf)


def test_what_is_taken_is_no_longer_recorded() -> None:
    freed = FreedCapacity(pieces=[piece(from_at=0, until=30)], whole_until=20)

    assert freed.take() == FreedCapacity(pieces=[piece(from_at=0, until=30)], whole_until=20)
    assert freed == FreedCapacity(pieces=[], whole_until=-inf)


@pytest.mark.parametrize("later", [10.0, 50.0], ids=["shorter", "longer"])
def test_what_is_given_back_comes_before_what_came_free_meanwhile(later: float) -> None:
    freed = FreedCapacity(pieces=[piece(from_at=0, until=30)], whole_until=20)
    taken = freed.take()
    freed.note(CLAIM, from_at=5, until=40)
    freed.whole_until = later

    freed.give_back(taken)

    assert freed.pieces == [piece(from_at=0, until=30), piece(from_at=5, until=40)]
    assert freed.whole_until == max(20, later)


def test_a_claim_without_spots_frees_quota_alone() -> None:
    freed = FreedCapacity()

    freed.note(Claim(holder=CLAIM.holder, queue="b", usage={GPU: 1}), from_at=1, until=2)

    assert freed.pieces == [Piece(queue="b", usage={GPU: 1}, spots={}, from_at=1, until=2)]
