"""Trial usage: what a walk has counted, and by what the stage differs from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import pytest

from api.workload import WorkloadKey
from queues.profile.capacity_profile import BEGIN, RELEASE, Claim, Edge, Spot, Spots
from queues.profile.trial_usage import TrialUsage
from queues.quota.resources import FlavorResource, Quantities

GPU, CPU = FlavorResource("f", "gpu"), FlavorResource("f", "cpu")
NEAR: Spot = ("", ("near",))
FAR: Spot = ("", ("far",))


@dataclass
class RecordingStage:
    """Writes down every change."""

    changes: list[tuple[str, str, Quantities]] = field(default_factory=list)
    occupied: list[Spots] = field(default_factory=list)

    def charge(self, queue: str, usage: Quantities) -> None:
        self.changes.append(("charge", queue, dict(usage)))

    def shift(self, queue: str, amounts: Quantities) -> None:
        self.changes.append(("shift", queue, dict(amounts)))

    def occupy(self, spots: Spots) -> None:
        self.occupied.append({spot: dict(amounts) for spot, amounts in spots.items()})


def edge(
    queue: str, sign: int, usage: Quantities, *, lowers: Mapping[FlavorResource, int] | None = None
) -> Edge:
    holder = WorkloadKey("ns", queue)
    claim = Claim(holder=holder, queue=queue, usage=usage, quota=lowers or {}, begins_at=1, ends_at=inf)
    return 1.0, sign, holder, claim


def counting(*edges: Edge) -> tuple[RecordingStage, TrialUsage]:
    stage = RecordingStage()
    trial = TrialUsage(stage)
    trial.count(edges, 1)
    return stage, trial


def test_begins_count_as_used_and_ends_as_free_for_each_queue_and_resource() -> None:
    _, trial = counting(
        edge("a", BEGIN, {GPU: 3, CPU: 10}), edge("a", RELEASE, {GPU: 1}), edge("b", RELEASE, {GPU: 2})
    )

    assert trial.usage_beyond_present() == {"a": {GPU: 2, CPU: 10}, "b": {GPU: -2}}


def test_edges_that_are_taken_back_count_for_nothing() -> None:
    edges = [edge("a", BEGIN, {GPU: 3}, lowers={CPU: 4}), edge("a", RELEASE, {GPU: 1})]
    stage, trial = counting(*edges)

    trial.count(edges, -1)
    trial.show_quota()

    assert trial.usage_beyond_present() == {"a": {GPU: 0}}
    assert stage.changes == []


def test_what_a_walk_counts_later_does_not_change_a_copy() -> None:
    _, trial = counting(edge("a", BEGIN, {GPU: 3}))
    copy = trial.usage_beyond_present()

    trial.count([edge("a", BEGIN, {GPU: 1})], 1)

    assert copy == {"a": {GPU: 3}}


def test_the_stage_receives_only_the_difference_from_what_it_last_showed() -> None:
    stage, trial = counting(edge("a", BEGIN, {GPU: 3, CPU: 10}))
    trial.show_quota()
    trial.show_quota()
    trial.count([edge("a", RELEASE, {GPU: 1}), edge("b", BEGIN, {GPU: 5})], 1)
    trial.show_quota()

    assert stage.changes == [
        ("charge", "a", {GPU: 3, CPU: 10}),
        ("charge", "a", {GPU: -1}),
        ("charge", "b", {GPU: 5}),
    ]


def test_the_stage_shows_lowered_nominal_quota_and_its_return() -> None:
    window = [edge("a", BEGIN, {}, lowers={GPU: 2}), edge("a", BEGIN, {}, lowers={GPU: 1, CPU: 5})]
    stage, trial = counting(*window)
    trial.show_quota()
    trial.count(window[:1], -1)
    trial.show_quota()

    assert stage.changes == [("shift", "a", {GPU: 3, CPU: 5}), ("shift", "a", {GPU: -2})]


def test_a_return_to_a_copy_is_shown_for_every_queue_even_for_one_that_the_copy_lacks() -> None:
    stage, trial = counting(edge("a", BEGIN, {GPU: 3}))
    copy = trial.usage_beyond_present()
    trial.count([edge("a", BEGIN, {GPU: 1, CPU: 2}), edge("b", BEGIN, {GPU: 5})], 1)
    trial.show_quota()
    stage.changes.clear()

    assert trial.return_to(copy)
    trial.show_quota()

    assert trial.usage_beyond_present() == {"a": {GPU: 3, CPU: 0}, "b": {GPU: 0}}
    assert stage.changes == [("charge", "a", {GPU: -1, CPU: -2}), ("charge", "b", {GPU: -5})]


def test_no_return_to_a_copy_once_quotas_have_changed() -> None:
    _, trial = counting(edge("a", BEGIN, {GPU: 3}))
    copy = trial.usage_beyond_present()
    trial.count([edge("a", BEGIN, {GPU: 1}, lowers={GPU: 1})], 1)

    assert not trial.return_to(copy)
    assert trial.usage_beyond_present() == {"a": {GPU: 4}}


@pytest.mark.parametrize(
    ("more", "is_within"),
    [
        pytest.param([], True, id="the same usage is within it"),
        pytest.param([edge("a", RELEASE, {GPU: 1})], True, id="less usage is within it"),
        pytest.param([edge("a", BEGIN, {GPU: 1})], False, id="more usage is not"),
        pytest.param([edge("a", BEGIN, {CPU: 1})], False, id="usage of another resource is not"),
        pytest.param(
            [edge("a", RELEASE, {GPU: 1}), edge("b", BEGIN, {GPU: 1})],
            False,
            id="less usage in one queue does not make up for more in another",
        ),
        pytest.param([edge("b", RELEASE, {GPU: 1})], True, id="less usage of another queue is within it"),
        pytest.param([edge("b", BEGIN, {GPU: 0})], True, id="another queue that uses nothing is within it"),
        pytest.param(
            [edge("a", RELEASE, {}, lowers={GPU: 1})], False, id="nothing is within it once quotas change"
        ),
    ],
)
def test_compared_with_a_copy_from_earlier_on_the_way(more: list[Edge], is_within: bool) -> None:
    _, trial = counting(edge("a", BEGIN, {GPU: 3}))
    copy = trial.usage_beyond_present()

    trial.count(more, 1)

    assert trial.is_within(copy) is is_within


def test_a_spot_is_changed_by_the_difference_and_what_is_no_longer_taken_there_is_free_again() -> None:
    stage, trial = counting()
    trial.show_spots([(NEAR, {"gpu": 2, "cpu": 8}), (FAR, {"gpu": 1})])
    trial.show_spots([(NEAR, {"gpu": 3}), (FAR, {"gpu": 1})])

    assert stage.occupied == [
        {NEAR: {"gpu": 2, "cpu": 8}, FAR: {"gpu": 1}},
        {NEAR: {"gpu": 1, "cpu": -8}},
    ]


def test_a_spot_of_which_nothing_was_or_is_taken_is_not_changed() -> None:
    stage, trial = counting()

    trial.show_spots([(NEAR, {"gpu": 0})])
    trial.show_spots([(NEAR, {})])

    assert stage.occupied == []


def test_the_stage_shows_the_present_again_and_never_what_it_had_not_been_shown() -> None:
    stage, trial = counting(edge("a", BEGIN, {GPU: 3}, lowers={CPU: 4}))
    trial.show_quota()
    trial.show_spots([(NEAR, {"gpu": 2})])
    trial.count([edge("a", BEGIN, {GPU: 7}), edge("b", BEGIN, {GPU: 5})], 1)

    trial.take_back()

    assert stage.changes[2:] == [("charge", "a", {GPU: -3}), ("shift", "a", {CPU: -4})]
    assert stage.occupied[1:] == [{NEAR: {"gpu": -2}}]


def test_a_walk_goes_on_after_the_present_was_shown() -> None:
    stage, trial = counting(edge("a", BEGIN, {GPU: 3}))
    trial.show_quota()
    trial.show_spots([(NEAR, {"gpu": 2})])
    trial.take_back()
    stage.changes.clear()
    stage.occupied.clear()

    trial.count([edge("a", BEGIN, {GPU: 1})], 1)
    trial.show_quota()
    trial.show_spots([(NEAR, {"gpu": 1})])

    assert stage.changes == [("charge", "a", {GPU: 1})]
    assert stage.occupied == [{NEAR: {"gpu": 1}}]
