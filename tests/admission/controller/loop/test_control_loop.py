"""The control loop: which object is looked at again, and when, after a write on another object has failed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pytest

from admission.controller.cluster_state.cluster_state import ClusterState, ClusterStateSettings
from admission.controller.loop import reconcile_queue
from admission.controller.loop.control_loop import ControlLoop
from admission.controller.loop.status_writer import StatusWriter
from admission.controller.metrics.measuring import measure
from admission.controller.metrics.queue_series import QueueSeries
from admission.controller.metrics.registry import Metrics
from admission.controller.runtime.events import EventReporter
from admission.controller.writer.acting import WaitReport
from admission.controller.writer.write_order import (
    Moot,
    ObjectTarget,
    Refused,
    Result,
    Vanished,
    Written,
)
from admission.decisions.api_writes import Purpose, Verb, Write
from admission.decisions.decision import Admit, Decision, Reassign, Wait
from admission.engine.engine import Engine
from admission.reconcile.workload.context import LifecycleResult
from admission.reconcile.workload_writes import workload_creation
from api import keys
from api.jobs.job_workload import workload_name
from api.kube.errors import Conflict, Forbidden, Invalid, KubeError
from api.kube.report_budget import WriteLoad
from api.object_events import ObjectRef
from api.objects.common import WireSelector
from api.queueing import ClusterQueue, LocalQueue, Namespace, ResourceFlavor, ResourceQuota
from bench.cluster import resource_groups
from tests.admission.controller.fakes import FakeRecorder
from tests.admission.controller.tenancy import make_workload
from tests.admission.controller.virtualtime import VirtualLoop, end
from tests.admission.world import UID, encode, job_object

UNGATE = Write(
    verb=Verb.MERGE_PATCH, kind="Pod", namespace="team", name="pod", body=b"{}", purpose=Purpose.UNGATE_POD
)


class FakeTerm:
    """Takes writes, and is busy with each until `answer` is called."""

    is_paused, is_alone, unconfirmed, is_behind = False, True, 0, False

    def __init__(self, loop: VirtualLoop) -> None:
        self.asked_at: list[float] = []
        self.decided: list[Decision | Reassign] = []
        self._loop = loop
        self._busy: set[ObjectTarget] = set()
        self.writer = self

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Take note of what was decided."""
        self.decided += decisions

    async def flush(self) -> None:
        """Nothing is reserved here."""

    def seconds_to_flush(self) -> None:
        """Nothing is reserved here."""

    def submit(self, write: Write) -> None:
        """Take note of when."""
        self.asked_at.append(self._loop.time())
        self._busy.add(ObjectTarget(write.kind, write.namespace, write.name))

    def report_wait(self, decision: Wait) -> WaitReport:
        """No Workload waits here."""
        raise AssertionError(decision)

    def is_busy(self, target: ObjectTarget) -> bool:
        """Whether it has not been answered."""
        return target in self._busy

    def answer(self, control_loop: ControlLoop, result: Result) -> None:
        """Answer the write."""
        self._busy.clear()
        control_loop.take_answer(UNGATE, result)


