"""The choice of flavors: labels, taints, fungibility, the resumed scan, the words for why not.

Rules of Kueue's documentation of ResourceFlavors and FlavorFungibility.
"""

from __future__ import annotations

from typing import Any

import pytest

from admission.decisions.decision import Admit, Wait
from admission.engine.engine import EngineSettings
from api.jobs.resource_requests import QuotaCheckStrategy, ResourceSettings
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireTaint, WireToleration
from api.queueing import (
    ClusterQueue,
    FlavorFungibility,
    FlavorQuotas,
    FungibilityPolicy,
    FungibilityPreference,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    Topology,
)
from api.workload import PodSet, TopologyRequest, Workload
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_cohort,
    make_group,
    make_pod_set,
    make_quota,
    make_template,
    make_workload,
    reserved,
    waits,
)

TRY_NEXT = FungibilityPolicy.TRY_NEXT_FLAVOR
STOP = FungibilityPolicy.MAY_STOP_SEARCH
A100 = ResourceFlavor(name="a100", node_labels={"model": "a100"})
H100 = ResourceFlavor(name="h100", node_labels={"model": "h100"})
TAINTED = ResourceFlavor(name="spot", node_taints=(WireTaint(key="spot", effect="NoSchedule"),))


def make_world(*values: object, **settings: Any) -> World:
    resources = ResourceSettings(**settings)
    return World(settings=EngineSettings(resources=resources)).put(A100, H100, TAINTED, *values)


def two_flavors(a100: int = 4, h100: int = 4, **fields: Any) -> ClusterQueue:
    return make_cluster_queue(groups=(make_group(a100=a100, h100=h100),), **fields)


def flavors_of(world: World) -> dict[str, str]:
    """Return the flavor of the GPUs of each Workload that holds quota."""
    return {
        key.name: admission.pod_sets[0].flavors["gpu"]
        for key, admission in world.engine.workloads.admissions()
    }


def asking(**template: Any) -> Workload:
    return make_workload(pod_sets=(make_pod_set(template=make_template({"gpu": 1}, **template)),))


@pytest.mark.parametrize(
    ("workload", "want"),
    [
        pytest.param(make_workload(), "a100", id="the first flavor that fits"),
        pytest.param(asking(node_selector={"model": "h100"}), "h100", id="the one that the pods select"),
        pytest.param(asking(node_selector={"zone": "x"}), "a100", id="a label of no flavor does not matter"),
        pytest.param(make_workload(gpus=5), None, id="none that is large enough"),
        pytest.param(asking(node_selector={"model": "b200"}), None, id="none that has the label"),
    ],
)
def test_a_workload_gets(workload: Workload, want: str | None) -> None:
    world = make_world(two_flavors(), workload)

    world.settle()

    assert flavors_of(world) == ({} if want is None else {"w": want})


def test_a_full_flavor_is_passed_for_the_next() -> None:
    world = make_world(two_flavors(), make_workload("a", gpus=3), make_workload("b", gpus=3, at=1))

    world.settle()

    assert flavors_of(world) == {"a": "a100", "b": "h100"}


def test_a_tainted_flavor_needs_a_toleration_of_the_pods_or_of_the_flavor() -> None:
    toleration = WireToleration(key="spot", operator="Exists")
    queue = make_cluster_queue(groups=(make_group(spot=4),))

    refused = make_world(queue, make_workload())
    tolerated = make_world(queue, asking(tolerations=(toleration,)))
    allowed = make_world(
        ResourceFlavor(name="spot", node_taints=TAINTED.node_taints, tolerations=(toleration,)),
        queue,
        make_workload(),
    )

    (refusal,) = refused.settle()
    assert isinstance(refusal, Wait)
    assert (refusal.reason, refusal.message) == (
        "NoMatchingFlavor",
        "couldn't assign flavors to pod set main: untolerated taint spot:NoSchedule in flavor spot",
    )
    assert admits(tolerated.settle()) == ["w"]
    assert admits(allowed.settle()) == ["w"]


