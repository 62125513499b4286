"""The queue that keeps Kueue's runner recording until the controller knows every Workload."""

from __future__ import annotations

from typing import Any

import pytest

from bench.versus.standing_queue import StandingQueue
from tests.controlplane.rest import Rest


class Objects(Rest):
    """An API server that keeps what is created, by path, and to which no controller is connected."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1")
        self.objects: dict[str, dict[str, Any]] = {}

    def create(self, path: str, body: Any) -> None:
        self.objects[f"{path}/{body['metadata']['name']}"] = body

    def get(self, path: str) -> Any:
        return self.objects[path]

    def delete(self, path: str, options: object = None) -> None:
        del self.objects[path]

    def of(self, kind: str) -> dict[str, Any]:
        """Return the only object of a kind."""
        [found] = [one for one in self.objects.values() if one["kind"] == kind]
        return found


@pytest.fixture
def server() -> Objects:
    return Objects()


@pytest.fixture
def queue(server: Objects) -> StandingQueue:
    queue = StandingQueue(server)
    queue.create()
    return queue


def metrics(*, pending: int, reserving: int, finished: int) -> str:
    return (
        f'kueue_pending_workloads{{cluster_queue="standing"}} 1\n'
        f'kueue_pending_workloads{{cluster_queue="a"}} {pending}\n'
        f'kueue_reserving_active_workloads{{cluster_queue="a"}} {reserving}\n'
        f'kueue_finished_workloads{{cluster_queue="a"}} {finished}\n'
    )


@pytest.mark.parametrize(
    ("status", "want"),
    [
        pytest.param(None, False, id="a controller has not written a status"),
        pytest.param(("False", 1), False, id="the queue is not active yet"),
        pytest.param(("True", 0), False, id="the Workload is not known yet"),
        pytest.param(("True", 1), True, id="the queue is active and the Workload waits"),
    ],
)
def test_a_controller_works_once_it_reports_the_workload(
    server: Objects, queue: StandingQueue, status: tuple[str, int] | None, want: bool
) -> None:
    if status is not None:
        conditions = [{"type": "Active", "status": status[0]}]
        server.of("ClusterQueue")["status"] = {"conditions": conditions, "pendingWorkloads": status[1]}

    assert queue.is_reported() is want


@pytest.mark.parametrize(
    ("text", "want_empty"),
    [
        pytest.param("", False, id="the controller did not answer in time"),
        pytest.param(metrics(pending=3, reserving=2, finished=4), False, id="one Workload is on its way"),
        pytest.param(metrics(pending=3, reserving=2, finished=5), True, id="all are known"),
        pytest.param(metrics(pending=0, reserving=0, finished=10), True, id="all have finished"),
    ],
)
def test_the_queue_is_emptied_once_the_controller_knows_all_workloads(
    server: Objects, queue: StandingQueue, text: str, want_empty: bool
) -> None:
    queue.empty_once_all_known(text, 10)

    assert queue.is_empty is want_empty
    assert any("/workloads/" in path for path in server.objects) is not want_empty


def test_the_queue_is_emptied_only_once(server: Objects, queue: StandingQueue) -> None:
    text = metrics(pending=0, reserving=0, finished=11)

    queue.empty_once_all_known(text, 10)
    queue.empty_once_all_known(text, 10)

    assert queue.is_empty
