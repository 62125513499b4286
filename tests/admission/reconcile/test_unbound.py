"""Pods that kube-scheduler cannot bind: their nodes are excluded, and the Workload queues again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.decisions.api_writes import Purpose, Write
from admission.reconcile.workload.context import (
    LifecycleContext,
    LifecycleResult,
    LifecycleSettings,
    PlacedPod,
    Unschedulable,
)
from admission.reconcile.workload.reconcile import reconcile_workload
from api.excluded_nodes import excluded_text, parse_excluded
from api.parsing.times import to_rfc3339
from api.policy import Recovery
from api.workload import Condition, Workload
from tests.admission.engine.test_lost_nodes import make_gang, make_pod

NOW = 10_000.0
RECOVERY = Recovery()
WORDS = "0/2 nodes are available: 1 node(s) didn't have free ports"


def unbound(name: str = "p0", *, host: str = "n0", for_seconds: float = 60.0) -> PlacedPod:
    """Return a pod that kube-scheduler has refused for so long."""
    refused = Unschedulable(since=NOW - for_seconds, message=WORDS)
    return replace(make_pod(name, host=host, is_bound=False), unschedulable=refused)


def gang(*, excluded: dict[str, float] | None = None, **fields: Any) -> Workload:
    """Return an admitted Workload of the Job `job` with pods on n0 and n1."""
    text = excluded_text(excluded or {})
    annotations = {"berth.dev/excluded-nodes": text} if text else {}
    return make_gang(owner_name="job", annotations=annotations, **fields)


def in_racks() -> Workload:
    """Return an admitted Workload of the Job `job` whose pods were assigned racks, not nodes."""
    workload = gang()
    assert workload.admission is not None
    (placed,) = workload.admission.pod_sets
    assert placed.topology is not None
    racks = replace(placed, topology=replace(placed.topology, levels=("rack",)))
    return replace(workload, admission=replace(workload.admission, pod_sets=(racks,)))


def look(workload: Workload, *pods: PlacedPod, recovery: Recovery | None = RECOVERY) -> LifecycleResult:
    """Return what the Workload needs."""
    settings = LifecycleSettings(pods_ready=None)
    context = LifecycleContext(faults=(), pods=pods, recovery=recovery, settings=settings)
    conditions = [
        {"type": one.type, "status": str(one.status), "reason": one.reason, "message": one.message}
        for one in workload.conditions.values()
    ]
    raw = msgspec.json.encode({"status": {"conditions": conditions}})
    return reconcile_workload(workload, raw, context, now=NOW)


def the_write(result: LifecycleResult) -> Write:
    """Return its only action, a write."""
    (action,) = result.actions
    assert isinstance(action, Write)
    return action


def excluded_by(result: LifecycleResult) -> dict[str, float]:
    """Return the excluded nodes as they are written."""
    write = the_write(result)
    assert write.purpose is Purpose.SYNC_NODES
    annotations = msgspec.json.decode(write.body)["metadata"]["annotations"]
    return parse_excluded(annotations["berth.dev/excluded-nodes"] or "")


def test_the_node_of_an_unbound_pod_is_excluded_with_events_in_the_words_of_kube_scheduler() -> None:
    result = look(gang(excluded={"n7": NOW - 5}), unbound(), make_pod("p1", host="n1"))

    assert excluded_by(result) == {"n0": NOW, "n7": NOW - 5}
    note = f"Pod p0 could not be bound to node n0 within 60 s: {WORDS}"
    events = [(one.regarding.kind, one.type, one.reason, one.note) for one in the_write(result).events]
    assert events == [(kind, "Warning", "PodsUnschedulable", note) for kind in ("Workload", "Job")]


def test_once_its_node_is_excluded_the_workload_is_evicted_and_queues_again_at_once() -> None:
    write = the_write(look(gang(excluded={"n0": NOW}), unbound()))

    conditions = {one["type"]: one for one in msgspec.json.decode(write.body)["status"]["conditions"]}
    assert write.purpose is Purpose.EVICT
    assert conditions["Evicted"]["reason"] == "PodsUnschedulable"
    assert "Requeued" not in conditions, "it waits for nothing"
    assert conditions["Evicted"]["message"] == f"Pod p0 could not be bound to node n0 within 60 s: {WORDS}"


@pytest.mark.parametrize(
    ("workload", "pods", "recovery", "wake_at"),
    [
        pytest.param(gang(), [unbound(for_seconds=59)], Recovery(), NOW + 1, id="its time is not over"),
        pytest.param(gang(), [unbound()], None, None, id="no policy asks for recovery"),
        pytest.param(gang(), [unbound()], Recovery(unschedulable_seconds=0), None, id="the limit is 0"),
        pytest.param(gang(), [make_pod("p0", host="n0", is_bound=False)], Recovery(), None, id="not refused"),
    ],
)
def test_nothing_is_done_where(
    workload: Workload, pods: list[PlacedPod], recovery: Recovery | None, wake_at: float | None
) -> None:
    result = look(workload, *pods, recovery=recovery)

    assert (result.actions, result.wake_at) == ((), wake_at)


def test_without_quota_the_pod_is_failed_and_no_node_is_excluded() -> None:
    write = the_write(look(gang(conditions={}), unbound()))

    assert (write.purpose, write.kind, write.name) == (Purpose.FAIL_POD, "Pod", "p0")


def test_a_waiting_workload_may_try_a_node_again_after_an_hour() -> None:
    waiting = gang(excluded={"n0": NOW - 3600, "n1": NOW - 3590}, conditions={})

    assert excluded_by(look(waiting)) == {"n1": NOW - 3590}
    assert look(gang(excluded={"n1": NOW - 3590}, conditions={})).wake_at == NOW + 10


def test_at_most_eight_nodes_are_excluded_the_newest() -> None:
    before = {f"old-{index}": NOW - 100 + index for index in range(8)}

    excluded = excluded_by(look(gang(excluded=before), unbound()))

    assert "n0" in excluded
    assert before.keys() - excluded.keys() == {"old-0"}


def test_entries_that_cannot_be_read_exclude_no_node() -> None:
    assert parse_excluded(f"n0,n1=soon,n2={to_rfc3339(NOW)},") == {"n2": NOW}


def test_pods_without_a_node_of_their_own_are_reported_once_and_until_they_have_one() -> None:
    pod, workload = unbound(host="of-its-own"), in_racks()

    write = the_write(look(workload, pod))

    (condition,) = (
        one
        for one in msgspec.json.decode(write.body)["status"]["conditions"]
        if one["type"] == "berth.dev/PodsUnschedulable"
    )
    assert (condition["status"], condition["reason"]) == ("True", "Unschedulable")
    assert condition["message"] == f"Pod p0 could not be bound within 60 s: {WORDS}"
    assert [event.regarding.kind for event in write.events] == ["Workload", "Job"]
    reported = Condition(type="berth.dev/PodsUnschedulable", status=True, reason="Unschedulable")
    known = replace(workload, conditions={**workload.conditions, reported.type: reported})
    assert look(known, pod).actions == ()
    assert look(known, unbound(host="of-its-own", for_seconds=1)).actions == ()
    assert b"All pods have nodes" in the_write(look(known)).body
