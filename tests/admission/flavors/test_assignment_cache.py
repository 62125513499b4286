"""Results of the flavor search that Workloads of one shape share: which are kept, and when they apply."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.decisions.assignment import Assignment, Mode
from admission.decisions.flavor_mode import Grade, Granular
from admission.flavors.assignment_cache import learn, recall
from admission.flavors.flavor_assigner import FlavorSearch
from admission.snapshot.queue_state import QueueState
from api.objects.common import WireTaint
from api.queueing import (
    FlavorFungibility,
    FungibilityPolicy,
    ResourceFlavor,
    ResourceGroup,
)
from api.workload import PodSet
from queues.pending.pending_queue import Pending
from queues.quota.resources import FlavorResource
from tests.builders import (
    World,
    make_cluster_queue,
    make_group,
    make_pod_set,
    make_template,
    make_workload,
)

SPOT = ResourceFlavor(name="spot", node_taints=(WireTaint(key="spot", effect="NoSchedule"),))
# The disks of a queue, beside its GPUs.
DISKS = make_group(disks=4, resource="disk")
WITH_DISK = make_pod_set(requests={"gpu": 2, "disk": 1})
BORROWS_LAST = {
    "cohort": "all",
    "fungibility": FlavorFungibility(when_can_borrow=FungibilityPolicy.TRY_NEXT_FLAVOR),
}
# The most shapes that one ClusterQueue remembers.
MOST = 1024


@dataclass
class Victims:
    """An oracle that has the same answer to every question."""

    mode: Granular = Granular.NO_CANDIDATES

    def grade(self, *_: Any) -> Grade:
        return Grade(self.mode, 0)


@dataclass
class Searched:
    """A queue whose flavors are searched for its only Workload, beside usage that a test sets."""

    groups: tuple[ResourceGroup, ...] = (make_group(a100=4, h100=4),)
    pods: tuple[PodSet, ...] = (make_pod_set(requests={"gpu": 2}),)
    victims: Granular = Granular.NO_CANDIDATES
    queue_fields: dict[str, Any] = field(default_factory=dict)
    queue: QueueState = field(init=False)
    pending: Pending = field(init=False)
    found: Assignment = field(init=False)
    finds_victim: bool = False
    asked: frozenset[FlavorResource] = frozenset()

    def __post_init__(self) -> None:
        names = ("a100", "h100", "b200", "disks")
        world = World().put(SPOT, *(ResourceFlavor(name=name, node_labels={"model": name}) for name in names))
        world.put(make_cluster_queue(groups=self.groups, **self.queue_fields))
        world.put(make_cluster_queue("lender", groups=(make_group(a100=4, h100=4),), cohort="all"))
        world.put(make_workload(pod_sets=self.pods))
        self.snapshot = world.engine._cache.snapshot()
        self.queue = self.snapshot.queues["queue"]
        pending = self.queue.pending.pop()
        assert pending is not None
        self.pending = pending

    def use(self, **amounts: int) -> Searched:
        """Let others use so many more of the queue's GPUs in each flavor, or fewer."""
        self.queue.node.change({FlavorResource(name, "gpu"): value for name, value in amounts.items()})
        return self

    def learn(self) -> Searched:
        """Search from the first flavor, and let others of the shape share the result."""
        search = FlavorSearch(
            snapshot=self.snapshot, queue=self.queue, pending=self.pending, oracle=Victims(self.victims)
        )
        self.found = search.assign()
        learn(search, self.found)
        return self

    def recall(self) -> Assignment | None:
        """Return what is known. `asked` notes for which pairs it counts that no Workload can be evicted."""
        self.asked = frozenset()

        def finds_no_victim(queue: QueueState, pending: Pending, pairs: frozenset[FlavorResource]) -> bool:
            self.asked = pairs
            return not self.finds_victim

        return recall(self.queue, self.pending, finds_no_victim)

    def message(self) -> str | None:
        """Return why the Workload waits, from what is known; None where a search is needed."""
        known = self.recall()
        return known.message() if known is not None else None


