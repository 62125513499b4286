"""What lost work has cost: by the prices of nodes, else of flavors."""

from __future__ import annotations

import pytest

from admission.engine.engine import Engine
from admission.preemption.device_price import device_money, node_device_price
from api.node import NodeInfo
from api.parsing.prices import flavor_price_problem, node_price_problem, price
from api.queueing import ResourceFlavor
from api.workload import Admission, DomainCount, PodSetAssignment, TopologyAssignment

GPU = "nvidia.com/gpu"
HOST = "kubernetes.io/hostname"


def make_node(name: str, cost: str | None, *, gpus: int = 8) -> NodeInfo:
    labels = {HOST: name, **({"node-cost-per-hour": cost} if cost is not None else {})}
    return NodeInfo(name=name, labels=labels, allocatable={GPU: gpus})


def make_admission(*domains: tuple[str, int], gpus: int = 8, flavor: str = "a100") -> Admission:
    """Return an admission of GPUs in all, on pods of these hosts, by count; none: the hosts are unknown."""
    topology = TopologyAssignment(
        levels=(HOST,), domains=tuple(DomainCount(values=(host,), count=count) for host, count in domains)
    )
    pods = sum(count for _, count in domains) or 1
    pod_set = PodSetAssignment(
        name="main",
        count=pods,
        flavors={GPU: flavor, "cpu": flavor},
        usage={GPU: gpus, "cpu": 64_000},
        topology=topology if domains else None,
    )
    return Admission(cluster_queue="cq", pod_sets=(pod_set,))


def make_engine() -> Engine:
    """Return an engine with an expensive node, a cheap one, one without a price, and a flavor's price."""
    engine = Engine()
    for value in (
        ResourceFlavor(name="a100", cost_per_device_hour=3.0),
        ResourceFlavor(name="free"),
        make_node("expensive", "80"),
        make_node("cheap", "8"),
        make_node("unknown", None),
        make_node("broken", "cheap"),
    ):
        engine.objects.upsert(value, now=0.0)
    return engine


@pytest.mark.parametrize(
    ("admission", "want"),
    [
        pytest.param(make_admission(("expensive", 1)), 10.0, id="its node has a price"),
        pytest.param(make_admission(("expensive", 1), ("cheap", 3)), (10 + 3 * 1) / 4, id="on two nodes"),
        pytest.param(make_admission(("expensive", 1), ("unknown", 1)), 6.5, id="one node without a price"),
        pytest.param(make_admission(("broken", 1)), 3.0, id="a price that cannot be read is none"),
        pytest.param(make_admission(("gone", 1)), 3.0, id="a node that has gone has none"),
        pytest.param(make_admission(), 3.0, id="its nodes are unknown"),
        pytest.param(make_admission(flavor="free"), 0.0, id="its price is unknown"),
        pytest.param(make_admission(("expensive", 1), gpus=0), 0.0, id="it has no devices"),
    ],
)
def test_an_hour_of_a_device_costs_what_its_node_does_or_its_flavor(
    admission: Admission, want: float
) -> None:
    assert device_money(admission, 3600.0, make_engine().nodes.device_price) == pytest.approx(want)


def test_two_pod_sets_share_in_the_loss_by_their_devices() -> None:
    large, small = make_admission(("expensive", 1), gpus=6), make_admission(("cheap", 1), gpus=2)
    both = Admission(cluster_queue="cq", pod_sets=(*large.pod_sets, *small.pod_sets))

    assert device_money(both, 7200.0, make_engine().nodes.device_price) == pytest.approx(
        2 * (6 * 10 + 2 * 1) / 8
    )


def test_the_devices_of_a_pod_set_are_shared_evenly_among_its_pods() -> None:
    single, spread = (
        make_admission(("expensive", 1), gpus=6),
        make_admission(("cheap", 2), ("expensive", 2), gpus=4),
    )
    both = Admission(cluster_queue="cq", pod_sets=(*single.pod_sets, *spread.pod_sets))

    assert device_money(both, 3600.0, make_engine().nodes.device_price) == pytest.approx(
        (6 * 10 + 2 * 1 + 2 * 10) / 10
    )


def test_a_node_without_devices_prices_none() -> None:
    assert node_device_price(make_node("n", "80", gpus=0)) is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("2.95", 2.95),
        ("32", 32.0),
        ("0", 0.0),
        *((text, None) for text in ("-1", "", "nan", "inf", "1e3", "1000001", "9" * 400, "2,95", "٣", " 1")),
    ],
)
def test_what_a_price_may_look_like(text: str, want: float | None) -> None:
    assert price(text) == want
    is_reported = f"{text!r}: must be a number such as 2.95" in node_price_problem(
        {"node-cost-per-hour": text}
    )
    assert is_reported is (want is None)
    assert bool(flavor_price_problem({"berth.dev/cost-per-device-hour": text})) is (want is None)


def test_without_a_price_nothing_is_reported() -> None:
    assert (node_price_problem({}), flavor_price_problem({})) == ("", "")


def test_a_price_is_asked_without_a_host_where_the_node_is_unknown() -> None:
    asked = []

    def price_of(flavor: str, host: str) -> float:
        asked.append((flavor, host))
        return 1.0

    device_money(make_admission(flavor="a100"), 3600.0, price_of)

    assert set(asked) == {("a100", "")}
