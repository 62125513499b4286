"""How many linked pods a node still takes, beside the pods that are there."""

from __future__ import annotations

import pytest

from admission.hardware.gpu_pods import ANY_NUMBER, GpuPods, LinkedGpus, Size
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
        pods.add("n", size, pods=count)

    assert pods.linked_room(KIND, ("n",), LinkedGpus(gpus)) == want


def test_pods_that_leave_free_their_island_and_only_those_of_the_place_count() -> None:
    pods = GpuPods()
    pods.add("n", 4, pods=2)
    pods.add(("", ("n",)), 4, pods=1)
    assert pods.linked_room(KIND, ("n",), LinkedGpus(4)) == 0

    pods.add("n", 4, pods=-2)
    assert pods.linked_room(KIND, ("n",), LinkedGpus(4)) == 2
    assert pods.linked_room(KIND, ("n", ("", ("n",))), LinkedGpus(4)) == 1
    pods.clear_leaves()
    assert pods.linked_room(KIND, ("n", ("", ("n",))), LinkedGpus(4)) == 2


def test_a_pod_that_records_its_gpus_takes_the_place_of_one_of_equal_size() -> None:
    pods = GpuPods()
    pods.add(("", ("n",)), 2, pods=2)
    places = ("n", ("", ("n",)))
    assert pods.linked_room(KIND, places, LinkedGpus(4)) == 1

    # Two GPUs of each island: what the numbers alone do not say.
    pods.record(("team", "a"), "n", PodGpus(2, ids=(0, 1)))
    pods.record(("team", "b"), "n", PodGpus(2, ids=(4, 5)))
    assert pods.linked_room(KIND, places, LinkedGpus(4)) == 0

    pods.record(("team", "b"), "", None)
    assert pods.linked_room(KIND, places, LinkedGpus(4)) == 1


def test_packing_that_fails_leaves_less_than_it_seems() -> None:
    pods = GpuPods()
    two = NodeHardware(gpus=2, devices=2, memory_mib=80_000)
    for milli, count in {480: 1, 320: 3, 240: 2}.items():
        pods.add("n", GpuShare(milli), pods=count)

    # 480 + 320 and 320 + 320 + 240 leave no room for the last 240; 480 + 240 + 240 and 320 + 320 + 320 do.
    assert pods.room(two, ("n",), GpuShare(100)) == 0
    assert pods.room(two, ("n",), GpuShare(40)) == 2


def test_shares_are_packed_and_leave_whole_gpus() -> None:
    pods = GpuPods()
    pods.add("n", GpuShare(600), pods=3)
    pods.add("n", GpuShare(400), pods=1)
    assert pods.has_shares
    # 600 and 400 on one GPU, 600 each on two.
    assert pods.room(KIND, ("n",), 1) == 5
    assert pods.room(KIND, ("n",), GpuShare(400)) == 12
    assert pods.room(KIND, ("n",), GpuShare(401)) == 10

    pods.add("n", GpuShare(600), pods=-3)
    pods.add("n", GpuShare(400), pods=-1)
    assert not pods.has_shares
    assert "n" not in pods


def test_a_shared_gpu_is_missing_in_its_island_once() -> None:
    pods = GpuPods()
    pods.add("n", HALF, pods=2)
    assert pods.linked_room(KIND, ("n",), LinkedGpus(4)) == 1
    pods.record(("team", "a"), "n", PodGpus(share=HALF, ids=(5,)))
    pods.record(("team", "b"), "n", PodGpus(share=HALF, ids=(5,)))
    assert pods.linked_room(KIND, ("n",), LinkedGpus(4)) == 1
    assert pods.linked_room(KIND, ("n",), LinkedGpus(3)) == 2


def test_memory_limits_shares_too() -> None:
    pods = GpuPods()
    pods.add("n", GpuShare(100, 50_000), pods=8)
    assert pods.room(KIND, ("n",), GpuShare(100, 40_000)) == 0
    assert pods.room(KIND, ("n",), GpuShare(100, 30_000)) == 8


def test_pods_without_a_share_take_slices_of_a_sliced_node() -> None:
    sliced = NodeHardware(gpus=8, devices=2, slices=4, memory_mib=80_000)
    pods = GpuPods()
    pods.add("n", 3, pods=1)
    assert pods.room(sliced, ("n",), 1) == 5
    assert pods.room(sliced, ("n",), GpuShare(1000)) == 1


