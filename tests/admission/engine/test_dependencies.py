"""Jobs that depend on others: when they wait, and what their reason says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from admission.cache import dependencies as dependencies_module
from admission.cache.dependencies import Dependencies
from admission.cache.workload_record import WorkloadRecord
from api.keys import DEPENDS_ON, ELASTIC_JOB, EXPECTED_RUNTIME_SECONDS, STEP
from api.reasons import FinishedReason
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    finished,
    make_cluster_queue,
    make_condition,
    make_workload,
    reserved,
    with_conditions,
)


def job(name: str, needs: str = "", *, step: str = "", run: int = 1, **fields: Any) -> Workload:
    """Return the Workload of a Job's `run`; it depends on what `needs` names."""
    annotations = {**({DEPENDS_ON: needs} if needs else {}), **({STEP: step} if step else {})}
    return make_workload(
        f"job-{name}-{run}",
        at=float(run),
        owner_kind="Job",
        owner_name=name,
        owner_uid=f"{name}-{run}",
        annotations=annotations,
        **fields,
    )


def failed(workload: Workload) -> Workload:
    return with_conditions(workload, make_condition("Finished", reason="Failed"))


class CountedRecords(dict[WorkloadKey, WorkloadRecord]):
    """Records that count how often all of them are looked at."""

    scans = 0

    def items(self) -> Any:
        self.scans += 1
        return super().items()

    def add(self, workload: Workload) -> None:
        self[workload.key] = WorkloadRecord(workload=workload, local_queue=(NAMESPACE, "main"))


def make_world(*values: object) -> World:
    return World().put(make_cluster_queue(quota=10), *values)


def problem_of(world: World, workload: Workload) -> str:
    problem = world.engine.workloads.queue_problem(workload)
    assert problem is None or problem[0] == "WaitingForDependencies"
    return "" if problem is None else problem[1]


def test_a_job_starts_once_the_job_that_it_names_has_succeeded() -> None:
    world = make_world(job("prepare"), job("train", "prepare"))
    assert admits(world.settle()) == ["job-prepare-1"]

    world.put(finished(reserved(job("prepare"))))

    assert admits(world.settle()) == ["job-train-1"]


@pytest.mark.parametrize(
    ("others", "needs", "want"),
    [
        pytest.param(
            (), "prepare", "prepare: no such Job is in a queue; create it", id="a Job that is missing"
        ),
        pytest.param(
            (), f"{STEP}=x", f"{STEP}=x: no Workload has this label; create it", id="a label without Job"
        ),
        pytest.param((job("prepare"),), "prepare", "Depends on prepare: waits", id="a Job that waits"),
        pytest.param(
            (reserved(job("prepare")),), "prepare", "Depends on prepare: runs", id="a Job that runs"
        ),
        pytest.param(
            (failed(reserved(job("prepare"))),),
            "prepare",
            "prepare: has not succeeded (Failed); run it again",
            id="a Job that has failed",
        ),
        pytest.param(
            (finished(reserved(job("a"))), job("b")), "a, b", "Depends on b: waits", id="one of several Jobs"
        ),
        pytest.param(
            (job("a", step="load"), finished(reserved(job("b", step="load")))),
            f"{STEP}=load",
            f"Depends on a ({STEP}=load): waits",
            id="one of the Jobs with a label",
        ),
        pytest.param(
            (job("a", labels={"stage": "load"}),),
            "stage=load",
            "Depends on a (stage=load): waits",
            id="a label of Workloads",
        ),
        pytest.param((), "train", "Depends on itself: train depends on train", id="itself"),
        pytest.param(
            (job("a", "b"), job("b", "train")),
            "a",
            "Depends on itself: train depends on a depends on b depends on train",
            id="a ring of Jobs",
        ),
        pytest.param(
            (job("prepare", namespace="other"),),
            "prepare",
            "prepare: no such Job",
            id="a Job of another namespace",
        ),
    ],
)
def test_a_job_that_waits_for_others_names_them(others: tuple[object, ...], needs: str, want: str) -> None:
    train = job("train", needs)
    world = make_world(*others, train)

    assert "job-train-1" not in admits(world.settle())
    assert want in problem_of(world, train)


def test_a_failed_job_that_is_run_again_lets_the_others_go_on() -> None:
    train = job("train", "prepare")
    world = make_world(failed(reserved(job("prepare"))), train)
    assert "has not succeeded" in problem_of(world, train)

    world.put(job("prepare", run=2))
    assert problem_of(world, train) == "Depends on prepare: waits"
    world.put(finished(reserved(job("prepare", run=2))))

    assert admits(world.settle()) == ["job-train-1"]


def test_a_job_that_is_deleted_is_missing_for_those_that_wait_for_it() -> None:
    train, prepare = job("train", "prepare"), job("prepare")
    world = make_world(prepare, train)

    world.engine.objects.remove(Workload, prepare.key, now=world.now)

    assert "no such Job" in problem_of(world, train)


def test_without_its_annotation_a_job_starts() -> None:
    world = make_world(job("train", "prepare"))
    assert admits(world.settle()) == []

    world.put(job("train"))

    assert admits(world.settle()) == ["job-train-1"]


def test_a_job_that_has_started_is_not_stopped_by_what_it_depended_on() -> None:
    train, prepare = reserved(job("train", "prepare")), finished(reserved(job("prepare")))
    world = make_world(prepare, train)

    world.engine.objects.remove(Workload, prepare.key, now=world.now)
    world.settle()

    assert [key for key, _ in world.engine.workloads.admissions()] == [train.key]


