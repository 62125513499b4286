"""What one head asks for if it were alone in the cycle: where its search begins, and what is tried.

Rules of Kueue: flavor fungibility (a search goes on after the flavor where the last one stopped), and partial
admission (as many pods as fit).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from msgspec import structs

from admission.decisions.assignment import Mode
from admission.decisions.decision import Wait
from admission.nomination.nominate import CyclePolicy, Entry, Nominator
from admission.nomination.nominate_heads import nominate_heads
from admission.preemption.fair_sharing import FairPreemption
from admission.preemption.lost_work import EvictionLosses
from admission.preemption.preemptor import Preemptor
from admission.snapshot.queue_state import QueueState
from admission.snapshot.snapshot import Snapshot
from api.jobs.resource_requests import QuotaCheckStrategy
from api.keys import HOSTNAME
from api.node import NodeInfo
from api.objects.common import WireSelector
from api.queueing import (
    FlavorFungibility,
    FungibilityPolicy,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    Topology,
)
from api.reasons import PendingReason
from api.workload import CheckState, PodSet, Workload
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.quota.resources import FlavorResource
from queues.steps import finish
from tests.builders import (
    World,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_template,
    make_workload,
    reserved,
)

LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
FLAVORS = tuple(ResourceFlavor(name=name, node_labels={"model": name}) for name in ("a100", "h100", "b200"))
# The number of the present pop of the queue. A scan of the cycle before has the number 8.
CYCLE = 9


@dataclass
class Heads:
    """The heads of a World's queues, nominated on one snapshot."""

    world: World
    policy: CyclePolicy = field(default_factory=CyclePolicy)
    nominator: Nominator = field(init=False)

    def __post_init__(self) -> None:
        snapshot = self.world.engine._cache.snapshot()
        losses = EvictionLosses(now=self.world.now)
        preemptor = Preemptor(snapshot=snapshot, losses=losses, fair_sharing=self.policy.fair_sharing)
        self.nominator = Nominator(snapshot=snapshot, preemptor=preemptor, policy=self.policy)

    @property
    def snapshot(self) -> Snapshot:
        return self.nominator.snapshot

    def pop(self, queue: str = "queue") -> tuple[QueueState, Pending]:
        """Return the next head of the queue, popped in cycle `CYCLE`."""
        state = self.snapshot.queues[queue]
        state.pending.pop_cycle = CYCLE - 1
        pending = state.pending.pop()
        assert pending is not None
        return state, pending

    def nominate(self, queue: str = "queue", scan: dict[str, Any] | None = None) -> Entry:
        """Return what the next head gets; `scan` is where its last search stopped."""
        state, pending = self.pop(queue)
        if scan is not None:
            pending.scan = make_scan(state, pending, **scan)
        return finish(self.nominator.nominate(state, pending))

    def nominate_again(self, entry: Entry) -> Entry:
        return finish(self.nominator.nominate_again(entry))

    def free(self, flavor: str, amount: int, queue: str = "queue") -> None:
        """Release quota that others use."""
        self.snapshot.trial.remove(self.snapshot.queues[queue], {FlavorResource(flavor, "gpu"): amount})


def make_scan(
    state: QueueState,
    pending: Pending,
    *,
    tried: int = 0,
    age: int = 1,
    is_freed: bool = False,
    **fields: Any,
) -> FlavorScan:
    """Return a scan that stopped at flavor `tried`, `age` cycles ago; `is_freed`: quota came free since."""
    known: dict[str, Any] = {
        "tried": ({"gpu": tried},),
        "generation": state.tree.generation - is_freed,
        "cycle": CYCLE - age,
        "shape": pending.shape,
    }
    return FlavorScan(**known | fields)


def make_world(*values: object, **fields: Any) -> World:
    """Return a queue of 4 GPUs in a100 and as many in h100."""
    groups = fields.pop("groups", (make_group(a100=4, h100=4),))
    return World().put(*FLAVORS, make_cluster_queue(groups=groups, **fields), *values)


def busy(flavor: str, gpus: int = 4, **fields: Any) -> Workload:
    """Return a Workload that holds quota, and is evicted for no other."""
    return reserved(make_workload(f"on-{flavor}", gpus=gpus, **{"priority": 9, **fields}), flavor=flavor)


def elastic(count: int, least: int, **fields: Any) -> PodSet:
    return make_pod_set(count=count, min_count=least, **fields)


