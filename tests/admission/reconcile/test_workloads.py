"""What a Workload asks for, look by look, whatever created it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Action, Event, Write
from admission.reconcile.deadlines import PodsReadySettings, RetentionSettings
from admission.reconcile.workload.context import LifecycleContext, LifecycleResult, LifecycleSettings, Owner
from admission.reconcile.workload.reconcile import reconcile_workload
from api import keys
from api.parsing.times import to_rfc3339
from api.queueing import StopPolicy
from api.reason_words import ReasonWords
from api.reasons import PREEMPTION_GATED, PendingReason
from tests.admission.world import Object, purposes, read_workload

NOW = 1_800_000_000.0
AGO = 600.0
Change = Callable[[Object], None]


def make(*changes: Change) -> Object:
    """Return a waiting Workload, changed."""
    workload: Object = {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 1,
            "labels": {},
            "annotations": {},
        },
        "spec": {
            "queueName": "lq",
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {}}],
        },
        "status": {"conditions": []},
    }
    for change in changes:
        change(workload)
    return workload


def said(
    type_: str, reason: str = "r", message: str = "m", *, status: str = "True", ago: float = AGO
) -> Change:
    """Return the change that writes a condition, ten minutes old."""
    condition = {
        "type": type_,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": to_rfc3339(NOW - ago),
    }
    return lambda workload: workload["status"]["conditions"].append(condition)


def spec(**fields: Any) -> Change:
    """Return the change of fields of the spec."""
    return lambda workload: workload["spec"].update(fields)


def status(**fields: Any) -> Change:
    """Return the change of fields of the status."""
    return lambda workload: workload["status"].update(fields)


def metadata(**fields: Any) -> Change:
    """Return the change of fields of the metadata."""
    return lambda workload: workload["metadata"].update(fields)


def created(at: float) -> Change:
    """Return the change of the time of creation."""
    return metadata(creationTimestamp=to_rfc3339(at))


IN_GROUP = metadata(annotations={keys.IS_GROUP_WORKLOAD: "true"})


def reserved(workload: Object) -> None:
    """Give a Workload quota."""
    assignment = {"name": "main", "count": 1, "flavors": {}, "resourceUsage": {}}
    status(admission={"clusterQueue": "cq", "podSetAssignments": [assignment]})(workload)
    said("QuotaReserved", "QuotaReserved")(workload)


def ended_by_another(workload: Object) -> None:
    """Take the reservation away as a server-side apply of another manager can: by the condition alone."""
    reserved(workload)
    workload["status"]["conditions"].pop()
    said("QuotaReserved", "Pending", status="False")(workload)


def admitted(workload: Object) -> None:
    """Admit a Workload, ten minutes ago."""
    reserved(workload)
    said("Admitted", "Admitted")(workload)


def checks(**states: str) -> Change:
    """Return the change that writes admission checks."""
    at = to_rfc3339(NOW - AGO)
    entries = [
        {"name": name, "state": state, "message": "because", "lastTransitionTime": at}
        for name, state in states.items()
    ]
    return status(admissionChecks=entries)


KEPT = metadata(finalizers=["kueue.x-k8s.io/resource-in-use"])
DELETED = metadata(deletionTimestamp=to_rfc3339(NOW))
OFF = spec(active=False)
MISSING = PendingReason.MISCONFIGURED, "LocalQueue lq doesn't exist"


def look(workload: Object, **fields: Any) -> LifecycleResult:
    """Return what the Workload asks for."""
    value, raw = read_workload(workload)
    return reconcile_workload(value, raw, LifecycleContext(**fields), now=NOW)


def only(result: LifecycleResult) -> Write:
    """Return the only action, which must be a write."""
    (action,) = result.actions
    assert isinstance(action, Write)
    return action


def body_of(action: Action) -> dict[str, Any]:
    """Return what a write sends."""
    assert isinstance(action, Write)
    body: dict[str, Any] = msgspec.json.decode(action.body)
    return body


def conditions_of(action: Action) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition that a write sends."""
    return {c["type"]: (c["status"], c["reason"]) for c in body_of(action)["status"]["conditions"]}


