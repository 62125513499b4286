"""The real controllers of the kinds of `api.jobs.owners`, where they have been built: how that is done.

Kept apart from the control plane, since no machine has to have them. Each is built from its Go module alone,
whose own go.mod pins what it needs, with the definitions of its kinds and its webhooks beside it. So is the
controller of LeaderWorkerSets, which `make leaderworkerset` builds for one optional test.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from tests.children import Child, Port
from tests.controlplane.binaries import AssetsMissing, build_once, cache_root, find_go, fingerprint, run_go
from tests.controlplane.definitions import install_crds
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest, RestError

OVERLAYS = Path(__file__).parent / "overlays"
_PROGRAM, _DEFINITIONS, _WEBHOOKS = "controller", "definitions.yaml", "webhooks.yaml"
_LINKING = "-ldflags=-s -w"
_REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
_READY_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSource:
    """A controller in its module: the package of its program, and globs of its manifests.

    `overlay` maps files of the module to those of OVERLAYS that it is built with instead. `pod_label` is the
    label of the pods that its webhooks for pods are called for; without one, they are left out. `left_out`
    are the names of definitions of older versions of what another controller runs. `has_program`: its module
    has a program; else its definitions alone are used.
    """

    name: str
    module: str
    version: str
    package: str = ""
    definitions: str
    webhooks: str = ""
    overlay: Mapping[str, str] = field(default_factory=dict)
    pod_label: str = ""
    left_out: frozenset[str] = frozenset()
    has_program: bool = True

    @property
    def folder(self) -> Path:
        """The folder of the cache that holds it, or will."""
        how = repr((self.module, self.package, self.definitions, self.webhooks, _LINKING))
        overlays = [OVERLAYS / name for name in self.overlay.values()]
        return cache_root() / f"owner-{self.name}-{self.version}-{fingerprint(how, overlays)}"


# What `make owners` builds.
CONTROLLERS = {
    source.name: source
    for source in (
        ControllerSource(
            name="jobset",
            module="sigs.k8s.io/jobset",
            version="v0.12.0",
            definitions="config/components/crd/bases/*.yaml",
            webhooks="config/components/webhook/manifests.yaml",
        ),
        ControllerSource(
            name="trainer",
            module="github.com/kubeflow/trainer/v2",
            version="v2.3.0",
            package="/cmd/trainer-controller-manager",
            definitions="manifests/base/crds/trainer*.yaml",
            webhooks="manifests/base/webhook/manifests.yaml",
        ),
        ControllerSource(
            name="training-operator",
            module="github.com/kubeflow/training-operator",
            version="v1.9.4",
            package="/cmd/training-operator.v1",
            definitions="manifests/base/crds/kubeflow*.yaml",
            webhooks="manifests/base/webhook/manifests.yaml",
            # Its own certificates would be made in a fixed folder, which all runs of a machine share.
            overlay={"pkg/cert/cert.go": "training_operator_cert.go"},
            left_out=frozenset({"mpijobs.kubeflow.org"}),
        ),
        ControllerSource(
            name="kuberay",
            module="github.com/ray-project/kuberay/ray-operator",
            version="v1.6.2",
            definitions="config/crd/bases/*.yaml",
        ),
        ControllerSource(
            name="appwrapper",
            module="github.com/project-codeflare/appwrapper",
            version="v1.2.2",
            package="/cmd",
            definitions="config/crd/bases/*.yaml",
        ),
    )
}

# What `make moreowners` builds beside them, for tests on demand.
MORE_CONTROLLERS = {
    source.name: source
    for source in (
        ControllerSource(
            name="mpi-operator",
            module="github.com/kubeflow/mpi-operator",
            version="v0.8.2",
            package="/cmd/mpi-operator",
            definitions="manifests/base/kubeflow*.yaml",
        ),
        ControllerSource(
            name="spark-operator",
            module="github.com/kubeflow/spark-operator/v2",
            version="v2.5.2",
            package="/cmd/operator",
            definitions="config/crd/bases/*.yaml",
        ),
        ControllerSource(
            name="cluster-autoscaler",
            module="k8s.io/autoscaler/cluster-autoscaler/apis",
            version="v0.0.0-20240830133931-adfbe7e45277",
            definitions="config/crd/*.yaml",
            has_program=False,
        ),
    )
}


LEADER_WORKER_SETS = ControllerSource(
    name="leaderworkerset",
    module="sigs.k8s.io/lws",
    version="v0.9.0",
    package="/cmd",
    definitions="config/crd/bases/leaderworkerset*.yaml",
    webhooks="config/webhook/manifests.yaml",
    pod_label="leaderworkerset.sigs.k8s.io/name",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerAssets:
    """A controller's program, the definitions of its kinds, and its webhooks as it deploys them."""

    source: ControllerSource
    program: Path
    definitions: list[dict[str, Any]]
    webhooks: list[dict[str, Any]]


def check_built(source: ControllerSource) -> None:
    """Raise AssetsMissing when a controller is not in the cache. Reads none of its long manifests."""
    if not source.folder.is_dir():
        raise AssetsMissing(f"no {source.name} controller; `make {_target(source.name)}` builds it once")


