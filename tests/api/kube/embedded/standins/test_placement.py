"""Where the simulated scheduler places a pod, and its message if no node fits."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from api.kube.embedded.standins.objects import Pod, PodMeta, PodSpec
from api.kube.embedded.standins.placement import NodeRoom, choose_node, explain, requests_of
from api.objects.cluster import NodeObject, NodeSpec, NodeStatus
from api.objects.common import Meta, WireSelectorRequirement, WireTaint, WireToleration
from api.objects.templates import (
    WireAffinity,
    WireContainer,
    WireNodeAffinity,
    WireNodeSelector,
    WireNodeSelectorTerm,
    WireResources,
)

GPU = "nvidia.com/gpu"
TAINT = WireTaint(key="dedicated", value="ml", effect="NoSchedule")


def room(
    name: str,
    *,
    gpus: int = 8,
    labels: Mapping[str, str] | None = None,
    taints: tuple[WireTaint, ...] = (),
    unschedulable: bool = False,
) -> NodeRoom:
    allocatable: dict[str, str | int | float] = {"cpu": "16", "memory": "64Gi", GPU: gpus}
    node = NodeObject(
        metadata=Meta(name=name, labels=dict(labels or {})),
        spec=NodeSpec(taints=taints, unschedulable=unschedulable),
        status=NodeStatus(allocatable=allocatable),
    )
    return NodeRoom.of(node, [])


def container(restart_policy: str | None = None, **requests: str | int) -> WireContainer:
    named = {GPU if key == "gpu" else key: amount for key, amount in requests.items()}
    return WireContainer(
        name="c", resources=WireResources(requests=dict(named)), restart_policy=restart_policy
    )


def pod(
    *,
    gpus: int = 1,
    selector: Mapping[str, str] | None = None,
    tolerations: tuple[WireToleration, ...] = (),
    terms: tuple[WireNodeSelectorTerm, ...] | None = None,
) -> Pod:
    affinity = None
    if terms is not None:
        wanted = WireNodeSelector(node_selector_terms=terms)
        affinity = WireAffinity(
            node_affinity=WireNodeAffinity(required_during_scheduling_ignored_during_execution=wanted)
        )
    spec = PodSpec(
        containers=(container(gpu=gpus, cpu="1"),),
        node_selector=dict(selector or {}),
        tolerations=tolerations,
        affinity=affinity,
    )
    return Pod(metadata=PodMeta(name="p", namespace="n"), spec=spec)


def term(key: str, operator: str, *values: str) -> WireNodeSelectorTerm:
    requirement = WireSelectorRequirement(key=key, operator=operator, values=values)
    return WireNodeSelectorTerm(match_expressions=(requirement,))


def test_pods_spread_over_nodes() -> None:
    full, empty = room("a"), room("b")
    full.take({GPU: 4})

    assert choose_node(pod(), [full, empty]) == "b"


def test_among_equal_nodes_the_first_name_is_taken() -> None:
    assert choose_node(pod(), [room("b"), room("a"), room("c")]) == "a"


def test_a_pod_that_fits_nowhere_has_no_node() -> None:
    assert choose_node(pod(gpus=9), [room("a")]) is None


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            PodSpec(containers=(container(cpu="1"), container(cpu="500m"))), 1500, id="containers add up"
        ),
        pytest.param(
            PodSpec(
                containers=(container(cpu="1"),), init_containers=(container(cpu="3"), container(cpu="2"))
            ),
            3000,
            id="the largest init container counts when it is larger",
        ),
        pytest.param(
            PodSpec(
                containers=(container(cpu="1"),),
                init_containers=(container("Always", cpu="1"), container(cpu="1500m")),
            ),
            2500,
            id="a sidecar runs beside what starts after it",
        ),
        pytest.param(
            PodSpec(containers=(container(cpu="1"),), overhead={"cpu": "250m"}), 1250, id="overhead counts"
        ),
    ],
)
def test_what_a_pod_takes_of_its_node(spec: PodSpec, want: int) -> None:
    assert requests_of(spec)["cpu"] == want


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        pytest.param(pod(), True, id="no preference"),
        pytest.param(pod(selector={"rack": "r1"}), True, id="a selector that holds"),
        pytest.param(pod(selector={"rack": "r2"}), False, id="a selector that does not"),
        pytest.param(pod(terms=(term("rack", "In", "r2", "r1"),)), True, id="In one of the values"),
        pytest.param(pod(terms=(term("rack", "NotIn", "r1"),)), False, id="NotIn the value"),
        pytest.param(pod(terms=(term("rack", "Exists"),)), True, id="Exists"),
        pytest.param(pod(terms=(term("rack", "DoesNotExist"),)), False, id="DoesNotExist"),
        pytest.param(pod(terms=(term("level", "Gt", "4"),)), True, id="Gt a number"),
        pytest.param(pod(terms=(term("level", "Lt", "5"),)), False, id="Lt the number itself"),
        pytest.param(
            pod(terms=(term("rack", "In", "r2"), term("level", "Exists"))), True, id="terms are alternatives"
        ),
        pytest.param(pod(terms=(WireNodeSelectorTerm(),)), False, id="an empty term selects nothing"),
    ],
)
def test_which_nodes_a_pod_wants(wanted: Pod, fits: bool) -> None:
    node = room("a", labels={"rack": "r1", "level": "5"})

    assert (choose_node(wanted, [node]) is not None) == fits


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param(None, False, id="none"),
        pytest.param(WireToleration(key="dedicated", operator="Exists"), True, id="Exists under any value"),
        pytest.param(WireToleration(key="dedicated", value="ml", effect="NoSchedule"), True, id="Equal"),
        pytest.param(WireToleration(key="dedicated", value="web"), False, id="another value"),
        pytest.param(WireToleration(operator="Exists"), True, id="everything"),
        pytest.param(
            WireToleration(key="dedicated", operator="Exists", effect="NoExecute"), False, id="another effect"
        ),
    ],
)
def test_which_taints_are_tolerated(toleration: WireToleration | None, fits: bool) -> None:
    wanted = pod(tolerations=(toleration,) if toleration else ())

    assert (choose_node(wanted, [room("a", taints=(TAINT,))]) is not None) == fits


def test_a_preference_against_a_node_does_not_bind() -> None:
    taint = WireTaint(key="busy", effect="PreferNoSchedule")

    assert choose_node(pod(), [room("a", taints=(taint,))]) == "a"


def test_the_sentence_counts_nodes_by_reason() -> None:
    rooms = [
        room("a", gpus=2, labels={"rack": "r1"}),
        room("b", gpus=2, labels={"rack": "r1"}),
        room("c", labels={"rack": "r1"}, taints=(TAINT,)),
        room("d", labels={"rack": "r2"}),
        room("e", unschedulable=True),
    ]

    assert explain(pod(gpus=4, selector={"rack": "r1"}), rooms) == (
        "0/5 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
        "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 2 Insufficient nvidia.com/gpu."
    )


def test_a_cluster_without_nodes_has_a_sentence_of_its_own() -> None:
    assert explain(pod(), []) == "no nodes available to schedule pods"


def test_a_finished_pod_holds_nothing() -> None:
    node = room("a").node
    running = pod(gpus=3)

    assert NodeRoom.of(node, [running]).free[GPU] == 5
