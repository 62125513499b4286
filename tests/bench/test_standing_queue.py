"""The queue that keeps Kueue's runner recording until the controller has reported every Workload."""

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
        self.others = 0

    def create(self, path: str, body: Any) -> None:
        assert self.objects.setdefault(f"{path}/{body['metadata']['name']}", body) is body

    def get(self, path: str) -> Any:
        if path.endswith("/workloads?limit=1"):
            rest = len(self.workloads) + self.others - 1
            return {"items": [{}], "metadata": {"remainingItemCount": rest} if rest else {}}
        return self.objects[path]

    def delete(self, path: str, options: object = None) -> None:
        del self.objects[path]

    @property
    def workloads(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.objects if "/workloads/" in path]

    def report(self, *, pending: int, active: str = "True") -> None:
        """Write the queue's status, as a controller would."""
        [queue] = [one for one in self.objects.values() if one["kind"] == "ClusterQueue"]
        conditions = [{"type": "Active", "status": active}]
        queue["status"] = {"conditions": conditions, "pendingWorkloads": pending}


@pytest.fixture
def server() -> Objects:
    return Objects()


@pytest.fixture
def queue(server: Objects) -> StandingQueue:
    queue = StandingQueue(server, answer_seconds=1.0)
    queue.create()
    return queue


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The only element is the time in seconds."""
    now = [100.0]
    monkeypatch.setattr("bench.versus.standing_queue.time.monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("active", "pending", "want"),
    [
        pytest.param("False", 1, 0, id="the queue is not active yet"),
        pytest.param("True", 0, 0, id="the Workload is not known yet"),
        pytest.param("True", 1, 1, id="the queue is active and the Workload waits"),
    ],
)
def test_a_controller_works_once_it_reports_the_workload(
    server: Objects, queue: StandingQueue, active: str, pending: int, want: int
) -> None:
    assert queue.reported == 0
    server.report(active=active, pending=pending)

    assert queue.reported == want


def test_the_queue_is_emptied_a_moment_after_a_workload_created_last_is_reported(
    server: Objects, queue: StandingQueue, clock: list[float]
) -> None:
    def look() -> list[str]:
        queue.empty_once_all_reported(10)
        return server.workloads

    server.report(pending=1)
    server.others = 9
    assert look() == ["standing-first"]
    server.others = 10
    assert look() == ["standing-first", "standing-last"]
    assert look() == look() == ["standing-first", "standing-last"]
    server.report(pending=2)
    look()
    clock[0] += 3.9
    assert len(look()) == 2
    clock[0] += 0.1
    assert not queue.is_empty
    assert look() == []
    assert queue.is_empty
    look()
