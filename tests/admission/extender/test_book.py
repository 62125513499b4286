"""What runs where, whatever order nodes and pods come and go in, and what cannot be read."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission.controller.http.extender_profiles import ExtenderRules, ProfileRules
from admission.controller.runtime.logs import KeyValueFormatter
from admission.extender.book import NodeBook
from admission.extender.facts import PodFacts
from admission.extender.gpu_fit import NodeCandidates
from api.node import NodeInfo
from api.objects.cluster import NodeObject, PodObject

GPU = "nvidia.com/gpu"
NODES, PODS = ("a", "b"), ("p", "q", "r")
STEPS = st.one_of(
    st.tuples(st.just("node"), st.sampled_from(NODES)),
    st.tuples(st.just("gone"), st.sampled_from(NODES)),
    st.tuples(st.just("bind"), st.sampled_from(PODS), st.sampled_from(NODES), st.integers(0, 8)),
    st.tuples(st.just("release"), st.sampled_from(PODS)),
    st.tuples(st.just("look"), st.sampled_from(NODES)),
)


def asking(name: str, gpus: int) -> PodFacts:
    return PodFacts(namespace="team", name=name, labels={}, annotations={}, requests={GPU: gpus})


@given(st.lists(STEPS, max_size=30))
def test_the_books_agree_whatever_comes_and_goes_in_whatever_order(steps: list[tuple[Any, ...]]) -> None:
    book, where, nodes = NodeBook(), dict[str, tuple[str, int]](), set[str]()
    for step in steps:
        match step:
            case ("node", name):
                book.put_node(NodeInfo(name=name))
                nodes.add(name)
            case ("gone", name):
                book.remove_node(name)
                nodes.discard(name)
            case ("bind", pod, name, gpus):
                book.bind(asking(pod, gpus), name)
                where[pod] = (name, gpus)
            case ("release", pod):
                book.release(("team", pod))
                where.pop(pod, None)
            case ("look", name):
                view = book.view(name)
                assert (view is not None) == (name in nodes)
                if view is not None:
                    used = sum(gpus for node, gpus in where.values() if node == name)
                    assert view.used.get(GPU, 0) == used
        book.validate()


# --- what cannot be read -----------------------------------------------------------------------------


def bound(name: str, gpus: str) -> PodObject:
    requests = {"requests": {GPU: gpus}}
    spec = {"nodeName": "a", "containers": [{"name": "c", "resources": requests}]}
    return msgspec.convert({"metadata": {"name": name, "namespace": "team"}, "spec": spec}, PodObject)


def node(gpus: str) -> NodeObject:
    amounts = {GPU: gpus, "pods": "10"}
    return msgspec.convert(
        {
            "metadata": {"name": "a", "labels": {"gpu-memory-gb": "80"}},
            "status": {"allocatable": amounts, "capacity": amounts},
        },
        NodeObject,
    )


def refused(ruled: ProfileRules, gpus: int) -> str:
    """Return why a pod of `gpus` GPUs may not run on the node, empty where it may."""
    asked = NodeCandidates(["a"], [None])
    answer = ruled.refusals("gpu-aware-scheduler", asking("new", gpus), asked, ())
    return answer["a"].reason if answer else ""


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the lines of the log as they begin: what happened, and to which object."""
    lines = (KeyValueFormatter().format(record) for record in caplog.records)
    return [" ".join(line.split(" ")[2:4]) for line in lines]


def test_a_pod_that_cannot_be_read_is_named_and_the_others_count(caplog: pytest.LogCaptureFixture) -> None:
    ruled = ProfileRules(ExtenderRules())
    ruled.take_node(node("8"))
    ruled.take_pod(bound("good", "2"))
    ruled.take_pod(bound("bad", "5"))
    assert refused(ruled, 2) == "insufficient GPU: need 2, available 1"

    with caplog.at_level(logging.WARNING, "berth.extender"):
        ruled.take_pod(bound("bad", "many"))

    assert said(caplog) == ["pod-unreadable pod=team/bad"]
    assert refused(ruled, 6) == ""
    assert refused(ruled, 7) == "insufficient GPU: need 7, available 6"


def test_a_node_that_cannot_be_read_is_named_and_has_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ruled = ProfileRules(ExtenderRules())

    with caplog.at_level(logging.WARNING, "berth.extender"):
        ruled.take_node(node("many"))

    assert said(caplog) == ["node-unreadable node=a"]
    assert refused(ruled, 1) == "insufficient GPU: need 1, available 0"
    ruled.take_node(node("8"))
    assert refused(ruled, 8) == ""
