"""Laws of static addresses, for any pools, any pods and any course.

- No address is given to two pods, and each pod that has a place has an address that can be used there.
- A Workload has the addresses that it had before, however often it is evicted and starts again.
- A controller that starts with the same objects gives the same addresses, and admits nothing more.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from admission.decisions.decision import Evict
from admission.placement.topology.address_book import AddressSlot
from api.jobs.static_address import reservations_text
from api.keys import ADDRESSES, HOSTNAME, STATIC_ADDRESS
from api.node import NodeInfo
from api.objects.common import Meta
from api.queueing import (
    FlavorQuotas,
    Preemption,
    PreemptionPolicy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    Topology,
)
from api.workload import PodSet, TopologyRequest, Workload, WorkloadKey
from tests.builders import World, finished, make_cluster_queue, make_template, make_workload
from tests.examples import trying

RACK = "rack"
LOWER = Preemption(within_cluster_queue=PreemptionPolicy.LOWER_PRIORITY)
GROUP = ResourceGroup(
    covered_resources=("cpu",),
    flavors=(FlavorQuotas(name="cpu", resources={"cpu": ResourceQuota(nominal=100_000)}),),
)
# Of a rack, of a node, none, and one that shares an address with the first.
POOLS = ("10.0.0.1-10.0.0.4", "10.0.1.1-10.0.1.2", "10.0.2.1", "", "10.0.0.4-10.0.0.6")


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A Workload that comes, or one of those that are there which ends."""

    what: Literal["create", "finish", "delete"]
    pods: int
    cpus: int
    priority: int
    is_static: bool
    rack: bool
    which: int


STEPS = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(["create", "create", "finish", "delete"]),
        pods=st.integers(1, 5),
        cpus=st.integers(1, 4),
        priority=st.integers(0, 2),
        is_static=st.booleans(),
        rack=st.booleans(),
        which=st.integers(0, 5),
    ),
    max_size=12,
)


@trying(60)
@given(st.lists(st.sampled_from(POOLS), min_size=4, max_size=4), STEPS)
def test_addresses_are_given_once_and_kept(pools: list[str], steps: list[Step]) -> None:
    world = make_world(pools)
    live: list[str] = []
    had: dict[str, tuple[str, ...]] = {}
    for number, step in enumerate(steps):
        world.now += 1
        if step.what == "create":
            live.append(f"w{number}")
            world.put(workload_of(step, live[-1], at=world.now))
        elif live:
            name = live.pop(step.which % len(live))
            had.pop(name, None)
            if step.what == "finish":
                world.put(finished(world.get(name)))
            else:
                world.remove(Workload, WorkloadKey("team", name))
        settle(world)
        had = check(world, had)

    again = make_world(pools)
    again.now = world.now
    again.put(*reversed([world.get(name) for name in live]))
    assert check(again, {}) == {name: given for name, given in had.items() if name in again.holding()}
    assert not [one for one in again.settle() if isinstance(one, Evict)]
    assert again.holding() == world.holding()


def test_two_hosts_of_a_pool_do_not_give_its_last_address_twice() -> None:
    world = make_world(["10.0.0.1", "10.0.0.1"])
    world.put(make_cluster_queue("other", groups=(GROUP,)))
    step = Step(what="create", pods=1, cpus=1, priority=0, is_static=True, rack=False, which=0)
    # Heads of one cycle, nominated on the same snapshot.
    for host, queue in enumerate(("queue", "other")):
        workload = workload_of(step, f"w{host}", at=host)
        (pod_set,) = workload.pod_sets
        assert pod_set.template.spec is not None
        spec = structs.replace(pod_set.template.spec, node_selector={HOSTNAME: f"n{host}"})
        pod_set = replace(pod_set, template=structs.replace(pod_set.template, spec=spec))
        world.put(replace(workload, pod_sets=(pod_set,), queue_name=queue))
    settle(world)

    assert world.holding().keys() == {"w0"}


def make_world(pools: list[str]) -> World:
    world = World().put(Topology(name="racks", levels=(RACK, HOSTNAME)))
    for number, pool in enumerate(pools):
        labels = {HOSTNAME: f"n{number}", RACK: f"r{number // 2}"}
        amounts = {"cpu": 6000, "pods": 110}
        world.put(NodeInfo(name=f"n{number}", labels=labels, allocatable=amounts, addresses=pool))
    world.put(ResourceFlavor(name="cpu", topology_name="racks"))
    return world.put(make_cluster_queue("queue", groups=(GROUP,), preemption=LOWER))


def workload_of(step: Step, name: str, *, at: float) -> Workload:
    template = make_template({"cpu": step.cpus})
    if step.is_static:
        template = structs.replace(template, metadata=Meta(annotations={STATIC_ADDRESS: "true"}))
    topology = TopologyRequest(required=RACK) if step.rack else None
    pod_set = PodSet(name="main", count=step.pods, template=template, topology_request=topology)
    return make_workload(name, pod_sets=(pod_set,), priority=step.priority, at=at)


def settle(world: World) -> None:
    """Decide until nothing changes any more; objects show each decision, and the addresses that follow."""
    for _ in range(100):
        decisions = world.settle()
        world.carry_out(tuple(decisions))
        for name in world.holding():
            if given := tuple(slot.address for slot in slots(world, name)):
                workload, text = world.get(name), reservations_text({"main": given})
                world.put(replace(workload, annotations={**workload.annotations, ADDRESSES: text}))
        if not decisions:
            return
    raise AssertionError("still deciding")


def slots(world: World, name: str) -> tuple[AddressSlot, ...]:
    return world.engine.addresses.settle(WorkloadKey("team", name)).get("main", ())


def check(world: World, had: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of all Workloads so far; each that holds quota has its own."""
    found = dict(had)
    given: Counter[str] = Counter()
    for key, admission in list(world.engine.workloads.admissions()):
        pod_set = world.get(key.name).pod_sets[0]
        meta = pod_set.template.metadata
        if meta is None or STATIC_ADDRESS not in (meta.annotations or {}):
            continue
        own = slots(world, key.name)
        assert len(own) == pod_set.count
        found[key.name] = tuple(slot.address for slot in own)
        assert found[key.name] == had.get(key.name, found[key.name]), "it keeps what it had"
        given.update(found[key.name])
        # The pods on the hosts of a pool are as many as the addresses that are used there.
        (assigned,) = admission.pod_sets
        assert assigned.topology is not None
        places = Counter[frozenset[str]]()
        for domain in assigned.topology.domains:
            for hosts in {slot.hosts for slot in own}:
                places[hosts] += domain.count * (domain.values[-1] in hosts)
        assert places == Counter(slot.hosts for slot in own)
    # Those of Workloads that wait are reserved, too.
    for name, addresses in found.items():
        if name not in world.holding():
            given.update(addresses)
    assert [address for address, times in given.items() if times > 1] == []
    return found
