"""The sum of holds that is kept from cycle to cycle shows what each of them would show by itself."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given
from msgspec.structs import replace

from admission.snapshot.held_workload import HeldWorkload
from admission.snapshot.hold_totals import HeldRoom, HoldTotals
from admission.snapshot.snapshot import Snapshot
from api.keys import HOSTNAME
from api.queueing import ResourceFlavor, Topology
from api.workload import TopologyRequest, Workload, WorkloadKey
from queues.profile.holds import Hold
from tests.admission.preemption.test_capacity_holds import make_node
from tests.admission.preemption.test_lost_work import placed
from tests.builders import NAMESPACE, World, make_cluster_queue, make_pod_set, make_workload, reserved

_NODES = ("n1", "n2", "n3")
_VICTIMS = ("v1", "v2", "v3")
_OWNERS = ("w1", "w2", "w3")

_names = st.sampled_from(_VICTIMS)
_rooms = st.dictionaries(
    st.sampled_from(_OWNERS), st.tuples(_names, st.lists(_names, max_size=3, unique=True)), max_size=3
)
_changes = st.one_of(
    st.tuples(st.sampled_from(("evict", "stay", "end", "move")), _names),
    st.just(("edit", "a")),
    st.tuples(st.just("hold"), _rooms),
)


def running(name: str) -> Workload:
    """Return a Workload of two nodes and of one of the two trees, by its number."""
    number = _VICTIMS.index(name)
    pods = make_pod_set(count=2, requests={"gpu": 4}, topology_request=TopologyRequest(unconstrained=True))
    waiting = make_workload(name, queue="ab"[number % 2], pod_sets=(pods,), at=900)
    return placed(reserved(waiting, at=100), _NODES[number], _NODES[number - 1])


class Machine:
    """A cluster on which rooms that look like the victims' own are held for others."""

    def __init__(self) -> None:
        self.world = World().put(
            Topology(name="t", levels=(HOSTNAME,)),
            ResourceFlavor(name="default", topology_name="t"),
            *(make_node(name) for name in _NODES),
            *(make_cluster_queue(name, quota=24) for name in "ab"),
            *map(running, _VICTIMS),
        )
        self.cache = self.world.engine._cache
        self.totals = HoldTotals()
        # As they are at first, wherever they are moved.
        self.shapes = {key: replace(held) for key, held in self.cache.held.items()}
        self.rooms: dict[WorkloadKey, HeldRoom] = {}

    def do(self, what: str, about: Any) -> None:
        held = self.cache.held.get(key_of(about)) if isinstance(about, str) else None
        match what:
            case "hold":
                # A Workload that holds the same as before keeps the same value.
                rooms = {key_of(owner): self.room(owner, *of) for owner, of in about.items()}
                self.rooms = {
                    key: self.rooms[key] if self.rooms.get(key) == one else one for key, one in rooms.items()
                }
            case "edit":
                self.world.put(make_cluster_queue("a", quota=25))
                self.cache.refresh()
            case "end" if held is not None:
                self.world.remove(Workload, held.key)
            case "move" if held is not None:
                self.cache.move(held, self.shapes[key_of("v1")].places)
            case "evict" | "stay" if held is not None:
                held.is_evicting = what == "evict"

    def room(self, owner: str, like: str, victims: list[str]) -> HeldRoom:
        shape = self.shapes[key_of(like)]
        hold = Hold(
            key=key_of(owner),
            uid=owner,
            cluster_queue=shape.admission.cluster_queue,
            priority=0,
            admission=shape.admission,
            victims=tuple(map(key_of, victims)),
            until=0,
        )
        return HeldRoom(hold=hold, usage=shape.usage, places=shape.places)

    def victims(self) -> list[HeldWorkload]:
        named = sorted({key for room in self.rooms.values() for key in room.hold.victims})
        return [held for key in named if (held := self.cache.held.get(key)) is not None and held.is_evicted]

    def one_by_one(self, snapshot: Snapshot) -> None:
        """Show all of it as if it had been decided in the cycle."""
        for held in self.victims():
            snapshot.evictions.evict(self.cache.queues[held.admission.cluster_queue], held)
        for room in self.rooms.values():
            snapshot.trial.reserve(self.cache.queues[room.hold.cluster_queue], room.usage, room.places)

    def usage_and_room(self) -> object:
        """Return what is used of the quota and free of the nodes."""
        nodes = self.cache.hierarchy.queues
        usage = {
            (name, pair): cell.usage for name, node in nodes.items() for pair, cell in node.cells.items()
        }
        site = self.cache.topology_cache.topology("default")
        return usage, {name: site.free_of(leaf) for leaf, name in site.names.items()}


def key_of(name: str) -> WorkloadKey:
    return WorkloadKey(NAMESPACE, name)


@given(st.lists(_changes, min_size=4, max_size=20))
def test_the_sum_of_holds_equals_putting_each_on_the_snapshot_by_itself(
    changes: list[tuple[str, Any]],
) -> None:
    machine = Machine()
    for change in changes:
        machine.do(*change)
        machine.totals.bring_up(
            machine.rooms,
            queues=machine.cache.queues,
            held=machine.cache.held,
            topology_cache=machine.cache.topology_cache,
        )
        snapshot, bare = machine.cache.snapshot(), machine.usage_and_room()
        machine.one_by_one(snapshot)
        wanted, gone = machine.usage_and_room(), snapshot.evictions.gone
        snapshot.rollback()

        snapshot.evictions.apply_holds(machine.totals.overlay(), machine.totals.leaving())
        assert (machine.usage_and_room(), snapshot.evictions.gone) == (wanted, gone)
        everywhere = [place for shape in machine.shapes.values() for place in shape.places]
        with snapshot.evictions.taken_back((), everywhere):
            assert machine.usage_and_room() == bare
        snapshot.trial.suspend()
        assert machine.usage_and_room() == bare
        snapshot.rollback()
        assert machine.usage_and_room() == bare
    machine.world.engine.validate()


def test_room_that_is_as_large_as_what_its_victim_leaves_changes_nothing() -> None:
    machine = Machine()
    machine.do("hold", {"w1": ("v1", ["v1"])})
    machine.do("evict", "v1")

    machine.totals.bring_up(
        machine.rooms,
        queues=machine.cache.queues,
        held=machine.cache.held,
        topology_cache=machine.cache.topology_cache,
    )

    assert machine.totals.overlay().is_empty
    assert list(machine.totals.leaving()) == [key_of("v1")]
