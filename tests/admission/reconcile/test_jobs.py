"""What a Job and its Workloads ask for, look by look: each row is one situation."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Action, Event, Write
from admission.reconcile.job.context import Ancestor, JobContext, JobSettings, PriorityClass
from admission.reconcile.job.reconcile import reconcile_job
from api.jobs.job_workload import CopiedKeys
from tests.admission.world import (
    START,
    UID,
    Object,
    World,
    context,
    encode,
    job_object,
    purposes,
    read_job,
    read_workload,
)

Change = Callable[[Object], None]


def born(job: Object | None = None) -> Object:
    """Return the Workload that Berth creates for a Job."""
    world = World()
    world.add(job or job_object())
    world.settle()
    return world.objects["Workload", world.only_workload()]


def held(*changes: Change, job: Object | None = None) -> Object:
    """Return the Workload of a Job, changed."""
    workload = copy.deepcopy(born(job))
    for change in changes:
        change(workload)
    return workload


def said(type_: str, reason: str = "r", message: str = "m", status: str = "True") -> Change:
    """Return the change that writes a condition."""
    condition = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2027-01-15T07:00:00Z",
    }

    def change(workload: Object) -> None:
        workload.setdefault("status", {}).setdefault("conditions", []).append(condition)

    return change


def reserved(workload: Object) -> None:
    """Give a Workload quota for two pods."""
    assignment = {"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}}
    workload.setdefault("status", {})["admission"] = {
        "clusterQueue": "cq",
        "podSetAssignments": [assignment],
    }
    said("QuotaReserved", "QuotaReserved")(workload)


def admitted(workload: Object) -> None:
    """Admit a Workload."""
    reserved(workload)
    said("Admitted", "Admitted")(workload)


def renamed(name: str) -> Change:
    """Return the change that makes it another object."""
    return lambda workload: workload["metadata"].update(name=name, uid=name)


def deleting(workload: Object) -> None:
    """Ask for a Workload's deletion."""
    workload["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"


def with_status(job: Object, **status: Any) -> Object:
    """Return a Job with this status."""
    return {**job, "status": status}


def running(**status: Any) -> Object:
    """Return an unsuspended Job with two pods."""
    started = {"active": 2, "ready": 2, "startTime": "2027-01-15T07:00:00Z", **status}
    return with_status(job_object(suspend=False), **started)


def ended(type_: str) -> Object:
    """Return a finished Job."""
    return running(active=0, conditions=[{"type": type_, "status": "True", "message": "why"}])


def look(job: Object, *workloads: Object, **fields: Any) -> tuple[Action, ...]:
    """Return what they ask for."""
    pairs = [read_workload(workload) for workload in workloads]
    return reconcile_job(read_job(job), encode(job), pairs, context(**fields), now=START)


STOPPING = {"kueue.x-k8s.io/stopping": "true"}
OTHER_QUEUE = {"kueue.x-k8s.io/queue-name": "other"}
UNQUEUED = {"kueue.x-k8s.io/queue-name": None}
PREBUILT = {"kueue.x-k8s.io/prebuilt-workload-name": "built"}


@pytest.mark.parametrize(
    ("job", "workloads", "want"),
    [
        pytest.param(job_object(labels=UNQUEUED), [], [], id="a Job without a queue is not touched"),
        pytest.param(job_object(), [], ["create-workload"], id="a queued Job gets a Workload"),
        pytest.param(
            job_object(suspend=False),
            [],
            ["stop-job", "create-workload"],
            id="one created running is stopped too",
        ),
        pytest.param(job_object(), [held()], [], id="a waiting Job needs nothing"),
        pytest.param(job_object(), [held(reserved)], [], id="quota alone does not start it"),
        pytest.param(job_object(), [held(admitted)], ["start-job"], id="an admitted one is started"),
        pytest.param(
            job_object(annotations=STOPPING),
            [held(admitted)],
            ["restore-job"],
            id="a stop that was begun is ended before the next start",
        ),
        pytest.param(
            with_status(job_object(), startTime="2027-01-15T07:00:00Z"),
            [held(admitted)],
            ["clear-start-time"],
            id="a start time is cleared before the template changes",
        ),
        pytest.param(
            with_status(job_object(), startTime="2027-01-15T07:00:00Z", active=1),
            [held(admitted)],
            [],
            id="but not before the Job controller says that no pod is active",
        ),
        pytest.param(
            with_status(job_object(), active=1), [held(admitted)], [], id="no start while old pods run"
        ),
        pytest.param(running(), [held(admitted, said("PodsReady"))], [], id="a running Job needs nothing"),
        pytest.param(running(), [held()], ["stop-job"], id="one that runs unadmitted is stopped"),
        pytest.param(
            running(), [held(admitted, said("Evicted"))], ["stop-job"], id="an eviction stops the Job first"
        ),
        pytest.param(
            with_status(job_object(annotations=STOPPING), active=1),
            [held(admitted, said("Evicted"))],
            [],
            id="and waits for its pods",
        ),
        pytest.param(
            job_object(annotations=STOPPING),
            [held(admitted, said("Evicted"))],
            ["restore-job"],
            id="then restores the template",
        ),
        pytest.param(
            job_object(), [held(admitted, said("Evicted"))], ["release"], id="and releases the quota last"
        ),
        pytest.param(job_object(), [held(said("Evicted"))], [], id="after which it waits"),
        pytest.param(ended("Complete"), [held(admitted)], ["finish"], id="a finished Job ends its Workload"),
        pytest.param(
            ended("Failed"),
            [held(admitted, said("Finished"))],
            ["remove-finalizer"],
            id="an ended Workload is let go",
        ),
        pytest.param(ended("Complete"), [], [], id="a finished Job gets no new Workload"),
        pytest.param(
            running(), [held(admitted, said("Finished"))], ["stop-job"], id="no Job runs on an ended Workload"
        ),
        pytest.param(
            job_object(),
            [held(said("Finished"))],
            ["remove-finalizer"],
            id="an ended Workload of a stopped Job is let go",
        ),
        pytest.param(
            job_object(), [held(), held(renamed("b"))], ["delete-workload"], id="of two Workloads one goes"
        ),
        pytest.param(
            job_object(parallelism=1), [held()], ["update-workload"], id="a waiting Workload follows its Job"
        ),
        pytest.param(
            job_object(parallelism=1),
            [held(reserved)],
            ["delete-workload"],
            id="one that holds quota for another shape goes",
        ),
        pytest.param(
            with_status(job_object(parallelism=1), active=1),
            [held(admitted)],
            [],
            id="but not while pods still run",
        ),
        pytest.param(
            job_object(),
            [held(deleting)],
            ["remove-finalizer"],
            id="a deleted Workload of a stopped Job is let go",
        ),
        pytest.param(
            running(),
            [held(admitted, deleting)],
            ["stop-job"],
            id="under a running Job it waits for the stop",
        ),
        pytest.param(
            job_object(labels=UNQUEUED),
            [held()],
            ["delete-workload"],
            id="a Job that left the queue while waiting is taken out",
        ),
        pytest.param(
            {**job_object(), "metadata": {**job_object()["metadata"], "deletionTimestamp": "x"}},
            [],
            [],
            id="a Job that is being deleted gets nothing new",
        ),
        pytest.param(job_object(labels=PREBUILT), [], [], id="a prebuilt Workload is waited for"),
        pytest.param(
            job_object(labels=PREBUILT, suspend=False), [], ["stop-job"], id="its Job does not run meanwhile"
        ),
    ],
)
def test_a_look_asks_for(job: Object, workloads: list[Object], want: list[str]) -> None:
    assert purposes(look(job, *workloads)) == want


@pytest.mark.parametrize(
    ("fields", "job", "want"),
    [
        pytest.param(
            {"settings": JobSettings(manages_without_queue_name=True)},
            job_object(labels=UNQUEUED, suspend=False),
            ["stop-job", "create-workload"],
            id="all Jobs may be managed",
        ),
        pytest.param(
            {"is_namespace_managed": lambda _: False}, job_object(), [], id="not in namespaces left out"
        ),
        pytest.param(
            {"ancestor": lambda _: Ancestor.WAITING},
            job_object(labels=UNQUEUED, suspend=False),
            ["stop-job"],
            id="a child in no queue waits for its ancestor",
        ),
        pytest.param(
            {"ancestor": lambda _: Ancestor.ADMITTED},
            job_object(labels=UNQUEUED, suspend=False),
            [],
            id="and runs with it, without a Workload",
        ),
        pytest.param(
            {"ancestor": lambda _: Ancestor.TOO_DEEP},
            job_object(labels=UNQUEUED),
            ["JobNestingTooDeep"],
            id="a chain without end is reported",
        ),
        pytest.param(
            {"ancestor": lambda _: Ancestor.ADMITTED},
            job_object(suspend=False),
            ["stop-job", "create-workload"],
            id="a child in a queue is queued itself, because no Job's Workload counts it",
        ),
        pytest.param(
            {
                "ancestor": lambda _: Ancestor.ADMITTED,
                "settings": JobSettings(manages_without_queue_name=True),
            },
            job_object(labels=UNQUEUED, suspend=False),
            ["stop-job", "create-workload"],
            id="and any child, where all Jobs are managed",
        ),
        pytest.param(
            {
                "ancestor": lambda _: Ancestor.WAITING,
                "settings": JobSettings(manages_without_queue_name=True),
            },
            job_object(labels=UNQUEUED, suspend=False),
            ["stop-job"],
            id="which gets no Workload of its own before its ancestor is admitted",
        ),
        pytest.param(
            {
                "ancestor": lambda _: Ancestor.TOO_DEEP,
                "settings": JobSettings(manages_without_queue_name=True),
            },
            job_object(labels=UNQUEUED, suspend=False),
            ["stop-job", "create-workload"],
            id="nor does a chain without end exempt it",
        ),
        pytest.param(
            {"ancestor": lambda _: Ancestor.TOO_DEEP},
            job_object(suspend=False),
            ["stop-job", "create-workload"],
            id="also below a chain without end",
        ),
    ],
)
def test_whose_job_it_is(fields: dict[str, Any], job: Object, want: list[str]) -> None:
    assert purposes(look(job, **fields)) == want


def named_by(kind: str) -> list[Object]:
    """Return the reference to a controller of this kind."""
    return [{"apiVersion": "batch/v1", "kind": kind, "name": "parent", "uid": "u", "controller": True}]


@pytest.mark.parametrize(
    ("kind", "want"),
    [
        pytest.param("Job", ["create-workload", "OwnerNotCounted"], id="a Job"),
        pytest.param("CronJob", ["create-workload"], id="but not a CronJob, which no user takes for a queue"),
    ],
)
def test_an_event_says_that_the_owner_of_a_queued_job_does_not_count_it(kind: str, want: list[str]) -> None:
    job = job_object()
    job["metadata"]["ownerReferences"] = named_by(kind)

    actions = look(job, ancestor=lambda _: Ancestor.ADMITTED)

    assert purposes(actions) == want


def test_an_owner_that_is_added_later_does_not_keep_an_evicted_job_running() -> None:
    job = running()
    job["metadata"]["ownerReferences"] = named_by("Job")
    evicted = held(admitted, said("Evicted", "Preempted"))

    assert purposes(look(job, evicted, ancestor=lambda _: Ancestor.ADMITTED)) == ["stop-job"]


CLASSES = {
    "workload_priority_classes": {"gold": 100},
    "priority_classes": {
        "high": PriorityClass(value=50),
        "default-b": PriorityClass(value=7, is_global_default=True),
        "default-a": PriorityClass(value=9, is_global_default=True),
    },
}


@pytest.mark.parametrize(
    ("job", "fields", "want"),
    [
        pytest.param(job_object(), {}, (0, None), id="without any class: none"),
        pytest.param(
            job_object(
                labels={"kueue.x-k8s.io/priority-class": "gold"}, pod_spec={"priorityClassName": "high"}
            ),
            CLASSES,
            (100, "gold"),
            id="the label's class goes first",
        ),
        pytest.param(
            job_object(pod_spec={"priorityClassName": "high"}),
            CLASSES,
            (50, "high"),
            id="then the template's",
        ),
        pytest.param(job_object(), CLASSES, (7, "default-b"), id="then the lowest default"),
    ],
)
def test_where_the_priority_comes_from(
    job: Object, fields: dict[str, Any], want: tuple[int, str | None]
) -> None:
    (write,) = look(job, **fields)

    assert isinstance(write, Write)
    spec = msgspec.json.decode(write.body)["spec"]
    assert (spec["priority"], spec.get("priorityClassRef", {}).get("name")) == want


@pytest.mark.parametrize(
    ("job", "want_reason", "want_note"),
    [
        pytest.param(
            job_object(labels={"kueue.x-k8s.io/priority-class": "nil"}),
            "WorkloadPriorityClassNotFound",
            "Job team/j: label kueue.x-k8s.io/priority-class names WorkloadPriorityClass 'nil', which does"
            " not exist; create it or name another",
            id="an unknown WorkloadPriorityClass",
        ),
        pytest.param(
            job_object(pod_spec={"priorityClassName": "nil"}),
            "ErrWorkloadCompose",
            "Job team/j: spec.template.spec.priorityClassName names PriorityClass 'nil', which does not"
            " exist; create it or name another",
            id="an unknown PriorityClass",
        ),
        pytest.param(
            job_object(parallelism=0),
            "ErrWorkloadCompose",
            "Job team/j: spec.parallelism is 0: it asks for no pods; set it to 1 or more",
            id="no pods",
        ),
    ],
)
def test_a_job_that_cannot_be_queued_gets_an_event(job: Object, want_reason: str, want_note: str) -> None:
    (event,) = look(job)

    assert isinstance(event, Event)
    assert (event.type, event.reason, event.note) == ("Warning", want_reason, want_note)
    assert event.regarding.name == "j"


def test_a_misspelt_key_is_reported_once_and_the_job_is_queued() -> None:
    job = job_object(annotations={"berth.dev/checkpoint-tim": "x"})

    assert purposes(look(job)) == ["create-workload", "UnknownKey"]
    assert purposes(look(job, held(job=job))) == []


@pytest.mark.parametrize(
    ("job", "want"),
    [
        pytest.param(
            {**running(), "metadata": job_object(labels=OTHER_QUEUE)["metadata"]},
            [
                "Job team/j names queue other, but holds quota of queue lq and keeps it: it moves to other "
                "once it is stopped, for example by spec.active: false on Workload team/job-j-1be2a"
            ],
            id="another queue is named while it runs",
        ),
        pytest.param(running(), [], id="its own queue"),
    ],
)
def test_a_running_job_that_names_another_queue_gets_an_event_with_the_remedy(
    job: Object, want: list[str]
) -> None:
    actions = look(job, held(admitted))

    assert [one.note for one in actions if isinstance(one, Event)] == want


def test_a_conflict_with_the_users_template_ends_the_workload() -> None:
    job = job_object(pod_spec={"nodeSelector": {"zone": "b"}})

    (write,) = look(job, held(admitted, job=job))

    assert isinstance(write, Write)
    (finished,) = [
        c for c in msgspec.json.decode(write.body)["status"]["conditions"] if c["type"] == "Finished"
    ]
    assert (finished["reason"], finished["message"]) == (
        "FailedToStart",
        "Job team/j: nodeSelector zone is 'b', but its admission needs 'a'; remove it from the template;"
        f" then delete Workload team/{born()['metadata']['name']} to queue it again",
    )
    assert write.events[0].type == "Warning"


def body_of(action: Action) -> dict[str, Any]:
    """Return what a write sends."""
    assert isinstance(action, Write)
    body: dict[str, Any] = msgspec.json.decode(action.body)
    return body


def test_writes_carry_what_was_seen() -> None:
    (start,) = look(job_object(), held(admitted))

    assert body_of(start)["metadata"] == {"uid": UID, "resourceVersion": "1"}
    assert isinstance(start, Write)
    assert (start.uid, start.resource_version, start.kind, start.name) == (UID, "1", "Job", "j")


@pytest.mark.parametrize(
    ("job", "workload", "fields", "want"),
    [
        pytest.param(
            job_object(labels={"kueue.x-k8s.io/queue-name": "other"}),
            held(),
            {},
            {"spec": {"queueName": "other"}},
            id="another queue",
        ),
        pytest.param(
            job_object(labels={"kueue.x-k8s.io/queue-name": "other"}),
            held(reserved),
            {},
            None,
            id="the queue is frozen while quota is held",
        ),
        pytest.param(
            job_object(labels={"kueue.x-k8s.io/priority-class": "gold"}),
            held(),
            CLASSES,
            {
                "spec": {
                    "priority": 100,
                    "priorityClassRef": {
                        "group": "kueue.x-k8s.io",
                        "kind": "WorkloadPriorityClass",
                        "name": "gold",
                    },
                }
            },
            id="another priority class",
        ),
        pytest.param(
            job_object(labels={"kueue.x-k8s.io/priority-class": "gold"}),
            held(reserved),
            CLASSES,
            None,
            id="its presence is frozen while quota is held",
        ),
        pytest.param(
            job_object(labels={"team": "a"}),
            held(),
            {"settings": JobSettings(copied=CopiedKeys(labels=("team",)))},
            None,
            id="a label is copied at the creation alone",
        ),
        pytest.param(
            job_object(annotations={"cost": "7"}),
            held(),
            {"settings": JobSettings(copied=CopiedKeys(annotations=("cost",)))},
            None,
            id="and so is an annotation that is configured",
        ),
        pytest.param(
            job_object(),
            held(job=job_object(annotations={"kueue.x-k8s.io/admission-gated-by": "x/y"})),
            {},
            {"annotations": {"kueue.x-k8s.io/admission-gated-by": None}},
            id="a gate that was opened",
        ),
    ],
)
def test_changes_of_the_job_reach_its_workload(
    job: Object, workload: Object, fields: dict[str, Any], want: dict[str, Any] | None
) -> None:
    actions = look(job, workload, **fields)

    if want is None:
        assert actions == ()
        return
    body = body_of(actions[0])
    guard = {key: workload["metadata"][key] for key in ("uid", "resourceVersion")}
    metadata = {key: value for key, value in want.items() if key != "spec"}
    assert body["metadata"] == {**metadata, **guard}
    assert body.get("spec") == want.get("spec")


READY = said("PodsReady", "Started", "All pods reached readiness and the workload is running")


@pytest.mark.parametrize(
    ("job", "workload", "want"),
    [
        pytest.param(running(ready=1), held(admitted), ("False", "WaitForStart"), id="not yet"),
        pytest.param(running(), held(admitted), ("True", "Started"), id="all there"),
        pytest.param(
            running(ready=1), held(admitted, READY), ("False", "WaitForRecovery"), id="one was lost"
        ),
        pytest.param(
            running(),
            held(admitted, said("PodsReady", "WaitForRecovery", status="False")),
            ("True", "Recovered"),
            id="all there again",
        ),
    ],
)
def test_readiness_of_pods_is_reported(job: Object, workload: Object, want: tuple[str, str]) -> None:
    (write,) = look(job, workload)

    conditions = {c["type"]: c for c in body_of(write)["status"]["conditions"]}
    assert (conditions["PodsReady"]["status"], conditions["PodsReady"]["reason"]) == want


def test_readiness_is_not_reported_where_it_is_not_waited_for() -> None:
    settings = JobSettings(waits_for_pods=False)

    assert look(running(), held(admitted), settings=settings) == ()


def reclaiming(count: int) -> Change:
    """Return the change that gives pods' quota back."""
    return lambda workload: workload["status"].update(reclaimablePods=[{"name": "main", "count": count}])


@pytest.mark.parametrize(
    ("before", "want"),
    [
        pytest.param([], [{"name": "main", "count": 1}], id="what is not needed is given back"),
        pytest.param([reclaiming(1)], None, id="once"),
        pytest.param([reclaiming(2)], None, id="and never taken again"),
    ],
)
def test_quota_that_is_not_needed_again_is_given_back(
    before: list[Change], want: list[Object] | None
) -> None:
    actions = look(running(active=1, ready=1, succeeded=1), held(admitted, READY, *before))

    assert [body_of(action)["status"]["reclaimablePods"] for action in actions] == ([want] if want else [])


def test_quota_is_kept_to_the_end_where_the_feature_gate_is_off() -> None:
    settings = JobSettings(reclaims_pods=False)

    assert look(running(active=1, ready=1, succeeded=1), held(admitted, READY), settings=settings) == ()


def being_deleted(job: Object) -> Object:
    """Return the Job once its deletion was asked for."""
    job = copy.deepcopy(job)
    job["metadata"]["deletionTimestamp"] = "2027-01-15T07:00:00Z"
    return job


@pytest.mark.parametrize(
    ("job", "workload", "want"),
    [
        pytest.param(job_object(), held(admitted, deleting), ["remove-finalizer"], id="it is deleted too"),
        pytest.param(job_object(), held(admitted), ["finish"], id="it is left behind"),
        pytest.param(job_object(), held(said("Finished")), ["remove-finalizer"], id="it has finished"),
        pytest.param(running(), held(admitted), [], id="its quota is kept while pods use it"),
    ],
)
def test_the_workload_of_a_deleted_job_ends_without_a_garbage_collector(
    job: Object, workload: Object, want: list[str]
) -> None:
    assert purposes(look(being_deleted(job), workload)) == want


def test_the_workload_of_a_deleted_job_says_that_its_owner_is_gone_unless_the_job_has_ended() -> None:
    (gone,) = look(being_deleted(job_object()), held(admitted))
    (over,) = look(being_deleted(ended("Complete")), held(admitted))

    assert [condition_of(one, "Finished") for one in (gone, over)] == [
        ("OwnerNotFound", "The workload's owner no longer exists"),
        ("Succeeded", "why"),
    ]


def condition_of(write: Action, type_: str) -> tuple[str, str]:
    """Return reason and message of a condition that a write sets."""
    (found,) = [one for one in body_of(write)["status"]["conditions"] if one["type"] == type_]
    return found["reason"], found["message"]


@pytest.mark.parametrize(
    ("conditions", "want"),
    [
        pytest.param([], [], id="never reported"),
        pytest.param([said("PodsReady", "Started")], ["sync-pods"], id="ready"),
        pytest.param([said("PodsReady", "WaitForRecovery", status="False")], ["sync-pods"], id="recovering"),
    ],
)
def test_pods_are_not_ready_once_the_reservation_is_taken_away(
    conditions: list[Change], want: list[str]
) -> None:
    taken = held(said("QuotaReserved", "EvictedByTest", status="False"), *conditions)

    assert purposes(look(job_object(), taken)) == want
    for write in look(job_object(), taken):
        assert condition_of(write, "PodsReady") == ("WaitForStart", "Not all pods are ready or succeeded")
    # The Job is stopped at once, whatever its Workload says.
    assert purposes(look(running(), taken)) == ["stop-job", *want]


def test_finalizers_of_others_stay() -> None:
    workload = held(deleting, lambda w: w["metadata"]["finalizers"].append("example.com/mine"))

    (write,) = look(job_object(), workload)

    assert body_of(write)["metadata"]["finalizers"] == ["example.com/mine"]


def built(**owner: Any) -> Object:
    """Return a prebuilt Workload, with an owner where one is given."""
    workload = held(renamed("built"))
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True, **owner}
    workload["metadata"].update(labels={}, ownerReferences=[reference] if owner else [])
    return workload


