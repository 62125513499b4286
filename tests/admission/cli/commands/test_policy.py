"""`berth policy show`: policies with what they inherit, and the ClusterQueues that they govern."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import GPU, cluster_queue
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.resources import ADMISSION_POLICIES, CLUSTER_QUEUES

BASE = {
    "clusterQueues": {"names": ["none"]},
    "ordering": {"mode": "EarliestExpectedEnd"},
    "aliases": "Articles",
}
OWN = {
    "base": "standard",
    "precedence": 5,
    "clusterQueues": {"names": ["speech", "vision"]},
    "backfill": {"mode": "EASY"},
}
STRICT = {"precedence": 9, "clusterQueues": {"names": ["vision"]}, "estimates": {}}


@pytest.fixture
def cluster(bare_server: str) -> str:
    """Give the kubeconfig of a cluster with three queues and four policies, one of them without its base."""

    async def fill() -> None:
        async with await KubeClient.connect(bare_server) as client:
            await install_kinds(client)
            for name in ("speech", "vision", "web"):
                queue = cluster_queue(name, flavor="a100", nominal={GPU: 8}, cohort="research")
                await create(client, CLUSTER_QUEUES, queue)
            broken = {"base": "gone", "clusterQueues": {"names": ["none"]}}
            policies: Mapping[str, Mapping[str, Any]] = {
                "standard": BASE,
                "research": OWN,
                "strict": STRICT,
                "broken": broken,
            }
            for name, spec in policies.items():
                head = {"apiVersion": "berth.dev/v1alpha1", "kind": "AdmissionPolicy"}
                await create(client, ADMISSION_POLICIES, {**head, "metadata": {"name": name}, "spec": spec})

    asyncio.run(fill())
    return bare_server


def show(capsys: pytest.CaptureFixture[str], kubeconfig: str, *arguments: str) -> tuple[int, str]:
    code = main(["policy", "show", "--kubeconfig", kubeconfig, *arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_policy_is_shown_with_what_it_inherits_and_which_queues_it_governs(
    cluster: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = show(capsys, cluster, "research")

    heading, _, body = out.partition("clusterQueues:")
    assert code == ExitCode.DONE
    assert heading.splitlines()[:4] == [
        "AdmissionPolicy research",
        "governs: speech",
        "selects vision, which strict governs",
        "off: preemption, placement, estimates",
    ]
    assert "\n# from standard\nordering:\n  mode: EarliestExpectedEnd\n  ageSeconds: 86400" in body
    spec = yaml.safe_load(f"clusterQueues:{body}")
    assert (spec["aliases"], spec["backfill"]["mode"]) == ("Articles", "EASY")
    assert spec["backfill"]["windowSeconds"] == 604800, "the default of a field that is not written"


def test_scripts_read_where_each_section_is_from(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out = show(capsys, cluster, "research", "-o", "json")

    found = json.loads(out)
    assert found["inherited"] == {"ordering": "standard"}
    assert (found["governs"], found["governedBy"]) == (["speech"], {"vision": "strict"})
    assert found["spec"]["ordering"]["mode"] == "EarliestExpectedEnd"


@pytest.mark.parametrize(
    ("arguments", "want_code", "want"),
    [
        pytest.param(("clusterqueue/vision",), ExitCode.DONE, "AdmissionPolicy strict\n", id="of a queue"),
        pytest.param(
            ("cq/web",),
            ExitCode.DONE,
            "no AdmissionPolicy governs ClusterQueue web: it is decided as by Kueue",
            id="of a queue without any",
        ),
        pytest.param(
            ("broken",),
            ExitCode.DOES_NOT_HOLD,
            "is not in force: spec.base is 'gone', but no valid AdmissionPolicy has this name",
            id="of one that is not in force",
        ),
        pytest.param(
            ("reserch",),
            ExitCode.WRONG_USAGE,
            "there is no AdmissionPolicy 'reserch'; there is: broken, research, standard, strict",
            id="of one that does not exist",
        ),
        pytest.param(
            ("clusterqueue/nowhere",),
            ExitCode.WRONG_USAGE,
            "there is no ClusterQueue 'nowhere'",
            id="of no queue",
        ),
        pytest.param(
            ("pod/a",),
            ExitCode.WRONG_USAGE,
            "'pod/a' is neither a policy nor clusterqueue/NAME",
            id="of a pod",
        ),
    ],
)
def test_a_policy_is_shown(
    arguments: tuple[str, ...],
    want_code: ExitCode,
    want: str,
    cluster: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out = show(capsys, cluster, *arguments)

    assert code == want_code
    assert want in out
