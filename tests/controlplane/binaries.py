"""Where the control plane's programs are found, and how they are built when they are not.

The cache folder is named by the versions and by a hash of everything that decides what is built, so a change
of go.mod builds again and an old checkout still finds its own. A build happens in a folder beside it and is
renamed when complete: a cache folder that exists is whole. A lock makes parallel builders wait for the first.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "tools.go", "etcd/main.go")
USUAL_GO = "/usr/local/go/bin/go"  # where Go's own installer puts it, often not on PATH
OLDEST_GO = (1, 21)  # the first that fetches by itself the newer toolchain that go.mod asks for

# etcd first: it is the smallest, so a broken set-up shows early.
PROGRAMS = {
    "etcd": "./etcd",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
}
NEEDED = ("etcd", "kube-apiserver")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler")

_PROGRESS_SECONDS = 15.0


class AssetsMissing(Exception):
    """The programs are not there, or cannot be built here; the message is one line that says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assets:
    """A folder that holds at least etcd and kube-apiserver, and what is known of their versions."""

    folder: Path
    version: str

    def program(self, name: str) -> Path:
        """Return the path of a program of PROGRAMS. Raises AssetsMissing when the folder has none."""
        path = self.folder / name
        if not path.is_file():
            raise AssetsMissing(f"{self.folder} has no {name}")
        return path

    def has(self, *names: str) -> bool:
        """Return whether the folder holds all these programs."""
        return all((self.folder / name).is_file() for name in names)


def find_assets() -> Assets:
    """Return the programs: those of $KUBEBUILDER_ASSETS where it is set, else the cache's.

    Raises AssetsMissing when there are none; never builds.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    assets = (
        Assets(folder=Path(given), version="from $KUBEBUILDER_ASSETS")
        if given
        else Assets(folder=cache_folder(), version=_versions())
    )
    if not assets.has(*NEEDED):
        raise AssetsMissing(f"no {' and '.join(NEEDED)} in {assets.folder}")
    return assets


def cache_folder() -> Path:
    """Return the folder that holds, or will hold, the programs of this checkout."""
    kubernetes, etcd = pinned("k8s.io/kubernetes"), pinned("go.etcd.io/etcd/server/v3")
    sources = [MODULE / name for name in SOURCES]
    print_ = fingerprint(repr((PROGRAMS, _build_flags())), sources)
    return cache_root() / f"controlplane-{kubernetes}-etcd-{etcd}-{print_}"


def cache_root() -> Path:
    """Return the folder outside of the tree that what tests have built is kept in."""
    if own := os.environ.get("BERTH_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared) / "berth"
    return Path.home() / ".cache" / "berth"


def pinned(module: str, folder: Path = MODULE) -> str:
    """Return the version of a module that the folder's go.mod requires."""
    required = rf"^(?:require)?\s*{re.escape(module)} (v\S+)"
    match = re.search(required, (folder / "go.mod").read_text(), re.MULTILINE)
    assert match, f"go.mod does not require {module}"
    return match[1]


def _versions() -> str:
    return f"Kubernetes {pinned('k8s.io/kubernetes')}, etcd {pinned('go.etcd.io/etcd/server/v3')}"


def fingerprint(how: str, sources: Iterable[Path]) -> str:
    """Return a hash that changes with how something is built, and with what from."""
    digest = hashlib.sha256(how.encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _build_flags() -> tuple[str, ...]:
    # Without the linker's version words the API server calls itself v0.0.0-master, and clients that
    # read /version take it for an old one.
    version = pinned("k8s.io/kubernetes")
    major, minor = version.removeprefix("v").split(".")[:2]
    stamp = "-X k8s.io/component-base/version"
    words = f"{stamp}.gitVersion={version} {stamp}.gitMajor={major} {stamp}.gitMinor={minor}"
    return ("-trimpath", "-ldflags", f"-s -w {words}")


def build(say: Callable[[str], None]) -> Assets:
    """Build all programs into the cache unless they are there, telling the progress to `say`.

    Takes about nine minutes on two cores. Raises AssetsMissing without a usable Go or without network.
    """
    folder = build_once(cache_folder(), lambda output: _build_into(output, say), say)
    return Assets(folder=folder, version=_versions())


def build_once(folder: Path, build_into: Callable[[Path], None], say: Callable[[str], None]) -> Path:
    """Let `build_into` fill the folder unless it is there, and return it; it is whole or not there at all."""
    with _lock(folder.with_name(f"{folder.name}.lock"), say):
        if not folder.exists():
            with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
                output = Path(scratch) / "bin"
                output.mkdir()
                build_into(output)
                output.rename(folder)
            say(f"done: {folder}")
    return folder


@contextlib.contextmanager
def _lock(path: Path, say: Callable[[str], None]) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another build of the same programs")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file unlocks it, also when this process is killed


def _build_into(output: Path, say: Callable[[str], None]) -> None:
    go, started = find_go(), time.monotonic()
    for name, package in PROGRAMS.items():
        command = [go, "build", *_build_flags(), "-o", str(output / name), package]
        run_go(command, f"building {name}", started, say)


def find_go() -> str:
    """Return the Go command: PATH's, else /usr/local/go/bin/go. Raises AssetsMissing if none is usable."""
    go = shutil.which("go") or shutil.which(USUAL_GO)
    if go is None:
        raise AssetsMissing(
            "Go is not installed (neither on PATH nor in /usr/local/go); see https://go.dev/dl/"
        )
    answer = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, cwd="/")
    match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
    if match is None:
        raise AssetsMissing(
            f"{go} does not report its version: {answer.stderr.strip() or answer.stdout.strip()}"
        )
    if (int(match[1]), int(match[2])) < OLDEST_GO:
        raise AssetsMissing(
            f"{go} is {answer.stdout.strip()}, but go{OLDEST_GO[0]}.{OLDEST_GO[1]} or later is needed"
        )
    return go


def run_go(
    command: list[str], what: str, started: float, say: Callable[[str], None], *, module: Path = MODULE
) -> None:
    """Run Go in a module's folder, telling `say` how long it takes. Raises AssetsMissing where it fails."""
    say(f"{_elapsed(started)} {what}")
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=module, stdout=log, stderr=subprocess.STDOUT)
        try:
            while not _ended_within(process, _PROGRESS_SECONDS):
                say(f"{_elapsed(started)} {what} ...")
        finally:
            process.kill()  # nothing happens to one that has ended
            process.wait()
        if process.returncode != 0:
            log.seek(0)
            raise AssetsMissing(f"{what} failed: {_last_line(log.read())}")


def _ended_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _elapsed(started: float) -> str:
    minutes, seconds = divmod(int(time.monotonic() - started), 60)
    return f"[{minutes}:{seconds:02}]"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
