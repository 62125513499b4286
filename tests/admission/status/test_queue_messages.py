"""What the engine says: of checks outstanding, of Workloads that cannot be tried, of queues and cohorts."""

from __future__ import annotations

import pytest
from msgspec import structs

from admission.decisions.decision import Admit
from admission.status.views import Usage
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.keys import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLER
from api.objects.cluster import LimitRangeItem
from api.objects.common import WireSelector, WireToleration
from api.queueing import (
    AdmissionCheck,
    CheckRule,
    ClusterQueue,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    StopPolicy,
)
from api.reasons import ConditionType, InactiveReason, PendingReason
from api.workload import CheckState, PodSetAssignment, Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_group,
    make_pod_set,
    make_template,
    make_workload,
    reserved,
    waits,
    with_conditions,
)


def make_world(*values: object) -> World:
    return World().put(*values)


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
    assert world.engine.workloads.required_checks(make_workload()) == ("budget",)


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
            (PendingReason.MISCONFIGURED, "LocalQueue queue doesn't exist"),
            id="a LocalQueue that is not there",
        ),
        pytest.param(
            [LocalQueue(namespace=NAMESPACE, name="queue", cluster_queue="gone")],
            make_workload(),
            (PendingReason.MISCONFIGURED, "ClusterQueue gone doesn't exist"),
            id="a ClusterQueue that is not there",
        ),
        pytest.param(
            [make_cluster_queue(stop_policy=StopPolicy.HOLD)],
            make_workload(),
            (PendingReason.SUSPENDED, "ClusterQueue queue is inactive"),
            id="a ClusterQueue that is stopped",
        ),
        pytest.param(
            [
                make_cluster_queue(),
                LocalQueue(
                    namespace=NAMESPACE, name="queue", cluster_queue="queue", stop_policy=StopPolicy.HOLD
                ),
            ],
            make_workload(),
            (PendingReason.SUSPENDED, "LocalQueue queue is inactive"),
            id="a LocalQueue that is stopped",
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
                "workload namespace doesn't match ClusterQueue selector: "
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
            (PendingReason.DEACTIVATED, "The workload is deactivated"),
            id="a Workload that is deactivated",
        ),
        pytest.param([make_cluster_queue()], make_workload(), None, id="nothing wrong"),
    ],
)
def test_a_workload_that_cannot_be_tried_gets_a_reason_and_what_to_do(
    values: list[object], workload: Workload, want: tuple[PendingReason, str] | None
) -> None:
    world = make_world(*values, workload)

    assert world.engine.workloads.queue_problem(workload) == want
    assert admits(world.settle()) == []


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param(
            [make_cluster_queue(groups=(make_group(spot=1), make_group(ghost=1)))],
            (InactiveReason.FLAVOR_NOT_FOUND, "references missing ResourceFlavor(s): spot,ghost"),
            id="flavors that are not there",
        ),
        pytest.param(
            [ResourceFlavor(name="default", topology_name="gone"), make_cluster_queue()],
            (InactiveReason.TOPOLOGY_NOT_FOUND, 'there is no Topology "gone" for TAS flavor "default"'),
            id="a topology that is not there",
        ),
        pytest.param(
            [make_cluster_queue(checks=(CheckRule(name="a"), CheckRule(name="b")))],
            (InactiveReason.ADMISSION_CHECK_NOT_FOUND, "references missing AdmissionCheck(s): a,b"),
            id="checks that are not there",
        ),
        pytest.param(
            [
                AdmissionCheck(name="a", controller_name="c", is_active=False),
                make_cluster_queue(checks=(CheckRule(name="a"),)),
            ],
            (InactiveReason.ADMISSION_CHECK_INACTIVE, "references inactive AdmissionCheck(s): a"),
            id="a check that is not active",
        ),
        pytest.param(
            [
                *(
                    AdmissionCheck(name=name, controller_name=MULTIKUEUE_CONTROLLER, is_active=True)
                    for name in "ba"
                ),
                make_cluster_queue(checks=(CheckRule(name="b"), CheckRule(name="a"))),
            ],
            (
                InactiveReason.MULTIPLE_MULTIKUEUE_CHECKS,
                "Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: a,b",
            ),
            id="two checks of MultiKueue",
        ),
        pytest.param(
            [
                AdmissionCheck(name="a", controller_name=MULTIKUEUE_CONTROLLER, is_active=True),
                ResourceFlavor(name="other"),
                make_cluster_queue(
                    groups=(make_group(default=1, other=1),),
                    checks=(CheckRule(name="a", on_flavors=frozenset({"other"})),),
                ),
            ],
            (
                InactiveReason.MULTIKUEUE_CHECK_PER_FLAVOR,
                "Cannot specify MultiKueue AdmissionCheck per flavor, found: a",
            ),
            id="a check of MultiKueue for some of the flavors",
        ),
        pytest.param(
            [
                AdmissionCheck(name="a", controller_name=MULTIKUEUE_CONTROLLER, is_active=True),
                AdmissionCheck(name="b", controller_name=PROVISIONING_CONTROLLER, is_active=True),
                make_cluster_queue(checks=(CheckRule(name="b"), CheckRule(name="a"))),
            ],
            (
                InactiveReason.MULTIKUEUE_WITH_PROVISIONING_REQUEST,
                "Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: a, b",
            ),
            id="checks of MultiKueue and of ProvisioningRequests",
        ),
        pytest.param(
            [
                ResourceFlavor(name="default", topology_name="gone"),
                make_cluster_queue(checks=(CheckRule(name="a"),)),
            ],
            (
                InactiveReason.ADMISSION_CHECK_NOT_FOUND,
                "references missing AdmissionCheck(s): a, "
                'there is no Topology "gone" for TAS flavor "default"',
            ),
            id="a check and a topology, of which the topology comes last",
        ),
        pytest.param(
            [
                make_cluster_queue(
                    stop_policy=StopPolicy.HOLD, checks=(CheckRule(name="a"),), groups=(make_group(ghost=1),)
                )
            ],
            (
                InactiveReason.STOPPED,
                "is stopped, references missing ResourceFlavor(s): ghost, references missing "
                "AdmissionCheck(s): a",
            ),
            id="several at once",
        ),
    ],
)
def test_the_active_condition_of_a_cluster_queue_is_worded_as_kueues(
    values: list[object], want: tuple[InactiveReason, str]
) -> None:
    view = make_world(*values).engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert (view.reason, view.message) == (want[0], f"Can't admit new workloads: {want[1]}.")