def find_controller(source: ControllerSource) -> ControllerAssets:
    """Return a controller of the cache. Raises AssetsMissing when it was not built; never builds."""
    check_built(source)
    folder = source.folder
    return ControllerAssets(
        source=source,
        program=folder / _PROGRAM,
        definitions=[
            one
            for one in _documents(folder / _DEFINITIONS)
            if one.get("metadata", {}).get("name") not in source.left_out
        ],
        webhooks=_documents(folder / _WEBHOOKS),
    )


def _target(name: str) -> str:
    if name in CONTROLLERS:
        return "owners"
    return "moreowners" if name in MORE_CONTROLLERS else name


def _documents(path: Path) -> list[dict[str, Any]]:
    # Two separators in a row are an empty document.
    return [one for one in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if one]


def build_controller(source: ControllerSource, say: Callable[[str], None]) -> Path:
    """Build a controller into the cache unless it is there, and return its folder.

    Raises AssetsMissing without a usable Go or without network.
    """
    return build_once(source.folder, functools.partial(_build_into, source, say), say)


def _build_into(source: ControllerSource, say: Callable[[str], None], output: Path) -> None:
    go, started = find_go(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="berth-owner-") as copies:
        module = _with_overlay(_downloaded(go, source), source, Path(copies))
        # In its own folder, so that its own go.mod counts: in another module it would get other versions.
        if source.has_program:
            command = [go, "build", "-trimpath", _LINKING, "-o", str(output / _PROGRAM), f".{source.package}"]
            run_go(command, f"building {source.name}", started, say, module=module)
        for name, pattern in ((_DEFINITIONS, source.definitions), (_WEBHOOKS, source.webhooks)):
            texts = [found.read_text() for found in sorted(module.glob(pattern))] if pattern else []
            (output / name).write_text("\n---\n".join(texts))


def _with_overlay(module: Path, source: ControllerSource, copies: Path) -> Path:
    """Return the folder of the module; with an overlay that of a copy, since Go lets no module be changed."""
    if not source.overlay:
        return module
    copied = copies / source.name
    shutil.copytree(module, copied, copy_function=shutil.copyfile)
    for name, ours in source.overlay.items():
        shutil.copyfile(OVERLAYS / ours, copied / name)
    return copied


