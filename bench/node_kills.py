"""Time from a node's last heartbeat until its gang runs elsewhere: `python -m bench.node_kills`.

    python -m bench.node_kills [--trials 20] [--json]

On a real control plane with its node, Job and taint controllers and its scheduler; two spines of eight leaves
of four simulated nodes with 8 GPUs. In each trial a gang of three pods, which tolerate a lost node for 300 s
as every pod does, needs one leaf. Right after a heartbeat one of its nodes falls silent, as a machine without
power. The first time ends when the gang's assignment has left the node, the second when all of its pods run,
in the same leaf. Berth waits for 20 s of silence (`heartbeatSeconds`), so that is the least of both.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.outages import Figures, figures
from tests.controlplane import ControlPlane, find_assets
from tests.controlplane.definitions import install_definitions
from tests.integration.conftest import Cluster
from tests.integration.manifests import KUEUE, POOL, kueue_object
from tests.integration.nodes import FABRIC, LEAF, SPINE, simulated_nodes
from tests.integration.replica import Replica
from tests.integration.scene import Scene
from tests.integration.test_node_failures import (
    STOCK_TOLERATIONS,
    assigned,
    create_gang,
    create_policy,
    create_queues,
    leaf_of,
    set_ready,
    silence,
    wait_running,
)

TARGET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The seconds from the last heartbeat: until the gang left the node, and until all of its pods ran."""

    left: float
    running: float


@contextmanager
def _staged() -> Iterator[Scene]:
    """Give a namespace with a queue for one gang, on a control plane of its own."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="berth-bench-")))
        plane = stack.enter_context(ControlPlane(find_assets(), folder))
        install_definitions(plane.rest)
        plane.start_controllers()
        stack.enter_context(simulated_nodes(plane.kubeconfig, folder, FABRIC))
        controller = Replica(plane.kubeconfig, folder)
        stack.enter_context(controller.child)
        controller.wait_leading()
        scene = Cluster(rest=plane.rest, kubeconfig=plane.kubeconfig, pool="fabric").new_scene()
        name = scene.scoped("fabric")
        levels = {"levels": [{"nodeLabel": label} for label in (SPINE, LEAF, "kubernetes.io/hostname")]}
        plane.rest.create(f"/apis/{KUEUE}/topologies", kueue_object("Topology", {"name": name}, levels))
        spec = {"nodeLabels": {POOL: "fabric"}, "topologyName": name}
        flavor = kueue_object("ResourceFlavor", {"name": name}, spec)
        plane.rest.create(f"/apis/{KUEUE}/resourceflavors", flavor)
        create_queues(scene, "main", nodes=3)
        create_policy(scene, {"placement": {"recovery": {}}})
        yield scene


def kill(scene: Scene, number: int) -> Trial:
    """Run a gang, silence one of its nodes, and return when it runs again. Raises AssertionError."""
    gang = f"gang-{number}"
    create_gang(scene, gang, nodes=3, tolerations=STOCK_TOLERATIONS)
    before = wait_running(scene, gang)
    lost = before[number % len(before)]
    silence(scene, lost)
    began = time.monotonic()
    scene.wait_workload(gang, lambda found: lost not in assigned(found), f"left {lost}")
    left = time.monotonic() - began
    after = wait_running(scene, gang)
    running = time.monotonic() - began
    assert {leaf_of(node) for node in after} == {leaf_of(node) for node in before}, "another leaf"
    scene.delete_job(gang)
    set_ready(scene, lost, ready=True)
    return Trial(left=left, running=running)


def measure(trials: int, report: Callable[[Trial], None] = lambda _: None) -> tuple[Figures, Figures]:
    """Return the figures of both times. `report` is called after each trial."""
    done: list[Trial] = []
    with _staged() as scene:
        for number in range(trials):
            done.append(kill(scene, number))
            report(done[-1])
    return figures("left", [one.left for one in done]), figures("running", [one.running for one in done])


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="one line of JSON for each time")
    arguments = parser.parse_args()
    if arguments.trials < 1:
        parser.error(f"--trials {arguments.trials}: expected at least 1")

    def report(trial: Trial) -> None:
        print(f"left {trial.left:.2f} s, running {trial.running:.2f} s", file=sys.stderr, flush=True)

    for found in measure(arguments.trials, report):
        line = (
            f"{found.outage:8} {found.trials} nodes killed: p50 {found.p50:.2f} s, p99 {found.p99:.2f} s,"
            f" longest {found.longest:.2f} s (wanted: {TARGET_SECONDS:g} s)"
        )
        print(json.dumps(asdict(found)) if arguments.json else line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
