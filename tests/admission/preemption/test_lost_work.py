"""What is evicted under a policy with a section for preemption: at equal priority the smallest loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from admission.decisions.decision import Wait
from admission.preemption.lost_work import EvictionLosses, lost_work
from api.jobs.checkpoint_annotations import checkpoint_faults
from api.jobs.resource_requests import PODS
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, Estimates, PreemptionRules, VictimRules
from api.queueing import Preemption, PreemptionPolicy, ResourceFlavor, Topology
from api.reasons import ConditionType
from api.workload import (
    DomainCount,
    TopologyAssignment,
    TopologyRequest,
    Workload,
    WorkloadKey,
)
from tests.builders import (
    NAMESPACE,
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_cohort,
    make_condition,
    make_pod_set,
    make_workload,
    reserved,
    with_conditions,
)
from tests.examples import trying

NOW = 100_000.0
LOWER = Preemption(
    within_cluster_queue=PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
    reclaim_within_cohort=PreemptionPolicy.ANY,
)


def make_world(
    *values: object,
    quota: int = 8,
    rules: VictimRules | None = None,
    estimates: Estimates | None = None,
    **section: Any,
) -> World:
    """Return a queue of `quota` GPUs whose policy has a section for preemption, an hour's losses counted."""
    preemption = PreemptionRules(rules=rules or VictimRules(), **{"minimum_runtime_seconds": 0, **section})
    return World(now=NOW).put(
        AdmissionPolicy(name="policy", uid="p", preemption=preemption, estimates=estimates),
        make_cluster_queue(quota=quota, preemption=LOWER),
        *values,
    )


def running(
    name: str, gpus: int = 4, *, ran: float = 10_000, saved: float | None = None, **fields: Any
) -> Workload:
    """Return a Workload that has run for `ran` seconds and saved `saved` seconds ago.

    Other berth.dev keys go by their name with underscores.
    """
    names = ("type", "interval", "restart", "time", "save", "on_sigterm")
    keys = {
        "type": "workload-type",
        "interval": "checkpoint-interval-seconds",
        "restart": "checkpoint-restart-seconds",
        "time": "checkpoint-time",
        "save": "checkpoint-save-seconds",
        "on_sigterm": "checkpoint-on-sigterm",
    }
    own = {keys[one]: str(fields.pop(one)) for one in names if one in fields}
    if saved is not None:
        own["checkpoint-time"] = to_rfc3339(NOW - saved)
    annotations = {f"berth.dev/{key}": value for key, value in own.items()}
    return reserved(make_workload(name, gpus=gpus, annotations=annotations, **fields), at=NOW - ran)


def finished_after(name: str, seconds: float) -> Workload:
    """Return a Workload of 8 GPUs that has just ended well after `seconds`."""
    ended = make_condition(ConditionType.FINISHED, reason="Succeeded", at=NOW)
    return with_conditions(running(name, 8, ran=seconds, type="training"), ended)


def incoming(gpus: int = 4, *, priority: int = 5) -> Workload:
    return make_workload("incoming", gpus=gpus, priority=priority, at=NOW)


def loss(world: World, name: str) -> float:
    world.engine.wake_heads(now=NOW)
    cache = world.engine._cache
    held = cache.held[WorkloadKey(NAMESPACE, name)]
    return EvictionLosses(now=NOW).of(held, cache.queues["queue"])


@pytest.mark.parametrize(
    ("own", "want"),
    [
        pytest.param({"saved": 300}, 4 * (300 + 30), id="work since the checkpoint, and the restart"),
        pytest.param({"saved": 300, "restart": 90}, 4 * 390, id="its own time to restart"),
        pytest.param({"saved": 300, "restart": 9000}, 4 * 900, id="a time to restart counts up to the bound"),
        pytest.param({"saved": 300, "restart": "long"}, 4 * 330, id="an unreadable time counts as not said"),
        pytest.param({"saved": 9_000}, 4 * 3630, id="lost work counts up to an hour"),
        pytest.param({"saved": 5, "ran": 2}, 4 * 32, id="nothing is lost from before its start"),
        pytest.param({"saved": 900, "interval": 600}, 4 * 930, id="it is late with its checkpoint"),
        pytest.param(
            {"saved": 3000, "interval": 300}, 4 * 630, id="its checkpoints stopped: twice its interval"
        ),
        pytest.param({"ran": 9000, "interval": 300}, 4 * 630, id="without any, too"),
        pytest.param({"saved": -30}, 4 * 30, id="half a minute ahead is another clock"),
        pytest.param({"saved": -3000, "ran": 700}, 4 * 730, id="a checkpoint of the future counts as none"),
        pytest.param({"save": 20, "on_sigterm": "true"}, 4 * (20 + 30), id="it saves at SIGTERM"),
        pytest.param({"save": 20, "on_sigterm": "true", "ran": 5}, 4 * 35, id="it has just begun"),
        pytest.param({"save": 31, "on_sigterm": "true"}, 4 * 3630, id="its save does not fit the grace"),
        pytest.param({"ran": 700}, 4 * 730, id="where no Workload reports, all since the start"),
        pytest.param({"time": "yesterday", "ran": 700}, 4 * 730, id="an unreadable time is no checkpoint"),
    ],
)
def test_what_an_eviction_loses(own: dict[str, Any], want: float) -> None:
    assert loss(make_world(running("victim", **own)), "victim") == want


