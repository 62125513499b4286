"""What is reported of a Workload: every change once, with the version before."""

from __future__ import annotations

from admission.controller.cluster_state.observers import WorkloadTransition
from api.kube.informer import ChangeType
from api.workload import Workload
from tests.admission.controller.known import Known, workload_object


class Stage:
    """A cluster state, and what it reports: the priorities before and after each change."""

    def __init__(self) -> None:
        self.known = Known()
        self.reported: list[tuple[int | None, int | None]] = []
        self.known.cluster_state.observers.workload_changed.append(self._observe)

    def _observe(self, change: WorkloadTransition) -> None:
        before, after = change.before, change.after
        # The object cache has taken the change when it is reported.
        seen = self.known.cluster_state.workloads.get(change.workload.key)
        assert (seen.value if seen is not None else None) == after
        self.reported.append((_priority(before), _priority(after)))


def _priority(workload: Workload | None) -> int | None:
    return None if workload is None else workload.priority


def test_a_workload_is_reported_as_it_is_created_changed_and_deleted() -> None:
    stage = Stage()

    stage.known.tell(workload_object("w", "team", "main", priority=1))
    stage.known.tell(workload_object("w", "team", "main", priority=2), ChangeType.MODIFIED)
    stage.known.tell(workload_object("w", "team", "main", priority=2), ChangeType.DELETED)

    assert stage.reported == [(None, 1), (1, 2), (2, None)]


def test_a_version_that_the_answer_to_a_write_has_shown_is_not_reported_by_the_watch() -> None:
    stage = Stage()
    stage.known.tell(workload_object("w", "team", "main", priority=1))
    seen = stage.known.cluster_state.workloads.get(("team", "w"))
    assert seen is not None

    assert stage.known.cluster_state.see_raw("Workload", seen.raw)

    assert stage.reported == [(None, 1)]


def test_the_deletion_of_a_workload_that_was_never_known_is_not_reported() -> None:
    stage = Stage()

    stage.known.tell(workload_object("w", "team", "main"), ChangeType.DELETED)

    assert stage.reported == []
