"""The status board: what is due, in which order, and how much at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.controller.loop.status_writer import (
    BURST,
    ROUND_SECONDS,
    WRITES_PER_SECOND,
    BoardKey,
    StatusWriter,
)
from admission.decisions.api_writes import Purpose, Write
from api.kube.report_budget import WriteLoad
from api.objects.common import Meta
from tests.admission.controller.known import (
    Known,
    cluster_queue_object,
    local_queue_object,
    made,
    namespace_object,
    workload_object,
)

NOW = 1_800_000_000.0


class Stage:
    """A board of ClusterQueues, named q0, q1, ... `are_new`: none has a status yet."""

    def __init__(self, queues: int = 1, *, are_new: bool = False) -> None:
        self.busy: set[BoardKey] = set()
        names = [f"q{number}" for number in range(queues)]
        self.known = Known(made("ResourceFlavor", "f"), *(cluster_queue_object(name, "4") for name in names))
        self.load = WriteLoad()
        self.board = StatusWriter(
            self.known.cluster_state.engine, self.load, with_share=False, is_busy=lambda key: key in self.busy
        )
        shown: dict[str, Any] = {} if are_new else {"conditions": [{"type": "Active", "status": "Unknown"}]}
        for name in names:
            self.see(name, **shown)

    def see(self, name: str, *, uid: str = "first", version: str = "5", **status: Any) -> None:
        """Let the board see the queue."""
        metadata = Meta(name=name, uid=uid, resource_version=version)
        raw = {"metadata": {"name": name, "uid": uid, "resourceVersion": version}, "status": status}
        self.board.see("ClusterQueue", metadata, msgspec.json.encode(raw))

    def due(self, at: float = 0.0) -> list[Write]:
        """Return the writes of this second."""
        return [write for write in self.board.due(now=NOW, monotonic=at) if write is not None]


def test_a_queue_is_written_once_and_again_when_its_status_is_lost() -> None:
    stage = Stage()
    (write,) = stage.due()
    assert (write.name, write.subresource, write.resource_version) == ("q0", "status", "5")
    assert stage.due() == []

    stage.see("q0", version="6")

    assert [one.resource_version for one in stage.due()] == ["6"]


def test_a_status_that_another_writer_replaces_again_and_again_is_written_once_a_second() -> None:
    stage = Stage()
    (write,) = stage.due()
    written, times = 0, 30
    for number in range(times):
        ours, theirs, at = str(6 + 2 * number), str(7 + 2 * number), 0.1 * number
        stage.board.note_written(
            write, msgspec.json.encode({"metadata": {"name": "q0", "resourceVersion": ours}})
        )
        stage.see("q0", version=theirs)
        written += len(stage.due(at))

    assert written == 3
    stage.see("q0", version="1000")
    assert [one.resource_version for one in stage.due(10.0)] == ["1000"]


def test_a_queue_whose_quota_is_cut_below_its_use_gets_a_warning_once() -> None:
    stage = Stage()
    admitted = workload_object(
        "w",
        "team",
        "lq",
        status={
            "admission": {
                "clusterQueue": "q0",
                "podSetAssignments": [
                    {"name": "main", "count": 1, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
                ],
            },
            "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "r", "message": ""}],
        },
    )
    for obj in (namespace_object("team"), local_queue_object("lq", "team", "q0"), admitted):
        stage.known.tell(obj)
    stage.due()
    stage.known.tell(cluster_queue_object("q0", "1"))
    said = []
    for version in "67":
        stage.see("q0", version=version)
        (write,) = stage.due()
        said.append([event.note for event in write.events])

    assert said == [
        [
            "ClusterQueue q0 uses 2 cpu of flavor f more than its quota allows. Nothing is stopped for that;"
            " nothing more of it is admitted until as much has ended"
        ],
        [],
    ]


def test_a_status_that_says_it_already_is_not_written() -> None:
    stage = Stage()
    (write,) = stage.due()

    stage.see("q0", version="6", **msgspec.json.decode(write.body)["status"])

    assert stage.due() == []


@pytest.mark.parametrize(
    ("uid", "version", "want"),
    [
        pytest.param("first", "4", [], id="an older version says nothing"),
        pytest.param("first", "5", [], id="the same version neither"),
        pytest.param("second", "4", ["second"], id="another object of the name does"),
    ],
)
def test_what_arrives_late(uid: str, version: str, want: list[str]) -> None:
    stage = Stage()
    stage.due()

    stage.see("q0", uid=uid, version=version)

    assert [write.uid for write in stage.due()] == want


def test_a_queue_with_a_write_on_its_way_waits_for_the_answer() -> None:
    stage = Stage()
    stage.busy.add(("ClusterQueue", "", "q0"))
    assert stage.due() == []

    stage.busy.clear()

    assert [write.name for write in stage.due()] == ["q0"]


def test_a_queue_that_is_gone_is_not_written() -> None:
    stage = Stage(queues=2)

    stage.board.forget("ClusterQueue", Meta(name="q0", uid="first"))
    stage.board.forget("ClusterQueue", Meta(name="q1", uid="an earlier one of the name"))

    assert [write.name for write in stage.due()] == ["q1"]


def test_the_budget_is_a_burst_and_then_a_steady_rate() -> None:
    stage = Stage(queues=int(BURST) + 20)

    assert len(stage.due(at=0.0)) == BURST
    assert stage.due(at=0.0) == []
    assert len(stage.due(at=2.0)) == 2 * WRITES_PER_SECOND


def test_statuses_make_way_for_decisions() -> None:
    stage = Stage(queues=int(BURST))
    stage.load.decided += int(BURST)
    stage.load.is_behind = True

    assert [len(stage.due(at=at)) for at in (0.0, 0.5, 1.0, 1.5)] == [1, 0, 1, 0]


def test_first_statuses_are_all_written_at_once_whatever_else_is_to_be_written() -> None:
    stage = Stage(queues=3 * int(BURST), are_new=True)
    stage.load.decided += int(BURST)
    stage.load.is_behind = True

    first = stage.due()

    assert len(first) == 3 * BURST
    # The next ones wait for the budget, though nothing has shown the first yet.
    for write in first:
        stage.board.mark("ClusterQueue", "", write.name)
    assert len(stage.due(at=1.0)) == 1


def test_a_new_queue_comes_before_all_that_wait() -> None:
    stage = Stage(queues=int(BURST) + 2)
    stage.due(at=0.0)
    stage.known.tell(cluster_queue_object("new", "4"))

    stage.see("new")

    assert [write.name for write in stage.due(at=0.0)] == ["new"]
    assert stage.board.seconds_to_next(0.0) is not None


def test_each_of_many_statuses_is_written_within_a_round() -> None:
    queues = int(ROUND_SECONDS * WRITES_PER_SECOND * 4)
    stage = Stage(queues=queues)

    written = [len(stage.due(at=float(second))) for second in range(int(ROUND_SECONDS) + 1)]

    assert written[1] == queues / ROUND_SECONDS
    assert sum(written) == queues


def test_many_statuses_wait_for_quiet_times() -> None:
    stage = Stage(queues=int(ROUND_SECONDS * WRITES_PER_SECOND * 4))
    stage.due(at=0.0)
    stage.load.decided += 1

    written = [len(stage.due(at=float(second))) for second in range(1, 6)]

    assert written == [9, 10, 40, 40, 40]


def test_the_object_that_waits_longest_is_written_first() -> None:
    stage = Stage(queues=int(BURST) + 2)
    stage.due(at=0.0)

    stage.board.mark("ClusterQueue", "", "q0")

    assert [write.name for write in stage.due(at=60.0)][:2] == [f"q{int(BURST)}", f"q{int(BURST) + 1}"]


def test_it_says_when_to_come_back() -> None:
    stage = Stage(queues=int(BURST) + 1)
    stage.due(at=0.0)
    assert stage.board.seconds_to_next(0.0) == pytest.approx(1 / WRITES_PER_SECOND)

    stage.due(at=60.0)

    assert stage.board.seconds_to_next(60.0) is None


def answer(stage: Stage, write: Write, *, version: str, keeps: bool = True) -> None:
    """Let the server take the write and answer: the object with the status as sent, or without it."""
    body = msgspec.json.decode(write.body)
    status = body["status"] if keeps else {}
    metadata = {**body["metadata"], "resourceVersion": version}
    raw = msgspec.json.encode({**body, "metadata": metadata, "status": status})
    stage.board.see_raw("ClusterQueue", raw)
    stage.board.note_written(write, raw)


@pytest.mark.parametrize("keeps", [True, False])
def test_what_the_server_does_not_keep_is_not_written_again_and_again(keeps: bool) -> None:
    """A definition older than this Berth drops the fields that it does not know."""
    stage = Stage()
    (write,) = stage.due()

    answer(stage, write, version="6", keeps=keeps)
    assert stage.due() == []

    # The change of the object may have brought the definition up to date.
    stage.see("q0", version="7")
    assert [one.resource_version for one in stage.due()] == ["7"]


def test_a_status_that_was_refused_is_written_again() -> None:
    stage = Stage()
    (first,) = stage.due()
    answer(stage, first, version="6")
    stage.known.tell(cluster_queue_object("q0", "8"))
    stage.see("q0", version="7")
    assert len(stage.due()) == 1

    stage.board.mark("ClusterQueue", "", "q0")

    assert len(stage.due()) == 1


@pytest.mark.parametrize(
    "is_refused", [pytest.param(False, id="a conflict"), pytest.param(True, id="a refusal, then a finalizer")]
)
def test_anothers_version_is_not_taken_for_what_was_written(is_refused: bool) -> None:
    """A user labels the queue while its status is on its way: what is read then is not our status."""
    stage = Stage()
    (lost,) = stage.due()
    metadata = {"name": "q0", "uid": "first", "resourceVersion": "9", "labels": {"by": "a-user"}}
    theirs = msgspec.json.encode({"metadata": metadata, "status": {}})

    stage.board.see_raw("ClusterQueue", theirs)
    if is_refused:
        stage.board.note_written(replace(lost, purpose=Purpose.ADD_FINALIZER), theirs)

    assert [write.resource_version for write in stage.due()] == ["9"]