def test_resources_of_one_group_share_a_flavor_and_another_group_has_its_own() -> None:
    def quotas(name: str, gpu: int, cpu: int) -> FlavorQuotas:
        resources = {"gpu": make_quota(gpu), "cpu": make_quota(cpu, resource="cpu")}
        return FlavorQuotas(name=name, resources=resources)

    together = ResourceGroup(
        covered_resources=("cpu", "gpu"), flavors=(quotas("a100", 9, 1), quotas("h100", 9, 9))
    )
    queue = make_cluster_queue(groups=(together, make_group(spot=9, resource="disk")))
    pods = (make_pod_set(requests={"gpu": 1, "cpu": 2, "disk": 1}, template=None),)
    spot = ResourceFlavor(name="spot")

    (decision,) = make_world(spot, queue, make_workload(pod_sets=pods)).settle()

    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].flavors == {"gpu": "h100", "cpu": "h100", "disk": "spot"}


@pytest.mark.parametrize(
    ("group", "want"),
    [
        pytest.param("gang", ("h100", "h100"), id="share the flavor that has quota for both"),
        pytest.param(None, ("a100", "h100"), id="get the first that fits each, where they form none"),
    ],
)
def test_the_pod_sets_of_a_topology_group(group: str | None, want: tuple[str, str]) -> None:
    """A leader of one pod and three workers: a100 has quota for three pods, h100 for all."""
    flavors = [
        ResourceFlavor(name=model, topology_name="t", node_labels={"model": model})
        for model in ("a100", "h100")
    ]
    nodes = [
        NodeInfo(
            name=model, labels={"model": model, HOSTNAME: model}, allocatable={"gpu": 8, "cpu": 8, "pods": 99}
        )
        for model in ("a100", "h100")
    ]
    request = TopologyRequest(required=HOSTNAME, pod_set_group=group)
    pods = tuple(
        make_pod_set(name, count, topology_request=request) for name, count in (("leader", 1), ("workers", 3))
    )
    world = World().put(Topology(name="t", levels=(HOSTNAME,)), *flavors, *nodes)

    world.put(two_flavors(a100=3, h100=6), make_workload(pod_sets=pods))
    (decision,) = world.settle()

    assert isinstance(decision, Admit), decision
    assert tuple(one.flavors["gpu"] for one in decision.admission.pod_sets) == want


def test_pods_that_ask_for_nothing_wait_with_the_others_of_their_topology_group() -> None:
    request = TopologyRequest(required=HOSTNAME, pod_set_group="gang")
    pods = (
        make_pod_set("leader", requests={}, topology_request=request),
        make_pod_set("workers", 3, topology_request=request),
    )
    placed = ResourceFlavor(name="a100", topology_name="t")
    node = NodeInfo(name="n", labels={HOSTNAME: "n"}, allocatable={"gpu": 8, "pods": 99})
    world = World().put(Topology(name="t", levels=(HOSTNAME,)), placed, node)

    world.put(make_cluster_queue(groups=(make_group(a100=2),)), make_workload(pod_sets=pods))

    assert waits(world.settle()) == {"w": "ExceedsMaxQuota"}


def test_where_several_resource_groups_lack_quota_that_of_cpu_is_reported_last() -> None:
    queue = make_cluster_queue(
        groups=(make_group("default", default=1, resource="cpu"), make_group("default", default=1))
    )
    pods = (make_pod_set(requests={"cpu": 2, "gpu": 2}, template=None),)
    world = make_world(ResourceFlavor(name="default"), queue, make_workload(pod_sets=pods))

    (decision,) = world.settle()

    assert isinstance(decision, Wait)
    assert decision.message.startswith(
        "couldn't assign flavors to pod set main: insufficient quota for gpu in flavor default"
    )


