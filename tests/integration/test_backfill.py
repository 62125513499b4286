"""A blocked gang on a real control plane: it is promised a start, others fill the gap, it starts in time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.integration.manifests import LONG, Object, condition, make_job
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

POLICIES = "/apis/berth.dev/v1alpha1/admissionpolicies"
EXPECTED = "berth.dev/expected-runtime-seconds"
PLANNED = "berth.dev/planned-start"
# What the work in the way says of itself. The test ends it shortly before, as the start of pods takes time.
RUNNING_SECONDS = 30
EARLY_SECONDS = 2.0


@pytest.fixture
def scene(real_controller: Replica, real_scene: Scene) -> Iterator[Scene]:
    """Give a namespace with a queue of 64 CPUs, whose policy has backfill."""
    assert real_controller.child.is_running()
    queue = real_scene.create_queue(cpus=64, queueingStrategy="StrictFIFO")
    name = real_scene.scoped("time")
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"clusterQueues": {"names": [queue]}, "backfill": {"mode": "EASY"}},
    }
    real_scene.rest.create(POLICIES, policy)
    real_scene.rest.wait(f"{POLICIES}/{name}", lambda found: bool(condition(found, "Accepted")))
    yield real_scene
    real_scene.rest.delete(f"{POLICIES}/{name}")


def submit(scene: Scene, name: str, *, says: float, runs: float = LONG, pods: int = 1, cpus: int = 1) -> None:
    """Create a Job that runs for `runs` seconds and declares `says`."""
    job = make_job(name, pods=pods, cpus=cpus, seconds=runs)
    job["metadata"]["annotations"] = {EXPECTED: f"{says:g}"}
    scene.rest.create(scene.jobs, job)


def planned_start(workload: Object) -> float | None:
    """Return when the Workload is promised to start, None for no promise."""
    text = workload["metadata"].get("annotations", {}).get(PLANNED)
    return datetime.fromisoformat(text).timestamp() if text else None


@pytest.mark.covers("004_17")
def test_a_blocked_gang_starts_at_its_promise_and_others_fill_the_gap(
    scene: Scene, real_controller: Replica
) -> None:
    submit(scene, "running", says=RUNNING_SECONDS, pods=7, cpus=8)
    scene.wait_admitted("running")
    submit(scene, "gang", says=60, pods=8, cpus=8)
    gang = scene.wait_workload("gang", lambda found: planned_start(found) is not None, "promised a start")
    promised = planned_start(gang)
    assert promised is not None
    small = ("small-1", "small-2", "small-3")
    for name in small:
        submit(scene, name, says=3, runs=1)
    submit(scene, "long", says=300)
    submit(scene, "liar", says=3)

    scene.wait_finished(*small)
    scene.wait_pending("long", says="would delay")
    scene.wait_true("liar", "Admitted")
    evicted = scene.wait_workload(
        "liar",
        lambda found: condition(found, "Evicted").get("reason") == "BackfillLeaseExpired",
        "the eviction at the end of the lease",
        timeout_seconds=60.0,
    )
    assert scene.workload_of("gang")["metadata"]["name"] in condition(evicted, "Evicted")["message"]  # type: ignore[index]
    wait_for(lambda: time.time() > promised - EARLY_SECONDS, "the promised start", timeout_seconds=60.0)
    scene.delete_job("running")
    wait_for(lambda: scene.workload_of("running") is None, "its quota given back")
    scene.wait_admitted("gang")

    reserved = condition(scene.workload_of("gang"), "QuotaReserved")
    started = datetime.fromisoformat(reserved["lastTransitionTime"]).timestamp()
    # A condition's time is in whole seconds.
    assert started >= promised - EARLY_SECONDS - 1.0, started - promised
    # The room went to the gang first: it takes all of it, so that the others wait on.
    assert all(
        condition(scene.workload_of(name), "QuotaReserved")["status"] == "False" for name in ("long", "liar")
    )
    assert real_controller.metric("berth_promises_total") >= 2
    scene.wait_events(gang["metadata"]["name"], "StartPlanned")
