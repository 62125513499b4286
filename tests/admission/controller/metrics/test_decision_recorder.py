"""What is counted, logged and sent as Events of decisions and writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.metrics.decision_recorder import DecisionRecorder
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from admission.controller.writer.write_order import Moot, Refused, Result, Vanished, Written
from admission.decisions.api_writes import Event
from admission.decisions.decision import Evict
from api.kube.errors import KubeError
from api.object_events import EventType, ObjectRef
from api.reasons import EvictionReason, PreemptionReason
from api.workload import WorkloadKey
from tests.admission.controller.fakes import FakeClock, FakeRecorder, make_write

EVICTION = Evict(
    key=WorkloadKey("team", "victim"),
    uid="victim",
    resource_version="1",
    reason=EvictionReason.PREEMPTED,
    message="for another",
    preemption_reason=PreemptionReason.IN_COHORT_RECLAMATION,
    preemptor=WorkloadKey("team", "urgent"),
    preemptor_uid="urgent",
    preempting_cluster_queue="owner",
)


def test_an_eviction_that_a_reconciler_decided_counts_once_it_is_written() -> None:
    stage = Stage()
    write = replace(make_write(), eviction=EVICTION)

    for result in (Moot(raw=b"{}"), Written(raw=b"{}")):
        stage.decision_recorder.note_answer(write, result)

    line = (
        'kueue_preempted_workloads_total{preempting_cluster_queue="owner",reason="InCohortReclamation",'
        'replica_role="follower"} 1.0'
    )
    assert line in stage.metrics.render().decode().splitlines()


def test_a_workload_preempted_by_the_same_one_twice_is_counted() -> None:
    metrics = Metrics(version="test")
    decision_recorder = DecisionRecorder(metrics, EventReporter(FakeRecorder()), QueueSeries())

    for eviction in (EVICTION, replace(EVICTION, preemptor_uid="other"), EVICTION):
        decision_recorder.note_cycle((eviction,), 0.0)

    line = 'berth_repeated_preemptions_total{preempting_cluster_queue="owner",replica_role="follower"} 1.0'
    assert line in metrics.render().decode().splitlines()


JOB = ObjectRef(kind="Job", api_version="batch/v1", namespace="team", name="j", uid="uid-j")
EVENT = Event(regarding=JOB, type=EventType.NORMAL, reason="Started", note="now", action="Start")


class Stage:
    """A decision recorder, and the Events that it has sent."""

    def __init__(self) -> None:
        self.recorder = FakeRecorder()
        self.metrics = Metrics(version="test")
        clock = FakeClock()
        events = EventReporter(self.recorder, monotonic=clock.monotonic)
        self.decision_recorder = DecisionRecorder(
            self.metrics, events, QueueSeries(), monotonic=clock.monotonic
        )


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param(Written(raw=b"{}"), [("j", "Started")], id="once it has succeeded"),
        pytest.param(Moot(raw=b"{}"), [], id="not where it was not needed"),
        pytest.param(Vanished(), [], id="not where the object is gone"),
        pytest.param(Refused(error=KubeError("no")), [], id="not where it was refused"),
    ],
)
def test_a_write_records_what_happened(result: Result, want: list[tuple[str, str]]) -> None:
    stage = Stage()

    stage.decision_recorder.note_answer(make_write(events=(EVENT,)), result)

    assert stage.recorder.events == want


@pytest.mark.parametrize(
    ("kind", "uid", "want"),
    [
        pytest.param("Workload", "u", [("x", "WriteRefused")], id="on a Workload"),
        pytest.param("Job", "u", [("x", "WriteRefused")], id="on a Job"),
        pytest.param("ClusterQueue", "u", [], id="not on a queue, whose status is written again and again"),
        pytest.param("Workload", "", [], id="not on what does not exist yet"),
    ],
)
def test_a_refusal_is_recorded_on_the_object(kind: str, uid: str, want: list[tuple[str, str]]) -> None:
    stage = Stage()

    stage.decision_recorder.note_answer(make_write(kind=kind, uid=uid), Refused(error=KubeError("no")))

    assert stage.recorder.events == want


def test_events_that_were_sent_and_dropped_are_counted_once() -> None:
    stage = Stage()
    stage.recorder.sent, stage.recorder.dropped = 3, 2

    for _ in range(2):
        stage.decision_recorder.note_pause(False, 0)

    sample, labels = stage.metrics.registry.get_sample_value, {"replica_role": "follower"}
    assert sample("berth_events_sent_total", labels) == 3.0
    assert sample("berth_events_dropped_total", labels) == 2.0
