"""Health: which objects are of no use as they are, and what a caller may see of them."""

from __future__ import annotations

import pytest

from admission.answers.health import MOST_PROBLEMS, ReplicaItem, health
from admission.answers.sight import EVERYTHING, Sight
from api.node import NodeInfo
from api.policy import AdmissionPolicy
from api.queueing import LocalQueue, Namespace
from api.workload import Workload
from tests.builders import NAMESPACE, World, make_cluster_queue, make_group

REPLICA = ReplicaItem(name="berth-0", role="leader", version="1")


def cluster() -> World:
    """Return a cluster in which one object of each kind is of no use."""
    world = World()
    world.put(
        make_cluster_queue("good", quota=8),
        make_cluster_queue("bad", groups=(make_group(gone=8),)),
        Namespace(name="other"),
        LocalQueue(namespace="other", name="lost", cluster_queue="nowhere"),
        AdmissionPolicy(name="heir", base="gone"),
    )
    world.engine.objects.unreadable(Workload, (NAMESPACE, "odd"), "spec is a number", now=world.now)
    world.engine.objects.unreadable(NodeInfo, "node-1", "no name", now=world.now)
    return world


@pytest.mark.parametrize(
    ("sight", "want"),
    [
        pytest.param(
            EVERYTHING,
            [
                ("AdmissionPolicy", "", "heir", "it is not in force: spec.base is 'gone'"),
                ("ClusterQueue", "", "bad", "Can't admit new workloads: references missing"),
                ("LocalQueue", "other", "lost", "its ClusterQueue 'nowhere' does not exist"),
                ("Node", "", "node-1", "no name"),
                ("Workload", NAMESPACE, "odd", "spec is a number"),
            ],
            id="an administrator sees all",
        ),
        pytest.param(
            Sight(namespaces=frozenset({NAMESPACE})),
            [
                ("ClusterQueue", "", "bad", "Can't admit new workloads: references missing"),
                ("Workload", NAMESPACE, "odd", "spec is a number"),
            ],
            id="a tenant sees its own and the queues that serve it",
        ),
        pytest.param(
            Sight(namespaces=frozenset({"other"})),
            [("LocalQueue", "other", "lost", "its ClusterQueue 'nowhere' does not exist")],
            id="another tenant sees another part",
        ),
    ],
)
def test_problems_of_objects(sight: Sight, want: list[tuple[str, str, str, str]]) -> None:
    found = health(cluster().engine, REPLICA, sight)

    named = [(one.kind, one.namespace, one.name) for one in found.problems]
    assert named == [one[:3] for one in want]
    assert all(one.message.startswith(says[3]) for one, says in zip(found.problems, want, strict=True))


def test_a_cluster_in_order_has_none() -> None:
    world = World().put(make_cluster_queue("good", quota=8))

    found = health(world.engine, REPLICA, EVERYTHING)

    assert (found.problems, found.more, found.replica) == ((), 0, REPLICA)


def test_what_would_be_too_many_is_counted() -> None:
    world = World()
    for number in range(MOST_PROBLEMS + 7):
        world.engine.objects.unreadable(NodeInfo, f"node-{number}", "no name", now=world.now)

    found = health(world.engine, REPLICA, EVERYTHING)

    assert (len(found.problems), found.more) == (MOST_PROBLEMS, 7)
