"""Laws of promotion: a move to a better flavor breaks no quota and delays no promise, and it starts there.

For any work in two queues of a cohort, with estimates that hold and pods that stop at once.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import event, given

from admission.decisions.decision import Admit, Decision, Evict
from api.policy import (
    AdmissionPolicy,
    Backfill,
    BackfillMode,
    FlavorPromotion,
    FlavorRules,
    PlacementRules,
)
from api.queueing import ClusterQueue, ResourceFlavor
from api.reasons import EvictionReason
from api.workload import PodSet, Workload
from tests.builders import World, finished, make_cluster_queue, make_group, make_template, make_workload
from tests.examples import trying
from tests.laws.test_engine import overdraft

GPU = "nvidia.com/gpu"
QUEUES = ("left", "right")
MODES = st.sampled_from([None, BackfillMode.EASY, BackfillMode.CONSERVATIVE])
# Every look may move, and a hundred moves are more than a run has.
PLACEMENT = PlacementRules(
    flavors=FlavorRules(promote=FlavorPromotion(min_gain=0.01, max_moves_per_hour=100))
)


def queue(name: str, dear: int, cheap: int) -> ClusterQueue:
    group = make_group("dear", "cheap", resource=GPU, dear=dear, cheap=cheap)
    return make_cluster_queue(name, groups=(group,), cohort="all")


@st.composite
def jobs(draw: st.DrawFn) -> list[Workload]:
    return [
        make_workload(
            f"w{number}",
            queue=draw(st.sampled_from(QUEUES)),
            priority=draw(st.integers(0, 1)),
            at=float(number),
            pod_sets=(PodSet(name="main", count=1, template=make_template({GPU: draw(st.integers(1, 4))})),),
            annotations={
                "berth.dev/expected-runtime-seconds": str(draw(st.sampled_from([1800, 7200, 86400])))
            },
        )
        for number in range(draw(st.integers(1, 8)))
    ]


def promises(world: World) -> dict[str, float]:
    """Return the promised start of each Workload that has one."""
    return {one.key.name: one.start_at for one in world.engine.promises.plan()[0]}


def decide(world: World) -> list[Decision]:
    """Decide until nothing is left, without overdrawing more than before; the admissions are written."""
    decisions: list[Decision] = []
    while world.engine.wake_heads(now=world.now):
        before = overdraft(world.engine)
        decisions += world.cycle()
        after = overdraft(world.engine)
        assert all(lack <= before.get(pair, 0) for pair, lack in after.items()), (before, after)
    world.confirm(decisions)
    return decisions


def check_moves(world: World, decisions: list[Decision]) -> None:
    """Carry the moves out at once, and check what becomes of them and of all promises."""
    moved = [
        one for one in decisions if isinstance(one, Evict) and one.reason is EvictionReason.FLAVOR_PROMOTION
    ]
    for one in moved:
        event("moved")
        former = dict(world.engine.workloads.admissions())[one.key].pod_sets[0].flavors[GPU]
        before = promises(world)
        world.carry_out((one,))
        again = decide(world)
        after = promises(world)
        assert all(after[name] <= at for name, at in before.items() if name in after), (before, after)
        started = {each.key: each.admission for each in again if isinstance(each, Admit)}
        # Nothing else has changed at this instant, so it gets what it was moved for.
        assert started[one.key].pod_sets[0].flavors[GPU] != former


@trying(60)
@given(jobs(), MODES, st.lists(st.sampled_from(["raise", "end", "dear"]), min_size=2, max_size=8))
def test_a_moved_workload_starts_in_another_flavor_and_delays_no_promise(
    waiting: list[Workload], mode: BackfillMode | None, events: list[str]
) -> None:
    policy = AdmissionPolicy(
        name="p", placement=PLACEMENT, backfill=None if mode is None else Backfill(mode=mode)
    )
    flavors: list[Any] = [
        ResourceFlavor(name="dear", cost_per_device_hour=4.0),
        ResourceFlavor(name="cheap", cost_per_device_hour=1.0),
    ]
    world = World().put(*flavors, policy, queue("left", 4, 0), queue("right", 2, 0), *waiting)
    check_moves(world, decide(world))
    for number, what in enumerate(["raise", *events]):
        world.now += 600
        if what == "raise":
            world.put(queue("left", 4, 4), queue("right", 2, number % 3))
        elif what == "dear":
            # Prices change places, so that what was moved would move back.
            price = (0.5, 4.0)[number % 2]
            world.put(ResourceFlavor(name="dear", cost_per_device_hour=price))
        elif holding := sorted(world.holding()):
            world.put(finished(world.get(holding[0])))
        check_moves(world, decide(world))
