"""The engine: what is admitted and assumed, and what it evicts until the cluster has followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from admission.decisions.decision import Admit, Wait
from admission.engine.engine import EngineSettings
from admission.snapshot.snapshot import Snapshot
from admission.status.views import Usage
from api.jobs.resource_requests import ResourceSettings
from api.queueing import (
    Cohort,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
)
from api.reasons import ConditionType
from api.workload import Admission, PodSetAssignment, Workload, WorkloadKey
from queues.quota.resources import FlavorResource
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    admitted,
    evicts,
    finished,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_workload,
    released,
    reserved,
    waits,
    with_conditions,
)


def make_world(*values: object) -> World:
    return World().put(*values)


# --- admission and assumption ----------------------------------------------------------------------------


def test_a_workload_that_fits_is_admitted_with_its_flavors_and_usage() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=3, at=990.0, resource_version="7"))

    (decision,) = world.cycle()

    assert isinstance(decision, Admit)
    assert decision.resource_version == "7"
    assert decision.is_admitted
    assert decision.waited_seconds == 10.0
    assert decision.admission.cluster_queue == "queue"
    assert decision.admission.pod_sets == (
        PodSetAssignment(name="main", count=1, flavors={"gpu": "default"}, usage={"gpu": 3}),
    )


def test_an_assumed_workload_counts_at_once() -> None:
    world = make_world(
        make_cluster_queue(quota=4), make_workload("a", gpus=3), make_workload("b", gpus=3, at=1)
    )

    decisions = world.settle()

    assert admits(decisions) == ["a"]
    assert waits(decisions) == {"b": "WaitingForQuota"}
    assert world.engine.statistics().assumed == 1


def test_the_event_with_the_admission_makes_the_assumption_a_fact() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())
    decisions = world.settle()

    world.confirm(decisions)

    assert world.engine.statistics().assumed == 0
    assert world.holding() == {"w": "queue"}


def test_an_older_event_without_admission_does_not_undo_the_assumption() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())
    world.settle()

    world.put(make_workload(labels={"touched": "yes"}))

    assert world.holding() == {"w": "queue"}
    assert world.settle() == []


@pytest.mark.parametrize(
    ("event", "want_waiting"),
    [
        pytest.param(finished(make_workload()), [], id="it has finished"),
        pytest.param(make_workload(deleted_at=1.0), [], id="it is being deleted"),
        pytest.param(released(make_workload(), at=999.0), ["w"], id="it was evicted meanwhile"),
        pytest.param(make_workload(uid="another"), ["w"], id="it is another of the same name"),
    ],
)
def test_an_event_that_says_more_ends_the_assumption(event: Workload, want_waiting: list[str]) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())
    world.settle()

    world.put(event)

    assert world.holding() == {}
    assert world.active() == want_waiting


def test_an_eviction_that_was_known_before_does_not_end_the_assumption() -> None:
    evicted_before = released(make_workload(), at=5.0)
    world = make_world(make_cluster_queue(quota=4), evicted_before)
    world.settle()

    world.put(replace(evicted_before, resource_version="9"))

    assert world.holding() == {"w": "queue"}


def test_an_admission_that_could_not_be_written_is_forgotten_and_tried_again() -> None:
    world = make_world(
        make_cluster_queue(quota=4), make_workload("a", gpus=3), make_workload("b", gpus=3, at=1)
    )
    world.settle()

    world.engine.forget(WorkloadKey(NAMESPACE, "a"), "uid-a", now=world.now)
    world.engine.validate()

    assert world.holding() == {}
    assert admits(world.settle()) == ["a"]


def test_forgetting_another_of_the_same_name_changes_nothing() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())
    world.settle()

    world.engine.forget(WorkloadKey(NAMESPACE, "w"), "uid-of-an-earlier-one", now=world.now)

    assert world.holding() == {"w": "queue"}


def test_a_workload_admitted_by_another_program_counts_too() -> None:
    world = make_world(
        make_cluster_queue(quota=4), reserved(make_workload("foreign", gpus=4)), make_workload()
    )

    assert admits(world.settle()) == []


def test_pods_that_are_done_give_their_part_back() -> None:
    running = reserved(make_workload("a", pod_sets=(make_pod_set(count=4),)))
    world = make_world(make_cluster_queue(quota=4), running, make_workload("b", gpus=2))
    assert admits(world.settle()) == []

    world.put(replace(running, reclaimable={"main": 3}))

    assert admits(world.settle()) == ["b"]


def test_pods_that_are_done_keep_their_part_where_the_feature_gate_is_off() -> None:
    settings = EngineSettings(resources=ResourceSettings(counts_reclaimable=False))
    running = reserved(make_workload("a", pod_sets=(make_pod_set(count=4),)))
    world = World(settings=settings).put(make_cluster_queue(quota=4), make_workload("b", gpus=2))

    world.put(replace(running, reclaimable={"main": 3}))

    assert admits(world.settle()) == []


def test_a_quota_that_comes_after_its_user_still_counts_it() -> None:
    world = World().put(reserved(make_workload("early", gpus=4)))

    world.put(make_cluster_queue(quota=4), make_workload("late"))

    assert admits(world.settle()) == []


# --- evictions in flight ---------------------------------------------------------------------------------

PREEMPTING = make_cluster_queue(
    quota=4, preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
)


def test_a_running_workload_whose_priority_falls_may_be_evicted_from_then_on() -> None:
    running = reserved(make_workload("running", gpus=4, priority=9))
    world = make_world(PREEMPTING, running, make_workload("urgent", gpus=2, priority=5))
    assert evicts(world.settle()) == {}

    world.put(replace(running, priority=1, generation=2))

    assert evicts(world.settle()) == {"running": "InClusterQueue"}


def test_a_victim_is_evicted_once_and_its_quota_counts_until_it_is_released() -> None:
    victim = reserved(make_workload("victim", gpus=4))
    world = make_world(PREEMPTING, victim, make_workload("urgent", gpus=2, priority=9))

    decisions = world.settle()
    assert evicts(decisions) == {"victim": "InClusterQueue"}
    assert waits(decisions) == {"urgent": "WaitingForPreemptedWorkloads"}
    assert world.holding() == {"victim": "queue"}

    evicted = with_conditions(victim, make_condition(ConditionType.EVICTED, reason="Preempted", at=world.now))
    world.put(evicted)
    assert evicts(world.settle()) == {}

    world.put(released(evicted, at=world.now))
    assert admits(world.settle()) == ["urgent"]


def test_an_eviction_that_could_not_be_written_is_decided_again() -> None:
    world = make_world(
        PREEMPTING, reserved(make_workload("victim", gpus=4)), make_workload("urgent", gpus=2, priority=9)
    )
    world.settle()

    world.engine.withdraw(WorkloadKey(NAMESPACE, "victim"), "uid-victim", now=world.now)
    world.put(make_workload("urgent", gpus=2, priority=10, generation=2))

    assert evicts(world.settle()) == {"victim": "InClusterQueue"}


def test_an_eviction_that_is_taken_back_leaves_an_admission_that_is_not_shown_yet() -> None:
    world = make_world(PREEMPTING, make_workload("victim", gpus=4))
    assert admits(world.settle()) == ["victim"]
    world.put(make_workload("urgent", gpus=2, priority=9))
    assert evicts(world.settle()) == {"victim": "InClusterQueue"}

    world.engine.withdraw(WorkloadKey(NAMESPACE, "victim"), "uid-victim", now=world.now)

    assert world.holding() == {"victim": "queue"}
    assert evicts(world.settle()) == {"victim": "InClusterQueue"}


def test_a_workload_behind_a_preempting_head_gets_the_reason_of_equal_ones_once_they_have_one() -> None:
    victim = reserved(make_workload("victim", gpus=4))
    first = make_workload("first", gpus=2, priority=9, at=1)
    second = make_workload("second", gpus=2, priority=9, at=2)
    world = make_world(PREEMPTING, victim, first, second)
    assert evicts(world.settle()) == {"victim": "InClusterQueue"}
    assert waits(world.engine.explain(10)) == {"second": "PendingEvaluation"}

    world.put(finished(victim), reserved(make_workload("boss", gpus=4, priority=10)))

    assert waits(world.settle()) == {"first": "WaitingForQuota"}
    assert waits(world.engine.explain(10)) == {"second": "WaitingForQuota"}


@pytest.mark.parametrize(
    ("reason", "want_waits"),
    [
        pytest.param("WaitingForQuota", {}, id="our own reason seen back is not written again"),
        pytest.param("ByHand", {"w": "WaitingForQuota"}, id="another's reason is corrected"),
    ],
)
def test_a_reason_that_is_on_the_object_already(reason: str, want_waits: dict[str, str]) -> None:
    world = make_world(make_cluster_queue(quota=4), reserved(make_workload("big", gpus=4)), make_workload())
    (decision,) = world.settle()
    assert isinstance(decision, Wait)

    said = make_condition(ConditionType.QUOTA_RESERVED, False, reason=reason, message=decision.message)
    world.put(with_conditions(world.get("w"), said))

    assert waits((*world.settle(), *world.engine.explain(10))) == want_waits


def test_a_release_that_overtakes_its_admission_ends_the_assumption() -> None:
    """Both come while the queues are being changed, so that only the last of them is placed."""
    world = make_world(make_cluster_queue(quota=4), make_workload())
    (decision,) = world.settle()
    assert isinstance(decision, Admit)
    shown = admitted(world.get("w"), decision.admission, at=world.now, resource_version="8")

    world.engine.objects.upsert(make_cluster_queue(quota=3), now=world.now)
    world.engine.objects.upsert(shown, now=world.now)
    world.put(make_workload(resource_version="9"))

    assert world.holding() == {}


def test_an_admission_decided_on_another_version_is_not_taken_back() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(resource_version="7"))
    world.settle()
    key = WorkloadKey(NAMESPACE, "w")

    world.engine.forget(key, "uid-w", now=world.now, decided_on="6")
    assert world.holding() == {"w": "queue"}
    world.engine.forget(key, "uid-w", now=world.now, decided_on="7")
    assert world.holding() == {}


@pytest.mark.parametrize(
    ("asked", "reserved_for", "always", "want_holding"),
    [
        pytest.param(4, reserved(make_workload(gpus=4)), False, ["w"], id="what fits counts at once"),
        pytest.param(5, reserved(make_workload(gpus=5)), False, [], id="what does not fit changes nothing"),
        pytest.param(5, reserved(make_workload(gpus=1)), False, [], id="nor if it claims to be smaller"),
        pytest.param(5, reserved(make_workload(gpus=5)), True, ["w"], id="unless it must be kept"),
        pytest.param(
            1, reserved(make_workload(uid="another")), True, [], id="another of the same name is none"
        ),
        pytest.param(1, reserved(make_workload("x")), True, [], id="nor is one that is not known"),
        pytest.param(1, make_workload(), True, [], id="without an admission there is nothing to count"),
    ],
)
def test_a_reservation_of_another_leader(
    asked: int, reserved_for: Workload, always: bool, want_holding: list[str]
) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=asked))

    decision = world.engine.adopt(reserved_for, now=world.now, always=always)
    world.engine.validate()

    assert list(world.holding()) == want_holding
    assert (decision is not None) == bool(want_holding)
    if decision is not None:
        assert usage_of(decision.admission) == {"gpu": asked}
        world.engine.forget(decision.key, decision.uid, now=world.now, decided_on=decision.resource_version)
        assert world.holding() == {}
        assert admits(world.settle()) == (["w"] if asked <= 4 else [])


def usage_of(admission: Admission) -> dict[str, int]:
    """Return what an admission of one pod set charges."""
    (assignment,) = admission.pod_sets
    return dict(assignment.usage)


def test_a_fault_in_deciding_loses_no_workload_and_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())

    def fail(snapshot: Snapshot, *_: object, **__: object) -> None:
        queue = snapshot.queues["queue"]
        snapshot.trial.add(queue, {FlavorResource("default", "gpu"): 3})
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr("admission.scheduler.resumable_cycle.schedule", fail)
        with pytest.raises(RuntimeError):
            world.engine.cycle(now=world.now)

    world.engine.validate()
    assert world.parked() == ["w"]
    world.put(make_workload(generation=2))
    assert admits(world.settle()) == ["w"]


def test_very_many_queues_are_served_in_several_cycles_and_none_is_left_out() -> None:
    names = [f"queue-{index:03}" for index in range(600)]
    world = World()
    for name in names:
        world.engine.objects.upsert(make_cluster_queue(name, quota=2), now=0)
        world.engine.objects.upsert(LocalQueue(namespace=NAMESPACE, name=name, cluster_queue=name), now=0)
        for index in range(2):
            world.engine.objects.upsert(make_workload(f"{name}-{index}", queue=name), now=0)

    sizes = []
    while world.engine.wake_heads(now=0):
        sizes.append(len(world.engine.cycle(now=0)))

    world.engine.validate()
    assert max(sizes) < 300
    assert len(world.holding()) == 1200


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="knows no str"):
        World().engine.objects.remove(str, "x", now=0)


def test_removing_what_is_not_known_is_no_error() -> None:
    world = World()
    for kind, key in (
        (Cohort, "x"),
        (Workload, WorkloadKey("a", "b")),
        (LocalQueue, ("a", "b")),
        (Namespace, "x"),
    ):
        world.remove(kind, key)


def test_a_confirmed_admission_that_differs_from_the_assumed_one_counts_as_confirmed() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=2), ResourceFlavor(name="other"))
    world.settle()
    elsewhere = reserved(make_workload(gpus=2), flavor="other")
    assert elsewhere.admission is not None

    world.put(admitted(make_workload(gpus=2), elsewhere.admission))

    view = world.engine.queues.cluster_queue_view("queue")
    assert view is not None
    assert view.flavors_reservation == {"default": {"gpu": Usage(0, 0)}, "other": {"gpu": Usage(2, 2)}}
