"""What `nvidia-smi topo -m` says, from recorded outputs, and the islands that follow."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.node_agent.gpus import ReadingError
from admission.node_agent.islands import fabric_kind, find_islands
from admission.node_agent.links import Links, parse_links
from tests.admission.node_agent.recorded import OUTPUTS, failure, links_of


@pytest.mark.covers("001_03")
@pytest.mark.parametrize(
    ("machine", "gpus", "islands", "kind"),
    [
        pytest.param("pcie", 4, [], "pcie", id="PCIe has no island"),
        pytest.param("dgx1", 8, [(0, 1, 2, 3), (4, 5, 6, 7)], "nvlink", id="a cube mesh has two"),
        pytest.param("nvswitch", 8, [tuple(range(8))], "nvswitch", id="a switch links all"),
        pytest.param("bridged", 4, [(0, 2), (1, 3)], "nvlink", id="bridges link pairs"),
        pytest.param("nvl72", 4, [(0, 1, 2, 3)], "nvswitch", id="four of a rack"),
        pytest.param("mig", 4, [(0, 1, 2, 3)], "nvlink", id="four with direct links"),
    ],
)
def test_the_islands_of_a_machine(machine: str, gpus: int, islands: list[tuple[int, ...]], kind: str) -> None:
    links = links_of(machine)

    assert find_islands(range(gpus), links) == islands
    assert fabric_kind(range(gpus), links) == kind


def test_links_are_counted() -> None:
    assert links_of("dgx1")[0, 3] == 2
    assert links_of("dgx1")[0, 1] == 1
    assert (0, 5) not in links_of("dgx1")
    assert links_of("nvswitch")[6, 7] == 18


@pytest.mark.parametrize(
    ("gpus", "links", "want"),
    [
        pytest.param([0], {}, "", id="one GPU"),
        pytest.param([], {}, "", id="none"),
        pytest.param([0, 1], {(0, 1): 12}, "nvlink", id="a bridge"),
        pytest.param([0, 1, 2], {(0, 1): 4}, "pcie", id="one GPU without a link"),
        pytest.param([0, 1], {(0, 2): 4, (1, 2): 4}, "pcie", id="links to a GPU that does not count"),
        pytest.param(
            [0, 1, 2, 3], dict.fromkeys(combinations(range(4), 2), 6), "nvlink", id="18 direct links"
        ),
        pytest.param(
            [0, 1, 2, 3], dict.fromkeys(combinations(range(4), 2), 7), "nvswitch", id="more than 18"
        ),
    ],
)
def test_the_kind_of_a_fabric(gpus: list[int], links: Links, want: str) -> None:
    assert fabric_kind(gpus, links) == want


@given(st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1])))
def test_islands_are_disjoint_linked_pairwise_and_cannot_grow(pairs: set[tuple[int, int]]) -> None:
    links = dict.fromkeys(pairs, 1)

    islands = find_islands(range(8), links)

    members = [gpu for island in islands for gpu in island]
    assert len(members) == len(set(members))
    for island in islands:
        assert all(pair in links for pair in combinations(island, 2))
    loose = set(range(8)) - set(members)
    for island in islands:
        assert not any(all(tuple(sorted((gpu, one))) in links for one in island) for gpu in loose)
    assert not any(pair in links for pair in combinations(sorted(loose), 2))
    assert [len(island) for island in islands] == sorted(map(len, islands), reverse=True)


MATRIX = (OUTPUTS / "pcie" / "topology.txt").read_text()


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", "no matrix of GPUs: nothing", id="nothing"),
        pytest.param(failure("mismatch"), "no matrix.*version mismatch", id="a driver that is broken"),
        pytest.param(
            (OUTPUTS / "lost" / "topology.txt").read_text(), "no matrix.*GPU is lost", id="a lost GPU"
        ),
        pytest.param(MATRIX.replace("GPU3\tSYS", "GPU9\tSYS"), "rows .* are not those", id="another row"),
        pytest.param("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "rows .* are not those", id="a missing row"),
        pytest.param(
            "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\n", "says nothing of GPU1 and GPU0", id="a short row"
        ),
    ],
)
def test_a_matrix_that_cannot_be_read_is_an_error_that_quotes_it(text: str, want: str) -> None:
    with pytest.raises(ReadingError, match=want):
        parse_links(text)


def test_a_link_that_one_side_alone_reports_is_none() -> None:
    assert parse_links("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tSYS\t X \n") == {}