def test_a_prebuilt_workload_of_another_owner_is_refused_and_left_alone() -> None:
    event, *rest = look(job_object(labels=PREBUILT), built(uid="p"))

    assert isinstance(event, Event)
    assert event.note == (
        "Job team/j: Workload team/built, named by kueue.x-k8s.io/prebuilt-workload-name, belongs to Pod p;"
        " name another one"
    )
    assert rest == []
    finished = {"type": "Complete", "status": "True"}
    assert look(with_status(job_object(labels=PREBUILT), conditions=[finished]), built(uid="p")) == ()


def test_a_suspended_job_that_leaves_its_queue_takes_a_prebuilt_workload_out_and_does_not_delete_it() -> None:
    job = job_object(labels={**UNQUEUED, **PREBUILT})
    workload = built(apiVersion="batch/v1", kind="Job", name="j", uid="job-uid")

    assert purposes(look(job, workload)) == ["update-workload"]


def test_a_job_waits_for_another_prebuilt_workload_while_the_first_is_being_deleted() -> None:
    workload = built(apiVersion="batch/v1", kind="Job", name="j", uid="job-uid")
    admitted(workload)
    deleting(workload)

    assert "start-job" not in purposes(look(job_object(labels=PREBUILT), workload))
    assert purposes(look(running_prebuilt(), workload)) == ["stop-job"]


