"""Replicas of inference are preempted one by one: never below their floor, nor their PodDisruptionBudget."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from admission.decisions.decision import Decision, Wait
from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.replicas import may_free_others
from api import keys
from api.disruption_budget import DisruptionBudget, to_disruption_budget
from api.objects.cluster import PodDisruptionBudgetObject, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from api.objects.common import Meta, WireSelector
from api.objects.templates import WirePodTemplate
from api.policy import AdmissionPolicy, PreemptionRules, VictimRules
from api.queueing import LocalQueue, Preemption, PreemptionPolicy
from api.reasons import ConditionType, DisruptionReason, EvictionReason
from api.workload import Workload, WorkloadKey
from tests.builders import (
    NAMESPACE,
    World,
    evicts,
    make_cluster_queue,
    make_condition,
    make_pod_set,
    make_template,
    make_workload,
    reserved,
    with_conditions,
)

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
PREFERRED = VictimRules(prefers_inference=True)


def make_world(
    *values: object, quota: int = 4, rules: VictimRules = PREFERRED, fair: FairPreemption | None = None
) -> World:
    """Return a full queue of `quota` GPUs under a policy that prefers inference."""
    policy = AdmissionPolicy(name="policy", uid="p", preemption=PreemptionRules(rules=rules))
    world = World(EngineSettings(fair_sharing=fair))
    return world.put(policy, make_cluster_queue(quota=quota, preemption=LOWER), *values)


def replica(name: str, *, of: str = "Deployment/chat", app: str = "chat", **annotations: str) -> Workload:
    """Return the Workload of a replica that serves; other berth.dev keys go by their name."""
    own = {keys.REPLICA_OF: of, keys.WORKLOAD_TYPE: "inference"}
    own |= {f"berth.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    template = make_template({"gpu": 1})
    labelled = WirePodTemplate(metadata=Meta(labels={"app": app}), spec=template.spec)
    pod_set = make_pod_set(template=labelled)
    workload = make_workload(name, pod_sets=(pod_set,), annotations=own)
    return with_conditions(reserved(workload), make_condition("PodsReady"))


def replicas(count: int = 4, **fields: Any) -> list[Workload]:
    """Return `count` replicas of one application."""
    return [replica(f"chat-{number}", **fields) for number in range(count)]


def budget(allowed: int, *, app: str = "chat") -> DisruptionBudget:
    """Return a budget that allows `allowed` evictions of an application's pods."""
    selector = WireSelector(match_labels={"app": app})
    return DisruptionBudget(namespace=NAMESPACE, name=app, selector=selector, allowed=allowed)


def incoming(gpus: int) -> Workload:
    """Return a Workload of higher priority."""
    return make_workload("incoming", gpus=gpus, priority=5)


def groups(count: int, *, worker: str = "big", **annotations: str) -> list[Workload]:
    """Return `count` groups of a LeaderWorkerSet, each a leader and a worker of one GPU.

    `worker` is what the worker's label says.
    """
    found = []
    for number in range(count):
        group = replica(f"big-{number}", of="LeaderWorkerSet/big", app="big", **annotations)
        leader, of_worker = group.pod_sets[0], replica("w", app=worker).pod_sets[0]
        pod_sets = leader, replace(of_worker, name="worker")
        assert group.admission is not None
        (admitted,) = group.admission.pod_sets
        admission = replace(group.admission, pod_sets=(admitted, replace(admitted, name="worker")))
        found.append(replace(group, pod_sets=pod_sets, admission=admission))
    return found


def shards(count: int = 4, *, gone: int = 0, **annotations: str) -> Workload:
    """Return the one Workload of a StatefulSet's replicas, which was scaled down by `gone` of them."""
    group = replica("shards", of="StatefulSet/shards", app="shards", **annotations)
    pod_set = replace(group.pod_sets[0], count=count)
    return reserved(replace(group, pod_sets=(pod_set,), reclaimable={pod_set.name: gone} if gone else {}))