# --- what fits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "used", "want"),
    [
        pytest.param({}, {}, "a100", id="the first flavor has room"),
        pytest.param({}, {"a100": 3}, None, id="a flavor before it is only full now"),
        pytest.param(
            {"groups": (make_group(spot=4, h100=4, b200=4),)},
            {},
            "h100",
            id="its pods use none before it",
        ),
        pytest.param(
            {"groups": (make_group(a100=1, h100=4),)}, {}, "h100", id="those before it are always too small"
        ),
        pytest.param(
            {"groups": (make_group(spot=4, a100=4, h100=4),)},
            {"a100": 3},
            None,
            id="of those before it one is never used and one is only full now",
        ),
        pytest.param(
            {"groups": (make_group(a100=1, h100=1),), "queue_fields": BORROWS_LAST},
            {},
            None,
            id="later flavors were compared with it",
        ),
        pytest.param(
            {"groups": (make_group(a100=4), DISKS), "pods": (WITH_DISK,)},
            {},
            "a100",
            id="each resource has room in the first flavor of its group",
        ),
        pytest.param(
            {"groups": (make_group(a100=4, h100=4), DISKS), "pods": (WITH_DISK,)},
            {"a100": 3},
            None,
            id="one resource has room only in a later flavor of its group",
        ),
    ],
)
def test_a_result_is_known_for_the_next_of_the_shape_unless_it_depends_on_what_is_used(
    fields: dict[str, Any], used: dict[str, int], want: str | None
) -> None:
    searched = Searched(**fields).use(**used).learn()

    known = searched.recall()

    assert searched.found.mode is Mode.FIT
    assert (known and known.pod_sets[0].choices["gpu"].flavor) == want


def test_what_is_known_is_what_a_search_would_find_now() -> None:
    searched = Searched(pods=(make_pod_set("a", requests={"gpu": 2}), make_pod_set("b"))).learn()
    searched.queue.tree.generation += 5
    searched.queue.pending.pop_cycle += 3

    known = searched.recall()

    assert known is not None
    admission = searched.found.to_admission("queue")
    again = searched.learn().found
    assert known.admission == admission
    assert known.pod_sets == again.pod_sets
    assert known.usage == again.usage
    assert (known.borrowing, known.mode) == (again.borrowing, again.mode)
    assert known.scan == again.scan
    assert searched.asked == frozenset()


def test_a_result_that_borrows_is_known_with_how_far_it_does() -> None:
    searched = Searched(groups=(make_group(a100=1),), queue_fields={"cohort": "all"}).learn()

    known = searched.recall()

    assert known is not None
    assert known.borrowing == searched.found.borrowing == 1


@pytest.mark.parametrize(
    ("used", "want"),
    [
        pytest.param(0, True, id="applies while nothing has changed"),
        pytest.param(1, True, id="applies where all of it still fits"),
        pytest.param(2, False, id="does not where its pod sets fit one by one, and not together"),
        pytest.param(4, False, id="does not where there is nothing left"),
    ],
)
def test_with_4_devices_what_is_known_of_pod_sets_of_1_and_2(used: int, want: bool) -> None:
    pods = (make_pod_set("a"), make_pod_set("b", requests={"gpu": 2}))
    searched = Searched(pods=pods).learn()

    searched.use(a100=used)

    assert (searched.recall() is not None) is want


def test_what_is_known_does_not_apply_once_it_would_borrow() -> None:
    searched = Searched(queue_fields={"cohort": "all"}).learn()
    assert searched.recall() is not None

    searched.use(a100=3)

    assert searched.recall() is None


# --- what does not fit -----------------------------------------------------------------------------------


def lacking(amount: int, flavor: str = "a100", resource: str = "gpu") -> str:
    return f"insufficient unused quota for {resource} in flavor {flavor}, {amount} more needed"


ONE = (make_group(a100=4),)
NOT_ASSIGNED = "couldn't assign flavors to pod set main: "


