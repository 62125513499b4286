"""percentageOfNodesToScore as kube-scheduler meets it: over HTTP, by the pod's schedulerName."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from admission.controller.http.extender_profiles import extender_rules
from api.config.berth import ExtenderProfile, ExtenderSettings
from tests.admission.controller.extending import Object, Served, serving, whole
from tests.embedded import EmbeddedCluster

# 300 nodes of a third each: A100, A100 and too small for GPUAware, V100.
MODELS = ("A100", "A100", "V100")
NAMES = [f"n{number:03}" for number in range(300)]
A100_NAMES = [name for number, name in enumerate(NAMES) if number % 3 != 2]


def node(number: int) -> Object:
    """Return the node of that number."""
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "8"}
    labels = {
        "nvidia.com/gpu.product": MODELS[number % 3],
        "gpu-memory-gb": "4" if number % 3 == 1 else "80",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NAMES[number], "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts},
    }


NODES = [node(number) for number in range(300)]


def pod(scheduler: str, *, model: str = "") -> Object:
    """Return a pod that wants one GPU."""
    resources = {"limits": {"nvidia.com/gpu": 1}}
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "labels": {"accelerator.sched.io/gpu-model": model} if model else {},
        },
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "resources": resources}]},
    }


@pytest.fixture
async def served(embedded_server: EmbeddedCluster) -> AsyncIterator[Served]:
    """Give an extender whose profiles look at 40%, at an adaptive share, and at all of the nodes."""
    settings = ExtenderSettings(
        profiles=[
            ExtenderProfile(scheduler_name="forty", percentage_of_nodes_to_score=40),
            ExtenderProfile(scheduler_name="adaptive", percentage_of_nodes_to_score=0),
            ExtenderProfile(scheduler_name="strict", percentage_of_nodes_to_score=1, filters=["GPUAware"]),
        ]
    )
    async with serving(embedded_server.kubeconfig, NODES, rules=extender_rules(settings)) as one:
        yield one


async def ask(served: Served, wanted: Object, *, as_nodes: bool = False) -> Any:
    """Filter all nodes, by name or whole; return the answer."""
    body = whole(wanted, NODES) if as_nodes else {"Pod": wanted, "NodeNames": NAMES}
    answer = await served.post("/filter", body)
    assert answer.status == 200, answer.text
    return answer.json


def passed(answer: Any) -> list[str]:
    """Return the names of the nodes that passed."""
    if "nodes" in answer:
        return [one["metadata"]["name"] for one in answer["nodes"]["items"]]
    return list(answer["nodeNames"])


@pytest.mark.covers("004_20")
@pytest.mark.parametrize("as_nodes", [False, True], ids=["by name", "as whole nodes"])
@pytest.mark.parametrize(
    ("scheduler", "want"),
    [
        pytest.param("forty", 120, id="40% where its profile says so"),
        pytest.param("adaptive", 144, id="48% of 300 where it says 0"),
        pytest.param("strict", 100, id="100 where that would be fewer"),
        pytest.param("gpu-aware-scheduler", 200, id="all that pass in a profile that says nothing"),
        pytest.param("default-scheduler", 300, id="all for any other name"),
    ],
)
async def test_the_filter_stops_once_enough_nodes_passed(
    served: Served, scheduler: str, want: int, as_nodes: bool
) -> None:
    assert len(passed(await ask(served, pod(scheduler), as_nodes=as_nodes))) == want


@pytest.mark.parametrize("as_nodes", [False, True], ids=["by name", "as whole nodes"])
async def test_a_node_that_was_not_looked_at_is_neither_passed_nor_failed(
    served: Served, as_nodes: bool
) -> None:
    answer = await ask(served, pod("forty", model="A100"), as_nodes=as_nodes)

    # 120 of two in three: the last of them is the 179th place.
    assert passed(answer) == A100_NAMES[:120]
    assert list(answer["failedNodes"]) == [name for name in NAMES[:179] if name not in A100_NAMES]
    assert answer["failedAndUnresolvableNodes"] == answer["failedNodes"]


async def test_too_few_nodes_that_pass_have_every_node_looked_at(served: Served) -> None:
    answer = await ask(served, pod("forty", model="V100"))

    assert len(passed(answer)) == 100
    assert len(answer["failedNodes"]) == 200


async def test_rules_of_the_profile_are_asked_until_enough_passed(served: Served) -> None:
    answer = await ask(served, pod("strict", model="A100"))

    assert passed(answer) == NAMES[::3]
    assert answer["failedNodes"]["n001"] == "insufficient GPU memory: need 8GB, available 4GB"


@pytest.mark.covers("004_20")
async def test_each_pods_look_begins_where_the_last_ones_ended(served: Served) -> None:
    met = [passed(await ask(served, pod("forty", model="A100"))) for _ in range(3)]

    assert met[1] == [*A100_NAMES[:40], *A100_NAMES[120:]], "in the order in which they were asked about"
    assert met[2] == A100_NAMES[40:160]


async def test_a_nominated_node_that_is_asked_about_alone_is_looked_at(served: Served) -> None:
    await ask(served, pod("forty"))
    answer = (await served.post("/filter", {"Pod": pod("forty"), "NodeNames": ["n299"]})).json

    assert answer["nodeNames"] == ["n299"]


@pytest.mark.covers("000_29")
async def test_every_node_that_passed_is_scored(served: Served) -> None:
    names = passed(await ask(served, pod("forty")))
    answer = (await served.post("/prioritize", {"Pod": pod("forty"), "NodeNames": names})).json

    assert [one["host"] for one in answer] == names


async def test_the_log_says_how_many_were_not_looked_at(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "berth.extender"):
        await ask(served, pod("forty", model="A100"))

    assert "Filtering complete. Passed nodes: 120, Failed nodes: 59, Not looked at: 121" in caplog.messages
