"""Workloads parked alone: when their back-offs end, and which of them leave."""

from __future__ import annotations

from math import inf

import pytest

from queues.pending.entries import Pending
from queues.pending.parked_alone import ParkedAlone
from tests.builders import make_workload


def make_parked(*entries: tuple[str, float]) -> tuple[ParkedAlone, dict[str, Pending]]:
    """Park a Workload of each name with the end of its back-off."""
    parked = ParkedAlone("queue", set())
    made = {
        name: Pending(workload=make_workload(name), requests=(), shape=b"", queued_at=0.0, retry_at=retry_at)
        for name, retry_at in entries
    }
    for pending in made.values():
        parked.add(pending)
    return parked, made


@pytest.mark.parametrize(
    ("entries", "want"),
    [
        pytest.param([], None, id="none is parked"),
        pytest.param([("a", 0.0)], None, id="no back-off: it waits for an event"),
        pytest.param([("a", inf)], None, id="a back-off without an end"),
        pytest.param([("a", 9.0), ("b", 5.0)], 5.0, id="the earliest end counts"),
    ],
)
def test_the_next_retry_is_the_earliest_end_of_a_back_off(
    entries: list[tuple[str, float]], want: float | None
) -> None:
    assert make_parked(*entries)[0].next_retry_at() == want


def test_the_end_of_a_back_off_is_stale_once_its_workload_left_or_backs_off_longer() -> None:
    parked, made = make_parked(("left", 1.0), ("longer", 2.0), ("stays", 5.0))
    assert parked.discard(made["left"].key)
    assert not parked.discard(made["left"].key)
    parked.discard(made["longer"].key)
    made["longer"].retry_at = 7.0
    parked.add(made["longer"])

    assert parked.next_retry_at() == 5.0
    assert parked.take_due(now=6.0) == [made["stays"]]
    assert (len(parked), parked.next_retry_at()) == (1, 7.0)


def test_those_due_leave_by_the_end_of_their_back_off() -> None:
    parked, made = make_parked(("late", 4.0), ("early", 3.0), ("later", 4.5))

    assert parked.take_due(now=4.0) == [made["early"], made["late"]]
    assert made["early"].key not in parked
    assert made["later"].key in parked


def test_an_event_takes_those_that_may_enter_and_back_off_no_longer() -> None:
    parked, made = make_parked(("ready", 0.0), ("backs off", 9.0), ("may not", 0.0))

    taken = parked.take(now=1.0, may_enter=lambda workload: workload.key.name != "may not")

    assert taken == [made["ready"]]
    assert set(parked.values()) == {made["backs off"], made["may not"]}
