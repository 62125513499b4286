"""Policies in the engine: which one governs a ClusterQueue, and what their changes wake."""

from __future__ import annotations

import re
from typing import Any

import pytest

from api.policy import (
    KUEUE,
    AdmissionPolicy,
    Aliases,
    Backfill,
    Estimates,
    QuotaWindow,
)
from tests.builders import World, make_cluster_queue, make_workload


def make_world(*values: object) -> World:
    return World().put(*values)


def test_a_queue_without_policy_is_kueues() -> None:
    world = make_world(make_cluster_queue())

    assert world.engine.queues.policy_of("queue") is KUEUE
    assert world.engine.queues.policy_of("missing") is KUEUE


def test_a_policy_governs_from_the_next_cycle_on_and_until_it_goes() -> None:
    policy = AdmissionPolicy(name="p", backfill=Backfill())
    world = make_world(make_cluster_queue(), policy)

    assert world.engine.queues.policy_of("queue") is policy
    world.remove(AdmissionPolicy, "p")
    assert world.engine.queues.policy_of("queue") is KUEUE


def test_a_policy_that_cannot_be_read_makes_room_for_the_next() -> None:
    first, second = AdmissionPolicy(name="a"), AdmissionPolicy(name="b")
    world = make_world(make_cluster_queue(), first, second)

    world.engine.objects.unreadable(AdmissionPolicy, "a", "spec.precedence is broken", now=world.now)

    assert world.engine.queues.policy_of("queue") is second
    view = world.engine.queues.policy_view("a")
    assert view is not None
    assert view.problem == "spec.precedence is broken"


@pytest.mark.parametrize("change", ["created", "changed", "deleted", "broken"])
def test_a_change_of_a_policy_wakes_the_parked(change: str) -> None:
    policy = AdmissionPolicy(name="p", backfill=Backfill())
    world = make_world(make_cluster_queue(quota=0), make_workload(gpus=1))
    if change != "created":
        world.put(policy)
    world.settle()
    assert world.parked() == ["w"]

    match change:
        case "created":
            world.put(policy)
        case "changed":
            world.put(AdmissionPolicy(name="p"))
        case "deleted":
            world.remove(AdmissionPolicy, "p")
        case _:
            world.engine.objects.unreadable(AdmissionPolicy, "p", "it is broken", now=world.now)

    assert world.engine.wake_heads(now=world.now)


def test_a_policy_that_says_nothing_new_wakes_no_workload() -> None:
    world = make_world(make_cluster_queue(quota=0), AdmissionPolicy(name="p"), make_workload(gpus=1))
    world.settle()

    world.put(AdmissionPolicy(name="p"))

    assert not world.engine.wake_heads(now=world.now)


def test_a_status_write_is_due_when_the_governed_queues_change() -> None:
    world = make_world(make_cluster_queue(), AdmissionPolicy(name="p", queue_names=frozenset({"other"})))
    world.engine.drain_touched()

    world.put(make_cluster_queue("other"))

    assert world.engine.drain_touched().policies == {"p"}
    view = world.engine.queues.policy_view("p")
    assert view is not None
    assert view.cluster_queues == ("other",)


def test_a_policy_inherits_from_its_base_and_says_so() -> None:
    others = frozenset({"other"})
    base = AdmissionPolicy(name="base", queue_names=others, backfill=Backfill(), aliases=Aliases.ARTICLES)
    world = make_world(make_cluster_queue(), base, AdmissionPolicy(name="p", base="base"))

    view = world.engine.queues.policy_view("p")

    assert world.engine.queues.policy_of("queue").backfill_rules == Backfill()
    assert view is not None
    assert (view.cluster_queues, view.base, view.inherits) == (
        ("queue",),
        "base",
        ("backfill", "aliases"),
    )


_WINDOW = QuotaWindow(name="night", cluster_queue="queue", flavor="default", resource="gpu", nominal=3)
_EITHER = "name it as spec.base, or repeat these sections here, to keep them"
_REPEAT = "repeat these sections here to keep them"


@pytest.mark.parametrize(
    ("low", "high", "want"),
    [
        pytest.param(
            {"backfill": Backfill()}, {}, f"takes backfill away .*: {_EITHER}", id="it may be the base"
        ),
        pytest.param(
            {"backfill": Backfill(), "base": "high"},
            {},
            f"takes backfill away .*: {_REPEAT}",
            id="it has this one as its base, so they would lead in a circle",
        ),
        pytest.param(
            {"backfill": Backfill()},
            {"base": "another"},
            f"takes backfill away .*: {_REPEAT}",
            id="there is a base, whose sections would go",
        ),
        pytest.param(
            {"quota_windows": (_WINDOW,)},
            {},
            f"takes quotaWindows away .*: {_REPEAT}",
            id="a calendar is not inherited",
        ),
    ],
)
def test_a_policy_that_takes_sections_away_says_how_to_keep_them(
    low: dict[str, Any], high: dict[str, Any], want: str
) -> None:
    another = AdmissionPolicy(name="another", queue_names=frozenset({"other"}), estimates=Estimates())
    world = make_world(make_cluster_queue(), another, AdmissionPolicy(name="high", precedence=1, **high))
    world.put(AdmissionPolicy(name="low", **low))

    view = world.engine.queues.policy_view("high")

    assert view is not None
    (said,) = view.takes_away
    assert re.fullmatch(want, said), said


def test_a_policy_without_its_base_is_not_in_force_until_the_base_is_there() -> None:
    world = make_world(make_cluster_queue(), AdmissionPolicy(name="p", base="base"))
    view = world.engine.queues.policy_view("p")
    assert world.engine.queues.policy_of("queue") is KUEUE
    assert view is not None
    assert view.problem is not None
    assert "spec.base is 'base'" in view.problem
    world.engine.drain_touched()

    world.put(AdmissionPolicy(name="base", queue_names=frozenset({"other"}), backfill=Backfill()))

    assert world.engine.queues.policy_of("queue").backfill_rules == Backfill()
    assert world.engine.drain_touched().policies == {"base", "p"}


def test_a_change_of_the_base_wakes_the_parked() -> None:
    base = AdmissionPolicy(name="base", queue_names=frozenset({"other"}))
    world = make_world(make_cluster_queue(quota=0), base, AdmissionPolicy(name="p", base="base"))
    world.put(make_workload(gpus=1))
    world.settle()
    assert world.parked() == ["w"]

    world.put(AdmissionPolicy(name="base", queue_names=frozenset({"other"}), backfill=Backfill()))

    assert world.engine.wake_heads(now=world.now)
    assert world.engine.queues.policy_of("queue").backfill_rules == Backfill()