class Stage:
    """A control loop with one Workload, which wants a pod ungated whenever it is looked at."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        metrics = Metrics(version="test")
        self.recorder = FakeRecorder()
        events = EventReporter(self.recorder, monotonic=self.loop.monotonic)
        self.cluster_state = ClusterState(Engine(), self.loop, ClusterStateSettings())
        observer = measure(self.cluster_state, metrics, events, QueueSeries(), monotonic=self.loop.monotonic)
        self.load = WriteLoad()
        board = StatusWriter(self.cluster_state.engine, self.load, with_share=False, is_busy=lambda _: False)
        self.control_loop = ControlLoop(self.cluster_state, board, observer, events, self.loop, self.load)
        self.term = FakeTerm(self.loop)
        workload = make_workload("w", "a", 1, 0)
        workload["metadata"] |= {"uid": "uid-w", "resourceVersion": "7", "generation": 1}
        self.control_loop.is_synced = True
        self.control_loop.post(partial(self.cluster_state.see_raw, "Workload", encode(workload)))
        self._running = self.loop.create_task(self.control_loop.run())
        self.loop.run_for(0.1)

    def see_queue(self, name: str, *, cpus: int) -> None:
        """Take in a ClusterQueue with its LocalQueue, or a change of its quota."""
        groups = resource_groups("cpu", "default", ResourceQuota(nominal=1_000 * cpus))
        queue = ClusterQueue(name=name, resource_groups=groups, namespace_selector=WireSelector())
        local_queue = LocalQueue(namespace="team", name=name, cluster_queue=name)
        for spec in (Namespace(name="team"), ResourceFlavor(name="default"), queue, local_queue):
            self.cluster_state.engine.objects.upsert(spec, now=self.loop.now())

    def see_workloads(self, count: int, *, queue: str = "a") -> None:
        """Take in so many Workloads."""
        for number in range(count):
            workload = make_workload(f"w-{queue}-{number}", queue, 1, 0)
            uid = f"uid-{queue}-{number}"
            workload["metadata"] |= {"uid": uid, "resourceVersion": "7", "generation": 1}
            self.cluster_state.see_raw("Workload", encode(workload))

    def begin(self) -> None:
        """Lead."""
        self.loop.call_soon(self._begin)
        self.loop.run_for(0.1)

    def _begin(self) -> None:
        self.control_loop.begin(self.term)

    def answer(self, result: Result, *, wait_seconds: float) -> list[float]:
        """Answer the write, wait, and return when it was asked for again."""
        known, at = len(self.term.asked_at), self.loop.time()
        self.term.answer(self.control_loop, result)
        self.loop.run_for(wait_seconds)
        return [round(asked - at, 1) for asked in self.term.asked_at[known:]]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Give a stage that leads."""
    monkeypatch.setattr(
        reconcile_queue, "reconcile_workload", lambda *_, **__: LifecycleResult(actions=(UNGATE,))
    )
    made = Stage()
    made.begin()
    assert len(made.term.asked_at) == 1
    yield made
    end(made.loop)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Forbidden("no", status=403), id="forbidden"),
        pytest.param(Invalid("no", status=422), id="invalid"),
        pytest.param(Conflict("no", status=409), id="another was faster again and again"),
    ],
)
def test_a_unit_asks_again_after_growing_rests_while_the_write_is_refused(
    error: KubeError, stage: Stage
) -> None:
    for rest in (1.0, 2.0, 4.0):
        assert stage.answer(Refused(error=error), wait_seconds=rest + 0.5) == [rest]


def test_a_workload_that_the_server_refuses_to_create_is_reported_at_its_job(stage: Stage) -> None:
    job = ObjectRef(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", namespace="team", name="train")
    write = workload_creation({"metadata": {"namespace": "team", "name": "jobset-train"}}, job)

    for _ in range(2):
        stage.control_loop.take_answer(write, Refused(error=Forbidden("at most 3600 seconds", status=403)))
        stage.loop.run_for(5.0)

    assert stage.recorder.events == [("train", "FailedCreate")]
    assert "at most 3600 seconds" in stage.recorder.notes["FailedCreate"]


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(Moot(raw=b""), id="the pod has changed"),
        pytest.param(Vanished(), id="the pod is gone"),
    ],
)
def test_a_unit_looks_again_at_once_when(result: Result, stage: Stage) -> None:
    assert stage.answer(result, wait_seconds=0.5) == [0.0]


def test_a_unit_waits_for_the_watch_once_the_write_is_taken(stage: Stage) -> None:
    assert stage.answer(Written(raw=b""), wait_seconds=60.0) == []


def test_a_unit_turned_away_while_the_object_rests_asks_again_when_its_rest_is_over(stage: Stage) -> None:
    stage.term.answer(stage.control_loop, Refused(error=Forbidden("no", status=403)))
    stage.loop.run_for(0.5)
    stage.control_loop.post(lambda: stage.cluster_state.mark("Workload", ("team", "w")))

    stage.loop.run_for(0.2)
    assert len(stage.term.asked_at) == 1
    stage.loop.run_for(0.5)
    assert len(stage.term.asked_at) == 2


