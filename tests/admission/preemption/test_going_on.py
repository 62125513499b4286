"""The queue goes on while the victims of one of its Workloads stop; the room they leave stays that one's.

One ClusterQueue of eight GPUs. `v1` and `v2` run on four each and stop one after the other, as they save:

    first, second       four GPUs each, more important than the victims: each evicts one of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from admission.decisions.decision import Admit, Evict
from admission.snapshot.hold_totals import HeldRoom
from api.eviction import EvictionRequest, render_request
from api.keys import EVICTION
from api.policy import AdmissionPolicy, PreemptionRules
from api.queueing import Preemption, PreemptionPolicy, QueueingStrategy
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from queues.profile.holds import Hold
from queues.reservations.plan import PlanTable
from tests.builders import (
    World,
    admits,
    evicts,
    make_cluster_queue,
    make_condition,
    make_workload,
    released,
    reserved,
    with_conditions,
)
from tests.examples import trying

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
RECLAIM = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
BEST_EFFORT, STRICT = QueueingStrategy.BEST_EFFORT_FIFO, QueueingStrategy.STRICT_FIFO
GRACE_SECONDS, HOLD_SECONDS = 120, 300


def make_world(
    *values: Any,
    strategy: QueueingStrategy = BEST_EFFORT,
    hold_seconds: int = HOLD_SECONDS,
    quota: int = 8,
    **queue: Any,
) -> World:
    rules = PreemptionRules(minimum_runtime_seconds=0, hold_seconds=hold_seconds, grace_seconds=GRACE_SECONDS)
    fields = {"preemption": LOWER, "queueing_strategy": strategy, **queue}
    return World(now=100_000.0).put(
        AdmissionPolicy(name="policy", preemption=rules),
        make_cluster_queue("queue", quota=quota, **fields),
        *values,
    )


def running(name: str, *, gpus: int = 4, saves: bool = True, **fields: Any) -> Workload:
    """Return one that runs for long and would save on request, in ten seconds."""
    own = {"berth.dev/checkpoint-save-seconds": "10"} if saves else {}
    workload = make_workload(
        name, gpus=gpus, annotations=own, owner_kind="Job", owner_uid=f"job-{name}", **fields
    )
    return reserved(workload, at=1000)


def waiting(name: str, *, gpus: int = 4, priority: int = 5, at: float = 90_000, **fields: Any) -> Workload:
    return make_workload(name, gpus=gpus, priority=priority, at=at, **fields)


def stop(world: World, name: str) -> None:
    """Let an evicted Workload stop and come back to its queue."""
    evicted = make_condition(ConditionType.EVICTED, reason="Preempted", at=world.now)
    world.put(released(with_conditions(world.get(name), evicted), at=world.now))


def ask(world: World, name: str, *, preemptor: str) -> None:
    """Let the Workload show that it is asked to save."""
    workload = world.get(name)
    request = EvictionRequest(
        reason=EvictionReason.PREEMPTED,
        requested_at=world.now,
        deadline=world.now + GRACE_SECONDS,
        ask_at=world.now,
        reserved_at=1000,
        preemptor=world.get(preemptor).key,
        preemptor_uid=world.get(preemptor).uid,
    )
    annotations = {
        **workload.annotations,
        EVICTION: render_request(request, namespace=workload.key.namespace),
    }
    world.put(replace(workload, annotations=annotations))


def holds_of(world: World) -> list[Hold]:
    rooms = world.engine.plan.tables()[PlanTable.HOLDS].values()
    return [room.hold for room in rooms if isinstance(room, HeldRoom)]


def two_and_two(**fields: Any) -> World:
    return make_world(
        running("v1"), running("v2"), waiting("first", at=90_001), waiting("second", at=90_002), **fields
    )


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, {"v1", "v2"}, id="both are evicted for at once"),
        pytest.param({"hold_seconds": 0}, {"v1"}, id="where nothing is kept one waits for the other"),
        pytest.param({"strategy": STRICT}, {"v1"}, id="no Workload passes a strict head, as in Kueue"),
    ],
)
def test_those_behind_evict_for_themselves_while_others_save(fields: dict[str, Any], want: set[str]) -> None:
    assert set(evicts(two_and_two(**fields).settle())) == want


@pytest.mark.parametrize("ends", [("v1", "v2"), ("v2", "v1")])
def test_each_starts_as_soon_as_its_own_victim_has_stopped(ends: tuple[str, str]) -> None:
    world = two_and_two()
    made_way = {
        one.key.name: one.preemptor.name for one in world.settle() if isinstance(one, Evict) and one.preemptor
    }

    started = []
    for victim in ends:
        stop(world, victim)
        started.append(admits(world.settle()))

    assert started == [[made_way[victim]] for victim in ends]


def test_a_strict_head_starts_before_those_behind_it_evict() -> None:
    world = two_and_two(strategy=STRICT)
    world.settle()
    stop(world, "v1")
    decisions = world.settle()

    assert admits(decisions) == ["first"]
    assert set(evicts(decisions)) == {"v2"}


def test_those_behind_start_on_other_room() -> None:
    world = make_world(running("v1", gpus=8), waiting("first", gpus=8), waiting("small", gpus=2), quota=10)

    decisions = world.settle()

    assert set(evicts(decisions)) == {"v1"}
    assert admits(decisions) == ["small"]


def _own(**fields: Any) -> Workload:
    return waiting("thief", **{"gpus": 8, **fields})


def _of_other(**fields: Any) -> Workload:
    return waiting("thief", **{"queue": "other", "gpus": 8, **fields})


@pytest.mark.parametrize(
    "thief",
    [
        pytest.param(_own(at=0), id="an older one of its queue"),
        pytest.param(_own(at=0, gpus=1), id="a small and older one of its queue"),
        pytest.param(_own(priority=4), id="a less important one of its queue"),
        pytest.param(_of_other(at=0), id="an older one of another queue"),
        pytest.param(_of_other(priority=9), id="a more important one of another queue"),
        pytest.param(_of_other(priority=9, gpus=1), id="a small and more important one of another queue"),
    ],
)
@pytest.mark.parametrize("comes", ["while the victims stop", "when one has stopped", "with the last stop"])
def test_freed_room_goes_to_no_other_workload(thief: Workload, comes: str) -> None:
    """What the first of two victims leaves is idle until the second has stopped."""
    world = make_world(running("v1"), running("v2"), waiting("first", gpus=8), cohort="all")
    world.put(make_cluster_queue("other", quota=0, cohort="all"))
    assert set(evicts(world.settle())) == {"v1", "v2"}

    started = []
    for victim, moment in (("v1", "while the victims stop"), ("v2", "when one has stopped")):
        if comes == moment:
            world.put(thief)
            started += admits(world.settle())
        stop(world, victim)
        if victim == "v1":
            started += admits(world.settle())
    if comes == "with the last stop":
        world.put(thief)

    assert started == []
    assert admits(world.settle()) == ["first"]


def test_what_is_freed_is_not_taken_by_one_that_would_come_first_in_the_plain_order() -> None:
    """No queue borrows, so the more important one would, whichever queue it comes from."""
    world = make_world(running("v1"), running("v2"), running("lent", gpus=8, priority=9), cohort="all")
    world.put(make_cluster_queue("other", quota=8, cohort="all"), waiting("first", gpus=8))
    assert set(evicts(world.settle())) == {"v1", "v2"}
    world.put(waiting("thief", queue="other", gpus=8, priority=9)).settle()

    stop(world, "v1")
    assert admits(world.settle()) == []
    stop(world, "v2")
    assert admits(world.settle()) == ["first"]


def test_what_two_heads_of_one_cycle_share_of_a_victim_is_kept_for_both() -> None:
    """The second finds its victim taken by the first, and needs no more than it leaves over."""
    world = make_world(running("v1", gpus=8, queue="other"), cohort="all", quota=4, preemption=RECLAIM)
    world.put(
        make_cluster_queue("second", quota=4, cohort="all", preemption=RECLAIM),
        make_cluster_queue("other", quota=0, cohort="all"),
        waiting("a"),
        waiting("b", queue="second"),
    )
    world.settle()
    world.put(waiting("thief", queue="second", at=0), waiting("c", queue="other", at=0, priority=9)).settle()
    stop(world, "v1")

    assert sorted(admits(world.settle())) == ["a", "b"]


def test_of_its_own_queue_only_a_more_important_one_goes_first() -> None:
    world = make_world(running("v1", gpus=8), waiting("first", gpus=8))
    world.settle()
    world.put(waiting("boss", gpus=8, priority=9)).settle()
    stop(world, "v1")

    assert admits(world.settle()) == ["boss"]


@pytest.mark.parametrize("gpus", [4, 1])
def test_while_a_more_important_one_of_its_queue_is_tried_other_queues_take_nothing(gpus: int) -> None:
    world = make_world(running("v1"), running("v2"), waiting("first", gpus=8), cohort="all")
    world.put(make_cluster_queue("other", quota=0, cohort="all"))
    world.settle()
    stop(world, "v1")
    world.put(waiting("boss", gpus=9, priority=9), waiting("thief", queue="other", gpus=gpus))

    assert admits(world.settle()) == []
    stop(world, "v2")
    assert admits(world.settle()) == ["first"]


def test_it_starts_on_other_room_that_appears_while_its_victim_saves() -> None:
    """The victim's eviction is called off by that: no Workload waits for its room any more."""
    world = make_world(running("v1", saves=True), running("done", priority=7), waiting("first"))
    assert set(evicts(world.settle())) == {"v1"}

    world.put(with_conditions(world.get("done"), make_condition(ConditionType.FINISHED, reason="Succeeded")))

    assert admits(world.settle()) == ["first"]
    assert holds_of(world) == []


