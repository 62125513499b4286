"""Laws of static addresses, for any pools, any pods and any course.

- No address is given to two pods, and each pod that has a place has an address that can be used there.
- A Workload has the addresses that it had before, however often it is evicted and starts again.
- A controller that starts with the same objects gives the same addresses, and admits nothing more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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

Had = dict[tuple[str, str], tuple[str, ...]]
"""The addresses of a pod set, by the names of its Workload and itself."""
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
    """A Workload that comes, or one of those that are there which ends.

    A `leader` is one more pod, which shares the rack with the others and may have an address of its own.
    """

    what: Literal["create", "finish", "delete"]
    pods: int
    cpus: int
    priority: int
    is_static: bool
    rack: bool
    leader: Literal["", "plain", "static"]
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
        leader=st.sampled_from(["", "", "plain", "static"]),
        which=st.integers(0, 5),
    ),
    max_size=12,
)


@trying(60)
@given(st.lists(st.sampled_from(POOLS), min_size=4, max_size=4), STEPS)
def test_addresses_are_given_once_and_kept(pools: list[str], steps: list[Step]) -> None:
    world = make_world(pools)
    live: list[str] = []
    had: Had = {}
    for number, step in enumerate(steps):
        world.now += 1
        if step.what == "create":
            live.append(f"w{number}")
            world.put(workload_of(step, live[-1], at=world.now))
        elif live:
            name = live.pop(step.which % len(live))
            had = {key: given for key, given in had.items() if key[0] != name}
            if step.what == "finish":
                world.put(finished(world.get(name)))
            else:
                world.remove(Workload, WorkloadKey("team", name))
        settle(world)
        had = check(world, had)

    again = make_world(pools)
    again.now = world.now
    again.put(*reversed([world.get(name) for name in live]))
    assert check(again, {}) == {key: given for key, given in had.items() if key[0] in again.holding()}
    assert not [one for one in again.settle() if isinstance(one, Evict)]
    assert again.holding() == world.holding()


def test_two_hosts_of_a_pool_do_not_give_its_last_address_twice() -> None:
    world = make_world(["10.0.0.1", "10.0.0.1"])
    world.put(make_cluster_queue("other", groups=(GROUP,)))
    step = Step(what="create", pods=1, cpus=1, priority=0, is_static=True, rack=False, leader="", which=0)
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
    static = structs.replace(template, metadata=Meta(annotations={STATIC_ADDRESS: "true"}))
    topology = TopologyRequest(required=RACK) if step.rack else None
    if step.leader:
        # Only a group that shares a domain has a leader; without it they are two pod sets.
        topology = TopologyRequest(required=RACK, pod_set_group="gang" if step.rack else None)
    main = PodSet(
        name="main",
        count=step.pods,
        template=static if step.is_static else template,
        topology_request=topology,
    )
    leader = replace(main, name="leader", count=1, template=static if step.leader == "static" else template)
    pod_sets = (main, leader) if step.leader else (main,)
    return make_workload(name, pod_sets=pod_sets, priority=step.priority, at=at)


def settle(world: World) -> None:
    """Decide until nothing changes any more; objects show each decision, and the addresses that follow."""
    for _ in range(100):
        decisions = world.settle()
        world.carry_out(tuple(decisions))
        for name in world.holding():
            if settled := slots(world, name):
                given = {one: tuple(slot.address for slot in own) for one, own in settled.items()}
                workload, text = world.get(name), reservations_text(given)
                world.put(replace(workload, annotations={**workload.annotations, ADDRESSES: text}))
        if not decisions:
            return
    raise AssertionError("still deciding")


def slots(world: World, name: str) -> Mapping[str, tuple[AddressSlot, ...]]:
    """Return the addresses of a Workload by pod set."""
    return world.engine.addresses.settle(WorkloadKey("team", name))


def check(world: World, had: Had) -> Had:
    """Return the addresses of all pod sets so far; each that holds quota has its own."""
    found = dict(had)
    given: Counter[str] = Counter()
    for key, admission in list(world.engine.workloads.admissions()):
        settled = slots(world, key.name)
        for pod_set, assigned in zip(world.get(key.name).pod_sets, admission.pod_sets, strict=True):
            meta, one = pod_set.template.metadata, (key.name, pod_set.name)
            if meta is None or STATIC_ADDRESS not in (meta.annotations or {}):
                continue
            own = settled[pod_set.name]
            assert len(own) == pod_set.count
            found[one] = tuple(slot.address for slot in own)
            assert found[one] == had.get(one, found[one]), "it keeps what it had"
            given.update(found[one])
            # The pods on the hosts of a pool are as many as the addresses that are used there.
            assert assigned.topology is not None
            places = Counter[frozenset[str]]()
            for domain in assigned.topology.domains:
                for hosts in {slot.hosts for slot in own}:
                    places[hosts] += domain.count * (domain.values[-1] in hosts)
            assert places == Counter(slot.hosts for slot in own)
    # Those of Workloads that wait are reserved, too.
    for one, addresses in found.items():
        if one[0] not in world.holding():
            given.update(addresses)
    assert [address for address, times in given.items() if times > 1] == []
    return found