def flavor_of(entry: Entry) -> str:
    """Return the flavor of its GPUs; empty where it gets none."""
    choice = entry.assignment.pod_sets[0].choices.get("gpu")
    return choice.flavor if choice is not None else ""


# --- where the search begins -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scan", "want"),
    [
        pytest.param(None, "a100", id="at the first where it was never tried"),
        pytest.param({}, "h100", id="after the flavor where the last search stopped"),
        pytest.param({"is_freed": True}, "h100", id="after it, though quota came free since the last cycle"),
        pytest.param({"age": 5}, "h100", id="after it some cycles later, where no quota came free"),
        pytest.param({"age": 2, "is_freed": True}, "a100", id="at the first two cycles later, if some did"),
        pytest.param({"age": 5, "is_freed": True}, "a100", id="at the first many cycles later, if some did"),
        pytest.param({"shape": b"other"}, "a100", id="at the first where it asks for something else now"),
        pytest.param({"tried": -1}, "a100", id="at the first where all flavors were tried"),
    ],
)
def test_among_two_free_flavors_the_search_begins(scan: dict[str, Any] | None, want: str) -> None:
    entry = Heads(make_world(make_workload())).nominate(scan=scan)

    assert (flavor_of(entry), entry.assignment.mode) == (want, Mode.FIT)
    assert not entry.assignment.scan.is_second


def test_a_search_that_goes_on_and_finds_nothing_is_repeated_once_from_the_first_flavor() -> None:
    entry = Heads(make_world(busy("h100"), make_workload())).nominate(scan={})

    assert (flavor_of(entry), entry.will_fit) == ("a100", True)
    # Marked, so that it does not begin at the first flavor again in each cycle.
    assert entry.assignment.scan.is_second
    assert entry.pending.scan is None


def test_where_the_first_flavors_are_full_too_the_search_that_went_on_counts() -> None:
    entry = Heads(make_world(busy("a100"), busy("h100"), make_workload())).nominate(scan={})

    assert not entry.will_fit
    assert entry.assignment.message() == (
        "couldn't assign flavors to pod set main: "
        "insufficient unused quota for gpu in flavor h100, 1 more needed"
    )
    assert not entry.assignment.scan.is_second


def test_a_search_that_goes_on_gives_up_pods_before_it_is_repeated() -> None:
    world = make_world(busy("h100", gpus=2), make_workload(pod_sets=(elastic(4, 1),)))

    entry = Heads(world).nominate(scan={})

    assert (flavor_of(entry), entry.assignment.pod_sets[0].count) == ("h100", 2)
    assert not entry.assignment.scan.is_second


def test_flavors_that_are_left_to_try_come_before_a_second_look() -> None:
    """The leader's next flavor could be freed, but not for the workers beside it: b200 comes before a100."""
    on_h100 = make_template({"gpu": 1}, node_selector={"model": "h100"})
    world = make_world(
        busy("h100", priority=0),
        make_workload(
            pod_sets=(make_pod_set("leader"), make_pod_set("workers", 4, template=on_h100)), priority=5
        ),
        groups=(make_group(a100=4, h100=4, b200=4),),
        fungibility=FlavorFungibility(when_can_preempt=FungibilityPolicy.MAY_STOP_SEARCH),
        preemption=LOWER,
    )

    entry = Heads(world).nominate(scan={})

    assert (flavor_of(entry), entry.will_fit) == ("h100", False)
    assert entry.assignment.scan.has_flavors_left


# --- the second search of a cycle ------------------------------------------------------------------------


def test_a_head_that_is_nominated_again_keeps_its_flavor() -> None:
    heads = Heads(make_world(busy("a100"), make_workload()))
    entry = heads.nominate()
    assert flavor_of(entry) == "h100"

    heads.free("a100", 4)

    again = heads.nominate_again(entry)
    assert (flavor_of(again), again.will_fit) == ("h100", True)
    assert not again.assignment.scan.is_second


def test_it_keeps_its_flavor_where_an_equal_workload_has_found_another() -> None:
    heads = Heads(make_world(make_workload("first"), make_workload("second")))
    assert flavor_of(heads.nominate()) == "a100"

    entry = heads.nominate(scan={})

    assert (flavor_of(entry), flavor_of(heads.nominate_again(entry))) == ("h100", "h100")


