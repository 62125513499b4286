"""How many linked pods a node still takes, beside the pods that are there."""

from __future__ import annotations

import pytest

from admission.hardware.gpu_pods import GpuPods
from admission.hardware.islands import Island

PAIR = (Island(4, frozenset(range(4))), Island(4, frozenset(range(4, 8))))


@pytest.mark.parametrize(
    ("there", "gpus", "want"),
    [
        pytest.param({}, 4, 2, id="an idle node takes one in each island"),
        pytest.param({}, 3, 2, id="what is left of an island is too small for another"),
        pytest.param({}, 5, 0, id="more than an island has"),
        pytest.param({4: 1}, 4, 1, id="beside a pod that fills an island"),
        pytest.param({1: 4}, 4, 1, id="small pods share an island"),
        pytest.param({3: 2}, 2, 0, id="two GPUs are free, one in each island"),
        pytest.param({6: 1}, 2, 1, id="a large pod is spread, and leaves its rest in one island"),
    ],
)
def test_room_for_linked_pods(there: dict[int, int], gpus: int, want: int) -> None:
    pods = GpuPods()
    for size, count in there.items():
        pods.add("n", gpus=size, pods=count)

    assert pods.linked_room(PAIR, ("n",), gpus) == want


def test_pods_that_leave_free_their_island_and_only_those_of_the_place_count() -> None:
    pods = GpuPods()
    pods.add("n", gpus=4, pods=2)
    pods.add(("", ("n",)), gpus=4, pods=1)
    assert pods.linked_room(PAIR, ("n",), 4) == 0

    pods.add("n", gpus=4, pods=-2)
    assert pods.linked_room(PAIR, ("n",), 4) == 2
    assert pods.linked_room(PAIR, ("n", ("", ("n",))), 4) == 1
    pods.clear_leaves()
    assert pods.linked_room(PAIR, ("n", ("", ("n",))), 4) == 2