def word(decisions: Iterable[Decision]) -> str:
    """Return the message of the only Workload that waits."""
    (wait,) = (one for one in decisions if isinstance(one, Wait))
    return wait.message


@pytest.mark.parametrize(
    ("known", "gpus", "want"),
    [
        pytest.param(replicas(), 3, 3, id="all but one go where nothing else is said"),
        pytest.param(replicas(), 4, 0, id="the last one stays"),
        pytest.param(replicas(min_replicas="3"), 1, 1, id="down to the floor"),
        pytest.param(replicas(min_replicas="3"), 2, 0, id="never below the floor"),
        pytest.param(replicas(min_replicas="0"), 4, 4, id="a floor of nothing"),
        pytest.param(replicas(min_replicas="many"), 3, 3, id="a floor that is no number is one"),
        pytest.param([*replicas(), budget(2)], 2, 2, id="as many as the budget allows"),
        pytest.param([*replicas(), budget(2)], 3, 0, id="never more than the budget allows"),
        pytest.param([*replicas(), budget(0, app="other")], 3, 3, id="another's budget has no say"),
        pytest.param(
            [*replicas(2), *(replica(f"rank-{n}", of="Deployment/rank", app="rank") for n in range(2))],
            2,
            2,
            id="of two applications one replica each",
        ),
        pytest.param(groups(2), 2, 1, id="a group of pods is one replica"),
        pytest.param(groups(2), 3, 0, id="the last group stays"),
        pytest.param([*groups(2), budget(2, app="big")], 2, 1, id="a budget lets all pods of a group go"),
        pytest.param([*groups(2), budget(1, app="big")], 1, 0, id="no group goes by halves"),
        pytest.param([shards()], 1, 0, id="a StatefulSet stays, as the last of its replicas would go"),
        pytest.param([shards(min_replicas="0")], 1, 1, id="a StatefulSet with a floor of nothing goes whole"),
        pytest.param([shards(min_replicas="4")], 1, 0, id="a StatefulSet stays for a floor of all"),
        pytest.param(
            [shards(min_replicas="0"), budget(4, app="shards")],
            1,
            1,
            id="a budget lets all pods of a StatefulSet go",
        ),
        pytest.param(
            [shards(min_replicas="0"), budget(3, app="shards")],
            1,
            0,
            id="a budget that allows fewer keeps a StatefulSet",
        ),
        pytest.param(
            [shards(gone=2, min_replicas="0"), budget(2, app="shards")],
            3,
            1,
            id="pods that a StatefulSet was scaled down by need no budget",
        ),
        pytest.param([shards(2), *replicas(2)], 1, 1, id="another application goes in its place"),
        pytest.param(
            [*replicas(), budget(4), replace(budget(4), name="second")],
            1,
            0,
            id="under two budgets the server evicts none",
        ),
        pytest.param(
            [*groups(2, worker="work"), budget(1, app="big"), budget(1, app="work")],
            1,
            1,
            id="a leader and its workers may have a budget each",
        ),
    ],
)
def test_a_search_takes_as_many_replicas_as_may_go(known: list[object], gpus: int, want: int) -> None:
    world = make_world(*known, incoming(gpus))

    assert len(evicts(world.cycle())) == want


