"""`berth demo`: run everything on this machine, with nothing else installed.

The demo uses an embedded API server and store, simulated nodes and three teams. The controller is the
production code and talks HTTP to the server. The demo reads what it shows and counts through the API, with
watches of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from admission.cli.common import job_manifests
from admission.cli.common.arguments import Subparsers, add_command, speed
from admission.cli.common.browsing import open_in_browser
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import GPU, NewJob
from admission.cli.common.running import run
from admission.cli.trial import demo_scenario
from admission.cli.trial.demo_policy import demo_policy
from admission.cli.trial.demo_table import Board, read_board
from admission.cli.trial.embedded_cluster import (
    check_may_write,
    create,
    embedded_server,
    in_background,
    install_kinds,
)
from admission.cli.trial.in_process_controller import run_inner_controller
from admission.cli.trial.job_outcomes import RunJob, explain_lost, job_results
from admission.cli.trial.job_submitter import Submission, Submitter, wait_all_ended
from admission.cli.trial.recorder import Recorder
from admission.cli.trial.screen import show_live
from admission.cli.trial.simulated_nodes import pool_nodes
from admission.cli.trial.work_folder import WorkFolder
from admission.cli.views.report import RunReport, summarise
from admission.cli.views.summary import (
    Tenancy,
    checks,
    percent_text,
    print_waits,
    promises_sentence,
)
from admission.cli.views.tables import make_console
from admission.simulation.audit import Audit, audit
from admission.simulation.promises import promises
from admission.simulation.shapes import GangShape
from api.keys import HOSTNAME
from api.kube.client import KubeClient
from api.kube.embedded.standins.kubelet import NodeSpec
from api.kube.embedded.standins.standins import StandIns
from api.kube.resources import (
    ADMISSION_POLICIES,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NAMESPACES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
)
from api.parsing.durations import seconds_text
from api.workload import WorkloadKey

_TOPOLOGY = "racks"
# The scenario ends within this time, in its own seconds.
_LIMIT_SECONDS = 90.0
# After that limit, the remaining Jobs count as lost once there has been no progress for this long. A slow
# machine that still makes progress is not a failure.
_SILENCE_SECONDS = 20.0


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "demo",
        help_line="run everything on this machine, with nothing else installed",
        description=(
            "Run Berth on this machine: an embedded API server, an embedded store, 16 simulated GPU nodes\n"
            f"and {len(demo_scenario.jobs())} Jobs of three teams that arrive over half a minute. "
            "Two teams share a cohort\nand borrow from each other, the third has no cohort. "
            "Takes under two minutes."
        ),
        examples=(
            "  berth demo\n"
            "  berth demo --keep          # then, elsewhere: KUBECONFIG=PATH kubectl get clusterqueues\n"
            "  berth demo --page          # the same in a browser, until Ctrl-C\n"
            "  berth demo --speed 3"
        ),
        run=_run,
    )
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument(
        "--page", action="store_true", help="open the page in a browser, and leave everything running"
    )
    parser.add_argument(
        "--speed", type=speed, default=1.0, metavar="S", help="how many times faster (default: 1)"
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="write the kubeconfig of the embedded server here (default: a new temporary file)",
    )


def _run(arguments: argparse.Namespace) -> int:
    if arguments.kubeconfig is not None:
        # Check this before the work folder is created, so that an error leaves nothing behind.
        check_may_write(arguments.kubeconfig)
    with WorkFolder("berth-demo-") as folder:
        kubeconfig = arguments.kubeconfig or folder.path / "kubeconfig"
        return folder.ended(run(_demo(kubeconfig, arguments)))


async def _demo(kubeconfig: Path, arguments: argparse.Namespace) -> int:
    console, pace = make_console(), arguments.speed
    on_page = _show_page if arguments.page else lambda _: None
    async with _everything(kubeconfig, pace=pace, on_page=on_page) as (client, recorder):
        print(f"KUBECONFIG={kubeconfig}", flush=True)
        await _create_cluster(client)
        play = _Play(client=client, recorder=recorder, pace=pace)
        await play.run(console)
        report = play.sum_up(console)
        print(report.totals, flush=True)
        if arguments.keep or arguments.page:
            await _stay(kubeconfig)
    return ExitCode.DONE if report.totals.is_good else ExitCode.DOES_NOT_HOLD


def _show_page(url: str) -> None:
    print(f"PAGE={url}", flush=True)
    open_in_browser(url)


async def _stay(kubeconfig: Path) -> None:
    """Wait for Ctrl-C, the regular end of a demo with --keep."""
    print(f"everything keeps running: KUBECONFIG={kubeconfig}; Ctrl-C ends it", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


@asynccontextmanager
async def _everything(
    kubeconfig: Path, *, pace: float, on_page: Callable[[str], None]
) -> AsyncIterator[tuple[KubeClient, Recorder]]:
    """Run server, nodes and controller. Yield a client, and a recorder that has started to watch.

    `on_page` is called with the address of the page.
    """
    async with (
        embedded_server(kubeconfig),
        await KubeClient.connect(str(kubeconfig), user_agent="berth-demo") as client,
    ):
        await install_kinds(client)
        listening = asyncio.Event()
        stand_ins = StandIns(client, nodes=_nodes(), speed=pace)
        recorder = Recorder(client)
        async with in_background(
            nodes=stand_ins.run(),
            controller=run_inner_controller(str(kubeconfig), listening=listening, on_page=on_page),
            recorder=recorder.run(),
        ):
            await stand_ins.wait_ready()
            await recorder.wait_synced()
            # Create Jobs only when all ports listen. Otherwise the first waits would include the
            # start of the demo.
            await listening.wait()
            yield client, recorder


def _nodes() -> list[NodeSpec]:
    return [node for pool in demo_scenario.POOLS for node in _in_racks(pool)]


def _in_racks(pool: demo_scenario.NodePool) -> Iterator[NodeSpec]:
    nodes = pool_nodes(
        pool.name, pool.nodes, demo_scenario.GPUS_PER_NODE, product=pool.gpu_product, is_tainted=False
    )
    for number, node in enumerate(nodes):
        # Fill racks one after another, by node number.
        rack = f"{pool.name}-rack-{number // demo_scenario.NODES_PER_RACK}"
        yield replace(node, labels={**node.labels, demo_scenario.RACK_LABEL: rack})


async def _create_cluster(client: KubeClient) -> None:
    """Create an administrator's objects: topology, flavors, the policy, and team queues."""
    await create(client, TOPOLOGIES, job_manifests.topology(_TOPOLOGY, (demo_scenario.RACK_LABEL, HOSTNAME)))
    await create(client, ADMISSION_POLICIES, demo_policy())
    for pool in demo_scenario.POOLS:
        flavor = job_manifests.resource_flavor(pool.name, node_pool=pool.name, topology_name=_TOPOLOGY)
        await create(client, RESOURCE_FLAVORS, flavor)
    for team in demo_scenario.TEAMS:
        await create(client, NAMESPACES, job_manifests.namespace(team.name))
        queue = job_manifests.cluster_queue(
            team.name, flavor=team.pool, nominal={GPU: team.gpus}, cohort=team.cohort
        )
        await create(client, CLUSTER_QUEUES, queue)
        await create(client, LOCAL_QUEUES, job_manifests.local_queue(team.name, team.name, team.name))