def _leave(world: World) -> list[str]:
    world.remove(Workload, world.get("first").key)
    return []


def _start_elsewhere(world: World) -> list[str]:
    world.put(with_conditions(world.get("done"), make_condition(ConditionType.FINISHED, reason="Succeeded")))
    return ["first"]


@pytest.mark.parametrize("goes", [_leave, _start_elsewhere])
def test_a_workload_that_waited_behind_it_is_tried_when_it_needs_the_room_no_more(
    goes: Callable[[World], list[str]],
) -> None:
    """The eviction of its victim goes on for the next in line, which needs it as much."""
    world = make_world(running("v1"), running("done", priority=7), waiting("first"))
    world.settle()
    ask(world, "v1", preemptor="first")
    world.put(waiting("second", at=95_000)).settle()
    assert [hold.key.name for hold in holds_of(world)] == ["first"]

    want = goes(world)
    assert world.engine.queues.is_undecided("queue")
    assert admits(world.settle()) == want
    successor = world.engine.workloads.joined_eviction_of(world.get("v1").key)

    assert successor is not None
    assert successor.preemptor == world.get("second").key
    assert [hold.key.name for hold in holds_of(world)] == ["second"]


def test_what_is_left_over_is_kept_for_one_and_the_next_evicts_for_itself() -> None:
    """`first` needs three GPUs of four, `second` the fourth; `third` does not wait for that one."""
    world = make_world(
        running("v1"),
        running("v2"),
        waiting("first", gpus=3, at=1),
        waiting("second", gpus=1, at=2),
        waiting("third", gpus=1, at=3),
    )
    (evicted, other) = [one.key.name for one in world.settle() if isinstance(one, Evict)]

    stop(world, evicted)
    assert admits(world.settle()) == ["first", "second"]
    stop(world, other)
    assert admits(world.settle()) == ["third"]


