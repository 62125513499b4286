"""Where admitted pods are sent by topology, as their gates go."""

from __future__ import annotations

from admission.decisions.decision import Admit
from admission.reconcile.decision_writes import admit_write
from api import keys
from api.keys import HOSTNAME
from api.workload import Admission, DomainCount, PodSetAssignment, TopologyAssignment
from tests.admission.podworld import (
    PodWorld,
    make_world,
    member_object,
    pod_object,
)


def admit_on(world: PodWorld, name: str, *hosts: str, levels: tuple[str, ...] = (HOSTNAME,)) -> None:
    """Admit a Workload of one pod set on these hosts, one pod on each time that a host is named."""
    workload, raw = world.workload(name)
    counts = {host: hosts.count(host) for host in dict.fromkeys(hosts)}
    domains = tuple(DomainCount(values=(host,), count=count) for host, count in counts.items())
    assignment = PodSetAssignment(
        name=workload.pod_sets[0].name,
        count=len(hosts),
        flavors={"cpu": "f"},
        usage={"cpu": 1000 * len(hosts)},
        topology=TopologyAssignment(levels=levels, domains=domains),
    )
    decision = Admit(
        key=workload.key,
        uid=workload.uid,
        resource_version=workload.resource_version,
        admission=Admission(cluster_queue="cq", pod_sets=(assignment,)),
        is_admitted=True,
    )
    world.apply(admit_write(decision, raw, now=world.now))
    world.settle()


def hosts_of(world: PodWorld) -> dict[str, str]:
    """Return the host that each pod selects."""
    return {
        name: world.objects["Pod", name]["spec"].get("nodeSelector", {}).get(HOSTNAME, "")
        for name in world.pods()
    }


def test_a_placed_pod_gets_its_host_as_it_is_ungated() -> None:
    world = make_world(pod_object(annotations={keys.REQUIRED_TOPOLOGY: HOSTNAME}))

    admit_on(world, world.only_workload(), "n1")

    assert hosts_of(world) == {"p": "n1"}
    assert not world.pod("p").gates


def test_a_pod_placed_without_asking_is_marked_so_that_it_is_counted_once() -> None:
    world = make_world(pod_object())

    admit_on(world, world.only_workload(), "n1")

    assert world.pod("p").annotations[keys.UNCONSTRAINED_TOPOLOGY] == "true"


def test_the_pods_of_a_group_take_their_places_by_rank() -> None:
    preferred = {keys.PREFERRED_TOPOLOGY: "rack"}
    ranks = {"a": "2", "b": "0", "c": "1"}
    world = make_world(
        *(
            member_object(name, 3, annotations=preferred, labels={keys.POD_GROUP_INDEX: rank})
            for name, rank in ranks.items()
        )
    )

    admit_on(world, "g", "n1", "n1", "n2")

    assert hosts_of(world) == {"a": "n2", "b": "n1", "c": "n1"}


def test_a_replacement_takes_the_place_that_came_free() -> None:
    preferred = {keys.PREFERRED_TOPOLOGY: "rack"}
    world = make_world(*(member_object(name, annotations=preferred) for name in ("a", "b")))
    admit_on(world, "g", "n1", "n2")
    first = next(name for name, host in hosts_of(world).items() if host == "n1")
    world.run()
    world.end(first, "Failed")

    world.add(member_object("c", annotations=preferred, created=1))
    world.settle()

    assert hosts_of(world)["c"] == "n1"


def test_where_the_topology_ends_above_the_hosts_each_pod_gets_one_domain() -> None:
    world = make_world(*(member_object(name, annotations={keys.PREFERRED_TOPOLOGY: "rack"}) for name in "ab"))

    admit_on(world, "g", "r1", "r2", levels=("rack",))

    racks = sorted(world.objects["Pod", name]["spec"]["nodeSelector"]["rack"] for name in "ab")
    assert racks == ["r1", "r2"]
    assert all("affinity" not in world.objects["Pod", name]["spec"] for name in "ab")


BOTH = [{"name": keys.ADMISSION_GATE}, {"name": keys.TOPOLOGY_GATE}]


def test_both_gates_go_with_one_patch_where_there_is_a_place_and_where_there_is_no_topology() -> None:
    placed = make_world(pod_object(schedulingGates=BOTH))
    plain = make_world(pod_object(schedulingGates=BOTH))

    admit_on(placed, placed.only_workload(), "n1")
    plain.admit(plain.only_workload())
    plain.settle()

    assert [world.pod("p").gates for world in (placed, plain)] == [(), ()]
    assert hosts_of(placed) == {"p": "n1"}


def test_a_replacement_for_a_pod_of_a_failed_node_starts_and_waits_for_a_place_at_the_second_gate() -> None:
    preferred = {keys.PREFERRED_TOPOLOGY: "rack"}
    members = (
        member_object(name, annotations=preferred, labels={keys.POD_GROUP_INDEX: rank}, schedulingGates=BOTH)
        for name, rank in (("a", "0"), ("b", "1"))
    )
    world = make_world(*members)
    admit_on(world, "g", "n1", "n2")
    world.run()
    world.end("a", "Failed")
    world.edit("Workload", "g", lambda group: group["status"].update(unhealthyNodes=[{"name": "n1"}]))

    index = {keys.POD_GROUP_INDEX: "0"}
    world.add(member_object("c", annotations=preferred, labels=index, created=1, schedulingGates=BOTH))
    world.settle()

    assert world.pod("c").gates == (keys.TOPOLOGY_GATE,)
    assert hosts_of(world)["c"] == ""
    # As on any pod that starts: by these the step that ungates it finds it.
    assert world.pod("c").labels[keys.POD_SET] == world.pod("b").labels[keys.POD_SET]
    assert world.pod("c").annotations[keys.WORKLOAD] == "g"


def test_a_group_that_kueue_has_admitted_is_let_go_under_its_pod_sets() -> None:
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    # As the API server completes them; the role is Kueue's of a pod that requests one CPU.
    members = [
        member_object(name, schedulingGates=BOTH, tolerations=tolerations, priority=0) for name in "ab"
    ]
    world = make_world(*members)
    group = world.objects["Workload", "g"]
    assert [one["name"] for one in group["spec"]["podSets"]] == ["4b0469f7"]

    world.admit("g")
    world.settle()

    assert [world.pod(name).gates for name in "ab"] == [(), ()]
    assert [world.pod(name).labels[keys.POD_SET] for name in "ab"] == ["4b0469f7", "4b0469f7"]
    assert [world.pod(name).annotations[keys.ROLE_HASH] for name in "ab"] == ["4b0469f7", "4b0469f7"]
