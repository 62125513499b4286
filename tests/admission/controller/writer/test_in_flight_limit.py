"""How many requests may be in flight follows the latency of the server."""

from __future__ import annotations

import pytest

from admission.controller.writer.in_flight_limit import (
    FIRST_IN_FLIGHT,
    KEPT_IF_LATE,
    KEPT_IF_OVERLOADED,
    LEAST_IN_FLIGHT,
    REMEMBERED_SECONDS,
    InFlightLimit,
)

MOST = 128


class Server:
    """Answers a round of requests at a time, as many as are allowed, each after the same time."""

    def __init__(self, most: int = MOST) -> None:
        self.limit = InFlightLimit(most)
        self.now = 100.0

    def answer(self, seconds: float, *, rounds: int = 1, has_backlog: bool = True) -> int:
        """Answer this many rounds. Return how many requests may be in flight then."""
        for _ in range(rounds):
            sent_at, self.now = self.now, self.now + seconds
            for _ in range(self.limit.allowed):
                self.limit.note_answer(sent_at, self.now, has_backlog=has_backlog)
        return self.limit.allowed

    def overload(self, *, rounds: int = 1) -> int:
        """Answer 429 to all requests of this many rounds. Return how many may be in flight then."""
        for _ in range(rounds):
            sent_at, self.now = self.now, self.now + 1.0
            for _ in range(self.limit.allowed):
                self.limit.note_overload(sent_at, self.now)
        return self.limit.allowed


@pytest.mark.parametrize("seconds", [0.002, 0.1, 2.0])
def test_it_grows_by_one_a_round_while_answers_take_as_long_as_the_fastest(seconds: float) -> None:
    server = Server()

    # A round adds a little less than one, since each answer in it adds less than the one before.
    assert server.answer(seconds, rounds=11) == FIRST_IN_FLIGHT + 10
    assert server.answer(seconds, rounds=200) == MOST


def test_it_does_not_grow_while_nothing_waits() -> None:
    assert Server().answer(0.002, rounds=50, has_backlog=False) == FIRST_IN_FLIGHT


def test_it_stays_where_answers_take_somewhat_longer() -> None:
    server = Server()
    grown = server.answer(0.2, rounds=20)

    assert server.answer(0.5, rounds=50) == grown


def test_late_answers_take_back_what_it_had_grown() -> None:
    server = Server()
    assert server.answer(0.01, rounds=200) == MOST

    # The average follows within the first round.
    assert server.answer(1.0) == MOST * KEPT_IF_LATE
    assert server.answer(1.0, rounds=50) == FIRST_IN_FLIGHT


def test_one_late_answer_changes_nothing() -> None:
    server = Server()
    grown = server.answer(0.01, rounds=20)

    server.limit.note_answer(server.now, server.now + 1.0, has_backlog=True)

    assert server.limit.allowed == grown


def test_answers_that_our_own_event_loop_may_have_delayed_take_nothing_back() -> None:
    server = Server()
    grown = server.answer(0.001, rounds=20)

    assert server.answer(0.45, rounds=50) == grown


@pytest.mark.parametrize(
    ("most", "least"),
    [
        pytest.param(MOST, LEAST_IN_FLIGHT, id="never below the least"),
        pytest.param(1, 1, id="nor below a lower maximum"),
    ],
)
def test_it_falls_by_half_where_the_server_is_overloaded(most: int, least: int) -> None:
    server = Server(most)

    assert server.overload() == max(least, min(FIRST_IN_FLIGHT, most) * KEPT_IF_OVERLOADED)
    assert server.overload(rounds=20) == least


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(0.01, MOST, id="all the way while answers are fast"),
        pytest.param(0.3, FIRST_IN_FLIGHT, id="as far as at first while they are slower than before"),
        pytest.param(1.0, LEAST_IN_FLIGHT, id="not while they come late"),
    ],
)
def test_it_grows_again_after_an_overload(seconds: float, want: int) -> None:
    server = Server()
    server.answer(0.01, has_backlog=False)
    server.overload(rounds=20)
    # The average follows.
    server.answer(seconds, rounds=5, has_backlog=False)
    # Shorter than the lowest latency is remembered.
    rounds = min(300, int(REMEMBERED_SECONDS / seconds))

    assert server.answer(seconds, rounds=rounds) == want


def test_the_lowest_latency_is_forgotten() -> None:
    """A server that has moved far away is not late for ever."""
    server = Server()
    server.answer(0.01, has_backlog=False)
    server.overload(rounds=20)
    server.answer(1.0, rounds=5, has_backlog=False)
    assert server.answer(1.0, rounds=int(REMEMBERED_SECONDS)) == LEAST_IN_FLIGHT

    server.answer(1.0, rounds=int(REMEMBERED_SECONDS))

    assert server.answer(1.0, rounds=200) == MOST
