"""Random sequences of what happens to a cluster, on both API servers, checked for Kueue's invariants.

Two queues of a cohort share a flavor: one is StrictFIFO, both may borrow, reclaim and preempt. A third has a
flavor that follows the topology of four nodes. Workloads come, finish, go, are stopped and wanted again, and
their priorities, the quotas and the nodes change. The test plays the program that owns them: it gives the
quota of an evicted Workload back. A seed fixes the chances of the events.

Every version of a Workload obeys the laws of `Watched`. After each event the cluster comes to rest, as
`unrest` says: no Workload waits that fits or is to preempt others, each that waits says why, and the queues
show what their Workloads hold.

BERTH_SEQUENCES=10..40 tries these seeds instead of the usual ones, with a hundred events each.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator

import pytest

from api.parsing.quantities import amount
from queues.quota.resources import FlavorResource
from tests.controlplane import RestError
from tests.integration.conftest import Cluster
from tests.integration.manifests import (
    KUEUE,
    POOL,
    Object,
    condition,
    is_true,
    kueue_object,
    make_workload,
    quota,
    said,
)
from tests.integration.nodes import simulated_nodes
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for
from tests.integration.watched import (
    CPUS_A_NODE,
    HOST,
    Watched,
    holds,
    is_active,
    is_pending,
    priority_of,
    queue_of,
)
from tests.integration.witness import Witness

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("kueue")]

NODES = 4
STRICT, FREE, PLACED = "strict", "free", "placed"
REQUESTS = ({"required": HOST}, {"preferred": HOST}, {"unconstrained": True})
PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


def seeds() -> list[tuple[int, int]]:
    """Return the seeds to try, each with its number of events."""
    asked = os.environ.get("BERTH_SEQUENCES")
    if asked is None:
        return [(1, 20), (2, 30), (3, 40)]
    first, _, last = asked.partition("..")
    return [(seed, 100) for seed in range(int(first), int(last or first) + 1)]


@pytest.fixture(scope="module")
def pool(cluster: Cluster, controller: Replica, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give a pool of nodes that no other test uses meanwhile."""
    assert controller.child.is_running()
    if cluster.pool == "node":
        # The embedded server has its own.
        yield cluster.pool
        return
    name = "sequence"
    with simulated_nodes(cluster.kubeconfig, tmp_path_factory.mktemp(name), f"{name}:{NODES}:{CPUS_A_NODE}"):
        yield name


@pytest.mark.parametrize(("seed", "events"), seeds())
def test_invariants_hold_after_each_of_many_random_events(
    cluster: Cluster, pool: str, seed: int, events: int
) -> None:
    scene = cluster.new_scene()
    with Witness(scene.rest, scene.namespace) as witness:
        sequence = Sequence(scene, pool, witness, random.Random(seed))
        try:
            for number in range(events):
                name = sequence.play()
                try:
                    sequence.settle()
                except AssertionError as error:
                    raise AssertionError(f"after event {number}, {name}: {error}") from error
        finally:
            sequence.end()
    assert sequence.watched.admissions > events / 4
    assert sequence.watched.preemptions > 0


# --- the events --------------------------------------------------------------------------------------


