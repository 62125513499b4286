"""Nodes that a Workload excludes, because its pods could not be bound there: placement leaves them out.

rack r0: n0 n1      rack r1: n2 n3      two GPUs a node
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.excluded_nodes import excluded_text
from api.policy import PlacementRules
from tests.admission.calendar.test_reserved_domains import hosts, make_world, submit

T = 1000.0


def without(*nodes: str) -> dict[str, str]:
    """Return the annotations of a Workload that excludes these nodes."""
    return {"berth.dev/excluded-nodes": excluded_text(dict.fromkeys(nodes, T)) or ""}


@pytest.mark.parametrize("placement", [None, PlacementRules()], ids=["without a policy", "with a policy"])
def test_its_pods_go_to_other_nodes(placement: PlacementRules | None) -> None:
    world = make_world(placement=placement)
    submit(world, "gang", 2, required="rack", runs=50, annotations=without("n1"))

    world.run(until=T + 1)

    assert hosts(world, "gang") == {"n2", "n3"}


def test_it_waits_while_only_excluded_nodes_are_left_and_an_equal_one_does_not() -> None:
    world = make_world()
    submit(world, "first", 1, runs=50, annotations=without("n0", "n1", "n2", "n3"))
    submit(world, "second", 1, runs=50, at=T + 1)

    world.run(until=T + 2)

    assert world.started == {"second": T + 1}
    assert "couldNotBind: 4" in world.said["first"][-1]


def test_a_node_that_is_excluded_while_it_waits_counts_at_once() -> None:
    world = make_world(quota=2)
    submit(world, "runs", 1, runs=50)
    submit(world, "gang", 1, runs=50, at=T + 1)
    world.run(until=T + 2)

    world.engine.objects.upsert(
        replace(world.get("gang"), annotations=without("n0", "n1", "n2")), now=world.now
    )
    world.run(until=T + 60)

    assert hosts(world, "gang") == {"n3"}
