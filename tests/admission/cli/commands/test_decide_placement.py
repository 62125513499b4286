"""`berth decide` with an AdmissionPolicy's placement: the manifests of a cluster in, places out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from admission.cli.__main__ import main
from admission.cli.common.job_manifests import GPU, cluster_queue, local_queue, namespace
from api.keys import HOSTNAME

RACK = "example.com/rack"
KUEUE = "kueue.x-k8s.io/v1beta2"


def make_node(name: str, rack: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, "gpu": "a100", RACK: rack}},
        "status": {
            "allocatable": {GPU: "8", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_workload(name: str, *, priority: int, **annotations: str) -> dict[str, Any]:
    """Return a Workload of one pod with 8 GPUs that may run anywhere; the higher priority goes first."""
    container = {"name": "main", "image": "x", "resources": {"requests": {GPU: "8"}}}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [container]}}
    pod_set = {"name": "main", "count": 1, "template": template, "topologyRequest": {"unconstrained": True}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "speech"},
        "spec": {"queueName": "main", "priority": priority, "podSets": [pod_set]},
    }


def pinned(workload: dict[str, Any], node: str) -> dict[str, Any]:
    """Return the Workload with a node selector."""
    workload["spec"]["podSets"][0]["template"]["spec"]["nodeSelector"] = {HOSTNAME: node}
    return workload


CLUSTER = [
    {
        "apiVersion": KUEUE,
        "kind": "Topology",
        "metadata": {"name": "default"},
        "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]},
    },
    {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": "a100"},
        "spec": {"nodeLabels": {"gpu": "a100"}, "topologyName": "default"},
    },
    cluster_queue("speech", flavor="a100", nominal={GPU: 64}, cohort="research"),
    namespace("speech"),
    local_queue("main", "speech", "speech"),
    *(make_node(f"n{index}", f"r{index // 2}") for index in range(4)),
]


def decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: dict[str, Any]
) -> dict[str, list[str]]:
    """Return the nodes that each Workload gets."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*CLUSTER, *objects]}))
    assert main(["decide", "-f", str(path), "-o", "json"]) == 0
    admissions = json.loads(capsys.readouterr().out)["admissions"]
    return {
        key.partition("/")[2]: [one["values"][-1] for one in admission["podSets"][0]["topology"]]
        for key, admission in admissions.items()
    }


@pytest.mark.covers("002_18")
@pytest.mark.parametrize(
    ("fragmentation", "want"),
    [
        pytest.param("Avoid", "n2", id="in the rack where others are, so that one stays whole"),
        pytest.param("Ignore", "n0", id="on the first free node, as Kueue does"),
    ],
)
def test_work_that_may_run_anywhere_goes(
    fragmentation: str, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {
        "apiVersion": "berth.dev/v1alpha1",
        "kind": "AdmissionPolicy",
        "metadata": {"name": "whole-racks"},
        "spec": {"placement": {"fragmentation": fragmentation}},
    }
    first = pinned(make_workload("first", priority=2), "n3")

    placed = decide(tmp_path, capsys, policy, first, make_workload("second", priority=1))

    assert placed == {"first": ["n3"], "second": [want]}