def test_a_later_checkpoint_counts_from_then_on() -> None:
    world = make_world(running("victim", saved=3000))
    before = loss(world, "victim")

    world.put(running("victim", saved=300))

    assert (before, loss(world, "victim")) == (4 * 3030, 4 * 330)


@pytest.mark.parametrize(
    ("rules", "own", "is_tried"),
    [
        pytest.param(VictimRules(), {"saved": 10}, False, id="a checkpoint makes no victim"),
        pytest.param(VictimRules(), {"save": 5, "interval": 60}, False, id="nor does what saving costs"),
        pytest.param(
            VictimRules(checkpoint_max_age_seconds=600), {"saved": 10}, True, id="under a rule it may"
        ),
        pytest.param(VictimRules(), {"type": "inference"}, True, id="what it is may always"),
    ],
)
def test_a_waiting_workload_is_tried_again_when_another_may_have_become_a_victim(
    rules: VictimRules, own: dict[str, Any], is_tried: bool
) -> None:
    world = make_world(running("w", 8, priority=9, saved=3000), incoming(), rules=rules)
    assert not admits(world.settle())
    assert not world.engine.wake_heads(now=NOW)

    world.put(running("w", 8, priority=9, **{"saved": 3000, **own}))

    assert world.engine.wake_heads(now=NOW) is is_tried


def test_a_workload_without_checkpoints_is_assumed_to_have_saved_at_the_median_start_of_the_others() -> None:
    silent = running("silent", 2, ran=3000)
    others = [running(f"r{ran}", 2, ran=ran, saved=10) for ran in (500, 1000, 2000)]

    assert loss(make_world(silent, *others), "silent") == 2 * (1000 + 30)


def test_evicting_workloads_that_report_makes_none_cheaper_that_does_not() -> None:
    """All that report were stopped and have just started again: they have run for longer than that."""
    silent = running("silent", 2, ran=3000)
    others = [
        running(f"r{before}", 2, ran=60, saved=10, accumulated_execution_seconds=before)
        for before in (440, 940, 1940)
    ]

    assert loss(make_world(silent, *others), "silent") == 2 * (1000 + 30)


def test_checkpoints_that_have_stopped_count_as_none() -> None:
    stopped = running("stopped", 2, ran=9000, saved=7000, interval=600)
    other = running("other", 2, ran=400, saved=10)

    assert loss(make_world(stopped, other), "stopped") == 2 * (400 + 30)


def test_a_workload_that_has_waited_since_its_last_checkpoint_still_counts_as_reporting() -> None:
    back = running("back", 2, ran=1000, saved=9000, interval=600)
    other = running("other", 2, ran=400, saved=10)

    # It has run for longer than what is assumed of Workloads that report nothing.
    assert loss(make_world(back, other), "back") == 2 * (1000 + 30)


@pytest.mark.covers("001_31", "001_33")
def test_at_equal_priority_the_one_that_has_just_saved_is_evicted() -> None:
    world = make_world(
        running("stale", ran=9000, saved=3000), running("fresh", ran=9001, saved=10), incoming()
    )

    assert list(evicts(world.settle())) == ["fresh"]


def test_priority_comes_before_loss() -> None:
    world = make_world(running("lesser", saved=3000), running("greater", saved=1, priority=1), incoming())

    assert list(evicts(world.settle())) == ["lesser"]


def test_without_the_section_the_last_to_start_goes() -> None:
    world = World(now=NOW).put(
        make_cluster_queue(quota=8, preemption=LOWER),
        running("fresh", ran=9001, saved=10),
        running("stale", ran=9000, saved=3000),
        incoming(),
    )

    assert list(evicts(world.settle())) == ["stale"]


