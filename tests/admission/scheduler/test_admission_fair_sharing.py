"""Admission fair sharing in the engine: LocalQueues of one ClusterQueue, from the decision to the status."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from admission.status.queue_status import local_queue_status
from api.past_usage import PastUsage, read_past_usage
from api.queueing import LocalQueue, Preemption, PreemptionPolicy, QueueingStrategy
from api.workload import Workload
from queues.pending.admission_fair_sharing import AdmissionFairSharing
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    finished,
    make_cluster_queue,
    make_condition,
    make_workload,
    reserved,
    with_conditions,
)

HALVING = AdmissionFairSharing(half_life_seconds=300, sampling_seconds=300)
NANOS = 10**9


def make_local_queue(name: str, *, used: int | None = None, weight_milli: int = 1000) -> LocalQueue:
    """Return a LocalQueue of the ClusterQueue `queue` whose status says what it has used, in GPUs."""
    past = None if used is None else PastUsage(consumed={"gpu": used * NANOS}, updated_at=1000)
    return LocalQueue(
        namespace=NAMESPACE,
        name=name,
        cluster_queue="queue",
        fair_weight_milli=weight_milli,
        past_usage=past,
    )


def make_world(
    *values: Any,
    sharing: AdmissionFairSharing | None = HALVING,
    fair: FairPreemption | None = None,
    **queue: Any,
) -> World:
    """Return a world in which ClusterQueue `queue` goes by past usage."""
    world = World(settings=EngineSettings(admission_fair_sharing=sharing, fair_sharing=fair))
    spec = {"quota": 1, "is_admission_fair_sharing": True, **queue}
    world.put(make_cluster_queue(**spec), make_local_queue("busy", used=5), make_local_queue("idle"))
    return world.put(*values)


def running(name: str, queue: str, **fields: Any) -> Workload:
    """Return a Workload of ClusterQueue `queue` that is admitted."""
    return reserved(make_workload(name, queue=queue, **fields), queue="queue")


def rivals() -> tuple[Workload, Workload]:
    """Return two for one place: of the queue that has used much the older and more important one."""
    return make_workload("b", queue="busy", priority=5), make_workload("i", queue="idle", at=9)


def test_the_local_queue_that_has_used_less_is_admitted_first() -> None:
    assert admits(make_world(*rivals()).settle()) == ["i"]


@pytest.mark.parametrize(
    ("sharing", "queue"),
    [
        pytest.param(None, {}, id="the configuration does not switch it on"),
        pytest.param(
            HALVING, {"is_admission_fair_sharing": False}, id="the ClusterQueue does not ask for it"
        ),
    ],
)
def test_without_it_priority_decides(sharing: AdmissionFairSharing | None, queue: dict[str, Any]) -> None:
    assert admits(make_world(*rivals(), sharing=sharing, **queue).settle()) == ["b"]


def test_a_local_queue_of_weight_0_goes_last() -> None:
    world = make_world(make_local_queue("idle", weight_milli=0), *rivals())

    assert admits(world.settle()) == ["b"]


def test_a_burst_takes_turns_before_any_sample_is_taken() -> None:
    world = make_world(make_local_queue("busy", used=None), quota=4)
    world.engine.objects.adopt_usage((NAMESPACE, "busy"), PastUsage(consumed={}, updated_at=1001))
    for index in range(3):
        world.put(make_workload(f"b{index}", queue="busy"), make_workload(f"i{index}", queue="idle", at=9))

    assert admits(world.settle()) == ["b0", "i0", "b1", "i1"]


def test_a_decision_that_could_not_be_written_costs_no_usage() -> None:
    world = make_world(make_local_queue("idle", used=0), quota=9)
    (decision,) = world.put(make_workload("i", queue="idle", gpus=8)).cycle()
    assert usage(world, "idle") == 4.0

    world.engine.forget(decision.key, decision.uid, now=world.now)

    assert usage(world, "idle") == 0.0


def usage(world: World, name: str) -> float | None:
    view = world.engine.queues.local_queue_view(NAMESPACE, name)
    assert view is not None
    return view.fair_usage


def test_past_usage_is_sampled_at_each_interval_and_shown_in_the_status() -> None:
    world = make_world(quota=9)
    world.confirm(world.put(make_workload("b", queue="busy", gpus=8)).settle())
    world.engine.usage_sampling.sample(now=1000)
    assert world.engine.usage_sampling.next_at() == 1300.0

    world.engine.usage_sampling.sample(now=1299)
    assert usage(world, "busy") == 5 + 8 / 2
    world.engine.usage_sampling.sample(now=1300)

    view = world.engine.queues.local_queue_view(NAMESPACE, "busy")
    assert view is not None
    body = local_queue_status(b'{"metadata": {}, "status": {}}', view, now=1300)
    assert body is not None
    assert json.loads(body)["status"]["fairSharing"] == {
        "weightedShare": 0,
        "admissionFairSharingStatus": {
            "consumedResources": {"gpu": "8500m"},
            "lastUpdate": "1970-01-01T00:21:40Z",
        },
    }
    assert read_past_usage(json.dumps(json.loads(body)["status"]).encode()) == view.past_usage


def test_a_new_engine_goes_on_from_the_status() -> None:
    world = make_world(quota=9)
    world.put(running("b", "busy", gpus=8))
    world.now = 1300

    world.engine.usage_sampling.sample(now=1300)

    assert usage(world, "busy") == 5 / 2 + 8 / 2


def test_a_strict_queue_tries_another_head_once_a_sample_has_changed_the_order() -> None:
    world = make_world(
        make_local_queue("idle", used=2), quota=2, queueing_strategy=QueueingStrategy.STRICT_FIFO
    )
    world.put(running("held", "idle"))
    world.put(make_workload("large", queue="idle", gpus=2), make_workload("small", queue="busy"))
    assert admits(world.settle()) == []

    # Half an hour later the one that holds nothing has less behind it.
    world.engine.usage_sampling.sample(now=1000 + 6 * 300)
    world.now += 6 * 300

    assert admits(world.settle()) == ["small"]


@pytest.mark.parametrize("fair", [None, FairPreemption()], ids=["classical", "with fair sharing"])
def test_within_the_queue_the_local_queue_that_has_used_most_is_preempted_first(
    fair: FairPreemption | None,
) -> None:
    preemption = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    world = make_world(make_local_queue("idle", used=1), quota=2, preemption=preemption, fair=fair)
    for name, queue, priority in (("b", "busy", 3), ("i", "idle", 1)):
        world.put(running(name, queue, priority=priority))

    decisions = world.put(make_workload("new", queue="idle", priority=9)).cycle()

    assert evicts(decisions) == {"b": "InClusterQueue"}


def test_a_workload_whose_local_queue_was_deleted_weighs_no_more_than_another() -> None:
    world = make_world(quota=9)
    world.confirm(world.put(make_workload("b", queue="busy", gpus=8)).settle())

    world.remove(LocalQueue, (NAMESPACE, "busy"))
    world.engine.usage_sampling.sample(now=1300)
    world.put(finished(world.get("b")))

    assert world.engine.queues.local_queue_view(NAMESPACE, "busy") is None
    assert admits(world.put(make_workload("i", queue="idle")).settle()) == ["i"]


def test_a_queue_that_is_not_ordered_by_past_usage_has_one_too() -> None:
    """Kueue counts it for all LocalQueues; the scope of a ClusterQueue says whether it orders them."""
    world = make_world(quota=9, is_admission_fair_sharing=False)
    decisions = world.put(make_workload("b", queue="busy", gpus=4)).settle()
    assert usage(world, "busy") == 5 + 4 / 2

    world.put(make_cluster_queue(quota=9, is_admission_fair_sharing=True))

    assert usage(world, "busy") == 5 + 4 / 2
    world.confirm(decisions)
    assert usage(world, "busy") == 5 + 4 / 2


def test_a_new_local_queue_shows_at_once_that_it_has_used_nothing() -> None:
    world = make_world()
    world.engine.usage_sampling.sample(now=world.now)

    world.put(make_local_queue("new"))
    world.engine.usage_sampling.sample(now=world.now + 1)

    view = world.engine.queues.local_queue_view(NAMESPACE, "new")
    assert view is not None
    assert view.past_usage == PastUsage(consumed={"gpu": 0}, updated_at=1001)
    body = local_queue_status(b'{"metadata": {"name": "new"}}', view, now=world.now)
    assert body is not None
    past = json.loads(body)["status"]["fairSharing"]["admissionFairSharingStatus"]
    assert past["consumedResources"] == {"gpu": "0"}


def test_a_reservation_that_waits_for_its_checks_stays_a_penalty() -> None:
    world = make_world(quota=9)
    holder = running("b", "busy", gpus=4)
    world.put(with_conditions(holder, make_condition("Admitted", False)))
    assert usage(world, "busy") == 5 + 4 / 2

    world.put(holder)
    past = world.engine.queues.local_queue_view(NAMESPACE, "busy")

    assert past is not None
    assert past.past_usage is not None
    assert past.past_usage.consumed == {"gpu": 7 * NANOS}


def test_a_status_that_cannot_be_read_is_as_good_as_none() -> None:
    broken = b'{"fairSharing": {"admissionFairSharingStatus": {"consumedResources": {"gpu": "lots"}}}}'

    assert read_past_usage(broken) is None
    assert read_past_usage(b'{"fairSharing": {"admissionFairSharingStatus": 3}}') is None


def test_a_changed_status_is_no_changed_spec() -> None:
    assert make_local_queue("x", used=3) == make_local_queue("x", used=4)
    assert replace(make_local_queue("x"), fair_weight_milli=1) != make_local_queue("x")
