"""The engine: what is known, what is assumed, what wakes whom, and what it says of the queues."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from admission.decision import Admit, Wait
from admission.snapshot import Snapshot
from admission.views import Usage
from api.keys import ADMISSION_GATED_BY
from api.objects import LimitRangeItem, WireSelector, WireToleration
from api.queueing import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    Cohort,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
)
from api.reasons import ConditionType, InactiveReason, PendingReason
from api.requests import LimitRange, RuntimeClass
from api.workload import CheckState, PodSetAssignment, Workload, WorkloadKey
from queues.resources import FlavorResource
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    admitted,
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


def test_a_quota_that_comes_after_its_user_still_counts_it() -> None:
    world = World().put(reserved(make_workload("early", gpus=4)))

    world.put(make_cluster_queue(quota=4), make_workload("late"))

    assert admits(world.settle()) == []


# --- who waits, who is woken -----------------------------------------------------------------------------


def test_a_freed_quota_wakes_the_parked() -> None:
    running = reserved(make_workload("a", gpus=4))
    world = make_world(make_cluster_queue(quota=4), running, make_workload("b", gpus=2))
    world.settle()
    assert world.parked() == ["b"]

    world.put(finished(running))

    assert admits(world.settle()) == ["b"]


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


def test_a_running_workload_whose_priority_falls_may_be_evicted_from_then_on() -> None:
    running = reserved(make_workload("running", gpus=4, priority=9))
    world = make_world(PREEMPTING, running, make_workload("urgent", gpus=2, priority=5))
    assert evicts(world.settle()) == {}

    world.put(replace(running, priority=1, generation=2))

    assert evicts(world.settle()) == {"running": "InClusterQueue"}


def test_a_tree_in_which_nothing_can_change_is_left_alone() -> None:
    world = make_world(make_cluster_queue(quota=4, queueing_strategy=STRICT), make_workload(gpus=5))
    world.settle()

    assert world.active() == ["w"]
    assert not world.engine.has_heads(now=world.now)
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


def test_the_same_wait_is_told_once() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=5))
    (first,) = world.settle()
    assert isinstance(first, Wait)
    assert first.requests == {"main": {"gpu": 5}}

    world.put(make_cluster_queue("other", quota=1), make_cluster_queue(quota=4, fair_weight_milli=2000))

    assert world.settle() == []


def test_those_like_a_workload_that_did_not_fit_are_told_the_same_once() -> None:
    world = make_world(make_cluster_queue(quota=1))
    world.put(*(make_workload(name, gpus=2, at=at) for name, at in (("a", 1.0), ("b", 2.0), ("c", 3.0))))
    (told,) = world.settle()
    assert isinstance(told, Wait)

    first, rest = world.engine.explain(1), world.engine.explain(5)

    assert [wait.key.name for wait in (*first, *rest)] == ["b", "c"]
    assert {(wait.reason, wait.message) for wait in (*first, *rest)} == {(told.reason, told.message)}
    world.put(make_workload("late", gpus=2, at=4.0))
    assert world.cycle() == ()
    assert [wait.key.name for wait in world.engine.explain(5)] == ["late"]
    assert world.engine.explain(5) == ()


def test_those_behind_a_strict_head_are_told_behind_whom_they_wait() -> None:
    world = make_world(make_cluster_queue(quota=4, queueing_strategy=STRICT))
    world.put(make_workload("large", gpus=5, at=1.0), make_workload("small", gpus=1, at=2.0))
    world.settle()

    (wait,) = world.engine.explain(5)

    assert (wait.key.name, wait.reason) == ("small", PendingReason.PENDING_EVALUATION)
    assert (
        wait.message
        == f"waits behind {NAMESPACE}/large: ClusterQueue queue is StrictFIFO and admits in order alone"
    )


def test_a_back_off_ends_by_the_clock() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(requeue_at=1060.0))
    assert world.settle() == []
    assert world.engine.next_wake_at() == 1060.0

    world.now = 1060.0

    assert admits(world.settle()) == ["w"]


def test_a_workload_told_not_to_requeue_waits_for_word() -> None:
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
    assert len(world.engine.pending("queue")) == 1


def test_a_stopped_cluster_queue_admits_nothing_until_it_runs_again() -> None:
    world = make_world(make_cluster_queue(quota=4, stop_policy=StopPolicy.HOLD), make_workload())
    assert world.settle() == []

    world.put(make_cluster_queue(quota=4))

    assert admits(world.settle()) == ["w"]


def test_removing_a_cluster_queue_takes_its_workloads_out_and_a_new_one_takes_them_in() -> None:
    world = make_world(make_cluster_queue(quota=0), make_workload())
    world.settle()

    world.remove(ClusterQueue, "queue")
    assert world.engine.pending("queue") == ()

    world.put(make_cluster_queue(quota=4))
    assert admits(world.settle()) == ["w"]


# --- checks ----------------------------------------------------------------------------------------------

CHECKED = make_cluster_queue(
    quota=4, checks=(CheckRule(name="budget"), CheckRule(name="other", on_flavors=frozenset({"spot"})))
)
BUDGET = AdmissionCheck(name="budget", controller_name="c", is_active=True)
OTHER = AdmissionCheck(name="other", controller_name="c", is_active=True)


def test_quota_is_reserved_only_while_checks_are_outstanding() -> None:
    world = make_world(BUDGET, OTHER, CHECKED, make_workload())

    (decision,) = world.settle()

    assert isinstance(decision, Admit)
    assert (decision.is_admitted, decision.checks) == (False, ("budget",))
    assert world.engine.required_checks(make_workload()) == ("budget",)


def test_checks_that_are_ready_already_admit_at_once() -> None:
    ready = make_workload(checks=(CheckState(name="budget", state="Ready"),))
    (decision,) = make_world(BUDGET, OTHER, CHECKED, ready).settle()

    assert isinstance(decision, Admit)
    assert decision.is_admitted


def test_a_check_that_asks_for_a_retry_keeps_the_workload_waiting() -> None:
    retrying = make_workload(checks=(CheckState(name="budget", state="Retry"),))

    decisions = make_world(BUDGET, OTHER, CHECKED, retrying).settle()

    assert waits(decisions) == {"w": "PendingEvaluation"}


# --- what is said of the queues --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "workload", "want"),
    [
        pytest.param(
            [],
            make_workload(),
            (PendingReason.MISCONFIGURED, "LocalQueue team/queue doesn't exist; create it"),
            id="a LocalQueue that is not there",
        ),
        pytest.param(
            [LocalQueue(namespace=NAMESPACE, name="queue", cluster_queue="gone")],
            make_workload(),
            (PendingReason.MISCONFIGURED, "ClusterQueue gone doesn't exist; create it"),
            id="a ClusterQueue that is not there",
        ),
        pytest.param(
            [make_cluster_queue(stop_policy=StopPolicy.HOLD)],
            make_workload(),
            (PendingReason.ON_HOLD, "ClusterQueue queue is inactive: it is stopped (spec.stopPolicy: Hold)"),
            id="a ClusterQueue that is stopped",
        ),
        pytest.param(
            [make_cluster_queue(groups=(make_group(ghost=1),))],
            make_workload(),
            (
                PendingReason.SUSPENDED,
                "ClusterQueue queue is inactive: references missing ResourceFlavor(s): ghost; create them",
            ),
            id="a flavor that is not there",
        ),
        pytest.param(
            [make_cohort("a", parent="b"), make_cohort("b", parent="a"), make_cluster_queue(cohort="a")],
            make_workload(),
            (
                PendingReason.SUSPENDED,
                "ClusterQueue queue is inactive: its cohorts form a cycle (a → b → a); "
                "change spec.parentName of one of them",
            ),
            id="cohorts in a cycle",
        ),
        pytest.param(
            [make_cluster_queue(namespace_selector=WireSelector(match_labels={"team": "b"}))],
            make_workload(),
            (
                PendingReason.MISCONFIGURED,
                "ClusterQueue queue does not select namespace team: its spec.namespaceSelector does not "
                "match the namespace's labels",
            ),
            id="a namespace that is not selected",
        ),
        pytest.param(
            [make_cluster_queue()],
            make_workload(pod_sets=(make_pod_set(requests={"gpu": "many"}),)),
            (
                PendingReason.MISCONFIGURED,
                "pod set 'main': resources of its template: 'many' is not a quantity: expected a number with"
                ' an optional suffix, such as "500m", "2", "1.5Gi" or "1e3"; correct the pod template',
            ),
            id="a request that is no quantity",
        ),
        pytest.param(
            [make_cluster_queue()],
            make_workload(active=False),
            (PendingReason.DEACTIVATED, "The workload is deactivated; set spec.active to true"),
            id="a Workload that is deactivated",
        ),
        pytest.param([make_cluster_queue()], make_workload(), None, id="nothing wrong"),
    ],
)
def test_a_workload_that_cannot_be_tried_is_told_why_and_what_to_do(
    values: list[object], workload: Workload, want: tuple[PendingReason, str] | None
) -> None:
    world = make_world(*values, workload)

    assert world.engine.queue_problem(workload) == want
    assert admits(world.settle()) == []


def test_a_namespace_that_is_not_selected_is_told_by_the_cycle_and_woken_by_its_labels() -> None:
    selector = WireSelector(match_labels={"team": "b"})
    world = make_world(make_cluster_queue(quota=4, namespace_selector=selector), make_workload())
    assert waits(world.settle()) == {"w": "Misconfigured"}

    world.put(Namespace(name=NAMESPACE, labels={"team": "b"}))

    assert admits(world.settle()) == ["w"]


def test_pods_outside_the_limit_range_are_told_by_the_cycle_until_it_changes() -> None:
    def bounds(most: str) -> LimitRange:
        item = LimitRangeItem(max={"gpu": most})
        return LimitRange(namespace=NAMESPACE, name="bounds", limits=(item,))

    world = make_world(make_cluster_queue(quota=4), bounds("2"), make_workload(gpus=3))
    assert waits(world.settle()) == {"w": "Misconfigured"}

    world.put(bounds("4"))

    assert admits(world.settle()) == ["w"]


def test_which_limit_range_gives_the_default_does_not_hang_on_which_was_edited_last() -> None:
    def defaults(name: str, gpus: str) -> LimitRange:
        item = LimitRangeItem(type="Container", default_request={"gpu": gpus})
        return LimitRange(namespace=NAMESPACE, name=name, limits=(item,))

    pods = (make_pod_set(requests={}),)
    world = make_world(make_cluster_queue(quota=8), defaults("a", "1"), defaults("b", "4"))

    world.put(defaults("a", "2"), make_workload(pod_sets=pods))

    (admit,) = [one for one in world.settle() if isinstance(one, Admit)]
    assert admit.admission.pod_sets[0].usage == {"gpu": 2}


def test_a_runtime_class_that_is_gone_adds_nothing_to_those_who_wait() -> None:
    asked = make_template({"gpu": 3})
    assert asked.spec is not None
    template = structs.replace(asked, spec=structs.replace(asked.spec, runtime_class_name="kata"))
    pods = (make_pod_set(template=template),)
    kata = RuntimeClass(name="kata", overhead={"gpu": "2"})
    world = make_world(make_cluster_queue(quota=4), kata, make_workload(pod_sets=pods))
    assert not admits(world.settle())

    world.remove(RuntimeClass, "kata")

    assert admits(world.settle()) == ["w"]


def test_an_unreadable_cluster_queue_is_inactive_with_its_reason_and_others_go_on() -> None:
    world = make_world(make_cluster_queue("sound", quota=4), make_workload(queue="sound"))

    world.engine.unreadable(ClusterQueue, "broken", "spec.cohortName is 5", now=world.now)
    world.engine.validate()

    view = world.engine.cluster_queue_view("broken")
    assert view is not None
    assert (view.is_active, view.reason) == (False, InactiveReason.UNKNOWN)
    assert "spec.cohortName is 5" in view.message
    assert admits(world.settle()) == ["w"]
    world.put(make_cluster_queue("broken", quota=4), make_workload("v", queue="broken"))
    assert admits(world.settle()) == ["v"]


def test_an_unreadable_workload_waits_outside_until_it_can_be_read() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())

    world.engine.unreadable(Workload, WorkloadKey(NAMESPACE, "w"), "spec.podSets is empty", now=world.now)

    assert world.settle() == []
    assert world.engine.queue_problem(make_workload()) == (
        PendingReason.MISCONFIGURED,
        "spec.podSets is empty",
    )
    world.put(make_workload(resource_version="2"))
    assert admits(world.settle()) == ["w"]


def test_a_cluster_queue_shows_who_waits_and_who_holds_what() -> None:
    world = make_world(
        make_cluster_queue(quota=4, cohort="team"),
        make_cluster_queue("lender", quota=4, cohort="team"),
        reserved(make_workload("a", gpus=6)),
        with_conditions(reserved(make_workload("b", gpus=1)), make_condition(ConditionType.ADMITTED, False)),
        make_workload("c", gpus=9),
        make_workload("d", gpus=1),
    )
    world.engine.cycle(now=world.now)

    view = world.engine.cluster_queue_view("queue")

    assert view is not None
    assert (view.active_pending, view.parked_pending, view.pending) == (1, 1, 2)
    assert (view.reserving, view.admitted) == (2, 1)
    assert view.flavors_reservation == {"default": {"gpu": Usage(7, 3)}}
    assert view.flavors_usage == {"default": {"gpu": Usage(6, 2)}}
    assert view.weighted_share == 375
    assert [(one.key.name, one.is_parked) for one in world.engine.pending("queue")] == [
        ("c", True),
        ("d", False),
    ]


def test_a_local_queue_shows_its_own() -> None:
    world = make_world(
        make_cluster_queue(quota=4),
        LocalQueue(namespace=NAMESPACE, name="second", cluster_queue="queue"),
        reserved(make_workload("a", gpus=3)),
        make_workload("b", queue="second", gpus=2),
    )
    world.settle()

    first = world.engine.local_queue_view(NAMESPACE, "queue")
    second = world.engine.local_queue_view(NAMESPACE, "second")

    assert first is not None
    assert second is not None
    assert (first.pending, first.reserving, first.admitted) == (0, 1, 1)
    assert (second.pending, second.reserving, second.is_active) == (1, 0, True)
    assert world.engine.local_queue_view(NAMESPACE, "third") is None


def test_a_local_queue_without_its_cluster_queue_says_so() -> None:
    world = World().put(LocalQueue(namespace=NAMESPACE, name="q", cluster_queue="gone"))

    view = world.engine.local_queue_view(NAMESPACE, "q")

    assert view is not None
    assert view.reason is InactiveReason.CLUSTER_QUEUE_DOES_NOT_EXIST


def test_a_cohort_shows_its_share_or_its_cycle() -> None:
    world = make_world(
        make_cohort("left", parent="root"),
        make_cluster_queue(cohort="left"),
        make_cluster_queue("lender", quota=4, cohort="root"),
        make_cohort("x", parent="y"),
        make_cohort("y", parent="x"),
        reserved(make_workload("a", gpus=2)),
    )

    left, cycle = world.engine.cohort_view("left"), world.engine.cohort_view("x")

    assert left is not None
    assert cycle is not None
    assert (left.weighted_share, left.problem) == (500, None)
    assert "x → y → x" in (cycle.problem or "")
    assert world.engine.cohort_view("nobody") is None


def test_what_has_been_touched_is_told_once() -> None:
    world = make_world(make_cohort("root"), make_cluster_queue(quota=4, cohort="root"), make_workload())
    world.engine.drain_touched()
    world.settle()

    touched = world.engine.drain_touched()

    assert touched.cluster_queues == {"queue"}
    assert touched.local_queues == {(NAMESPACE, "queue")}
    assert touched.cohorts == {"root"}
    assert world.engine.drain_touched().cluster_queues == frozenset()


def test_labels_and_tolerations_of_all_assigned_flavors_are_injected() -> None:
    toleration = WireToleration(key="gpu", operator="Exists")
    world = make_world(
        ResourceFlavor(name="a", node_labels={"model": "a100"}, tolerations=(toleration,)),
        ResourceFlavor(name="b", node_labels={"disk": "fast"}, tolerations=(toleration,)),
    )
    assignment = PodSetAssignment(name="main", count=1, flavors={"gpu": "a", "disk": "b"}, usage={})

    labels, tolerations = world.engine.flavor_injection(assignment)

    assert labels == {"model": "a100", "disk": "fast"}
    assert tolerations == (toleration,)


# --- evictions in flight ---------------------------------------------------------------------------------

PREEMPTING = make_cluster_queue(
    quota=4, preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
)


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

    world.engine.forget(WorkloadKey(NAMESPACE, "victim"), "uid-victim", now=world.now)
    world.put(make_workload("urgent", gpus=2, priority=10, generation=2))

    assert evicts(world.settle()) == {"victim": "InClusterQueue"}


def test_who_waits_behind_a_preempting_head_is_told_once_its_equals_are() -> None:
    victim = reserved(make_workload("victim", gpus=4))
    first = make_workload("first", gpus=2, priority=9, at=1)
    second = make_workload("second", gpus=2, priority=9, at=2)
    world = make_world(PREEMPTING, victim, first, second)
    assert evicts(world.settle()) == {"victim": "InClusterQueue"}
    assert world.engine.explain(10) == ()

    world.put(finished(victim), reserved(make_workload("boss", gpus=4, priority=10)))

    assert waits(world.settle()) == {"first": "WaitingForQuota"}
    assert waits(world.engine.explain(10)) == {"second": "WaitingForQuota"}


@pytest.mark.parametrize(
    ("reason", "want_told"),
    [
        pytest.param("WaitingForQuota", {}, id="our own word seen back is not said again"),
        pytest.param("ByHand", {"w": "WaitingForQuota"}, id="another's word is put right"),
    ],
)
def test_a_word_that_stands_on_the_object(reason: str, want_told: dict[str, str]) -> None:
    world = make_world(make_cluster_queue(quota=4), reserved(make_workload("big", gpus=4)), make_workload())
    (decision,) = world.settle()
    assert isinstance(decision, Wait)

    said = make_condition(ConditionType.QUOTA_RESERVED, False, reason=reason, message=decision.message)
    world.put(with_conditions(world.get("w"), said))

    assert waits((*world.settle(), *world.engine.explain(10))) == want_told


def test_a_release_that_overtakes_its_admission_ends_the_assumption() -> None:
    """Both come while the queues are being changed, so that only the last of them is placed."""
    world = make_world(make_cluster_queue(quota=4), make_workload())
    (decision,) = world.settle()
    assert isinstance(decision, Admit)
    shown = admitted(world.get("w"), decision.admission, at=world.now, resource_version="8")

    world.engine.upsert(make_cluster_queue(quota=3), now=world.now)
    world.engine.upsert(shown, now=world.now)
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
    ("reserved_for", "always", "want_holding"),
    [
        pytest.param(reserved(make_workload(gpus=4)), False, ["w"], id="what fits counts at once"),
        pytest.param(reserved(make_workload(gpus=5)), False, [], id="what does not fit changes nothing"),
        pytest.param(reserved(make_workload(gpus=5)), True, ["w"], id="unless it must be kept"),
        pytest.param(reserved(make_workload(uid="another")), True, [], id="another of the same name is none"),
        pytest.param(reserved(make_workload("x")), True, [], id="nor is one that is not known"),
        pytest.param(make_workload(), True, [], id="without an admission there is nothing to count"),
    ],
)
def test_a_reservation_of_another_leader(
    reserved_for: Workload, always: bool, want_holding: list[str]
) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())

    decision = world.engine.adopt(reserved_for, now=world.now, always=always)
    world.engine.validate()

    assert list(world.holding()) == want_holding
    assert (decision is not None) == bool(want_holding)
    if decision is not None:
        world.engine.forget(decision.key, decision.uid, now=world.now, decided_on=decision.resource_version)
        assert world.holding() == {}
        assert admits(world.settle()) == ["w"]


def test_a_fault_in_deciding_loses_no_workload_and_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())

    def fail(snapshot: Snapshot, *_: object, **__: object) -> None:
        queue = snapshot.queues["queue"]
        snapshot.add(queue, {FlavorResource("default", "gpu"): 3})
        raise RuntimeError("a fault")

    with monkeypatch.context() as patch:
        patch.setattr("admission.cycle.schedule", fail)
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
        world.engine.upsert(make_cluster_queue(name, quota=2), now=0)
        world.engine.upsert(LocalQueue(namespace=NAMESPACE, name=name, cluster_queue=name), now=0)
        for index in range(2):
            world.engine.upsert(make_workload(f"{name}-{index}", queue=name), now=0)

    sizes = []
    while world.engine.has_heads(now=0):
        sizes.append(len(world.engine.cycle(now=0)))

    world.engine.validate()
    assert max(sizes) < 300
    assert len(world.holding()) == 1200


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="knows no str"):
        World().engine.remove(str, "x", now=0)


def test_removing_what_is_not_known_is_no_error() -> None:
    world = World()
    for kind, key in (
        (Cohort, "x"),
        (Workload, WorkloadKey("a", "b")),
        (LocalQueue, ("a", "b")),
        (Namespace, "x"),
    ):
        world.remove(kind, key)


def test_a_confirmed_admission_that_differs_from_the_assumed_one_counts_as_it_stands() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload(gpus=2), ResourceFlavor(name="other"))
    world.settle()
    elsewhere = reserved(make_workload(gpus=2), flavor="other")
    assert elsewhere.admission is not None

    world.put(admitted(make_workload(gpus=2), elsewhere.admission))

    view = world.engine.cluster_queue_view("queue")
    assert view is not None
    assert view.flavors_reservation == {"default": {"gpu": Usage(0, 0)}, "other": {"gpu": Usage(2, 2)}}
