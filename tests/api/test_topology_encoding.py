"""The written form of topology assignments, which is Kueue's (KEP 2724), byte for byte in what it lists."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.keys import HOSTNAME
from api.objects.workloads import WireTopologyAssignment
from api.parsing.problems import SpecError
from api.topology_encoding import to_topology, topology_body
from api.workload import DomainCount, TopologyAssignment


def make_assignment(*domains: tuple[int, str], levels: tuple[str, ...] = (HOSTNAME,)) -> TopologyAssignment:
    """Return an assignment of a number of pods to each domain; values of several levels stand behind `/`."""
    return TopologyAssignment(
        levels=levels,
        domains=tuple(DomainCount(values=tuple(text.split("/")), count=count) for count, text in domains),
    )


def one_slice(count: int, pods: dict[str, Any], *levels: dict[str, Any]) -> dict[str, Any]:
    return {"domainCount": count, "valuesPerLevel": list(levels), "podCounts": pods}


@pytest.mark.parametrize(
    ("assignment", "want"),
    [
        pytest.param(
            make_assignment((4, "x1")),
            [one_slice(1, {"universal": 4}, {"universal": "x1"})],
            id="one domain",
        ),
        pytest.param(
            make_assignment((1, "x3"), (2, "x1")),
            [one_slice(2, {"individual": [1, 2]}, {"individual": {"prefix": "x", "roots": ["3", "1"]}})],
            id="a common beginning is written once",
        ),
        pytest.param(
            make_assignment((1, "r1/a.gpu"), (1, "r1/b.gpu"), levels=("rack", "host")),
            [
                one_slice(
                    2,
                    {"universal": 1},
                    {"universal": "r1"},
                    {"individual": {"suffix": ".gpu", "roots": ["a", "b"]}},
                )
            ],
            id="a common end likewise, and what is the same at a level",
        ),
        pytest.param(
            make_assignment((1, "ababa"), (1, "aba")),
            [one_slice(2, {"universal": 1}, {"individual": {"suffix": "aba", "roots": ["ab", ""]}})],
            id="beginning and end do not overlap",
        ),
        pytest.param(
            make_assignment((1, "a"), (1, "b")),
            [one_slice(2, {"universal": 1}, {"individual": {"roots": ["a", "b"]}})],
            id="nothing in common",
        ),
        pytest.param(
            make_assignment((1, "pool-a-0"), (1, "pool-a-1"), (1, "pool-b-0")),
            [
                one_slice(
                    3, {"universal": 1}, {"individual": {"prefix": "pool-", "roots": ["a-0", "a-1", "b-0"]}}
                )
            ],
            id="one slice for all where that is shorter",
        ),
        pytest.param(
            make_assignment(
                *((1, f"training-pool-a100-node-{number}") for number in range(20)),
                *((1, f"inference-pool-h100-node-{number}") for number in range(20)),
            ),
            [
                one_slice(
                    20,
                    {"universal": 1},
                    {
                        "individual": {
                            "prefix": f"{pool}-node-",
                            "roots": [str(number) for number in range(20)],
                        }
                    },
                )
                for pool in ("training-pool-a100", "inference-pool-h100")
            ],
            id="a slice for each pool where that is shorter",
        ),
        pytest.param(
            make_assignment(
                *((1, f"training-pool-a100-node-{number}/r") for number in range(20)),
                *((1, f"inference-pool-h100-node-{number}/r") for number in range(20)),
                levels=("pool", "rack"),
            ),
            [
                one_slice(
                    40,
                    {"universal": 1},
                    {
                        "individual": {
                            "roots": [
                                f"{pool}-node-{number}"
                                for pool in ("training-pool-a100", "inference-pool-h100")
                                for number in range(20)
                            ]
                        }
                    },
                    {"universal": "r"},
                )
            ],
            id="runs are of hosts only",
        ),
        pytest.param(make_assignment(), [], id="no domain"),
    ],
)
def test_an_assignment_is_written_as_kueue_writes_it(
    assignment: TopologyAssignment, want: list[dict[str, Any]]
) -> None:
    assert topology_body(assignment) == {"levels": list(assignment.levels), "slices": want}


def test_no_more_slices_are_written_than_the_api_allows() -> None:
    pairs = [f"pool-{number:04}-{node}" for number in range(1001) for node in "ab"]

    body = topology_body(make_assignment(*((1, host) for host in pairs)))

    assert len(body["slices"]) == 1


@given(
    st.lists(
        st.tuples(st.integers(1, 3), st.text("ab-", min_size=1, max_size=6)),
        min_size=1,
        unique_by=lambda domain: domain[1],
    )
)
def test_what_is_written_is_read_as_it_was(domains: list[tuple[int, str]]) -> None:
    assignment = make_assignment(*domains)

    wire = msgspec.convert(topology_body(assignment), WireTopologyAssignment)

    assert to_topology("status", wire) == assignment


def claiming(values: dict[str, Any], count: int, slices: int = 1) -> WireTopologyAssignment:
    """Return an assignment of slices with one level each."""
    one = {"domainCount": count, "valuesPerLevel": [values], "podCounts": {"universal": 1}}
    return msgspec.convert({"levels": [HOSTNAME], "slices": [one] * slices}, WireTopologyAssignment)


@pytest.mark.parametrize(
    ("wire", "characters"),
    [
        pytest.param(
            claiming({"individual": {"prefix": "x" * 10_000, "roots": [""] * 1000}}, 1000),
            "10,000,000",
            id="a long beginning of many",
        ),
        pytest.param(
            claiming({"individual": {"suffix": "x" * 10_000, "roots": ["a"] * 1000}}, 1000),
            "10,001,000",
            id="a long end of many",
        ),
        pytest.param(
            claiming({"universal": "x" * 9_000}, 1, slices=1000),
            "9,000,000",
            id="one long value in many slices",
        ),
    ],
)
def test_values_that_would_take_too_much_are_refused_before_they_are_made(
    wire: WireTopologyAssignment, characters: str
) -> None:
    tracemalloc.start()
    with pytest.raises(SpecError, match=f"have {characters} characters, more than 8,388,608"):
        to_topology("status", wire)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 20


def test_as_many_hosts_as_a_slice_may_have_are_read() -> None:
    roots = [f"{number:06}" for number in range(100_000)]
    wire = claiming({"individual": {"prefix": "x" * 57, "roots": roots}}, len(roots))

    assert len(to_topology("status", wire).domains) == 100_000