@pytest.mark.parametrize(
    ("workload", "fields", "want"),
    [
        pytest.param(make(), {}, [], id="a waiting Workload needs nothing"),
        pytest.param(make(admitted), {}, [], id="a running one needs nothing"),
        pytest.param(make(KEPT, DELETED), {}, ["remove-finalizer"], id="a deleted one is let go"),
        pytest.param(make(DELETED), {}, [], id="once"),
        pytest.param(
            make(admitted, KEPT, DELETED),
            {"owner": Owner.JOB},
            [],
            id="one with a Job is let go when that has stopped",
        ),
        pytest.param(
            make(KEPT, DELETED),
            {"owner": Owner.MISSING},
            ["remove-finalizer"],
            id="one without its Job at once",
        ),
        pytest.param(make(said("Finished"), KEPT), {}, ["remove-finalizer"], id="an ended one is let go"),
        pytest.param(make(said("Finished")), {}, [], id="and kept"),
        pytest.param(make(admitted), {"owner": Owner.MISSING}, ["finish"], id="without its owner it ends"),
        pytest.param(
            make(metadata(labels={"kueue.x-k8s.io/job-uid": "gone"})),
            {},
            ["finish"],
            id="also when the reference to the owner was taken away",
        ),
        pytest.param(
            make(admitted, said("DeactivationTarget")), {}, ["deactivate"], id="a target is deactivated"
        ),
        pytest.param(make(OFF), {}, ["evict"], id="an inactive one is evicted, waiting or not"),
        pytest.param(
            make(OFF, said("Evicted", "Deactivated")), {"queue_problem": None}, [], id="and then stays out"
        ),
        pytest.param(
            make(OFF, said("Evicted", "Deactivated"), status(requeueState={"count": 3})),
            {},
            ["evict"],
            id="its back-off is forgotten",
        ),
        pytest.param(
            make(admitted, said("Evicted", "Preempted")),
            {},
            [],
            id="without an owner the quota waits for the program that created it",
        ),
        pytest.param(
            make(admitted, said("Evicted", "Preempted"), IN_GROUP),
            {},
            ["release"],
            id="a group without pods has nothing to stop: released at once",
        ),
        pytest.param(
            make(ended_by_another, said("Evicted", "Preempted")),
            {},
            ["release"],
            id="of a reservation that another program has ended, the admission is cleared",
        ),
        pytest.param(make(ended_by_another), {"owner": Owner.JOB}, ["release"], id="also with a Job"),
        pytest.param(
            make(ended_by_another, said("Evicted", "Preempted")),
            {"owner": Owner.JOB},
            [],
            id="but after an eviction once that has stopped",
        ),
        pytest.param(
            make(status(requeueState={"count": 1, "requeueAt": to_rfc3339(NOW - 1)})),
            {},
            ["requeue"],
            id="a back-off is cleared once it is over, also where no condition says so",
        ),
        pytest.param(
            make(status(requeueState={"count": 1, "requeueAt": to_rfc3339(NOW + 1)})),
            {},
            [],
            id="and not before",
        ),
        pytest.param(
            make(admitted, said("Evicted", "Preempted")),
            {"owner": Owner.JOB},
            [],
            id="with a Job the quota waits for it",
        ),
        pytest.param(
            make(admitted, said("Evicted", "Preempted")),
            {"owner": Owner.OTHER},
            [],
            id="and with another owner for that",
        ),
        pytest.param(
            make(), {"queue_problem": MISSING}, ["wait"], id="what is wrong with the queue is reported"
        ),
        pytest.param(
            make(said("QuotaReserved", *MISSING, status="False")),
            {"queue_problem": MISSING},
            [],
            id="once too",
        ),
        pytest.param(
            make(admitted),
            {"queue_problem": MISSING},
            [],
            id="a running Workload is not affected by its queue's end",
        ),
        pytest.param(
            make(said("QuotaReserved", "AdmissionGated", status="False")),
            {},
            ["wait"],
            id="opened gates are reported",
        ),
    ],
)
def test_a_look_asks_for(workload: Object, fields: dict[str, Any], want: list[str]) -> None:
    assert purposes(look(workload, **fields).actions) == want


def requeued(reason: str) -> Change:
    """Return the change that keeps a released Workload out of the queue."""
    return said("Requeued", reason, status="False")


def back_at(at: float) -> Change:
    """Return the change that sets the end of the back-off."""
    return status(requeueState={"count": 1, "requeueAt": to_rfc3339(at)})


