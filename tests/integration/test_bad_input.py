"""What cannot be served says so in one clear sentence, in a condition or an Event; all others go on.

The sentence names the thing and the fix, and a corrected object is served. What keeps a controller from
starting is listed in test_bad_starts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from tests.controlplane import RestError
from tests.integration.manifests import (
    KUEUE,
    Object,
    condition,
    is_true,
    kueue_object,
    make_job,
    make_workload,
    quota,
)
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

pytestmark = pytest.mark.xdist_group("bad-input")


@pytest.fixture
def scene(embedded_controller: Replica, embedded_scene: Scene) -> Scene:
    """Give a namespace that the controller serves, with a queue in order."""
    assert embedded_controller.child.is_running()
    embedded_scene.create_queue("good")
    return embedded_scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A Job `bad` in a queue `bad` that cannot serve it: what is made before it, and what mends it.

    `says` is its Workload's message, `queue_says` that of the ClusterQueue's Active condition; NS is replaced
    by the namespace, which is the prefix of what has none.
    """

    make: Callable[[Scene], None] = lambda _: None
    job: Mapping[str, int] = field(default_factory=dict)
    reason: str
    says: str
    mend: Callable[[Scene], object]
    queue_reason: str = ""
    queue_says: str = ""


def create_bad_queue(scene: Scene, *groups: Object, **spec: object) -> None:
    """Create LocalQueue and ClusterQueue `bad`."""
    scene.create_local_queue("bad", scene.create_cluster_queue("bad", *groups, **spec))


def create_good_queue(scene: Scene) -> None:
    """Create them with a flavor of four CPUs."""
    create_bad_queue(scene, quota(scene.create_flavor("bad")))


def create_queue_of_memory(scene: Scene) -> None:
    """Create them with memory alone."""
    create_bad_queue(scene, quota(scene.create_flavor("bad"), "memory", "1Gi"))


def create_queue_without_flavor(scene: Scene) -> None:
    """Create them with a flavor that does not exist."""
    create_bad_queue(scene, quota(scene.scoped("ghost")))


def create_queue_with_less_than_nothing(scene: Scene) -> None:
    """Create them with a quota that a server takes which has no rules beside the schema."""
    create_bad_queue(scene, quota(scene.create_flavor("bad"), nominal=-1))


def create_queue_below_a_circle(scene: Scene) -> None:
    """Create them in a cohort whose parent is its child."""
    for name, parent in (("upper", "lower"), ("lower", "upper")):
        body = kueue_object("Cohort", {"name": scene.scoped(name)}, {"parentName": scene.scoped(parent)})
        scene.rest.create(f"/apis/{KUEUE}/cohorts", body)
    create_bad_queue(scene, quota(scene.create_flavor("bad")), cohortName=scene.scoped("lower"))


def open_circle(scene: Scene) -> None:
    """Take the upper cohort out of the lower one."""
    scene.rest.patch(f"/apis/{KUEUE}/cohorts/{scene.scoped('upper')}", {"spec": {"parentName": None}})


def set_quota(scene: Scene, cpus: int) -> None:
    """Set the quota of the ClusterQueue `bad` to `cpus` CPUs."""
    groups = [quota(scene.scoped("bad"), nominal=cpus)]
    path = f"/apis/{KUEUE}/clusterqueues/{scene.scoped('bad')}"
    scene.rest.patch(path, {"spec": {"resourceGroups": groups}})


