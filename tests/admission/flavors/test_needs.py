"""What a head needs at least to start, which is checked before any search: quota, and room on nodes."""

from __future__ import annotations

from typing import Any

import pytest

from admission.flavors.feasibility import needs_of
from admission.placement.topology.placement_options import Strategy
from admission.placement.topology.request import PlacementRequest
from api.policy import AdmissionPolicy
from api.workload import PodSet
from tests.admission.flavors.test_placement_requests import BY_POLICY, make_world, pods, pop, request
from tests.builders import World, make_cluster_queue, make_group, make_pod_set, make_workload

Needed = list[list[tuple[str, dict[str, int], PlacementRequest | None]]]


def needs(world: World, **fields: Any) -> Needed:
    """Return for each need its options: flavor, amounts by resource, and what it asks of the nodes."""
    snapshot, pending = pop(world)
    queue = snapshot.queues["queue"]
    for name, value in fields.items():
        setattr(queue, name, value)
    found = needs_of(snapshot, queue, pending)
    cells = {id(cell): pair for pair, cell in queue.node.cells.items()}
    for option in (one for options in found for one in options):
        # Each amount is asked of the flavor's own quota.
        assert {cells[id(cell)].flavor for cell, _ in option.amounts} <= {option.flavor}
    # It is computed once for a shape.
    assert needs_of(snapshot, queue, pending) is found
    return [
        [
            (one.flavor, {cells[id(cell)].resource: value for cell, value in one.amounts}, one.request)
            for one in options
        ]
        for options in found
    ]


@pytest.mark.parametrize(
    ("sets", "want"),
    [
        pytest.param(
            (make_pod_set(count=3, requests={"cpu": 2}),),
            [[("plain", {"cpu": 6000}, None)]],
            id="the quota of all its pods",
        ),
        pytest.param(
            (make_pod_set(count=3, min_count=2, requests={"cpu": 2}),),
            [[("plain", {"cpu": 4000}, None)]],
            id="the quota of as many pods as it needs",
        ),
        pytest.param(
            (make_pod_set("none", 0, {"cpu": 1}), make_pod_set(count=1, requests={"cpu": 2})),
            [[("plain", {"cpu": 2000}, None)]],
            id="nothing for a pod set without pods",
        ),
        pytest.param(
            (pods(count=3, min_count=2, gpus=2),),
            [[("placed", {"gpu": 4}, request(count=2, gpus=2))]],
            id="room on nodes for as many pods as it needs",
        ),
        pytest.param(
            (make_pod_set(count=2, requests={"cpu": 1, "gpu": 2}),),
            [
                [("plain", {"cpu": 2000}, None)],
                [
                    (
                        "placed",
                        {"gpu": 4},
                        request(count=2, per_pod={"cpu": 1000, "gpu": 2, "pods": 1}, topology=None),
                    )
                ],
            ],
            id="an option of each resource group",
        ),
        pytest.param(
            (make_pod_set("a", requests={"cpu": 1}), make_pod_set("b", requests={"cpu": 2})),
            [[("plain", {"cpu": 1000}, None)], [("plain", {"cpu": 2000}, None)]],
            id="an option of each pod set",
        ),
        pytest.param(
            (make_pod_set(requests={"cpu": 1, "license": 1}),),
            [[("plain", {"cpu": 1000}, None)]],
            id="nothing of what no quota covers",
        ),
    ],
)
def test_a_head_needs_at_least(sets: tuple[PodSet, ...], want: Needed) -> None:
    found = needs(make_world(make_workload(pod_sets=sets)))

    assert sorted(found, key=str) == sorted(want, key=str)


def test_a_head_needs_one_of_the_flavors_with_the_hints_for_its_nodes() -> None:
    world = make_world(
        AdmissionPolicy(name="policy", placement=BY_POLICY), make_workload(pod_sets=(make_pod_set(),))
    )
    world.put(make_cluster_queue(groups=(make_group(placed=4, plain=4),)))

    ((placed, plain),) = needs(world)

    assert plain == ("plain", {"gpu": 1}, None)
    assert placed[2] is not None
    assert placed[2].keeps_domains_whole
    assert placed[2].options is not None
    assert placed[2].options.strategy is Strategy.CONSOLIDATED


def test_pods_whose_nodes_are_yet_to_come_need_no_room_on_nodes() -> None:
    world = make_world(make_workload(pod_sets=(pods(),)))

    assert needs(world, delayed_flavors=frozenset({"placed"})) == [[("placed", {"gpu": 1}, None)]]


def test_pods_count_where_a_quota_covers_them() -> None:
    world = make_world(make_workload(pod_sets=(pods(count=3, min_count=2),)))
    world.put(make_cluster_queue(groups=(make_group(plain=9), make_group(placed=9, resource="pods"))))

    found = needs(world)

    assert [[(flavor, amounts) for flavor, amounts, _ in options] for options in found] == [
        [("plain", {"gpu": 2})],
        [("placed", {"pods": 2})],
    ]


@pytest.mark.parametrize(
    ("known", "want"),
    [
        pytest.param(1023, 1024, id="beside all others up to the limit"),
        pytest.param(1024, 1, id="alone where the limit is reached"),
    ],
)
def test_what_a_shape_needs_is_kept(known: int, want: int) -> None:
    world = make_world(make_workload(pod_sets=(pods(),)))
    kept: dict[bytes, Any] = {f"shape {number}".encode(): () for number in range(known)}

    needs(world, needs=kept)

    assert len(kept) == want
