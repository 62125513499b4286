"""Reservations of a topology domain: what is placed in it, kept off it and evicted, and what is reported.

rack r0: n0 n1      rack r1: n2 n3      two GPUs a node
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admission.cache.second_pass_queue import REPLACEMENT_SECONDS
from admission.decisions.decision import Reassign
from api.keys import HOSTNAME, OPPORTUNISTIC, RESERVATION, WORKLOAD_TYPE
from api.node import NodeInfo
from api.policy import AdmissionPolicy, Backfill, BackfillMode, CapacityReservation
from api.queueing import LocalQueue, ResourceFlavor, Topology
from api.workload import TopologyRequest
from tests.admission.calendar.test_advance_reservations import keep
from tests.admission.calendar.test_quota_windows import window
from tests.admission.timed import TimedWorld, template
from tests.builders import NAMESPACE, make_cluster_queue, make_cohort, make_group, make_pod_set
from tests.examples import trying

T = 1000.0
JOINS = {RESERVATION: "big"}
RACK = "rack"
STRANGER = LocalQueue(namespace=NAMESPACE, name="stranger", cluster_queue="stranger")


def keep_domain(
    domain: str, start: float, end: float, *, name: str = "big", queue: str = "queue"
) -> CapacityReservation:
    """Return a reservation of a domain for LocalQueue `queue`, by seconds after T."""
    kept = keep(1, start, end, name=name, queue=queue)
    return replace(kept, amounts={}, domain=tuple(domain.split("/")))


def make_policy(*reservations: CapacityReservation, **fields: Any) -> AdmissionPolicy:
    return AdmissionPolicy(name="policy", reservations=reservations, **fields)


def make_rack_node(number: int, **fields: Any) -> NodeInfo:
    labels = {HOSTNAME: f"n{number}", RACK: f"r{number // 2}"}
    return NodeInfo(name=f"n{number}", labels=labels, allocatable={"gpu": 2, "pods": 100}, **fields)


def make_world(*reservations: CapacityReservation, quota: int = 8, **fields: Any) -> TimedWorld:
    world = TimedWorld(now=T)
    world.put(Topology(name="t", levels=(RACK, HOSTNAME)), ResourceFlavor(name="default", topology_name="t"))
    world.put(*(make_rack_node(number) for number in range(4)))
    world.put(make_cluster_queue(quota=quota), make_policy(*reservations, **fields))
    return world


def submit(world: TimedWorld, name: str, pods: int, *, required: str | None = None, **fields: Any) -> None:
    """Submit a Workload of `pods` pods with two GPUs each: each fills a node."""
    topology = TopologyRequest(required=required) if required is not None else None
    pod_set = make_pod_set(count=pods, template=template(2), topology_request=topology)
    world.submit(name, pod_sets=(pod_set,), **fields)


def hosts(world: TimedWorld, name: str) -> set[str]:
    """Return the hosts that a Workload was given."""
    admission = world.get(name).admission
    assert admission is not None
    return {
        domain.values[-1]
        for one in admission.pod_sets
        if one.topology is not None
        for domain in one.topology.domains
    }


def problems(world: TimedWorld) -> tuple[str, ...]:
    view = world.engine.queues.policy_view("policy")
    assert view is not None
    return view.calendar_problems


def test_members_run_inside_it_from_its_start_and_others_beside_it() -> None:
    world = make_world(keep_domain("r0", 100, 500))
    submit(world, "member", 2, runs=50, annotations=JOINS)
    submit(world, "other", 2, runs=900, at=T + 1)
    submit(world, "too-many", 3, runs=10, at=T + 110)

    world.run(until=T + 490)

    assert world.started == {"member": T + 100, "other": T + 1}
    assert hosts(world, "member") == {"n0", "n1"}
    assert hosts(world, "other") == {"n2", "n3"}


def test_a_member_waits_for_its_domain_though_other_nodes_are_free() -> None:
    world = make_world(keep_domain("r0", 0, 500))
    submit(world, "first", 2, runs=50, annotations=JOINS)
    submit(world, "second", 1, runs=50, annotations=JOINS, at=T + 1)

    world.run(until=T + 40)
    assert set(world.started) == {"first"}
    assert "outsideReservation: 2" in world.said["second"][-1]

    world.run()
    assert world.started["second"] == T + 50
    assert hosts(world, "second") <= {"n0", "n1"}


def test_a_workload_that_ends_before_it_may_use_it_and_one_without_an_estimate_goes_elsewhere() -> None:
    world = make_world(keep_domain("r0", 100, 500))
    submit(world, "silent", 2, runs=600, says=0)
    submit(world, "in-time", 2, runs=80, at=T + 1)
    submit(world, "too-late", 1, runs=99, at=T + 85)

    world.run(until=T + 450)

    assert world.started == {"silent": T, "in-time": T + 1}
    assert hosts(world, "silent") == {"n2", "n3"}
    assert hosts(world, "in-time") == {"n0", "n1"}
    assert world.said["too-late"][0] == (
        "fits now, but may still run when reservation big keeps domain r0 (2 nodes) from "
        "1970-01-01T00:18:20Z until 1970-01-01T00:25:00Z"
    )


def test_it_is_kept_from_other_quota_trees_that_share_its_nodes() -> None:
    world = make_world(keep_domain("r0", 100, 200))
    world.put(make_cluster_queue("stranger", quota=8), STRANGER)
    submit(world, "stranger", 3, runs=300, queue="stranger")

    world.run()

    assert world.started == {"stranger": T + 200}


def test_quota_for_its_nodes_is_kept_as_well() -> None:
    world = make_world(keep_domain("r0", 100, 500), quota=6)
    submit(world, "elsewhere", 2, runs=900)
    submit(world, "one", 1, runs=900, at=T + 1)
    submit(world, "member", 2, runs=50, annotations=JOINS)

    world.run(until=T + 450)

    assert world.started == {"one": T + 1, "member": T + 100}


def test_opportunistic_work_and_a_workload_that_outruns_its_estimate_are_evicted_and_others_stay() -> None:
    world = make_world(quota=16)
    submit(world, "before", 1, runs=300, required=HOSTNAME)
    world.run(until=T + 1)
    world.put(make_policy(keep_domain("r0", 100, 500)))
    submit(world, "gap", 1, runs=900, annotations={OPPORTUNISTIC: "true"})
    submit(world, "elsewhere", 1, runs=900, annotations={OPPORTUNISTIC: "true"}, at=T + 2)
    submit(world, "liar", 1, runs=900, says=20, at=T + 3)

    world.run(until=T + 90)
    in_it = {name for name in world.started if hosts(world, name) & {"n0", "n1"}}
    world.run(until=T + 200)

    # In the rack, all Workloads that may be evicted are; the others stay, as does the one from before.
    assert set(world.evicted) == in_it - {"before"}
    assert all(at == [T + 90] for at in world.evicted.values())


def test_a_node_that_is_lost_leaves_the_rest_of_it_to_the_members() -> None:
    world = make_world(keep_domain("r0", 0, 500))
    world.put(make_rack_node(1, is_ready=False))
    submit(world, "pair", 2, runs=50, annotations=JOINS)
    submit(world, "single", 1, runs=50, annotations=JOINS, at=T + 1)
    submit(world, "other", 1, runs=10, at=T + 2)

    world.run(until=T + 100)
    assert set(world.started) == {"single", "other"}
    assert hosts(world, "other") <= {"n2", "n3"}

    world.put(make_rack_node(1))
    world.run(until=T + 200)
    assert world.started["pair"] == T + 100
    assert hosts(world, "pair") == {"n0", "n1"}


def test_a_node_that_joins_its_rack_is_kept_as_well() -> None:
    world = make_world(keep_domain("r0", 0, 500))
    world.run(until=T + 1)

    world.put(replace(make_rack_node(9), labels={HOSTNAME: "n9", RACK: "r0"}))
    submit(world, "other", 3, runs=10)
    world.run(until=T + 10)

    assert world.started == {}


def test_a_domain_without_any_node_keeps_nothing_until_one_is_back() -> None:
    world = make_world(keep_domain("r0", 0, 500))
    world.put(make_rack_node(0, is_unschedulable=True), make_rack_node(1, is_unschedulable=True))
    (problem,) = problems(world)
    assert problem == (
        'spec.reservations[0].domain is "r0": Topology t of flavor default has no ready node with label '
        "rack=r0; there are r1; nothing is reserved"
    )

    world.put(make_rack_node(0))
    assert problems(world) == ()


def test_a_failed_node_of_others_is_not_replaced_by_one_of_its() -> None:
    world = make_world(keep_domain("r0", 50, 500))
    submit(world, "other", 1, runs=900, says=0)
    world.run(until=T + 1)
    (lost,) = hosts(world, "other")
    (spare,) = {"n2", "n3"} - {lost}

    world.put(make_rack_node(int(lost[1]), is_ready=False))
    world.put(replace(world.get("other"), unhealthy_nodes=(lost,)))
    (decision,) = world.engine.second_pass(now=world.now + REPLACEMENT_SECONDS)

    assert isinstance(decision, Reassign)
    assert decision.found == (spare,)


def test_promises_are_made_around_it() -> None:
    rules = Backfill(mode=BackfillMode.EASY, resolution_seconds=1, ending_seconds=0)
    world = make_world(keep_domain("r0", 100, 200), backfill=rules)
    submit(world, "running", 4, runs=70)
    submit(world, "head", 3, runs=50, at=T + 1)
    submit(world, "short", 2, runs=20, at=T + 2)

    world.run()

    assert world.promised("head") == [T + 200]
    assert world.started["short"] == T + 70
    assert world.started["head"] == T + 200


def test_a_flavor_outside_the_domain_is_none_for_its_members() -> None:
    world = make_world(keep_domain("r0", 0, 500))
    world.put(ResourceFlavor(name="plain"))
    world.put(make_cluster_queue(groups=(make_group(plain=8, default=8),)))
    one = make_pod_set(template=template(2), topology_request=TopologyRequest(preferred=RACK))
    world.submit("member", pod_sets=(one,), runs=10, annotations=JOINS)
    world.run(until=T + 1)

    assert hosts(world, "member") <= {"n0", "n1"}


@pytest.mark.parametrize(
    ("reservations", "want"),
    [
        pytest.param(
            [keep_domain("r7", 100, 200)],
            'spec.reservations[0].domain is "r7": Topology t of flavor default has no ready node with label '
            "rack=r7; there are r0, r1; nothing is reserved",
            id="no such domain",
        ),
        pytest.param(
            [keep_domain("r0/n3", 100, 200)],
            'spec.reservations[0].domain is "r0/n3": Topology t of flavor default has no ready node with '
            f"label {HOSTNAME}=n3 within r0; there are r0/n0, r0/n1; nothing is reserved",
            id="a node of another rack",
        ),
        pytest.param(
            [keep_domain("r0/n0/gpu-0", 100, 200)],
            'spec.reservations[0].domain is "r0/n0/gpu-0": Topology t has the levels rack/'
            f"{HOSTNAME}, widest first; give at most one value of each; nothing is reserved",
            id="more values than levels",
        ),
        pytest.param(
            [keep_domain("r0", 100, 200), keep_domain("r0/n1", 150, 300, name="second")],
            'spec.reservations[1].domain is "r0/n1": reservation big keeps domain r0 (2 nodes) from '
            "1970-01-01T00:18:20Z until 1970-01-01T00:20:00Z (policy policy); nothing is reserved",
            id="part of another's domain",
        ),
        pytest.param(
            [keep(8, 100, 200), keep_domain("r0", 150, 300, name="second")],
            'spec.reservations[1].domain is "r0": ClusterQueue queue has no quota left for the resources '
            "of its 2 nodes in that period, beside other reservations; nothing is reserved",
            id="no quota beside another",
        ),
    ],
)
def test_one_that_cannot_be_met_is_reported(reservations: list[CapacityReservation], want: str) -> None:
    assert problems(make_world(*reservations)) == (want,)


def test_a_queue_without_a_topology_is_reported_with_what_to_do() -> None:
    world = TimedWorld(now=T)
    world.put(make_cluster_queue(quota=8), make_policy(keep_domain("r0", 0, 10)))

    (problem,) = problems(world)

    assert problem == (
        'spec.reservations[0].domain is "r0": no flavor of ClusterQueue queue has a topology; give resources '
        "instead of a domain, or let a ResourceFlavor of it name a Topology; nothing is reserved"
    )


def test_one_domain_may_be_kept_for_one_after_the_other() -> None:
    world = make_world(keep_domain("r0", 100, 200), keep_domain("r0", 200, 300, name="second"))

    assert problems(world) == ()


def test_of_a_quota_that_a_window_lowers_the_lowest_is_kept() -> None:
    world = make_world(keep_domain("r0", 100, 500), quota_windows=(window("less", 200, 300, 3),))

    view = world.engine.queues.cluster_queue_view("queue")

    assert view is not None
    ((kept, _),) = view.reservations
    assert dict(kept.usage) == {("default", "gpu"): 3}


def test_a_controller_that_starts_within_it_keeps_others_off() -> None:
    first = make_world(keep_domain("r0", 0, 500))
    submit(first, "member", 1, runs=300, annotations=JOINS)
    first.run(until=T + 10)

    second = make_world(keep_domain("r0", 0, 500))
    second.now = T + 10
    second.put(first.get("member"))
    submit(second, "other", 3, runs=10)
    submit(second, "member-2", 1, runs=10, annotations=JOINS)
    second.run(until=T + 20)

    assert second.started == {"member-2": T + 10}
    assert hosts(second, "member-2") | hosts(first, "member") == {"n0", "n1"}


@trying(40)
@given(
    domain=st.sampled_from(["r0", "r1", "r0/n1"]),
    work=st.lists(
        st.tuples(
            st.integers(0, 130),
            st.integers(1, 4),
            st.integers(1, 150),
            st.sampled_from([None, 0, 5, 20]),
            st.sampled_from(["queue", "stranger"]),
            st.sampled_from([{}, {OPPORTUNISTIC: "true"}, {WORKLOAD_TYPE: "inference"}]),
            st.sampled_from([None, RACK, HOSTNAME]),
        ),
        max_size=8,
    ),
    backfill=st.booleans(),
)
@example(domain="r0", work=[(50, 3, 11, None, "queue", {OPPORTUNISTIC: "true"}, None)], backfill=False)
@example(
    domain="r0",
    work=[
        *[(0, 1, 1, None, "queue", {}, None)] * 4,
        (0, 3, 1, 0, "queue", {}, None),
        (0, 1, 60, 5, "queue", {}, None),
    ],
    backfill=True,
)
# Moved out of the way of a promise, inference was put where the rack is reserved.
@example(
    domain="r1",
    work=[
        (0, 3, 1, None, "queue", {WORKLOAD_TYPE: "inference"}, None),
        *[(0, 1, 1, None, "queue", {}, None)] * 3,
        (1, 1, 60, 5, "stranger", {WORKLOAD_TYPE: "inference"}, None),
    ],
    backfill=True,
)
def test_only_members_are_in_it_in_its_time(
    domain: str,
    work: list[tuple[int, int, int, int | None, str, dict[str, str], str | None]],
    backfill: bool,
) -> None:
    """Whatever the others say of themselves, of whichever quota tree, and wherever they want to be."""
    rules = Backfill(mode=BackfillMode.EASY, resolution_seconds=1, ending_seconds=0) if backfill else None
    world = Watching(now=T)
    world.put(Topology(name="t", levels=(RACK, HOSTNAME)), ResourceFlavor(name="default", topology_name="t"))
    world.put(*(make_rack_node(number) for number in range(4)))
    world.put(make_cohort("all"), make_cluster_queue(quota=4, cohort="all"))
    world.put(make_cluster_queue("lender", quota=4, cohort="all"), make_cluster_queue("stranger", quota=8))
    world.put(STRANGER)
    world.put(make_policy(keep_domain(domain, 60, 120), backfill=rules))
    world.domain, world.begins_at, world.ends_at = HOSTS[domain], T + 60, T + 120
    submit(world, "member", len(HOSTS[domain]), runs=20, annotations=JOINS)
    for number, (at, pods, runs, says, queue, own, required) in enumerate(work):
        required = required if pods <= {RACK: 2, HOSTNAME: 1}.get(required or "", 4) else None
        submit(
            world,
            f"job-{number}",
            pods,
            runs=runs,
            says=says,
            at=T + at,
            queue=queue,
            annotations=own,
            required=required,
        )

    world.run(until=T + 400)

    assert world.started["member"] == T + 60
    assert hosts(world, "member") == HOSTS[domain]


HOSTS = {"r0": {"n0", "n1"}, "r1": {"n2", "n3"}, "r0/n1": {"n1"}}


class Watching(TimedWorld):
    """Checks which Workloads are on a domain's nodes whenever something has been decided within its time."""

    domain: set[str]
    begins_at: float
    ends_at: float

    def _decide(self) -> None:
        super()._decide()
        if self.begins_at <= self.now < self.ends_at:
            there = {
                name
                for name in [*self.ends, *self.stops]
                if name != "member" and hosts(self, name) & self.domain
            }
            assert not there, f"{there} are in the reserved domain at {self.now}"