@dataclass(slots=True, kw_only=True)
class _Play:
    """One run of the scenario. `pace`: how many of its seconds pass in one real second."""

    client: KubeClient
    recorder: Recorder
    pace: float
    submitter: Submitter | None = None
    started_at: float = 0.0

    async def run(self, console: Console) -> None:
        """Submit the Jobs and show the progress, until all have ended or progress has stopped."""
        submitter = self.submitter = Submitter(self.client, _submissions(self.pace))
        self.started_at = time.monotonic()
        async with in_background(
            screen=show_live(self._board, console), submitter=submitter.run(self.started_at)
        ):
            await wait_all_ended(
                self.recorder,
                [job.key for job in _run_jobs()],
                has_stalled=self._has_stalled,
            )

    def _has_stalled(self) -> bool:
        # Count from the last progress, so that a slow machine may take longer as long as it makes progress.
        over_at = self.started_at + _LIMIT_SECONDS / self.pace
        return time.monotonic() > max(over_at, self.recorder.progressed_at) + _SILENCE_SECONDS

    def sum_up(self, console: Console) -> RunReport:
        """Print a summary of the run and return its report."""
        jobs, result = _run_jobs(), audit(self.recorder.records)
        results = job_results(self.recorder, jobs, started_at=self.started_at, pace=self.pace)
        report = summarise(results, gpus=demo_scenario.gpus(), exceeded=len(result.exceeded))
        console.print()
        print_waits(console, report, result, _TENANCIES, self.pace)
        console.print()
        for sentence in _sentences(report, result, self.pace, gaps=self.recorder.gaps):
            console.print(sentence)
        # Promises are in Unix seconds, the recorder's times are monotonic.
        promised = promises(self.recorder.records, epoch=time.time() - time.monotonic())
        console.print(promises_sentence(promised, self.pace))
        refused = self.submitter.refused if self.submitter else {}
        for sentence in explain_lost(self.recorder, jobs, refused, now=time.time()):
            console.print(sentence)
        return report

    def _board(self) -> Board:
        return read_board(
            self.recorder,
            elapsed_seconds=(time.monotonic() - self.started_at) * self.pace,
            jobs=len(demo_scenario.jobs()),
            submitted=self.submitter.submitted if self.submitter else 0,
            now=time.time(),
        )


