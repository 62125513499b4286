"""Immutable fields of Jobs, serving objects and Workloads: each rule once violated, and once satisfied."""

from __future__ import annotations

from typing import Any

import pytest

from api import keys
from api.jobs.owners.ray import RAY_CLUSTER
from api.jobs.owners.rules import validate_owner_update
from api.validation import validate_update
from api.validation.names import SUBDOMAIN_RULE
from tests.owners import SAMPLES

Object = dict[str, Any]


def make_job(
    labels: Object | None = None,
    annotations: Object | None = None,
    *,
    suspend: bool = False,
    parallelism: int = 4,
) -> Object:
    """Return a Job, running unless it is said to be suspended."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"suspend": suspend, "parallelism": parallelism, "template": {}},
    }


def make_serving(
    kind: str = "Deployment", labels: Object | None = None, *, ready: int = 0, size: int | None = None
) -> Object:
    """Return an object whose pods serve, of which so many are ready."""
    version = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    spec = {} if size is None else {"leaderWorkerTemplate": {"size": size}}
    metadata = {"name": "chat", "labels": labels or {}}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        "status": {"readyReplicas": ready},
    }


def with_annotation(obj: Object, key: str, value: str) -> Object:
    """Return the object with another annotation."""
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), key: value}},
    }


def make_workload(*, count: int = 2, elastic: bool = False, gates: str = "", **status: Any) -> Object:
    """Return a Workload of one pod set with this status."""
    annotations = {keys.ADMISSION_GATED_BY: gates} if gates else {}
    if elastic:
        annotations[keys.ELASTIC_JOB] = "true"
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    return {
        "apiVersion": keys.KUEUE_VERSION,
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "team", "annotations": annotations},
        "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": count, "template": template}]},
        "status": status,
    }


def make_admission(queue: str = "cq", **assignment: Any) -> Object:
    """Return an admission of two pods."""
    usage = {"flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": 2}
    return {"clusterQueue": queue, "podSetAssignments": [{"name": "main", **usage, **assignment}]}


RESERVED: Object = {
    "conditions": [
        {
            "type": "QuotaReserved",
            "status": "True",
            "reason": "QuotaReserved",
            "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
    "admission": make_admission(),
}


def make_check(image: str, state: str = "Ready") -> Object:
    """Return the state of an admission check that puts a label on the pods."""
    updates = [{"name": "main", "labels": {"image": image}}]
    at = "2026-01-01T00:00:00Z"
    return {"name": "c", "state": state, "message": "", "lastTransitionTime": at, "podSetUpdates": updates}


QUEUE, CLASS, LIMIT = keys.QUEUE_NAME, keys.PRIORITY_CLASS, keys.MAX_EXEC_TIME_SECONDS
FROZEN = "cannot change while the Job is not suspended"
REPLACES = keys.SLICE_REPLACEMENT_FOR
LEAST, ELASTIC, GATES = keys.JOB_MIN_PARALLELISM, keys.ELASTIC_JOB, keys.ADMISSION_GATED_BY


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param(
            make_job({QUEUE: "a"}),
            make_job({QUEUE: "b"}),
            f"metadata.labels[{QUEUE}] is \"b\": cannot change while the Job is not suspended; it was 'a'",
            id="another queue for a running Job",
        ),
        pytest.param(
            make_job({QUEUE: "a"}, suspend=True),
            make_job({QUEUE: "b"}),
            f"metadata.labels[{QUEUE}] is \"b\": cannot change while the Job is not suspended; it was 'a'",
            id="another queue for a Job as it starts",
        ),
        pytest.param(
            make_job({QUEUE: "a"}),
            make_job(),
            f"metadata.labels[{QUEUE}] is not set: cannot change while the Job is not suspended; it was 'a'",
            id="a running Job out of its queue",
        ),
        pytest.param(
            make_job(annotations={keys.PREBUILT_WORKLOAD_NAME: "a"}),
            make_job(annotations={keys.PREBUILT_WORKLOAD_NAME: "b"}),
            f'metadata.annotations[{keys.PREBUILT_WORKLOAD_NAME}] is "b": cannot change while the Job is not'
            " suspended; it was 'a'",
            id="another Workload for a running Job",
        ),
        pytest.param(
            make_serving(labels={QUEUE: "a"}),
            make_serving(),
            f"metadata.labels[{QUEUE}] is not set: cannot be removed; it was 'a'",
            id="a Deployment out of its queue",
        ),
        pytest.param(
            make_serving("StatefulSet", {QUEUE: "a"}, ready=1),
            make_serving("StatefulSet", {QUEUE: "b"}, ready=1),
            f"metadata.labels[{QUEUE}] is \"b\": cannot change while a replica is ready; it was 'a'",
            id="another queue for a StatefulSet with a ready pod",
        ),
        pytest.param(
            make_serving(ready=1),
            make_serving(labels={QUEUE: "a"}, ready=1),
            f"metadata.labels[{QUEUE}] is \"a\": cannot change while a replica is ready; it was ''",
            id="a queue for a Deployment with a ready pod",
        ),
        pytest.param(
            make_serving(labels={QUEUE: "a"}, ready=1),
            make_serving(labels={QUEUE: "a", CLASS: "high"}, ready=1),
            f'metadata.labels[{CLASS}] is "high": cannot be added while a replica is ready',
            id="a priority class for a Deployment with a ready pod",
        ),
        pytest.param(
            make_serving("LeaderWorkerSet", {QUEUE: "a"}, size=2),
            make_serving("LeaderWorkerSet", {QUEUE: "a"}, size=4),
            "spec.leaderWorkerTemplate.size is 4: cannot change in a queue: each group was admitted as 2"
            " pods",
            id="larger groups of a LeaderWorkerSet in a queue",
        ),
        pytest.param(
            make_serving("LeaderWorkerSet", {QUEUE: "a"}),
            make_serving("LeaderWorkerSet", {QUEUE: "No_Name"}),
            f'metadata.labels[{QUEUE}] is "No_Name": {SUBDOMAIN_RULE}',
            id="an impossible queue for a LeaderWorkerSet",
        ),
        pytest.param(
            make_job({LIMIT: "60"}, suspend=True),
            make_job({LIMIT: "90"}),
            f'metadata.labels[{LIMIT}] is "90": can change only while the Job is suspended before and after; '
            "it was '60'",
            id="more time for a Job as it starts",
        ),
        pytest.param(
            make_job({CLASS: "high"}, suspend=True),
            make_job(suspend=True),
            f"metadata.labels[{CLASS}] is not set: cannot be removed; it was 'high'",
            id="a suspended Job without its priority",
        ),
        pytest.param(
            make_job(),
            make_job({CLASS: "high"}),
            f'metadata.labels[{CLASS}] is "high": cannot be added while the Job is not suspended',
            id="a priority for a running Job",
        ),
        pytest.param(
            make_job(suspend=True),
            make_job(annotations={ELASTIC: "true"}, suspend=True),
            f'metadata.annotations[{ELASTIC}] is "true": cannot change',
            id="a Job made elastic",
        ),
        pytest.param(
            make_job(annotations={LEAST: "2"}),
            make_job(annotations={LEAST: "2"}, parallelism=3),
            "spec.parallelism is 3: cannot change while a Job that may run in part is not suspended;"
            " it was 4",
            id="fewer pods of a running Job that may run in part",
        ),
        pytest.param(
            make_job(annotations={LEAST: "2"}),
            make_job(annotations={LEAST: "3"}),
            f"metadata.annotations[{LEAST}] is \"3\": {FROZEN}; it was '2'",
            id="another minimum of a running Job",
        ),
        pytest.param(
            make_job(annotations={GATES: "x.io/a"}, suspend=True),
            make_job(annotations={GATES: "x.io/a,x.io/b"}, suspend=True),
            f'metadata.annotations[{GATES}] is "x.io/b": gates can be removed but not added',
            id="another gate",
        ),
        pytest.param(
            make_workload(**RESERVED),
            make_workload(count=3, **RESERVED),
            'spec.podSets is ["main"]: cannot change while quota is reserved',
            id="more pods for quota that is held",
        ),
        pytest.param(
            make_workload(elastic=True, **RESERVED),
            make_workload(count=3, elastic=True, **RESERVED),
            'spec.podSets is ["main"]: cannot change while quota is reserved',
            id="more pods of an elastic Workload",
        ),
        pytest.param(
            make_workload(**RESERVED, reclaimablePods=[{"name": "main", "count": 2}]),
            make_workload(**RESERVED, reclaimablePods=[{"name": "main", "count": 1}]),
            "status.reclaimablePods[main].count is 1: cannot fall below 2 while quota is reserved",
            id="pods that are taken back",
        ),
        pytest.param(
            make_workload(**RESERVED),
            make_workload(**{**RESERVED, "admission": make_admission("other")}),
            'status.admission is "other": cannot change while quota is reserved',
            id="another queue's quota",
        ),
        pytest.param(
            make_workload(**RESERVED, admissionChecks=[make_check("a")]),
            make_workload(**RESERVED, admissionChecks=[make_check("b")]),
            'status.admissionChecks[c].podSetUpdates is [{"name": "main", "labels": {"image": "b"}}]: cannot'
            " change while the check is Ready",
            id="other updates by a check that is ready",
        ),
        pytest.param(
            make_workload(nominatedClusterNames=["a", "b"]),
            make_workload(clusterName="c"),
            'status.clusterName is "c": must be one of the nominated clusters: a, b',
            id="a cluster that was not nominated",
        ),
        pytest.param(
            make_workload(nominatedClusterNames=5),
            make_workload(clusterName="c"),
            'status.clusterName is "c": must be one of the nominated clusters: there are none',
            id="a cluster where the nominated ones are no list",
        ),
        pytest.param(
            make_workload(gates="x.io/a"),
            make_workload(gates="x.io/b"),
            f'metadata.annotations[{GATES}] is "x.io/b": gates can be removed but not added',
            id="another gate of a Workload",
        ),
    ],
)
def test_what_may_not_change_is_said(old: Object, new: Object, want: str) -> None:
    assert list(map(str, validate_update(old, new))) == [want]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            make_job({QUEUE: "a", CLASS: "low", LIMIT: "60"}, suspend=True),
            make_job({QUEUE: "b", CLASS: "high", LIMIT: "90"}, suspend=True),
            id="all of a suspended Job",
        ),
        pytest.param(
            make_job(annotations={LEAST: "2"}, suspend=True),
            make_job(annotations={LEAST: "2"}, parallelism=3),
            id="fewer pods as a Job starts in part",
        ),
        pytest.param(make_job(parallelism=4), make_job(parallelism=8), id="more pods of a whole Job"),
        pytest.param(
            make_job({QUEUE: "a"}), make_job(annotations={QUEUE: "a"}), id="a queue in the older spelling"
        ),
        pytest.param(
            make_job(annotations={GATES: "x.io/a,x.io/b"}),
            make_job(annotations={GATES: "x.io/b"}),
            id="a gate",
        ),
        pytest.param(make_workload(), make_workload(count=3), id="pods of a Workload that waits"),
        pytest.param(
            make_workload(elastic=True, **RESERVED),
            make_workload(count=1, elastic=True, **{**RESERVED, "admission": make_admission()}),
            id="fewer pods of an elastic Workload",
        ),
        pytest.param(
            with_annotation(make_workload(**RESERVED), REPLACES, "team/first"),
            with_annotation(make_workload(count=1, **RESERVED), REPLACES, "team/first"),
            id="fewer pods of a Workload that replaces another",
        ),
        pytest.param(
            make_workload(**RESERVED),
            make_workload(**{**RESERVED, "admission": make_admission(delayedTopologyRequest="Pending")}),
            id="an admission that is completed",
        ),
        pytest.param(
            make_workload(**{**RESERVED, "admission": make_admission(flavors={}, resourceUsage={})}),
            make_workload(
                **{
                    **RESERVED,
                    "admission": {
                        "clusterQueue": "cq",
                        "podSetAssignments": [{"name": "main", "count": 2}],
                    },
                }
            ),
            id="empty maps that a client written in Go leaves out",
        ),
        pytest.param(make_workload(**RESERVED), make_workload(), id="quota that is given back"),
        pytest.param(
            make_workload(**RESERVED, admissionChecks=[make_check("a", "Pending")]),
            make_workload(**RESERVED, admissionChecks=[make_check("b")]),
            id="updates by a check that becomes ready",
        ),
        pytest.param(
            make_workload(nominatedClusterNames=["a", "b"]),
            make_workload(clusterName="b"),
            id="a nominated cluster",
        ),
        pytest.param(
            make_serving(labels={QUEUE: "a"}),
            make_serving(labels={QUEUE: "b", CLASS: "high"}),
            id="another queue for a Deployment without a ready pod",
        ),
        pytest.param(
            make_serving("LeaderWorkerSet", size=2),
            make_serving("LeaderWorkerSet", size=4),
            id="larger groups of a LeaderWorkerSet in no queue",
        ),
        pytest.param(
            make_job(annotations={LEAST: "4"}, suspend=True, parallelism=6),
            make_job(annotations={LEAST: "4"}, parallelism=3),
            id="a start with fewer pods than the minimum, of which some have ended before",
        ),
        pytest.param(
            make_workload(),
            with_annotation(make_workload(clusterName="b"), keys.SLICE_REPLACEMENT_FOR, "ns/old"),
            id="the cluster of the slice that this one replaces",
        ),
        pytest.param(
            make_workload(elastic=True, **RESERVED, reclaimablePods=[{"name": "main", "count": 1}]),
            make_workload(elastic=True, **RESERVED, reclaimablePods=[]),
            id="fewer finished pods of an elastic Workload",
        ),
    ],
)
def test_everything_else_may(old: Object, new: Object) -> None:
    assert list(map(str, validate_update(old, new))) == []


def _gated(job: Object, *, gates: bool) -> Object:
    template = {"spec": {"schedulingGates": [{"name": keys.ELASTIC_GATE}] if gates else None}}
    return {**job, "spec": {**job["spec"], "template": template}}


@pytest.mark.parametrize(
    ("was_suspended", "is_suspended", "is_refused"),
    [(True, False, True), (False, False, True), (False, True, False), (True, True, False)],
)
def test_the_gate_of_an_elastic_job_stays_while_it_is_not_suspended(
    was_suspended: bool, is_suspended: bool, is_refused: bool
) -> None:
    """A stop restores the template as its author wrote it."""
    marks = {ELASTIC: "true"}
    old = _gated(make_job(annotations=marks, suspend=was_suspended), gates=True)
    new = _gated(make_job(annotations=marks, suspend=is_suspended), gates=False)

    found = [error.path for error in validate_update(old, new)]

    assert found == (["spec.template.spec.schedulingGates"] if is_refused else [])


def test_the_gates_of_an_elastic_raycluster_stay_while_it_is_not_suspended() -> None:
    sample = next(one for one in SAMPLES if one.row is RAY_CLUSTER)
    new = sample.object(annotations={ELASTIC: "true"})
    new["spec"]["suspend"] = False
    old = sample.edited(new, lambda one: one["spec"].update(schedulingGates=[{"name": keys.ELASTIC_GATE}]), 1)

    (error,) = validate_owner_update(RAY_CLUSTER, old, new)

    assert error.path == "spec.workerGroupSpecs[0].template.spec.schedulingGates"
    assert list(validate_owner_update(RAY_CLUSTER, new, old)) == []


def test_an_earlier_fault_does_not_block_a_change() -> None:
    broken = make_job({QUEUE: "My Queue"}, suspend=True)

    assert validate_update(broken, {**broken, "status": {"active": 1}}) == ()


def test_a_new_fault_beside_an_old_one_is_said() -> None:
    old = make_job({QUEUE: "My Queue"}, suspend=True)
    new = make_job({QUEUE: "My Queue", LIMIT: "long"}, suspend=True)

    assert [error.path for error in validate_update(old, new)] == [f"metadata.labels[{LIMIT}]"]


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"reclaimablePods": [{"name": [], "count": "x"}]}, id="pods that can be reclaimed"),
        pytest.param({"admission": ["a"]}, id="the admission"),
        pytest.param({"admissionChecks": [{"name": {}, "state": "Ready"}]}, id="a check"),
    ],
)
def test_a_change_to_another_type_gets_the_fault_of_the_schema_and_no_error(status: Object) -> None:
    old, new = make_workload(**RESERVED), make_workload(**{**RESERVED, **status})

    assert validate_update(old, new) != ()
    assert validate_update(new, old) == ()
