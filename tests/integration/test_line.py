"""The whole line on a real control plane: kube-scheduler, Job controller, and `berth controller` beside.

Nodes and their pods are simulated, everything else is what a user's cluster has. Each test works in a
namespace of its own with queues of its own; one controller serves them all.
"""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from api.parsing.times import to_seconds
from tests.controlplane import ControlPlane
from tests.integration.manifests import (
    KUEUE,
    POOL,
    Object,
    condition,
    is_true,
    kueue_object,
    make_job,
    quota,
)
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.witness import Witness

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("line")]


# --- admitted, waiting, finished ---------------------------------------------------------------------


def test_the_pods_of_an_admitted_job_run_on_nodes_of_its_flavor(scene: Scene) -> None:
    small, large = scene.create_flavor("small", pool="blue"), scene.create_flavor("large", pool="green")
    groups = quota(small, nominal=1)
    groups["flavors"] += quota(large, nominal=4)["flavors"]
    scene.create_local_queue("main", scene.create_cluster_queue("main", groups))

    scene.create_job("one", cpus=1, pods=2)

    scene.wait_admitted("one")
    assert scene.job("one")["spec"]["template"]["spec"]["nodeSelector"] == {POOL: "green"}
    pods = wait_for(
        lambda: [pod for pod in scene.pods_of("one") if pod["status"]["phase"] == "Running"][1:], "both pods"
    )
    assert {pod["spec"]["nodeName"] for pod in (*pods, *scene.pods_of("one"))} == {"green-0"}
    (assigned,) = scene.wait_true("one", "Admitted")["status"]["admission"]["podSetAssignments"]
    assert assigned == {
        "name": "main",
        "count": 2,
        "flavors": {"cpu": large},
        "resourceUsage": {"cpu": "2"},
    }


def test_a_second_job_waits_with_reason_and_message_until_the_first_is_deleted(scene: Scene) -> None:
    cluster_queue = scene.create_queue(cpus=4)
    scene.create_job("first", cpus=3)
    scene.wait_admitted("first")

    scene.create_job("second", cpus=2)
    waiting = scene.wait_pending("second")
    assert waiting["status"] == "False"
    assert waiting["message"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor"
        f" {scene.scoped('main-flavor')}, 1 more needed"
    )
    assert scene.job("second")["spec"]["suspend"] is True
    assert scene.pods_of("second") == []

    scene.delete_job("first")

    scene.wait_admitted("second")
    wait_for(lambda: scene.workloads_of("first") == [], "the Workload of the deleted Job is gone")
    assert scene.cluster_queue(cluster_queue)["metadata"]["name"] == cluster_queue


def test_a_finished_job_frees_its_quota(scene: Scene) -> None:
    scene.create_queue(cpus=1)

    for name in ("first", "second", "third"):
        scene.create_job(name, seconds=0.5)

    scene.wait_finished("first", "second", "third")
    finished = scene.wait_true("third", "Finished")
    assert condition(finished, "Finished")["reason"] == "Succeeded"
    assert "finalizers" not in finished["metadata"]