NO_FLAVOR = "references missing ResourceFlavor(s): NS-ghost"
NEGATIVE = (
    "spec.resourceGroups[0].flavors[NS-bad].resources[cpu].nominalQuota is -1, but must not be negative"
)
A_CIRCLE = "its cohorts form a cycle (NS-lower → NS-upper → NS-lower); change spec.parentName of one of them"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Case(
                reason="Misconfigured",
                says="LocalQueue bad doesn't exist",
                mend=create_good_queue,
            ),
            id="its queue does not exist",
        ),
        pytest.param(
            Case(
                make=lambda scene: scene.create_local_queue("bad", scene.scoped("bad")),
                reason="Misconfigured",
                says="ClusterQueue NS-bad doesn't exist",
                mend=lambda scene: scene.create_cluster_queue("bad", quota(scene.create_flavor("bad"))),
            ),
            id="its queue has no ClusterQueue",
        ),
        pytest.param(
            Case(
                make=create_queue_without_flavor,
                reason="Suspended",
                says=f"ClusterQueue NS-bad is inactive: {NO_FLAVOR}; create them",
                mend=lambda scene: scene.create_flavor("ghost"),
                queue_reason="FlavorNotFound",
                queue_says=f"Can't admit new workloads: {NO_FLAVOR}.",
            ),
            id="a flavor of its ClusterQueue is missing",
        ),
        pytest.param(
            Case(
                make=create_queue_below_a_circle,
                reason="Suspended",
                says=f"ClusterQueue NS-bad is inactive: {A_CIRCLE}",
                mend=open_circle,
                queue_reason="CohortCycle",
                queue_says=f"Can't admit new workloads: {A_CIRCLE}.",
            ),
            id="the cohorts above its ClusterQueue form a circle",
        ),
        pytest.param(
            Case(
                make=create_queue_with_less_than_nothing,
                reason="Suspended",
                says=f"ClusterQueue NS-bad is inactive: {NEGATIVE}",
                mend=lambda scene: set_quota(scene, 4),
                queue_reason="Unknown",
                queue_says=f"Can't admit new workloads: {NEGATIVE}.",
            ),
            id="a quota of its ClusterQueue cannot be read",
        ),
        pytest.param(
            Case(
                make=create_queue_of_memory,
                reason="NoMatchingFlavor",
                says="couldn't assign flavors to pod set main: resource cpu unavailable in ClusterQueue",
                mend=lambda scene: set_quota(scene, 4),
            ),
            id="its ClusterQueue does not have the resource",
        ),
        pytest.param(
            Case(
                make=create_good_queue,
                job={"cpus": 3, "pods": 2},
                reason="ExceedsMaxQuota",
                says="couldn't assign flavors to pod set main: insufficient quota for cpu in flavor NS-bad,"
                " previously considered podsets requests (0) + current podset request (6) > maximum"
                " capacity (4)",
                mend=lambda scene: set_quota(scene, 6),
            ),
            id="it is larger than its ClusterQueue",
        ),
    ],
)
def test_a_job_that_cannot_be_served_says_why_until_that_is_mended_when(scene: Scene, case: Case) -> None:
    case.make(scene)
    scene.create_job("bad", queue="bad", **case.job)
    scene.create_job("neighbour", queue="good")

    says, queue_says = (text.replace("NS", scene.namespace) for text in (case.says, case.queue_says))
    assert scene.wait_pending("bad", case.reason, says)["message"] == says
    if case.queue_reason:
        active = scene.wait_active(scene.scoped("bad"), reason=case.queue_reason, says=queue_says)
        assert (active["status"], active["message"]) == ("False", queue_says)
    scene.wait_admitted("neighbour")

    case.mend(scene)

    scene.wait_admitted("bad")


@pytest.mark.parametrize(
    ("labels", "reason", "says"),
    [
        pytest.param(
            {"kueue.x-k8s.io/priority-class": "urgent"},
            "WorkloadPriorityClassNotFound",
            "Job NS/bad: label kueue.x-k8s.io/priority-class names WorkloadPriorityClass 'urgent', which does"
            " not exist; create it or name another",
            id="a priority class that does not exist",
        ),
        pytest.param(
            {"kueue.x-k8s.io/max-exec-time-seconds": "soon"},
            "ErrWorkloadCompose",
            'Job NS/bad: metadata.labels[kueue.x-k8s.io/max-exec-time-seconds] is "soon": must be a whole'
            " number of seconds above 0",
            id="a time limit that is no number",
        ),
        pytest.param(
            {"berth.dev/paralelism": "ddp"},
            "UnknownKey",
            "The label 'berth.dev/paralelism' is unknown and has no effect; did you mean"
            " 'berth.dev/parallelism'?",
            id="a misspelt key",
        ),
    ],
)
def test_a_label_without_meaning_is_reported_in_an_event(
    scene: Scene, labels: Mapping[str, str], reason: str, says: str
) -> None:
    scene.create_job("bad", queue="good", labels=labels)
    scene.create_job("neighbour", queue="good")

    scene.wait_events("bad", reason)
    assert says.replace("NS", scene.namespace) in scene.notes_about("bad")
    scene.wait_admitted("neighbour")


def test_a_priority_class_of_other_namespaces_is_refused_until_the_namespace_gets_their_label(
    scene: Scene,
) -> None:
    name = scene.create_priority("urgent", 10)
    selector = {"berth.dev/namespace-selector": '{"matchLabels": {"team": "research"}}'}
    scene.rest.patch(f"/apis/{KUEUE}/workloadpriorityclasses/{name}", {"metadata": {"annotations": selector}})
    labels = {"kueue.x-k8s.io/priority-class": name}
    # The class may be noticed after the Job, which would then be queued by it.
    wait_for(lambda: is_refused(scene, labels), "the selector seen")
    scene.create_job("bad", queue="good", labels=labels)

    scene.wait_events("bad", "WorkloadPriorityClassNotAllowed")
    assert f"the namespace '{scene.namespace}' may not use" in " ".join(scene.notes_about("bad"))
    assert scene.workload_of("bad") is None
    scene.rest.patch(f"/api/v1/namespaces/{scene.namespace}", {"metadata": {"labels": {"team": "research"}}})

    scene.wait_admitted("bad")