def test_those_that_wait_are_reported_when_what_they_wait_for_changes() -> None:
    world = make_world(job("prepare"), job("train", "prepare"), job("other"))
    world.engine.workloads.take_dependants()

    world.put(reserved(job("prepare")))

    assert world.engine.workloads.take_dependants() == (WorkloadKey(NAMESPACE, "job-train-1"),)
    world.put(reserved(job("prepare"), resource_version="9"))
    assert world.engine.workloads.take_dependants() == ()


def test_a_job_that_names_too_many_others_waits_and_says_so() -> None:
    train, other = job("train", ",".join(f"n{n}" for n in range(101))), job("other", "," * 200 + "x")
    world = make_world(train, other)

    assert admits(world.settle()) == []
    for one in (train, other):
        assert problem_of(world, one).startswith("Depends on more than 100 names and labels; name fewer in")


def test_a_message_names_the_first_that_a_job_waits_for() -> None:
    train = job("train", "stage=load, prepare")
    world = make_world(*(job(f"l{n}", labels={"stage": "load"}) for n in range(10, 32)), train)

    message = problem_of(world, train)
    assert message.startswith("Depends on l10 (stage=load): waits; l11")
    assert message.endswith("l19 (stage=load): waits; and 13 more")


def test_names_are_not_searched_for_in_all_workloads_again() -> None:
    records = CountedRecords()
    dependencies = Dependencies(records)
    for number in range(50):
        records.add(job(f"j{number}"))
    for number in range(50):
        waiting = job(f"w{number}", ",".join(f"x{number}-{n}" for n in range(100)))
        records.add(waiting)
        dependencies.note(None, waiting)

    assert records.scans == 1


def test_those_that_wait_for_one_label_look_at_its_jobs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40
    loads = [job(f"l{n}", labels={"stage": "load"}) for n in range(count)]
    world = make_world(*loads, *(job(f"w{n}", "stage=load") for n in range(count)))
    world.settle()
    looked: list[str] = []
    unfinished = dependencies_module._unfinished

    def counted(workload: Workload) -> str | None:
        looked.append(workload.key.name)
        return unfinished(workload)

    monkeypatch.setattr(dependencies_module, "_unfinished", counted)
    world.put(finished(reserved(loads[0])))
    world.settle()

    assert len(looked) < 3 * count


@pytest.mark.parametrize("reason", [FinishedReason.OUT_OF_SYNC, FinishedReason.SLICE_REPLACED])
@pytest.mark.parametrize("needs", ["prepare", "stage=load"])
def test_slices_that_have_ended_while_their_job_goes_on_do_not_count(
    reason: FinishedReason, needs: str
) -> None:
    first, second = (job("prepare", run=run, labels={"stage": "load"}) for run in (1, 2))
    first, second = (
        replace(one, owner_uid="prepare", annotations={ELASTIC_JOB: "true"}) for one in (first, second)
    )
    gone = with_conditions(second, make_condition("Finished", reason=reason))
    train = job("train", needs)
    world = make_world(reserved(first), gone, train)
    assert "runs" in problem_of(world, train)

    world.put(finished(reserved(first)))

    assert admits(world.settle()) == ["job-train-1"]


def lasting(name: str, seconds: int, needs: str = "") -> Workload:
    """Return the Workload of a Job that says how long it runs."""
    one = job(name, needs)
    return replace(one, annotations={**one.annotations, EXPECTED_RUNTIME_SECONDS: str(seconds)})


def running(workload: Workload, *, since: float) -> Workload:
    return with_conditions(reserved(workload), make_condition("Admitted", at=since))


@pytest.mark.parametrize(
    ("others", "needs", "want"),
    [
        pytest.param(
            [running(lasting("a", 600), since=1100.0)], "a", (1700.0, "a"), id="of one that runs, its end"
        ),
        pytest.param(
            [running(lasting("a", 600), since=1100.0), running(lasting("b", 900), since=1100.0)],
            "a, b",
            (2000.0, "b"),
            id="of two the later end",
        ),
        pytest.param(
            [running(lasting("a", 600), since=1100.0), lasting("b", 50, "a")],
            "b",
            (1750.0, "b"),
            id="of one that waits for another, its run after that",
        ),
        pytest.param([running(job("a"), since=1100.0)], "a", None, id="unknown for one of unknown length"),
        pytest.param(
            [running(lasting("a", 60), since=1100.0)], "a", None, id="unknown for one that has outrun it"
        ),
        pytest.param(
            [running(lasting("a", 600), since=1100.0)], "a, b", None, id="unknown where one is missing"
        ),
        pytest.param(
            [running(lasting("a", 600), since=1100.0), failed(job("b"))],
            "a, b",
            None,
            id="unknown where one has failed",
        ),
        pytest.param([lasting("a", 600, "train")], "a", None, id="unknown in a ring"),
    ],
)
def test_a_start_is_expected_after_the_last_end_of_what_it_depends_on(
    others: list[Workload], needs: str, want: tuple[float, str] | None
) -> None:
    world = make_world(*others, train := job("train", needs))
    world.now = 1200.0
    world.settle()

    assert world.engine.promises.awaited_end(train.key) == want
    assert world.engine.promises.expected_after(train.key) == (None if want is None else want[0])


def test_the_last_end_of_a_label_is_looked_for_once_however_many_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sweep = [job(f"a{number}", labels={"sweep": "one"}) for number in range(50)]
    waiting = [job(f"b{number}", "sweep=one") for number in range(50)]
    world = make_world(*sweep, *waiting)
    world.settle()
    looked_for: list[object] = []
    newest = Dependencies._newest

    def counted(self: Dependencies, item: tuple[str, str]) -> list[Workload]:
        looked_for.append(item)
        return newest(self, item)

    monkeypatch.setattr(Dependencies, "_newest", counted)

    for one in waiting:
        world.engine.promises.expected_after(one.key)

    assert len(looked_for) <= 1