def running_prebuilt() -> Object:
    """Return a Job that runs on a Workload that it names."""
    job = job_object(suspend=False, labels=PREBUILT)
    return with_status(job, active=2, ready=2, startTime="2027-01-15T07:00:00Z")


def test_a_prebuilt_workload_is_adopted_beside_other_references() -> None:
    workload = built(uid="p", controller=False)

    (write,) = look(job_object(labels=PREBUILT), workload)

    assert body_of(write)["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": "job-uid"}
    owners = body_of(write)["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner.get("controller")) for owner in owners] == [("Pod", False), ("Job", True)]


def test_the_order_of_workloads_does_not_matter() -> None:
    ours, other = held(admitted), held(renamed("b"))

    assert look(job_object(), ours, other) == look(job_object(), other, ours)


def test_a_context_needs_only_an_injection() -> None:
    assert JobContext(injection=lambda _: ({}, ())).settings == JobSettings()


@pytest.mark.parametrize(
    ("awaits_ends", "want"),
    [
        pytest.param(True, [], id="a policy waits for it"),
        pytest.param(False, ["release"], id="Kueue does not"),
    ],
)
def test_quota_is_given_back_while_the_last_pod_still_ends_where(awaits_ends: bool, want: list[str]) -> None:
    job = with_status(job_object(), terminating=1)

    actions = look(job, held(admitted, said("Evicted")), awaits_ends=lambda _: awaits_ends)

    assert purposes(actions) == want


BAD = {
    "berth.dev/expected-runtime-seconds": "soon",
    "berth.dev/expected-completion-time": "tomorrow",
    "berth.dev/placement-strategy": "Tight",
    "berth.dev/latency-sensitive": "very",
    "berth.dev/paralelism": "ddp",
    "berth.dev/oportunistic": "true",
}


@pytest.mark.parametrize("is_refused", [False, True])
def test_all_faults_of_a_job_are_reported_at_once_each_kind_in_one_event(is_refused: bool) -> None:
    labels = {"kueue.x-k8s.io/max-exec-time-seconds": "never"} if is_refused else {}
    events = [one for one in look(job_object(annotations=BAD, labels=labels)) if isinstance(one, Event)]

    notes = {event.reason: event.note for event in events}
    assert len(notes) == len(events)
    assert "paralelism" in notes["UnknownKey"]
    assert "oportunistic" in notes["UnknownKey"]
    assert "Tight" in notes["InvalidAnnotation"]
    assert "very" in notes["InvalidAnnotation"]
    assert "'soon'" in notes["InvalidExpectedRuntime"]
    assert "'tomorrow'" in notes["InvalidExpectedRuntime"]
    assert ("ErrWorkloadCompose" in notes) is is_refused


def allows(*pairs: tuple[str, str]) -> dict[str, Any]:
    """Return a context with classes that may be used in these namespaces alone."""
    return {**CLASSES, "may_use_class": lambda *asked: asked in pairs}


def test_a_job_may_not_name_a_class_that_is_not_for_its_namespace() -> None:
    job = job_object(labels={"kueue.x-k8s.io/priority-class": "gold"})

    (event,) = look(job, **allows(("gold", "other")))
    (write,) = look(job, **allows(("gold", "team")))

    assert isinstance(event, Event)
    assert event.reason == "WorkloadPriorityClassNotAllowed"
    assert event.note == (
        "Job team/j: label kueue.x-k8s.io/priority-class names WorkloadPriorityClass 'gold', which the"
        " namespace 'team' may not use, by the annotation berth.dev/namespace-selector of the class; name"
        " another"
    )
    assert isinstance(write, Write)


def test_a_job_may_not_get_its_priority_from_a_pods_class_that_is_not_for_its_namespace() -> None:
    job = job_object(pod_spec={"priorityClassName": "high"})

    def asked(*allowed: tuple[str, str]) -> Any:
        (action,) = look(job, **CLASSES, may_use_pod_class=lambda *pair: pair in allowed)
        return action

    event = asked(("high", "other"))
    assert isinstance(event, Event)
    assert event.reason == "PriorityClassNotAllowed"
    assert event.note.startswith(
        "Job team/j: spec.template.spec.priorityClassName names PriorityClass 'high'"
    )
    assert isinstance(asked(("high", "team")), Write)


def test_a_waiting_workload_gets_no_class_that_is_not_for_its_namespace() -> None:
    job = job_object(labels={"kueue.x-k8s.io/priority-class": "gold"})

    assert "update-workload" in purposes(look(job, held(), **allows(("gold", "team"))))
    assert "update-workload" not in purposes(look(job, held(), **allows()))
