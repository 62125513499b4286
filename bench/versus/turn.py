"""One run: a control plane of its own, one controller, and Kueue's runner, which ends when all is finished.

           requests            answers come `delay_seconds` later
    runner ────────▶ API server ◀──────────────────────────────── controller
                         │
                       etcd

Everything is a child process that ends with this one. The figures are taken when the runner has written its
summary; what it does afterwards, deleting its objects, counts no more.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import yaml

from api.definitions.crds import KINDS, crd
from bench.processes import Cost, cost_of, cost_of_tree
from bench.throughput import writes_by_purpose
from bench.versus.build import KueueAssets
from bench.versus.proxy import DelayingProxy
from bench.versus.report import Turn, read_recorded
from bench.versus.shapes import SHAPES, Config, workload_count
from bench.versus.standing_queue import StandingQueue
from tests.children import Child, ChildError, Port
from tests.controlplane import Assets, ControlPlane
from tests.controlplane.definitions import install_crds
from tests.controlplane.rest import Rest, RestError

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
_NAMESPACE = "berth-system"
# As in the server that the runner starts for itself if it is given none.
_APISERVER_FLAGS = ("--max-requests-inflight=5000", "--max-mutating-requests-inflight=2500")
# As in Kueue's Makefile. The limits of the runner's own requests, not of the controller's.
_RUNNER_LIMITS = ("--qps", "1000", "--burst", "2000")
# Of a controller on two busy cores.
_READY_SECONDS = 90.0
_READY_ANSWERS = 30
# Long enough to delete the namespaces and queues of the large shape.
_CLEANUP_SECONDS = 300.0
_LOOK_SECONDS = 0.1
_PROGRESS_SECONDS = 5.0
_METRICS_SECONDS = 60.0
# While the controller has not reported all Workloads: a short run ends as soon as it has.
_KNOWN_SECONDS = 1.0


class Controller(StrEnum):
    """What is measured."""

    KUEUE = "Kueue"
    BERTH = "Berth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all runs have in common. `berth_config`: the configuration file of Berth's controller, if any."""

    shape: str
    config: Config
    delay_seconds: float
    timeout_seconds: float
    berth_config: Path | None = None


class TurnFailed(Exception):
    """A run did not end as it should; the message ends with the log of the process that failed."""


