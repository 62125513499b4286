"""The journal: what is counted and logged of decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.controller.metrics.decision_recorder import REPEAT_SECONDS, DecisionRecorder
from admission.controller.metrics.registry import Metrics
from admission.controller.writer.executor import Moot, Refused, Result, Vanished, Written
from admission.decisions.api_writes import Event
from admission.decisions.decision import Evict
from api.kube.client import KubeClient
from api.kube.credentials import FixedCredentials
from api.kube.errors import KubeError
from api.kube.events import EventRecorder
from api.kube.kubeconfig import Endpoint
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


def test_a_workload_that_gives_way_to_the_same_one_twice_is_counted() -> None:
    metrics = Metrics(version="test")
    nowhere = Endpoint(server="http://nowhere", origin="a test", credentials=FixedCredentials())
    decision_recorder = DecisionRecorder(EventRecorder(KubeClient(nowhere), instance="a test"), metrics)

    for eviction in (EVICTION, replace(EVICTION, preemptor_uid="other"), EVICTION):
        decision_recorder.note_cycle((eviction,), 0.0)

    line = 'berth_repeated_preemptions_total{preempting_cluster_queue="owner",replica_role="follower"} 1.0'
    assert line in metrics.render().decode().splitlines()


JOB = ObjectRef(kind="Job", api_version="batch/v1", namespace="team", name="j", uid="uid-j")
EVENT = Event(regarding=JOB, type=EventType.NORMAL, reason="Started", note="now", action="Start")


class Stage:
    """A journal whose clock is set by hand, and what it has told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.recorder = FakeRecorder()
        self.decision_recorder = DecisionRecorder(
            self.recorder, Metrics(version="test"), monotonic=self.clock.monotonic
        )


@pytest.mark.parametrize(
    ("seconds", "other", "want"),
    [
        pytest.param(REPEAT_SECONDS - 1, EVENT, 1, id="at once it is not repeated"),
        pytest.param(REPEAT_SECONDS, EVENT, 2, id="after a while it is"),
        pytest.param(0, replace(EVENT, note="then"), 2, id="other words are news"),
        pytest.param(0, replace(EVENT, regarding=replace(JOB, uid="new")), 2, id="and so is another object"),
    ],
)
def test_an_event_that_repeats_itself_is_told_now_and_then(seconds: float, other: Event, want: int) -> None:
    stage = Stage()
    stage.decision_recorder.note(EVENT)
    stage.clock.at += seconds

    stage.decision_recorder.note(other)

    assert len(stage.recorder.events) == want


@pytest.mark.parametrize(
    ("result", "want"),
    [
        pytest.param(Written(raw=b"{}"), [("j", "Started")], id="once it has succeeded"),
        pytest.param(Moot(raw=b"{}"), [], id="not where it was not needed"),
        pytest.param(Vanished(), [], id="not where the object is gone"),
        pytest.param(Refused(error=KubeError("no")), [], id="not where it was refused"),
    ],
)
def test_a_write_tells_what_happened(result: Result, want: list[tuple[str, str]]) -> None:
    stage = Stage()

    stage.decision_recorder.note_write(make_write(events=(EVENT,)), result)

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
def test_a_refusal_is_told_on_the_object(kind: str, uid: str, want: list[tuple[str, str]]) -> None:
    stage = Stage()

    stage.decision_recorder.note_refused(make_write(kind=kind, uid=uid), KubeError("no"))

    assert stage.recorder.events == want


def test_warnings_are_counted_by_their_reason_and_each_once() -> None:
    metrics = Metrics(version="test")
    decision_recorder = DecisionRecorder(FakeRecorder(), metrics, monotonic=FakeClock().monotonic)
    warning = replace(EVENT, type=EventType.WARNING, reason="InvalidWish")
    waiting = replace(warning, reason="WaitingForQuota")

    for event in (warning, warning, replace(warning, note="another"), EVENT, waiting):
        decision_recorder.note(event)

    lines = [
        line for line in metrics.render().decode().splitlines() if line.startswith("berth_warnings_total")
    ]
    assert lines == ['berth_warnings_total{reason="InvalidWish",replica_role="follower"} 2.0']
