"""How many linked pods a node still takes, beside the pods that are there."""

from __future__ import annotations

import pytest

from admission.hardware.gpu_pods import GpuPods
from admission.hardware.gpu_shares import PodGpus
from admission.hardware.islands import Island
from admission.hardware.node_hardware import NodeHardware
from api.jobs.gpu_share import GpuShare

PAIR = (Island(4, frozenset(range(4))), Island(4, frozenset(range(4, 8))))
KIND = NodeHardware(gpus=8, devices=8, memory_mib=80_000, islands=PAIR)
HALF = GpuShare(500)


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

    assert pods.linked_room(KIND, ("n",), gpus) == want


def test_pods_that_leave_free_their_island_and_only_those_of_the_place_count() -> None:
    pods = GpuPods()
    pods.add("n", gpus=4, pods=2)
    pods.add(("", ("n",)), gpus=4, pods=1)
    assert pods.linked_room(KIND, ("n",), 4) == 0

    pods.add("n", gpus=4, pods=-2)
    assert pods.linked_room(KIND, ("n",), 4) == 2
    assert pods.linked_room(KIND, ("n", ("", ("n",))), 4) == 1
    pods.clear_leaves()
    assert pods.linked_room(KIND, ("n", ("", ("n",))), 4) == 2


def test_a_pod_that_records_its_gpus_takes_the_place_of_one_of_equal_size() -> None:
    pods = GpuPods()
    pods.add(("", ("n",)), gpus=2, pods=2)
    places = ("n", ("", ("n",)))
    assert pods.linked_room(KIND, places, 4) == 1

    # Two GPUs of each island: what the numbers alone do not say.
    pods.record(("team", "a"), "n", PodGpus(2, ids=(0, 1)))
    pods.record(("team", "b"), "n", PodGpus(2, ids=(4, 5)))
    assert pods.linked_room(KIND, places, 4) == 0

    pods.record(("team", "b"), "", None)
    assert pods.linked_room(KIND, places, 4) == 1


def test_shares_are_packed_and_leave_whole_gpus() -> None:
    pods = GpuPods()
    pods.add("n", share=GpuShare(600), pods=3)
    pods.add("n", share=GpuShare(400), pods=1)
    assert pods.has_shares
    # 600 and 400 on one GPU, 600 each on two.
    assert pods.room(KIND, ("n",), 1) == 5
    assert pods.room(KIND, ("n",), GpuShare(400)) == 12
    assert pods.room(KIND, ("n",), GpuShare(401)) == 10

    pods.add("n", share=GpuShare(600), pods=-3)
    pods.add("n", share=GpuShare(400), pods=-1)
    assert not pods.has_shares
    assert "n" not in pods


def test_a_shared_gpu_is_missing_in_its_island_once() -> None:
    pods = GpuPods()
    pods.add("n", share=HALF, pods=2)
    assert pods.linked_room(KIND, ("n",), 4) == 1
    pods.record(("team", "a"), "n", PodGpus(share=HALF, ids=(5,)))
    pods.record(("team", "b"), "n", PodGpus(share=HALF, ids=(5,)))
    assert pods.linked_room(KIND, ("n",), 4) == 1
    assert pods.linked_room(KIND, ("n",), 3) == 2


def test_memory_limits_shares_too() -> None:
    pods = GpuPods()
    pods.add("n", share=GpuShare(100, 50_000), pods=8)
    assert pods.room(KIND, ("n",), GpuShare(100, 40_000)) == 0
    assert pods.room(KIND, ("n",), GpuShare(100, 30_000)) == 8


def test_pods_without_a_share_take_slices_of_a_sliced_node() -> None:
    sliced = NodeHardware(gpus=8, devices=2, slices=4, memory_mib=80_000)
    pods = GpuPods()
    pods.add("n", gpus=3, pods=1)
    assert pods.room(sliced, ("n",), 1) == 5
    assert pods.room(sliced, ("n",), GpuShare(1000)) == 1
