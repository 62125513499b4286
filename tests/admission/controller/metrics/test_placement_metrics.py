"""What /metrics says of domains: nodes and GPUs in use, and nodes that whole-node gangs cannot have."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission.controller.metrics.placement_metrics import DomainCollector
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.large_reads import LargeReads
from admission.placement.topology.domain_usage import domain_usages
from api.node import PodUsage
from tests.admission.controller.fakes import FakeClock
from tests.admission.placement.fleets import FLAVOR, GPU, make_fleet

UTILIZATION = "topology_domain_utilization_ratio"
ALLOCATION = "topology_gpu_allocation_ratio"
FRAGMENTATION = "topology_scheduler_domain_fragmentation_ratio"


@pytest.mark.covers("002_21", "002_22")
@pytest.mark.parametrize(
    ("in_use", "utilization", "allocation", "fragmentation"),
    [
        pytest.param([0, 0, 0, 0], 0.0, 0.0, 0.0, id="an empty rack"),
        pytest.param([8, 0, 0, 0], 0.25, 0.25, 0.0, id="a node that is full is not broken up"),
        pytest.param([2, 0, 0, 0], 0.25, 0.0625, 0.25, id="a node with GPUs left is"),
        pytest.param([2, 6, 8, 0], 0.75, 0.5, 0.5, id="two such nodes beside a full one"),
        pytest.param([8, 8, 8, 8], 1.0, 1.0, 0.0, id="a full rack"),
    ],
)
async def test_the_domains_of_a_flavor_show(
    in_use: list[int], utilization: float, allocation: float, fragmentation: float
) -> None:
    topology_cache = make_fleet({"b0": {"r0": [8] * len(in_use), "r1": [8]}})
    for number, gpus in enumerate(in_use):
        if gpus:
            requests = {GPU: gpus}
            pod = PodUsage(namespace="team", name=f"p{number}", node=f"n{number}", requests=requests)
            topology_cache.put_pod(pod)
    site, metrics = topology_cache.topology(FLAVOR), Metrics(version="test")
    collector = DomainCollector(metrics, lambda: domain_usages(site, FLAVOR), LargeReads(FakeClock()))

    await collector.refresh()

    families = text_string_to_metric_families(metrics.render().decode())
    shown = {
        (one.name, one.labels["domain"]): one.value
        for family in families
        for one in family.samples
        if "domain" in one.labels
    }
    assert shown == {
        (UTILIZATION, "b0/r0"): utilization,
        (ALLOCATION, "b0/r0"): allocation,
        (FRAGMENTATION, "b0/r0"): fragmentation,
        **{(name, "b0/r1"): 0.0 for name in (UTILIZATION, ALLOCATION, FRAGMENTATION)},
    }
