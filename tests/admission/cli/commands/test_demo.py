"""`berth demo`, played for real at a higher speed."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.trial import demo_scenario
from api.kube.client import KubeClient
from api.kube.errors import Unreachable
from api.kube.resources import JOBS, NODES
from api.objects.common import NamedObject

GOOD = re.compile(r"jobs (\d+) finished \1 failed 0 lost 0 quota-exceeded 0")


def test_the_scenario_is_what_the_demo_promises() -> None:
    jobs, teams = demo_scenario.jobs(), {team.name: team for team in demo_scenario.TEAMS}

    assert len(jobs) >= 60
    assert max(job.at_seconds for job in jobs) == 30
    assert {(job.pods, job.gpus_per_pod) for job in jobs} >= {(1, 1), (1, 8), (4, 8)}
    assert sum(pool.nodes for pool in demo_scenario.POOLS) == 16
    assert Counter(team.cohort for team in teams.values()) == {"research": 2, None: 1}
    # Each team's quota is what its nodes hold, so that what fits the quota fits the nodes.
    for pool in demo_scenario.POOLS:
        quota = sum(team.gpus for team in teams.values() if team.pool == pool.name)
        assert quota == pool.nodes * demo_scenario.GPUS_PER_NODE


@pytest.mark.slow
@pytest.mark.timeout(400)  # under a minute on an idle machine; a busy one takes several
def test_every_job_of_the_demo_finishes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"

    code = main(["demo", "--speed", "6", "--kubeconfig", str(kubeconfig)])

    lines = capsys.readouterr().out.splitlines()
    assert (code, bool(GOOD.fullmatch(lines[-1]))) == (ExitCode.DONE, True), lines
    assert lines[0] == f"KUBECONFIG={kubeconfig}"
    assert any("speech borrowed up to" in line for line in lines)
    assert any("No quota was exceeded" in line for line in lines)
    # Six times as fast, this machine's own delays may outlast what the Jobs declare, so promises may be late.
    assert any("that had to wait" in line for line in lines)


@pytest.mark.slow
@pytest.mark.timeout(400)  # under a minute on an idle machine; a busy one takes several
async def test_a_kept_demo_can_be_used_until_it_is_interrupted(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    command = (sys.executable, "-m", "admission.cli", "demo", "--keep", "--speed", "20")
    demo = await asyncio.create_subprocess_exec(
        *command,
        *("--kubeconfig", str(kubeconfig)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert demo.stdout is not None
        while not GOOD.fullmatch((await demo.stdout.readline()).decode().strip()):
            assert not demo.stdout.at_eof()
        async with await KubeClient.connect(str(kubeconfig)) as client:
            assert len((await client.list(NODES, type_=NamedObject)).items) == 16
            assert len((await client.list(JOBS, "vision", type_=NamedObject)).items) == 22

            demo.send_signal(signal.SIGINT)
            _, errors = await demo.communicate()

            assert (demo.returncode, b"Traceback" in errors) == (ExitCode.INTERRUPTED, False)
            with pytest.raises(Unreachable):
                await client.server_version()
    finally:
        if demo.returncode is None:
            demo.kill()
            await demo.wait()
