"""The real controllers of the kinds of `api.jobs.owners`, where they have been built: how that is done.

Kept apart from the control plane, since no machine has to have them. Each is built from its Go module alone,
whose own go.mod pins what it needs, with the definitions of its kinds and its webhooks beside it.
"""

from __future__ import annotations

import base64
import copy
import functools
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import yaml

from tests.children import Child, Port
from tests.controlplane.binaries import AssetsMissing, build_once, cache_root, find_go, fingerprint, run_go
from tests.controlplane.definitions import install_crds
from tests.controlplane.plane import ControlPlane
from tests.controlplane.rest import Rest, RestError

_PROGRAM, _DEFINITIONS, _WEBHOOKS = "controller", "definitions.yaml", "webhooks.yaml"
_LINKING = "-ldflags=-s -w"
_REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
_READY_SECONDS = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSource:
    """A controller in its module: the package of its program, and globs of its manifests."""

    name: str
    module: str
    version: str
    package: str = ""
    definitions: str
    webhooks: str = ""

    @property
    def folder(self) -> Path:
        """The folder of the cache that holds it, or will."""
        return cache_root() / f"owner-{self.name}-{self.version}-{fingerprint(repr(self) + _LINKING, [])}"


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
        ),
        ControllerSource(
            name="mpi-operator",
            module="github.com/kubeflow/mpi-operator",
            version="v0.8.2",
            package="/cmd/mpi-operator",
            definitions="manifests/base/kubeflow*.yaml",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerAssets:
    """A controller's program, the definitions of its kinds, and its webhooks as it deploys them."""

    name: str
    program: Path
    definitions: list[dict[str, Any]]
    webhooks: list[dict[str, Any]]


def find_controller(name: str) -> ControllerAssets:
    """Return a controller of the cache. Raises AssetsMissing when it was not built; never builds."""
    folder = CONTROLLERS[name].folder
    if not folder.is_dir():
        raise AssetsMissing(f"no {name} controller; `make owners` builds it once")
    return ControllerAssets(
        name=name,
        program=folder / _PROGRAM,
        definitions=list(yaml.safe_load_all((folder / _DEFINITIONS).read_text())),
        webhooks=[one for one in yaml.safe_load_all((folder / _WEBHOOKS).read_text()) if one],
    )


def build_controllers(say: Callable[[str], None]) -> None:
    """Build all controllers into the cache unless they are there.

    Raises AssetsMissing without a usable Go or without network.
    """
    for source in CONTROLLERS.values():
        build_once(source.folder, functools.partial(_build_into, source, say), say)


def _build_into(source: ControllerSource, say: Callable[[str], None], output: Path) -> None:
    go, started = find_go(), time.monotonic()
    module = _downloaded(go, source)
    # In its own folder, so that its own go.mod counts: in another module it would get other versions.
    command = [go, "build", "-trimpath", _LINKING, "-o", str(output / _PROGRAM), f".{source.package}"]
    run_go(command, f"building {source.name}", started, say, module=module)
    for name, pattern in ((_DEFINITIONS, source.definitions), (_WEBHOOKS, source.webhooks)):
        texts = [found.read_text() for found in sorted(module.glob(pattern))] if pattern else []
        (output / name).write_text("\n---\n".join(texts))


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

    def __init__(self, assets: ControllerAssets, plane: ControlPlane, folder: Path) -> None:
        self._assets, self._plane = assets, plane
        self._ports = {name: Port() for name in ("webhook", "health", "metrics")}
        self._certificates = folder / "certificates"
        self._certificates.mkdir(parents=True)
        # The API server's own certificate is good for this machine, and its authority is known.
        for ours, theirs in (("apiserver.crt", "tls.crt"), ("apiserver.key", "tls.key")):
            shutil.copyfile(plane.folder / ours, self._certificates / theirs)
        arguments = [str(assets.program), *_ARGUMENTS[assets.name](self, folder)]
        self.child = Child(
            name=assets.name,
            arguments=[*arguments, "--kubeconfig", plane.kubeconfig],
            log=folder / f"{assets.name}.log",
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

    def config(self, folder: Path, version: str, **fields: Any) -> Path:
        """Write a configuration file of controller-runtime's usual form; return its path."""
        path = folder / "config.yaml"
        body = {
            "apiVersion": version,
            "kind": "Configuration",
            "webhook": {
                "host": "127.0.0.1",
                "port": self._ports["webhook"].number,
                "certDir": str(self._certificates),
            },
            "metrics": {"bindAddress": "0"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._ports['health'].number}"},
            "leaderElection": {"leaderElect": False},
            **fields,
        }
        path.write_text(yaml.safe_dump(body))
        return path

    def address(self, name: str) -> str:
        """Return where a port of this controller is."""
        return f"127.0.0.1:{self._ports[name].number}"

    def _start(self) -> None:
        rest = self._plane.rest
        install_crds(rest, self._assets.definitions)
        self.child.start()
        if registrations := self._registrations():
            webhook = Rest(f"https://{self.address('webhook')}", ca_file=self._plane.ca_file)
            self.child.wait_ready(functools.partial(_listens, webhook), timeout_seconds=_READY_SECONDS)
            for path, body in registrations:
                rest.create(path.rpartition("/")[0], body)

    def _stop(self) -> None:
        for path, _ in self._registrations():
            self._plane.rest.delete(path)
        self.child.kill()
        for port in self._ports.values():
            port.release()

    def _registrations(self) -> list[tuple[str, dict[str, Any]]]:
        """Return its webhooks for its own kinds, at an address of this machine."""
        groups = {one["spec"]["group"] for one in self._assets.definitions}
        bundle = base64.b64encode(Path(self._plane.ca_file).read_bytes()).decode()
        found = []
        for deployed in self._assets.webhooks:
            body = copy.deepcopy(deployed)
            body["metadata"]["name"] = name = f"{self._assets.name}-{body['kind'].lower()}"
            # Those for pods serve features of their own, and every other pod would wait for them.
            body["webhooks"] = [
                one
                for one in body["webhooks"]
                if all({*rule["apiGroups"]} <= groups for rule in one["rules"])
            ]
            for webhook in body["webhooks"]:
                url = f"https://{self.address('webhook')}{webhook['clientConfig']['service']['path']}"
                webhook["clientConfig"] = {"url": url, "caBundle": bundle}
            found.append((f"{_REGISTRATIONS}/{body['kind'].lower()}s/{name}", body))
        return found


def _arguments_of_jobset(controller: OwnerController, folder: Path) -> list[str]:
    config = controller.config(
        folder, "config.jobset.x-k8s.io/v1alpha1", internalCertManagement={"enable": False}
    )
    return ["--config", str(config)]


_ARGUMENTS: dict[str, Callable[[OwnerController, Path], list[str]]] = {"jobset": _arguments_of_jobset}


def _listens(webhook: Rest) -> bool:
    try:
        webhook.get("/")
    except RestError:
        return True  # a webhook answers no GET, but it answers
    except OSError:
        return False
    return True
