"""`python -m tests.controlplane build|path|start`: build the control plane, print where it is, run one.

`leaderworkerset` builds the controller of that kind, and `owners` those of JobSet and other kinds that are
started as a whole, which optional tests use; `moreowners` builds those that only tests on demand use as well;
`helm` builds Helm, for the tests of the chart.

Exit codes: 0 done, 1 it cannot be had here (one line on stderr says why), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from tests.children import ChildError
from tests.controlplane.binaries import CONTROLLERS, AssetsMissing, build, cache_folder, find_assets
from tests.controlplane.helm import build_helm
from tests.controlplane.owner_controllers import CONTROLLERS as OWNER_CONTROLLERS
from tests.controlplane.owner_controllers import LEADER_WORKER_SETS, MORE_CONTROLLERS, build_controller
from tests.controlplane.plane import ControlPlane


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.controlplane", description=__doc__)
    commands = {
        "build": _build,
        "path": _path,
        "start": _start,
        "leaderworkerset": _build_leaderworkerset,
        "owners": _build_owners,
        "moreowners": _build_more_owners,
        "helm": _build_helm,
    }
    parser.add_argument("command", choices=commands)
    try:
        commands[parser.parse_args(arguments).command]()
    except (AssetsMissing, ChildError) as error:
        print(f"control plane: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def _build() -> None:
    print(build(_say).folder)


def _build_leaderworkerset() -> None:
    print(build_controller(LEADER_WORKER_SETS, _say))


def _build_owners() -> None:
    for source in OWNER_CONTROLLERS.values():
        print(build_controller(source, _say))


def _build_more_owners() -> None:
    for source in (*OWNER_CONTROLLERS.values(), *MORE_CONTROLLERS.values()):
        print(build_controller(source, _say))


def _build_helm() -> None:
    print(build_helm(_say))


def _say(line: str) -> None:
    print(f"control plane: {line}", flush=True)


def _path() -> None:
    print(cache_folder())


def _start() -> None:
    """Run a control plane in the foreground until interrupted, and leave nothing behind."""
    assets = find_assets()
    with (
        tempfile.TemporaryDirectory(prefix="berth-controlplane-") as folder,
        ControlPlane(assets, Path(folder)) as plane,
    ):
        if assets.has(*CONTROLLERS):
            plane.start_controllers()
        print(f"{assets.version} at {plane.server}; logs in {folder}; Ctrl-C ends it")
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        stops = (signal.SIGINT, signal.SIGTERM)
        signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # only now: the servers would inherit it
        signal.sigwait(stops)
        raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