def test_it_finds_nothing_where_its_flavor_was_taken_meanwhile() -> None:
    heads = Heads(make_world(make_workload()))
    entry = heads.nominate()

    heads.snapshot.trial.reserve(entry.queue, {FlavorResource("a100", "gpu"): 4})

    assert not heads.nominate_again(entry).will_fit


def test_it_gives_up_pods_for_what_was_taken_meanwhile() -> None:
    heads = Heads(make_world(make_workload(pod_sets=(elastic(4, 1),))))
    entry = heads.nominate()

    heads.snapshot.trial.reserve(entry.queue, {FlavorResource("a100", "gpu"): 1})

    assert heads.nominate_again(entry).assignment.pod_sets[0].count == 3


@pytest.mark.parametrize(
    "taken",
    [
        pytest.param({}, id="whose quota is as it was"),
        pytest.param({"a100": 2}, id="of which some was taken, and enough is left"),
        pytest.param({"a100": 4}, id="that was taken"),
        pytest.param({"h100": 4}, id="while another flavor was taken"),
    ],
)
@pytest.mark.parametrize("when_can_borrow", FungibilityPolicy)
@pytest.mark.parametrize("pods", [make_pod_set(), elastic(2, 1)], ids=["all or none", "fewer pods"])
def test_what_equal_workloads_have_found_is_what_a_second_search_finds(
    pods: PodSet, when_can_borrow: FungibilityPolicy, taken: dict[str, int]
) -> None:
    fungibility = FlavorFungibility(when_can_borrow=when_can_borrow)
    heads = Heads(make_world(make_workload(pod_sets=(pods,)), fungibility=fungibility))
    entry = heads.nominate()
    assert entry.queue.plans
    for flavor, gpus in taken.items():
        heads.snapshot.trial.reserve(entry.queue, {FlavorResource(flavor, "gpu"): gpus})

    remembered = heads.nominate_again(entry)
    entry.queue.plans.clear()
    searched = heads.nominate_again(entry)

    # The admission is only kept for what is remembered.
    assert replace_admission(remembered) == replace_admission(searched)


def replace_admission(entry: Entry) -> Entry:
    return structs.replace(entry, assignment=structs.replace(entry.assignment, admission=None))


def test_a_second_look_stays_one_when_it_is_nominated_again() -> None:
    heads = Heads(make_world(busy("h100"), make_workload()))
    entry = heads.nominate(scan={})

    assert heads.nominate_again(entry).assignment.scan.is_second


# --- fewer pods ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param([(4, 1)], [4], id="all of them where they fit"),
        pytest.param([(6, 1)], [5], id="all but one where those fit"),
        pytest.param([(9, 1)], [5], id="as many as fit"),
        pytest.param([(40, 1)], [5], id="as many as fit of very many"),
        pytest.param([(9, 5)], [5], id="as many as it needs, where no more fit"),
        pytest.param([(6, None)], None, id="none where it needs all"),
        pytest.param([(9, 6)], None, id="none where fewer fit than it needs"),
        pytest.param([(4, 2), (4, 2)], [2, 2], id="of two pod sets, the same share of both"),
        pytest.param([(2, None), (6, 1)], [2, 3], id="of two pod sets, one with fewer"),
        pytest.param([(6, 6)], None, id="none where its minimum is all"),
    ],
)
def test_with_5_free_devices_a_head_gets(pods: list[tuple[int, int | None]], want: list[int] | None) -> None:
    sets = tuple(make_pod_set(f"set-{at}", count, min_count=least) for at, (count, least) in enumerate(pods))

    entry = Heads(make_world(groups=(make_group(a100=5),)).put(make_workload(pod_sets=sets))).nominate()

    assert entry.will_fit is (want is not None)
    if want is not None:
        counts = [one.count for one in entry.assignment.pod_sets]
        assert counts == want
        # They are written to an object whose counts are whole numbers.
        assert all(isinstance(count, int) for count in counts)
    else:
        # What it waits for is all of its pods.
        assert entry.assignment.pod_sets[0].count == sets[0].count


def test_pods_are_given_up_only_where_evictions_do_not_help() -> None:
    world = make_world(
        busy("a100", priority=0),
        make_workload(pod_sets=(elastic(4, 1),), priority=5),
        groups=(make_group(a100=4),),
        preemption=LOWER,
    )

    entry = Heads(world).nominate()

    assert entry.assignment.pod_sets[0].count == 4
    assert [target.held.key.name for target in entry.targets] == ["on-a100"]