def test_pod_sets_may_get_different_flavors_each_on_top_of_the_last() -> None:
    pods = (make_pod_set("a", 3), make_pod_set("b", 3))

    (decision,) = make_world(two_flavors(), make_workload(pod_sets=pods)).settle()

    assert isinstance(decision, Admit)
    assert [one.flavors["gpu"] for one in decision.admission.pod_sets] == ["a100", "h100"]


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param(QuotaCheckStrategy.BLOCK_UNDECLARED, [], id="blocks the Workload"),
        pytest.param(
            QuotaCheckStrategy.IGNORE_UNDECLARED, ["w"], id="is let through where that is configured"
        ),
    ],
)
def test_a_resource_that_the_queue_does_not_cover(strategy: QuotaCheckStrategy, want: list[str]) -> None:
    pods = (make_pod_set(requests={"gpu": 1, "license": 1}),)
    world = make_world(two_flavors(), make_workload(pod_sets=pods), quota_check=strategy)

    decisions = world.settle()

    assert admits(decisions) == want
    assert waits(decisions) == ({} if want else {"w": "NoMatchingFlavor"})


def test_asking_for_nothing_of_an_uncovered_resource_is_no_obstacle() -> None:
    pods = (make_pod_set(requests={"gpu": 1, "license": 0}),)

    assert admits(make_world(two_flavors(), make_workload(pod_sets=pods)).settle()) == ["w"]


def test_pods_count_where_the_queue_covers_them() -> None:
    queue = make_cluster_queue(groups=(make_group(default=9), make_group(default=2, resource="pods")))
    world = make_world(
        queue,
        make_workload("a", pod_sets=(make_pod_set(count=2),)),
        make_workload("b", pod_sets=(make_pod_set(count=1),), at=1),
    )

    assert admits(world.settle()) == ["a"]


@pytest.mark.parametrize(
    ("fungibility", "want"),
    [
        pytest.param(
            FlavorFungibility(when_can_borrow=STOP), "a100", id="stops at a flavor that needs borrowing"
        ),
        pytest.param(
            FlavorFungibility(when_can_borrow=TRY_NEXT), "h100", id="or looks for one that needs none"
        ),
    ],
)
def test_the_search(fungibility: FlavorFungibility, want: str) -> None:
    lender = make_cluster_queue("lender", cohort="team", groups=(make_group(a100=9, h100=9),))
    world = make_world(
        lender, two_flavors(a100=1, cohort="team", fungibility=fungibility), make_workload(gpus=2)
    )

    world.settle()

    assert flavors_of(world) == {"w": want}


# The first flavor needs an eviction, the second needs borrowing.
@pytest.mark.parametrize(
    ("preference", "want_evictions"),
    [
        pytest.param(None, {}, id="borrowing is preferred by default"),
        pytest.param(FungibilityPreference.BORROWING_OVER_PREEMPTION, {}, id="borrowing over preemption"),
        pytest.param(
            FungibilityPreference.PREEMPTION_OVER_BORROWING,
            {"low": "InClusterQueue"},
            id="preemption over borrowing",
        ),
    ],
)
def test_of_borrowing_and_preemption(
    preference: FungibilityPreference | None, want_evictions: dict[str, str]
) -> None:
    queue = two_flavors(
        h100=0,
        cohort="team",
        fungibility=FlavorFungibility(
            when_can_borrow=TRY_NEXT, when_can_preempt=TRY_NEXT, preference=preference
        ),
        preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY),
    )
    lender = make_cluster_queue("lender", cohort="team", groups=(make_group(h100=9),))
    low = reserved(make_workload("low", gpus=4), flavor="a100")
    world = make_world(lender, queue, low, make_workload("high", gpus=4, priority=5))

    assert evicts(world.settle()) == want_evictions


# root        Cohort `mine` has the quota that `far` borrows, and `queue` has none of its own.
# ├── mine (4)
# │   └── queue
# └── theirs
#     └── far
@pytest.mark.parametrize(
    ("needed", "want"),
    [
        pytest.param(4, {"victim": "InCohortReclamation"}, id="is reclaimed from outside of the cohort"),
        pytest.param(5, {}, id="does not suffice, nothing is reclaimed"),
    ],
)
def test_quota_of_its_cohort(needed: int, want: dict[str, str]) -> None:
    world = make_world(
        make_cohort("root", quota=1),
        make_cohort("mine", parent="root", quota=4),
        make_cohort("theirs", parent="root"),
        make_cluster_queue(cohort="mine", preemption=Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)),
        make_cluster_queue("far", cohort="theirs"),
        reserved(make_workload("victim", queue="far", gpus=4)),
        make_workload(gpus=needed, priority=5),
    )

    assert evicts(world.settle()) == want


