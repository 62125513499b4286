"""What pods leave of each GPU of a node, and whether there is any way to hold them."""

from __future__ import annotations

import pytest

from admission.hardware.gpu_shares import PodGpus, can_hold, free_gpus
from api.jobs.gpu_share import GpuShare

MIB = 80_000


def share(milli: int, mib: int = 0, *ids: int) -> PodGpus:
    return PodGpus(share=GpuShare(milli, mib), ids=ids)


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([], [1000, 1000, 1000], id="an idle node"),
        pytest.param([share(300), share(700)], [0, 1000, 1000], id="shares are packed on one GPU"),
        pytest.param([share(300, 0, 2)], [1000, 1000, 700], id="a recorded share stays where it is"),
        pytest.param([share(300, 0, 2), share(600)], [1000, 1000, 100], id="others join it"),
        pytest.param([PodGpus(2)], [0, 0, 1000], id="whole GPUs"),
        pytest.param([PodGpus(1), share(300)], [700, 0, 1000], id="whole GPUs are those without shares"),
        pytest.param([PodGpus(1, ids=(1,)), share(300)], [700, 0, 1000], id="a recorded whole GPU"),
        pytest.param(
            [share(100, 50_000), share(100, 50_000)], [900, 900, 1000], id="memory keeps shares apart"
        ),
        pytest.param(
            [share(300, 0, 9)], [700, 1000, 1000], id="an index that the node lacks is not recorded"
        ),
        pytest.param([PodGpus(5)], [0, 0, 0], id="more GPUs than the node has left"),
    ],
)
def test_what_is_left(pods: list[PodGpus], want: list[int]) -> None:
    assert [left.milli for left in free_gpus(3, MIB, pods)] == want


@pytest.mark.parametrize(
    ("devices", "pods", "want"),
    [
        pytest.param(1, [share(500), share(500)], True, id="two halves"),
        pytest.param(1, [share(500), share(501)], False, id="a little more than two halves"),
        pytest.param(2, [share(600), share(500), share(400), share(500)], True, id="in another order"),
        pytest.param(
            2,
            [share(440), share(330), share(330), share(220), share(220), share(220), share(220)],
            True,
            id="only some ways hold them",
        ),
        pytest.param(2, [share(100), PodGpus(1)], True, id="a whole GPU beside a share"),
        pytest.param(2, [share(100), PodGpus(2)], False, id="no second whole GPU beside a share"),
        pytest.param(2, [share(600, 0, 0), share(600, 0, 0)], False, id="recorded shares that overlap"),
        pytest.param(2, [share(600, 0, 0), share(500, 0, 1), share(500)], True, id="beside recorded ones"),
    ],
)
def test_whether_there_is_a_way(devices: int, pods: list[PodGpus], want: bool) -> None:
    assert can_hold(devices, MIB, pods) is want