def test_the_higher_priority_goes_first_and_equal_priorities_in_order_of_age(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    high = scene.create_priority("high", 1000)
    scene.create_job("running")
    scene.wait_admitted("running")
    scene.create_job("old", seconds=0.2)
    wait_until_after(scene.wait_workload("old"))
    scene.create_job("young", seconds=0.2)
    scene.create_job("urgent", seconds=0.2, labels={"kueue.x-k8s.io/priority-class": high})
    scene.wait_workload("young")
    scene.wait_workload("urgent")

    with Witness(scene.rest, scene.namespace) as witness:
        scene.delete_job("running")
        scene.wait_finished("urgent", "old", "young")
        witness.catch_up()

    assert witness.admitted() == ["running", "urgent", "old", "young"]


def wait_until_after(workload: Object) -> None:
    """Return when the second is over in which the object was made: one created now is younger."""
    made_at = to_seconds(workload["metadata"]["creationTimestamp"])
    wait_for(lambda: time.time() > made_at + 1.1, "the next second")


def test_a_cohort_lends_what_its_members_leave_unused(scene: Scene) -> None:
    flavor, cohort = scene.create_flavor(), scene.scoped("cohort")
    for name in ("borrower", "lender"):
        cluster_queue = scene.create_cluster_queue(name, quota(flavor, nominal=2), cohortName=cohort)
        scene.create_local_queue(name, cluster_queue)

    scene.create_job("wide", queue="borrower", cpus=3)
    scene.wait_admitted("wide")
    scene.create_job("late", queue="lender", cpus=2)
    scene.wait_pending("late")

    borrower = wait_for(
        lambda: scene.cluster_queue(scene.scoped("borrower")).get("status", {}).get("flavorsUsage"), "usage"
    )
    assert borrower == [{"name": flavor, "resources": [{"name": "cpu", "total": "3", "borrowed": "1"}]}]
    scene.delete_job("wide")
    scene.wait_admitted("late")


# --- leaving and coming back -------------------------------------------------------------------------


def test_a_deactivated_job_stops_as_it_was_created_and_starts_again_when_activated(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("one", cpus=2)
    scene.wait_admitted("one")
    wait_for(lambda: scene.pods_of("one"), "its pod")

    scene.set_active("one", active=False)

    evicted = scene.wait_workload(
        "one", lambda found: is_true(found, "Evicted") and "admission" not in found["status"], "released"
    )
    assert condition(evicted, "Evicted")["reason"] == "Deactivated"
    stopped = scene.job("one")["spec"]
    assert stopped["suspend"] is True
    assert "nodeSelector" not in stopped["template"]["spec"]
    wait_for(lambda: not scene.pods_of("one"), "its pod gone")

    scene.set_active("one", active=True)

    scene.wait_admitted("one")
    assert not is_true(scene.workload_of("one"), "Evicted")


def test_a_queued_job_that_a_user_resumes_by_hand_is_suspended(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    scene.create_job("running")
    scene.wait_admitted("running")
    scene.create_job("eager")
    scene.wait_pending("eager")

    scene.rest.patch(f"{scene.jobs}/eager", {"spec": {"suspend": False}})

    scene.wait_events("eager", "Stopped")
    assert wait_for(lambda: scene.job("eager")["spec"]["suspend"], "suspended again")
    assert len(scene.workloads_of("eager")) == 1


def test_a_job_created_running_is_suspended_queued_and_started_in_its_turn(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    scene.create_job("running")
    scene.wait_admitted("running")

    scene.create_job("impatient", suspend=False)

    scene.wait_pending("impatient")
    assert scene.job("impatient")["spec"]["suspend"] is True
    scene.delete_job("running")
    scene.wait_admitted("impatient")


# --- whose objects are touched -----------------------------------------------------------------------


def test_a_workload_without_any_job_is_queued_admitted_and_frees_its_quota_when_deleted(scene: Scene) -> None:
    scene.create_queue(cpus=1)
    scene.create_workload("first")
    first, second = f"{scene.workloads}/first", f"{scene.workloads}/second"
    admitted = scene.rest.wait(first, lambda found: is_true(found, "Admitted"))
    assert admitted["status"]["admission"]["clusterQueue"] == scene.scoped("main")

    scene.create_workload("second")
    scene.rest.wait(second, lambda found: condition(found, "QuotaReserved").get("status") == "False")
    scene.rest.delete(first)

    scene.rest.wait(second, lambda found: is_true(found, "Admitted"))


def test_a_job_without_a_queue_name_is_left_alone(scene: Scene) -> None:
    scene.create_queue()
    scene.create_job("idle", queue=None)
    scene.create_job("busy", queue=None, suspend=False)
    wait_for(lambda: scene.pods_of("busy"), "the pod of the unmanaged Job")

    # A managed Job that arrived later has been served: the others have been looked at.
    scene.create_job("managed")
    scene.wait_admitted("managed")

    # The Job controller writes its status, and nothing else is written.
    managers = {entry["manager"] for entry in scene.job("idle")["metadata"]["managedFields"]}
    assert not any("berth" in manager for manager in managers)
    assert scene.job("busy")["spec"]["suspend"] is False
    assert scene.workloads_of("idle") + scene.workloads_of("busy") == []


# --- what is said ------------------------------------------------------------------------------------


def test_statuses_of_both_queues_count_and_sum_what_they_hold(scene: Scene) -> None:
    cluster_queue = scene.create_queue(cpus=4)
    for name, cpus in (("one", 2), ("two", 1)):
        scene.create_job(name, cpus=cpus)
    scene.wait_admitted("one", "two")
    # Only now: Jobs made within one second have no order that a Workload would show.
    scene.create_job("three", cpus=3)
    scene.wait_pending("three")

    resources = [{"name": "cpu", "total": "3"}]
    flavor = scene.scoped("main-flavor")
    want = {"pendingWorkloads": 1, "reservingWorkloads": 2, "admittedWorkloads": 2}
    local = scene.rest.wait(
        f"{scene.local_queues}/main",
        lambda found: want.items() <= found.get("status", {}).items(),
    )
    assert local["status"]["flavorsUsage"] == [{"name": flavor, "resources": resources}]
    assert condition(local, "Active")["reason"] == "Ready"
    status = wait_for(
        lambda: [
            found["status"]
            for found in [scene.cluster_queue(cluster_queue)]
            if want.items() <= found.get("status", {}).items()
        ],
        "the ClusterQueue's counts",
    )[0]
    assert status["flavorsReservation"] == [
        {"name": flavor, "resources": [{"name": "cpu", "total": "3", "borrowed": "0"}]}
    ]
    assert status["flavorsUsage"] == status["flavorsReservation"]


def test_each_step_of_a_job_is_reported_in_conditions_and_events(scene: Scene) -> None:
    cluster_queue = scene.create_queue(cpus=1)
    scene.create_job("one", seconds=0.5)

    scene.wait_finished("one")

    workload = scene.wait_true("one", "QuotaReserved", "Admitted", "Finished")
    name = workload["metadata"]["name"]
    conditions = {one["type"]: (one["reason"], one["message"]) for one in workload["status"]["conditions"]}
    assert conditions["QuotaReserved"] == ("QuotaReserved", f"Quota reserved in ClusterQueue {cluster_queue}")
    assert conditions["Admitted"] == ("Admitted", "The workload is admitted")
    assert conditions["Finished"][0] == "Succeeded"
    assert all(
        one["observedGeneration"] == workload["metadata"]["generation"]
        for one in workload["status"]["conditions"]
    )
    scene.wait_events("one", "CreatedWorkload", "Started", "FinishedWorkload")
    scene.wait_events(name, "QuotaReserved", "Admitted")
    assert f"Admitted by clusterQueue {cluster_queue}" in scene.notes_about("one")


def test_kubectl_prints_what_a_user_of_kueue_looks_for(
    scene: Scene, control_plane: ControlPlane, kubectl: str
) -> None:
    cluster_queue = scene.create_queue(cpus=1)
    scene.create_job("one")
    scene.wait_admitted("one")
    scene.create_job("two")
    scene.wait_pending("two")
    scene.rest.wait(
        f"{scene.local_queues}/main", lambda found: found.get("status", {}).get("pendingWorkloads") == 1
    )

    def table(kind: str) -> dict[str, dict[str, str]]:
        command = [kubectl, "--kubeconfig", control_plane.kubeconfig, "-n", scene.namespace, "get", kind]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout, done.stderr
        return read_table(done.stdout)

    workloads = table("workloads")
    one, two = (scene.wait_workload(job)["metadata"]["name"] for job in ("one", "two"))
    assert workloads[one]["QUEUE"] == workloads[two]["QUEUE"] == "main"
    assert workloads[one]["ADMITTED"] == "True"
    assert workloads[one]["RESERVED IN"] == cluster_queue
    assert workloads[two]["RESERVED IN"] == ""
    queues = table("localqueues")
    assert queues["main"]["CLUSTERQUEUE"] == cluster_queue
    assert queues["main"]["PENDING WORKLOADS"] == "1"
    assert queues["main"]["ADMITTED WORKLOADS"] == "1"
    assert table("clusterqueues")[cluster_queue]["PENDING WORKLOADS"] == "1"
    assert table("jobs")["two"]["STATUS"] == "Suspended"


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        ("clusterqueues", "NAME COHORT STRATEGY PENDING-WORKLOADS ADMITTED-WORKLOADS AGE"),
        ("localqueues", "NAME CLUSTERQUEUE PENDING-WORKLOADS ADMITTED-WORKLOADS AGE"),
        ("workloads", "NAME QUEUE RESERVED-IN ADMITTED FINISHED AGE"),
        ("cohorts", "NAME AGE"),
        ("resourceflavors", "NAME AGE"),
        ("workloadpriorityclasses", "NAME VALUE AGE"),
    ],
)
def test_kubectl_has_the_columns_of_kueue(
    scene: Scene, control_plane: ControlPlane, kubectl: str, kind: str, want: str
) -> None:
    name = scene.create_queue(cpus=1, cohortName=scene.scoped("all"), queueingStrategy="StrictFIFO")
    body = kueue_object("Cohort", {"name": scene.scoped("all")}, {})
    scene.rest.create(f"/apis/{KUEUE}/cohorts", body)
    scene.create_priority("high", 7)
    scene.create_job("one")
    scene.wait_admitted("one")
    scene.rest.wait(
        f"/apis/{KUEUE}/clusterqueues/{name}",
        lambda found: found.get("status", {}).get("admittedWorkloads") == 1,
    )

    command = [kubectl, "--kubeconfig", control_plane.kubeconfig, "-n", scene.namespace, "get", kind]
    done = subprocess.run([*command, "-o", "wide"], capture_output=True, text=True, check=True)

    headings = [one.replace(" ", "-") for one in re.findall(r"\S+(?: \S+)*", done.stdout.splitlines()[0])]
    assert " ".join(headings) == want
    if kind == "clusterqueues":
        shown = read_table(done.stdout)[name]
        assert (shown["COHORT"], shown["STRATEGY"]) == (scene.scoped("all"), "StrictFIFO")
        assert (shown["PENDING WORKLOADS"], shown["ADMITTED WORKLOADS"]) == ("0", "1")


def read_table(text: str) -> dict[str, dict[str, str]]:
    """Return kubectl's rows by name, each by heading; its columns are at least two spaces apart."""
    first, *rows = text.splitlines()
    headings = list(re.finditer(r"\S+(?: \S+)*", first))
    bounds = [heading.start() for heading in headings]
    cells = [[row[a:b].strip() for a, b in zip(bounds, [*bounds[1:], None], strict=True)] for row in rows]
    return {row[0]: dict(zip([each[0] for each in headings], row, strict=True)) for row in cells}


def test_http_and_metrics_report_the_same(scene: Scene, real_controller: Replica) -> None:
    cluster_queue = scene.create_queue(cpus=1)
    scene.create_job("one")
    scene.wait_admitted("one")
    scene.create_job("two")
    scene.wait_pending("two")

    pending = real_controller.json(f"/v1/clusterqueues/{cluster_queue}/pendingworkloads")["items"]
    waiting = scene.wait_workload("two")["metadata"]["name"]
    assert [item["name"] for item in pending] == [waiting]
    shown = real_controller.json(f"/v1/workloads/{scene.namespace}/{waiting}")
    assert shown["holdsQuota"] is False
    assert real_controller.metric("kueue_admitted_active_workloads", cluster_queue=cluster_queue) == 1
    assert real_controller.metric("kueue_pending_workloads", cluster_queue=cluster_queue) == 1
    assert real_controller.get("http", "/readyz") == (200, "ok")


def test_a_job_of_the_controllers_own_namespace_is_not_managed(
    real_controller: Replica, scene: Scene
) -> None:
    own = Scene(scene.rest, _lease_namespace(real_controller), pool=scene.pool)
    own.rest.create(own.jobs, make_job("system", queue="main"))
    scene.create_queue()
    scene.create_job("managed")

    scene.wait_admitted("managed")

    assert own.workloads_of("system") == []
    own.delete_job("system")


def _lease_namespace(controller: Replica) -> str:
    arguments = list(controller.child.arguments)
    return str(arguments[arguments.index("--namespace") + 1])