ROWS = [
    pytest.param(
        [*replicas(min_replicas="3")],
        2,
        "3 candidates for preemption are kept by berth.dev/min-replicas, such as Workload team/chat-1:"
        " at least 3 of Deployment/chat must stay; add replicas or lower the annotation",
        id="a floor, and how many it keeps",
    ),
    pytest.param(
        [*replicas(), budget(3)],
        4,
        "1 candidate for preemption is kept by berth.dev/min-replicas, such as Workload team/chat-3:"
        " at least 1 of Deployment/chat must stay; add replicas or lower the annotation",
        id="the floor of one where nothing is said",
    ),
    pytest.param(
        [*replicas(), budget(2)],
        3,
        "2 candidates for preemption are kept by a PodDisruptionBudget, such as Workload team/chat-2"
        " by team/chat: let it allow more disruptions",
        id="a budget",
    ),
    pytest.param(
        [*replicas(min_replicas="0"), budget(4), replace(budget(4), name="all")],
        1,
        "4 candidates for preemption are kept by a PodDisruptionBudget, such as Workload team/chat-0"
        " by team/all and chat: let each pod be covered by only one",
        id="two budgets",
    ),
    pytest.param(
        [shards()],
        1,
        "1 candidate for preemption is kept by berth.dev/min-replicas, such as Workload team/shards:"
        ' StatefulSet/shards is evicted as a whole or not at all; set the annotation to "0" to allow that',
        id="a StatefulSet that says nothing",
    ),
    pytest.param(
        [
            *replicas(2, min_replicas="2"),
            replica("rank-0", of="Deployment/rank", app="rank", min_replicas="0"),
        ],
        3,
        "2 candidates for preemption are kept by berth.dev/min-replicas, such as Workload team/chat-0:"
        " at least 2 of Deployment/chat must stay; add replicas or lower the annotation",
        id="only those that are kept",
    ),
]


@pytest.mark.parametrize("fair", [None, FairPreemption()], ids=["by priority", "by shares"])
@pytest.mark.parametrize(("known", "gpus", "says"), ROWS)
def test_the_message_says_which_candidates_are_kept_and_by_what(
    known: list[object], gpus: int, says: str, fair: FairPreemption | None
) -> None:
    message = word(make_world(*known, incoming(gpus), fair=fair).cycle())

    assert message.endswith(f" more needed. {says}")


@pytest.mark.parametrize(("known", "gpus", "says"), ROWS)
def test_the_message_counts_candidates_of_other_namespaces_and_names_none_of_them(
    known: list[object], gpus: int, says: str
) -> None:
    queue = LocalQueue(namespace="other", name="queue", cluster_queue="queue")
    preemptor = replace(incoming(gpus), key=WorkloadKey("other", "incoming"))

    message = word(make_world(*known, queue, preemptor).cycle())

    assert message.endswith(f" more needed. {says.partition(', such as')[0]}")


def test_the_message_names_a_floor_and_a_budget() -> None:
    rank = replica("rank-0", of="Deployment/rank", app="rank", min_replicas="0")
    world = make_world(*replicas(3, min_replicas="3"), rank, budget(0, app="rank"), incoming(4))

    message = word(world.cycle())

    assert "3 candidates for preemption are kept by berth.dev/min-replicas" in message
    assert "1 candidate for preemption is kept by a PodDisruptionBudget" in message


@pytest.mark.parametrize(
    "known",
    [[], [make_workload("low", gpus=1)], replicas(workload_type="batch")],
    ids=["none", "one", "batch"],
)
def test_the_message_mentions_no_kept_candidates_where_there_are_none(known: list[Workload]) -> None:
    world = make_world(*known, incoming(5))

    message = word(world.cycle())

    assert "kept" not in message


def test_under_fair_sharing_too() -> None:
    world = make_world(*replicas(min_replicas="3"), incoming(2), fair=FairPreemption())

    assert evicts(world.cycle()) == {}


def some(*, serving: int, starting: int, floor: int = 1) -> list[Workload]:
    """Return the replicas of one application: `serving` of them serve, `starting` do not answer."""
    found = replicas(serving + starting, min_replicas=str(floor))
    not_ready = make_condition("PodsReady", status=False)
    return [*found[:serving], *(with_conditions(one, not_ready) for one in found[serving:])]


@pytest.mark.parametrize("fair", [None, FairPreemption()], ids=["by priority", "by shares"])
@pytest.mark.parametrize(
    ("known", "gpus", "want"),
    [
        pytest.param(some(serving=1, starting=3), 3, 3, id="those that do not serve go down to the floor"),
        pytest.param(some(serving=1, starting=3), 4, 0, id="and are no reason to take one that does"),
        pytest.param(some(serving=3, starting=1), 3, 3, id="whichever is evicted, as many serve as must"),
        pytest.param(some(serving=2, starting=2, floor=2), 3, 0, id="and never fewer"),
        pytest.param(
            some(serving=0, starting=4), 1, 0, id="below the floor none is evicted: it may be starting"
        ),
        pytest.param(some(serving=0, starting=4, floor=0), 4, 4, id="a floor of nothing keeps none"),
    ],
)
def test_of_replicas_that_do_not_serve(
    known: list[Workload], gpus: int, want: int, fair: FairPreemption | None
) -> None:
    world = make_world(*known, incoming(gpus), fair=fair)

    assert len(evicts(world.cycle())) == want