@pytest.mark.parametrize("strategy", [BEST_EFFORT, STRICT])
def test_a_victim_that_never_stops_keeps_others_out_for_the_hold_and_no_longer(
    strategy: QueueingStrategy,
) -> None:
    world = make_world(
        running("v1"), running("v2"), waiting("first", gpus=8), cohort="all", strategy=strategy
    )
    world.put(make_cluster_queue("other", quota=0, cohort="all"))
    world.settle()
    stop(world, "v1")
    world.put(waiting("late", queue="other", gpus=4))
    # Each event is an occasion for another look, which must not put the end off.
    for number in range(20):
        world.now += 15
        world.put(waiting(f"event{number}", gpus=99))
        world.settle()
    ends_at = world.engine.next_wake_at()
    assert "late" not in world.holding()
    assert ends_at is not None
    assert ends_at <= 100_000 + GRACE_SECONDS + 35 + HOLD_SECONDS

    world.now = ends_at
    assert admits(world.settle()) == ["late"]


# --- the law ---------------------------------------------------------------------------------------------

_arrivals = st.tuples(st.sampled_from(("queue", "other")), st.integers(1, 4), st.integers(0, 3))


_LEFT_OVER = [
    ("queue", 2, 0),
    ("queue", 3, 0),
    ("queue", 3, 0),
    ("other", 1, 0),
    ("other", 1, 1),
    ("queue", 1, 1),
    ("queue", 4, 1),
]


