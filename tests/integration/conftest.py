"""Fixtures of whole clusters, the real one and the embedded one, and of controllers on either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import parts
from tests.children import Child
from tests.controlplane import ControlPlane, Rest, clean
from tests.controlplane.definitions import install_definitions
from tests.forks import ForkedChild
from tests.integration.nodes import FABRIC, simulated_nodes
from tests.integration.proxy import Proxy
from tests.integration.replica import BERTH, Replica
from tests.integration.scene import Scene
from tests.integration.witness import Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Where a test plays: an API server as an administrator sees it, with nodes in the pool `pool`."""

    rest: Rest
    kubeconfig: str
    pool: str

    def new_scene(self) -> Scene:
        """Return a scene in a new namespace."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        name = str(self.rest.create("/api/v1/namespaces", body)["metadata"]["name"])
        return Scene(self.rest, name, pool=self.pool)


class Controllers:
    """Controllers of one test, which end with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._replicas: list[Replica] = []

    @property
    def children(self) -> tuple[Child, ...]:
        """Their processes, whose logs are shown with a failure."""
        return tuple(replica.child for replica in self._replicas)

    def start(self, kubeconfig: str, *flags: str, **options: Any) -> Replica:
        """Start one more, with arguments as Replica's, and return at once."""
        options.setdefault("name", f"controller-{len(self._replicas) + 1}")
        replica = Replica(kubeconfig, self._folder, *flags, **options)
        self._replicas.append(replica)
        replica.start()
        return replica

    def stop(self) -> None:
        """End all at once."""
        for replica in self._replicas:
            replica.child.kill()


@pytest.fixture
def controllers(tmp_path: Path) -> Iterator[Controllers]:
    """Give the means to start controllers, which end with the test."""
    started = Controllers(tmp_path)
    yield started
    started.stop()


@pytest.fixture(scope="module")
def real_cluster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give the real control plane with scheduler, Job controller, Berth's kinds, and two pools of nodes."""
    parts.need("controllers")
    clean(control_plane.rest)
    install_definitions(control_plane.rest)
    control_plane.start_controllers()
    folder = tmp_path_factory.mktemp("nodes")
    with simulated_nodes(control_plane.kubeconfig, folder, "blue:2:64", "green:1:64"):
        yield Cluster(rest=control_plane.rest, kubeconfig=control_plane.kubeconfig, pool="blue")
    clean(control_plane.rest)


@pytest.fixture
def real_scene(real_cluster: Cluster) -> Iterator[Scene]:
    """Give a scene on the real cluster; its Jobs end with the test."""
    scene = real_cluster.new_scene()
    yield scene
    real_cluster.rest.delete(scene.jobs, {"propagationPolicy": "Background"})


@pytest.fixture(scope="module")
def embedded_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give an embedded API server with its stand-ins and four nodes, in a process of its own."""
    folder = tmp_path_factory.mktemp("apiserver")
    kubeconfig = folder / "kubeconfig"
    arguments = [BERTH, "apiserver", "--nodes", "4x8", "--kubeconfig", str(kubeconfig)]
    with ForkedChild(name="berth-apiserver", arguments=arguments, log=folder / "log") as child:
        child.wait_ready(kubeconfig.exists, timeout_seconds=90.0)
        yield Cluster(rest=rest_of(kubeconfig), kubeconfig=str(kubeconfig), pool="node")
        child.stop()


def rest_of(kubeconfig: Path) -> Rest:
    """Return a client of an embedded server, which asks for no credentials."""
    document = yaml.safe_load(kubeconfig.read_text())
    return Rest(document["clusters"][0]["cluster"]["server"])


@pytest.fixture
def embedded_scene(embedded_cluster: Cluster) -> Iterator[Scene]:
    """Give a scene on the embedded cluster; its Jobs end with the test."""
    scene = embedded_cluster.new_scene()
    yield scene
    scene.rest.delete(scene.jobs, {"propagationPolicy": "Background"})


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    """Give a namespace that the module's controller serves: on the real cluster for real tests, or embedded.

    A module that has more in its scene has this fixture as well.
    """
    which = "real" if request.node.get_closest_marker("real") else "embedded"
    controller: Replica = request.getfixturevalue(f"{which}_controller")
    assert controller.child.is_running()
    found: Scene = request.getfixturevalue(f"{which}_scene")
    return found


@pytest.fixture
def witness(scene: Scene) -> Iterator[Witness]:
    """Give a witness of all that happens in the module's scene."""
    with Witness(scene.rest, scene.namespace) as watching:
        yield watching


@pytest.fixture(scope="module")
def door(embedded_cluster: Cluster) -> Iterator[Proxy]:
    """Give a door to the embedded API server."""
    with Proxy(embedded_cluster.rest.server) as door:
        yield door


@pytest.fixture
def proxy(door: Proxy) -> Iterator[Proxy]:
    """Give the door, which lets everything pass again after the test."""
    yield door
    door.clear()


@pytest.fixture
def own_namespace(embedded_cluster: Cluster) -> str:
    """Give a namespace on the embedded cluster for the lease of this test's controllers."""
    return embedded_cluster.new_scene().namespace


# No other replica wants its lease, and a machine that halts for seconds must not make it start again:
# what it was about to report would be lost.
LONE_LEASE = """
---
apiVersion: berth.dev/v1alpha1
kind: ControllerConfig
lease: {durationSeconds: 120, renewSeconds: 1, deadlineSeconds: 100}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the one controller of a module is started with: Kueue's Configuration, Berth's settings, flags."""

    config: str | None = None
    settings: str = ""
    flags: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def options() -> Options:
    """Give the options of the module's controller; a module that needs others has this fixture as well."""
    return Options()


@contextmanager
def _leading(cluster: Cluster, factory: pytest.TempPathFactory, options: Options) -> Iterator[Replica]:
    """Give a controller that leads, with a lease of its own."""
    flags = ("--namespace", cluster.new_scene().namespace, *options.flags)
    config = f"{options.config or ''}{LONE_LEASE}{options.settings}"
    replica = Replica(cluster.kubeconfig, factory.mktemp("controller"), *flags, config=config)
    with replica.child:
        replica.wait_leading()
        yield replica


@pytest.fixture(scope="module")
def real_controller(
    real_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, options: Options
) -> Iterator[Replica]:
    """Give the one controller of a module on the real cluster, leading."""
    with _leading(real_cluster, tmp_path_factory, options) as replica:
        yield replica


@pytest.fixture(scope="module")
def embedded_controller(
    embedded_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, options: Options
) -> Iterator[Replica]:
    """Give the one controller of a module on the embedded cluster, leading."""
    with _leading(embedded_cluster, tmp_path_factory, options) as replica:
        yield replica


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Give each of the two clusters in turn."""
    found = request.getfixturevalue(f"{request.param}_cluster")
    assert isinstance(found, Cluster)
    return found


@pytest.fixture(scope="module")
def controller(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, options: Options
) -> Iterator[Replica]:
    """Give the one controller of a module on the cluster whose turn it is, leading."""
    with _leading(cluster, tmp_path_factory, options) as replica:
        yield replica


@pytest.fixture(scope="module")
def fabric(
    real_cluster: Cluster, real_controller: Replica, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replica]:
    """Give the real cluster's controller with two spines of leaves of nodes beside the pools."""
    folder = tmp_path_factory.mktemp("fabric")
    with simulated_nodes(real_cluster.kubeconfig, folder, FABRIC):
        yield real_controller
