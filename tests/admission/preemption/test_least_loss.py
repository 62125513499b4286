"""What an answer costs: the loss of its victims, the gravest first, as Kueue ranks victims."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from admission.preemption.least_loss import cost_of

OWN, OTHER = "own", "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """As much of a target as its cost depends on."""

    loss: float
    priority: int = 0
    queue: str = OWN
    is_evicted: bool = False

    @property
    def held(self) -> Victim:
        return self

    @property
    def workload(self) -> Victim:
        return self


def cost(*victims: Victim) -> list[tuple[bool, int, float]]:
    def of(held: Victim, queue: str) -> float:
        assert queue == OWN, "measured by the policy of the preemptor's queue"
        return held.loss

    need: Any = SimpleNamespace(queue=OWN, losses=SimpleNamespace(of=of))
    targets: Any = victims
    return cost_of(need, targets)


@pytest.mark.parametrize(
    ("victims", "want"),
    [
        pytest.param([], [], id="without victims nothing is lost"),
        pytest.param([Victim(loss=3), Victim(loss=4)], [(True, 0, 7)], id="losses of equals are summed"),
        pytest.param(
            [Victim(loss=3, priority=1), Victim(loss=4, priority=2)],
            [(True, 2, 4), (True, 1, 3)],
            id="those of different priority are not, and the higher comes first",
        ),
        pytest.param(
            [Victim(loss=3, queue=OTHER, priority=9), Victim(loss=4)],
            [(True, 0, 4), (False, 9, 3)],
            id="those of the preemptor's own queue come before all others",
        ),
        pytest.param(
            [Victim(loss=3), Victim(loss=4, is_evicted=True)],
            [(True, 0, 3)],
            id="a victim that is leaving already costs nothing",
        ),
    ],
)
def test_the_cost_of_an_answer(victims: list[Victim], want: list[tuple[bool, int, float]]) -> None:
    assert cost(*victims) == want


@pytest.mark.parametrize(
    ("cheaper", "dearer"),
    [
        pytest.param([Victim(loss=3)], [Victim(loss=4)], id="the smaller loss"),
        pytest.param(
            [Victim(loss=9)], [Victim(loss=1, priority=1)], id="the lower priority, whatever it loses"
        ),
        pytest.param(
            [Victim(loss=9, priority=5, queue=OTHER)],
            [Victim(loss=1)],
            id="victims of other queues, whatever they lose",
        ),
        pytest.param(
            [Victim(loss=2, priority=1), Victim(loss=1)],
            [Victim(loss=2, priority=1), Victim(loss=5)],
            id="the smaller loss at the lower priority where that at the higher is the same",
        ),
    ],
)
def test_the_cheaper_of_two_answers_is(cheaper: list[Victim], dearer: list[Victim]) -> None:
    assert cost(*cheaper) < cost(*dearer)