@pytest.mark.parametrize(
    ("changes", "fields", "want"),
    [
        pytest.param([requeued("PodsReadyTimeout"), back_at(NOW + 60)], {}, None, id="not before its time"),
        pytest.param(
            [requeued("PodsReadyTimeout"), back_at(NOW)], {}, "BackoffFinished", id="when its time has come"
        ),
        pytest.param(
            [admitted, said("Evicted", "PodsReadyTimeout"), requeued("PodsReadyTimeout"), back_at(NOW)],
            {},
            "BackoffFinished",
            id="also while its program has yet to give back the quota",
        ),
        pytest.param(
            [requeued("AdmissionCheck")], {}, "BackoffFinished", id="at once where no delay was asked"
        ),
        pytest.param([requeued("Deactivated")], {}, "Reactivated", id="when it is active again"),
        pytest.param(
            [requeued("DeactivatedDueToAdmissionCheck")], {}, "Reactivated", id="whatever deactivated it"
        ),
        pytest.param([requeued("Deactivated"), OFF, said("Evicted")], {}, None, id="not while inactive"),
        pytest.param(
            [requeued("LocalQueueStopped")], {}, "LocalQueueRestarted", id="when its LocalQueue runs again"
        ),
        pytest.param(
            [requeued("LocalQueueStopped")],
            {"local_queue_stop": StopPolicy.HOLD},
            None,
            id="not while that is on hold",
        ),
        pytest.param(
            [requeued("ClusterQueueStopped")],
            {},
            "ClusterQueueRestarted",
            id="when its ClusterQueue runs again",
        ),
        pytest.param(
            [requeued("ClusterQueueStopped")],
            {"cluster_queue_stop": None},
            None,
            id="not while that does not exist",
        ),
    ],
)
def test_how_an_evicted_workload_returns(
    changes: list[Change], fields: dict[str, Any], want: str | None
) -> None:
    result = look(make(*changes), **fields)

    assert [conditions_of(action)["Requeued"] for action in result.actions] == (
        [("True", want)] if want else []
    )


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param([back_at(NOW)], [{"count": 1}], id="it is over"),
        pytest.param([said("Requeued", "Preempted"), back_at(NOW)], [{"count": 1}], id="another queued it"),
        pytest.param(
            [status(requeueState={"requeueAt": to_rfc3339(NOW)})], [None], id="nothing else is kept"
        ),
        pytest.param([back_at(NOW + 1)], [], id="it is not over"),
        pytest.param([requeued("LocalQueueStopped"), back_at(NOW)], [{"count": 1}], id="its queue is held"),
        pytest.param([reserved, back_at(NOW)], ["admitted"], id="it holds quota again"),
    ],
)
def test_the_end_of_a_back_off_is_cleared_also_where_another_writer_ended_the_eviction(
    changes: list[Change], want: list[object]
) -> None:
    result = look(make(*changes), local_queue_stop=StopPolicy.HOLD, required_checks=())

    if want == ["admitted"]:
        assert "requeueAt" in str(body_of(result.actions[0]))
        return
    assert [body_of(action)["status"].get("requeueState") for action in result.actions] == want


def test_the_words_of_the_program_that_ended_a_reservation_stay() -> None:
    workload = make(ended_by_another, said("Evicted", "Preempted"))

    write = only(look(workload))

    assert "admission" not in body_of(write)["status"]
    assert body_of(write)["status"]["conditions"] == workload["status"]["conditions"]


def test_a_deactivation_says_what_caused_it() -> None:
    target = said(
        "DeactivationTarget", "MaximumExecutionTimeExceeded", "exceeding the maximum execution time"
    )

    write = only(look(make(admitted, OFF, target, back_at(NOW))))

    sent = body_of(write)["status"]
    (evicted,) = [c for c in sent["conditions"] if c["type"] == "Evicted"]
    assert evicted["reason"] == "DeactivatedDueToMaximumExecutionTimeExceeded"
    assert evicted["message"] == "The workload is deactivated due to exceeding the maximum execution time"
    assert "DeactivationTarget" not in conditions_of(write)
    assert "requeueState" not in sent
    assert sent["schedulingStats"]["evictions"] == [
        {"reason": "Deactivated", "underlyingCause": "MaximumExecutionTimeExceeded", "count": 1}
    ]
    assert [event.reason for event in write.events] == [
        "EvictedDueToDeactivatedDueToMaximumExecutionTimeExceeded"
    ]


