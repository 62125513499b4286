"""Labels about hardware that cannot be understood are named, with the rule that applies."""

from __future__ import annotations

import pytest

from admission.hardware.label_problems import hardware_problems
from api.node import NodeInfo

ISLAND = "berth.dev/nvlink-island."


@pytest.mark.parametrize(
    ("labels", "want"),
    [
        pytest.param({}, [], id="no labels"),
        pytest.param(
            {"gpu-memory-gb": "80", "gpu-generation": "hopper", f"{ISLAND}0": "0-3", f"{ISLAND}1": "4"},
            [],
            id="labels that can be read",
        ),
        pytest.param(
            {"nvidia.com/gpu.memory": "80GB"},
            [
                "node n has the label nvidia.com/gpu.memory='80GB', but it must be a whole number; its GPUs "
                "count as without memory"
            ],
            id="memory with a unit",
        ),
        pytest.param(
            {"gpu-generation": "new"},
            [
                "node n has the label gpu-generation='new', but it must be a number, a model or a family; it "
                "counts as unknown"
            ],
            id="an unknown generation",
        ),
        pytest.param(
            {f"{ISLAND}0": "all"},
            [
                "node n has the label berth.dev/nvlink-island.0='all', but it must be GPUs such as "
                '"0-3", or their number; it counts as an empty island'
            ],
            id="an island of no GPUs",
        ),
        pytest.param(
            {f"{ISLAND}0": "0-7", f"{ISLAND}1": "8-15"},
            [
                "node n has islands of 16 GPUs in all, but 8 GPUs; each island counts as 8 smaller, so "
                "correct its labels"
            ],
            id="islands larger than their node",
        ),
        pytest.param({f"{ISLAND}0": "0_2-3", f"{ISLAND}1": "1_4-7"}, [], id="islands with gaps"),
        pytest.param(
            {f"{ISLAND}0": "0-3", f"{ISLAND}1": "3-6"},
            [
                "node n has GPU 3 in the label berth.dev/nvlink-island.1 and in berth.dev/nvlink-island.0, "
                "but it can be in one island only; it counts in the latter"
            ],
            id="a GPU in two islands",
        ),
        pytest.param(
            {"nvidia.com/gpu.count": "eight", "nvidia.com/gpu.replicas": "0"},
            [
                "node n has the label nvidia.com/gpu.count='eight', but it must be a whole number of at "
                "least 1; its GPUs are counted as it offers them",
                "node n has the label nvidia.com/gpu.replicas='0', but it must be a whole number of at "
                "least 1; its GPUs count as whole ones",
            ],
            id="numbers of GPUs",
        ),
    ],
)
def test_each_problem_is_a_sentence(labels: dict[str, str], want: list[str]) -> None:
    node = NodeInfo(name="n", labels=labels, allocatable={"nvidia.com/gpu": 8})

    assert list(hardware_problems(node)) == want


def test_islands_of_a_node_that_does_not_offer_its_gpus_yet_are_no_problem() -> None:
    node = NodeInfo(name="n", labels={f"{ISLAND}0": "0-7"}, allocatable={"cpu": 64_000})

    assert list(hardware_problems(node)) == []
