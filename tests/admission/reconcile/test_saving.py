"""What a Workload with an eviction request does, look by look: ask its pods, wait, be evicted or run on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Write
from admission.reconcile.workload.context import LifecycleContext, LifecycleResult, SavingContext, SavingPod
from admission.reconcile.workload.reconcile import reconcile_workload
from api.eviction import EvictionRequest, render_request
from api.keys import CHECKPOINT_DEADLINE, CHECKPOINT_REQUESTED_AT, EVICTION
from api.parsing.times import to_rfc3339
from api.queueing import StopPolicy
from api.reasons import EvictionReason
from api.workload import WorkloadKey
from tests.admission.world import Object, purposes, read_workload

NOW = 1_800_000_000.0
SINCE = NOW - 1000
REQUEST = EvictionRequest(
    reason=EvictionReason.PREEMPTED,
    requested_at=NOW - 60,
    deadline=NOW + 60,
    ask_at=NOW - 60,
    reserved_at=SINCE,
    message="Preempted to accommodate another",
    preemptor=WorkloadKey("team", "large"),
    preemptor_uid="u",
)
POD = SavingPod(namespace="team", name="w-0", uid="pod", asked={})


def make(request: EvictionRequest | str = REQUEST, *, has_quota: bool = True) -> Object:
    """Return an admitted Workload with the request; without quota, one that was evicted and released it."""
    text = request if isinstance(request, str) else render_request(request, namespace="team")
    at = to_rfc3339(SINCE)
    is_true = "True" if has_quota else "False"
    conditions = [
        {"type": type_, "status": is_true, "reason": "r", "message": "", "lastTransitionTime": at}
        for type_ in ("QuotaReserved", "Admitted")
    ]
    assignment = {"name": "main", "count": 1, "flavors": {}, "resourceUsage": {}}
    admission = {"clusterQueue": "cq", "podSetAssignments": [assignment]}
    return {
        "metadata": {
            "name": "w",
            "namespace": "team",
            "uid": "u",
            "resourceVersion": "7",
            "generation": 1,
            "annotations": {EVICTION: text},
        },
        "spec": {
            "queueName": "lq",
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {}}],
        },
        "status": {"conditions": conditions, **({"admission": admission} if has_quota else {})},
    }


def look(workload: Object, saving: SavingContext, **fields: Any) -> LifecycleResult:
    value, raw = read_workload(workload)
    return reconcile_workload(value, raw, LifecycleContext(saving=saving, **fields), now=NOW)


def waiting(**fields: Any) -> SavingContext:
    return SavingContext(**{"is_wanted": True, "pods": (POD,), **fields})


def annotations_of(result: LifecycleResult) -> dict[str, str | None]:
    """Return the annotations that the only write changes."""
    (write,) = result.actions
    assert isinstance(write, Write)
    annotations: dict[str, str | None] = msgspec.json.decode(write.body)["metadata"]["annotations"]
    return annotations


@pytest.mark.parametrize(
    ("ask_at", "want"),
    [
        pytest.param(NOW - 30, NOW - 30, id="when its own next checkpoint did not come"),
        pytest.param(NOW - 60, NOW - 60, id="at once"),
    ],
)
def test_a_pod_is_asked_for_a_checkpoint_that_is_newer_than_when_it_is_asked(
    ask_at: float, want: float
) -> None:
    result = look(make(replace(REQUEST, ask_at=ask_at)), waiting())

    assert annotations_of(result) == {
        CHECKPOINT_REQUESTED_AT: to_rfc3339(want),
        CHECKPOINT_DEADLINE: to_rfc3339(REQUEST.deadline),
    }
    assert result.wake_at == REQUEST.deadline


def test_a_pod_is_not_asked_for_a_checkpoint_from_before_the_request() -> None:
    """The annotation may be edited by hand."""
    written = msgspec.json.decode(render_request(REQUEST, namespace="team"))
    text = msgspec.json.encode({**written, "askAt": to_rfc3339(NOW - 600)}).decode()

    assert annotations_of(look(make(text), waiting()))[CHECKPOINT_REQUESTED_AT] == to_rfc3339(NOW - 60)


def test_a_pod_that_was_asked_is_not_asked_again() -> None:
    asked = {
        CHECKPOINT_REQUESTED_AT: to_rfc3339(REQUEST.requested_at),
        CHECKPOINT_DEADLINE: to_rfc3339(REQUEST.deadline),
    }

    assert look(make(), waiting(pods=(replace(POD, asked=asked),))).actions == ()


@pytest.mark.parametrize(
    ("reason", "stops", "want"),
    [
        pytest.param(
            EvictionReason.CLUSTER_QUEUE_STOPPED,
            {"cluster_queue_stop": StopPolicy.HOLD_AND_DRAIN},
            ["request-checkpoint"],
            id="its ClusterQueue is drained, it is to go",
        ),
        pytest.param(
            EvictionReason.CLUSTER_QUEUE_STOPPED,
            {"cluster_queue_stop": StopPolicy.HOLD},
            ["cancel-eviction"],
            id="its ClusterQueue only admits no more, it runs on",
        ),
        pytest.param(
            EvictionReason.CLUSTER_QUEUE_STOPPED,
            {"local_queue_stop": StopPolicy.HOLD},
            ["cancel-eviction"],
            id="its ClusterQueue is no longer stopped, it runs on",
        ),
        pytest.param(
            EvictionReason.LOCAL_QUEUE_STOPPED,
            {"local_queue_stop": StopPolicy.HOLD_AND_DRAIN},
            ["request-checkpoint"],
            id="its LocalQueue is drained, it is to go",
        ),
        pytest.param(
            EvictionReason.LOCAL_QUEUE_STOPPED,
            {"local_queue_stop": StopPolicy.HOLD},
            ["cancel-eviction"],
            id="its LocalQueue only admits no more, it runs on",
        ),
        pytest.param(
            EvictionReason.LOCAL_QUEUE_STOPPED,
            {"local_queue_stop": None},
            ["cancel-eviction"],
            id="its LocalQueue is gone, it runs on",
        ),
    ],
)
def test_of_a_queue_that_is_stopped(reason: EvictionReason, stops: dict[str, Any], want: list[str]) -> None:
    request = replace(REQUEST, reason=reason, preemptor=None, preemptor_uid="")
    # `is_wanted` is about a preemptor, and a stopped queue has none.
    pods = (replace(POD, asked={}),)

    assert purposes(look(make(request), SavingContext(is_wanted=False, pods=pods), **stops).actions) == want


@pytest.mark.parametrize(
    ("held_seconds", "want_wake", "want"),
    [
        pytest.param(1001, NOW + 1, [], id="is kept and looked at again when the hold ends"),
        pytest.param(1000, None, ["clear-eviction"], id="is removed at the instant at which it ends"),
        pytest.param(0, None, ["clear-eviction"], id="is removed at once where nothing is held"),
    ],
)
def test_a_request_that_was_carried_out(
    held_seconds: float, want_wake: float | None, want: list[str]
) -> None:
    result = look(make(has_quota=False), SavingContext(is_wanted=True, hold_seconds=held_seconds))

    assert purposes(result.actions) == want
    assert result.wake_at == want_wake