_TENANCIES = [
    Tenancy(tenant=team.name, cluster_queue=team.name, flavor=team.pool) for team in demo_scenario.TEAMS
]


def _submissions(pace: float) -> list[Submission]:
    return [
        Submission(at_seconds=job.at_seconds / pace, manifest=job_manifests.job(_new_job(job, pace)))
        for job in demo_scenario.jobs()
    ]


def _new_job(job: demo_scenario.DemoJob, pace: float) -> NewJob:
    return NewJob(
        name=job.name,
        namespace=job.team,
        queue=job.team,
        shape=GangShape(pods=job.pods, gpus_per_pod=job.gpus_per_pod),
        run_seconds=job.run_seconds,
        # Promises are in real seconds, while pods run in the scenario's seconds.
        declared_seconds=math.ceil(job.declared_seconds / pace),
    )


def _run_jobs() -> list[RunJob]:
    return [
        RunJob(
            key=WorkloadKey(job.team, job.name),
            tenant=job.team,
            gpus=job.pods * job.gpus_per_pod,
            submitted_at=job.at_seconds,
            duration_seconds=job.run_seconds,
        )
        for job in demo_scenario.jobs()
    ]


def _sentences(report: RunReport, result: Audit, pace: float, *, gaps: int) -> Iterator[str]:
    """Yield the summary in sentences: utilisation, waits, promises, borrowing, and the quota check."""
    totals, everyone = report.totals, report.everyone
    yield (
        f"{totals.finished} of {totals.jobs} jobs of {len(demo_scenario.TEAMS)} teams finished"
        f" on {demo_scenario.gpus()} GPUs, which were busy {percent_text(report.utilisation)} of the time."
    )
    yield (
        f"A job waited {seconds_text(everyone.mean_wait_seconds)} on average and"
        f" {seconds_text(everyone.longest_wait_seconds)} at most;"
        f" {percent_text(report.shares.quota)} of all waiting was for quota."
    )
    for team in demo_scenario.TEAMS:
        yield from _borrowing(team, result, pace)
    yield from checks(result, gaps=gaps)


def _borrowing(team: demo_scenario.Team, result: Audit, pace: float) -> Iterator[str]:
    usage = result.usage.get((team.name, job_manifests.gpu_of(team.pool)))
    # Omit teams that never borrowed.
    if usage is None or not usage.peak_borrowed:
        return
    minutes = usage.borrowed_seconds * pace / 60
    yield (
        f"{team.name} borrowed up to {usage.peak_borrowed} idle GPUs of {team.cohort}:"
        f" {minutes:.1f} GPU-minutes that would have been idle."
    )
