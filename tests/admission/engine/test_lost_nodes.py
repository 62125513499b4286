"""When a failed node is lost to a Workload, and what becomes of the pods that wait for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.placement.topology.node_health import Fault, NodeFailureSettings, NodeFault, host_fault
from admission.reconcile.workload.context import (
    LifecycleContext,
    LifecycleResult,
    LifecycleSettings,
    PlacedPod,
)
from admission.reconcile.workload.reconcile import reconcile_workload
from admission.reconcile.workload.ungate import ungate
from api.node import NodeInfo
from api.objects.common import WireTaint, WireToleration
from api.objects.templates import WirePodTemplate
from api.parsing.times import to_rfc3339
from api.policy import Recovery
from api.workload import (
    Admission,
    Condition,
    DomainCount,
    PodSet,
    PodSetAssignment,
    TopologyAssignment,
    Workload,
    WorkloadKey,
)

HOST = "kubernetes.io/hostname"
NOW = 1000.0
GONE = NodeFault(node="n0", fault=Fault.GONE)
SILENT = NodeFault(node="n0", fault=Fault.SILENT)
NOT_READY = NodeFault(node="n0", fault=Fault.NOT_READY, since=NOW - 10)
LONG_NOT_READY = NodeFault(node="n0", fault=Fault.NOT_READY, since=NOW - 31)
CORDONED = NodeFault(node="n0", fault=Fault.CORDONED)
TAINTED = NodeFault(node="n0", fault=Fault.TAINTED, detail="sick:NoExecute")
BY_TIME = NodeFailureSettings(awaits_pods=False)
DEAF = NodeFailureSettings(heeds_taints=False)


def make_gang(*hosts: str, unhealthy: tuple[str, ...] = (), **fields: Any) -> Workload:
    """Return an admitted Workload with a pod on each host."""
    domains = tuple(DomainCount(values=(host,), count=1) for host in hosts or ("n0", "n1"))
    assignment = PodSetAssignment(
        name="main",
        count=len(domains),
        flavors={},
        usage={},
        topology=TopologyAssignment(levels=(HOST,), domains=domains),
    )
    given: dict[str, Any] = {
        "conditions": {t: Condition(type=t, status=True) for t in ("QuotaReserved", "Admitted")},
        "owner_uid": "j",
        "owner_kind": "Job",
        **fields,
    }
    return Workload(
        key=WorkloadKey("ns", "w"),
        uid="u",
        created_at=0.0,
        queue_name="lq",
        pod_sets=(PodSet(name="main", count=len(domains), template=WirePodTemplate()),),
        admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
        unhealthy_nodes=unhealthy,
        **given,
    )


def make_pod(name: str, *, host: str, is_bound: bool = True) -> PlacedPod:
    """Return a pod that was let go to a host, bound there or not yet."""
    return PlacedPod(
        namespace="ns",
        name=name,
        uid=name,
        resource_version="7",
        labels={"kueue.x-k8s.io/podset": "main"},
        gates=(),
        node_selector={HOST: host},
        node=host if is_bound else "",
    )


def look(
    workload: Workload,
    *faults: NodeFault,
    pods: tuple[PlacedPod, ...] = (),
    settings: NodeFailureSettings | None = None,
    recovery: Recovery | None = None,
    is_known: bool = True,
    is_disrupted: bool = False,
) -> LifecycleResult:
    """Return what the Workload needs."""
    status = {"unhealthyNodes": [{"name": name} for name in workload.unhealthy_nodes]}
    context = LifecycleContext(
        faults=faults if is_known else None,
        pods=pods,
        recovery=None if is_disrupted else recovery,
        replaces_several=recovery is not None,
        settings=LifecycleSettings(pods_ready=None, node_failures=settings or NodeFailureSettings()),
    )
    return reconcile_workload(workload, msgspec.json.encode({"status": status}), context, now=NOW)


def writes(result: LifecycleResult) -> list[Write]:
    """Return its writes."""
    return [one for one in result.actions if isinstance(one, Write)]


def unhealthy_nodes(result: LifecycleResult) -> list[str] | None:
    """Return the unhealthy nodes that are written, None where nothing is."""
    found = [write for write in writes(result) if write.purpose is Purpose.SYNC_NODES]
    if not found:
        return None
    status = msgspec.json.decode(found[0].body)["status"]
    return [node["name"] for node in status.get("unhealthyNodes", ())]


def unlabelled(name: str, *, host: str) -> PlacedPod:
    """Return a pod on a host that only its annotation assigns to the Workload."""
    return replace(make_pod(name, host=host), labels={}, node_selector={})


HERE = (make_pod("p0", host="n0"), make_pod("p1", host="n1"))
GONE_FROM_HERE = (make_pod("p1", host="n1"),)


@pytest.mark.parametrize(
    ("fault", "pods", "settings", "want"),
    [
        pytest.param(GONE, HERE, None, ["n0"], id="a deleted node is lost at once"),
        pytest.param(SILENT, HERE, None, ["n0"], id="so is one without a kubelet"),
        pytest.param(NOT_READY, HERE, None, None, id="one that is not ready is not while its pod runs"),
        pytest.param(LONG_NOT_READY, HERE, None, None, id="however long that takes"),
        pytest.param(NOT_READY, GONE_FROM_HERE, None, ["n0"], id="it is lost when its pod is gone"),
        pytest.param(NOT_READY, GONE_FROM_HERE, BY_TIME, None, id="by time: not before 30 s"),
        pytest.param(LONG_NOT_READY, HERE, BY_TIME, ["n0"], id="by time: after 30 s, whatever runs"),
        pytest.param(TAINTED, HERE, None, None, id="a taint that lets pods run costs nothing"),
        pytest.param(TAINTED, GONE_FROM_HERE, None, ["n0"], id="one that drove them off does"),
        pytest.param(TAINTED, GONE_FROM_HERE, DEAF, None, id="unless taints are not heeded"),
        pytest.param(TAINTED, HERE, BY_TIME, ["n0"], id="where pods are not awaited at once"),
        pytest.param(
            NOT_READY, (unlabelled("p0", host="n0"),), None, None, id="a pod counts whatever labels it has"
        ),
        pytest.param(GONE, (), NodeFailureSettings(is_on=False), None, id="the gate is off"),
    ],
)
def test_a_node_is_lost(
    fault: NodeFault,
    pods: tuple[PlacedPod, ...],
    settings: NodeFailureSettings | None,
    want: list[str] | None,
) -> None:
    assert unhealthy_nodes(look(make_gang(), fault, pods=pods, settings=settings)) == want


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(make_gang(unhealthy=("n0",)), None, id="it is reported already"),
        pytest.param(make_gang("n0", "n1", "n2", unhealthy=("n2",)), ["n0"], id="another is well again"),
        pytest.param(make_gang(owner_kind="Pod"), None, id="a single pod has ended with its node"),
        pytest.param(make_gang(conditions={}), None, id="it holds no quota"),
    ],
)
def test_the_list_follows_the_nodes(workload: Workload, want: list[str] | None) -> None:
    assert unhealthy_nodes(look(workload, GONE)) == want


def test_a_node_that_is_well_again_leaves_the_list() -> None:
    assert unhealthy_nodes(look(make_gang(unhealthy=("n0",)))) == []


def test_nothing_is_concluded_while_nodes_are_not_known() -> None:
    assert unhealthy_nodes(look(make_gang(unhealthy=("n0",)), is_known=False)) is None


@pytest.mark.parametrize(
    ("fault", "recovery", "want"),
    [
        pytest.param(NOT_READY, Recovery(), ["n0"], id="not ready: at once"),
        pytest.param(NOT_READY, Recovery(not_ready_seconds=60), None, id="not ready: not yet"),
        pytest.param(TAINTED, Recovery(), None, id="tainted: pods stay"),
        pytest.param(TAINTED, Recovery(leave_tainted_nodes=True), ["n0"], id="tainted: pods leave"),
        pytest.param(CORDONED, Recovery(leave_tainted_nodes=True), None, id="cordoned: pods stay"),
        pytest.param(CORDONED, Recovery(leave_cordoned_nodes=True), ["n0"], id="cordoned: pods leave"),
    ],
)
def test_a_policy_has_pods_leave_a_failing_node(
    fault: NodeFault, recovery: Recovery, want: list[str] | None
) -> None:
    result = look(make_gang(), fault, pods=HERE, recovery=recovery)

    assert unhealthy_nodes(result) == want
    # A kubelet that does not answer cannot stop a pod that is deleted.
    purpose = Purpose.FAIL_POD if fault.fault is Fault.NOT_READY else Purpose.MOVE_POD
    ended = [(write.name, write.purpose) for write in writes(result) if write.kind == "Pod"]
    assert ended == ([] if want is None else [("p0", purpose)])


def test_the_end_of_a_policys_tolerance_is_waited_for() -> None:
    assert (
        look(make_gang(), NOT_READY, pods=HERE, recovery=Recovery(not_ready_seconds=60)).wake_at == NOW + 50
    )


def test_the_thirtieth_second_is_waited_for_where_time_decides() -> None:
    assert look(make_gang(), NOT_READY, pods=HERE, settings=BY_TIME).wake_at == NOW + 20
    assert look(make_gang(), NOT_READY, pods=HERE).wake_at is None


@pytest.mark.parametrize(
    ("unhealthy", "lost", "want"),
    [
        pytest.param(("n1",), ("n0", "n1"), "n1, n0", id="another node while one is listed"),
        pytest.param((), ("n0", "n1"), "n0, n1", id="two at once"),
        pytest.param(("n1",), ("n1",), None, id="one is replaced"),
        pytest.param(("n1",), ("n0",), None, id="another is well again"),
    ],
)
def test_a_second_failed_node_evicts_the_workload(
    unhealthy: tuple[str, ...], lost: tuple[str, ...], want: str | None
) -> None:
    """Kueue: the node controller evicts what has another node marked for replacement."""
    faults = [NodeFault(node=name, fault=Fault.GONE) for name in lost]

    found = writes(look(make_gang("n0", "n1", "n2", unhealthy=unhealthy), *faults))

    evictions = [write.events[0].note for write in found if write.purpose is Purpose.EVICT]
    message = "Workload eviction triggered due to multiple TAS assigned node failures, including: "
    assert evictions == ([] if want is None else [message + want])
    for write in found:
        assert "unhealthyNodes" not in msgspec.json.decode(write.body)["status"] or not evictions


@pytest.mark.parametrize("is_disrupted", [False, True], ids=["as a rule", "while many nodes fail"])
def test_a_policy_replaces_several_nodes_at_once(is_disrupted: bool) -> None:
    faults = [NodeFault(node=name, fault=Fault.GONE) for name in ("n0", "n1")]

    result = look(make_gang("n0", "n1"), *faults, recovery=Recovery(), is_disrupted=is_disrupted)

    assert unhealthy_nodes(result) == ["n0", "n1"]


def test_more_lost_nodes_than_can_be_reported_evict_at_once() -> None:
    names = [f"n{number}" for number in range(9)]
    faults = [NodeFault(node=name, fault=Fault.GONE) for name in names]

    (write,) = writes(look(make_gang(*names), *faults, recovery=Recovery()))

    assert write.purpose is Purpose.EVICT
    assert write.events[0].reason == "EvictedDueToNodeFailures"
    assert "n0, n1, n2" in write.events[0].note


def test_the_event_names_node_and_fault() -> None:
    (write,) = writes(look(make_gang(), TAINTED))

    assert [(event.reason, event.note) for event in write.events] == [
        ("UnhealthyNodes", "node n0 has the untolerated taint sick:NoExecute")
    ]


@pytest.mark.parametrize(
    ("pod", "unhealthy", "want"),
    [
        pytest.param(make_pod("p", host="n0", is_bound=False), ("n0",), ["p"], id="let go to a lost node"),
        pytest.param(
            make_pod("p", host="n9", is_bound=False), ("n0",), ["p"], id="to one of an earlier place"
        ),
        pytest.param(make_pod("p", host="n1", is_bound=False), ("n0",), [], id="to one that is well"),
        pytest.param(make_pod("p", host="n0"), ("n0",), [], id="bound: its kubelet decides"),
    ],
)
def test_a_pod_that_waits_for_a_lost_node_is_failed(
    pod: PlacedPod, unhealthy: tuple[str, ...], want: list[str]
) -> None:
    found = [
        one for one in writes(look(make_gang(unhealthy=unhealthy), GONE, pods=(pod,))) if one.kind == "Pod"
    ]

    assert [write.name for write in found] == want
    for write in found:
        status = msgspec.json.decode(write.body)["status"]
        assert status["phase"] == "Failed"
        assert [one["type"] for one in status["conditions"]] == ["TerminatedByKueue", "DisruptionTarget"]
        assert write.events[0].reason == "PodTerminatedByKueue"


@pytest.mark.parametrize(
    ("fault", "owner", "settings", "want"),
    [
        pytest.param(NOT_READY, "Job", NodeFailureSettings(), ["late"], id="not ready"),
        pytest.param(TAINTED, "Job", NodeFailureSettings(), ["late"], id="tainted"),
        pytest.param(TAINTED, "Job", NodeFailureSettings(heeds_taints=False), [], id="tainted, not heeded"),
        pytest.param(NOT_READY, "Job", BY_TIME, [], id="not ready, where time decides"),
        pytest.param(NOT_READY, "Pod", NodeFailureSettings(), ["late"], id="not ready, of a single pod"),
    ],
)
def test_a_pod_that_comes_late_for_a_node_with_a_fault_is_failed_while_others_run_there(
    fault: NodeFault, owner: str, settings: NodeFailureSettings, want: list[str]
) -> None:
    pods = (make_pod("running", host="n0"), make_pod("late", host="n0", is_bound=False))

    found = writes(look(make_gang(owner_kind=owner), fault, pods=pods, settings=settings))

    assert [(write.kind, write.name) for write in found] == [("Pod", name) for name in want]


UNRESERVED: dict[str, Any] = {"conditions": {}}
EVICTED = {"Evicted": Condition(type="Evicted", status=True, reason="Preempted")}


@pytest.mark.parametrize(
    ("fields", "changes", "want"),
    [
        pytest.param(UNRESERVED, {}, ["p"], id="without its gate"),
        pytest.param(UNRESERVED, {"gates": ("kueue.x-k8s.io/topology",)}, [], id="that waits at its gate"),
        pytest.param(UNRESERVED, {"node": "n0"}, [], id="that runs already"),
        pytest.param(UNRESERVED, {"node_selector": {}}, [], id="that may go anywhere"),
        pytest.param(
            UNRESERVED,
            {"is_by_topology": False},
            [],
            id="whose host its user chose",
        ),
        pytest.param({"conditions": EVICTED}, {}, [], id="of an evicted Workload, which its owner stops"),
    ],
)
def test_a_pod_that_waits_for_a_host_while_its_workload_holds_no_quota_is_failed(
    fields: dict[str, Any], changes: dict[str, Any], want: list[str]
) -> None:
    """Kueue, pkg/controller/tas/node_controller.go: a node that is not assigned has stray pods alone."""
    pod = replace(make_pod("p", host="n0", is_bound=False), **changes)

    found = writes(look(make_gang(**fields), pods=(pod,)))

    failed = [one for one in found if one.purpose is Purpose.FAIL_POD]
    assert [one.name for one in failed] == want


@pytest.mark.parametrize(
    ("avoid", "want"),
    [
        pytest.param((), "n0", id="well"),
        pytest.param(("n0",), "n1", id="the first has a fault"),
        pytest.param(("n0", "n1"), None, id="all have"),
    ],
)
def test_no_pod_is_ungated_for_a_node_with_a_fault(avoid: tuple[str, ...], want: str | None) -> None:
    gang = make_gang()
    assert gang.admission is not None
    pod = PlacedPod(
        namespace="ns",
        name="p",
        uid="p",
        resource_version="7",
        labels={},
        gates=("kueue.x-k8s.io/topology",),
        node_selector={},
    )

    found = ungate(gang.pod_sets[0], gang.admission.pod_sets[0], [pod], avoid=avoid)

    selectors = [msgspec.json.decode(write.body)["spec"]["nodeSelector"] for write in found]
    assert selectors == ([] if want is None else [{HOST: want}])


SICK = WireTaint(key="sick", effect="NoExecute")


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param([NodeInfo(name="n0")], None, id="well"),
        pytest.param([], "n0 was deleted", id="deleted"),
        pytest.param([NodeInfo(name="n0", is_ready=False)], "n0 is not ready", id="not ready"),
        pytest.param(
            [NodeInfo(name="n0", is_ready=False, is_silent=True)], "n0 has no Ready condition", id="silent"
        ),
        pytest.param(
            [NodeInfo(name="n0", taints=(SICK,))], "n0 has the untolerated taint sick:NoExecute", id="tainted"
        ),
        pytest.param(
            [NodeInfo(name="n0", is_unschedulable=True)],
            "n0 is cordoned",
            id="cordoned",
        ),
        pytest.param(
            [NodeInfo(name="n0", taints=(WireTaint(key="old", effect="NoSchedule"),))], None, id="tolerated"
        ),
        pytest.param(
            [NodeInfo(name="a", is_ready=False), NodeInfo(name="b")],
            None,
            id="one of two of that name is well",
        ),
    ],
)
def test_a_node_has_a_fault(nodes: list[NodeInfo], want: str | None) -> None:
    fault = host_fault("n0", nodes, (WireToleration(key="old", operator="Exists"),))

    assert (str(fault) if fault is not None else None) == want


QUIET = NodeFault(node="n0", fault=Fault.QUIET, since=NOW - 20)


@pytest.mark.parametrize(
    ("recovery", "lost", "wake_at"),
    [
        pytest.param(None, None, None, id="nothing without a policy"),
        pytest.param(Recovery(), ["n0"], None, id="it is lost after 20 s"),
        pytest.param(Recovery(heartbeat_seconds=25), None, NOW + 5, id="not before the policy's time"),
        pytest.param(Recovery(heartbeat_seconds=0), None, None, id="nothing where it waits for Kubernetes"),
    ],
)
def test_of_a_quiet_node(recovery: Recovery | None, lost: list[str] | None, wake_at: float | None) -> None:
    result = look(make_gang(), QUIET, pods=HERE, recovery=recovery)

    assert (unhealthy_nodes(result), result.wake_at) == (lost, wake_at)


def test_a_pod_on_a_lost_node_fails_as_of_its_last_heartbeat_so_that_its_job_replaces_it_at_once() -> None:
    result = look(make_gang(), QUIET, pods=HERE, recovery=Recovery())

    (failed,) = (write for write in writes(result) if write.purpose is Purpose.FAIL_POD)
    status = msgspec.json.decode(failed.body)["status"]
    conditions = {one["type"]: (one["status"], one["lastTransitionTime"]) for one in status["conditions"]}
    assert (failed.name, status["phase"]) == ("p0", "Failed")
    assert conditions["Ready"] == ("False", to_rfc3339(NOW - 20))
    assert conditions["DisruptionTarget"] == ("True", to_rfc3339(NOW))
