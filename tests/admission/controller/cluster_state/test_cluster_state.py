"""What the controller knows: what cannot be read is named, and forgotten with its object."""

from __future__ import annotations

import msgspec
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.reconcile.job.context import Ancestor, JobSettings
from api.kube.informer import ChangeType
from api.workload import Workload, WorkloadKey
from tests.admission.controller.known import (
    Known,
    Object,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
)

FLAVOR = made("ResourceFlavor", "f")


def workload(name: str, *, pod_sets: bool = True) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"queueName": "lq", "podSets": [pod_set] if pod_sets else []}
    return made("Workload", name, "team", spec=spec)


def problem(known: Known, name: str) -> str | None:
    """Return why the Workload of this name could not be tried."""
    asked = Workload(key=WorkloadKey("team", name), uid=name, created_at=0.0, pod_sets=(), queue_name="lq")
    found = known.cluster_state.engine.workloads.queue_problem(asked)
    return found[1] if found is not None else None


def make_known() -> Known:
    return Known(
        namespace_object("team"),
        FLAVOR,
        cluster_queue_object("cq", "4"),
        local_queue_object("lq", "team", "cq"),
    )


def test_a_workload_that_was_never_readable_is_forgotten_with_its_object() -> None:
    known = make_known()
    known.tell(workload("w", pod_sets=False))
    assert "podSets" in (problem(known, "w") or "")

    known.tell(workload("w", pod_sets=False), ChangeType.DELETED)

    assert problem(known, "w") is None


def test_a_workload_that_could_not_be_decoded_is_forgotten_with_its_object() -> None:
    known = make_known()
    known.cluster_state.take_unreadable(Workload, "team", "w", "spec.queueName is no text")
    assert problem(known, "w") == "spec.queueName is no text"

    known.cluster_state.drop_unreadable(Workload, "team", "w")

    assert problem(known, "w") is None


def test_the_end_of_an_unreadable_one_leaves_another_of_its_name_alone() -> None:
    known = make_known()
    known.tell(workload("w"))

    known.cluster_state.drop_unreadable(Workload, "team", "w")

    assert known.cluster_state.engine.workloads.workload(WorkloadKey("team", "w")) is not None


@pytest.mark.parametrize("kind", ["Workload", "LocalQueue", "ClusterQueue", "Topology", "Node", "Pod", "Job"])
@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"metadata": {"name": "\x80"}}', b'{"metadata":' + b"[" * 5_000]
)
def test_an_object_whose_name_cannot_be_read_changes_nothing(kind: str, raw: bytes) -> None:
    known = make_known()

    known.tell_bytes(kind, raw)

    known.tell(workload("w"))
    assert problem(known, "w") is None
    known.cluster_state.engine.validate()


def test_a_fault_in_a_field_that_is_not_used_is_noted() -> None:
    known = make_known()

    known.tell_bytes("ResourceFlavor", b'{"metadata": {"name": "f"}, "junk": "\x80"}')

    said = known.cluster_state.inspection.sentence("ResourceFlavor", "", "f")
    assert said is not None
    assert said.startswith("it cannot be read: 'utf-8' codec can't decode")


@pytest.mark.parametrize(
    ("listed", "version", "is_known"),
    [
        pytest.param([], "9", False, id="one that a later list lacks is gone"),
        pytest.param(["w"], "9", True, id="one that it shows stays"),
        pytest.param([], "6", True, id="one that is newer than the list stays"),
    ],
)
def test_a_workload_that_no_event_has_shown(listed: list[str], version: str, is_known: bool) -> None:
    known = make_known()
    # As a leader's own list shows it, or the answer to a write.
    shown = workload("w")
    shown["metadata"]["resourceVersion"] = "7"
    assert known.cluster_state.see_raw("Workload", msgspec.json.encode(shown))

    known.cluster_state.drop_unlisted_workloads(frozenset(("team", name) for name in listed), version)

    found = known.cluster_state.engine.workloads.workload(WorkloadKey("team", "w"))
    assert (found is not None) == is_known


def job(name: str, *, owner: str = "", queue: str = "") -> Object:
    """Return a Job of this name and uid, below another one where `owner` names it."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    spec = {"suspend": True, "template": {"spec": {"containers": []}}}
    owners = [reference] if owner else []
    return made("Job", name, "team", version="batch/v1", labels=labels, owners=owners, spec=spec)


def of_job(name: str, owner: str, *, is_admitted: bool) -> Object:
    """Return the Workload of a Job, admitted or waiting."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": owner, "controller": True}
    made_of = workload(name)
    made_of["metadata"]["ownerReferences"] = [reference]
    if is_admitted:
        types = ("QuotaReserved", "Admitted")
        made_of["status"] = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]},
            "conditions": [{"type": one, "status": "True", "reason": one, "message": ""} for one in types],
        }
    return made_of


@pytest.mark.parametrize(
    ("objects", "manages_all", "want"),
    [
        pytest.param([job("top")], False, Ancestor.NONE, id="a Job in no queue is none"),
        pytest.param([job("top")], True, Ancestor.WAITING, id="unless all Jobs are queued"),
        pytest.param(
            [job("top", queue="lq"), of_job("w", "top", is_admitted=True)],
            False,
            Ancestor.ADMITTED,
            id="one in a queue is, and its Workload tells",
        ),
        pytest.param(
            [
                job("above", queue="lq"),
                job("top", owner="above", queue="lq"),
                of_job("w", "top", is_admitted=True),
            ],
            False,
            Ancestor.WAITING,
            id="of two in queues the topmost counts",
        ),
        pytest.param(
            [job("top", owner="child", queue="lq")], False, Ancestor.TOO_DEEP, id="a circle has no top"
        ),
    ],
)
def test_the_topmost_job_in_a_queue_is_the_ancestor(
    objects: list[Object], manages_all: bool, want: Ancestor
) -> None:
    settings = ClusterStateSettings(jobs=JobSettings(manages_without_queue_name=manages_all))
    known = Known(*objects, job("child", owner="top"), settings=settings)
    child = known.cluster_state.jobs.get(("team", "child"))
    assert child is not None

    assert known.cluster_state.job_context.ancestor(child.value) is want