@pytest.mark.parametrize(
    ("changes", "required", "want"),
    [
        pytest.param([reserved], ("a",), "sync-checks", id="a new check is entered"),
        pytest.param([checks(a="Ready")], (), "sync-checks", id="one that is no longer asked for goes"),
        pytest.param([reserved, checks(a="Pending")], ("a",), None, id="a pending one is waited for"),
        pytest.param([reserved, checks(a="Ready", b="Pending")], ("a", "b"), None, id="and so is every one"),
        pytest.param([reserved, checks(a="Ready")], ("a",), "admit", id="all ready: admitted"),
        pytest.param([reserved], (), "admit", id="none asked for: admitted"),
        pytest.param([checks(a="Ready")], ("a",), None, id="but not without quota"),
        pytest.param([admitted], ("a",), None, id="a running Workload is not asked for new checks"),
        pytest.param([reserved, checks(a="Rejected")], ("a",), "deactivate", id="a rejection deactivates"),
        pytest.param([admitted, checks(a="Rejected")], ("a",), "deactivate", id="also one that runs"),
        pytest.param([reserved, checks(a="Retry")], ("a",), "evict", id="a retry evicts"),
        pytest.param([checks(a="Retry")], ("a",), None, id="but not one that holds nothing"),
    ],
)
def test_admission_checks(changes: list[Change], required: tuple[str, ...], want: str | None) -> None:
    result = look(make(*changes), required_checks=required)

    assert purposes(result.actions) == ([want] if want else [])


def test_the_checks_of_a_workload_stay_while_its_queue_does_not_exist() -> None:
    workload = make(checks(a="Ready"))

    assert purposes(look(workload, cluster_queue_stop=None).actions) == []
    assert purposes(look(workload, local_queue_stop=None).actions) == []


def test_a_delayed_topology_is_waited_for() -> None:
    workload = make(reserved)
    (assignment,) = workload["status"]["admission"]["podSetAssignments"]
    assignment["delayedTopologyRequest"] = "Pending"

    assert look(workload).actions == ()


def test_an_admission_after_checks_shows_how_long_they_took() -> None:
    write = only(look(make(reserved, metadata(ownerReferences=[{"uid": "o", "controller": True}]))))

    assert conditions_of(write)["Admitted"] == ("True", "Admitted")
    assert conditions_of(write)["PodsReady"] == ("False", "WaitForStart")
    assert [event.note for event in write.events] == [
        "Admitted by ClusterQueue cq, wait time since reservation was 600s"
    ]


def test_a_retry_keeps_the_workload_out_for_the_longest_delay() -> None:
    def delays(workload: Object) -> None:
        for entry, seconds in zip(workload["status"]["admissionChecks"], (900, 700), strict=True):
            entry["requeueAfterSeconds"] = seconds

    write = only(look(make(reserved, checks(a="Retry", b="Retry"), delays), required_checks=("a", "b")))

    sent = body_of(write)["status"]
    assert sent["requeueState"] == {"requeueAt": to_rfc3339(NOW - AGO + 900)}
    assert conditions_of(write)["Evicted"] == ("True", "AdmissionCheck")
    assert {entry["state"] for entry in sent["admissionChecks"]} == {"Pending"}
    assert [entry["requeueAfterSeconds"] for entry in sent["admissionChecks"]] == [900, 700]


def after(seconds: int) -> Change:
    """Return the change that makes the first check ask for this delay."""
    return lambda workload: workload["status"]["admissionChecks"][0].update(requeueAfterSeconds=seconds)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param([after(900)], NOW - AGO + 900, id="asked without quota"),
        pytest.param([reserved, after(900)], NOW - AGO + 900, id="asked with quota"),
        pytest.param([after(600)], None, id="a delay that is over"),
        pytest.param([after(900), back_at(NOW + 900)], None, id="a later one is set already"),
        pytest.param([reserved, after(900), back_at(NOW + 900)], NOW + 900, id="and stays at an eviction"),
    ],
)
def test_the_delay_of_a_check_keeps_the_latest_back_off(changes: list[Change], want: float | None) -> None:
    workload = make(checks(a="Retry"), *changes)

    written = [
        body_of(one)["status"]["requeueState"] for one in look(workload, required_checks=("a",)).actions
    ]

    assert [one["requeueAt"] for one in written] == ([] if want is None else [to_rfc3339(want)])


def test_a_retry_is_reported_in_kueues_words() -> None:
    def unsaid(workload: Object) -> None:
        workload["status"]["admissionChecks"][0]["message"] = ""

    write = only(look(make(reserved, checks(b="Retry", a="Retry"), unsaid), required_checks=("a", "b")))

    assert write.events[0].note == 'Evicted due to AdmissionChecks in Retry state: "a" (because); "b"'


@pytest.mark.parametrize("changes", [[], [reserved, said("Evicted")]], ids=["without quota", "evicted"])
def test_a_rejection_of_a_workload_that_holds_no_quota_is_left_to_the_next_cycle(
    changes: list[Change],
) -> None:
    result = look(make(*changes, checks(a="Rejected")), required_checks=("a",), owner=Owner.JOB)

    assert "deactivate" not in purposes(result.actions)