def test_a_flavor_that_fits_drops_the_reasons_of_those_before_it() -> None:
    """GPUs: a100 is full and h100 fits. Disks: spot is full, and its victims would not be enough."""
    queue = make_cluster_queue(
        groups=(make_group(a100=1, h100=1), make_group("default", default=2, resource="disk")),
        preemption=Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY),
    )
    held = make_pod_set(requests={"gpu": 1, "disk": 1}, template=None)
    world = make_world(ResourceFlavor(name="default"), queue)
    world.put(make_workload("running", pod_sets=(held,), priority=9))
    assert admits(world.settle()) == ["running"]
    asking_for = make_pod_set(requests={"gpu": 1, "disk": 2}, template=None)

    world.put(make_workload("w", pod_sets=(asking_for,), at=1, priority=5))
    (decision,) = world.settle()

    assert isinstance(decision, Wait)
    assert decision.message == (
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for disk in flavor default, 1 more needed"
    )


def test_a_head_that_is_skipped_goes_on_with_the_next_flavor() -> None:
    # Both want the cohort's last a100 by borrowing; the loser has h100 left to try.
    fungibility = FlavorFungibility(when_can_borrow=STOP)
    lender = make_cluster_queue("lender", cohort="team", groups=(make_group(a100=2),))
    queues = [
        make_cluster_queue(
            name,
            cohort="team",
            groups=(make_group(a100=0, h100=2),),
            fungibility=fungibility,
            queueing_strategy=QueueingStrategy.STRICT_FIFO,
        )
        for name in ("one", "two")
    ]
    world = make_world(
        lender,
        *queues,
        make_workload("a", queue="one", gpus=2),
        make_workload("b", queue="two", gpus=2, at=1),
    )

    first = world.cycle()
    second = world.cycle()

    assert (admits(first), waits(first)) == (["a"], {"b": "WaitingForQuota"})
    assert admits(second) == ["b"]
    assert flavors_of(world) == {"a": "a100", "b": "h100"}


@pytest.mark.parametrize(
    ("quota", "used", "want"),
    [
        pytest.param(
            4,
            3,
            ("WaitingForQuota", "insufficient unused quota for gpu in flavor default, 1 more needed"),
            id="something must come free",
        ),
        pytest.param(
            4,
            6,
            ("WaitingForQuota", "insufficient unused quota for gpu in flavor default, 2 more needed"),
            id="no more than is asked for, where a lowered quota is overused",
        ),
        pytest.param(
            1,
            0,
            (
                "ExceedsMaxQuota",
                "insufficient quota for gpu in flavor default, previously considered podsets requests (0) + "
                "current podset request (2) > maximum capacity (1)",
            ),
            id="it can never fit",
        ),
    ],
)
def test_the_word_and_the_sentence_say_what_is_missing(quota: int, used: int, want: tuple[str, str]) -> None:
    running = [reserved(make_workload("running", gpus=used))] if used else []
    world = make_world(make_cluster_queue(quota=quota), *running, make_workload(gpus=2))

    (decision,) = world.settle()

    assert isinstance(decision, Wait)
    assert decision.reason == want[0]
    assert decision.message == f"couldn't assign flavors to pod set main: {want[1]}"


def test_the_mildest_reason_over_alternatives_counts() -> None:
    queue = make_cluster_queue(groups=(make_group(a100=1, h100=4),))
    running = reserved(make_workload("running", gpus=3), flavor="h100")

    decisions = make_world(queue, running, make_workload(gpus=2)).settle()

    assert waits(decisions) == {"w": "WaitingForQuota"}


