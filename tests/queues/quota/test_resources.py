"""Amounts of quota by flavor and resource: what pod sets charge, sums over flavors, and equality."""

from __future__ import annotations

import pytest

from api.workload import Admission, PodSetAssignment
from queues.quota.resources import FlavorResource, Quantities, by_resource, is_equal, pairs_of, to_quantities

A_GPU, B_GPU, A_CPU = (
    FlavorResource("a", "gpu"),
    FlavorResource("b", "gpu"),
    FlavorResource("a", "cpu"),
)


def make_assignment(flavors: dict[str, str], usage: dict[str, int]) -> PodSetAssignment:
    return PodSetAssignment(name="main", count=1, flavors=flavors, usage=usage)


@pytest.mark.parametrize(
    ("assignments", "want"),
    [
        pytest.param([], {}, id="without pod sets nothing is charged"),
        pytest.param(
            [({"gpu": "a", "cpu": "a"}, {"gpu": 2, "cpu": 500})],
            {A_GPU: 2, A_CPU: 500},
            id="each resource is charged to its flavor",
        ),
        pytest.param(
            [({"gpu": "a"}, {"gpu": 2}), ({"gpu": "a"}, {"gpu": 1})],
            {A_GPU: 3},
            id="pod sets of one flavor are charged together",
        ),
        pytest.param(
            [({"gpu": "a"}, {"gpu": 2}), ({"gpu": "b"}, {"gpu": 1})],
            {A_GPU: 2, B_GPU: 1},
            id="pod sets of two flavors are charged apart",
        ),
        pytest.param(
            [({"gpu": "a"}, {"pods": 4, "gpu": 1})],
            {A_GPU: 1},
            id="a resource without a flavor is not charged, and those after it are",
        ),
        pytest.param(
            [({"cpu": "a", "gpu": "a"}, {"cpu": 0, "gpu": 1})],
            {A_GPU: 1},
            id="an amount of zero is left out",
        ),
    ],
)
def test_pod_sets_charge(
    assignments: list[tuple[dict[str, str], dict[str, int]]], want: dict[FlavorResource, int]
) -> None:
    assert to_quantities(tuple(make_assignment(*one) for one in assignments)) == want


def test_amounts_are_summed_over_the_flavors_of_a_resource() -> None:
    assert by_resource({A_GPU: 2, B_GPU: 3, A_CPU: 500}) == {"gpu": 5, "cpu": 500}


def test_the_assigned_pairs_include_those_that_charge_nothing() -> None:
    pod_sets = (make_assignment({"gpu": "a"}, {"gpu": 2}), make_assignment({"gpu": "b", "cpu": "a"}, {}))

    assert pairs_of(Admission(cluster_queue="queue", pod_sets=pod_sets)) == {A_GPU, B_GPU, A_CPU}


@pytest.mark.parametrize(
    ("one", "other", "want"),
    [
        pytest.param({A_GPU: 1}, {A_GPU: 1}, True, id="the same amounts are equal"),
        pytest.param({A_GPU: 1}, {A_GPU: 2}, False, id="other amounts are not"),
        pytest.param({A_GPU: 1}, {B_GPU: 1}, False, id="other pairs are not"),
        pytest.param({A_GPU: 1, B_GPU: 0}, {A_GPU: 1}, True, id="an amount of zero equals a missing pair"),
        pytest.param({A_GPU: 1}, {A_GPU: 1, B_GPU: 0}, True, id="whichever side has it"),
        pytest.param({A_GPU: 1, B_GPU: 0}, {A_GPU: 2}, False, id="a zero does not hide another amount"),
    ],
)
def test_amounts_are_compared_pair_by_pair(one: Quantities, other: Quantities, want: bool) -> None:
    assert is_equal(one, other) is want


def test_a_pair_is_written_as_flavor_and_resource() -> None:
    assert str(A_GPU) == "a/gpu"
