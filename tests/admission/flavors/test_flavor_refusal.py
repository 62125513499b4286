"""Why a Workload cannot use a flavor, whatever its quota."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from admission.flavors.flavor_refusal import flavor_refusal
from admission.placement.topology_cache import TopologyCache
from api.jobs.resource_requests import PodSetRequests
from api.policy import KUEUE
from api.queueing import ResourceFlavor
from tests.builders import make_workload


@pytest.mark.parametrize(
    ("is_member", "flavor", "want"),
    [
        pytest.param(True, "a100", None, id="a flavor with nodes in the domain is used"),
        pytest.param(
            True,
            "h100",
            "flavor h100 has no nodes in the reserved domain rack 1",
            id="another of the same resource group is refused",
        ),
        pytest.param(True, "plain", None, id="one of another group is used beside those of the domain"),
        pytest.param(True, "unknown", None, id="one of no group is left to other rules"),
        pytest.param(False, "h100", None, id="a Workload that is no member uses what it likes"),
    ],
)
def test_inside_a_reserved_domain(is_member: bool, flavor: str, want: str | None) -> None:
    domain = SimpleNamespace(name="rack 1", flavors=frozenset({"a100"}))
    kept = SimpleNamespace(domain=domain, is_joined_by=lambda workload: is_member)
    groups = {
        "disk": SimpleNamespace(flavors=("plain",)),
        "gpu": SimpleNamespace(flavors=("a100", "h100")),
    }
    queue: Any = SimpleNamespace(
        reservations=((kept, None),), groups=groups, policy=KUEUE, delayed_flavors=frozenset()
    )

    names = ("a100", "h100", "plain", "unknown")
    flavors = {name: ResourceFlavor(name=name) for name in names}
    snapshot: Any = SimpleNamespace(objects=SimpleNamespace(flavors=flavors), topology_cache=TopologyCache())
    workload = make_workload("gang")

    asked = PodSetRequests(name="main", count=1, per_pod={})
    refusal = flavor_refusal(snapshot, queue, flavor, workload, workload.pod_sets[0], asked)
    assert (refusal.message if refusal is not None else None) == want
