"""`berth stop`, `resume`, `hold`, `drain`, `priority`, `cancel`: what they change, and what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from api.keys import PRIORITY_CLASS
from api.kube.client import KubeClient
from api.kube.errors import NotFound
from api.kube.resources import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    NAMESPACES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from tests.admission.cli.commands.test_explain import fill, make_job, make_workload, own

TRUE = {"status": "True", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
RUNS = {
    "admission": {"clusterQueue": "speech", "podSetAssignments": [{"name": "main", "count": 1}]},
    "conditions": [{"type": one, "reason": one, **TRUE} for one in ("QuotaReserved", "Admitted")],
}


@pytest.fixture
def cluster(bare_server: str) -> str:
    """Give a cluster with a Job that waits, one that runs, and one that has ended."""
    fill(
        bare_server,
        (CLUSTER_QUEUES, cluster_queue("speech", flavor="a100", nominal={GPU: 8}, cohort="research")),
        (NAMESPACES, namespace("speech")),
        (LOCAL_QUEUES, local_queue("main", "speech", "speech")),
        (WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 10}),
        *((JOBS, make_job(name, {})) for name in ("waits", "runs", "ended")),
    )
    owners = {name: read(bare_server, JOBS, name) for name in ("waits", "runs", "ended")}
    finished = {"conditions": [{"type": "Finished", "reason": "Succeeded", **TRUE}]}
    fill(
        bare_server,
        (WORKLOADS, own(make_workload("w-waits", pods=1), owners["waits"])),
        (WORKLOADS, {**own(make_workload("w-runs", pods=1), owners["runs"]), "status": RUNS}),
        (WORKLOADS, {**own(make_workload("w-ended", pods=1), owners["ended"]), "status": finished}),
    )
    return bare_server


def read(kubeconfig: str, kind: Resource, name: str) -> dict[str, Any]:
    """Return an object, {} if it does not exist."""

    async def get() -> dict[str, Any]:
        async with await KubeClient.connect(kubeconfig) as client:
            try:
                found = await client.get(kind, name, "speech" if kind.namespaced else None)
            except NotFound:
                return {}
            return dict(msgspec.json.decode(found))

    return asyncio.run(get())


def verb(kubeconfig: str, *words: str) -> int:
    """Run a verb in the namespace of the Jobs."""
    return main([*words, "-n", "speech", "--kubeconfig", kubeconfig])


# One cluster serves all rows: each names an object of its own.
CHANGES: list[tuple[str, Resource, str, tuple[str, ...], object]] = [
    ("stop runs", WORKLOADS, "w-runs", ("spec", "active"), False),
    ("hold waits", WORKLOADS, "w-waits", ("spec", "active"), False),
    ("resume w-waits", WORKLOADS, "w-waits", ("spec", "active"), True),
    ("hold queue/main", LOCAL_QUEUES, "main", ("spec", "stopPolicy"), "Hold"),
    ("resume queue/main", LOCAL_QUEUES, "main", ("spec", "stopPolicy"), "None"),
    ("drain clusterqueue/speech", CLUSTER_QUEUES, "speech", ("spec", "stopPolicy"), "HoldAndDrain"),
    ("priority waits urgent", JOBS, "waits", ("metadata", "labels", PRIORITY_CLASS), "urgent"),
    ("cancel runs", JOBS, "runs", ("metadata", "name"), None),
]


def test_each_verb_changes_its_field(cluster: str) -> None:
    for words, kind, name, path, want in CHANGES:
        assert verb(cluster, *words.split()) == ExitCode.DONE, words

        found: Any = read(cluster, kind, name)
        for part in path:
            found = (found or {}).get(part)
        assert found == want, words


REFUSALS = [
    ("hold runs", ExitCode.DOES_NOT_HOLD, "to end its run: berth stop"),
    ("resume waits", ExitCode.DOES_NOT_HOLD, "is not stopped"),
    ("stop ended", ExitCode.DOES_NOT_HOLD, "has finished"),
    ("stop typo", ExitCode.WRONG_USAGE, "nor one of a Job typo"),
    ("cancel typo", ExitCode.WRONG_USAGE, "has no Job typo"),
    ("drain runs", ExitCode.WRONG_USAGE, "for a Job: berth stop"),
    ("hold queue/typo", ExitCode.WRONG_USAGE, "no LocalQueue typo"),
    ("priority waits typo", ExitCode.WRONG_USAGE, "no WorkloadPriorityClass typo"),
]


def test_a_verb_that_cannot_apply_changes_nothing(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    objects = ((JOBS, "waits"), (WORKLOADS, "w-waits"), (WORKLOADS, "w-runs"), (LOCAL_QUEUES, "main"))
    before = [read(cluster, kind, name) for kind, name in objects]

    for words, want_code, want in REFUSALS:
        assert verb(cluster, *words.split()) == want_code, words
        assert want in capsys.readouterr().err

    assert [read(cluster, kind, name) for kind, name in objects] == before
