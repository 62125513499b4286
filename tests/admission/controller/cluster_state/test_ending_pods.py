"""Pods on nodes that nothing reaches: which are given up, when, and by which writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.writer.write_order import ObjectTarget
from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube.informer import ChangeType
from tests.admission.controller.known import Known, Object, made

SETTINGS = ClusterStateSettings(gives_up_pods=True)
KEY = "kueue.x-k8s.io/safe-to-forcefully-delete"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
TARGET = ObjectTarget("Pod", "team", "p")
GIVEN_UP = {"type": "KueueFailureRecovery", "status": "True"}
# By then the pod should have ended, in seconds after the beginning.
ENDS_AT, GRACE = 30, 30


def node(*taints: Object, name: str = "n1") -> Object:
    """Return a node."""
    return made("Node", name, version="v1", spec={"taints": list(taints)}, status={})


def pod(
    known: Known, *, allows: str = "true", ends_at: float | None = ENDS_AT, grace: int = GRACE, **status: Any
) -> Object:
    """Return a pod on n1 that is deleted and has until `ends_at`."""
    obj = made("Pod", "p", "team", version="v1", annotations={KEY: allows}, spec={"nodeName": "n1"})
    obj["status"] = {"phase": "Running", **status}
    if ends_at is not None:
        at = datetime.fromtimestamp(known.clock.now() + ends_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        obj["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": grace}
    return obj


def due(known: Known, *busy: ObjectTarget) -> tuple[Write, ...]:
    """Return what is to be written now."""
    return known.cluster_state.ending_pods.take_due(lambda target: target in busy)


@pytest.mark.parametrize(
    ("changes", "taints", "after", "is_given_up"),
    [
        pytest.param({}, [UNREACHABLE], 91, True, id="a minute after its grace period it is given up"),
        pytest.param({}, [UNREACHABLE], 89, False, id="until then it may end by itself"),
        pytest.param({}, [NOT_READY], 91, False, id="a node that is not ready still answers"),
        pytest.param({}, [], 91, False, id="a healthy node will end it"),
        pytest.param({"allows": "false"}, [UNREACHABLE], 91, False, id="without its consent it stays"),
        pytest.param({"ends_at": None}, [UNREACHABLE], 91, False, id="a pod that is not deleted stays"),
        pytest.param({"grace": 0}, [UNREACHABLE], 91, False, id="one that was deleted by force has ended"),
    ],
)
def test_a_pod_is_given_up_if_it_allows_it_and_its_node_is_out_of_reach(
    changes: dict[str, Any], taints: list[Object], after: float, is_given_up: bool
) -> None:
    known = Known(node(*taints), settings=SETTINGS)
    known.tell(pod(known, **changes))
    known.clock.at += after

    assert [write.purpose for write in due(known)] == ([Purpose.GIVE_UP_POD] if is_given_up else [])


@pytest.mark.parametrize(
    ("phase", "written"),
    [
        pytest.param("Running", "Failed", id="a pod that ran has failed"),
        pytest.param("Succeeded", None, id="one that had succeeded keeps that"),
        pytest.param("Failed", None, id="one that had failed keeps that"),
    ],
)
def test_a_condition_says_why_before_the_pod_is_deleted(phase: str, written: str | None) -> None:
    known = Known(node(UNREACHABLE), settings=SETTINGS)
    known.tell(pod(known, phase=phase))
    known.clock.at += 91

    (first,) = due(known)

    assert (first.verb, first.subresource) == (Verb.STRATEGIC_PATCH, "status")
    status = msgspec.json.decode(first.body)["status"]
    (condition,) = status["conditions"]
    note = (
        "Pod forcefully terminated after 90s grace period due to unreachable node `n1`"
        " (triggered by `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)"
    )
    assert status.get("phase") == written
    assert (condition["type"], condition["reason"]) == ("KueueFailureRecovery", "KueueForcefullyDeleted")
    assert condition["message"] == note
    assert [event.note for event in first.events] == [note]

    known.tell(pod(known, ends_at=ENDS_AT - 91, phase="Failed", conditions=[GIVEN_UP]))
    (second,) = due(known)
    assert second.verb is Verb.DELETE
    assert msgspec.json.decode(second.body)["gracePeriodSeconds"] == 0


def test_a_node_that_is_lost_later_ends_the_pods_that_wait_on_it() -> None:
    known = Known(node(), settings=SETTINGS)
    known.tell(pod(known))
    known.clock.at += 91
    assert due(known) == ()

    known.tell(node(UNREACHABLE, name="n2"))
    assert due(known) == ()
    known.tell(node(UNREACHABLE))

    assert len(due(known)) == 1


def test_a_pod_that_waits_for_its_time_is_looked_at_then() -> None:
    known = Known(node(UNREACHABLE), settings=SETTINGS)
    known.tell(pod(known))
    began = known.clock.now()

    assert due(known) == ()
    assert known.cluster_state.ending_pods.next_at() == pytest.approx(began + 90, abs=1)


def test_a_pod_that_is_being_written_stays_due() -> None:
    known = Known(node(UNREACHABLE), settings=SETTINGS)
    known.tell(pod(known))
    known.clock.at += 91

    assert due(known, TARGET) == ()
    assert len(due(known)) == 1
    # Until something changes: the answer, or the end of the pause after a refusal.
    assert due(known) == ()
    known.cluster_state.mark("Pod", ("team", "p"))
    assert len(due(known)) == 1


def test_a_pod_that_is_gone_needs_nothing() -> None:
    known = Known(node(UNREACHABLE), settings=SETTINGS)
    known.tell(pod(known))
    known.clock.at += 91

    known.tell(pod(known), ChangeType.DELETED)

    assert due(known) == ()


def test_the_nodes_are_watched_for_it_and_nothing_is_kept_without_the_gate() -> None:
    known, off = Known(node(UNREACHABLE), settings=SETTINGS), Known(node(UNREACHABLE))
    off.tell(pod(off))
    off.clock.at += 91

    assert known.cluster_state.nodes.needed.is_set()
    assert not off.cluster_state.nodes.needed.is_set()
    assert due(off) == ()