@pytest.mark.parametrize(
    "flavors",
    [
        pytest.param(frozenset[str](), id="for all flavors"),
        pytest.param(frozenset({"default"}), id="that names all flavors"),
    ],
)
def test_one_check_of_multikueue_leaves_a_cluster_queue_active_whose_topology_other_clusters_have(
    flavors: frozenset[str],
) -> None:
    world = make_world(
        ResourceFlavor(name="default", topology_name="elsewhere"),
        AdmissionCheck(name="a", controller_name=MULTIKUEUE_CONTROLLER, is_active=True),
        make_cluster_queue(checks=(CheckRule(name="a", on_flavors=flavors),)),
    )

    view = world.engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert view.is_active


def test_a_cluster_queue_that_is_being_deleted_says_so_as_kueues_does() -> None:
    view = make_world(make_cluster_queue(is_terminating=True)).engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert (view.reason, view.message) == (
        InactiveReason.TERMINATING,
        "Can't admit new workloads; clusterQueue is terminating",
    )


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param([], (PendingReason.MISCONFIGURED, "LocalQueue queue doesn't exist"), id="no LocalQueue"),
        pytest.param(
            [
                make_cluster_queue(),
                LocalQueue(
                    namespace=NAMESPACE, name="queue", cluster_queue="queue", stop_policy=StopPolicy.HOLD
                ),
            ],
            (PendingReason.SUSPENDED, "LocalQueue queue is inactive"),
            id="a stopped LocalQueue",
        ),
        pytest.param(
            [LocalQueue(namespace=NAMESPACE, name="queue", cluster_queue="gone")],
            (PendingReason.MISCONFIGURED, "ClusterQueue gone doesn't exist"),
            id="no ClusterQueue",
        ),
        pytest.param(
            [make_cluster_queue(stop_policy=StopPolicy.HOLD)],
            (PendingReason.SUSPENDED, "ClusterQueue queue is inactive"),
            id="a stopped ClusterQueue",
        ),
        pytest.param(
            [make_cluster_queue(namespace_selector=WireSelector(match_labels={"team": "b"}))],
            None,
            id="a namespace that is not selected, which a cycle reports",
        ),
    ],
)
def test_in_older_words_the_sentence_is_kueues(
    values: list[object], want: tuple[PendingReason, str] | None
) -> None:
    workload = make_workload()
    world = make_world(*values, workload)

    assert world.engine.workloads.queue_problem(workload, in_older_words=True) == want


def test_a_namespace_that_is_not_selected_is_reported_by_the_cycle_and_woken_by_its_labels() -> None:
    selector = WireSelector(match_labels={"team": "b"})
    world = make_world(make_cluster_queue(quota=4, namespace_selector=selector), make_workload())
    assert waits(world.settle()) == {"w": "Misconfigured"}

    world.put(Namespace(name=NAMESPACE, labels={"team": "b"}))

    assert admits(world.settle()) == ["w"]


def test_pods_outside_the_limit_range_are_reported_by_the_cycle_until_it_changes() -> None:
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


