"""Whose group of a LeaderWorkerSet some pods are, by what they and its Workload carry."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from admission.controller.cluster_state.leader_worker_sets import LeaderWorkerSets
from api import keys
from api.jobs.pod import Pod
from api.kube.informer import Change, ChangeType
from api.objects.cluster import ScaledObject
from api.workload_decoding import to_template
from tests.builders import make_pod_set, make_workload


def scaled(replicas: int | None, type_: ChangeType = ChangeType.MODIFIED) -> Change[ScaledObject]:
    """Return a change of the set team/big."""
    metadata = {"name": "big", "namespace": "team", "uid": "u"}
    raw = msgspec.json.encode({"metadata": metadata, "spec": {"replicas": replicas}})
    return Change(type_, msgspec.json.decode(raw, type=ScaledObject), None, None)


def pod(name: str, *, group: str = "", namespace: str = "team", of: str = "big") -> Pod:
    labels = {keys.LEADER_WORKER_SET: of, **({keys.LEADER_WORKER_GROUP: group} if group else {})}
    return Pod(name=name, namespace=namespace, uid=name, labels=labels)


def sets(replicas: int | None = 2) -> LeaderWorkerSets:
    found = LeaderWorkerSets()
    found.take(scaled(replicas))
    return found


@pytest.mark.parametrize(
    ("replicas", "pods", "want"),
    [
        pytest.param(2, [pod("big-1", group="1")], True, id="a group that it is to have"),
        pytest.param(2, [pod("big-2", group="2")], False, id="one that it was scaled down by"),
        pytest.param(0, [pod("big-0", group="0")], False, id="any where it is to have none"),
        pytest.param(None, [pod("big-0", group="0")], True, id="one where it does not say how many"),
        pytest.param(2, [pod("big-2")], False, id="a leader without a number is numbered by its name"),
        pytest.param(2, [pod("x"), pod("big-2-1", group="2")], False, id="the number of any member counts"),
        pytest.param(2, [pod("x")], True, id="a group without a number stays"),
        pytest.param(2, [pod("x", group="9" * 5000)], True, id="and one whose number is none"),
        pytest.param(2, [pod("big-1", group="1", namespace="other")], None, id="pods of another namespace"),
        pytest.param(2, [pod("a-1", group="1", of="a")], None, id="pods of an unknown set"),
    ],
)
def test_a_set_keeps(replicas: int | None, pods: list[Pod], want: bool | None) -> None:
    schedule_plan = sets(replicas).set_of(pods)

    assert (schedule_plan.has_place if schedule_plan is not None else None) == want


def test_a_group_without_pods_is_known_by_its_workload() -> None:
    labels = {keys.LEADER_WORKER_SET: "big", keys.LEADER_WORKER_GROUP: "2"}
    template = to_template(msgspec.json.encode({"metadata": {"labels": labels}, "spec": {}}))
    workload = make_workload("g", namespace="team", pod_sets=(replace(make_pod_set(), template=template),))

    schedule_plan = sets(2).keeper_of_workload(workload)

    assert schedule_plan is not None
    assert (schedule_plan.reference.name, schedule_plan.has_place) == ("big", False)


def test_only_a_changed_set_is_news() -> None:
    known = LeaderWorkerSets()

    assert [known.take(scaled(count)) for count in (2, 2, 3)] == [True, False, True]
    assert known.take(scaled(3, ChangeType.DELETED))
    assert known.set_of([pod("big-0", group="0")]) is None
