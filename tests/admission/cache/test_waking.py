"""Which Workloads wait in which queue, which are inadmissible, and what wakes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from admission.decisions.decision import Wait
from api.keys import ADMISSION_GATED_BY
from api.node import NodeInfo
from api.queueing import (
    ClusterQueue,
    LocalQueue,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Topology,
)
from api.reasons import ConditionType, PendingReason
from api.workload import TopologyRequest, Workload, WorkloadKey
from queues.pending.pending_queue import PendingQueue
from tests.admission.placement.fleets import HOST
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    finished,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_group,
    make_pod_set,
    make_template,
    make_workload,
    released,
    reserved,
    waits,
    with_conditions,
)

STRICT = QueueingStrategy.STRICT_FIFO


def make_world(*values: object) -> World:
    return World().put(*values)


def test_a_freed_quota_wakes_the_parked() -> None:
    running = reserved(make_workload("a", gpus=4))
    world = make_world(make_cluster_queue(quota=4), running, make_workload("b", gpus=2))
    world.settle()
    assert world.parked() == ["b"]

    world.put(finished(running))

    assert admits(world.settle()) == ["b"]


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(lambda quota: make_group(default=quota), id="of the same flavor"),
        pytest.param(lambda quota: make_group(second=quota), id="of another flavor that has the same node"),
    ],
)
def test_places_that_come_free_wake_other_trees_only_where_a_workload_waits_for_places(
    group: Callable[[int], ResourceGroup],
) -> None:
    node = NodeInfo(name="n", labels={HOST: "n"}, allocatable={"gpu": 8, "pods": 100})

    def on_a_node(name: str, queue: str) -> Workload:
        pod = make_pod_set(requests={"gpu": 8}, topology_request=TopologyRequest(required=HOST))
        return make_workload(name, queue=queue, pod_sets=(pod,))

    world = make_world(
        Topology(name="hosts", levels=(HOST,)),
        ResourceFlavor(name="default", topology_name="hosts"),
        ResourceFlavor(name="second", topology_name="hosts"),
        node,
        make_cluster_queue("full", quota=8),
        make_cluster_queue("placed", groups=(group(8),)),
        make_cluster_queue("poor", groups=(group(4),)),
        on_a_node("runs", "full"),
    )
    world.confirm(world.settle())
    world.put(on_a_node("lacks-a-node", "placed"), on_a_node("lacks-quota", "poor"))
    assert admits(world.settle()) == []

    world.put(finished(world.get("runs")))

    assert world.engine.wake_heads(now=world.now)
    assert (world.active("placed"), world.active("poor")) == (["lacks-a-node"], [])
    assert admits(world.settle()) == ["lacks-a-node"]


def test_a_queue_without_a_head_is_not_asked_again_until_one_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = make_world(make_cluster_queue("idle", quota=4)), list[str]()
    has_head = PendingQueue.has_head

    def note(queue: PendingQueue) -> bool:
        asked.append(queue.name)
        return has_head(queue)

    monkeypatch.setattr(PendingQueue, "has_head", note)

    assert not any(world.engine.wake_heads(now=world.now) for _ in range(3))

    assert asked == ["idle"]
    world.put(make_workload("a", queue="idle", gpus=1))
    assert admits(world.settle()) == ["a"]


def test_a_freed_quota_wakes_the_whole_tree_of_cohorts() -> None:
    running = reserved(make_workload("a", queue="left", gpus=4))
    world = make_world(
        make_cohort("root"),
        make_cohort("other", parent="root"),
        make_cluster_queue("left", quota=4, cohort="root"),
        make_cluster_queue("right", cohort="other"),
        running,
        make_workload("b", queue="right", gpus=2),
    )
    assert admits(world.settle()) == []

    world.remove(Workload, running.key)

    assert admits(world.settle()) == ["b"]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(make_cluster_queue(quota=4), id="the ClusterQueue's quota is raised"),
        pytest.param(make_cohort("team", quota=4), id="the cohort gets quota"),
        pytest.param(
            make_cluster_queue("lender", quota=4, cohort="team"), id="a ClusterQueue joins the cohort"
        ),
    ],
)
def test_a_change_of_quota_wakes_the_parked(change: object) -> None:
    if isinstance(change, ClusterQueue) and change.name == "queue":
        change = replace(change, cohort="team")
    world = make_world(make_cluster_queue(quota=1, cohort="team"), make_workload(gpus=4))
    assert admits(world.settle()) == []

    world.put(change)

    assert admits(world.settle()) == ["w"]


def test_a_changed_flavor_wakes_the_parked() -> None:
    pods = (make_pod_set(template=make_template({"gpu": 1}, node_selector={"model": "h100"})),)
    flavor = ResourceFlavor(name="default", node_labels={"model": "a100"})
    world = make_world(flavor, make_cluster_queue(quota=4), make_workload(pod_sets=pods))
    assert admits(world.settle()) == []

    world.put(replace(flavor, node_labels={"model": "h100"}))

    assert admits(world.settle()) == ["w"]


def test_a_tree_in_which_nothing_can_change_is_left_alone() -> None:
    world = make_world(make_cluster_queue(quota=4, queueing_strategy=STRICT), make_workload(gpus=5))
    world.settle()

    assert world.active() == ["w"]
    assert not world.engine.wake_heads(now=world.now)
    assert world.engine.cycle(now=world.now) == ()


def test_a_strict_head_that_does_not_fit_holds_up_all_behind_it() -> None:
    world = make_world(
        make_cluster_queue(quota=4, queueing_strategy=STRICT),
        make_workload("large", gpus=5),
        make_workload("small", gpus=1, at=1),
    )

    assert admits(world.settle()) == []
    assert world.active() == ["large", "small"]


def test_a_best_effort_head_that_does_not_fit_is_passed() -> None:
    world = make_world(
        make_cluster_queue(quota=4), make_workload("large", gpus=5), make_workload("small", gpus=1, at=1)
    )

    decisions = world.settle()

    assert admits(decisions) == ["small"]
    assert waits(decisions) == {"large": "ExceedsMaxQuota"}
    assert world.parked() == ["large"]


def test_the_same_wait_is_reported_once() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=5))
    (first,) = world.settle()
    assert isinstance(first, Wait)
    assert first.requests == {"main": {"gpu": 5}}

    world.put(make_cluster_queue("other", quota=1), make_cluster_queue(quota=4, fair_weight_milli=2000))

    assert world.settle() == []


def test_workloads_like_one_that_did_not_fit_get_the_same_reason_once() -> None:
    world = make_world(make_cluster_queue(quota=1))
    world.put(*(make_workload(name, gpus=2, at=at) for name, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))))
    (refused,) = world.settle()
    assert isinstance(refused, Wait)

    first, rest = world.engine.explain(1), world.engine.explain(5)

    assert [wait.key.name for wait in (*first, *rest)] == ["b", "c"]
    assert {(wait.reason, wait.message) for wait in (*first, *rest)} == {(refused.reason, refused.message)}
    world.put(make_workload("late", gpus=2, at=4.0))
    assert world.cycle() == ()
    assert [wait.key.name for wait in world.engine.explain(5)] == ["late"]
    assert world.engine.explain(5) == ()


def test_workloads_behind_a_strict_head_get_its_name() -> None:
    world = make_world(make_cluster_queue(quota=4, queueing_strategy=STRICT))
    world.put(make_workload("large", gpus=5, at=1.0), make_workload("small", gpus=1, at=2.0))
    world.settle()

    (wait,) = world.engine.explain(5)

    assert (wait.key.name, wait.reason) == ("small", PendingReason.PENDING_EVALUATION)
    assert (
        wait.message
        == f"waits behind {NAMESPACE}/large: ClusterQueue queue is StrictFIFO and admits in order only"
    )


def test_workloads_behind_a_preemptor_get_its_name_and_later_a_reason_of_their_own() -> None:
    by_priority = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
    victim = reserved(make_workload("victim", gpus=4))
    world = make_world(make_cluster_queue(quota=4, preemption=by_priority), victim)
    world.put(make_workload("high", gpus=4, priority=9, at=1.0), make_workload("small", gpus=1, at=2.0))
    assert list(evicts(world.settle())) == ["victim"]

    (wait,) = world.engine.explain(5)

    assert (wait.key.name, wait.reason) == ("small", PendingReason.PENDING_EVALUATION)
    assert (
        wait.message
        == f"waits behind {NAMESPACE}/high, for which Workloads are preempted that still hold their quota"
    )
    assert world.engine.explain(5) == ()
    world.put(released(world.get("victim"), at=1001.0))
    world.remove(Workload, WorkloadKey(NAMESPACE, "victim"))
    decided = world.settle()
    assert admits(decided) == ["high"]
    assert list(waits(decided)) == ["small"]


def test_a_back_off_ends_by_the_clock() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(requeue_at=1060.0))
    assert world.settle() == []
    assert world.engine.next_wake_at() == 1060.0

    world.now = 1060.0

    assert admits(world.settle()) == ["w"]


def test_a_workload_that_may_not_requeue_waits_until_it_may() -> None:
    held_back = make_condition(ConditionType.REQUEUED, False, reason="PodsReadyTimeout")
    workload = with_conditions(make_workload(), held_back)
    world = make_world(make_cluster_queue(quota=4), workload)
    assert world.settle() == []

    world.put(with_conditions(workload, make_condition(ConditionType.REQUEUED, reason="BackoffFinished")))

    assert admits(world.settle()) == ["w"]


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload(active=False), id="it is deactivated"),
        pytest.param(make_workload(annotations={ADMISSION_GATED_BY: "example.com/gate"}), id="it is gated"),
        pytest.param(make_workload(deleted_at=5.0), id="it is being deleted"),
        pytest.param(make_workload(queue="nowhere"), id="its queue does not exist"),
        pytest.param(
            with_conditions(make_workload(), make_condition(ConditionType.WAITING_FOR_REPLACEMENT_PODS)),
            id="it lacks pods",
        ),
    ],
)
def test_a_workload_does_not_queue_where(workload: Workload) -> None:
    world = make_world(make_cluster_queue(quota=4), workload)

    assert world.settle() == []
    assert world.active() == world.parked() == []


def test_a_workload_moves_with_its_queue_name() -> None:
    world = make_world(make_cluster_queue(quota=0), make_cluster_queue("other", quota=4), make_workload())
    world.settle()

    world.put(make_workload(queue="other", generation=2))

    assert admits(world.settle()) == ["w"]
    assert world.holding() == {"w": "other"}


def test_the_workloads_of_a_stopped_local_queue_leave_and_come_back() -> None:
    world = make_world(make_cluster_queue(quota=0), make_workload())
    queue = LocalQueue(namespace=NAMESPACE, name="queue", cluster_queue="queue")

    world.put(replace(queue, stop_policy=StopPolicy.HOLD))
    world.settle()
    assert world.active() == world.parked() == []

    world.put(queue)
    assert len(world.engine.queues.pending("queue")) == 1


def test_a_stopped_cluster_queue_admits_nothing_until_it_runs_again() -> None:
    world = make_world(make_cluster_queue(quota=4, stop_policy=StopPolicy.HOLD), make_workload())
    assert world.settle() == []

    world.put(make_cluster_queue(quota=4))

    assert admits(world.settle()) == ["w"]


def test_removing_a_cluster_queue_takes_its_workloads_out_and_a_new_one_takes_them_in() -> None:
    world = make_world(make_cluster_queue(quota=0), make_workload())
    world.settle()

    world.remove(ClusterQueue, "queue")
    assert world.engine.queues.pending("queue") == ()

    world.put(make_cluster_queue(quota=4))
    assert admits(world.settle()) == ["w"]


def test_an_admission_after_an_eviction_wakes_none_when_the_object_shows_it() -> None:
    again = released(make_workload("again"))
    world = make_world(make_cluster_queue(quota=2), again, make_workload("large", at=1, gpus=2))
    decisions = world.settle()
    assert (admits(decisions), world.parked()) == (["again"], ["large"])

    world.confirm(decisions)

    assert not world.engine.wake_heads(now=world.now)
    assert world.parked() == ["large"]