def test_amounts_alone_limit_pods_of_mig_slices_and_there_are_no_shares() -> None:
    partitioned = NodeHardware(gpus=8, is_mig=True, memory_mib=10_000)
    pods = GpuPods()
    pods.add("n", 3, pods=1)
    assert pods.room(partitioned, ("n",), 5) == ANY_NUMBER
    assert pods.room(partitioned, (), 8) == ANY_NUMBER
    assert pods.room(partitioned, (), HALF) == 0


@pytest.mark.parametrize(
    ("linked", "others", "size", "want"),
    [
        pytest.param(4, 2, 2, 1, id="the other island holds both"),
        pytest.param(2, 3, 3, 0, id="two of three would break both islands"),
        pytest.param(2, 3, 2, 1, id="the rest of an island is left for the linked pod"),
        pytest.param(2, 3, LinkedGpus(2), 1, id="two linked pods share an island, and a third has none"),
        pytest.param(2, 3, GpuShare(500), 6, id="shares are packed beside it, and leave it an island"),
    ],
)
def test_pods_leave_an_island_to_a_linked_one_that_comes_last(
    linked: int, others: int, size: Size, want: int
) -> None:
    pods = GpuPods()
    pods.add("n", LinkedGpus(linked), pods=1)
    pods.add("n", others, pods=1)
    assert pods.has_linked

    assert pods.linked_room(KIND, ("n",), size) == want


def test_a_linked_pod_that_records_its_gpus_keeps_no_others_off() -> None:
    pods = GpuPods()
    pods.add("n", LinkedGpus(2), pods=1)
    pods.add("n", 3, pods=1)
    assert pods.linked_room(KIND, ("n",), 3) == 0

    pods.record(("team", "linked"), "n", PodGpus(2, ids=(0, 1)))
    assert pods.linked_room(KIND, ("n",), 3) > 1

    pods.add("n", LinkedGpus(2), pods=-1)
    assert not pods.has_linked


def test_a_linked_pod_that_can_have_no_island_keeps_no_others_off() -> None:
    pods = GpuPods()
    pods.add("n", LinkedGpus(4), pods=1)
    pods.add("n", 1, pods=2)
    assert pods.linked_room(KIND, ("n",), 2) == 1

    pods.record(("team", "a"), "n", PodGpus(1, ids=(0,)))
    pods.record(("team", "b"), "n", PodGpus(1, ids=(4,)))
    assert pods.linked_room(KIND, ("n",), 2) > 1


def test_slices_of_one_gpu_that_pods_record_leave_the_others() -> None:
    sliced = NodeHardware(gpus=8, devices=2, slices=4, memory_mib=80_000)
    pods = GpuPods()
    pods.add("n", 1, pods=3)
    for name in ("a", "b", "c"):
        pods.record(("team", name), "n", PodGpus(1, ids=(0,)))

    assert pods.room(sliced, ("n",), 1) == 5
    assert pods.room(sliced, ("n",), GpuShare(1000)) == 1
    assert pods.room(sliced, ("n",), GpuShare(250)) == 5


@pytest.mark.parametrize(
    ("recorded", "want"),
    [
        pytest.param([PodGpus(2, ids=(0, 1)), PodGpus(2, ids=(2, 3))], (1, 4), id="each its own"),
        pytest.param([PodGpus(2, ids=(0, 1)), PodGpus(2, ids=(0, 1))], (1, 4), id="both the same"),
        pytest.param([PodGpus(4, ids=(0, 1, 2, 3)), PodGpus(4, ids=(3, 4, 5, 6))], (0, 0), id="one of four"),
        pytest.param(
            [PodGpus(share=GpuShare(600), ids=(0,)), PodGpus(share=GpuShare(600), ids=(0,))],
            (1, 6),
            id="more shares than the GPU has",
        ),
        pytest.param(
            [PodGpus(1, ids=(0,)), PodGpus(share=GpuShare(600), ids=(0,))],
            (1, 6),
            id="a whole one and a share",
        ),
    ],
)
def test_a_gpu_that_two_pods_record_is_of_one_and_the_other_counts_by_number(
    recorded: list[PodGpus], want: tuple[int, int]
) -> None:
    for order in (recorded, recorded[::-1]):
        pods = GpuPods()
        for number, pod in enumerate(order):
            pods.add("n", pod.share or pod.gpus, pods=1)
            pods.record(("team", f"p{number}"), "n", pod)

        islands = pods.linked_room(KIND, ("n",), LinkedGpus(4))
        assert (islands, pods.room(KIND, ("n",), 1)) == want
