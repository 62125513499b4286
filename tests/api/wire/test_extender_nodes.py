"""Decoding whole nodes with a cache of earlier requests gives the same result as without it."""

from __future__ import annotations

import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from api import keys
from api.wire.extender import ExtenderArgs, LabelledNode, node_texts, read_args

POD = {"metadata": {"name": "p", "namespace": "team", "labels": {keys.WANTED_GPU_MODEL: "a100"}}}
HOSTILE = '},{"metadata":{"name":"'


def make_node(name: str, model: str = "a100", **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {keys.NODE_GPU_MODEL: model}}, "spec": {}, "status": status}


def request(nodes: list[dict[str, Any]] | None, *, pod: Any = POD, indent: int | None = None) -> bytes:
    items: dict[str, Any] = {"metadata": {}, "items": nodes}
    separators = (",", ":") if indent is None else None
    value = {"Pod": pod, "Nodes": items, "NodeNames": None}
    return json.dumps(value, separators=separators, indent=indent).encode()


def seen(args: ExtenderArgs) -> object:
    nodes = args.nodes
    read = (
        [] if nodes is None else [(bytes(raw), node) for raw, node in zip(nodes.raw, nodes.read, strict=True)]
    )
    return args.pod, nodes is None, read, args.node_names


def is_as_without(*bodies: bytes) -> bool:
    texts = node_texts()
    with_memory = [seen(read_args(bytearray(body), keeps_nodes=True, texts=texts)) for body in bodies]
    return with_memory == [seen(read_args(body, keeps_nodes=True)) for body in bodies]


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([request([make_node("a"), make_node("b")])] * 2, id="the same nodes again"),
        pytest.param(
            [request([make_node("a"), make_node("b")]), request([make_node("b"), make_node("a")])],
            id="in another order",
        ),
        pytest.param(
            [request([make_node("a", "a100")]), request([make_node("a", "h100")])],
            id="a node that has changed and is as long as before",
        ),
        pytest.param(
            [
                request([make_node("a"), make_node("b")]),
                request([make_node("a", x="longer"), make_node("b")]),
            ],
            id="a node that has grown",
        ),
        pytest.param([request([make_node("a", HOSTILE), make_node("b")])] * 2, id="a label like a border"),
        pytest.param(
            [request([make_node("a", deep=[{"a": 1}, {"metadata": {"name": "x"}}]), make_node("b")])] * 2,
            id="a border within a node",
        ),
        pytest.param(
            [request([{"apiVersion": "v1", "kind": "Node", **make_node(n)} for n in "ab"])] * 2,
            id="nodes with their kind",
        ),
        pytest.param([request([make_node("a")], indent=2)] * 2, id="indented"),
        pytest.param([request([])], id="no nodes"),
        pytest.param([request(None)], id="a list without items"),
        pytest.param([b'{"Pod":null,"Nodes":null,"NodeNames":["a"]}'], id="names"),
        pytest.param(
            [request([make_node("b")], pod={**POD, "Nodes": {"items": [make_node("a")]}})] * 2,
            id="a pod with nodes of its own",
        ),
    ],
)
def test_a_request_is_read_as_if_it_were_the_first(bodies: list[bytes]) -> None:
    assert is_as_without(*bodies)


@given(
    st.lists(
        st.lists(
            st.builds(
                make_node, st.sampled_from("abc"), st.sampled_from(["a100", "h100", HOSTILE, '"', "\\"])
            ),
            max_size=4,
        ),
        max_size=4,
    )
)
def test_any_sequence_of_requests_is_read_as_without_memory(lists: list[list[dict[str, Any]]]) -> None:
    assert is_as_without(*map(request, lists))


@pytest.mark.parametrize("cut_at", [1, 40, 120, 200, -3, -20, -60])
def test_a_request_that_is_cut_short_is_refused(cut_at: int) -> None:
    texts, whole = node_texts(), request([make_node("a"), make_node("b")])
    read_args(whole, keeps_nodes=True, texts=texts)

    with pytest.raises(ValueError, match=r"JSON|truncated|unexpected"):
        read_args(whole[:cut_at], keeps_nodes=True, texts=texts)


def test_a_node_is_decoded_once_while_its_text_stays_the_same() -> None:
    texts, bodies = node_texts(), [request([make_node("a"), make_node("b", m)]) for m in ("x", "x", "y")]
    read = [texts.cut(body) for body in bodies]

    nodes = [cut.nodes for cut in read if cut is not None]
    assert nodes[0][0] is nodes[1][0] is nodes[2][0]
    assert nodes[0][1] is nodes[1][1]
    assert nodes[2][1] == msgspec.json.decode(json.dumps(make_node("b", "y")), type=LabelledNode)