def test_a_replica_that_has_quota_and_may_not_run_yet_does_not_serve() -> None:
    serving, checked = replicas(2)
    checked = with_conditions(checked, make_condition("Admitted", status=False))
    world = make_world(serving, replace(checked, priority=1), incoming(1), quota=2)

    assert set(evicts(world.cycle())) == {"chat-1"}


def test_those_on_their_way_out_are_counted_off() -> None:
    leaving = with_conditions(
        replica("chat-0"), make_condition("Evicted", reason=EvictionReason.CLUSTER_QUEUE_STOPPED)
    )
    # The server may have counted it off already; for as long as it takes to end, rather too few are taken.
    world = make_world(leaving, *replicas()[1:], budget(1), incoming(2))

    assert evicts(world.cycle()) == {}


@pytest.mark.parametrize(
    ("rules", "kind"), [(VictimRules(), "inference"), (PREFERRED, "batch")], ids=["without the rule", "batch"]
)
def test_other_workloads_are_evicted_as_before(rules: VictimRules, kind: str) -> None:
    known = replicas(workload_type=kind)
    world = make_world(*known, budget(0), incoming(4), rules=rules)

    assert len(evicts(world.cycle())) == 4


def test_equal_priority_takes_no_replica() -> None:
    world = make_world(*replicas(), make_workload("incoming", gpus=1))

    assert evicts(world.cycle()) == {}


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(budget(2), id="the budget allows more"),
        pytest.param(None, id="the budget goes"),
    ],
)
def test_a_refused_workload_is_tried_again_when(news: DisruptionBudget | None) -> None:
    world = make_world(*replicas(), budget(1), incoming(2))
    assert evicts(world.cycle()) == {}

    if news is None:
        world.engine.objects.remove(DisruptionBudget, (NAMESPACE, "chat"), now=world.now)
    else:
        world.put(news)

    assert len(evicts(world.cycle())) == 2


def test_a_refused_workload_is_tried_again_when_another_replica_serves() -> None:
    # Below the floor.
    world = make_world(*some(serving=2, starting=2, floor=3), incoming(1))
    assert evicts(world.cycle()) == {}

    world.put(replica("chat-2", min_replicas="3"))

    assert len(evicts(world.cycle())) == 1


def test_another_is_preempted_once_an_eviction_is_taken_back_that_a_budget_held_back() -> None:
    kept = replica("chat-0", min_replicas="0")
    leaving = with_conditions(kept, make_condition("Evicted", reason=EvictionReason.PREEMPTED))
    world = make_world(leaving, reserved(make_workload("low", gpus=1)), budget(0), incoming(1), quota=2)
    # It leaves already, so no other is evicted beside it.
    assert evicts(world.cycle()) == {}

    world.put(kept)

    assert set(evicts(world.cycle())) == {"low"}


@pytest.mark.parametrize(
    ("observed", "want"), [(2, 3), (1, 0)], ids=["counted", "changed and not counted again yet"]
)
def test_a_budget_is_believed_once_it_has_been_counted(observed: int, want: int) -> None:
    wire = PodDisruptionBudgetObject(
        metadata=Meta(name="chat", namespace=NAMESPACE, generation=2),
        spec=PodDisruptionBudgetSpec(selector=WireSelector(match_labels={"app": "chat"})),
        status=PodDisruptionBudgetStatus(disruptions_allowed=3, observed_generation=observed),
    )

    assert to_disruption_budget(wire).allowed == want