def is_refused(scene: Scene, labels: Mapping[str, str]) -> bool:
    """Return whether a Job with these labels is refused. It is deleted again."""
    scene.create_job("probe", queue="good", labels=labels)
    refused = "WorkloadPriorityClassNotAllowed"
    wait_for(lambda: scene.workload_of("probe") or refused in scene.reasons_about("probe"), "an answer")
    is_queued = scene.workload_of("probe") is not None
    scene.delete_job("probe")
    wait_for(lambda: not scene.rest.exists(f"{scene.jobs}/probe"), "the probe gone")
    return not is_queued


def test_a_quantity_that_is_none_is_refused_by_the_server_which_names_the_field(scene: Scene) -> None:
    with pytest.raises(RestError) as refused:
        create_bad_queue(scene, quota(scene.create_flavor("bad"), nominal="four"))

    assert refused.value.status == 422
    assert 'flavors[0].resources[0].nominalQuota: Invalid value: "four"' in str(refused.value)


# --- what is not served ------------------------------------------------------------------------------------

MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def create_dispatched_job(scene: Scene) -> None:
    """Create a Job that is to run in another cluster."""
    body = make_job("bad", queue="good")
    body["spec"]["managedBy"] = MULTIKUEUE
    scene.rest.create(scene.jobs, body)


def create_queue_of_other_clusters(scene: Scene) -> None:
    """Create ClusterQueue and LocalQueue with a check that dispatches to other clusters, and a Job there."""
    check = kueue_object("AdmissionCheck", {"name": scene.scoped("check")}, {"controllerName": MULTIKUEUE})
    scene.rest.create(f"/apis/{KUEUE}/admissionchecks", check)
    strategy = {"admissionChecks": [{"name": scene.scoped("check")}]}
    create_bad_queue(scene, quota(scene.create_flavor("bad")), admissionChecksStrategy=strategy)
    scene.create_job("bad", queue="bad")


@pytest.mark.parametrize(
    ("make", "reason", "says"),
    [
        pytest.param(
            create_dispatched_job,
            "Misconfigured",
            f"The job's spec.managedBy is {MULTIKUEUE}: it is to run in another cluster, and dispatch to"
            " other clusters is not served; create it without spec.managedBy to run it here",
            id="a Job is to run in another cluster",
        ),
        pytest.param(
            create_queue_of_other_clusters,
            "Suspended",
            "ClusterQueue NS-bad is inactive: references inactive AdmissionCheck(s): NS-check; see their"
            " Active condition; dispatch to other clusters is not served: take the check out",
            id="its ClusterQueue dispatches to other clusters",
        ),
    ],
)
def test_an_unsupported_setting_is_reported_in_the_condition(
    scene: Scene, make: Callable[[Scene], None], reason: str, says: str
) -> None:
    make(scene)
    scene.create_job("neighbour", queue="good")

    says = says.replace("NS", scene.namespace)
    assert scene.wait_pending("bad", reason, says)["message"] == says
    scene.wait_admitted("neighbour")
    assert scene.job("bad")["spec"]["suspend"]


def test_a_variant_of_concurrent_admission_does_not_take_quota_beside_its_workload(scene: Scene) -> None:
    body = make_workload("variant", queue="good")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/concurrent-admission-parent": "whole"}
    scene.rest.create(scene.workloads, body)
    scene.create_workload("whole", queue="good")

    wait_for(lambda: is_true(scene.workload("whole"), "Admitted"), "the Workload itself is admitted")
    said = wait_for(
        lambda: condition(scene.workload("variant"), "QuotaReserved"), "the reason why the variant waits"
    )
    assert (said["status"], said["reason"]) == ("False", "Misconfigured")
    assert "is a variant of whole for concurrent admission, which is not served" in said["message"]


def test_a_policy_of_concurrent_admission_without_effect_is_named_by_its_queue(scene: Scene) -> None:
    policy = {"migration": {"mode": "RetainFirstAdmission"}}
    create_bad_queue(scene, quota(scene.create_flavor("bad")), concurrentAdmissionPolicy=policy)

    active = scene.wait_active(scene.scoped("bad"), reason="Ready")

    assert "spec.concurrentAdmissionPolicy has no effect" in active["message"]