_PASSED = [
    ("queue", 2, 1),
    ("queue", 4, 0),
    ("queue", 3, 1),
    ("other", 3, 0),
    ("other", 4, 1),
    ("queue", 1, 2),
]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, int, int]], list[int]]:
    """Return the arrivals (queue, GPUs, priority), and at each turn which leaving victim stops."""
    arrivals = draw(st.lists(_arrivals, min_size=3, max_size=12))
    return arrivals, draw(st.lists(st.integers(0, 20), min_size=1, max_size=25))


@trying(is_hard_to_draw=True)
@given(histories(), st.sampled_from([BEST_EFFORT, STRICT]))
# One that needs both what its victim leaves and what another's leaves over, while a third queue is tried.
@example((_LEFT_OVER, [1]), BEST_EFFORT)
# More is kept than there is, as an important one has passed: the rest is for one that something is kept for.
@example((_PASSED, [0]), BEST_EFFORT)
def test_a_workload_that_others_were_evicted_for_gets_its_room(
    history: tuple[list[tuple[str, int, int]], list[int]], strategy: QueueingStrategy
) -> None:
    """Arrivals and stops in any order. The quota is never exceeded, and what is kept is not taken."""
    arrivals, turns = history
    world = make_world(strategy=strategy, cohort="all", quota=4)
    world.put(
        make_cluster_queue("other", quota=4, cohort="all", preemption=LOWER, queueing_strategy=strategy)
    )
    leaving: list[str] = []
    for turn, (queue, gpus, priority) in zip(_forever(turns), [*arrivals, *[("", 0, 0)] * 12], strict=False):
        world.now += 1
        if queue:
            own = {"berth.dev/checkpoint-save-seconds": "10"}
            name = f"w{int(world.now)}"
            world.put(waiting(name, queue=queue, gpus=gpus, priority=priority, at=world.now, annotations=own))
        elif leaving:
            stop(world, leaving.pop(turn % len(leaving)))
        holds = holds_of(world)
        for _ in range(1000):
            if not world.engine.wake_heads(now=world.now):
                break
            decisions = world.cycle()
            world.confirm(decisions)
            leaving += [one.key.name for one in decisions if isinstance(one, Evict)]
            for one in decisions:
                if isinstance(one, Admit):
                    _check_that_nothing_kept_is_taken(world, one.key.name, holds, leaving)
            holds = holds_of(world)
        assert sum(_gpus(world.get(name)) for name in world.holding()) <= 8


def _forever(turns: list[int]) -> Iterator[int]:
    while True:
        yield from turns


def _gpus(workload: Workload) -> int:
    assert workload.admission is not None
    return sum(one.usage["gpu"] for one in workload.admission.pod_sets)


def _kept_gpus(hold: Hold) -> int:
    return sum(one.usage["gpu"] for one in hold.admission.pod_sets)


def _is_kept_from(hold: Hold, workload: Workload) -> bool:
    """Return whether the Workload that has started must have left alone what is held."""
    is_more = workload.queue_name == hold.cluster_queue and workload.priority > hold.priority
    return hold.key != workload.key and not is_more


def _check_that_nothing_kept_is_taken(world: World, name: str, holds: list[Hold], leaving: list[str]) -> None:
    """A Workload that has started leaves what is kept for others, once the leaving victims are gone.

    Where a more important one has taken a part of what was kept, several that something is kept for may
    have to share what is left.
    """
    workload = world.get(name)
    # A Workload that has started by now has what was kept for it.
    waits = [hold for hold in holds if hold.key.name not in world.holding()]
    kept = sum(_kept_gpus(hold) for hold in waits if _is_kept_from(hold, workload))
    own = sum(_kept_gpus(hold) for hold in holds if hold.key == workload.key)
    staying = sum(_gpus(world.get(one)) for one in world.holding() if one not in leaving and one != name)
    has_been_passed = own > 0 and staying + sum(map(_kept_gpus, holds)) > 8
    assert staying + kept + _gpus(workload) <= 8 or has_been_passed
