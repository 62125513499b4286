"""Scores of nodes for one pod, apart from the wire."""

from __future__ import annotations

import pytest

from admission.extender.gpu_fit import Affinity, NodeCandidates, Scores, roomiest_fabric, score_nodes
from api.wire.extender import NodeLabels, PodNeeds

POD = PodNeeds(namespace="team", name="p", gpus=1)


def candidates(*labels: NodeLabels | None) -> NodeCandidates:
    """Return a node for each."""
    return NodeCandidates([f"n{index}" for index in range(len(labels))], labels)


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param([], "", id="no nodes"),
        pytest.param([NodeLabels(), None], "", id="nodes in no fabric, and one that is not known"),
        pytest.param([NodeLabels(fabric="b"), NodeLabels(fabric="a")], "a", id="a tie falls by name"),
        pytest.param([NodeLabels(fabric="b")] * 2 + [NodeLabels(fabric="a")], "b", id="more nodes"),
        pytest.param(
            [NodeLabels(fabric="b")] * 2 + [NodeLabels(fabric="a", numa_node="0")], "a", id="better nodes"
        ),
    ],
)
def test_the_first_pod_goes_where_most_suits_it(labels: list[NodeLabels | None], want: str) -> None:
    assert roomiest_fabric(POD, candidates(*labels)) == want


def test_a_known_fabric_outranks_numa() -> None:
    nodes = candidates(NodeLabels(numa_node="0", fabric="b"), NodeLabels(fabric="a"), None)

    assert score_nodes(POD, nodes, fabrics={"a"}) == Scores(Affinity.FABRIC, [1, 10, 1])