@pytest.mark.parametrize(
    ("owner", "value", "want"),
    [
        pytest.param(Owner.NONE, 150, [150], id="without an owner"),
        pytest.param(Owner.OTHER, 150, [150], id="of another program"),
        pytest.param(Owner.JOB, 150, [], id="of a Job, which has the class and writes it"),
        pytest.param(Owner.NONE, 200, [], id="as it is"),
        pytest.param(Owner.NONE, None, [], id="without a class that counts"),
    ],
)
def test_the_value_of_a_class_reaches_the_workload(owner: Owner, value: int | None, want: list[int]) -> None:
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "gold"}
    workload = make(created(NOW), spec(priority=200, priorityClassRef=reference))

    actions = look(workload, owner=owner, class_value=value).actions

    assert [body_of(action)["spec"]["priority"] for action in actions] == want


def test_a_gate_is_reported_without_a_warning_and_in_kueues_words() -> None:
    gate = metadata(annotations={"kueue.x-k8s.io/admission-gated-by": "example.com/gate"})
    problem = PendingReason.ADMISSION_GATED, "Admission is gated by: example.com/gate"
    closed = only(look(make(gate), queue_problem=problem))
    opened = only(look(make(said("QuotaReserved", "AdmissionGated", problem[1], status="False"))))

    events = [(event.type, event.reason, event.note) for write in (closed, opened) for event in write.events]
    assert events == [
        ("Normal", "AdmissionGated", "Workload admission is gated by: example.com/gate"),
        ("Normal", "AdmissionGateCleared", "Admission gate cleared, workload is now admissible"),
    ]
    (present,) = [one for one in body_of(opened)["status"]["conditions"] if one["type"] == "QuotaReserved"]
    assert present["message"] == "AdmissionGatedBy cleared, waiting for quota reservation"


def test_a_gate_of_preemption_is_not_reported_as_gone() -> None:
    waits = said("QuotaReserved", "AdmissionGated", PREEMPTION_GATED, status="False")

    assert look(make(waits)).actions == ()


def test_a_rejection_names_the_checks() -> None:
    write = only(look(make(reserved, checks(a="Rejected", b="Ready")), required_checks=("a", "b")))

    (target,) = [c for c in body_of(write)["status"]["conditions"] if c["type"] == "DeactivationTarget"]
    assert (target["reason"], target["message"]) == (
        "AdmissionCheck",
        'AdmissionCheck in Rejected state: "a" (because)',
    )
    assert write.events[0].note == ('Deactivated due to AdmissionCheck in Rejected state: "a" (because)')


@pytest.mark.parametrize(
    ("change", "fields", "want"),
    [
        pytest.param(
            admitted,
            {"local_queue_stop": StopPolicy.HOLD_AND_DRAIN},
            ("Evicted", "True", "LocalQueueStopped"),
            id="a drained LocalQueue evicts a running Workload",
        ),
        pytest.param(
            admitted,
            {"cluster_queue_stop": StopPolicy.HOLD_AND_DRAIN},
            ("Evicted", "True", "ClusterQueueStopped"),
            id="a drained ClusterQueue evicts a running Workload",
        ),
        pytest.param(
            reserved,
            {"cluster_queue_stop": StopPolicy.HOLD, "required_checks": ("a",)},
            ("QuotaReserved", "False", "Suspended"),
            id="any stop takes a reservation back",
        ),
        pytest.param(
            admitted, {"cluster_queue_stop": StopPolicy.HOLD}, None, id="Hold lets a running Workload run"
        ),
        pytest.param(
            reserved,
            {"local_queue_stop": None, "required_checks": ("a",)},
            ("QuotaReserved", "False", "Misconfigured"),
            id="so does the end of the queue",
        ),
        pytest.param(admitted, {"cluster_queue_stop": None}, None, id="which lets a running Workload run"),
    ],
)
def test_stopped_queues(change: Change, fields: dict[str, Any], want: tuple[str, str, str] | None) -> None:
    result = look(make(change, checks(a="Pending")), **fields)

    if want is None:
        assert result.actions == ()
        return
    type_, *rest = want
    assert conditions_of(only(result))[type_] == tuple(rest)


