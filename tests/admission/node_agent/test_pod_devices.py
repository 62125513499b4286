"""What the kubelet says of the devices of pods."""

from __future__ import annotations

import pytest

from admission.node_agent.gpus import ReadingError
from admission.node_agent.pod_devices import (
    PodDevices,
    annotation_of,
    given_twice,
    gpu_ids,
    parse_pod_devices,
)
from tests.admission.node_agent.recorded import inventory_of
from tests.kubelet import GPU, Containers, message, number, pod_resources

GPUS = inventory_of("lost").gpus
UUIDS = {gpu.index: gpu.uuid for gpu in GPUS}


def pod(*devices: str, name: str = "p") -> PodDevices:
    """Return a pod with these devices."""
    return PodDevices(namespace="team", name=name, devices=devices)


@pytest.mark.parametrize(
    ("containers", "want"),
    [
        pytest.param([], (), id="no container"),
        pytest.param([{}], (), id="no device"),
        pytest.param([{GPU: ["GPU-1", "GPU-2"]}], ("GPU-1", "GPU-2"), id="two devices"),
        pytest.param([{GPU: ["GPU-1"]}, {GPU: ["GPU-2"]}], ("GPU-1", "GPU-2"), id="two containers"),
        pytest.param([{f"{GPU}.shared": ["GPU-1::0"]}], ("GPU-1::0",), id="a shared device"),
        pytest.param([{"rdma/hca": ["mlx5_0"], GPU: ["GPU-1"]}], ("GPU-1",), id="a network adapter"),
        pytest.param([{"nvidia.com/mig-1g.5gb": ["MIG-1"]}], (), id="a resource of parts"),
    ],
)
def test_the_gpu_devices_of_a_pod_are_read(containers: Containers, want: tuple[str, ...]) -> None:
    reply = pod_resources("team", "p", containers) + pod_resources("other", "q", [{GPU: ["GPU-9"]}])

    assert parse_pod_devices(reply) == (
        pod(*want),
        PodDevices(namespace="other", name="q", devices=("GPU-9",)),
    )


def test_fields_of_a_newer_kubelet_are_passed_over() -> None:
    reply = message(1, message(1, "p") + message(2, "team") + number(9, 1) + message(10, "x")) + number(7, 3)

    assert parse_pod_devices(reply) == (pod(),)


@pytest.mark.parametrize(
    "reply",
    [
        pytest.param(number(1, 4), id="a number for a pod"),
        pytest.param(pod_resources("team", "p", [])[:-1], id="a truncated answer"),
        pytest.param(message(1, message(1, b"\xff")), id="a name that is no text"),
        pytest.param(b"\x0b", id="a group"),
    ],
)
def test_an_answer_that_is_none_is_an_error(reply: bytes) -> None:
    with pytest.raises(ReadingError, match="the kubelet's answer about pod resources cannot be read"):
        parse_pod_devices(reply)


@pytest.mark.covers("001_11")
@pytest.mark.parametrize(
    ("devices", "want"),
    [
        pytest.param([], None, id="no device"),
        pytest.param([UUIDS[3], UUIDS[0]], "0,3", id="by UUID, in ascending order"),
        pytest.param(["1", "3"], "1,3", id="by index"),
        pytest.param([f"{UUIDS[1]}::0", f"{UUIDS[1]}::3"], "1", id="two shares of one GPU"),
        pytest.param(["MIG-7c1c5e1c-0001-5c4e-9f3d-000000000000"], None, id="a part of a GPU"),
    ],
)
def test_devices_become_the_ids_of_gpus(devices: list[str], want: str | None) -> None:
    assert annotation_of(gpu_ids(pod(*devices), GPUS)) == want


@pytest.mark.parametrize("device", ["GPU-unknown", "2", "12345678901"])
def test_a_device_that_no_gpu_has_is_an_error_that_names_the_pod(device: str) -> None:
    with pytest.raises(ReadingError, match=f"pod team/p has the device {device}, which is no GPU"):
        gpu_ids(pod(UUIDS[0], device), GPUS)


def test_a_device_that_two_pods_have_is_named_and_a_shared_one_is_not() -> None:
    pods = [pod("GPU-1", "GPU-2::0"), pod("GPU-2::1", name="q"), pod("GPU-1", "GPU-3", name="r")]

    assert given_twice(pods) == ["the kubelet gave GPU-1 to both team/p and team/r"]
