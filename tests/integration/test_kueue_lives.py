"""How the Workloads of Jobs come and go, as users of Kueue know it, on a real control plane."""

from __future__ import annotations

import pytest

from tests.integration.manifests import Object, condition, is_true, make_workload
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("kueue")]

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


def test_a_prebuilt_workload_that_comes_after_its_job_gets_it_as_owner_and_runs(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("one", labels={PREBUILT: "late"})
    template = scene.job("one")["spec"]["template"]
    late = make_workload("late")
    late["spec"]["podSets"][0]["template"] = {"spec": template["spec"]}
    assert scene.workloads_of("one") == []

    scene.rest.create(scene.workloads, late)

    scene.wait_admitted("one")
    assert [one["metadata"]["name"] for one in scene.workloads_of("one")] == ["late"]


def test_a_job_that_is_deleted_alone_lets_its_workload_finish(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("one")
    scene.wait_admitted("one")
    workload = scene.wait_workload("one")["metadata"]["name"]

    scene.rest.delete(f"{scene.jobs}/one", {"propagationPolicy": "Orphan"})

    def is_let_go() -> bool:
        found: Object = scene.workload(workload)
        return is_true(found, "Finished") and not found["metadata"].get("finalizers")

    wait_for(is_let_go, "the Workload finished and without finalizer")
    assert condition(scene.workload(workload), "Finished")["reason"] == "OwnerNotFound"


def test_a_reservation_that_another_program_ends_by_its_condition_alone_is_given_back(scene: Scene) -> None:
    """As a server-side apply of Kueue's manager ends one that another manager has written."""
    scene.create_queue()
    scene.create_workload("one")
    wait_for(lambda: is_true(scene.workload("one"), "Admitted"), "the admission")
    at = {"lastTransitionTime": "2026-01-01T00:00:00Z", "message": "By test"}
    ended = [
        {"type": "QuotaReserved", "status": "False", "reason": "Pending", **at},
        {"type": "Evicted", "status": "True", "reason": "PodsReadyTimeout", **at},
        {"type": "Requeued", "status": "False", "reason": "PodsReadyTimeout", **at},
    ]

    scene.rest.patch(f"{scene.workloads}/one/status", {"status": {"conditions": ended}})

    def is_back() -> bool:
        found: Object = scene.workload("one")
        return is_true(found, "Requeued") and is_true(found, "Admitted")

    wait_for(is_back, "the next admission")


def test_a_job_that_waits_says_so_in_both_conditions(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    scene.create_job("large", cpus=2)

    waiting = scene.wait_workload("large", lambda one: bool(condition(one, "QuotaReserved")), "a reason")

    assert condition(waiting, "Admitted")["status"] == "False"
