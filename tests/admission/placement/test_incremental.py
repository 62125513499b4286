"""Counts that follow changes along their path give the answers of a search that counts everything."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from admission.placement.topology import changelog, pod_counts
from admission.placement.topology.place import Place, place_of
from admission.placement.topology.placement_options import PlacementOptions, Strategy
from admission.placement.topology.pod_counts import PodCounts
from admission.placement.topology.request import PlacementRequest
from admission.placement.topology_cache import TopologyCache, Unplaced
from api.node import NodeInfo, PodUsage
from api.objects.common import WireTaint
from api.policy import DomainRules
from tests.admission.placement.fleets import (
    BLOCK,
    FLAVOR,
    GPU,
    HOST,
    LEVELS,
    RACK,
    counts,
    make_fleet,
    make_node,
    make_request,
)
from tests.admission.placement.plain import plain_counts, plain_place
from tests.examples import trying

_TAINT = WireTaint(key="maintenance", value="yes", effect="NoSchedule")
_NAMES = st.integers(0, 9).map("n{}".format)

_KUEUE = (
    make_request(6, gpus=2, required=RACK),
    make_request(5, required=HOST),
    make_request(9, preferred=RACK),
    make_request(12, gpus=4, preferred=HOST),
    make_request(4, unconstrained=True),
    make_request(8, required=BLOCK, slices=((RACK, 4),)),
    make_request(6, preferred=RACK, slices=((HOST, 2),)),
    make_request(6, slices=((RACK, 3),)),
    make_request(3, gpus=8),
)
_WITH_OPTIONS = tuple(
    structs.replace(
        make_request(count, gpus=gpus),
        options=PlacementOptions(
            strategy=strategy, rules=rules, gpus_per_pod=gpus, avoids_fragmentation=avoids
        ),
    )
    for count, gpus in ((2, 8), (3, 4), (6, 2))
    for strategy in Strategy
    for rules in (None, DomainRules(max_nodes_per_leaf=2, max_gpus_per_leaf=16))
    for avoids in (False, True)
) + tuple(
    structs.replace(
        make_request(3, gpus=4), options=PlacementOptions(preferred_domain=domain, gpus_per_pod=4)
    )
    for domain in ("b1", "r2", "nowhere")
)


@dataclass(kw_only=True)
class World:
    """A fleet, and all that happened to it."""

    topology_cache: TopologyCache = field(default_factory=lambda: make_fleet({}))
    nodes: dict[str, NodeInfo] = field(default_factory=dict)
    pods: dict[str, PodUsage] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    runs: list[tuple[str, float]] = field(default_factory=list)

    def put(self, name: str, gpus: int, *, is_moved: bool, is_tainted: bool, is_ready: bool) -> None:
        """Bring a node, or change it: it may have moved to another rack."""
        number = int(name[1:]) + is_moved
        taints = (_TAINT,) if is_tainted else ()
        node = make_node(name, f"b{number % 2}", f"r{number % 4}", gpus, taints=taints, is_ready=is_ready)
        self.nodes[name] = node
        self.topology_cache.put_node(node)

    def drop(self, name: str) -> None:
        """Let a node go."""
        self.nodes.pop(name, None)
        self.topology_cache.drop_node(name)

    def run_pod(self, name: str, gpus: int) -> None:
        """Let others run a pod on a node; none where it takes nothing."""
        self.topology_cache.drop_pod(("others", name))
        self.pods.pop(name, None)
        if gpus:
            pod = PodUsage(namespace="others", name=name, node=name, requests={GPU: gpus, "pods": 1})
            self.pods[name] = pod
            self.topology_cache.put_pod(pod)

    def take(self, request: PlacementRequest) -> None:
        """Let a Workload have its place, if there is one."""
        found = self.topology_cache.place([request])
        if not isinstance(found, Unplaced):
            self.places.append(place_of(request, found["main"]))
            self.topology_cache.usage.use(self.places[-1:], sign=1)

    def free(self, index: int) -> None:
        """Let a Workload end."""
        if self.places:
            self.topology_cache.usage.use([self.places.pop(index % len(self.places))], sign=-1)

    def see_run(self, host: str, outcome: float) -> None:
        """Let a run end on a node."""
        self.runs.append((host, outcome))
        self._observe_run(self.topology_cache, len(self.runs) - 1)

    def _observe_run(self, topology_cache: TopologyCache, number: int) -> None:
        host, outcome = self.runs[number]
        topology_cache.observe([host], uid=str(number), at=float(number), outcome=outcome)

    def rebuilt(self) -> TopologyCache:
        """Return a fleet that has just been built from the same events."""
        fresh = make_fleet({})
        for node in self.nodes.values():
            fresh.put_node(node)
        for pod in self.pods.values():
            fresh.put_pod(pod)
        fresh.usage.use(self.places, sign=1)
        for number in range(len(self.runs)):
            self._observe_run(fresh, number)
        return fresh


_Event = Callable[[World], None]
_History = list[tuple[_Event, bool]]
_EVENTS: st.SearchStrategy[_Event] = st.one_of(
    st.builds(
        lambda name, gpus, moved, flags: (
            lambda world: world.put(name, gpus, is_moved=moved, is_tainted=flags == 0, is_ready=flags != 1)
        ),
        _NAMES,
        st.sampled_from((4, 8)),
        st.booleans(),
        st.integers(0, 7),
    ),
    st.builds(lambda name: lambda world: world.drop(name), _NAMES),
    st.builds(lambda name, gpus: lambda world: world.run_pod(name, gpus), _NAMES, st.integers(0, 4)),
    st.builds(lambda request: lambda world: world.take(request), st.sampled_from(_KUEUE + _WITH_OPTIONS)),
    st.builds(lambda index: lambda world: world.free(index), st.integers(0, 5)),
    st.builds(
        lambda name, outcome: lambda world: world.see_run(name, outcome), _NAMES, st.sampled_from((0.0, 1.0))
    ),
)
_HISTORIES = st.lists(st.tuples(_EVENTS, st.booleans()), min_size=1, max_size=25)


def _full_world() -> World:
    world = World()
    for number in range(10):
        world.put(f"n{number}", 8, is_moved=False, is_tainted=False, is_ready=True)
    return world


def _room(topology_cache: TopologyCache, request: PlacementRequest) -> int | None:
    """Return how many pods of the request all nodes have room for, each considered by itself."""
    room = topology_cache.search(FLAVOR).room(request)
    return room.total() if room is not None else None


@given(_HISTORIES)
@trying(30)
def test_whatever_happened_places_equal_those_of_a_plain_search(history: _History) -> None:
    world = _full_world()
    for event, is_asked in history:
        event(world)
        # Not asked after each event, so that several changes are read from the log at once.
        for request in _KUEUE if is_asked else ():
            free = plain_counts(world.nodes.values(), world.pods.values(), world.places, request, LEVELS)
            want = plain_place(free, request, LEVELS)
            got = counts(world.topology_cache, request)
            assert (got["main"] if isinstance(got, dict) else None) == want, request
            assert world.topology_cache.has_place([request]) is (want is not None)
        world.topology_cache.usage.validate(world.places)


@given(_HISTORIES)
@trying(20)
def test_whatever_happened_answers_and_reasons_equal_those_of_a_fresh_start(history: _History) -> None:
    world = _full_world()
    for event, is_asked in history:
        event(world)
        fresh = world.rebuilt() if is_asked else world.topology_cache
        for request in _KUEUE[:4] + _WITH_OPTIONS if is_asked else ():
            assert counts(world.topology_cache, request) == counts(fresh, request)
            empty = world.topology_cache.place([request], is_empty=True)
            assert empty == fresh.place([request], is_empty=True)
            # The sum over all nodes, which is kept from one question to the next.
            assert _room(world.topology_cache, request) == _room(fresh, request)


def test_a_search_that_is_kept_learns_how_later_runs_went() -> None:
    topology_cache = make_fleet({"b0": {"r0": [8], "r1": [8]}})
    request = structs.replace(make_request(1, gpus=8), options=PlacementOptions(gpus_per_pod=8))
    assert counts(topology_cache, request) == {"main": {"n0": 1}}

    topology_cache.observe(["n0"], uid="a", at=1.0, outcome=0.0)

    assert counts(topology_cache, request) == {"main": {"n1": 1}}


def test_a_sum_that_is_kept_is_right_after_more_changes_than_the_log_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(changelog, "_LONGEST", 2)
    topology_cache, request = make_fleet({"b0": {"r0": [8] * 6}}), make_request(1, gpus=8)
    assert _room(topology_cache, request) == 6

    for number in range(5):
        topology_cache.drop_node(f"n{number}")

    assert _room(topology_cache, request) == 1


def test_leaves_that_have_nearly_all_changed_are_counted_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_counts, "_FEW", 2)
    counted, recount = list[int](), PodCounts._recount

    def note(self: PodCounts, leaves: Collection[int]) -> dict[int, tuple[int, int]]:
        counted.append(len(leaves))
        return recount(self, leaves)

    monkeypatch.setattr(PodCounts, "_recount", note)
    world, request = _full_world(), make_request(6, gpus=2, required=RACK)
    counts(world.topology_cache, request)

    world.put("n3", 4, is_moved=False, is_tainted=False, is_ready=True)
    counts(world.topology_cache, request)
    for number in range(10):
        world.put(f"n{number}", 4, is_moved=True, is_tainted=False, is_ready=True)

    assert counts(world.topology_cache, request) == counts(world.rebuilt(), request)
    # One by one the single node alone, not the ten.
    assert counted == [1]
