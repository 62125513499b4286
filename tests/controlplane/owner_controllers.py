"""The real controllers of the kinds of `api.jobs.owners`, where they have been built: how that is done.

Kept apart from the control plane, since no machine has to have them. Each is built from its Go module alone,
whose own go.mod pins what it needs, with the definitions of its kinds and its webhooks beside it.
"""

from __future__ import annotations

import functools
import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.binaries import AssetsMissing, build_once, cache_root, find_go, fingerprint, run_go

_PROGRAM, _DEFINITIONS, _WEBHOOKS = "controller", "definitions.yaml", "webhooks.yaml"
_LINKING = "-ldflags=-s -w"


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
    package = f"{source.module}{source.package}@{source.version}"
    # Installed, so that its own go.mod counts: as a part of another module it would get other versions.
    command = ["env", f"GOBIN={output}", go, "install", "-trimpath", _LINKING, package]
    run_go(command, f"building {source.name}", started, say)
    (program,) = output.iterdir()
    program.rename(output / _PROGRAM)
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
