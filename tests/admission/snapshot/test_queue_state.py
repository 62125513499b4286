"""The state of a ClusterQueue: which Workloads hold its quota, and in which order they are evicted."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from tests.admission.snapshot.small_cluster import GPU, PRESENT, key_of, make_cluster
from tests.builders import World, make_cluster_queue, make_group


def test_a_workload_that_is_released_holds_no_quota_and_is_no_candidate() -> None:
    cluster = make_cluster()
    queue = cluster.queues["a"]

    assert queue.release(key_of("v1"))
    assert not queue.release(key_of("v1"))

    assert queue.node.cell(GPU).usage == 4
    assert [held.key.name for held in queue.holders_up_to(inf)] == ["v3"]
    queue.validate()


def test_a_workload_that_is_charged_again_holds_quota_and_is_a_candidate() -> None:
    cluster = make_cluster()
    queue, held = cluster.taken("v1")
    queue.release(held.key)

    queue.charge(held)

    assert cluster.usage() == PRESENT
    assert queue.held[held.key] is held
    assert {one.key.name for one in queue.holders_up_to(0)} == {"v1", "v3"}
    assert list(queue.holders_up_to(-1)) == []
    queue.validate()


def test_a_candidate_that_is_ranked_with_a_later_start_comes_first() -> None:
    cluster = make_cluster()
    queue = cluster.queues["a"]
    for name in ("v3", "v1"):
        held = cluster.held(name)
        held.reserved_at = 500.0 if name == "v3" else 400.0
        queue.rank(held)

    assert [held.key.name for held in queue.holders_up_to(inf)] == ["v3", "v1"]


def test_an_order_that_does_not_match_the_holders_is_noticed() -> None:
    cluster = make_cluster()
    queue, held = cluster.taken("v1")
    held.reserved_at += 1e6
    queue.rank(held)
    held.reserved_at -= 2e6

    with pytest.raises(AssertionError, match="a has its holders in another order than"):
        queue.validate()
    queue.held[key_of("new")] = msgspec.structs.replace(held)
    with pytest.raises(AssertionError, match="a ranks 2 of 3 holders"):
        queue.validate()


def test_each_resource_has_the_flavors_and_cells_of_its_group() -> None:
    groups = (make_group("f1", "f2", resource="gpu", f1=8, f2=8), make_group("f3", resource="cpu", f3=8))
    world = World().put(make_cluster_queue("a", groups=groups))
    queue = world.engine._cache.snapshot().queues["a"]

    found = {
        resource: (group.index, group.resources, group.flavors) for resource, group in queue.groups.items()
    }
    assert found == {"gpu": (0, ("gpu",), ("f1", "f2")), "cpu": (1, ("cpu",), ("f3",))}
    for group in queue.groups.values():
        for name, cells in zip(group.flavors, group.cells, strict=True):
            assert cells == {
                resource: (GPU._replace(flavor=name, resource=resource), queue.node.cell(pair))
                for resource, (pair, _) in cells.items()
            }
            assert tuple(cells) == group.resources


@pytest.mark.parametrize(
    ("changed", "is_equal"),
    [
        pytest.param({}, True, id="of equal names, quotas and weights are equal"),
        pytest.param({"quota": 25}, False, id="of other quotas are not"),
        pytest.param({"cohort": "root"}, False, id="of another shape are not"),
    ],
)
def test_descriptions_of_trees(changed: dict[str, object], is_equal: bool) -> None:
    def describe(**fields: object) -> object:
        world = World().put(make_cluster_queue("a", **{"quota": 24, **fields}))  # type: ignore[arg-type]  # a table
        return world.engine._cache.snapshot().queues["a"].tree.describe()

    assert (describe() == describe(**changed)) is is_equal
