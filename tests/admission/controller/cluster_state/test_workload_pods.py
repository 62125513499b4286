"""The pods of Workloads: who is to be asked, what they tell, and who is looked at for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.controller.cluster_state.workload_pods import WorkloadPods
from api import keys
from api.kube.informer import Change, ChangeType
from api.objects import PodObject
from api.workload import WorkloadKey, to_rfc3339

NOW = 1_769_860_800.0
SWEEP = WorkloadKey("team", "sweep")


class Heard:
    """Crews, and what they mark."""

    def __init__(self) -> None:
        self.marked: list[WorkloadKey] = []
        self.saved: list[str] = []
        self.workload_pods = WorkloadPods(self.marked.append, mark_saved=self.saved.append)

    def tell(self, name: str, type_: ChangeType = ChangeType.MODIFIED, **fields: Any) -> None:
        """Let them see a member of the group team/sweep; `annotations` are without their prefix."""
        told = {f"berth.dev/{key}": value for key, value in fields.pop("annotations", {}).items()}
        labels = {keys.MANAGED: "true", keys.POD_GROUP_NAME: "sweep", **fields.pop("labels", {})}
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "labels": labels,
            "annotations": told,
            "finalizers": [keys.POD_FINALIZER],
        }
        raw = msgspec.json.encode({"metadata": metadata, **fields})
        self.workload_pods.take_pod(Change(type_, msgspec.json.decode(raw, type=PodObject), None, None))

    def names(self) -> list[str]:
        """Return the pods of the group."""
        return [pod.name for pod in self.workload_pods.pods_of("team/sweep")]


@pytest.fixture
def heard() -> Heard:
    """Give crews that know two members of a watched group."""
    found = Heard()
    found.tell("a")
    found.tell("b")
    found.workload_pods.watch("team/sweep", SWEEP)
    return found


def test_all_members_that_run_are_asked(heard: Heard) -> None:
    heard.tell("waiting", spec={"schedulingGates": [{"name": keys.ADMISSION_GATE}]})
    heard.tell("done", status={"phase": "Succeeded"})

    assert heard.names() == ["a", "b"]


def test_the_newest_checkpoint_of_any_member_counts_for_the_group(heard: Heard) -> None:
    heard.tell("a", annotations={"checkpoint-time": to_rfc3339(NOW - 50)})
    heard.tell("b", annotations={"checkpoint-time": to_rfc3339(NOW - 90)})

    assert heard.workload_pods.saved_at("team/sweep") == NOW - 50
    assert heard.saved == ["team/sweep"] * 2


def test_a_workload_that_waits_is_looked_at_when_its_pods_tell_something_new(heard: Heard) -> None:
    heard.tell("a", annotations={"checkpoint-time": to_rfc3339(NOW)})
    heard.tell("b", ChangeType.DELETED)
    assert heard.marked == [SWEEP, SWEEP]

    heard.workload_pods.unwatch("team/sweep")
    heard.tell("a")

    assert heard.marked == [SWEEP, SWEEP]


def test_a_pod_that_changes_its_group_leaves_the_other(heard: Heard) -> None:
    heard.tell("a", labels={keys.POD_GROUP_NAME: "other"})

    assert heard.names() == ["b"]
    assert [pod.name for pod in heard.workload_pods.pods_of("team/other")] == ["a"]