def test_one_large_victim_goes_where_it_is_cheaper_than_several_small_ones() -> None:
    small = [running(f"s{index}", 1, saved=300 + index) for index in range(4)]
    world = make_world(*small, running("large", 4, saved=200), incoming())

    assert list(evicts(world.settle())) == ["large"]


def test_several_small_victims_go_where_they_are_cheaper_than_a_large_one() -> None:
    small = [running(f"s{index}", 1, saved=10) for index in range(4)]
    world = make_world(running("large", 4, saved=3000), *small, incoming())

    assert sorted(evicts(world.settle())) == ["s0", "s1", "s2", "s3"]


TRAINING: dict[str, Any] = {"type": "training", "ran": 9000}


@pytest.mark.parametrize(
    ("rules", "victim"),
    [
        pytest.param(
            {"protected_priority": 3},
            {**TRAINING, "priority": 3, "saved": 10},
            id="training of high priority",
        ),
        pytest.param(
            {"protected_remaining_seconds": 7200},
            {**TRAINING, "maximum_execution_time_seconds": 16_000},
            id="training that is nearly done",
        ),
        pytest.param({"protects_uncheckpointed": True}, TRAINING, id="training without checkpoints"),
        pytest.param(
            {"checkpoint_max_age_seconds": 1800},
            {**TRAINING, "saved": 2000},
            id="training with an old checkpoint",
        ),
    ],
)
@pytest.mark.parametrize("is_on", [True, False])
def test_a_rule_spares(rules: dict[str, Any], victim: dict[str, Any], is_on: bool) -> None:
    world = make_world(running("victim", **victim), incoming(8), rules=VictimRules(**rules if is_on else {}))

    assert list(evicts(world.settle())) == ([] if is_on else ["victim"])


@pytest.mark.parametrize(
    ("rules", "victim", "want"),
    [
        pytest.param({"protected_priority": 3}, {"priority": 3, "saved": 10}, "protectPriority"),
        pytest.param({"protects_uncheckpointed": True}, {}, "protectUncheckpointed"),
        pytest.param({"checkpoint_max_age_seconds": 1800}, {"saved": 1800}, "requireFreshCheckpoint"),
        pytest.param(
            {"protected_remaining_seconds": 7200},
            {"maximum_execution_time_seconds": 16_000},
            "protectNearlyDone",
        ),
    ],
)
def test_the_message_names_the_rule_that_spares(
    rules: dict[str, Any], victim: dict[str, Any], want: str
) -> None:
    spared = running("victim", **TRAINING, **victim)

    (wait,) = (
        one
        for one in make_world(spared, incoming(8), rules=VictimRules(**rules)).cycle()
        if isinstance(one, Wait)
    )

    assert wait.message.endswith(
        f"1 candidate for preemption is spared by {want}, such as Workload team/victim"
    )


def test_training_becomes_a_candidate_when_it_saves() -> None:
    world = make_world(
        running("victim", **TRAINING, saved=2000),
        incoming(8),
        rules=VictimRules(checkpoint_max_age_seconds=1800),
    )
    assert not evicts(world.settle())

    world.put(running("victim", **TRAINING, saved=5))

    assert list(evicts(world.settle())) == ["victim"]


@pytest.mark.parametrize("is_on", [True, False])
def test_under_the_rule_of_fresh_checkpoints_only_a_higher_priority_preempts_training(
    is_on: bool,
) -> None:
    rules = VictimRules(checkpoint_max_age_seconds=1800 if is_on else None)
    older = make_workload("older", gpus=8, priority=3, at=0.0)
    world = make_world(
        running("victim", 8, priority=3, saved=60, at=NOW - 9500, **TRAINING), older, rules=rules
    )

    assert list(evicts(world.settle())) == ([] if is_on else ["victim"])
    assert list(evicts(world.put(incoming(8)).settle())) == (["victim"] if is_on else [])


def test_training_that_outruns_the_runs_before_it_is_nearly_done_no_more() -> None:
    world = make_world(
        *(finished_after(f"victim-{index}", 9000) for index in range(3)),
        running("victim-9", 8, ran=8900, type="training"),
        incoming(8),
        rules=VictimRules(protected_remaining_seconds=7200),
        estimates=Estimates(),
    )
    assert not evicts(world.settle())
    assert world.engine.next_wake_at() == NOW + 100

    world.now = NOW + 100

    assert list(evicts(world.settle())) == ["victim-9"]