def test_reports_make_way_while_the_term_is_behind(stage: Stage) -> None:
    stage.term.is_behind = True
    stage.control_loop.post(lambda: None)
    stage.loop.run_for(0.1)
    assert stage.load.is_behind

    stage.control_loop.end()

    assert not stage.load.is_behind


def test_a_pass_over_many_objects_is_no_stall_however_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, unfinished, count = Stage(), [0.0], 120

    def look(*_: object, **__: object) -> LifecycleResult:
        stage.loop.passed += 1.0
        unfinished.append(stage.control_loop.progress.unfinished_seconds)
        return LifecycleResult()

    monkeypatch.setattr(reconcile_queue, "reconcile_workload", look)
    stage.see_workloads(count)
    stage.begin()
    for number in range(count):
        stage.cluster_state.mark("Workload", ("team", f"w-a-{number}"))
    stage.control_loop.post(lambda: None)
    stage.loop.run_for(3.0 * count)

    assert len(unfinished) > count
    assert max(unfinished) < 10.0
    end(stage.loop)


def test_objects_that_change_as_fast_as_they_are_looked_at_do_not_hold_up_decisions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A controller that gets little of the processor came to no decision while others created objects."""
    stage, looks_before, most = Stage(), [0, 0], 200

    def look(*_: object, **__: object) -> LifecycleResult:
        stage.loop.passed += 1.0
        looks_before[bool(stage.term.decided)] += 1
        if sum(looks_before) == 20:
            stage.see_queue("a", cpus=1)
        if sum(looks_before) < most:
            stage.control_loop.post(lambda: stage.cluster_state.mark("Workload", ("team", "w")))
        return LifecycleResult()

    monkeypatch.setattr(reconcile_queue, "reconcile_workload", look)
    stage.begin()
    stage.loop.run_for(10.0 * most)

    before, after = looks_before
    assert before < 30
    assert before + after == most
    end(stage.loop)


def test_calls_that_come_as_fast_as_they_are_made_do_not_hold_up_decisions() -> None:
    stage, calls_before, most = Stage(), [0, 0], 200

    def call() -> None:
        stage.loop.passed += 1.0
        calls_before[bool(stage.term.decided)] += 1
        if sum(calls_before) < most:
            stage.control_loop.post(call)

    stage.see_queue("a", cpus=1)
    stage.control_loop.post(call)
    stage.begin()
    stage.loop.run_for(10.0 * most)

    before, after = calls_before
    assert before < 10
    assert before + after == most
    end(stage.loop)


def test_the_first_admission_does_not_wait_for_a_look_at_each_pending_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, looks_before, count = Stage(), [0, 0], 500

    def look(*_: object, **__: object) -> LifecycleResult:
        stage.loop.passed += 0.001
        looks_before[bool(stage.term.decided)] += 1
        return LifecycleResult()

    monkeypatch.setattr(reconcile_queue, "reconcile_workload", look)
    stage.see_queue("a", cpus=1)
    stage.see_workloads(count)
    stage.begin()
    stage.loop.run_for(10.0)

    before, after = looks_before
    assert before < count / 5
    assert before + after > count
    # The quota is for one core, which the first takes.
    assert sum(isinstance(one, Admit) for one in stage.term.decided) == 1
    end(stage.loop)


@pytest.mark.parametrize(
    ("is_behind", "want"),
    [
        pytest.param(True, [0.0, 0.1], id="after a pause while answers are outstanding"),
        pytest.param(False, [0.0, 0.0], id="at once where all answers are there"),
    ],
)
def test_the_next_cycle_of_many_queues_begins(is_behind: bool, want: list[float]) -> None:
    stage, queues, admitted_at = Stage(), [f"q{number}" for number in range(20)], list[float]()
    stage.term.is_behind = is_behind

    async def carry_out(decisions: Sequence[Decision | Reassign]) -> None:
        if any(isinstance(one, Admit) for one in decisions):
            admitted_at.append(stage.loop.time())
        if len(admitted_at) == 1:
            # Room for the second Workload of each. Nothing else happens.
            for queue in queues:
                stage.see_queue(queue, cpus=2)

    stage.term.carry_out = carry_out  # type: ignore[method-assign]  # this term does more
    for queue in queues:
        stage.see_queue(queue, cpus=1)
        stage.see_workloads(2, queue=queue)
    stage.begin()
    stage.loop.run_for(1.0)

    assert [round(at - admitted_at[0], 2) for at in admitted_at] == want
    end(stage.loop)


def test_workloads_that_wait_in_other_queues_do_not_slow_down_one_that_has_room() -> None:
    """They have been tried, so its next Workload has none to be compared with."""
    stage, admitted_at = Stage(), list[float]()
    stage.term.is_behind = True

    async def carry_out(decisions: Sequence[Decision | Reassign]) -> None:
        admitted_at.extend(stage.loop.time() for one in decisions if isinstance(one, Admit))

    stage.term.carry_out = carry_out  # type: ignore[method-assign]  # this term does more
    for number in range(10):
        stage.see_queue(f"full{number}", cpus=0)
        stage.see_workloads(2, queue=f"full{number}")
    stage.see_queue("free", cpus=200)
    stage.see_workloads(200, queue="free")
    stage.begin()
    stage.loop.run_for(10.0)

    assert len(admitted_at) == 200
    assert admitted_at[-1] - admitted_at[0] < 1.0
    end(stage.loop)


def test_doubtful_evictions_are_settled_while_cycles_with_heads_are_spaced_out() -> None:
    stage, queues, cycles, settled = Stage(), [f"q{number}" for number in range(20)], [0], [0]
    stage.term.is_behind = True

    async def carry_out(decisions: Sequence[Decision | Reassign]) -> None:
        # Events bring more to try for as long as the API server owes answers.
        cycles[0] += bool(decisions)
        for queue in queues:
            stage.see_queue(queue, cpus=cycles[0] + 1)

    def settle() -> bool:
        settled[0] += 1
        return False

    stage.term.carry_out = carry_out  # type: ignore[method-assign]  # this term does more
    stage.cluster_state.pending_evictions.settle = settle  # type: ignore[method-assign]  # only counted
    for queue in queues:
        stage.see_queue(queue, cpus=1)
        stage.see_workloads(100, queue=queue)
    stage.begin()
    stage.loop.run_for(5.0)

    assert cycles[0] > 20
    assert settled[0] > 20
    end(stage.loop)


def test_an_error_while_workloads_are_placed_does_not_end_the_control_loop(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, taken = stage.cluster_state.engine, []
    errors: list[Exception] = [ValueError("x"), RecursionError()]
    real = engine.catch_up

    def catch_up(*args: int, now: float) -> bool:
        if errors:
            raise errors.pop()
        return real(*args, now=now)

    monkeypatch.setattr(engine, "catch_up", catch_up)
    stage.control_loop.post(lambda: taken.append(1))
    stage.loop.run_for(1.0)
    stage.control_loop.post(lambda: taken.append(2))
    stage.loop.run_for(1.0)

    assert taken == [1, 2]
    assert not errors


def test_an_elastic_job_asks_for_no_other_slice_while_one_is_being_created() -> None:
    """Its own controller may change its spec meanwhile, and the name of a slice has its generation."""
    stage, created = Stage(), list[str]()

    def submit(write: Write) -> None:
        FakeTerm.submit(stage.term, write)
        if write.verb is Verb.CREATE:
            created.append(write.name)

    stage.term.submit = submit  # type: ignore[method-assign]  # this term remembers more
    job = job_object(annotations={keys.ELASTIC_JOB: "true"})
    stage.begin()
    for generation in (1, 2):
        job["metadata"] |= {"generation": generation, "resourceVersion": str(generation)}
        stage.control_loop.post(partial(stage.cluster_state.see_raw, "Job", encode(job)))
        stage.loop.run_for(0.1)

    assert created == [workload_name("Job", "batch", "j", UID, extra="1")]
    end(stage.loop)
