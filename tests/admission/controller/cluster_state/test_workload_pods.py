"""The pods of Workloads: which are to be asked, what they report, and which Workload is looked at for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.controller.cluster_state.workload_pods import WorkloadPods
from api import keys
from api.kube.informer import Change, ChangeType
from api.objects.cluster import PodObject
from api.parsing.times import to_rfc3339
from api.workload import WorkloadKey

NOW = 1_769_860_800.0
SWEEP = WorkloadKey("team", "sweep")


class Watched:
    """The pods of Workloads, and what their changes mark."""

    def __init__(self) -> None:
        self.marked: list[WorkloadKey] = []
        self.saved: list[str] = []
        self.workload_pods = WorkloadPods(self.marked.append, mark_saved=self.saved.append)

    def see(self, name: str, type_: ChangeType = ChangeType.MODIFIED, **fields: Any) -> None:
        """Let it see a member of the group team/sweep; `annotations` are without their prefix."""
        own = {f"berth.dev/{key}": value for key, value in fields.pop("annotations", {}).items()}
        labels = {keys.MANAGED: "true", keys.POD_GROUP_NAME: "sweep", **fields.pop("labels", {})}
        metadata = {
            "name": name,
            "namespace": "team",
            "uid": f"u-{name}",
            "labels": labels,
            "annotations": own,
            "finalizers": [keys.POD_FINALIZER],
        }
        raw = msgspec.json.encode({"metadata": metadata, **fields})
        self.workload_pods.take_pod(Change(type_, msgspec.json.decode(raw, type=PodObject), None, None))

    def names(self) -> list[str]:
        """Return the pods of the group."""
        return [pod.name for pod in self.workload_pods.pods_of("team/sweep")]


@pytest.fixture
def watched() -> Watched:
    """Give the pods of a watched group with two members."""
    found = Watched()
    found.see("a")
    found.see("b")
    found.workload_pods.watch("team/sweep", SWEEP)
    return found


def test_all_members_that_run_are_asked(watched: Watched) -> None:
    watched.see("waiting", spec={"schedulingGates": [{"name": keys.ADMISSION_GATE}]})
    watched.see("done", status={"phase": "Succeeded"})

    assert watched.names() == ["a", "b"]


def test_the_newest_checkpoint_of_any_member_counts_for_the_group(watched: Watched) -> None:
    watched.see("a", annotations={"checkpoint-time": to_rfc3339(NOW - 50)})
    watched.see("b", annotations={"checkpoint-time": to_rfc3339(NOW - 90)})

    assert watched.workload_pods.saved_at("team/sweep") == NOW - 50
    assert watched.saved == ["team/sweep"] * 2


def test_a_workload_that_waits_is_looked_at_when_its_pods_report_something_new(watched: Watched) -> None:
    watched.see("a", annotations={"checkpoint-time": to_rfc3339(NOW)})
    watched.see("b", ChangeType.DELETED)
    assert watched.marked == [SWEEP, SWEEP]

    watched.workload_pods.unwatch("team/sweep")
    watched.see("a")

    assert watched.marked == [SWEEP, SWEEP]


def test_a_pod_that_changes_its_group_leaves_the_other(watched: Watched) -> None:
    watched.see("a", labels={keys.POD_GROUP_NAME: "other"})

    assert watched.names() == ["b"]
    assert [pod.name for pod in watched.workload_pods.pods_of("team/other")] == ["a"]