def test_a_runtime_class_that_is_gone_adds_nothing_to_waiting_workloads() -> None:
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

    world.engine.objects.unreadable(ClusterQueue, "broken", "spec.cohortName is 5", now=world.now)
    world.engine.validate()

    view = world.engine.queues.cluster_queue_view("broken")
    assert view is not None
    assert (view.is_active, view.reason) == (False, InactiveReason.UNKNOWN)
    assert "spec.cohortName is 5" in view.message
    assert admits(world.settle()) == ["w"]
    world.put(make_cluster_queue("broken", quota=4), make_workload("v", queue="broken"))
    assert admits(world.settle()) == ["v"]


def test_an_unreadable_workload_waits_outside_until_it_can_be_read() -> None:
    world = make_world(make_cluster_queue(quota=4), make_workload())

    world.engine.objects.unreadable(
        Workload, WorkloadKey(NAMESPACE, "w"), "spec.podSets is empty", now=world.now
    )

    assert world.settle() == []
    assert world.engine.workloads.queue_problem(make_workload()) == (
        PendingReason.MISCONFIGURED,
        "spec.podSets is empty",
    )
    world.put(make_workload(resource_version="2"))
    assert admits(world.settle()) == ["w"]


def test_a_cluster_queue_shows_its_pending_and_admitted_workloads() -> None:
    world = make_world(
        make_cluster_queue(quota=4, cohort="team"),
        make_cluster_queue("lender", quota=4, cohort="team"),
        reserved(make_workload("a", gpus=6)),
        with_conditions(reserved(make_workload("b", gpus=1)), make_condition(ConditionType.ADMITTED, False)),
        make_workload("c", gpus=9),
        make_workload("d", gpus=1),
    )
    world.engine.cycle(now=world.now)

    view = world.engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert (view.active_pending, view.parked_pending, view.pending) == (1, 1, 2)
    assert (view.reserving, view.admitted) == (2, 1)
    assert view.flavors_reservation == {"default": {"gpu": Usage(7, 3)}}
    assert view.flavors_usage == {"default": {"gpu": Usage(6, 2)}}
    assert view.weighted_share == 375
    assert [(one.key.name, one.is_parked) for one in world.engine.queues.pending("queue")] == [
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

    first = world.engine.queues.local_queue_view(NAMESPACE, "queue")
    second = world.engine.queues.local_queue_view(NAMESPACE, "second")

    assert first is not None
    assert second is not None
    assert (first.pending, first.reserving, first.admitted) == (0, 1, 1)
    assert (second.pending, second.reserving, second.is_active) == (1, 0, True)
    assert world.engine.queues.local_queue_view(NAMESPACE, "third") is None


def test_a_local_queue_without_its_cluster_queue_says_so() -> None:
    world = World().put(LocalQueue(namespace=NAMESPACE, name="q", cluster_queue="gone"))

    view = world.engine.queues.local_queue_view(NAMESPACE, "q")

    assert view is not None
    assert view.reason is InactiveReason.CLUSTER_QUEUE_DOES_NOT_EXIST


def test_a_local_queue_shows_nothing_held_once_its_cluster_queue_was_taken_away() -> None:
    world = make_world(make_cluster_queue(), reserved(make_workload("a", gpus=1)))

    world.remove(ClusterQueue, "queue")

    view = world.engine.queues.local_queue_view(NAMESPACE, "queue")
    assert view is not None
    assert (view.reserving, view.flavors_reservation) == (0, {})


def test_a_cohort_shows_its_share_also_beside_a_cycle() -> None:
    world = make_world(
        make_cohort("left", parent="root"),
        make_cluster_queue(cohort="left"),
        make_cluster_queue("lender", quota=4, cohort="root"),
        make_cohort("x", parent="y"),
        make_cohort("y", parent="x"),
        reserved(make_workload("a", gpus=2)),
    )

    left, cycle = world.engine.queues.cohort_view("left"), world.engine.queues.cohort_view("x")

    assert left is not None
    assert cycle is not None
    assert (left.weighted_share, cycle.weighted_share) == (500, 0)
    assert world.engine.queues.cohort_view("missing") is None


def test_what_has_been_touched_is_reported_once() -> None:
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

    labels, tolerations = world.engine.nodes.flavor_injection(assignment)

    assert labels == {"model": "a100", "disk": "fast"}
    assert tolerations == (toleration,)


def test_a_queue_lists_its_flavors_in_the_order_of_its_spec() -> None:
    world = World().put(
        make_cluster_queue(groups=(make_group(spot=1, a100=1), make_group(h100=1, resource="cpu")))
    )

    view = world.engine.queues.cluster_queue_view("queue")

    assert view is not None
    assert list(view.flavors_reservation) == ["spot", "a100", "h100"]