def test_inference_is_preferred_and_loses_only_its_restart() -> None:
    world = make_world(
        running("training", ran=9000, saved=60, type="training"),
        running("inference", ran=9000, type="inference"),
        incoming(),
        rules=VictimRules(prefers_inference=True),
    )

    assert list(evicts(world.settle())) == ["inference"]


def test_an_equal_preempts_only_after_the_minimum_run_time_and_then_at_once() -> None:
    older = make_workload("older", gpus=8, at=0.0)
    world = make_world(running("victim", 8, ran=400, at=NOW - 500), older, minimum_runtime_seconds=600)
    assert not evicts(world.settle())
    assert world.engine.next_wake_at() == NOW + 200

    world.now = NOW + 200

    assert list(evicts(world.settle())) == ["victim"]


def test_a_waiting_workload_gets_what_is_spared_by_what_and_until_when() -> None:
    world = make_world(
        running("young", 4, ran=400, priority=3, at=NOW - 500),
        running("strong", 4, priority=3, at=NOW - 9500, **TRAINING),
        make_workload("older", gpus=8, priority=3, at=0.0),
        rules=VictimRules(protected_priority=3),
        minimum_runtime_seconds=600,
    )

    (message,) = (one.message for one in world.cycle() if isinstance(one, Wait))

    spared, at = "1 candidate for preemption is spared by", to_rfc3339(NOW + 200)
    assert f"{spared} minimumRuntimeSeconds, such as Workload {NAMESPACE}/young until {at}" in message
    assert f"{spared} protectPriority, such as Workload {NAMESPACE}/strong" in message


def test_a_higher_priority_waits_for_no_minimum_run_time() -> None:
    world = make_world(running("victim", 8, ran=1), incoming(8), minimum_runtime_seconds=600)

    assert list(evicts(world.settle())) == ["victim"]


def test_the_policy_of_the_victims_own_queue_spares_it() -> None:
    spares = PreemptionRules(rules=VictimRules(protected_priority=3))
    world = World(now=NOW).put(
        AdmissionPolicy(name="kind", uid="p", queue_names=frozenset({"borrower"}), preemption=spares),
        make_cohort("team"),
        make_cluster_queue(quota=8, cohort="team", preemption=LOWER),
        make_cluster_queue("borrower", cohort="team"),
        running("victim", 8, queue="borrower", priority=3, type="training"),
        incoming(8, priority=9),
    )

    assert not evicts(world.settle())


@trying(60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 4000)), min_size=1, max_size=8),
    st.integers(1, 8),
)
def test_it_never_loses_more_than_the_plain_order_and_evicts_none_needlessly(
    jobs: list[tuple[int, int, int]], wanted: int
) -> None:
    quota = max(wanted, sum(gpus for gpus, _, _ in jobs))
    victims = [
        running(f"w{index}", gpus, priority=priority, saved=saved, ran=9000 + index)
        for index, (gpus, priority, saved) in enumerate(jobs)
    ]
    by_loss = make_world(*victims, incoming(wanted), quota=quota)
    plain = World(now=NOW).put(make_cluster_queue(quota=quota, preemption=LOWER), *victims, incoming(wanted))

    mine, theirs = by_loss.settle(), plain.settle()

    sizes = {f"w{index}": gpus for index, (gpus, _, _) in enumerate(jobs)}
    free = quota - sum(sizes.values())
    assert bool(admits(mine)) == bool(admits(theirs))
    assert _grief(evicts(mine), jobs) <= _grief(evicts(theirs), jobs)
    for name in evicts(mine):
        assert free + sum(sizes[one] for one in evicts(mine) if one != name) < wanted


def _grief(names: dict[str, str], jobs: list[tuple[int, int, int]]) -> list[tuple[int, float]]:
    """Return what is lost by priority, the highest first."""
    lost: dict[int, float] = {}
    for name in names:
        gpus, priority, saved = jobs[int(name[1:])]
        lost[priority] = lost.get(priority, 0.0) + gpus * (min(saved, 3600) + 30)
    return sorted(lost.items(), reverse=True)


def test_what_cannot_be_believed_is_named_with_its_value() -> None:
    claims = {"berth.dev/checkpoint-save-seconds": "1e9", "berth.dev/checkpoint-time": "soon"}

    faults = list(checkpoint_faults((claims,)))

    assert [fault.split(",")[0] for fault in faults] == [
        "berth.dev/checkpoint-time is 'soon'",
        "berth.dev/checkpoint-save-seconds is '1e9'",
    ]


