"""Which pods the controller keeps, in which units, and which of them it looks at again."""

from __future__ import annotations

from typing import Any

import pytest

from admission.controller.cluster_state.cluster_state import ClusterStateSettings
from admission.controller.cluster_state.pod_groups import UnitKey
from api import keys
from api.kube.informer import ChangeType
from tests.admission.controller.known import Known, made
from tests.admission.podworld import member_object, pod_object

Object = dict[str, Any]
SETTINGS = ClusterStateSettings(with_pods=True, serving_kinds=frozenset({"StatefulSet"}))
ALONE, GROUP = UnitKey("team", "", "p"), UnitKey("team", "g", "")


def dirty(known: Known) -> list[UnitKey]:
    """Return the units that are to be looked at, and take their marks away."""
    found = []
    while (unit := known.cluster_state.pods.take_dirty()) is not None:
        found.append(unit)
    return found


def members(known: Known, unit: UnitKey) -> list[str]:
    """Return the names of a unit's pods."""
    return sorted(seen.value.name for seen in known.cluster_state.pods.members(unit))


def test_pods_are_kept_by_the_units_in_which_they_are_admitted() -> None:
    known = Known(pod_object(), member_object("a"), member_object("b"), settings=SETTINGS)

    assert (members(known, ALONE), members(known, GROUP)) == (["p"], ["a", "b"])
    assert dirty(known) == [ALONE, GROUP]


def test_a_pod_of_a_job_is_passed_over_though_it_carries_the_label() -> None:
    pod = pod_object()
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    ]
    # Only the webhook adds these, and it adds none to a pod that its Job counts.
    del pod["metadata"]["finalizers"], pod["spec"]["schedulingGates"]

    assert dirty(Known(pod, settings=SETTINGS)) == []


def test_a_pod_that_was_ungated_elsewhere_is_left_alone() -> None:
    bare = pod_object()
    del bare["metadata"]["finalizers"]
    known = Known(bare, settings=SETTINGS)

    known.tell({**bare, "spec": {**bare["spec"], "schedulingGates": []}}, ChangeType.MODIFIED)

    assert members(known, ALONE) == []
    assert known.cluster_state.pods.has_gone("uid-p")


def test_the_others_of_a_group_are_looked_at_when_one_is_gone() -> None:
    known = Known(member_object("a"), member_object("b"), settings=SETTINGS)
    dirty(known)

    known.tell(member_object("a"), ChangeType.DELETED)

    assert dirty(known) == [GROUP]
    assert members(known, GROUP) == ["b"]


def test_a_deletion_that_was_taken_is_not_asked_for_again() -> None:
    known = Known(pod_object(), settings=SETTINGS)

    known.cluster_state.pods.note_deletion(("team", "p"), "uid-p")

    seen = known.cluster_state.pods.get(("team", "p"))
    assert seen is not None
    assert seen.value.is_deleted


def test_a_recorded_deletion_holds_though_an_earlier_change_is_seen_later() -> None:
    known = Known(pod_object(), settings=SETTINGS)
    known.cluster_state.pods.note_deletion(("team", "p"), "uid-p")

    # As an eviction writes to the pod why it ends before it deletes it.
    known.tell(pod_object(annotations={"reason": "why"}), ChangeType.MODIFIED)

    seen = known.cluster_state.pods.get(("team", "p"))
    assert seen is not None
    assert (seen.value.annotations, seen.value.is_deleted) == ({"reason": "why"}, True)
    known.tell(pod_object(), ChangeType.DELETED)
    known.tell({**pod_object(), "metadata": {**pod_object()["metadata"], "uid": "uid-next"}})
    seen = known.cluster_state.pods.get(("team", "p"))
    assert seen is not None
    assert not seen.value.is_deleted


def test_a_changed_workload_marks_its_pods() -> None:
    known = Known(pod_object(), member_object("a"), settings=SETTINGS)
    dirty(known)
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}

    known.tell(made("Workload", "g", "team", annotations={keys.IS_GROUP_WORKLOAD: "true"}, spec=spec))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    known.tell(made("Workload", "pod-p", "team", owners=[owner], spec=spec))

    assert dirty(known) == [GROUP, ALONE]


def test_a_group_that_lost_its_last_pod_is_looked_at_with_its_workload_where_it_has_one() -> None:
    known = Known(member_object("a"), settings=SETTINGS)
    spec = {"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]}
    known.tell(made("Workload", "g", "team", annotations={keys.IS_GROUP_WORKLOAD: "true"}, spec=spec))
    known.tell(pod_object())
    dirty(known)
    marks = known.cluster_state.marks
    marks.take_workload()

    known.tell(member_object("a"), ChangeType.DELETED)

    assert dirty(known) == [GROUP]
    assert marks.take_workload() == ("team", "g")
    known.tell(pod_object(), ChangeType.DELETED)
    assert (dirty(known), marks.take_workload()) == ([], None)


def test_without_the_integration_pods_are_ignored() -> None:
    known = Known()
    known.cluster_state.pods.see_raw(b"{}")

    assert len(known.cluster_state.pods) == 0


@pytest.mark.parametrize("is_pod_first", [True, False], ids=["the pod is seen first", "the Workload is"])
def test_a_pod_that_was_never_gated_is_kept_while_its_own_workload_holds_quota(is_pod_first: bool) -> None:
    pod = pod_object()
    del pod["metadata"]["finalizers"], pod["spec"]["schedulingGates"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    flavors = {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1"}}
    reserved = {"type": "QuotaReserved", "status": "True", "reason": "Imported", "message": ""}
    workload = made(
        "Workload",
        "pod-p",
        "team",
        owners=[owner],
        spec={"podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": []}}}]},
        status={
            "admission": {"clusterQueue": "cq", "podSetAssignments": [flavors]},
            "conditions": [{**reserved, "lastTransitionTime": "2026-11-01T00:00:00Z"}],
        },
    )
    known = Known(*((pod, workload) if is_pod_first else (workload, pod)), settings=SETTINGS)

    assert members(known, ALONE) == ["p"]
    assert dirty(known) == [ALONE]
    known.tell(workload, ChangeType.DELETED)
    assert members(known, ALONE) == []