@pytest.mark.parametrize(
    ("count", "least", "most", "want"),
    [
        pytest.param(4, 1, 2, 2, id="the most that is accepted"),
        pytest.param(4, 1, 1, 1, id="its minimum where no more is accepted"),
        pytest.param(4, 2, 1, None, id="none where its minimum is too many"),
        pytest.param(4, None, 3, None, id="none where it needs all"),
    ],
)
def test_of_a_head_that_may_not_start_with_all_pods_there_start(
    count: int, least: int | None, most: int, want: int | None
) -> None:
    heads = Heads(make_world(make_workload(pod_sets=(make_pod_set(count=count, min_count=least),))))

    entry = finish(
        heads.nominator.nominate_fewer(
            heads.nominate(), lambda smaller: smaller.assignment.pod_sets[0].count <= most
        )
    )

    assert (entry and entry.assignment.pod_sets[0].count) == want


# --- results that equal Workloads share ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "least"),
    [
        pytest.param(2, None, id="fits"),
        pytest.param(2, 1, id="fits with all pods and could do with fewer"),
    ],
)
def test_what_was_found_for_a_head_is_known_for_the_next_of_its_shape_which(
    gpus: int, least: int | None
) -> None:
    pods = (make_pod_set(count=gpus, min_count=least),)
    heads = Heads(make_world(*(make_workload(name, pod_sets=pods) for name in "ab")))

    first, second = heads.nominate(), heads.nominate()

    assert first.assignment.admission is None
    # Only a result that is known brings the admission that follows from it.
    assert second.assignment.admission == first.assignment.to_admission("queue")
    assert (second.assignment.mode, second.assignment.usage) == (Mode.FIT, first.assignment.usage)


def test_that_a_head_lacks_quota_is_known_for_the_next_of_its_shape() -> None:
    heads = Heads(make_world(busy("a100"), busy("h100"), *(make_workload(name) for name in "ab")))

    first, second = heads.nominate(), heads.nominate()

    assert second.assignment.pod_sets is first.assignment.pod_sets
    assert not second.will_fit


def test_that_it_lacks_quota_is_searched_again_where_there_may_be_victims_now() -> None:
    world = make_world(
        busy("a100", priority=5), *(make_workload(name) for name in "ab"), groups=(make_group(a100=4),)
    )
    world.put(make_cluster_queue(groups=(make_group(a100=4),), preemption=LOWER))
    heads = Heads(world)
    assert not heads.nominate().will_fit

    state, pending = heads.pop()
    ((_, held),) = state.held.items()
    state.release(held.key)
    held.workload = make_workload("on-a100", gpus=4, priority=-1)
    state.charge(held)

    assert [one.held for one in finish(heads.nominator.nominate(state, pending)).targets] == [held]


def test_a_head_that_is_searched_with_victims_leaves_nothing_for_the_next() -> None:
    world = make_world(
        busy("a100", priority=0),
        *(make_workload(name, priority=5) for name in "ab"),
        groups=(make_group(a100=4),),
        preemption=LOWER,
    )
    heads = Heads(world)
    assert heads.nominate().targets

    heads.free("a100", 4)

    assert heads.nominate().assignment.mode is Mode.FIT


def test_what_fewer_pods_were_found_for_is_not_known_as_what_all_get() -> None:
    pods = (elastic(9, 1),)
    heads = Heads(make_world(*(make_workload(name, pod_sets=pods) for name in "ab")))

    counts = [heads.nominate().assignment.pod_sets[0].count for _ in "ab"]

    assert counts == [4, 4]


def test_with_a_topology_those_of_a_shape_share_their_flavors_and_not_their_places() -> None:
    node = NodeInfo(name="n1", labels={HOSTNAME: "n1"}, allocatable={"gpu": 1, "pods": 99})
    racks = ResourceFlavor(name="racks", topology_name="t")
    world = make_world(
        *(make_workload(name) for name in "abc"),
        Topology(name="t", levels=(HOSTNAME,)),
        racks,
        node,
        replace(node, name="n2", labels={HOSTNAME: "n2"}),
        groups=(make_group(racks=99),),
    )
    heads = Heads(world)

    found = []
    for _ in "abc":
        entry = heads.nominate()
        heads.snapshot.trial.reserve(entry.queue, entry.assignment.usage, entry.assignment.places)
        found.append((entry.assignment.mode, entry.assignment.to_admission("queue").pod_sets[0].topology))

    assert [mode for mode, _ in found] == [Mode.FIT, Mode.FIT, Mode.PREEMPT]
    assert [one.domains[0].values if one is not None else None for _, one in found[:2]] == [("n1",), ("n2",)]


