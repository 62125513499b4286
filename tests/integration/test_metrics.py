"""What a running controller serves at /metrics: the gauges and counters of queues, their labels and values.

One scene with a cohort below another, custom labels and fair sharing; Prometheus' own parser reads it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from math import inf

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import parts
from tests.integration.conftest import Cluster
from tests.integration.manifests import KUEUE, kueue_object, make_job, quota
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("metrics")

CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {CustomMetricLabels: true}
fairSharing: {}
metrics:
  enableClusterQueueResources: true
  localQueueMetrics:
    localQueueSelector: {matchLabels: {measured: "yes"}}
  customLabels:
  - {name: team, sourceLabelKey: example.com/team}
  - {name: cost, sourceAnnotationKey: example.com/cost, sourceKind: LocalQueue}
  - {name: site, sourceKind: Cohort, trackedValues: [north]}
"""
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(replica: Replica) -> Samples:
    """Return all samples by name and labels."""
    _, text = replica.get("metrics", "/metrics")
    return {
        (one.name, frozenset(one.labels.items())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def create_local_queue(scene: Scene, name: str, cluster_queue: str, **labels: str) -> None:
    """Create a LocalQueue with labels and what it costs."""
    metadata = {"name": name, "labels": labels, "annotations": {"example.com/cost": "7"}}
    body = kueue_object("LocalQueue", metadata, {"clusterQueue": cluster_queue})
    scene.rest.create(scene.local_queues, body)


def create_queues(scene: Scene) -> None:
    """Create a queue of four CPUs in the cohort `team` below `org`, and one that is not measured."""
    flavor, team = scene.create_flavor(), scene.scoped("team")
    cohort = {"name": team, "labels": {"site": "moon"}}
    scene.rest.create(
        f"/apis/{KUEUE}/cohorts", kueue_object("Cohort", cohort, {"parentName": scene.scoped("org")})
    )
    name = scene.scoped("main")
    metadata = {"name": name, "labels": {"example.com/team": "vision"}}
    spec = {
        "namespaceSelector": {},
        "cohortName": team,
        "resourceGroups": [quota(flavor, nominal=4, borrowingLimit=1)],
    }
    scene.rest.create(f"/apis/{KUEUE}/clusterqueues", kueue_object("ClusterQueue", metadata, spec))
    create_local_queue(scene, "main", name, measured="yes")
    create_local_queue(scene, "unmeasured", scene.create_queue("side"))


@pytest.fixture(scope="module")
def scene(embedded_cluster: Cluster) -> Scene:
    """Give the namespace of this module."""
    return embedded_cluster.new_scene()


@pytest.fixture(scope="module")
def replica(
    embedded_cluster: Cluster, scene: Scene, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Give a controller where one Job has ended, one runs, one waits for quota and one is mistaken."""
    folder = tmp_path_factory.mktemp("controller")
    lease = embedded_cluster.new_scene().namespace
    started = Replica(embedded_cluster.kubeconfig, folder, "--namespace", lease, config=CONFIG)
    create_queues(scene)
    with started.child:
        started.wait_leading()
        scene.create_job("done", cpus=1, seconds=0.2)
        scene.wait_true("done", "Finished")
        scene.create_job("gang", cpus=1, pods=3)
        scene.wait_admitted("gang")
        scene.create_job("waits", cpus=2, queue="main")
        scene.wait_pending("waits")
        scene.create_job("hopeless", cpus=9, queue="main")
        scene.wait_pending("hopeless", "ExceedsMaxQuota")
        yield started
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})


# Labels of the objects, in short; NS is replaced by the namespace, which is the prefix of what has none.
CQ = {"cluster_queue": "NS-main", "custom_team": "vision"}
LQ = {"name": "main", "namespace": "NS", "custom_cost": "7"}
TEAM = {"cohort": "NS-team", "custom_site": "kueue.x-k8s.io/_UNTRACKED_VALUE_"}
ORG = {"cohort": "NS-org", "custom_site": ""}
CPU = {"flavor": "NS-flavor", "resource": "cpu"}
IN_COHORT = {**CQ, "cohort": "NS-team", **CPU}
NO_CLASS = {"priority_class": ""}
WAITS = {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}
TOO_BIG = {"reason": "NoReservation", "underlying_cause": "ExceedsMaxQuota"}


@pytest.mark.parametrize(
    ("name", "labels", "want"),
    [
        ("kueue_pending_workloads", {**CQ, "status": "inadmissible"}, 2),
        ("kueue_pending_workloads", {**CQ, "status": "active"}, 0),
        ("kueue_pending_scheduling_hashes", {**CQ, "status": "inadmissible"}, 2),
        ("kueue_pending_scheduling_hashes", {**CQ, "status": "active"}, 0),
        ("kueue_reserving_active_workloads", CQ, 1),
        ("kueue_admitted_active_workloads", CQ, 1),
        ("kueue_finished_workloads", CQ, 1),
        ("kueue_unadmitted_workloads", {**CQ, **WAITS}, 1),
        ("kueue_unadmitted_workloads", {**CQ, **TOO_BIG}, 1),
        ("kueue_cluster_queue_status", {**CQ, "status": "active"}, 1),
        ("kueue_cluster_queue_status", {**CQ, "status": "pending"}, 0),
        ("kueue_cluster_queue_status", {**CQ, "status": "terminating"}, 0),
        ("kueue_cluster_queue_resource_pending", {**CQ, "resource": "cpu"}, 11),
        ("kueue_cluster_queue_resource_reservation", IN_COHORT, 3),
        ("kueue_cluster_queue_resource_usage", IN_COHORT, 3),
        ("kueue_cluster_queue_nominal_quota", IN_COHORT, 4),
        ("kueue_cluster_queue_borrowing_limit", IN_COHORT, 1),
        ("kueue_cluster_queue_lending_limit", IN_COHORT, inf),
        ("kueue_cluster_queue_weighted_share", {**CQ, "cohort": "NS-team"}, 0),
        ("kueue_cluster_queue_info", {**CQ, "parent_cohort": "NS-team", "root_cohort": "NS-org"}, 1),
        ("kueue_admission_cycle_preemption_skips", CQ, 0),
        ("kueue_quota_reserved_workloads_total", {**CQ, **NO_CLASS}, 2),
        ("kueue_admitted_workloads_total", {**CQ, **NO_CLASS}, 2),
        ("kueue_finished_workloads_total", {**CQ, **NO_CLASS}, 1),
        ("kueue_quota_reserved_wait_time_seconds_count", {**CQ, **NO_CLASS}, 2),
        ("kueue_admission_wait_time_seconds_count", {**CQ, **NO_CLASS}, 2),
        ("kueue_execution_time_seconds_count", {**CQ, **NO_CLASS}, 1),
        ("kueue_local_queue_pending_workloads", {**LQ, "status": "inadmissible"}, 2),
        ("kueue_local_queue_pending_workloads", {**LQ, "status": "active"}, 0),
        ("kueue_local_queue_reserving_active_workloads", LQ, 1),
        ("kueue_local_queue_admitted_active_workloads", LQ, 1),
        ("kueue_local_queue_finished_workloads", LQ, 1),
        ("kueue_local_queue_unadmitted_workloads", {**LQ, "cluster_queue": "NS-main", **WAITS}, 1),
        ("kueue_local_queue_status", {**LQ, "active": "True"}, 1),
        ("kueue_local_queue_status", {**LQ, "active": "False"}, 0),
        ("kueue_local_queue_status", {**LQ, "active": "Unknown"}, 0),
        ("kueue_local_queue_resource_reservation", {**LQ, **CPU}, 3),
        ("kueue_local_queue_resource_usage", {**LQ, **CPU}, 3),
        ("kueue_local_queue_admitted_workloads_total", {**LQ, **NO_CLASS}, 2),
        ("kueue_local_queue_quota_reserved_workloads_total", {**LQ, **NO_CLASS}, 2),
        ("kueue_local_queue_finished_workloads_total", {**LQ, **NO_CLASS}, 1),
        ("kueue_local_queue_execution_time_seconds_count", {**LQ, **NO_CLASS}, 1),
        ("kueue_cohort_info", {**TEAM, "parent_cohort": "NS-org", "root_cohort": "NS-org"}, 1),
        ("kueue_cohort_info", {**ORG, "parent_cohort": "", "root_cohort": "NS-org"}, 1),
        ("kueue_cohort_weighted_share", TEAM, 0),
        ("kueue_cohort_subtree_quota", {**ORG, **CPU}, 4),
        ("kueue_cohort_subtree_quota", {**TEAM, **CPU}, 4),
        ("kueue_cohort_subtree_resource_reservations", {**ORG, **CPU}, 3),
        ("kueue_cohort_subtree_admitted_active_workloads", ORG, 1),
        ("kueue_cohort_subtree_admitted_workloads_total", {**ORG, **NO_CLASS}, 2),
        ("kueue_cohort_subtree_admitted_workloads_total", {**TEAM, **NO_CLASS}, 2),
        ("berth_leader", {"shard": "default"}, 1),
        ("berth_store_up", {}, 1),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_metric_has_kueues_labels_and_the_right_value(
    replica: Replica, scene: Scene, name: str, labels: Mapping[str, str], want: float
) -> None:
    named = {key: value.replace("NS", scene.namespace) for key, value in labels.items()}
    key = name, frozenset({"replica_role": "leader", **named}.items())

    try:
        wait_for(lambda: scrape(replica).get(key) == want, f"{name} {named} {want}")
    except AssertionError as error:
        found = [(dict(labels), value) for (other, labels), value in scrape(replica).items() if other == name]
        raise AssertionError(f"{error}; there are {found}") from error


def test_prometheus_own_tool_finds_nothing_wrong_with_what_is_served(replica: Replica) -> None:
    parts.need("promtool")

    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=_text(replica), capture_output=True, text=True, check=False
    )

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


def test_the_time_from_a_job_to_its_workload_is_measured(replica: Replica) -> None:
    assert replica.metric("kueue_workload_creation_latency_seconds_count", job_kind="Job") >= 4


def test_a_local_queue_that_the_selector_leaves_out_has_no_series(replica: Replica, scene: Scene) -> None:
    scene.create_job("elsewhere", queue="unmeasured", cpus=1)
    scene.wait_admitted("elsewhere")

    _, text = replica.get("metrics", "/metrics")

    assert 'name="main"' in text
    assert "unmeasured" not in text


def test_the_series_of_deleted_queues_end(replica: Replica, scene: Scene) -> None:
    cluster_queue = scene.create_cluster_queue(
        "passing", quota(scene.create_flavor("passing")), cohortName=scene.scoped("passing")
    )
    create_local_queue(scene, "passing", cluster_queue, measured="yes")
    scene.create_job("passing", queue="passing", seconds=0.1)
    scene.wait_true("passing", "Finished")
    wait_for(lambda: _text(replica).count("passing") > 30, "series of the queues")

    scene.rest.delete(f"{scene.local_queues}/passing")
    scene.rest.delete(f"/apis/{KUEUE}/clusterqueues/{cluster_queue}")

    wait_for(lambda: "passing" not in _text(replica), "no series of the queues")


@pytest.mark.covers("001_39")
def test_attempts_are_counted_by_the_type_of_the_workload_and_the_result(
    replica: Replica, scene: Scene
) -> None:
    for name, cpus in (("learns", 1), ("learns-much", 9)):
        job = make_job(name, cpus=cpus, queue="unmeasured")
        job["spec"]["template"]["metadata"]["labels"] = {"berth.dev/workload-type": "training"}
        scene.rest.create(scene.jobs, job)
    scene.wait_admitted("learns")
    scene.wait_pending("learns-much", "ExceedsMaxQuota")

    for result in ("success", "unschedulable"):
        labels = {"workload_type": "training", "result": result}
        assert replica.metric("ai_scheduler_attempts_total", **labels) >= 1


@pytest.mark.covers("001_39")
def test_attempts_are_counted_by_the_articles_label_where_the_policy_reads_it(
    replica: Replica, scene: Scene
) -> None:
    policies = "/apis/berth.dev/v1alpha1/admissionpolicies"
    queue = scene.rest.get(f"{scene.local_queues}/unmeasured")["spec"]["clusterQueue"]
    spec = {"clusterQueues": {"names": [queue]}, "aliases": "Articles"}
    policy = {**kueue_object("AdmissionPolicy", {"name": queue}, spec), "apiVersion": "berth.dev/v1alpha1"}
    scene.rest.create(policies, policy)
    scene.rest.wait(
        f"{policies}/{queue}", lambda found: found.get("status", {}).get("clusterQueues") == [queue]
    )
    job = make_job("answers", cpus=1, queue="unmeasured", seconds=0.1)
    job["spec"]["template"]["metadata"]["labels"] = {"workload-type": "inference"}

    scene.rest.create(scene.jobs, job)
    scene.wait_true("answers", "Finished")

    assert replica.metric("ai_scheduler_attempts_total", workload_type="inference", result="success") == 1
    scene.rest.delete(f"{policies}/{queue}")


def _text(replica: Replica) -> str:
    return replica.get("metrics", "/metrics")[1]