RACK = "rack"


def test_a_rack_is_emptied_where_that_loses_least_instead_of_a_bit_of_each() -> None:
    """Two racks of two nodes; the preemptor needs a whole rack. By least loss, one by one: a2, b1, b2.
    That empties rack b, which also started last. Rack a is cheaper.

    rack a   a1 1000 s   a2 5 s          rack b   b1 800 s   b2 900 s          since the last checkpoint
    """
    jobs = {"a1": 1000, "a2": 5, "b1": 800, "b2": 900}
    request = TopologyRequest(required=RACK)
    wanted = make_pod_set(count=2, requests={"gpu": 8}, topology_request=request)
    world = World(now=NOW).put(
        AdmissionPolicy(name="policy", uid="p", preemption=PreemptionRules(minimum_runtime_seconds=0)),
        Topology(name="t", levels=(RACK, HOSTNAME)),
        ResourceFlavor(name="default", topology_name="t"),
        *(make_node(name) for name in jobs),
        make_cluster_queue(quota=32, preemption=LOWER),
        *(
            placed(running(name, 8, saved=saved, ran=9000 - ord(name[0])), name)
            for name, saved in jobs.items()
        ),
        make_workload("incoming", pod_sets=(wanted,), priority=5, at=NOW),
    )

    assert sorted(evicts(world.settle())) == ["a1", "a2"]


def make_node(name: str) -> NodeInfo:
    return NodeInfo(
        name=name,
        labels={RACK: name[0], HOSTNAME: name},
        allocatable={"gpu": 8, PODS: 110},
        is_ready=True,
    )


def placed(workload: Workload, *nodes: str) -> Workload:
    """Return the Workload with a pod on each of the nodes."""
    assert workload.admission is not None
    (assignment,) = workload.admission.pod_sets
    domains = tuple(DomainCount(values=(node,), count=1) for node in nodes)
    topology = TopologyAssignment(levels=(HOSTNAME,), domains=domains)
    admission = replace(workload.admission, pod_sets=(replace(assignment, topology=topology),))
    return replace(workload, admission=admission)


@pytest.mark.parametrize(
    ("preempted", "ran", "want"),
    [
        pytest.param(0, 700, ["victim"], id="never before"),
        pytest.param(1, 700, [], id="once, and not twice the minimum run time since"),
        pytest.param(1, 1300, ["victim"], id="once, and twice the minimum run time since"),
        pytest.param(9, 4700, [], id="often"),
        pytest.param(9, 4900, ["victim"], id="often, and eight times the minimum run time since"),
    ],
)
def test_a_workload_preempted_before_runs_longer_before_an_equal_may_evict_it(
    preempted: int, ran: float, want: list[str]
) -> None:
    victim = replace(running("victim", 8, ran=ran, at=NOW - 5000), evictions={("Preempted", ""): preempted})
    world = make_world(victim, make_workload("incoming", gpus=8, at=NOW - 9000), minimum_runtime_seconds=600)

    assert list(evicts(world.settle())) == want


def test_a_workload_that_can_be_asked_to_save_loses_no_more_than_the_save() -> None:
    own = {
        "berth.dev/checkpoint-save-seconds": "20",
        "berth.dev/checkpoint-time": to_rfc3339(NOW - 3000),
    }
    victim = replace(running("victim"), annotations=own, owner_kind="Job")

    assert loss(make_world(victim), "victim") == 4 * (20 + 30)
    assert loss(make_world(victim, grace_seconds=0), "victim") == 4 * (3000 + 30)
    near = {**own, "berth.dev/checkpoint-interval-seconds": "3060"}
    assert loss(make_world(replace(victim, annotations=near)), "victim") == 4 * 30


@pytest.mark.parametrize(
    ("saved_at", "want"),
    [
        pytest.param(None, 4 * 1000, id="all since the start"),
        pytest.param(NOW - 300, 4 * 300, id="since the checkpoint"),
        pytest.param(NOW - 5000, 4 * 1000, id="a checkpoint of an earlier attempt saves nothing of this one"),
        pytest.param(NOW + 5000, 4 * 1000, id="a checkpoint of the future is none"),
        pytest.param(NOW + 30, 0, id="one of a clock that is a little ahead counts as now"),
    ],
)
def test_what_an_eviction_has_lost(saved_at: float | None, want: float) -> None:
    victim = running("victim", ran=1000)
    assert victim.admission is not None

    lost = lost_work(victim, saved_at=saved_at, now=NOW)

    assert lost == want
