"""A ClusterQueue's holders up to a priority, in order, as Workloads come, go and change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api import keys
from api.workload import Workload, WorkloadKey
from tests.builders import NAMESPACE, World, admits, make_cluster_queue, make_workload, reserved

NAMES = ("a", "b", "c", "d")
PRIORITIES = (-1, 0, 1, 2)

_steps = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from((None, *PRIORITIES))), max_size=20)


@given(_steps, st.sampled_from(PRIORITIES))
def test_it_is_known_without_a_look_at_all_of_them(steps: list[tuple[str, int | None]], asked: int) -> None:
    world = World().put(make_cluster_queue("queue", quota=9))
    priorities: dict[str, int] = {}
    for name, priority in steps:
        if priority is None:
            priorities.pop(name, None)
            world.remove(Workload, WorkloadKey(NAMESPACE, name))
        else:
            priorities[name] = priority
            world.put(replace(reserved(make_workload(name)), priority=priority))

        queue = world.engine._cache.queues["queue"]
        assert (queue.eviction_order.lowest <= asked) == any(one <= asked for one in priorities.values())
        world.engine.validate()


_changes = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(PRIORITIES), st.integers(0, 3)), min_size=2, max_size=20
)


@given(_changes)
def test_holders_of_quota_are_sorted_by_priority_and_the_last_to_start_first(
    changes: list[tuple[str, int, int]],
) -> None:
    world = World().put(make_cluster_queue("queue", quota=9))
    ranks: dict[str, tuple[int, int, str]] = {}
    for name, priority, at in changes:
        ranks[name] = priority, -at, name
        # The object of a Workload that holds quota already says something else by now.
        world.put(replace(reserved(make_workload(name), at=at), priority=priority))

        queue = world.engine._cache.queues["queue"]
        for highest in PRIORITIES:
            want = [name for rank, _, name in sorted(ranks.values()) if rank <= highest]
            assert [held.key.name for held in queue.holders_up_to(highest)] == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, ["next"], id="without an owner"),
        pytest.param({"owner_kind": "Job", "owner_name": "job"}, [], id="of a Job, whose pods may still run"),
        pytest.param({"annotations": {keys.IS_GROUP_WORKLOAD: "true"}}, [], id="of a pod group"),
    ],
)
def test_the_quota_of_a_deactivated_workload_is_free_at_once(fields: dict[str, Any], want: list[str]) -> None:
    """Kueue drops it from its cache; nothing but its own creator takes the reservation away."""
    running = reserved(make_workload("running", gpus=2, **fields))
    world = World().put(make_cluster_queue("queue", quota=2), running, make_workload("next", gpus=2))

    before = admits(world.settle())
    world.put(replace(running, active=False))
    after = admits(world.settle())

    assert (before, after) == ([], want)


def test_a_workload_that_is_activated_again_holds_the_quota_that_its_object_shows() -> None:
    running = reserved(make_workload("running", gpus=2))
    world = World().put(make_cluster_queue("queue", quota=2), replace(running, active=False))
    world.settle()

    world.put(running, make_workload("next", gpus=2))

    assert admits(world.settle()) == []
    world.engine.validate()
