"""The key of a Workload and its pods: both sides compute the same one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api import keys
from api.jobs.pod_owner_key import has_known_pods, owner_key_of_pod, pod_owner_key
from api.objects.cluster import PodObject
from tests.builders import make_workload

GATE = {"schedulingGates": [{"name": keys.ADMISSION_GATE}]}


def pod(owner: tuple[str, str, str] | None = None, *, spec: Any = None, **metadata: Any) -> PodObject:
    """Return a pod; `owner` is (apiVersion, kind, uid) of its controller."""
    references = []
    if owner is not None:
        version, kind, uid = owner
        references = [{"apiVersion": version, "kind": kind, "name": "o", "uid": uid, "controller": True}]
    known = {"name": "p", "namespace": "team", "uid": "u-p", "creationTimestamp": "2026-01-01T00:00:00Z"}
    obj = {"metadata": {**known, "ownerReferences": references, **metadata}, "spec": spec or {}}
    return msgspec.json.decode(msgspec.json.encode(obj), type=PodObject)


HELD: Any = {"labels": {keys.MANAGED: "true"}, "finalizers": [keys.POD_FINALIZER]}
GROUPED: Any = {**HELD, "labels": {**HELD["labels"], keys.POD_GROUP_NAME: "sweep"}}
JOB = ("batch/v1", "Job", "u-job")


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(pod(JOB), "u-job", id="a Job's pod is the Job's"),
        pytest.param(
            pod(JOB, labels=HELD["labels"]), "u-job", id="also with the label that its template was given"
        ),
        pytest.param(pod(JOB, **HELD), "u-p", id="but a queued pod that names a Job is its own"),
        pytest.param(pod(**HELD), "u-p", id="a queued pod is its own"),
        pytest.param(pod(("apps/v1", "ReplicaSet", "u-r"), **HELD), "u-p", id="also one of a Deployment"),
        pytest.param(pod(**GROUPED), "team/sweep", id="a member is the group's"),
        pytest.param(pod(**GROUPED, spec=GATE), "", id="one at the gate runs nothing"),
        pytest.param(pod(), "", id="a pod that was never held has no key"),
    ],
)
def test_a_pod_belongs_to(obj: PodObject, want: str) -> None:
    assert owner_key_of_pod(obj) == want


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(make_workload("w", owner_kind="Job", owner_uid="u-job"), "u-job", id="of a Job"),
        pytest.param(make_workload("w", owner_kind="Pod", owner_uid="u-p"), "u-p", id="of a pod"),
        pytest.param(
            make_workload("sweep", annotations={keys.IS_GROUP_WORKLOAD: "true"}),
            "team/sweep",
            id="of a group",
        ),
        pytest.param(
            make_workload("w", owner_kind="RayJob", owner_uid="u-r"), "", id="of another controller's"
        ),
        pytest.param(make_workload("w"), "", id="without an owner"),
    ],
)
def test_the_owner_key_of_a_workload(workload: Any, want: str) -> None:
    assert pod_owner_key(workload) == want
    assert has_known_pods(workload) == bool(want)


def test_a_queued_pod_that_cannot_be_read_is_said_to_be_so() -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        owner_key_of_pod(pod(**{**HELD, "creationTimestamp": "soon"}))
