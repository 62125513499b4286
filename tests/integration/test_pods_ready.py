"""A gang that holds quota while one of its pods does not come: a timeout ends it and frees all that it held.

The pod that does not come has another scheduling gate, which is never removed.
"""

from __future__ import annotations

import pytest

from tests.integration.conftest import Options
from tests.integration.manifests import condition
from tests.integration.pods import (
    CONFIG,
    GATE,
    create,
    make_pod,
    member,
    pod_of,
    wait_condition,
    wait_pod,
)
from tests.integration.scene import Scene

pytestmark = pytest.mark.xdist_group("pods_ready")

# So long a back-off that the gang does not come back while the test looks.
_TIMEOUT = """
waitForPodsReady:
  timeout: 2s
  blockAdmission: false
  requeuingStrategy: {backoffBaseSeconds: 3600}
"""


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of a controller that waits for the pods of what it admits."""
    return Options(config=CONFIG + _TIMEOUT)


@pytest.mark.covers("001_26", "004_14")
def test_a_group_whose_last_pod_does_not_come_holds_nothing_after_the_timeout(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    never = [{"name": GATE}, {"name": "example.com/never"}]
    create(scene, member("a-0", "a", 2), member("a-1", "a", 2, schedulingGates=never))
    wait_pod(scene, "a-0", "Running")

    create(scene, make_pod("next", cpus=2))

    evicted = wait_condition(scene, "a", "Evicted")
    assert condition(evicted, "Evicted")["reason"] == "PodsReadyTimeout"
    # It takes both CPUs: that of the pod which ran, and that of the one which did not come.
    wait_pod(scene, "next", "Running")
    assert all("deletionTimestamp" in (pod_of(scene, name) or {})["metadata"] for name in ("a-0", "a-1"))


@pytest.mark.covers("001_26", "004_14")
def test_a_job_whose_pods_do_not_come_holds_nothing_after_the_timeout(scene: Scene) -> None:
    scene.create_queue(cpus=2)
    scene.create_job("gang", pods=2, schedulingGates=[{"name": "example.com/never"}])
    scene.wait_true("gang", "QuotaReserved")

    scene.create_job("next", pods=2)

    evicted = scene.wait_true("gang", "Evicted")
    assert condition(evicted, "Evicted")["reason"] == "PodsReadyTimeout"
    scene.wait_admitted("next")
    assert scene.job("gang")["spec"]["suspend"]
    assert scene.pods_of("gang") == []
