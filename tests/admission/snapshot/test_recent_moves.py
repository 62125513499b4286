"""The moves of the last hour: what counts, until when, and what another leader adds."""

from __future__ import annotations

import pytest

from admission.snapshot.recent_moves import RecentMoves
from queues.profile.holds import Move
from tests.admission.snapshot.small_cluster import key_of

HOUR = 3600.0


def moved(**at: float) -> RecentMoves:
    """Return the moves of these Workloads for the policy p, without forgetting any."""
    moves = RecentMoves()
    moves.of.update({key_of(name): Move(at=one, policy="p") for name, one in at.items()})
    return moves


@pytest.mark.parametrize(
    ("now", "has_moved"),
    [
        pytest.param(100.0, True, id="at once"),
        pytest.param(99.0 + HOUR, True, id="within the hour"),
        pytest.param(100.0 + HOUR, False, id="not an hour later"),
    ],
)
def test_a_workload_has_moved(now: float, has_moved: bool) -> None:
    moves = moved(w=100.0)

    assert moves.has_moved(key_of("w"), now=now) is has_moved
    assert moves.number("p", now=now) == int(has_moved)
    assert moves.next_at("p", now=now) == (100.0 + HOUR if has_moved else None)
    assert not moves.has_moved(key_of("other"), now=now)


def test_moves_count_for_the_policy_that_asked_for_them() -> None:
    moves = moved(first=100.0, second=50.0)
    moves.note(key_of("third"), policy="q", at=200.0)

    assert [moves.number(policy, now=200.0) for policy in ("p", "q", "r")] == [2, 1, 0]
    assert [moves.next_at(policy, now=200.0) for policy in ("p", "q", "r")] == [50 + HOUR, 200 + HOUR, None]


def test_a_move_forgets_those_that_are_an_hour_old() -> None:
    moves = moved(old=100.0, just=101.0)

    moves.note(key_of("new"), policy="p", at=100.0 + HOUR)

    assert list(moves.of) == [key_of("just"), key_of("new")]
    assert moves.of[key_of("new")] == Move(at=100.0 + HOUR, policy="p")


@pytest.mark.parametrize(
    ("is_whole", "want"),
    [
        pytest.param(False, {"own": 300.0, "later": 500.0, "new": 450.0}, id="are added to those known"),
        pytest.param(True, {"own": 200.0, "later": 500.0, "new": 450.0}, id="replace those known"),
    ],
)
def test_the_moves_of_another_leader(is_whole: bool, want: dict[str, float]) -> None:
    moves = moved(own=300.0, later=400.0)
    others = moved(own=200.0, later=500.0, new=450.0, old=100.0).of

    moves.adopt(others, now=100.0 + HOUR, is_whole=is_whole)

    assert {key.name: move.at for key, move in moves.of.items()} == want