@pytest.mark.parametrize("first", ["cpu", "gpu"])
def test_the_gravest_reason_over_the_resources_of_a_flavor_counts(first: str) -> None:
    """One resource waits for quota, the other can never fit, whichever is looked at first."""
    used, never = first, {"cpu": "gpu", "gpu": "cpu"}[first]
    quotas = {used: make_quota(2, resource=used), never: make_quota(1, resource=never)}
    flavor = FlavorQuotas(name="a100", resources=quotas)
    queue = make_cluster_queue(groups=(ResourceGroup(covered_resources=("cpu", "gpu"), flavors=(flavor,)),))
    running = make_workload("running", pod_sets=(make_pod_set(requests={used: 2}, template=None),))
    waiting = make_workload(at=1, pod_sets=(make_pod_set(requests={used: 1, never: 2}, template=None),))
    world = make_world(queue, running)
    assert admits(world.settle()) == ["running"]

    world.put(waiting)

    assert waits(world.settle()) == {"w": "ExceedsMaxQuota"}


def test_quota_that_others_use_and_that_cannot_be_taken_back_is_waited_for() -> None:
    """The queue would borrow what another uses, and may not preempt while it borrows."""
    world = make_world(
        make_cluster_queue("lender", cohort="team", quota=4),
        make_cluster_queue(cohort="team", quota=1),
        reserved(make_workload("running", queue="lender", gpus=4)),
        make_workload(gpus=2),
    )

    (decision,) = world.settle()

    assert isinstance(decision, Wait)
    assert (decision.reason, decision.message) == (
        "WaitingForQuota",
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for gpu in flavor default, 1 more needed",
    )


def test_a_resource_without_quota_outranks_a_flavor_that_is_too_small() -> None:
    """a100 is too small and h100 fits, so that only the license is missing."""
    pods = (make_pod_set(requests={"gpu": 2, "license": 1}),)

    (decision,) = make_world(two_flavors(a100=1), make_workload(pod_sets=pods)).settle()

    assert isinstance(decision, Wait)
    assert (decision.reason, decision.message) == (
        "NoMatchingFlavor",
        "couldn't assign flavors to pod set main: resource license unavailable in ClusterQueue",
    )


def test_resources_behind_those_that_need_no_search_get_their_flavors() -> None:
    """By name: `fast` and `gpu` share a group, `free` has no quota and `slow` has its own group."""
    together = ResourceGroup(
        covered_resources=("fast", "gpu"),
        flavors=(
            FlavorQuotas(
                name="a100", resources={name: make_quota(4, resource=name) for name in ("fast", "gpu")}
            ),
        ),
    )
    queue = make_cluster_queue(groups=(together, make_group(h100=4, resource="slow")))
    pods = (make_pod_set(requests={"fast": 1, "free": 1, "gpu": 1, "slow": 1}),)
    world = make_world(queue, make_workload(pod_sets=pods), quota_check=QuotaCheckStrategy.IGNORE_UNDECLARED)

    (decision,) = world.settle()

    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].flavors == {"fast": "a100", "gpu": "a100", "slow": "h100"}


def topology_pods(request: TopologyRequest | None) -> PodSet:
    return make_pod_set(topology_request=request)


@pytest.mark.parametrize(
    ("flavor", "request_", "want"),
    [
        pytest.param(
            ResourceFlavor(name="default", topology_name="racks"),
            None,
            (
                "TopologyPlacementFailed",
                'topology "racks" doesn\'t allow to fit any of 1 pod(s). Total nodes: 0',
            ),
            id="a flavor with a topology without nodes",
        ),
        pytest.param(
            ResourceFlavor(name="default"),
            TopologyRequest(required="rack"),
            ("NoMatchingFlavor", "Flavor 'default' does not support TopologyAwareScheduling"),
            id="a topology request for a flavor without one",
        ),
    ],
)
def test_a_workload_without_a_place_in_a_topology_waits_with_a_reason(
    flavor: ResourceFlavor, request_: TopologyRequest | None, want: tuple[str, str]
) -> None:
    topology = Topology(name="racks", levels=("rack",))
    workload = make_workload(pod_sets=(topology_pods(request_),))
    world = make_world(topology, flavor, make_cluster_queue(quota=4), workload)

    (decision,) = world.settle()

    assert isinstance(decision, Wait)
    assert decision.reason == want[0]
    assert want[1] in decision.message
