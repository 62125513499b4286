"""Helm, built once from its Go module where none is installed: how it is found and built."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.controlplane.binaries import AssetsMissing, build_once, cache_root, find_go, fingerprint, run_go

VERSION = "v3.20.2"
_PACKAGE = "helm.sh/helm/v3/cmd/helm"
_FLAGS = ("-trimpath", "-ldflags=-s -w")


def find_helm() -> Path:
    """Return the Helm of the cache, else that of PATH. Raises AssetsMissing without any; never builds."""
    if (built := _folder() / "helm").is_file():
        return built
    if (installed := shutil.which("helm")) is not None:
        return Path(installed)
    raise AssetsMissing("no helm on PATH, and none built")


def build_helm(say: Callable[[str], None]) -> Path:
    """Build Helm into the cache unless it is there, and return the folder.

    Raises AssetsMissing without a usable Go or without network.
    """

    def build_into(output: Path) -> None:
        install = [find_go(), "install", *_FLAGS, f"{_PACKAGE}@{VERSION}"]
        run_go(["env", f"GOBIN={output}", *install], "building helm", time.monotonic(), say, module=Path("/"))

    return build_once(_folder(), build_into, say)


def _folder() -> Path:
    return cache_root() / f"helm-{VERSION}-{fingerprint(repr(_FLAGS), [])}"
