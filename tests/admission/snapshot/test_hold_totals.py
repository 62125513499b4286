"""The sum of all capacity holds: what it adds for Workloads that wait, and gives back for their victims.

v1 and v3 of queue a and v2 of queue b hold 4 devices each, 2 on each of their nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from admission.snapshot.hold_totals import HeldRoom, HoldTotals
from api.workload import Admission, WorkloadKey
from queues.profile.holds import Hold
from tests.admission.snapshot.small_cluster import GPU, PRESENT, SmallCluster, key_of, make_cluster


@dataclass
class Totals:
    """The sum of the holds in `rooms` on a small cluster."""

    cluster: SmallCluster = field(default_factory=make_cluster)
    totals: HoldTotals = field(default_factory=HoldTotals)
    rooms: dict[WorkloadKey, HeldRoom] = field(default_factory=dict)

    def hold(self, name: str, *victims: str, used: int = 6, on: str = "v1", queue: str = "a") -> None:
        """Hold `used` devices of a queue for a Workload, on the nodes of another."""
        hold = Hold(
            key=key_of(name),
            uid=name,
            cluster_queue=queue,
            priority=0,
            admission=Admission(cluster_queue=queue, pod_sets=()),
            victims=tuple(map(key_of, victims)),
            until=0,
        )
        self.rooms[key_of(name)] = HeldRoom(hold=hold, usage={GPU: used}, places=self.cluster.held(on).places)

    def evict(self, *names: str, is_evicting: bool = True) -> None:
        for name in names:
            self.cluster.held(name).is_evicting = is_evicting

    def seen(self) -> tuple[object, list[str]]:
        """Return what a cycle sees of quota and nodes with all holds, and which victims count as gone."""
        cache = self.cluster.world.engine._cache
        self.totals.bring_up(
            self.rooms, queues=cache.queues, held=cache.held, topology_cache=cache.topology_cache
        )
        snapshot = cache.snapshot()
        leaving = self.totals.leaving()
        snapshot.evictions.apply_holds(self.totals.overlay(), leaving)
        usage = self.cluster.usage()
        snapshot.rollback()
        assert self.cluster.usage() == PRESENT
        for key, (queue, held) in leaving.items():
            assert queue.held[key] is held
        return usage, sorted(key.name for key in leaving)


def test_without_holds_a_cycle_sees_what_there_is() -> None:
    totals = Totals()

    assert totals.seen() == (PRESENT, [])
    assert totals.totals.overlay().is_empty


@pytest.mark.parametrize(
    ("evicted", "want"),
    [
        pytest.param((), (([14, 4], [2, 4, 2]), []), id="all of it beside victims that are not evicted yet"),
        pytest.param(("v1",), (([10, 4], [4, 4, 4]), ["v1"]), id="in place of one that is"),
        pytest.param(("v1", "v2"), (([10, 0], [6, 6, 4]), ["v1", "v2"]), id="in place of all that are"),
        pytest.param(("v1", "v3"), (([10, 4], [4, 4, 4]), ["v1"]), id="beside those evicted for others"),
    ],
)
def test_what_is_held_is_taken(evicted: tuple[str, ...], want: object) -> None:
    totals = Totals()
    totals.hold("w", "v1", "v2")
    totals.evict(*evicted)

    assert totals.seen() == want


def test_a_victim_of_two_holds_is_gone_once_until_the_last_of_them_ends() -> None:
    totals = Totals()
    totals.hold("w", "v1")
    totals.hold("x", "v1", used=1, on="v2", queue="b")
    totals.evict("v1")

    assert totals.seen() == (([10, 5], [2, 2, 4]), ["v1"])
    del totals.rooms[key_of("w")]
    assert totals.seen() == (([4, 5], [4, 2, 6]), ["v1"])
    del totals.rooms[key_of("x")]
    assert totals.seen() == (PRESENT, [])


def test_a_hold_that_changes_counts_as_it_is_now() -> None:
    totals = Totals()
    totals.hold("w", "v1")
    totals.evict("v1", "v2")
    assert totals.seen() == (([10, 4], [4, 4, 4]), ["v1"])

    totals.hold("w", "v2", used=1, on="v2")

    assert totals.seen() == (([9, 0], [4, 4, 4]), ["v2"])


def test_a_victim_that_is_not_evicted_after_all_is_back() -> None:
    totals = Totals()
    totals.hold("w", "v1")
    totals.evict("v1")
    assert totals.seen()[1] == ["v1"]

    totals.evict("v1", is_evicting=False)

    assert totals.seen() == (([14, 4], [2, 4, 2]), [])


def test_a_victim_that_is_moved_leaves_the_nodes_where_it_is_now() -> None:
    totals = Totals()
    totals.hold("w", "v1", used=4, on="v2")
    totals.evict("v1")
    assert totals.seen() == (([8, 4], [4, 2, 6]), ["v1"])

    cache = totals.cluster.world.engine._cache
    # It takes its place beside v3: 2 more on n3 and n2 each, and n1 is left to others.
    cache.move(totals.cluster.held("v1"), totals.cluster.held("v3").places)
    totals.totals.bring_up(
        totals.rooms, queues=cache.queues, held=cache.held, topology_cache=cache.topology_cache
    )
    snapshot = cache.snapshot()
    snapshot.evictions.apply_holds(totals.totals.overlay(), totals.totals.leaving())

    assert totals.cluster.usage() == ([8, 4], [4, 2, 6])


def test_a_victim_that_has_stopped_gives_nothing_back_twice() -> None:
    totals = Totals()
    totals.hold("w", "v1")
    totals.evict("v1")
    totals.seen()
    cache = totals.cluster.world.engine._cache
    gone = cache.held.pop(key_of("v1"))

    totals.totals.bring_up(
        totals.rooms, queues=cache.queues, held=cache.held, topology_cache=cache.topology_cache
    )

    assert totals.totals.leaving() == {}
    ((_, usage),) = totals.totals.overlay().usage
    assert usage == {GPU: 6}
    cache.held[key_of("v1")] = gone


def test_after_queues_were_built_again_the_sum_is_that_of_the_new_ones() -> None:
    totals = Totals()
    totals.hold("w", "v1", "v2")
    totals.evict("v1")
    before = totals.seen()
    cache = totals.cluster.world.engine._cache

    cache.queues = dict(cache.queues)

    assert totals.seen() == before