@pytest.mark.parametrize(
    ("fields", "used", "now", "want"),
    [
        pytest.param({"groups": ONE}, {"a100": 4}, 0, lacking(2), id="nothing has changed"),
        pytest.param({"groups": ONE}, {"a100": 4}, -1, lacking(1), id="with the number of now: less"),
        pytest.param({"groups": ONE}, {"a100": 3}, 1, lacking(2), id="with the number of now: more"),
        pytest.param({"groups": ONE}, {"a100": 4}, -2, None, id="except where it fits now"),
        pytest.param(
            {},
            {"a100": 4, "h100": 3},
            -1,
            f"{lacking(1)}, {lacking(1, 'h100')}",
            id="with the number of now in each flavor",
        ),
        pytest.param(
            {"groups": (make_group(a100=1),)},
            {},
            1,
            "insufficient quota for gpu in flavor a100, previously considered podsets requests (0) + current "
            "podset request (2) > maximum capacity (1)",
            id="whatever is used, where it can never fit",
        ),
        pytest.param(
            {"groups": ONE, "victims": Granular.PREEMPT},
            {"a100": 4},
            0,
            None,
            id="except where evictions would have helped",
        ),
        pytest.param(
            {"groups": ONE, "victims": Granular.RECLAIM},
            {"a100": 4},
            0,
            None,
            id="except where quota could have been reclaimed",
        ),
        pytest.param(
            {"pods": (make_pod_set("main"), make_pod_set("large", requests={"gpu": 5}))},
            {},
            0,
            None,
            id="except where some pod set has flavors left to try",
        ),
    ],
)
def test_a_lack_of_quota_is_known_for_the_next_of_the_shape(
    fields: dict[str, Any], used: dict[str, int], now: int, want: str | None
) -> None:
    searched = Searched(**fields).use(**used).learn().use(a100=now)

    assert searched.found.mode is not Mode.FIT
    assert searched.message() == (want and NOT_ASSIGNED + want)


def test_it_is_not_known_any_more_where_it_would_borrow_from_further_away() -> None:
    """The queue lacks 1 of its own quota at first, and then could borrow no more either."""
    searched = Searched(groups=ONE, queue_fields={"cohort": "all"}).use(a100=8).learn()
    assert searched.message() is not None

    searched.use(a100=-5)

    assert searched.message() is None


def test_only_what_evictions_were_considered_for_is_asked_about_victims_again() -> None:
    """GPUs are short within the queue's quota. Disks can never fit."""
    pods = (make_pod_set(requests={"gpu": 2, "disk": 5}),)
    searched = Searched(groups=(make_group(a100=4), DISKS), pods=pods).use(a100=4).learn()

    known = searched.recall()

    # Groups are searched by name, and the first that never fits ends the search.
    assert known is not None
    assert searched.asked == frozenset()
    assert known.mode is Mode.NO_FIT


def test_a_short_flavor_is_asked_about_victims_again() -> None:
    searched = Searched(groups=(make_group(h100=1, a100=4),)).use(a100=4).learn()

    known = searched.recall()

    assert known is not None
    assert searched.asked == {FlavorResource("a100", "gpu")}
    assert known.mode is Mode.PREEMPT
    searched.finds_victim = True
    assert searched.recall() is None


def test_what_is_known_of_a_lack_has_the_scan_of_now() -> None:
    searched = Searched(groups=ONE).use(a100=4).learn()
    searched.queue.tree.generation += 5
    searched.queue.pending.pop_cycle += 3
    stays, changed = searched.recall(), searched.use(a100=-1).recall()

    again = searched.learn().found

    assert stays is not None
    assert changed is not None
    assert stays.scan == changed.scan == again.scan
    assert changed.usage == again.usage


# --- how much is kept ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "want"),
    [
        pytest.param(MOST - 2, MOST - 1, id="beside all others while there are few"),
        pytest.param(MOST - 1, MOST, id="beside all others up to the limit"),
        pytest.param(MOST, 1, id="alone where the limit is reached, as those in use come back"),
    ],
)
@pytest.mark.parametrize("used", [0, 4])
def test_the_result_for_another_shape_is_kept(used: int, known: int, want: int) -> None:
    searched = Searched(groups=ONE).use(a100=used).learn()
    kept: dict[bytes, Any] = {**searched.queue.plans, **searched.queue.impasses}
    (one,) = kept.values()
    results: dict[bytes, Any] = searched.queue.impasses if used else searched.queue.plans
    results.clear()
    results.update({f"shape {number}".encode(): one for number in range(known)})

    searched.learn()

    assert len(results) == want
    assert searched.recall() is not None


def test_nothing_is_known_of_a_shape_that_was_not_searched() -> None:
    assert Searched().recall() is None
    assert Searched(pods=(make_pod_set(template=make_template({"gpu": 9})),)).recall() is None
