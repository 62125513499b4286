"""Workloads that programs write without a Job, by Kueue's rules for them, on a real control plane.

They replace each other as slices do, wait at gates of preemption, and give their quota back when their
program says so. One controller, with the gates of preemption switched on, serves all tests.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import Object, condition, is_true, make_workload
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"
GATE = "example.com/orchestrated"
BLOCKED = "BlockedOnPreemptionGates"
CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {MultiKueueOrchestratedPreemption: true}
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that heeds gates of preemption."""
    return Options(config=CONFIG)


# --- slices ------------------------------------------------------------------------------------------


def create_slice(scene: Scene, name: str, *, of: str, cpus: int) -> None:
    """Create a Workload that replaces another of its namespace."""
    workload = make_workload(name, cpus=cpus)
    workload["metadata"]["annotations"] = {REPLACES: f"{scene.namespace}/{of}"}
    scene.rest.create(scene.workloads, workload)


def reserved_cpus(scene: Scene, cluster_queue: str) -> str:
    """Return the CPUs that a ClusterQueue shows as reserved; "" if it shows none yet."""
    flavors = scene.cluster_queue(cluster_queue).get("status", {}).get("flavorsReservation") or []
    return str(flavors[0]["resources"][0]["total"]) if flavors else ""


@pytest.mark.parametrize(
    ("cpus", "want"),
    [
        pytest.param(4, "4", id="with more, which is all there is once its quota counts for both"),
        pytest.param(1, "1", id="with less"),
    ],
)
def test_a_workload_takes_over_the_quota_of_the_one_that_it_replaces(
    scene: Scene, cpus: int, want: str
) -> None:
    cluster_queue = scene.create_queue(cpus=4)
    scene.create_workload("first", cpus=3)
    wait_for(lambda: is_true(scene.workload("first"), "Admitted"), "the first is admitted")

    create_slice(scene, "second", of="first", cpus=cpus)

    wait_for(lambda: is_true(scene.workload("second"), "Admitted"), "the second is admitted")
    wait_for(lambda: is_true(scene.workload("first"), "Finished"), "the first is replaced")
    assert condition(scene.workload("first"), "Finished")["reason"] == "WorkloadSliceReplaced"
    assert not is_true(scene.workload("first"), "Evicted")
    wait_for(lambda: reserved_cpus(scene, cluster_queue) == want, f"{want} CPUs are reserved")


def test_a_workload_runs_on_while_there_is_no_room_for_the_one_that_replaces_it(scene: Scene) -> None:
    scene.create_queue(cpus=4)
    scene.create_workload("first", cpus=3)
    wait_for(lambda: is_true(scene.workload("first"), "Admitted"), "the first is admitted")

    create_slice(scene, "second", of="first", cpus=5)

    wait_for(lambda: condition(scene.workload("second"), "QuotaReserved"), "the second says why it waits")
    assert not is_true(scene.workload("second"), "QuotaReserved")
    assert is_true(scene.workload("first"), "Admitted")
    assert not condition(scene.workload("first"), "Finished")


# --- gates of preemption -----------------------------------------------------------------------------


def create_gated(scene: Scene, name: str, *, cpus: int) -> None:
    """Create a Workload of a higher priority that may not preempt yet."""
    workload = make_workload(name, cpus=cpus, priority=10)
    workload["spec"]["preemptionGates"] = [{"name": GATE}]
    scene.rest.create(scene.workloads, workload)


def blocked(scene: Scene, name: str) -> Object:
    """Return the condition that says whether gates hold a Workload's evictions back."""
    return condition(scene.workload(name), BLOCKED)


def wait_blocked(scene: Scene) -> None:
    """Let a Workload hold all quota, and another want it that waits at its gate."""
    scene.create_queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    scene.create_workload("low", cpus=4)
    wait_for(lambda: is_true(scene.workload("low"), "Admitted"), "the lower one is admitted")
    create_gated(scene, "high", cpus=4)
    wait_for(lambda: blocked(scene, "high").get("status") == "True", "the gate holds it back")


def test_a_closed_gate_holds_evictions_back_until_it_opens(scene: Scene) -> None:
    wait_blocked(scene)
    assert blocked(scene, "high")["reason"] == "PreemptionGated"
    assert is_true(scene.workload("low"), "Admitted")
    assert not condition(scene.workload("low"), "Evicted")

    position = {"name": GATE, "position": "Open", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    scene.rest.patch(f"{scene.workloads}/high/status", {"status": {"preemptionGates": [position]}})
    wait_for(lambda: is_true(scene.workload("low"), "Evicted"), "the lower one is evicted")
    # Only its program ends a Workload that has no Job.
    scene.rest.delete(f"{scene.workloads}/low")

    wait_for(lambda: is_true(scene.workload("high"), "Admitted"), "the higher one is admitted")
    assert (blocked(scene, "high")["status"], blocked(scene, "high")["reason"]) == ("False", "QuotaReserved")


def test_a_closed_gate_holds_nothing_back_where_there_is_room(scene: Scene) -> None:
    scene.create_queue(cpus=4, preemption={"withinClusterQueue": "LowerPriority"})
    scene.create_workload("low", cpus=2)
    create_gated(scene, "high", cpus=2)

    wait_for(lambda: is_true(scene.workload("high"), "Admitted"), "both fit")
    assert not blocked(scene, "high")
    assert not condition(scene.workload("low"), "Evicted")


def test_a_workload_that_is_deactivated_no_longer_waits_at_its_gate(scene: Scene) -> None:
    """Kueue, pkg/workload/evict: the eviction ends the condition, with its own reason."""
    wait_blocked(scene)

    scene.rest.patch(f"{scene.workloads}/high", {"spec": {"active": False}})

    wait_for(lambda: blocked(scene, "high")["status"] == "False", "the condition has ended")
    assert blocked(scene, "high")["reason"] == condition(scene.workload("high"), "Evicted")["reason"]