def _downloaded(go: str, source: ControllerSource) -> Path:
    command = [go, "mod", "download", "-json", f"{source.module}@{source.version}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if answer.returncode != 0:
        raise AssetsMissing(
            f"{source.module} cannot be had: {answer.stdout.strip() or answer.stderr.strip()}"
        )
    return Path(json.loads(answer.stdout)["Dir"])


class OwnerController:
    """A controller as a process beside a control plane, with its kinds and its webhooks for them."""

    def __init__(
        self,
        assets: ControllerAssets,
        plane: ControlPlane,
        folder: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._assets, self.plane = assets, plane
        self._ports = {name: Port() for name in ("webhook", "health")}
        # Where controller-runtime looks for certificates, below the folder for temporary files.
        certificates = folder / "k8s-webhook-server" / "serving-certs"
        certificates.mkdir(parents=True)
        # The API server's own certificate is good for this machine, and its authority is known.
        for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
            shutil.copyfile(plane.folder / ours, certificates / theirs)
        name = assets.source.name
        arguments = [str(assets.program), *_ARGUMENTS[name](self, folder)]
        flag = "--kubeConfig" if name == "mpi-operator" else "--kubeconfig"
        self.child = Child(
            name=name,
            arguments=[*arguments, flag, plane.kubeconfig],
            log=folder / f"{name}.log",
            environment={"TMPDIR": str(folder), **_ENVIRONMENTS.get(name, {}), **(environment or {})},
        )

    @property
    def children(self) -> tuple[Child, ...]:
        """The process, whose log is shown with a failure."""
        return (self.child,)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def config(self, folder: Path, version: str, **fields: Any) -> str:
        """Write a configuration file of controller-runtime's usual form; return its path."""
        path = folder / "config.yaml"
        body = {
            "apiVersion": version,
            "kind": "Configuration",
            "webhook": {"host": "127.0.0.1", "port": self.port("webhook")},
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": self.address("health")},
            "leaderElection": {"leaderElect": False},
            **fields,
        }
        path.write_text(yaml.safe_dump(body))
        return str(path)

    def port(self, name: str) -> int:
        """Return a port of this controller: webhook or health."""
        return self._ports[name].number

    def address(self, name: str) -> str:
        """Return where a port of this controller is."""
        fixed = _FIXED_PORTS.get((self._assets.source.name, name))
        return f"127.0.0.1:{fixed or self.port(name)}"

    def _start(self) -> None:
        rest = self.plane.rest
        install_crds(rest, self._assets.definitions)
        self.child.start()
        registrations = self._registrations()
        server = f"https://{self.address('webhook')}" if registrations else f"http://{self.address('health')}"
        probe = Rest(server, ca_file=self.plane.ca_file)
        self.child.wait_ready(functools.partial(_listens, probe), timeout_seconds=_READY_SECONDS)
        for path, body in registrations:
            rest.create(path.rpartition("/")[0], body)

    def _stop(self) -> None:
        for path, _ in self._registrations():
            self.plane.rest.delete(path)
        self.child.kill()
        for port in self._ports.values():
            port.release()

    def _registrations(self) -> list[tuple[str, dict[str, Any]]]:
        """Return its webhooks for its own kinds, at an address of this machine."""
        found = []
        for deployed in self._assets.webhooks:
            body = copy.deepcopy(deployed)
            body["metadata"]["name"] = name = f"{self._assets.source.name}-{body['kind'].lower()}"
            body["webhooks"] = [one for one in map(self._local, body["webhooks"]) if one is not None]
            found.append((f"{_REGISTRATIONS}/{body['kind'].lower()}s/{name}", body))
        return found

    def _local(self, webhook: dict[str, Any]) -> dict[str, Any] | None:
        """Return a webhook as it is called on this machine; None for one that is left out."""
        groups = {one["spec"]["group"] for one in self._assets.definitions}
        label = self._assets.source.pod_label
        url = f"https://{self.address('webhook')}{webhook['clientConfig']['service']['path']}"
        bundle = base64.b64encode(Path(self.plane.ca_file).read_bytes()).decode()
        local = {**webhook, "clientConfig": {"url": url, "caBundle": bundle}}
        if all({*rule["apiGroups"]} <= groups for rule in webhook["rules"]):
            return local
        # All other pods would wait for it.
        is_for_pods = all(rule["resources"] == ["pods"] for rule in webhook["rules"])
        if not (label and is_for_pods):
            return None
        return {**local, "objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]}}


def _of_jobset(controller: OwnerController, folder: Path) -> list[str]:
    version = "config.jobset.x-k8s.io/v1alpha1"
    return ["--config", controller.config(folder, version, internalCertManagement={"enable": False})]


def _of_leader_worker_sets(controller: OwnerController, folder: Path) -> list[str]:
    version = "config.lws.x-k8s.io/v1alpha1"
    config = controller.config(folder, version, internalCertManagement={"enable": False})
    return ["--config", config, "--leader-elect=false"]


def _of_trainer(controller: OwnerController, folder: Path) -> list[str]:
    version = "config.trainer.kubeflow.org/v1alpha1"
    return ["--config", controller.config(folder, version, certManagement={"enable": False})]


def _of_training_operator(controller: OwnerController, _: Path) -> list[str]:
    return [
        "--metrics-bind-address=0",
        f"--health-probe-bind-address={controller.address('health')}",
        f"--webhook-server-port={controller.port('webhook')}",
        *(f"--enable-scheme={kind}" for kind in ("pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob")),
    ]


def _of_kuberay(controller: OwnerController, _: Path) -> list[str]:
    return [
        "--metrics-addr=0",
        f"--health-probe-bind-address={controller.address('health')}",
        "--enable-leader-election=false",
    ]


def _of_appwrapper(controller: OwnerController, _: Path) -> list[str]:
    """Write its configuration into the cluster, where it reads it."""
    address = {"bindAddress": controller.address("health")}
    manager = {"metrics": {"bindAddress": "0"}, "health": address}
    text = yaml.safe_dump({"webhooksEnabled": False, "controllerManager": manager})
    name, path = "appwrapper-config", "/api/v1/namespaces/default/configmaps"
    controller.plane.rest.delete(f"{path}/{name}")
    metadata = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    controller.plane.rest.create(path, {**metadata, "data": {"config.yaml": text}})
    return ["--config", name]


def _of_mpi_operator(_: OwnerController, __: Path) -> list[str]:
    return ["--lock-namespace", "default", "--kube-api-qps", "100", "--kube-api-burst", "200"]


def _of_spark_operator(controller: OwnerController, _: Path) -> list[str]:
    return [
        "controller",
        "start",
        # All namespaces.
        "--namespaces=",
        "--enable-ui-service=false",
        f"--health-probe-bind-address={controller.address('health')}",
    ]


_ARGUMENTS: dict[str, Callable[[OwnerController, Path], list[str]]] = {
    "jobset": _of_jobset,
    "leaderworkerset": _of_leader_worker_sets,
    "trainer": _of_trainer,
    "training-operator": _of_training_operator,
    "kuberay": _of_kuberay,
    "appwrapper": _of_appwrapper,
    "mpi-operator": _of_mpi_operator,
    "spark-operator": _of_spark_operator,
}
# Ports that no flag changes: one such controller at a time has a machine.
_FIXED_PORTS = {("mpi-operator", "health"): 8080}
_ENVIRONMENTS = {
    "appwrapper": {"NAMESPACE": "default"},
    # Its own first container would ask a Ray that no simulated pod runs.
    "kuberay": {"ENABLE_INIT_CONTAINER_INJECTION": "false"},
}


def _listens(webhook: Rest) -> bool:
    try:
        webhook.get("/")
    except RestError:
        return True  # a webhook answers no GET, but it answers
    except OSError:
        return False
    return True
