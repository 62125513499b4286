"""Which pod goes to which domain once its Workload is admitted."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.reconcile.workload.context import LifecycleContext, PlacedPod
from admission.reconcile.workload.reconcile import reconcile_workload
from admission.reconcile.workload.ungate import ungate
from api import keys
from api.objects.templates import WirePodTemplate
from api.workload import (
    Admission,
    Condition,
    DomainCount,
    PodRanks,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)

GATE = "kueue.x-k8s.io/topology"
INDEX = "batch.kubernetes.io/job-completion-index"
HOST = "kubernetes.io/hostname"
POD_SET = PodSet(
    name="main",
    count=3,
    template=WirePodTemplate(),
    topology_request=TopologyRequest(required="rack"),
    ranks=PodRanks(index_label=INDEX),
)
# n0 holds two pods, n1 one.
ASSIGNMENT = PodSetAssignment(
    name="main",
    count=3,
    flavors={},
    usage={},
    topology=TopologyAssignment(
        levels=(HOST,),
        domains=(DomainCount(values=("n0",), count=2), DomainCount(values=("n1",), count=1)),
    ),
)


def make_pod(
    name: str, *, rank: str | None = None, node: str | None = None, promised: str | None = None
) -> PlacedPod:
    """Return a gated pod; with `node` one that was let go to it, with `promised` one that is about to be."""
    return PlacedPod(
        namespace="ns",
        name=name,
        uid=f"uid-{name}",
        resource_version="7",
        labels={"kueue.x-k8s.io/podset": "main", **({INDEX: rank} if rank is not None else {})},
        gates=(GATE,) if node is None else (),
        node_selector={} if node is None else {HOST: node},
        promised=None if promised is None else {HOST: promised},
    )


def assigned(writes: list[Write]) -> dict[str, str]:
    """Return the node that each pod is sent to."""
    return {write.name: msgspec.json.decode(write.body)["spec"]["nodeSelector"][HOST] for write in writes}


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            [make_pod("c", rank="2"), make_pod("a", rank="0"), make_pod("b", rank="1")],
            {"a": "n0", "b": "n0", "c": "n1"},
            id="by rank, in whatever order they come",
        ),
        pytest.param(
            [make_pod("b", promised="n1"), make_pod("c"), make_pod("d"), make_pod("e")],
            {"c": "n0", "d": "n0"},
            id="a place that another pod is just being given is taken",
        ),
        pytest.param(
            [make_pod("a", rank="0", promised="n0"), make_pod("b", rank="1")],
            {"b": "n0"},
            id="a pod assigned already by rank is not assigned twice",
        ),
        pytest.param(
            [make_pod("a", rank="0", promised="n1"), make_pod("b", rank="1"), make_pod("c", rank="2")],
            {"b": "n0", "c": "n0"},
            id="a promise against the ranks ends their use",
        ),
        pytest.param(
            [make_pod("x"), make_pod("y"), make_pod("z")],
            {"x": "n0", "y": "n0", "z": "n1"},
            id="without ranks the domains are filled in order",
        ),
        pytest.param(
            [make_pod("a", rank="0"), make_pod("b", rank="0")],
            {"a": "n0", "b": "n0"},
            id="a rank twice is none",
        ),
        pytest.param([make_pod("a", rank="3")], {"a": "n0"}, id="a rank that has no place is none"),
        pytest.param([make_pod("a", rank="two")], {"a": "n0"}, id="a word is no rank"),
        pytest.param(
            [make_pod("a", rank="0", node="n1"), make_pod("b", rank="1"), make_pod("c", rank="2")],
            {"b": "n0", "c": "n0"},
            id="one that is elsewhere than its rank says makes ranks useless",
        ),
        pytest.param(
            [make_pod("a", node="n0"), make_pod("b"), make_pod("c"), make_pod("d")],
            {"b": "n0", "c": "n1"},
            id="more pods than places stay at the gate",
        ),
        pytest.param([make_pod("a", rank="0", node="n0")], {}, id="no pod waits"),
    ],
)
def test_gated_pods_get_their_domains(pods: list[PlacedPod], want: dict[str, str]) -> None:
    assert assigned(ungate(POD_SET, ASSIGNMENT, pods)) == want


GROUP = "jobset.sigs.k8s.io/job-index"


def grouped(name: str, group: str, index: str) -> PlacedPod:
    """Return a gated pod with its index in a group."""
    pod = make_pod(name, rank=index)
    return replace(pod, labels={**pod.labels, GROUP: group})


@pytest.mark.parametrize(
    ("ranks", "pods", "want"),
    [
        pytest.param(
            PodRanks(index_label=INDEX, group_label=GROUP, groups=3),
            [grouped("c", "2", "0"), grouped("a", "0", "0"), grouped("b", "1", "0")],
            {"a": "n0", "b": "n0", "c": "n1"},
            id="group after group",
        ),
        pytest.param(
            PodRanks(index_label=INDEX, group_label=GROUP, groups=3),
            [grouped("c", "2", "0"), grouped("a", "0", "1"), grouped("b", "1", "0")],
            {"c": "n0", "a": "n0", "b": "n1"},
            id="an index beyond its group is no rank",
        ),
        pytest.param(
            PodRanks(index_label=INDEX, offset=1),
            [make_pod("c", rank="3"), make_pod("a", rank="1"), make_pod("b", rank="2")],
            {"a": "n0", "b": "n0", "c": "n1"},
            id="from the number of the first",
        ),
        pytest.param(
            PodRanks(index_label=INDEX, offset=1),
            [make_pod("c", rank="2"), make_pod("a", rank="0"), make_pod("b", rank="1")],
            {"c": "n0", "a": "n0", "b": "n1"},
            id="a number below the first is no rank",
        ),
    ],
)
def test_ranks_count_through_groups(ranks: PodRanks, pods: list[PlacedPod], want: dict[str, str]) -> None:
    assert assigned(ungate(replace(POD_SET, ranks=ranks), ASSIGNMENT, pods)) == want


def test_pods_of_a_job_that_requests_no_topology_are_ranked_by_their_index() -> None:
    pods = [make_pod("c", rank="2"), make_pod("a", rank="0"), make_pod("b", rank="1")]

    assert assigned(ungate(replace(POD_SET, ranks=None, topology_request=None), ASSIGNMENT, pods)) == {
        "a": "n0",
        "b": "n0",
        "c": "n1",
    }


def test_other_gates_stay() -> None:
    pod = make_pod("a")
    (write,) = ungate(POD_SET, ASSIGNMENT, [_gated_twice(pod)])

    assert msgspec.json.decode(write.body) == {
        "metadata": {"uid": "uid-a", "resourceVersion": "7"},
        "spec": {"nodeSelector": {HOST: "n0"}, "schedulingGates": [{"name": "of-others"}]},
    }


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param(("QuotaReserved", "Admitted"), [Purpose.UNGATE_POD], id="admitted"),
        pytest.param(("QuotaReserved", "Admitted", "Evicted"), [], id="evicted since"),
    ],
)
def test_pods_go_while_their_workload_is_admitted(conditions: tuple[str, ...], want: list[Purpose]) -> None:
    workload = Workload(
        key=WorkloadKey("ns", "w"),
        uid="u",
        created_at=0.0,
        pod_sets=(POD_SET,),
        queue_name="lq",
        owner_uid="j",
        admission=Admission(cluster_queue="cq", pod_sets=(ASSIGNMENT,)),
        conditions={type_: Condition(type=type_, status=True) for type_ in conditions},
    )

    result = reconcile_workload(workload, b"{}", LifecycleContext(pods=(make_pod("a"),)), now=0.0)

    writes = [one for one in result.actions if isinstance(one, Write) and one.kind == "Pod"]
    assert [write.purpose for write in writes] == want


def _gated_twice(pod: PlacedPod) -> PlacedPod:
    return PlacedPod(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        resource_version=pod.resource_version,
        labels=pod.labels,
        gates=(GATE, "of-others"),
        node_selector={},
    )


def waiting(name: str) -> PlacedPod:
    """Return a pod that waits at the gate of its elastic Job."""
    return replace(make_pod(name, node="n0"), gates=(keys.ELASTIC_GATE,))


@pytest.mark.parametrize(
    ("pods", "leaving", "want"),
    [
        pytest.param(
            [make_pod("a", node="n0"), waiting("b"), waiting("c"), waiting("d")],
            0,
            ["b", "c"],
            id="as many as are counted",
        ),
        pytest.param(
            [make_pod("a", node="n0"), waiting("b"), waiting("c")],
            1,
            ["b"],
            id="fewer while one that has to end runs on",
        ),
        pytest.param([waiting("b")], 4, [], id="none while more run than are counted"),
    ],
)
def test_pods_of_an_elastic_job_start_as_others_have_ended(
    pods: list[PlacedPod], leaving: int, want: list[str]
) -> None:
    workload = Workload(
        key=WorkloadKey("ns", "w"),
        uid="u",
        created_at=0.0,
        pod_sets=(replace(POD_SET, topology_request=None),),
        queue_name="lq",
        owner_uid="j",
        annotations={keys.ELASTIC_JOB: "true", keys.SLICE_NAME: "w"},
        admission=Admission(cluster_queue="cq", pod_sets=(replace(ASSIGNMENT, topology=None),)),
        conditions={type_: Condition(type=type_, status=True) for type_ in ("QuotaReserved", "Admitted")},
    )

    context = LifecycleContext(pods=tuple(pods), leaving={"main": leaving})
    result = reconcile_workload(workload, b"{}", context, now=0.0)

    ungated = [one for one in result.actions if isinstance(one, Write)]
    assert [(one.name, one.purpose) for one in ungated] == [(name, Purpose.UNGATE_POD) for name in want]