@pytest.mark.parametrize(
    ("change", "fields", "want"),
    [
        pytest.param(
            admitted,
            {"cluster_queue_stop": StopPolicy.HOLD_AND_DRAIN},
            "ClusterQueueStopped",
            id="with its reason for the log of decisions",
        ),
        pytest.param(
            reserved,
            {"cluster_queue_stop": StopPolicy.HOLD, "required_checks": ("a",)},
            None,
            id="and a release of quota that nothing ran on is none",
        ),
    ],
)
def test_an_eviction_that_no_cycle_decided_names_itself(
    change: Change, fields: dict[str, Any], want: str | None
) -> None:
    write = only(look(make(change, checks(a="Pending")), **fields))

    assert (write.eviction and write.eviction.reason) == want


def pods_ready(**fields: Any) -> dict[str, Any]:
    """Return a context with these settings of waitForPodsReady."""
    return {"settings": LifecycleSettings(pods_ready=PodsReadySettings(**fields))}


NOT_READY = said("PodsReady", "WaitForStart", status="False")
LOST = said("PodsReady", "WaitForRecovery", status="False", ago=100)


@pytest.mark.parametrize(
    ("changes", "fields", "want", "want_wake"),
    [
        pytest.param([NOT_READY], pods_ready(timeout_seconds=700), None, NOW + 100, id="there is time left"),
        pytest.param([NOT_READY], pods_ready(timeout_seconds=600), "evict", None, id="the time is over"),
        pytest.param(
            [said("PodsReady")], pods_ready(timeout_seconds=1), None, None, id="ready pods have no deadline"
        ),
        pytest.param([], pods_ready(timeout_seconds=700), None, NOW + 100, id="without a report they have"),
        pytest.param([], pods_ready(timeout_seconds=600), "evict", None, id="and it ends as any other"),
        pytest.param(
            [NOT_READY],
            {"settings": LifecycleSettings(pods_ready=None)},
            None,
            None,
            id="nor where it is off",
        ),
        pytest.param(
            [LOST], pods_ready(recovery_timeout_seconds=120), None, NOW + 20, id="a recovery has its own time"
        ),
        pytest.param([LOST], pods_ready(recovery_timeout_seconds=100), "evict", None, id="which ends too"),
        pytest.param(
            [LOST], pods_ready(recovery_timeout_seconds=0), None, None, id="or never, where it is zero"
        ),
        pytest.param(
            [NOT_READY, status(requeueState={"count": 2})],
            pods_ready(timeout_seconds=1, backoff_limit=2),
            "deactivate",
            None,
            id="too many times",
        ),
    ],
)
def test_pods_must_be_ready_in_time(
    changes: list[Change], fields: dict[str, Any], want: str | None, want_wake: float | None
) -> None:
    result = look(make(admitted, *changes), **fields)

    assert purposes(result.actions) == ([want] if want else [])
    assert result.wake_at == want_wake


def test_each_time_out_keeps_the_workload_out_for_twice_as_long() -> None:
    write = only(
        look(make(admitted, NOT_READY, status(requeueState={"count": 2})), **pods_ready(timeout_seconds=1))
    )

    sent = body_of(write)["status"]
    assert sent["requeueState"] == {"count": 3, "requeueAt": to_rfc3339(NOW + 240)}
    assert sent["schedulingStats"]["evictions"][0]["underlyingCause"] == "WaitForStart"
    assert write.events[0].note == "Exceeded the PodsReady timeout team/w"


def test_the_back_off_has_a_maximum() -> None:
    settings = PodsReadySettings()

    assert [settings.backoff_seconds(count) for count in (1, 2, 6, 7, 5000)] == [60, 120, 1920, 3600, 3600]


@pytest.mark.parametrize(
    ("limit", "past", "want", "want_wake"),
    [
        pytest.param(700, 0, [], NOW + 100, id="there is time left"),
        pytest.param(700, 50, [], NOW + 50, id="earlier runs count"),
        pytest.param(600, 0, ["deactivate"], None, id="the time is over"),
    ],
)
def test_execution_time_is_limited(limit: int, past: int, want: list[str], want_wake: float | None) -> None:
    workload = make(
        admitted,
        said("PodsReady"),
        spec(maximumExecutionTimeSeconds=limit),
        status(accumulatedPastExecutionTimeSeconds=past),
    )

    result = look(workload, settings=LifecycleSettings(pods_ready=None))

    assert purposes(result.actions) == want
    assert result.wake_at == want_wake


BY_US = [OFF, said("Evicted", "DeactivatedDueToAdmissionCheck")]
OWNED = metadata(ownerReferences=[{"kind": "Job", "name": "j", "uid": "job", "controller": True}])
OWNED_BY_POD = metadata(ownerReferences=[{"kind": "Pod", "name": "p", "uid": "pod", "controller": True}])