@pytest.mark.parametrize(
    ("policy", "healthy", "desired", "want"),
    [
        pytest.param("", 2, 2, False, id="as many are healthy as must"),
        pytest.param("IfHealthyBudget", 1, 2, True, id="fewer are"),
        pytest.param("AlwaysAllow", 1, 2, False, id="fewer are, and the policy lets them go all the same"),
        pytest.param("", 1, 0, True, id="none must be, which the server takes for none that were counted"),
    ],
)
def test_a_budget_keeps_pods_that_are_not_ready_where(
    policy: str, healthy: int, desired: int, want: bool
) -> None:
    # As the API server does: pkg/registry/core/pod/storage/eviction.go.
    wire = PodDisruptionBudgetObject(
        metadata=Meta(name="chat", namespace=NAMESPACE),
        spec=PodDisruptionBudgetSpec(selector=WireSelector(), unhealthy_pod_eviction_policy=policy),
        status=PodDisruptionBudgetStatus(current_healthy=healthy, desired_healthy=desired),
    )

    assert to_disruption_budget(wire).keeps_unready is want


@pytest.mark.parametrize(
    ("keeps_unready", "want"), [(False, 1), (True, 0)], ids=["kept by the others", "wanting"]
)
def test_a_replica_that_does_not_serve_goes_where_its_budget_is(keeps_unready: bool, want: int) -> None:
    guarding = replace(budget(0), keeps_unready=keeps_unready)
    world = make_world(*some(serving=1, starting=1), guarding, incoming(3))

    assert len(evicts(world.cycle())) == want


@pytest.mark.parametrize(
    ("selector", "want"), [(WireSelector(), True), (None, False)], ids=["empty: all", "absent: none"]
)
def test_a_budget_without_labels_covers_as_the_api_says(selector: WireSelector | None, want: bool) -> None:
    wire = PodDisruptionBudgetObject(
        metadata=Meta(name="all", namespace=NAMESPACE), spec=PodDisruptionBudgetSpec(selector=selector)
    )

    assert to_disruption_budget(wire).covers(NAMESPACE, {"app": "chat"}) is want


def refused(workload: Workload, *, reason: str = DisruptionReason.EVICTION_REFUSED) -> Workload:
    """Return the Workload whose pods the API server has refused to evict."""
    answer = make_condition(ConditionType.DISRUPTION_ALLOWED, status=False, reason=reason)
    return with_conditions(workload, answer)


def test_a_replica_that_the_server_has_refused_to_evict_stays_and_the_message_says_so() -> None:
    low = replica("low", min_replicas="0")
    world = make_world(refused(low), *replicas(3, min_replicas="0"), incoming(3))
    assert len(evicts(world.cycle())) == 3

    message = word(make_world(refused(low), incoming(4)).cycle())

    assert message.endswith(
        "1 candidate for preemption is kept by the API server, which has refused to evict the pods, such as"
        " Workload team/low: its condition berth.dev/DisruptionAllowed quotes its answer"
    )


NOT_READY = make_condition("PodsReady", status=False)


@pytest.mark.parametrize(
    ("before", "after", "want"),
    [
        pytest.param(with_conditions(replica("r"), NOT_READY), replica("r"), True, id="once it serves again"),
        pytest.param(replica("r"), replica("r"), False, id="not while it goes on serving"),
        pytest.param(replica("r"), with_conditions(replica("r"), NOT_READY), False, id="not as it stops"),
        pytest.param(refused(replica("r")), replica("r"), True, id="once the server refuses it no more"),
        pytest.param(
            refused(replica("r")),
            refused(replica("r"), reason="Other"),
            True,
            id="once the server's answer is another",
        ),
        pytest.param(replica("r"), refused(replica("r")), False, id="not as the server refuses it"),
        pytest.param(
            with_conditions(make_workload("r"), NOT_READY),
            with_conditions(make_workload("r"), make_condition("PodsReady")),
            False,
            id="never for a Workload that is no replica",
        ),
    ],
)
def test_a_replica_may_free_others(before: Workload, after: Workload, want: bool) -> None:
    assert may_free_others(before, after) is want
