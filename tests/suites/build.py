"""The programs of the suites in the cache: Kueue's code with our changes, and one test binary for each suite.

The cache is that of the control plane (tests/controlplane/binaries.py), and Kueue's version that of the
comparison (bench/versus/kueue/go.mod). The changed code stays in the cache, because suites look for files
beside it and because all suites are built from it.
"""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.controlplane.binaries import (
    AssetsMissing,
    build_once,
    cache_root,
    find_go,
    fingerprint,
    pinned,
    run_go,
)
from tests.suites import changes

MODULE = Path(__file__).parents[2] / "bench" / "versus" / "kueue"
NAME = "sigs.k8s.io/kueue"
_FOLDER = "test/integration/singlecluster"
_FLAGS = ("-trimpath", "-ldflags", "-s -w")
_BUILD = ("test", "-c", "-vet=off", *_FLAGS)
# Commands of Kueue that a suite runs from the folder of its binary, by suite.
_COMMANDS = {"kueuectl": ("kubectl-kueue", "./cmd/kueuectl")}
# Definitions of kinds that are not Kueue's: the folder in which a suite looks for them, their module, and
# where they are in it.
_DEFINITIONS = "dep-crds"
_OTHERS = (
    ("appwrapper-crds", "github.com/project-codeflare/appwrapper", "config/crd/bases/*.yaml"),
    ("cluster-autoscaler", "k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd/*.yaml"),
    ("jobset-operator", "sigs.k8s.io/jobset", "config/components/crd/bases/*.yaml"),
    ("kf-trainer-crds", "github.com/kubeflow/trainer/v2", "manifests/base/crds/trainer*.yaml"),
    ("leaderworkerset-operator", "sigs.k8s.io/lws", "config/crd/bases/*.yaml"),
    ("mpi-operator", "github.com/kubeflow/mpi-operator", "manifests/base/kubeflow*.yaml"),
    ("ray-operator-crds", "github.com/ray-project/kuberay/ray-operator", "config/crd/bases/*.yaml"),
    ("spark-operator-crds", "github.com/kubeflow/spark-operator/v2", "config/crd/bases/*.yaml"),
    # Not that of its MPIJob, which has another version than the MPI operator's.
    (
        "training-operator-crds",
        "github.com/kubeflow/training-operator",
        "manifests/base/crds/kubeflow.org_[!m]*.yaml",
    ),
)


def version() -> str:
    """Return the version of Kueue whose suites are built."""
    return pinned(NAME, MODULE)


def build_source(say: Callable[[str], None]) -> Path:
    """Return the folder of Kueue's code with our changes, made in the cache unless it is there.

    Raises AssetsMissing without a usable Go or without network, ChangeFailed for another code than expected.
    """
    return build_once(_cached("source"), functools.partial(_copy_into, say=say), say)


def build_suite(suite: str, say: Callable[[str], None]) -> Path:
    """Return the test binary of a suite (a folder of singlecluster), built into the cache unless it is there.

    The first takes a quarter of an hour on two cores, the others a minute. Raises as `build_source`.
    """
    source = build_source(say)
    name = suite.replace("/", "-")
    folder = build_once(
        _cached(name), functools.partial(_build_into, source=source, suite=suite, say=say), say
    )
    return folder / f"{name}.test"


def suite_folder(source: Path, suite: str) -> Path:
    """Return the folder in which a suite's binary must run."""
    return source / _FOLDER / suite


def definitions_of_kueue(source: Path) -> list[Path]:
    """Return the files with the definitions of Kueue's kinds."""
    return sorted((source / "config" / "components" / "crd" / "bases").glob("*.yaml"))


def _cached(name: str) -> Path:
    sources = [
        MODULE / "go.mod",
        Path(changes.__file__),
        *(file for file in changes.go_files()),
    ]
    print_ = fingerprint(repr(_BUILD), sources)
    return cache_root() / f"kueue-suites-{version()}-{print_}-{name}"


def _copy_into(output: Path, *, say: Callable[[str], None]) -> None:
    go = find_go()
    say(f"copying Kueue {version()}")
    shutil.copytree(_download(go, f"{NAME}@{version()}", MODULE), output, dirs_exist_ok=True)
    # The module cache is read-only.
    for path in [output, *output.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    changes.apply(output)
    for name, module, pattern in _OTHERS:
        folder = output / _DEFINITIONS / name
        folder.mkdir(parents=True)
        for path in _download(go, f"{module}@{pinned(module, output)}", output).glob(pattern):
            (folder / path.name).write_bytes(path.read_bytes())


def _download(go: str, module: str, folder: Path) -> Path:
    """Return the folder of a module in Go's cache."""
    done = subprocess.run(
        [go, "mod", "download", "-json", module], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssetsMissing(f"downloading {module} failed: {(done.stderr or done.stdout).strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def _build_into(output: Path, *, source: Path, suite: str, say: Callable[[str], None]) -> None:
    go, started = find_go(), time.monotonic()
    program = output / f"{suite.replace('/', '-')}.test"
    command = [go, *_BUILD, "-o", str(program), f"./{_FOLDER}/{suite}"]
    run_go(command, f"building the suite {suite}", started, say, module=source)
    if suite in _COMMANDS:
        name, package = _COMMANDS[suite]
        command = [go, "build", *_FLAGS, "-o", str(output / name), package]
        run_go(command, f"building {name}", started, say, module=source)
