"""Laws of promised starts, for any stream of work in two queues of a cohort, with and without nodes.

- estimates that are no shorter than the truth: a promise moves later only where a queue takes its own quota
  back from a borrower, and every Workload with no such move starts by its first promise;
- in one queue, at equal priority, none moves later for any cause;
- whatever the estimates: a promise moves later for a cause, and for Overrun only where a Workload has outrun
  its estimate that overtook no other, or holds a lease that ranks before the promise;
- every Workload runs to the end, in a bounded number of events: none starves.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from admission.decisions.decision import Admit, Decision
from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from api.node import NodeInfo
from api.policy import BackfillMode
from api.queueing import QueueingStrategy, ResourceFlavor, Topology
from api.workload import TopologyRequest
from queues.profile.planned_start import MoveCause, Rank
from tests.admission.timed import TimedWorld, make_policy, template
from tests.builders import make_cluster_queue, make_pod_set
from tests.examples import trying

# So late that no leader's clock, however far it is set back, shows a time before 1970: 0 stands for "never".
START = 10_000.0
HOST = "kubernetes.io/hostname"
MODES = [BackfillMode.EASY, BackfillMode.CONSERVATIVE]


@dataclass(frozen=True)
class Piece:
    """One Workload: `share` is what it says of its length, as a factor, `least` how few pods will do.

    `waited` is for how many seconds it has existed when it arrives: such a Workload comes late and is older.
    """

    queue: str
    pods: int
    gpus: int
    length: int
    share: float
    after: int
    is_packed: bool
    least: int | None = None
    waited: int = 0


@st.composite
def pieces(draw: st.DrawFn, shares: tuple[float, ...]) -> list[Piece]:
    return [
        Piece(
            queue=draw(st.sampled_from(["left", "right"])),
            pods=draw(st.sampled_from([1, 1, 2, 4])),
            gpus=draw(st.sampled_from([1, 2])),
            length=draw(st.sampled_from([20, 45, 100, 300])),
            share=draw(st.sampled_from(shares)),
            after=draw(st.sampled_from([0, 1, 15, 40])),
            is_packed=draw(st.booleans()),
            least=draw(st.sampled_from([None, None, 1])),
            waited=draw(st.sampled_from([0, 0, 2, 60])),
        )
        for _ in range(draw(st.integers(2, 12)))
    ]


class Watched(TimedWorld):
    """A world that notes which Workloads ran on a lease, and which outran their estimate without one.

    `outran` has the ranks of the leases whose holders outran their estimate.
    """

    leased: set[str]
    overran: set[str]
    outran: list[Rank]

    def _carry_out(self, decision: Decision) -> None:
        name = decision.key.name
        lease = self.engine._cache.schedule_plan.leases.get(decision.key)
        if isinstance(decision, Admit) and lease is not None:
            self.leased.add(name)
        if isinstance(decision, Admit) and self.lengths[name] > self.says[name]:
            if lease is None:
                self.overran.add(name)
            else:
                self.outran.append(lease.rank)
        super()._carry_out(decision)

    says: dict[str, float]

    def check_overruns(self) -> None:
        """Assert that each promise moved for Overrun where a Workload outran its estimate that it had to
        wait for.
        """
        for planned in (one for plans in self.plans.values() for one in plans if one is not None):
            is_behind = any(rank < planned.rank for rank in self.outran)
            assert planned.cause is not MoveCause.OVERRUN or self.overran or is_behind, planned


class InSteps(Watched):
    """A world that looks at promises one by one."""

    def cycle(self) -> tuple[Decision, ...]:
        while self.engine.settle(now=self.now):
            self.engine.validate()
        return super().cycle()


class LookingAgain(Watched):
    """A world where every cycle looks at all promises again, as if quotas had changed."""

    def cycle(self) -> tuple[Decision, ...]:
        schedule_plan = self.engine._cache.schedule_plan
        if schedule_plan.promises:
            schedule_plan.revision.causes.add(MoveCause.QUOTA_CUT)
        return super().cycle()


WatchedT = TypeVar("WatchedT", bound=Watched)


def make_world(
    mode: BackfillMode,
    *,
    has_nodes: bool,
    sharing: FairPreemption | None,
    kind: type[WatchedT],
    ending_seconds: int = 0,
) -> WatchedT:
    world = kind(settings=EngineSettings(fair_sharing=sharing), now=START)
    world.leased, world.overran, world.outran, world.says = set(), set(), [], {}
    if has_nodes:
        world.put(
            Topology(name="t", levels=("rack", HOST)), ResourceFlavor(name="default", topology_name="t")
        )
        for index in range(4):
            labels = {HOST: f"n{index}", "rack": f"r{index // 2}"}
            world.put(NodeInfo(name=f"n{index}", labels=labels, allocatable={"gpu": 2, "pods": 100}))
    for name, strategy in (
        ("left", QueueingStrategy.BEST_EFFORT_FIFO),
        ("right", QueueingStrategy.STRICT_FIFO),
    ):
        world.put(make_cluster_queue(name, quota=4, cohort="both", queueing_strategy=strategy))
    world.put(make_policy(mode, ending_seconds=ending_seconds))
    return world


def submit(world: Watched, work: list[Piece], *, has_nodes: bool) -> None:
    at = START
    for index, piece in enumerate(work):
        at += piece.after
        name = f"w{index}"
        topology = TopologyRequest(required="rack") if has_nodes and piece.is_packed else None
        if topology is not None and piece.pods * piece.gpus > 4:
            topology = None
        pods = make_pod_set(
            count=piece.pods,
            template=template(piece.gpus),
            topology_request=topology,
            min_count=piece.least,
        )
        world.says[name] = max(1, int(piece.length * piece.share))
        world.submit(
            name,
            runs=piece.length,
            says=world.says[name],
            at=at,
            created_at=at - piece.waited,
            queue=piece.queue,
            pod_sets=(pods,),
        )


def run(
    work: list[Piece],
    mode: BackfillMode,
    *,
    has_nodes: bool,
    sharing: FairPreemption | None = None,
    kind: type[Watched] = Watched,
) -> Watched:
    world = make_world(mode, has_nodes=has_nodes, sharing=sharing, kind=kind)
    submit(world, work, has_nodes=has_nodes)
    world.run()
    assert world.ended.keys() == world.lengths.keys(), "a Workload never ran to the end"
    return world


_LAW = trying(15)

# The third borrows and is promised a start before those that rank above it are. It starts on a lease then,
# and keeps its capacity for the time of an eviction, which its promise had not.
_PROMISED_BEFORE_HIGHER_ONES = [
    Piece(queue=queue, pods=pods, gpus=gpus, length=length, share=share, after=after, is_packed=False)
    for queue, pods, gpus, length, share, after in (
        ("left", 2, 2, 20, 1.0, 0),
        ("right", 2, 2, 45, 1.0, 0),
        ("right", 1, 1, 20, 1.0, 0),
        *[("left", 1, 1, 20, 1.0, 0)] * 2,
        ("left", 1, 1, 20, 1.5, 0),
        ("left", 1, 2, 20, 1.0, 0),
        ("left", 1, 1, 20, 1.0, 1),
    )
]


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(sharing=st.sampled_from([None, FairPreemption()]), work=pieces((1.0, 1.5, 4.0)))
@example(sharing=None, work=_PROMISED_BEFORE_HIGHER_ONES)
def test_where_no_estimate_is_too_short_no_promise_is_broken(
    sharing: FairPreemption | None, work: list[Piece], mode: BackfillMode, has_nodes: bool
) -> None:
    world = run(work, mode, has_nodes=has_nodes, sharing=sharing)

    for name in world.plans:
        assert set(world.causes(name)) <= {MoveCause.RECLAIM}, name
        if not world.causes(name):
            first = world.promised(name)[0]
            assert world.started[name] <= first + 1, (name, world.promised(name), world.started[name])
    assert world.evicted == {}


# Two of three could start at once by borrowing, beside all promises but not beside all of them.
_TRIED_AT_ONCE = [
    Piece(queue="left", pods=pods, gpus=gpus, length=length, share=share, after=after, is_packed=False)
    for pods, gpus, length, share, after in (
        (1, 1, 45, 1.0, 0),
        (3, 2, 20, 4.0, 0),
        (2, 2, 20, 1.0, 0),
        (1, 1, 20, 1.0, 1),
        (1, 1, 20, 1.0, 0),
        (1, 2, 20, 1.0, 0),
    )
]
# Promised to start whole without borrowing, the fifth may start in part earlier, borrowing what the last is
# promised: it is merely older then, and waits.
_PART_THAT_BORROWS = [
    Piece(queue="left", pods=pods, gpus=gpus, length=length, share=1.0, after=0, is_packed=False, least=least)
    for pods, gpus, length, least in (
        (1, 1, 45, None),
        (2, 2, 100, None),
        (1, 1, 20, None),
        (1, 1, 100, None),
        (2, 2, 20, 1),
        (1, 1, 20, None),
        (1, 1, 20, None),
    )
]
# Promised to start whole later, the fourth may start in part when the fifth and all after it are promised to.
# It does not borrow then and they do, but it is merely older, and waits.
_PART_THAT_BORROWS_LESS = [
    Piece(queue="left", pods=pods, gpus=gpus, length=20, share=1.0, after=0, is_packed=False, least=least)
    for pods, gpus, least in (
        (1, 1, None),
        (4, 2, None),
        (1, 1, None),
        (4, 2, 1),
        *[(1, 1, None)] * 6,
    )
]
# When the second ends early, the last, which is older than the fourth, fits beside what the third is promised
# and beside what the fourth is promised, but not beside both.
_FITS_BESIDE_EACH = [
    Piece(
        queue="left",
        pods=pods,
        gpus=gpus,
        length=length,
        share=share,
        after=after,
        is_packed=False,
        least=least,
        waited=waited,
    )
    for pods, gpus, length, share, after, least, waited in (
        (4, 1, 100, 1.0, 0, None, 0),
        (4, 1, 45, 2.0, 0, None, 0),
        (5, 1, 45, 1.0, 1, None, 0),
        (3, 1, 100, 1.0, 2, None, 0),
        (1, 1, 300, 1.0, 1, 1, 2),
    )
]
# When the first ends early, the start of the second is due; the last is its equal, is tried first and waits.
_EQUAL_HELD_BACK = [
    Piece(
        queue="left",
        pods=pods,
        gpus=gpus,
        length=length,
        share=share,
        after=after,
        is_packed=False,
        waited=waited,
    )
    for pods, gpus, length, share, after, waited in (
        (3, 2, 45, 2.0, 0, 0),
        (4, 2, 100, 1.0, 1, 0),
        (1, 1, 300, 1.0, 1, 60),
        (4, 2, 45, 1.0, 1, 60),
    )
]
# The last is older and comes later. It is promised a start while the fourth runs, which has to end in time
# for the ninth, as it was promised to.
_OLDER_BEFORE_A_DUE_START = [
    Piece(queue="left", pods=pods, gpus=gpus, length=length, share=1.0, after=0, is_packed=False)
    for pods, gpus, length in (
        (4, 1, 300),
        (1, 1, 20),
        (1, 2, 300),
        (1, 2, 300),
        *[(1, 1, 20)] * 4,
        (4, 1, 20),
        (1, 1, 20),
    )
]
_OLDER_BEFORE_A_DUE_START.append(replace(_OLDER_BEFORE_A_DUE_START[-1], after=1, waited=60))


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(work=pieces((1.0, 1.5, 4.0)))
@example(work=_TRIED_AT_ONCE)
@example(work=_PART_THAT_BORROWS)
@example(work=_PART_THAT_BORROWS_LESS)
@example(work=_FITS_BESIDE_EACH)
@example(work=_EQUAL_HELD_BACK)
@example(work=_OLDER_BEFORE_A_DUE_START)
def test_in_one_queue_of_equals_no_promise_moves_later(
    work: list[Piece], mode: BackfillMode, has_nodes: bool
) -> None:
    alone = [replace(piece, queue="left") for piece in work]

    world = run(alone, mode, has_nodes=has_nodes, kind=LookingAgain)

    for name in world.plans:
        assert world.causes(name) == [], (name, world.promised(name))
        assert world.started[name] <= world.promised(name)[0] + 1, (name, world.promised(name))


@pytest.mark.parametrize("has_nodes", [False, True], ids=["quota alone", "with nodes"])
@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(data=st.data())
def test_whatever_the_estimates_backfill_moves_no_promise(
    data: st.DataObject, mode: BackfillMode, has_nodes: bool
) -> None:
    world = run(data.draw(pieces((0.1, 0.5, 1.0, 2.0))), mode, has_nodes=has_nodes)

    world.check_overruns()
    for name in world.plans:
        assert None not in world.causes(name), (name, world.promised(name))


def _piece(queue: str, pods: int, gpus: int, length: int, after: int = 0) -> Piece:
    """Return a Workload that runs twice as long as it says."""
    return Piece(queue=queue, pods=pods, gpus=gpus, length=length, share=0.5, after=after, is_packed=False)


_SMALL = _piece("left", 1, 1, 20)
# In both a Workload of `right` has no room and no promise when one of `left` is to be tried: whether it takes
# the turn of its queue, or keeps anything from the others, must not hang on whether it is tried itself.
_INADMISSIBLE_BESIDE_A_PROMISE = [
    _piece("left", 1, 2, 100),
    _SMALL,
    _piece("left", 4, 1, 45, 15),
    _piece("right", 1, 2, 20, 1),
    _piece("right", 4, 1, 20, 15),
    *[_SMALL] * 6,
    _piece("right", 1, 1, 20, 1),
]
_INADMISSIBLE_BESIDE_A_START = [
    _piece("left", 1, 1, 300),
    _SMALL,
    _piece("left", 4, 1, 45, 15),
    _piece("right", 1, 1, 20, 1),
    _piece("right", 4, 1, 20, 15),
    *[_SMALL] * 5,
    _piece("right", 1, 2, 20, 1),
    _piece("left", 1, 2, 20),
]


@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(work=pieces((0.5, 1.0, 2.0)))
@example(work=_INADMISSIBLE_BESIDE_A_PROMISE)
@example(work=_INADMISSIBLE_BESIDE_A_START)
def test_asking_for_room_first_changes_no_decision(work: list[Piece], mode: BackfillMode) -> None:
    quick = run(work, mode, has_nodes=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("admission.cache.trees_to_try.may_have_room", lambda *_: True)
        patch.setattr("admission.backfill.revise_promises.may_have_room", lambda *_: True)
        patch.setattr("admission.backfill.profile_trial.may_have_quota", lambda *_: True)
        patch.setattr("admission.backfill.profile_trial.rooms_of", lambda *_: ())
        thorough = run(work, mode, has_nodes=True)

    assert quick.started == thorough.started
    assert quick.plans == thorough.plans


@pytest.mark.parametrize("mode", MODES)
@_LAW
@given(work=pieces((0.5, 1.0, 2.0)))
def test_looking_at_promises_in_steps_changes_no_decision(work: list[Piece], mode: BackfillMode) -> None:
    whole = run(work, mode, has_nodes=True)

    in_steps = run(work, mode, has_nodes=True, kind=InSteps)

    assert in_steps.started == whole.started
    assert in_steps.plans == whole.plans


@_LAW
@given(pieces((0.1, 1.0, 3.0)))
def test_work_in_the_hold_is_evicted_in_time(work: list[Piece]) -> None:
    world = run(work, BackfillMode.OPPORTUNISTIC, has_nodes=False)

    world.check_overruns()
