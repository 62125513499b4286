"""What would become of a cluster, and of a Workload if something was different."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from admission.engine.engine import Engine
from admission.engine.holders import holders, lacks
from admission.engine.remedies import remedies
from admission.engine.what_if import differences, play
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.policy import BackfillMode
from api.queueing import ClusterQueue, Preemption, PreemptionPolicy
from api.workload import Workload
from tests.admission.timed import TimedWorld, key, make_policy, template
from tests.builders import make_cluster_queue, make_pod_set, make_workload
from tests.examples import trying

NOW = 1000.0


def make_world(*running: tuple[str, int, int], quota: int = 8) -> TimedWorld:
    """Return a world with promised starts; `running` are names, GPUs and declared seconds (0: none)."""
    world = TimedWorld(now=NOW)
    world.put(
        make_cluster_queue("own", quota=quota, cohort="c"),
        make_cluster_queue("other", quota=8, cohort="c"),
        make_policy(BackfillMode.CONSERVATIVE),
    )
    for name, gpus, seconds in running:
        world.submit(name, gpus, runs=500, says=seconds, queue="own")
    world.run(until=NOW)
    return world


def test_what_waits_starts_at_the_end_of_what_runs() -> None:
    world = make_world(("a", 16, 300))
    world.put(make_workload("w", queue="own", gpus=8, at=NOW))

    played = play(world.engine, now=NOW)

    assert played.start_of(key("w")) == NOW + 300
    assert played.waits.keys() == {key("w")}


def test_evictions_and_later_starts_are_the_difference() -> None:
    def cluster(*names: str) -> Engine:
        world = TimedWorld(now=NOW)
        lower = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
        world.put(
            make_cluster_queue("own", quota=8, preemption=lower), make_policy(BackfillMode.CONSERVATIVE)
        )
        world.submit("low", 8, runs=100, queue="own")
        world.run(until=NOW)
        for name in names:
            world.put(make_workload(name, queue="own", gpus=8, at=NOW, priority=5))
        return world.engine

    before, after = play(cluster(), now=NOW), play(cluster("urgent"), now=NOW)

    (evicted,) = differences(before, after, without=(key("urgent"),))
    assert (evicted.key, evicted.is_evicted) == (key("low"), True)
    assert after.start_of(key("urgent")) == NOW


def test_a_holder_of_unknown_length_has_no_end_and_names_what_keeps_it() -> None:
    world = make_world(("known", 8, 300), ("unknown", 8, 0))
    workload = make_workload("w", queue="own", gpus=8, at=NOW)
    world.put(workload)

    (lack,) = lacks(world.engine.workloads.explanation(workload))
    found = holders(world.engine, workload, lack.pair)

    assert (lack.missing, lack.most) == (8, 16)
    never = "preemption.withinClusterQueue of ClusterQueue own is Never"
    assert [(one.key.name, one.ends_at, one.kept_by) for one in found] == [
        ("known", NOW + 300, never),
        ("unknown", None, never),
    ]


def new_gang(pods: int, gpus: int) -> Workload:
    """Return a Workload of several pods that declares how long it runs."""
    pod_set = make_pod_set(count=pods, template=template(gpus))
    return make_workload(
        "w", queue="own", at=NOW, pod_sets=(pod_set,), annotations={EXPECTED_RUNTIME_SECONDS: "60"}
    )


@trying(25)
@given(
    running=st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 8), st.sampled_from([0, 500, 900])),
        max_size=3,
        unique_by=lambda one: one[0],
    ),
    pods=st.integers(1, 4),
    gpus=st.sampled_from([1, 4, 8]),
    quota=st.sampled_from([4, 8, 12]),
)
def test_what_would_help_brings_the_start_that_it_names(
    running: list[tuple[str, int, int]], pods: int, gpus: int, quota: int
) -> None:
    workload = new_gang(pods, gpus)

    def world_with(changed: Workload | ClusterQueue) -> TimedWorld:
        world = make_world(*running, quota=quota)
        world.lengths["w"] = 60
        world.put(workload, changed)
        return world

    tried: list[tuple[float, Workload | ClusterQueue]] = []

    def trial(changed: Workload | ClusterQueue) -> float:
        start = play(world_with(changed).engine, now=NOW).start_of(workload.key)
        tried.append((start, changed))
        return start

    present = world_with(workload).engine
    lacking = lacks(present.workloads.explanation(workload))
    starts_at = play(world_with(workload).engine, now=NOW).start_of(workload.key)
    found = list(remedies(present, workload, lacking, trial, starts_at=starts_at))

    for remedy in found:
        changed = next(value for start, value in tried if start == remedy.start_at)
        world = world_with(changed)
        world.run()
        # Work may end earlier than it declared, and never later: so may the start.
        assert world.started["w"] <= remedy.start_at < starts_at


def test_a_gang_that_is_too_large_is_helped_by_fewer_pods_or_more_quota() -> None:
    world, workload = make_world(), new_gang(5, 4)
    world.put(workload)

    def trial(changed: Workload | ClusterQueue) -> float:
        other = make_world()
        other.put(workload, changed)
        return play(other.engine, now=NOW).start_of(workload.key)

    lacking = lacks(world.engine.workloads.explanation(workload))
    found = remedies(world.engine, workload, lacking, trial, starts_at=inf)

    assert [(one.kind, one.change, one.start_at) for one in found] == [
        ("pods", "ask for 4 of its 5 pods", NOW),
        ("quota", "raise the quota of ClusterQueue own by 4 gpu in flavor default", NOW),
    ]
