"""Which pod of an admitted Workload gets which static address, and on which host."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.placement.topology.address_book import AddressSlot
from admission.reconcile.workload.context import LifecycleContext, PlacedPod
from admission.reconcile.workload.reconcile import reconcile_workload
from api.objects.common import Meta
from api.objects.templates import WirePodTemplate
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

HOST, INDEX = "kubernetes.io/hostname", "batch.kubernetes.io/job-completion-index"
# Two addresses of the pool of n0 and n1, one of n2's.
RACK, OTHER = frozenset({"n0", "n1"}), frozenset({"n2"})
SLOTS = (AddressSlot("10.0.0.1", RACK), AddressSlot("10.0.1.1", OTHER), AddressSlot("10.0.0.2", RACK))
RESERVED = '{"main": ["10.0.0.1", "10.0.1.1", "10.0.0.2"]}'
TEMPLATE = WirePodTemplate(metadata=Meta(annotations={"berth.dev/static-address": "kube-ovn"}))


def make_gang(*, reserved: str | None = RESERVED, **hosts: int) -> Workload:
    """Return an admitted Workload with this many pods on each host."""
    domains = tuple(DomainCount(values=(host,), count=count) for host, count in hosts.items())
    assignment = PodSetAssignment(
        name="main",
        count=3,
        flavors={},
        usage={},
        topology=TopologyAssignment(levels=(HOST,), domains=domains),
    )
    return Workload(
        key=WorkloadKey("ns", "w"),
        uid="u",
        created_at=0.0,
        queue_name="lq",
        annotations={} if reserved is None else {"berth.dev/addresses": reserved},
        pod_sets=(PodSet(name="main", count=3, template=TEMPLATE),),
        admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
        conditions={t: Condition(type=t, status=True) for t in ("QuotaReserved", "Admitted")},
    )


def gated(name: str, index: int | None = None) -> PlacedPod:
    return PlacedPod(
        namespace="ns",
        name=name,
        uid=name,
        resource_version="7",
        labels={"kueue.x-k8s.io/podset": "main", **({} if index is None else {INDEX: str(index)})},
        gates=("kueue.x-k8s.io/topology",),
        node_selector={},
    )


def running(name: str, host: str, address: str, index: int | None = None) -> PlacedPod:
    return replace(gated(name, index), gates=(), node_selector={HOST: host}, address=address)


def under_way(name: str, host: str, address: str) -> PlacedPod:
    return replace(gated(name), promised={HOST: host}, address=address)


def writes(workload: Workload, *pods: PlacedPod) -> list[Write]:
    context = LifecycleContext(pods=pods, faults=(), addresses={"main": SLOTS})
    result = reconcile_workload(workload, b'{"status": {}}', context, now=1000.0)
    return [one for one in result.actions if isinstance(one, Write)]


def given(workload: Workload, *pods: PlacedPod) -> dict[str, tuple[str, str]]:
    """Return the address and the host that each pod is given."""
    found = {}
    for write in writes(workload, *pods):
        body = msgspec.json.decode(write.body)
        address = body["metadata"]["annotations"]["berth.dev/address"]
        found[write.name] = address, body["spec"]["nodeSelector"][HOST]
    return found


GANG = make_gang(n0=1, n1=1, n2=1)


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            [gated("b", 1), gated("c", 2), gated("a", 0)],
            {"a": ("10.0.0.1", "n1"), "b": ("10.0.1.1", "n2"), "c": ("10.0.0.2", "n0")},
            id="by its index, on a host of that pool",
        ),
        pytest.param(
            [gated("x"), gated("y"), gated("z"), gated("beyond")],
            {"x": ("10.0.0.1", "n0"), "y": ("10.0.1.1", "n2"), "z": ("10.0.0.2", "n1")},
            id="without an index the first that is free; a pod beyond them waits",
        ),
        pytest.param(
            [running("x", "n0", "10.0.0.2"), running("y", "n2", "10.0.1.1"), gated("again")],
            {"again": ("10.0.0.1", "n1")},
            id="of the pod that it replaces",
        ),
        pytest.param(
            [under_way("x", "n1", "10.0.0.1"), gated("y"), gated("z")],
            {"y": ("10.0.1.1", "n2"), "z": ("10.0.0.2", "n0")},
            id="that is not on its way to another pod",
        ),
        pytest.param(
            [running("old", "n0", "10.0.0.1", 0), gated("new", 0)],
            {},
            id="not while the pod before it runs",
        ),
    ],
)
def test_a_pod_gets_the_address(pods: list[PlacedPod], want: dict[str, tuple[str, str]]) -> None:
    assert given(GANG, *pods) == want


@pytest.mark.covers("004_09")
def test_a_gang_that_is_placed_on_other_hosts_of_the_pools_has_the_same_addresses() -> None:
    moved = make_gang(n1=2, n2=1)

    assert given(moved, gated("a", 0), gated("b", 1), gated("c", 2)) == {
        "a": ("10.0.0.1", "n1"),
        "b": ("10.0.1.1", "n2"),
        "c": ("10.0.0.2", "n1"),
    }


def test_an_address_whose_node_is_gone_keeps_its_pod_waiting() -> None:
    assert given(make_gang(n0=1, n1=1), gated("b", 1), gated("a", 0)) == {"a": ("10.0.0.1", "n0")}


@pytest.mark.parametrize("before", [None, '{"main": ["10.0.0.1"]}'])
def test_addresses_are_reserved_on_the_workload_before_any_pod_has_one(before: str | None) -> None:
    (write,) = writes(make_gang(reserved=before, n0=1, n1=1, n2=1), gated("a", 0))

    assert (write.purpose, write.kind) == (Purpose.RESERVE_ADDRESSES, "Workload")
    assert msgspec.json.decode(write.body)["metadata"]["annotations"] == {"berth.dev/addresses": RESERVED}


def test_the_network_plugin_reads_its_own_key() -> None:
    (write,) = writes(GANG, gated("a", 0))

    assert msgspec.json.decode(write.body)["metadata"]["annotations"] == {
        "berth.dev/address": "10.0.0.1",
        "ovn.kubernetes.io/ip_address": "10.0.0.1",
    }
