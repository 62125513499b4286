"""What the Workload of an owner counts of the Jobs that name it as their controller."""

from __future__ import annotations

import copy

import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.reconcile.job.context import Ancestor, JobSettings
from api import keys
from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.paths import replaced
from api.jobs.owners.ray import RAY_CLUSTER, RAY_SERVICE
from api.jobs.owners.row import OwnerKind
from api.kube.informer import ChangeType
from tests.admission.controller.cluster_state.test_cluster_state import of_job
from tests.admission.controller.known import Known, Object, made
from tests.owners import SAMPLES, UID

(JOB_SETS,) = (one for one in SAMPLES if one.row is JOB_SET)


def jobset(*, queue: str | None = "lq") -> Object:
    """Return a JobSet of two workers and a driver."""
    return JOB_SETS.object(labels={"kueue.x-k8s.io/queue-name": queue})


def worker(name: str = "j-workers-0", *, uid: str = UID, active: int = 0, **labels: str) -> Object:
    """Return a Job as the JobSet controller creates it, or one that names the JobSet as its controller."""
    spec = {"suspend": True, **JOB_SETS.spec["replicatedJobs"][1]["template"]["spec"]}
    reference = {"apiVersion": JOB_SET.api_version, "kind": "JobSet", "name": "j", "uid": uid}
    owners = [{**reference, "controller": True}]
    made_of = made("Job", name, "team", version="batch/v1", labels=labels, owners=owners, spec=spec)
    return {**made_of, "status": {"active": active}}


def of_jobset(*, is_admitted: bool) -> Object:
    """Return the Workload of the JobSet."""
    made_of = of_job("w", UID, is_admitted=is_admitted)
    made_of["metadata"]["ownerReferences"][0] |= {"apiVersion": JOB_SET.api_version, "kind": "JobSet"}
    return made_of


def with_owners(
    *objects: Object, manages_all: bool = False, kinds: tuple[OwnerKind, ...] = (JOB_SET,)
) -> Known:
    """Return a state that keeps JobSets, with these objects."""
    jobs = JobSettings(manages_without_queue_name=manages_all)
    return Known(*objects, settings=ClusterStateSettings(jobs=jobs, owner_kinds=kinds))


def ancestor_of(known: Known, name: str = "j-workers-0") -> Ancestor:
    """Return the ancestor of a Job."""
    child = known.cluster_state.jobs.get(("team", name))
    assert child is not None
    return known.cluster_state.job_context.ancestor(child.value)


@pytest.mark.parametrize(
    ("objects", "manages_all", "want"),
    [
        pytest.param([jobset(), worker()], False, Ancestor.COUNTED_WAITING, id="its JobSet waits"),
        pytest.param(
            [jobset(), of_jobset(is_admitted=True), worker()],
            False,
            Ancestor.COUNTED_ADMITTED,
            id="its JobSet is admitted",
        ),
        pytest.param([jobset(queue=None), worker()], False, Ancestor.NONE, id="its JobSet is in no queue"),
        pytest.param(
            [jobset(queue=None), worker()], True, Ancestor.COUNTED_WAITING, id="unless all are queued"
        ),
        pytest.param([worker()], False, Ancestor.COUNTED_WAITING, id="its JobSet is not known yet"),
        pytest.param(
            [jobset(), of_jobset(is_admitted=True), worker("j-workers-0", uid="other")],
            False,
            Ancestor.COUNTED_WAITING,
            id="it names a JobSet of another uid, which may come",
        ),
    ],
)
def test_a_job_that_its_jobset_counts(objects: list[Object], manages_all: bool, want: Ancestor) -> None:
    assert ancestor_of(with_owners(*objects, manages_all=manages_all)) is want