class Sequence:
    """A scene, its random events, and its rest after each."""

    def __init__(self, scene: Scene, pool: str, witness: Witness, chance: random.Random) -> None:
        self.scene, self.pool, self.witness, self.chance = scene, pool, witness, chance
        self.watched = Watched()
        self.seen = self.created = 0
        flavor, placed = scene.create_flavor(), scene.scoped(PLACED)
        rest = scene.rest
        levels = {"levels": [{"nodeLabel": HOST}]}
        rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": placed}, levels))
        followed = {"nodeLabels": {POOL: pool}, "topologyName": placed}
        rest.create(
            f"/apis/{KUEUE}/resourceflavors", kueue_object("ResourceFlavor", {"name": placed}, followed)
        )
        shared = {"cohortName": scene.scoped("cohort"), "preemption": PREEMPTION}
        self.groups: dict[str, tuple[str, Object]] = {
            STRICT: (flavor, {**shared, "queueingStrategy": "StrictFIFO"}),
            FREE: (flavor, shared),
            PLACED: (placed, {"preemption": {"withinClusterQueue": "LowerPriority"}}),
        }
        for name, (used, fields) in self.groups.items():
            full = scene.create_cluster_queue(name, quota(used, nominal=6), **fields)
            scene.create_local_queue(name, full)
            self.watched.set_queue(name, scene.cluster_queue(full))
            scene.wait_active(full, reason="Ready")

    def play(self) -> str:
        """Let something happen; return what."""
        events: tuple[tuple[int, Callable[[], object]], ...] = (
            (8, self.create),
            (3, self.finish),
            (1, self.delete),
            (2, self.stop_or_want),
            (2, self.change_priority),
            (2, self.change_quota),
            (1, self.change_node),
        )
        (event,) = self.chance.choices([one for _, one in events], [weight for weight, _ in events])
        event()
        return event.__name__

    def create(self) -> None:
        """Several come at once, so that heads of one cycle compete."""
        for _ in range(self.chance.randint(1, 3)):
            self.created += 1
            queue = self.chance.choice(tuple(self.groups))
            body = make_workload(
                f"w{self.created}",
                queue=queue,
                cpus=self.chance.randint(1, 3),
                priority=self.chance.randint(0, 3),
            )
            (pod_set,) = body["spec"]["podSets"]
            pod_set["count"] = self.chance.randint(1, 3)
            if queue == PLACED:
                pod_set["topologyRequest"] = self.chance.choice(REQUESTS)
            self.scene.rest.create(self.scene.workloads, body)

    def finish(self) -> None:
        if (workload := self.any_of(holds)) is not None:
            self.scene.write_status(name_of(workload), said("Finished", "Succeeded", "done", status="True"))

    def delete(self) -> None:
        if (workload := self.any_of(lambda _: True)) is not None:
            self.scene.rest.delete(f"{self.scene.workloads}/{workload['metadata']['name']}")

    def stop_or_want(self) -> None:
        """A Workload is deactivated, or activated again."""
        if (workload := self.any_of(lambda one: not is_true(one, "Finished"))) is not None:
            self.patch(workload, {"active": not is_active(workload)})

    def change_priority(self) -> None:
        if (workload := self.any_of(lambda one: not is_true(one, "Finished"))) is not None:
            self.patch(workload, {"priority": self.chance.randint(0, 3)})

    def change_quota(self) -> None:
        name = self.chance.choice(tuple(self.groups))
        flavor, _ = self.groups[name]
        group = quota(flavor, nominal=self.chance.randint(2, 8))
        path = f"/apis/{KUEUE}/clusterqueues/{self.scene.scoped(name)}"
        self.watched.set_queue(name, self.scene.rest.patch(path, {"spec": {"resourceGroups": [group]}}))

    def change_node(self) -> None:
        """A node is cordoned, or uncordoned."""
        node = self.chance.choice(self.nodes())
        path = f"/api/v1/nodes/{node['metadata']['name']}"
        is_cordoned = node["spec"].get("unschedulable", False)
        self.scene.rest.patch(path, {"spec": {"unschedulable": not is_cordoned}})

    def end(self) -> None:
        """Leave the nodes as they were: the next sequence has the same ones."""
        rest = self.scene.rest
        for node in self.nodes():
            rest.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": False}})
        rest.delete(self.scene.workloads)
        wait_for(lambda: not rest.get(self.scene.workloads)["items"], "all Workloads are gone")

    def any_of(self, is_meant: Callable[[Object], bool]) -> Object | None:
        """Return one of the Workloads for which this holds; None if there is none."""
        found = [one for one in self.watched.present.values() if is_meant(one)]
        # By the order of their creation, so that a seed means the same in every run.
        found.sort(key=lambda one: int(one["metadata"]["name"][1:]))
        return self.chance.choice(found) if found else None

    def patch(self, workload: Object, spec: Object) -> None:
        self.scene.rest.patch(f"{self.scene.workloads}/{workload['metadata']['name']}", {"spec": spec})

    # --- rest ----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Return once the cluster is at rest. Every version until then is checked."""
        missing = ["nothing was looked at"]

        def is_at_rest() -> bool:
            self.witness.catch_up()
            for change, workload in self.witness.workloads(self.seen):
                self.seen += 1
                self.watched.see(change, workload)
            for workload in [*self.watched.present.values()]:
                if holds(workload) and is_true(workload, "Evicted"):
                    self.release(workload)
            missing[:] = self.unrest()
            return not missing

        wait_for(is_at_rest, lambda: "; ".join(missing))
        self.watched.known = frozenset(self.watched.present)

    def release(self, workload: Object) -> None:
        """Give the quota of an evicted Workload back, as its program does once the work has stopped."""
        try:
            self.scene.release(name_of(workload))
        except RestError as error:
            if error.status != 404:
                raise

    def unrest(self) -> Iterator[str]:
        """Yield what shows that the cluster is not at rest."""
        present, ledger = self.watched.present.values(), self.watched.ledger
        for name, (flavor, _) in self.groups.items():
            full = self.scene.scoped(name)
            mine = [one for one in present if one["spec"]["queueName"] == name]
            for one in filter(holds, mine):
                if not is_active(one):
                    yield f"{one['metadata']['name']} is deactivated and holds quota"
            waiting = sorted(filter(is_pending, mine), key=lambda one: -priority_of(one))
            for one in waiting:
                if condition(one, "QuotaReserved").get("status") != "False":
                    yield f"{one['metadata']['name']} does not say why it waits"
            status = self.scene.cluster_queue(full).get("status", {})
            held = sum(map(holds, mine))
            if (status.get("pendingWorkloads"), status.get("reservingWorkloads")) != (len(waiting), held):
                yield f"{full} shows {status}, and {len(waiting)} wait and {held} hold quota"
            used = ledger.used(full).get(FlavorResource(flavor, "cpu"), 0)
            if shown(status) != used:
                yield f"{full} shows {shown(status)} used, not {used}"
            yield from self.overdue(name, waiting)

    def overdue(self, name: str, waiting: list[Object]) -> Iterator[str]:
        """Yield which of the Workloads that wait in a queue are due: one that fits, or that must preempt.

        Of a StrictFIFO queue only the head is. Of several with the highest priority any may be it: then
        nothing is overdue before all of them are due.
        """
        pair = FlavorResource(self.groups[name][0], "cpu")
        if self.scene.scoped(name) in self.watched.strict:
            waiting = [one for one in waiting if priority_of(one) == priority_of(waiting[0])]
            found = [self.why_due(one, pair) for one in waiting]
            yield from map(str, found) if None not in found else ()
            return
        yield from filter(None, (self.why_due(one, pair) for one in waiting))

    def why_due(self, workload: Object, pair: FlavorResource) -> str | None:
        """Return what a waiting Workload is due to, None if nothing."""
        name, needs_room = workload["metadata"]["name"], queue_of(workload) == PLACED
        if self.watched.would_fit(workload, pair) and (not needs_room or self.has_room(workload)):
            return f"{name} waits although it fits"
        lower = self.watched.lower_than(workload)
        has_room = not needs_room or self.has_room(workload, without=lower)
        if has_room and self.watched.must_preempt(workload, pair):
            return f"{name} waits although it may preempt"
        return None

    def has_room(self, workload: Object, *, without: Iterable[Object] = ()) -> bool:
        """Return whether nodes that are not cordoned have room for a Workload without some that are there."""
        (pod_set,) = workload["spec"]["podSets"]
        (container,) = pod_set["template"]["spec"]["containers"]
        cpus, placed = int(container["resources"]["requests"]["cpu"]), self.watched.placed(without=without)
        pods = [
            (CPUS_A_NODE - placed[node["metadata"]["labels"][HOST]]) // cpus
            for node in self.nodes()
            if not node["spec"].get("unschedulable")
        ]
        is_on_one = "required" in pod_set["topologyRequest"]
        return int(pod_set["count"]) <= (max(pods, default=0) if is_on_one else sum(pods))

    def nodes(self) -> list[Object]:
        """Return the nodes of the pool."""
        nodes = self.scene.rest.get("/api/v1/nodes")["items"]
        return [one for one in nodes if one["metadata"]["labels"].get(POOL) == self.pool]


def name_of(workload: Object) -> str:
    """Return the name of a Workload."""
    return str(workload["metadata"]["name"])


def shown(status: Object) -> int:
    """Return the CPUs that a ClusterQueue shows as reserved, in thousandths."""
    (flavor,) = status.get("flavorsReservation") or ({"resources": []},)
    return sum(amount("cpu", one["total"]) for one in flavor["resources"])
