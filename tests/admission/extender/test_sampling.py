"""How many nodes a filter looks for and which: the numbers of kube-scheduler, and a turn for every node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.extender.sampling import Rotation, look_until, nodes_to_find


@pytest.mark.parametrize(
    ("percentage", "nodes", "want"),
    [
        pytest.param(100, 5000, 5000, id="all of them"),
        pytest.param(30, 500, 150, id="a share"),
        pytest.param(30, 1005, 301, id="a share is rounded down"),
        pytest.param(10, 500, 100, id="never fewer than 100"),
        pytest.param(1, 60, 60, id="all where there are fewer than 100"),
        pytest.param(1, 100, 100, id="all 100"),
        pytest.param(50, 0, 0, id="none of none"),
        pytest.param(0, 99, 99, id="adaptive: all where there are fewer than 100"),
        pytest.param(0, 250, 120, id="adaptive: 48% of 250"),
        pytest.param(0, 1000, 420, id="adaptive: 42% of 1,000"),
        pytest.param(0, 5000, 500, id="adaptive: 10% of 5,000"),
        pytest.param(0, 6000, 300, id="adaptive: 5% of 6,000"),
        pytest.param(0, 20000, 1000, id="adaptive: never below 5%"),
        pytest.param(3, 20000, 600, id="a percentage below 5% holds"),
    ],
)
def test_that_many_nodes_are_enough(percentage: int, nodes: int, want: int) -> None:
    assert nodes_to_find(percentage, nodes) == want


@st.composite
def clusters(draw: st.DrawFn) -> tuple[int, frozenset[int]]:
    """Return how many nodes there are, and the places of those that do not pass."""
    nodes = draw(st.integers(1, 600))
    return nodes, draw(st.frozensets(st.integers(0, nodes - 1)))


def looks(percentage: int, nodes: int, refused: frozenset[int], *, calls: int) -> list[list[int]]:
    """Return where each of some calls looked."""
    rotation, looks_made = Rotation(), []
    enough = nodes_to_find(percentage, nodes)
    for _ in range(calls):
        order = rotation.order("p", nodes)
        looked_at = look_until(enough, order, lambda places: refused.intersection(places))
        rotation.advance("p", len(looked_at))
        looks_made.append(list(looked_at))
    return looks_made


@given(st.integers(0, 100), clusters())
def test_a_look_finds_enough_or_has_seen_every_node(
    percentage: int, cluster: tuple[int, frozenset[int]]
) -> None:
    nodes, refused = cluster
    for looked_at in looks(percentage, nodes, refused, calls=3):
        passed = [place for place in looked_at if place not in refused]

        assert len(set(looked_at)) == len(looked_at)
        assert len(passed) <= nodes_to_find(percentage, nodes)
        if len(looked_at) < nodes:
            assert len(passed) == nodes_to_find(percentage, nodes) >= min(100, nodes - len(refused))
            assert looked_at[-1] == passed[-1], "no node is looked at after the last one needed"


@given(st.integers(0, 100), clusters())
def test_every_node_has_its_turn_before_any_has_its_third(
    percentage: int, cluster: tuple[int, frozenset[int]]
) -> None:
    nodes, refused = cluster
    seen: list[int] = []
    for looked_at in looks(percentage, nodes, refused, calls=nodes // min(nodes, 100) + 1):
        if set(seen) == set(range(nodes)):
            break
        seen += looked_at

    assert set(seen) == set(range(nodes))
    assert max(map(seen.count, seen)) <= 2


def test_each_name_has_a_rotation_of_its_own() -> None:
    rotation, met = Rotation(), dict[str, set[int]]({"a": set(), "b": set()})
    for _ in range(2):
        for name, places in met.items():
            looked_at = look_until(100, rotation.order(name, 200), lambda _: ())
            rotation.advance(name, len(looked_at))
            places.update(looked_at)

    assert met == {"a": set(range(200)), "b": set(range(200))}