@pytest.mark.parametrize(
    ("default", "want"),
    [
        pytest.param("2", Ancestor.COUNTED_ADMITTED, id="the default request of the namespace"),
        pytest.param("1", Ancestor.ADMITTED, id="more than the default request"),
    ],
)
def test_requests_from_a_limit_range_are_those_of_the_template(default: str, want: Ancestor) -> None:
    """A template without requests of CPU, and a Job whose pods have two, as the API server fills in."""
    jobset_, child = (copy.deepcopy(one) for one in (jobset(), worker()))
    theirs = child["spec"]["template"]["spec"]["containers"][0]
    ours = jobset_["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]
    theirs["resources"], ours["resources"] = {"requests": {"cpu": "2"}}, {}
    item = {"type": "Container", "defaultRequest": {"cpu": default}}
    limits = made("LimitRange", "limits", "team", version="v1", spec={"limits": [item]})

    assert ancestor_of(with_owners(limits, jobset_, of_jobset(is_admitted=True), child)) is want


def test_a_job_that_only_names_a_jobset_is_not_counted_by_it() -> None:
    known = with_owners(jobset(), of_jobset(is_admitted=True), worker("j-workers-9"))

    assert ancestor_of(known, "j-workers-9") is Ancestor.ADMITTED


def test_a_jobset_that_is_gone_counts_nothing() -> None:
    known = with_owners(jobset(), worker())
    known.tell(jobset(), ChangeType.DELETED)

    assert ancestor_of(known) is Ancestor.NONE


def test_a_kind_that_is_not_configured_counts_nothing() -> None:
    assert ancestor_of(with_owners(worker(), kinds=())) is Ancestor.NONE


def marked(known: Known) -> set[str]:
    """Take all marks of Jobs and other owners; return them as KIND/NAME."""
    marks = known.cluster_state.marks
    return {f"{one.kind}/{one.name}" for one in iter(marks.take_job, None) if one is not None}


def test_what_was_seen_before_its_owner_is_looked_at_again() -> None:
    known = with_owners(worker())
    marked(known)

    known.tell(jobset())

    assert marked(known) == {"JobSet/j", "Job/j-workers-0"}


def test_an_owner_that_stops_is_as_active_as_its_jobs_and_looked_at_when_they_change() -> None:
    known = with_owners(jobset(), worker(active=3))
    (owner,) = known.cluster_state.queued.owners["JobSet"]
    marked(known)

    assert known.cluster_state.queued.as_active(owner.value).active == 3
    known.tell(worker(active=0))
    assert marked(known) == {"JobSet/j", "Job/j-workers-0"}
    assert known.cluster_state.queued.as_active(owner.value).active == 0


def ray_cluster(state: str, *, suspend: bool = True) -> Object:
    """Return the RayCluster of the RayService j in this state."""
    (sample,) = (one for one in SAMPLES if one.row is RAY_CLUSTER)
    reference = {"apiVersion": RAY_SERVICE.api_version, "kind": "RayService", "name": "j", "uid": UID}
    owned = {"name": "j-x7k2p", "uid": "cluster", "ownerReferences": [{**reference, "controller": True}]}
    cluster = sample.object(suspend=suspend, labels={"kueue.x-k8s.io/queue-name": None}, **owned)
    return {**cluster, "status": {"state": state}}


@pytest.mark.parametrize(
    ("clusters", "want"),
    [
        pytest.param([ray_cluster("suspended")], 0, id="its cluster has stopped"),
        pytest.param([ray_cluster("ready")], 1, id="its cluster has pods"),
        pytest.param([ray_cluster("", suspend=False)], 1, id="its cluster has yet to be suspended"),
        pytest.param([], 1, id="of its cluster nothing is known"),
    ],
)
def test_a_suspended_rayservice_that_says_it_is_ready_runs_only_as_long_as_its_clusters(
    clusters: list[Object], want: int
) -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_SERVICE)
    service = {**sample.object(suspend=True), "status": sample.ready}
    known = with_owners(service, *clusters, kinds=(RAY_SERVICE, RAY_CLUSTER))

    (owner,) = known.cluster_state.queued.owners["RayService"]
    assert known.cluster_state.queued.as_active(owner.value).active == want


def test_an_elastic_rayservice_is_looked_at_when_its_cluster_changes_and_reads_its_workers() -> None:
    (sample,) = (one for one in SAMPLES if one.row is RAY_SERVICE)
    service = sample.object(suspend=False, annotations={keys.ELASTIC_JOB: "true"})
    service["spec"]["rayClusterConfig"]["enableInTreeAutoscaling"] = True
    service["status"] = {"activeServiceStatus": {"rayClusterName": "j-x7k2p"}}
    cluster = ray_cluster("ready", suspend=False)
    known = with_owners(service, cluster, kinds=(RAY_SERVICE, RAY_CLUSTER))
    marked(known)

    known.tell(dict(replaced(cluster, ("spec", "workerGroupSpecs", 0, "replicas"), 7)))

    assert "RayService/j" in marked(known)
    (seen,) = known.cluster_state.queued.owners["RayService"]
    body = known.cluster_state.contexts.ancestors.expanded(seen.value, seen.raw)
    assert body is not None
    assert body["spec"]["rayClusterConfig"]["workerGroupSpecs"][0]["replicas"] == 7
