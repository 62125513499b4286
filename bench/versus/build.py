"""Kueue's controller and its performance runner: how they are found in the cache and built once.

The cache is that of the control plane (tests/controlplane/binaries.py). The controller is `minimalkueue`: the
core controllers and the scheduler of Kueue without webhooks and Job integrations. The module also brings the
runner's configurations and the definitions of Kueue's kinds.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.versus.shapes import SHAPES, Config
from tests.controlplane.binaries import build_once, cache_root, find_go, fingerprint, pinned, run_go

MODULE = Path(__file__).parent / "kueue"
NAME = "sigs.k8s.io/kueue"
PROGRAMS = ("minimalkueue", "runner")
_PACKAGES = f"{NAME}/test/performance/scheduler"
_BUILD = ("build", "-trimpath", "-ldflags", "-s -w")


@dataclass(frozen=True, slots=True, kw_only=True)
class KueueAssets:
    """A folder with the programs, the runner's configurations and the definitions of Kueue's kinds."""

    folder: Path

    @property
    def minimalkueue(self) -> Path:
        """The path of the controller."""
        return self.folder / "minimalkueue"

    @property
    def runner(self) -> Path:
        """The path of the performance runner."""
        return self.folder / "runner"

    def config(self, shape: str) -> Config:
        """Return the runner's configuration of a shape."""
        config: Config = yaml.safe_load((self.folder / f"{shape}.yaml").read_text())
        return config

    def definitions(self) -> list[dict[str, Any]]:
        """Return the CustomResourceDefinitions of Kueue's kinds."""
        # The C parser: these are 30,000 lines, which take the other one 40 s.
        load = functools.partial(yaml.load, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return [load(path.read_text()) for path in sorted((self.folder / "definitions").iterdir())]


def version() -> str:
    """Return the version of Kueue that is built."""
    return pinned(NAME, MODULE)


def build_kueue(say: Callable[[str], None]) -> KueueAssets:
    """Return the programs, built into the cache unless they are there. `say` is told the progress.

    Takes three minutes on two cores, and downloads 300 MB. Raises AssetsMissing without a usable Go or
    without network.
    """
    sources = [MODULE / name for name in ("go.mod", "go.sum", "tools.go")]
    folder = cache_root() / f"kueue-{version()}-{fingerprint(repr((PROGRAMS, _BUILD, SHAPES)), sources)}"
    return KueueAssets(folder=build_once(folder, functools.partial(_build_into, say=say), say))


def _build_into(output: Path, *, say: Callable[[str], None]) -> None:
    go, started = find_go(), time.monotonic()
    for name in PROGRAMS:
        command = [go, *_BUILD, "-o", str(output / name), f"{_PACKAGES}/{name}"]
        run_go(command, f"building Kueue's {name}", started, say, module=MODULE)
    # The build has fetched the module, which has configurations and definitions beside the sources.
    listing = [go, "list", "-m", "-f", "{{.Dir}}", NAME]
    found = subprocess.run(listing, cwd=MODULE, capture_output=True, text=True, check=True).stdout.strip()
    for name, shape in SHAPES.items():
        generator = Path(found) / "test/performance/scheduler/configs" / shape.folder / "generator.yaml"
        shutil.copyfile(generator, output / f"{name}.yaml")
    (output / "definitions").mkdir()
    for definition in (Path(found) / "config/components/crd/bases").glob("*.yaml"):
        shutil.copyfile(definition, output / "definitions" / definition.name)