@pytest.mark.parametrize(
    ("changes", "owner", "seconds", "want"),
    [
        pytest.param([said("Finished")], Owner.NONE, 900, None, id="an ended Workload is kept for a while"),
        pytest.param([said("Finished")], Owner.NONE, 600, ("Workload", "w"), id="and then deleted"),
        pytest.param(BY_US, Owner.NONE, 600, ("Workload", "w"), id="one that we deactivated is deleted"),
        pytest.param([*BY_US, OWNED], Owner.JOB, 600, ("Job", "j"), id="with its Job"),
        pytest.param([*BY_US, OWNED_BY_POD], Owner.JOB, 600, ("Pod", "p"), id="with its pod"),
        pytest.param(
            [*BY_US, OWNED], Owner.OTHER, 600, ("Workload", "w"), id="without an owner of another kind"
        ),
        pytest.param(
            [OFF, said("Evicted", "Deactivated")],
            Owner.NONE,
            0,
            None,
            id="but not one that a user deactivated",
        ),
    ],
)
def test_objects_are_kept_for_a_time(
    changes: list[Change], owner: Owner, seconds: float, want: tuple[str, str] | None
) -> None:
    retention = RetentionSettings(after_finished_seconds=seconds, after_deactivated_seconds=seconds)
    settings = LifecycleSettings(retention=retention)

    result = look(make(*changes), owner=owner, settings=settings)

    found = [(a.kind, a.name) for a in result.actions if isinstance(a, Write) and a.verb == "delete"]
    assert found == ([want] if want else [])
    assert result.wake_at == (None if want or seconds == 0 else NOW + 300)


def test_no_other_job_of_that_name_is_deleted() -> None:
    settings = LifecycleSettings(retention=RetentionSettings(after_deactivated_seconds=600))

    write = only(look(make(*BY_US, OWNED), owner=Owner.JOB, settings=settings))

    assert (write.uid, body_of(write)["preconditions"]) == ("job", {"uid": "job"})


def test_one_that_is_active_again_has_no_end_that_is_waited_for() -> None:
    settings = LifecycleSettings(retention=RetentionSettings(after_deactivated_seconds=900))

    assert look(make(*BY_US[1:]), settings=settings).wake_at is None


def test_the_end_of_a_back_off_is_waited_for() -> None:
    assert look(make(requeued("PodsReadyTimeout"), back_at(NOW + 60))).wake_at == NOW + 60


def test_the_reason_of_waiting_is_reported_with_an_event() -> None:
    write = only(look(make(), queue_problem=MISSING))

    assert conditions_of(write) == {
        "QuotaReserved": ("False", "Misconfigured"),
        "Admitted": ("False", "NoReservation"),
    }
    assert [(event.type, event.reason, event.note) for event in write.events] == [
        ("Warning", "Misconfigured", "LocalQueue lq doesn't exist")
    ]
    assert body_of(write)["metadata"]["resourceVersion"] == "7"


def test_in_older_words_what_is_wrong_with_the_queue_makes_a_workload_inadmissible() -> None:
    settings = LifecycleSettings(words=ReasonWords(is_fine=False))
    write = only(look(make(), queue_problem=MISSING, settings=settings))
    reported = make(said("QuotaReserved", "Inadmissible", MISSING[1], status="False"))

    assert conditions_of(write)["QuotaReserved"] == ("False", "Inadmissible")
    assert look(reported, queue_problem=MISSING, settings=settings).actions == ()


@pytest.mark.parametrize(
    ("is_fine", "want"),
    [
        pytest.param(True, ["wait"], id="the finer words name it"),
        pytest.param(False, [], id="in the older ones what the eviction said stays"),
    ],
)
def test_a_deactivated_workload_waits_and(is_fine: bool, want: list[str]) -> None:
    cause = "The workload is deactivated due to exceeding the maximum number of re-queuing retries"
    workload = make(OFF, said("Evicted"), said("QuotaReserved", "Pending", cause, status="False"))
    problem = (PendingReason.DEACTIVATED, "The workload is deactivated")
    words = LifecycleSettings(words=ReasonWords(is_fine=is_fine))

    assert purposes(look(workload, queue_problem=problem, settings=words).actions) == want