class Bench:
    """The programs that are run, and the setting of the runs."""

    def __init__(self, assets: Assets, kueue: KueueAssets, setting: Setting) -> None:
        self._assets, self._kueue, self._setting = assets, kueue, setting
        self._definitions = [*kueue.definitions(), *map(crd, KINDS)]

    def run(self, controller: Controller, folder: Path, say: Callable[[str], None]) -> Turn:
        """Run once and return the figures, telling the progress to `say`.

        `folder` is for logs and for what the runner records. Raises TurnFailed.
        """
        try:
            with (
                ControlPlane(self._assets, folder, apiserver_flags=_APISERVER_FLAGS) as plane,
                self._kubeconfig(plane, folder) as kubeconfig,
            ):
                # Kueue's definitions come first: for the kinds that both have, they are the ones that count.
                install_crds(plane.rest, self._definitions)
                return self._measure(controller, plane, kubeconfig, say)
        except ChildError as error:
            raise TurnFailed(str(error)) from error
        finally:
            shutil.rmtree(folder / "etcd", ignore_errors=True)  # gigabytes after some runs

    def _measure(
        self, controller: Controller, plane: ControlPlane, kubeconfig: Path, say: Callable[[str], None]
    ) -> Turn:
        port = Port()
        metrics = Rest(f"http://127.0.0.1:{port.number}")
        output = plane.folder / "runner"
        output.mkdir()
        with self._controller(controller, plane.folder, kubeconfig, port) as process:
            standing = StandingQueue(plane.rest, answer_seconds=self._setting.delay_seconds)
            standing.create()
            # A distant server answers a dozen times until a controller leads and has listed what is there.
            ready_seconds = _READY_SECONDS + _READY_ANSWERS * self._setting.delay_seconds
            process.wait_ready(lambda: bool(standing.reported), timeout_seconds=ready_seconds)
            before = _costs(plane, process)
            with self._runner(plane, output) as runner:
                started = time.monotonic()
                self._wait_recorded(runner, process, output, self._reporter(standing, say))
                seconds = time.monotonic() - started
                after = _costs(plane, process)
                runner_cost = cost_of(runner.pid)
                writes = _writes(metrics) if controller is Controller.BERTH else {}
                losses = _leader_losses(plane.rest) if controller is Controller.BERTH else None
                say(f"{seconds:.0f} s: done; the runner deletes its objects")
                process.stop()
                _wait_ended(runner)
        port.release()
        recorded = read_recorded(output)
        # Of events that it dropped, some may have told that a Workload is finished.
        if recorded.unfinished and not recorded.dropped_events:
            raise TurnFailed(
                f"the runner ended with {recorded.unfinished} Workloads unfinished, because no active "
                "ClusterQueue reported pending or reserving Workloads"
            )
        return Turn(
            controller=controller,
            workloads=workload_count(self._setting.config),
            seconds=seconds,
            controller_cpu=after.controller.cpu_seconds - before.controller.cpu_seconds,
            apiserver_cpu=after.apiserver.cpu_seconds - before.apiserver.cpu_seconds,
            etcd_cpu=after.etcd.cpu_seconds - before.etcd.cpu_seconds,
            runner_cpu=runner_cost.cpu_seconds,
            peak_mb=after.controller.peak_mb,
            recorded=recorded,
            leader_losses=losses,
            writes=writes,
        )

    def _wait_recorded(
        self, runner: Child, controller: Child, output: Path, report: Callable[[], float]
    ) -> None:
        """Return when the runner has written its summary. Raises TurnFailed when a process ends before."""
        next_report = 0.0
        # It writes the summary as soon as its recording has ended.
        while not (output / "summary.yaml").exists():
            for child in (runner, controller):
                if not child.is_running():
                    raise TurnFailed(f"{child.name} ended early{child.log_tail()}")
            if time.monotonic() > next_report:
                next_report = time.monotonic() + report()
            time.sleep(_LOOK_SECONDS)

    def _reporter(self, standing: StandingQueue, say: Callable[[str], None]) -> Callable[[], float]:
        """Return what looks at the run, and returns after how many seconds to look again.

        The metrics are not read for that: those of a thousand queues take a controller seconds.
        """
        total, started = workload_count(self._setting.config), time.monotonic()

        def report() -> float:
            # A busy server may not answer in time: it is asked again.
            with contextlib.suppress(OSError, RestError):
                standing.empty_once_all_reported(total)
            about = "all are known" if standing.is_empty else "the runner creates them"
            say(f"{time.monotonic() - started:.0f} s: {total:,} Workloads, {about}")
            return _PROGRESS_SECONDS if standing.is_empty else _KNOWN_SECONDS

        return report

    def _controller(self, controller: Controller, folder: Path, kubeconfig: Path, port: Port) -> Child:
        match controller:
            case Controller.KUEUE:
                arguments = [str(self._kueue.minimalkueue), "--metricsPort", str(port.number)]
                if SHAPES[self._setting.shape].has_topology:
                    arguments.append("--enableTAS")
            case Controller.BERTH:
                arguments = [str(Path(sys.executable).with_name("berth")), "controller"]
                arguments += ["--metrics-port", str(port.number), "--namespace", _NAMESPACE]
                for name in ("http", "extender", "visibility", "webhook"):
                    arguments += [f"--{name}-port", "-1"]
                arguments += ["--log-level", "warning"]
                if self._setting.berth_config is not None:
                    arguments += ["--config", str(self._setting.berth_config)]
        return Child(
            name=f"{controller}'s controller",
            arguments=[*arguments, "--kubeconfig", str(kubeconfig)],
            log=folder / "controller.log",
        )

    def _runner(self, plane: ControlPlane, output: Path) -> Child:
        config = output / "generator.yaml"
        config.write_text(yaml.safe_dump(self._setting.config))
        arguments = [str(self._kueue.runner), *_RUNNER_LIMITS]
        arguments += ["--timeout", f"{self._setting.timeout_seconds:.0f}s", "--o", str(output)]
        arguments += ["--generatorConfig", str(config), "--kubeconfig", plane.kubeconfig]
        return Child(name="the runner", arguments=arguments, log=output / "runner.log")

    @contextlib.contextmanager
    def _kubeconfig(self, plane: ControlPlane, folder: Path) -> Iterator[Path]:
        """Yield the controller's kubeconfig, whose server answers late where the setting says so."""
        if not self._setting.delay_seconds:
            yield Path(plane.kubeconfig)
            return
        port = int(plane.server.rpartition(":")[2])
        with DelayingProxy(port, self._setting.delay_seconds) as proxy:
            config = json.loads(Path(plane.kubeconfig).read_text())
            config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{proxy.port}"
            path = folder / "delayed.kubeconfig"
            path.write_text(json.dumps(config))
            path.chmod(0o600)
            yield path


@dataclass(frozen=True, slots=True, kw_only=True)
class _Costs:
    controller: Cost
    apiserver: Cost
    etcd: Cost


def _costs(plane: ControlPlane, controller: Child) -> _Costs:
    return _Costs(
        controller=cost_of_tree(controller.pid),
        apiserver=cost_of(plane.apiserver.pid),
        etcd=cost_of(plane.etcd.pid),
    )


def _writes(metrics: Rest) -> dict[str, int]:
    """Return the controller's writes by purpose; none if it does not serve its metrics in time."""
    try:
        text = str(metrics.request("GET", "/metrics", timeout_seconds=_METRICS_SECONDS))
    except (OSError, RestError):
        return {}
    return writes_by_purpose(text)


def _leader_losses(rest: Rest) -> int:
    """Return how many terms followed the first: the server is new, so the Lease has counted from 1."""
    leases = rest.get(_LEASES.format(_NAMESPACE))["items"]
    return sum(lease["spec"]["leaseTransitions"] - 1 for lease in leases)


def _wait_ended(runner: Child) -> None:
    try:
        code = runner.wait(_CLEANUP_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise TurnFailed(
            f"the runner did not delete its objects in {_CLEANUP_SECONDS:.0f} s{runner.log_tail()}"
        ) from error
    if code != 0:
        raise TurnFailed(f"the runner ended with exit code {code}{runner.log_tail()}")
