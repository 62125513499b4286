"""Nodes by name and by hostname, and what pods of others take of them."""

from __future__ import annotations

from dataclasses import replace

from admission.placement.topology.nodes import Nodes
from api.keys import HOSTNAME
from api.node import NodeInfo, PodUsage
from tests.admission.placement.fleets import GPU, make_node


def make(name: str, **labels: str) -> NodeInfo:
    return replace(make_node(name, "b0", "r0", 8), labels=labels)


def names_at(nodes: Nodes, host: str) -> list[str]:
    return [node.name for node in nodes.at_host(host)]


def test_a_node_is_found_by_its_hostname_label_or_else_by_its_name() -> None:
    nodes = Nodes()
    nodes.put(make("labelled", **{HOSTNAME: "host"}))
    nodes.put(make("plain"))

    assert (names_at(nodes, "host"), names_at(nodes, "plain"), names_at(nodes, "labelled")) == (
        ["labelled"],
        ["plain"],
        [],
    )


def test_two_nodes_that_claim_one_hostname_are_both_found_until_one_changes_its_label() -> None:
    nodes = Nodes()
    nodes.put(make("one", **{HOSTNAME: "host"}))
    nodes.put(make("two", **{HOSTNAME: "host"}))
    assert names_at(nodes, "host") == ["one", "two"]

    assert nodes.put(make("one", **{HOSTNAME: "other"}))
    assert (names_at(nodes, "host"), names_at(nodes, "other")) == (["two"], ["one"])

    nodes.drop("two")
    assert names_at(nodes, "host") == []


def test_a_node_reported_again_has_not_changed() -> None:
    nodes = Nodes()

    assert nodes.put(make("n"))
    assert not nodes.put(make("n"))
    assert nodes.put(replace(make("n"), is_ready=False))


def test_what_pods_take_stays_while_their_node_is_away() -> None:
    nodes = Nodes()
    nodes.put(make("n"))
    nodes.add_pod(PodUsage(namespace="x", name="p", node="n", requests={GPU: 3}))
    nodes.add_pod(PodUsage(namespace="x", name="q", node="n", requests={GPU: 1}))

    nodes.drop("n")
    nodes.put(make("n"))

    assert nodes.taken("n") == {GPU: 4}
    nodes.pop_pod(("x", "p"))
    assert nodes.taken("n") == {GPU: 1}
    assert nodes.pop_pod(("x", "p")) is None
