"""How full domains are said to be."""

from __future__ import annotations

from msgspec import structs

from admission.placement.topology.domain_usage import DomainUsage, domain_usages
from admission.placement.topology.place import place_of
from admission.placement.topology.request import NodeRules
from admission.placement.topology_cache import Unplaced
from api.node import PodUsage
from tests.admission.placement.fleets import FLAVOR, GPU, HOST, make_fleet, make_request


def test_a_domain_counts_all_nodes_and_gpus_in_use() -> None:
    """n0 has a gang's pod on half of it, n1 a foreign pod on all of it, n2 nothing."""
    topology_cache = make_fleet({"b0": {"r0": [8, 8, 8], "r1": [8]}})
    request = structs.replace(make_request(1, gpus=4), rules=NodeRules(node_selector=((HOST, "n0"),)))
    found = topology_cache.place([request])
    assert not isinstance(found, Unplaced)
    topology_cache.usage.use([place_of(request, found["main"])], sign=1)
    topology_cache.put_pod(PodUsage(namespace="other", name="pod", node="n1", requests={GPU: 8}))

    full, empty = domain_usages(topology_cache.topology(FLAVOR), FLAVOR)

    assert full == DomainUsage(
        flavor=FLAVOR,
        domain="b0/r0",
        nodes=3,
        nodes_in_use=2,
        nodes_in_part=1,
        gpus=24,
        gpus_in_use=12,
    )
    assert (full.gpu_allocation, empty.gpu_allocation, empty.utilization) == (0.5, 0.0, 0.0)


def test_a_topology_of_nodes_alone_has_no_domains_to_report() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8]}}, levels=(HOST,))

    assert list(domain_usages(topology_cache.topology(FLAVOR), FLAVOR)) == []
