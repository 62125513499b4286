"""What guards the quota between a decision and the cluster, one danger at a time, in virtual time.

One cluster of two tenants (`tenancy`), a store, and replicas that lead in turn. After every change of the
cluster the laws must hold: the quota, no Workload admitted twice, and what is admitted is what was asked.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from admission.controller.writer.delivery import MAX_UNANSWERED
from admission.decisions.api_writes import Purpose, Write
from admission.decisions.decision import Admit
from admission.reconcile import decision_writes
from api.kube.errors import Forbidden, KubeError, ServerError
from tests.admission.controller.cluster import Object
from tests.admission.controller.replica import REQUEST_SECONDS, Replica
from tests.admission.controller.stage import ALL, Stage, key_of
from tests.admission.controller.tenancy import make_workload
from tests.admission.controller.virtualtime import end

FENCE = "berth.dev/fence"


def is_admission(write: Write) -> bool:
    return write.purpose is Purpose.ADMIT


def is_fence(write: Write) -> bool:
    return write.purpose is Purpose.FENCE


@pytest.fixture
def stage() -> Iterator[Stage]:
    """Give a stage, and close its loop."""
    made = Stage()
    yield made
    end(made.loop)


# --- answers that do not come ------------------------------------------------------------------------


def _losing_the_admission_of_late(leader: Replica, *errors: KubeError, until_seconds: float = 30.0) -> None:
    """Let the first admission of the Workload `late` be long on its way, and meet the next writes on it so.

    It receives nothing meanwhile, either: that would move it on as well as any fence.
    """
    leader.line.faults.meets = lambda write: write.name == "late" and write.purpose is not Purpose.FENCE
    leader.line.faults.late_seconds.append(until_seconds)
    leader.line.faults.errors_after_late += errors


BROKEN = ServerError("boom", status=500)
REFUSED = Forbidden("no", status=403)


@pytest.mark.parametrize(
    "errors",
    [
        pytest.param([BROKEN] * 40, id="it is given up after several tries"),
        pytest.param([REFUSED] * 40, id="its second try is refused"),
    ],
)
def test_an_admission_that_arrives_late_is_refused_before_its_quota_is_given_to_another(
    errors: list[KubeError], stage: Stage
) -> None:
    leader = stage.lead()
    _losing_the_admission_of_late(leader, *errors)
    stage.submit("late")
    stage.wait(0.1)
    stage.submit("urgent", priority=2)

    stage.wait(20.0)
    assert stage.admitted() == ["urgent"]

    stage.wait(20.0)
    assert stage.admitted() == ["urgent"]
    assert stage.workload("late")["metadata"]["annotations"][FENCE].startswith("1")


def test_quota_is_kept_while_a_doubtful_admission_cannot_be_fenced_off(stage: Stage) -> None:
    leader = stage.lead()
    _losing_the_admission_of_late(leader, *[REFUSED] * 12, until_seconds=100.0)
    leader.line.faults.meets = lambda write: write.name == "late"
    stage.submit("late")
    stage.wait(0.1)
    stage.submit("urgent", priority=2)

    stage.wait(8.0)
    assert stage.admitted() == []
    assert leader.cluster_state.engine.statistics().assumed == 1

    leader.line.faults.errors_after_late.clear()
    stage.wait(300.0)
    assert stage.admitted() == ["urgent"]


def written(stage: Stage, purpose: Purpose) -> int:
    """Return how many writes of this purpose have arrived."""
    return sum(write.purpose is purpose for write in stage.cluster.written)


def test_an_admission_that_is_stored_though_late_is_confirmed_by_a_read(stage: Stage) -> None:
    leader = stage.lead()
    leader.line.faults.meets = is_admission
    leader.line.faults.late_seconds.append(REQUEST_SECONDS + 0.01)
    stage.submit("late")

    stage.wait(10.0)

    assert stage.admitted() == ["late"]
    assert (written(stage, Purpose.ADMIT), written(stage, Purpose.FENCE)) == (1, 0)
    assert stage.store.reservations == {}


def test_a_workload_is_fenced_off_once_though_the_answer_to_that_is_lost(stage: Stage) -> None:
    leader = stage.lead()
    _losing_the_admission_of_late(leader, *[BROKEN] * (MAX_UNANSWERED - 1))
    leader.line.faults.meets = lambda write: write.name == "late"
    # The answers to the admission and to the fence.
    leader.line.faults.lost = 2
    stage.submit("late")
    stage.wait(0.1)
    stage.submit("urgent", priority=2)

    stage.wait(20.0)

    assert stage.admitted() == ["urgent"]
    assert written(stage, Purpose.FENCE) == 1


# --- objects that change under a decision ------------------------------------------------------------


def test_an_admission_is_never_written_onto_a_spec_that_it_was_not_decided_on(stage: Stage) -> None:
    leader = stage.lead()
    leader.line.faults.meets = is_admission
    leader.line.faults.late_seconds.append(REQUEST_SECONDS / 2)
    stage.submit("w", cpus=4)
    stage.wait(REQUEST_SECONDS / 4)
    smaller = make_workload("w", "b", 2, 0)["spec"]
    stage.cluster.edit(key_of("w"), lambda obj: obj.update(spec=smaller))

    stage.wait(10.0)

    assert stage.workload("w")["status"]["admission"]["clusterQueue"] == "b"


def test_a_leader_whose_watch_lags_does_not_take_the_old_one_of_a_name_for_the_new(stage: Stage) -> None:
    first, second = stage.lead(), stage.start()
    stage.submit("again", cpus=1)
    stage.wait(1.0)
    second.line.hears_after_seconds = 60.0
    stage.cluster.edit(key_of("again"), lambda obj: obj["metadata"].update(annotations={"seen": "yes"}))
    stage.wait(3.0)
    stage.cluster.delete(key_of("again"))
    stage.submit("again")
    stage.wait(1.0)
    stage.submit("next", cpus=2)
    first.stop_leading()

    second.lead(2)
    stage.wait(120.0)

    assert stage.admitted() == ["again"]


def test_a_workload_that_is_gone_and_still_shown_is_tried_after_growing_pauses(stage: Stage) -> None:
    leader = stage.lead()
    stage.wait(1.0)
    leader.line.hears_after_seconds = 5.0
    stage.submit("gone")
    leader.line.hears_after_seconds = 60.0
    stage.wait(1.0)
    stage.cluster.delete(key_of("gone"))

    stage.wait(30.0)
    assert 3 <= written(stage, Purpose.ADMIT) <= 6

    stage.submit("next")
    stage.wait(90.0)
    assert stage.admitted() == ["next"]
    assert stage.store.reservations == {}


# --- what a dead leader left behind ------------------------------------------------------------------


def _left_behind(stage: Stage, name: str) -> None:
    """Let a leader reserve for a Workload and die before its patch arrives; it never does."""
    leader = stage.lead()
    leader.line.faults.meets = is_admission
    leader.line.faults.late_seconds.append(10_000.0)
    stage.submit(name)
    stage.wait(0.5)
    leader.crash()
    assert [key.name for key, _ in stage.store.reservations] == [name]


def _admitted_by_another(obj: Object) -> None:
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": "default"}}
    assignment["resourceUsage"] = {"cpu": str(ALL)}
    obj["status"] = {
        "admission": {"clusterQueue": "a", "podSetAssignments": [assignment]},
        "conditions": [
            {
                "type": type_,
                "status": "True",
                "reason": type_,
                "message": "",
                "lastTransitionTime": "2027-01-15T08:00:00Z",
            }
            for type_ in ("QuotaReserved", "Admitted")
        ],
    }


def test_a_reservation_is_replayed_where_it_fits(stage: Stage) -> None:
    _left_behind(stage, "w")

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["w"]
    # One that is released, and decided again, is fenced before.
    assert FENCE not in stage.workload("w")["metadata"].get("annotations", {})
    assert stage.store.reservations == {}


def test_a_reservation_whose_quota_was_given_to_another_is_released(stage: Stage) -> None:
    """Its maker decided on without the store, and died before it could say so."""
    _left_behind(stage, "w")
    stage.submit("other")
    stage.cluster.edit(key_of("other"), _admitted_by_another)

    stage.lead()
    stage.wait(5.0)

    assert stage.admitted() == ["other"]
    assert stage.workload("w")["metadata"]["annotations"][FENCE] == "2"
    assert stage.store.reservations == {}


def test_a_reservation_that_cannot_be_released_keeps_its_quota_until_it_can(stage: Stage) -> None:
    _left_behind(stage, "w")
    stage.cluster.edit(key_of("w"), lambda obj: obj["spec"].update(priority=1))
    stage.submit("other", priority=2)
    successor = stage.start()
    successor.line.faults.meets = is_fence
    successor.line.faults.errors += [Forbidden("no", status=403)] * 3
    successor.lead(2)

    stage.wait(2.0)
    assert stage.admitted() == []
    assert len(stage.store.reservations) == 1

    stage.wait(60.0)
    assert stage.admitted() == ["other"]
    assert stage.store.reservations == {}


# --- faults of our own -------------------------------------------------------------------------------


def test_a_fault_over_one_admission_costs_the_others_nothing_and_is_taken_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = stage.lead()
    real = decision_writes.admit_write

    def faulty(decision: Admit, raw: bytes, **options: object) -> Write:
        if decision.key.name == "bad":
            raise RuntimeError("a fault")
        return real(decision, raw, **options)  # type: ignore[arg-type]  # passed on as it came

    with monkeypatch.context() as patch:
        patch.setattr("admission.controller.writer.leader_term.admit_write", faulty)
        stage.submit("bad", cpus=2)
        stage.submit("good", cpus=2)
        stage.wait(5.0)
        assert stage.admitted() == ["good"]
        assert leader.errors() >= 1

    stage.wait(60.0)
    assert stage.admitted() == ["bad", "good"]


@pytest.mark.parametrize(
    "place",
    [
        pytest.param("metrics.decision_recorder.DecisionRecorder.note_cycle", id="right after deciding"),
        pytest.param("writer.leader_term.LeaderTerm._submit_admission", id="after the quota was reserved"),
    ],
)
def test_a_fault_leaves_no_workload_assumed_and_nothing_reserved(
    place: str, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = stage.lead()

    def faulty(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr(f"admission.controller.{place}", faulty)
        stage.submit("w")
        stage.wait(0.5)
        assert leader.errors() >= 1
        assert stage.admitted() == []

    stage.wait(60.0)
    assert stage.admitted() == ["w"]
    assert stage.store.reservations == {}


def test_a_fault_over_an_answer_keeps_the_quota_and_leaves_the_leader_leading(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = stage.lead()
    leader.line.faults.meets = lambda write: write.name == "bad"
    leader.line.faults.errors += [Forbidden("no", status=403)]

    def faulty(*_: object) -> None:
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr("admission.controller.writer.leader_term.LeaderTerm._give_back", faulty)
        stage.submit("bad", cpus=4)
        stage.wait(1.0)
    assert leader.errors() == 1

    stage.submit("large", cpus=4)
    stage.submit("small", cpus=2)
    stage.wait(60.0)

    assert stage.admitted() == ["small"]
    assert [key.name for key, _ in stage.store.reservations] == ["bad"]


# --- two writers -------------------------------------------------------------------------------------


def test_what_two_leaders_admitted_without_knowing_of_each_other_is_repaired_by_a_third(stage: Stage) -> None:
    """The store loses the reservation of the first; the second is gone before it looks at what came late."""
    stage.cluster.laws.clear()
    first = stage.lead()
    first.line.faults.meets = is_admission
    first.line.faults.late_seconds.append(REQUEST_SECONDS + 1.0)
    stage.submit("early")
    stage.wait(0.2)
    # It waits for its requests, so the next one leads a second before the admission arrives.
    first.crash()
    stage.store.reservations.clear()
    stage.submit("urgent", priority=2)
    second = stage.lead()
    stage.wait(1.1)
    second.crash()
    assert sorted(stage.admitted()) == ["early", "urgent"]

    stage.lead()
    stage.wait(10.0)

    assert stage.admitted() == ["urgent"]
    conditions = {one["type"]: one for one in stage.workload("early")["status"]["conditions"]}
    assert conditions["Evicted"]["reason"] == "OverAdmitted"


def test_a_new_leader_leaves_alone_what_exceeds_a_quota_that_was_lowered(stage: Stage) -> None:
    stage.cluster.laws.clear()
    first = stage.lead()
    stage.submit("one", cpus=3)
    stage.submit("two", cpus=3)
    stage.wait(2.0)
    first.crash()
    stage.cluster.edit(("ClusterQueue", "", "a"), _lower)

    stage.lead()
    stage.wait(30.0)

    assert sorted(stage.admitted()) == ["one", "two"]


def _lower(queue: Object) -> None:
    quota = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]
    quota.update(nominalQuota="1", borrowingLimit="0")


def test_what_another_writer_admits_beyond_the_quota_is_evicted_with_its_reason(stage: Stage) -> None:
    stage.cluster.laws.clear()
    stage.lead()
    stage.submit("ours")
    stage.wait(1.0)
    stage.submit("theirs")

    stage.cluster.edit(key_of("theirs"), _admitted_by_another)
    stage.wait(5.0)

    assert stage.admitted() == ["ours"]
    conditions = {one["type"]: one for one in stage.workload("theirs")["status"]["conditions"]}
    assert conditions["Evicted"]["reason"] == "OverAdmitted"
    assert conditions["Requeued"]["status"] == "True"
    assert conditions["QuotaReserved"]["status"] == "False"