# --- settings --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param(QuotaCheckStrategy.BLOCK_UNDECLARED, False, id="keeps it from fitting"),
        pytest.param(QuotaCheckStrategy.IGNORE_UNDECLARED, True, id="is ignored where that is configured"),
    ],
)
def test_a_resource_without_quota(strategy: QuotaCheckStrategy, want: bool) -> None:
    pods = (make_pod_set(requests={"gpu": 1, "license": 1}),)

    heads = Heads(make_world(make_workload(pod_sets=pods)), CyclePolicy(quota_check=strategy))

    assert heads.nominate().will_fit is want


# The cohort has 8 devices: `other` uses 6 of them with a quota of 2, and `queue` asks for 3 with the same.
@pytest.mark.parametrize(
    ("sharing", "want"),
    [
        pytest.param(None, [], id="takes nothing from others by default"),
        pytest.param(FairPreemption(), ["on-a100"], id="takes from a greater share under fair sharing"),
    ],
)
def test_a_queue_that_would_borrow_itself(sharing: FairPreemption | None, want: list[str]) -> None:
    reclaim = Preemption(reclaim_within_cohort=PreemptionPolicy.ANY)
    two = (make_group(a100=2),)
    world = make_world(groups=two, cohort="all", preemption=reclaim)
    world.put(
        make_cluster_queue("lender", groups=(make_group(a100=4),), cohort="all"),
        make_cluster_queue("other", groups=two, cohort="all"),
        busy("a100", gpus=6, queue="other"),
        make_workload(gpus=3),
    )

    entry = Heads(world, CyclePolicy(fair_sharing=sharing)).nominate()

    assert [target.held.key.name for target in entry.targets] == want
    assert entry.assignment.mode is (Mode.PREEMPT if want else Mode.NO_FIT)


# --- heads that are not nominated ------------------------------------------------------------------------


NO_CONTAINERS = "pod set main has no containers"


@pytest.mark.parametrize(
    ("selector", "problem", "checks", "reason", "message"),
    [
        pytest.param(
            {},
            NO_CONTAINERS,
            (),
            PendingReason.MISCONFIGURED,
            NO_CONTAINERS,
            id="its pods would be rejected",
        ),
        pytest.param(
            {"team": "ai"},
            NO_CONTAINERS,
            (),
            PendingReason.MISCONFIGURED,
            "workload namespace doesn't match ClusterQueue selector: "
            "ClusterQueue queue does not select namespace team: "
            "its spec.namespaceSelector does not match the namespace's labels",
            id="its queue selects other namespaces, which counts before what is wrong with its pods",
        ),
        pytest.param(
            {"team": "ai"},
            None,
            (CheckState(name="budget", state="Rejected"),),
            PendingReason.PENDING_EVALUATION,
            "The workload has failed admission checks: budget",
            id="its checks failed, which counts before its namespace",
        ),
    ],
)
def test_a_head_is_rejected_whatever_the_quota_where(
    selector: dict[str, str],
    problem: str | None,
    checks: tuple[CheckState, ...],
    reason: PendingReason,
    message: str,
) -> None:
    chosen = WireSelector(match_labels=selector)
    heads = Heads(make_world(make_workload(checks=checks), namespace_selector=chosen))
    state, pending = heads.pop()
    pending.problem = problem

    entries, (found,) = finish(
        nominate_heads(heads.nominator, [(state, pending)], promises_nothing=None, pass_on=None)
    )

    assert entries == []
    assert isinstance(found.decision, Wait)
    assert (found.decision.reason, found.decision.message) == (reason, message)
    # Tried again with every change of the cluster, or only with one of the namespaces.
    is_mismatch = message.startswith("workload namespace")
    assert found.requeue is (RequeueCause.NAMESPACE_MISMATCH if is_mismatch else RequeueCause.GENERIC)


def test_a_head_with_which_nothing_is_wrong_is_nominated() -> None:
    heads = Heads(make_world(make_workload()))

    entries, outcomes = finish(
        nominate_heads(heads.nominator, [heads.pop()], promises_nothing=None, pass_on=None)
    )

    assert [entry.pending.key.name for entry in entries] == ["w"]
    assert outcomes == []