@pytest.mark.parametrize(
    ("changes", "is_explicit", "want"),
    [
        pytest.param([], True, ["wait"], id="at once with Kueue's gate"),
        pytest.param([], False, [], id="not without it"),
        pytest.param([said("QuotaReserved", "WaitingForQuota", status="False")], True, [], id="once"),
    ],
)
def test_a_new_workload_says_that_it_waits_for_its_evaluation(
    changes: list[Change], is_explicit: bool, want: list[str]
) -> None:
    settings = LifecycleSettings(words=ReasonWords(is_explicit=is_explicit))

    result = look(make(*changes), settings=settings)

    assert purposes(result.actions) == want
    if want:
        assert conditions_of(only(result)) == {
            "QuotaReserved": ("False", "PendingEvaluation"),
            "Admitted": ("False", "NoReservation"),
        }


def test_in_older_words_released_quota_leaves_a_workload_pending() -> None:
    settings = LifecycleSettings(words=ReasonWords(is_fine=False))

    write = only(look(make(reserved, said("Evicted", "Preempted"), IN_GROUP), settings=settings))

    assert conditions_of(write)["QuotaReserved"] == ("False", "Pending")


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(
            metadata(annotations={"berth.dev/expected-runtime-seconds": "soon"}), True, id="no number"
        ),
        pytest.param(
            metadata(annotations={"berth.dev/expected-runtime-seconds": "60"}), False, id="a minute"
        ),
        pytest.param(
            metadata(annotations={"berth.dev/expected-completion-time": "9999-01-01T00:00:00Z"}),
            True,
            id="in thousands of years",
        ),
    ],
)
def test_a_workload_without_a_job_gets_an_event_about_its_run_time(change: Change, want: bool) -> None:
    """That of a Job is reported on the Job, which its owner looks at."""
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    owned = make(metadata(ownerReferences=[job]), change)

    found = [one for one in look(make(change)).actions if isinstance(one, Event)]
    assert [event.reason for event in found] == ["InvalidExpectedRuntime"] * want
    assert not [one for one in look(owned).actions if isinstance(one, Event)]


@pytest.mark.parametrize(
    ("changes", "owner", "want"),
    [
        pytest.param([created(NOW - 3)], Owner.JOB, True, id="once it has waited for three seconds"),
        pytest.param(
            [created(NOW - 2)], Owner.JOB, False, id="not while the admission may come that says it"
        ),
        pytest.param([said("PodsReady", status="False")], Owner.JOB, False, id="not twice"),
        pytest.param(
            [said("QuotaReserved", status="False")], Owner.JOB, False, id="with its next reason to wait"
        ),
        pytest.param([reserved], Owner.JOB, False, id="with its admission"),
        pytest.param([created(NOW - 3)], Owner.NONE, False, id="not without an owner that reports on pods"),
    ],
)
def test_pods_of_a_waiting_workload_are_reported_as_not_ready(
    changes: list[Change], owner: Owner, want: bool
) -> None:
    assert ("wait" in purposes(look(make(*changes), owner=owner).actions)) is want


def test_a_new_workload_is_looked_at_again_for_its_pods() -> None:
    result = look(make(created(NOW - 1)), owner=Owner.JOB)

    assert result.wake_at == NOW + 2


def test_the_reason_to_wait_says_that_pods_are_not_ready_where_they_are_awaited() -> None:
    problem = (PendingReason.MISCONFIGURED, "no such queue")
    owned = metadata(ownerReferences=[{"kind": "Job", "name": "j", "uid": "j", "controller": True}])

    write = only(look(make(owned), owner=Owner.JOB, queue_problem=problem))

    found = {one["type"]: one["reason"] for one in body_of(write)["status"]["conditions"]}
    assert found["PodsReady"] == "WaitForStart"


def test_a_workload_whose_requests_cannot_be_counted_is_in_no_queue_until_they_can() -> None:
    problem = (PendingReason.MISCONFIGURED, "DeviceClass gpu is not mapped")

    write = only(look(make(), queue_problem=problem, has_unread_requests=True))

    status = body_of(write)["status"]
    found = {one["type"]: (one["status"], one["reason"], one["message"]) for one in status["conditions"]}
    assert found["Requeued"] == ("False", "Inadmissible", "DeviceClass gpu is not mapped")
    known = make(lambda workload: workload.update(status=status))
    # Its queue is missing now, which says nothing of its requests.
    gone = (PendingReason.MISCONFIGURED, "LocalQueue lq doesn't exist")
    later = body_of(only(look(known, queue_problem=gone)))["status"]["conditions"]
    assert "Requeued" not in {one["type"] for one in later}
