"""`berth doctor`: what it reports of a cluster to people, scripts and kubectl."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import yaml

from admission.cli.__main__ import main
from admission.cli.common.errors import ExitCode
from admission.cli.common.job_manifests import cluster_queue
from admission.cli.trial.embedded_cluster import create, install_kinds
from api.kube.client import KubeClient
from api.kube.errors import Forbidden
from api.kube.resources import (
    ADMISSION_POLICIES,
    CLUSTER_QUEUES,
    NODES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    VALIDATING_WEBHOOKS,
    WORKLOADS,
    Resource,
)

SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
HOST = "kubernetes.io/hostname"


def make_node(name: str, *, gpus: int = 8, **labels: str) -> dict[str, Any]:
    keys = {"spine": SPINE, "leaf": LEAF}
    amounts = {"cpu": "64", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": {HOST: name, **{keys[key]: one for key, one in labels.items()}}},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


LEFT_OVER = {
    "metadata": {"name": "kueue-validating-webhook-configuration"},
    "webhooks": [
        {
            "name": "vjob.kb.io",
            "clientConfig": {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service"}},
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ],
}
TWO_LEAVES = [make_node(f"n{index}", spine="s", leaf=f"l{index // 2}") for index in range(4)]


def fill(kubeconfig: str, *objects: tuple[Resource, dict[str, Any]]) -> str:
    async def put() -> None:
        async with await KubeClient.connect(kubeconfig) as client:
            await install_kinds(client)
            for resource, manifest in objects:
                head = {"apiVersion": resource.api_version, "kind": resource.kind}
                await create(client, resource, {**head, **manifest})
                if resource is WORKLOADS:
                    status, metadata = json.dumps({"status": manifest["status"]}), manifest["metadata"]
                    where = metadata["name"], status.encode(), metadata["namespace"]
                    await client.merge_patch(resource, *where, subresource="status")

    asyncio.run(put())
    return kubeconfig


def diagnose(capsys: pytest.CaptureFixture[str], kubeconfig: str, *flags: str) -> tuple[int, str]:
    code = main(["doctor", "--kubeconfig", kubeconfig, *flags])
    return code, capsys.readouterr().out


def test_the_hierarchy_is_found_by_its_labels(bare_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(bare_server, *((NODES, node) for node in TWO_LEAVES))

    code, out = diagnose(capsys, bare_server)

    lines = [line.split() for line in out.splitlines()]
    assert code == ExitCode.DONE
    assert out.startswith("4 nodes, 4 ready, 32 nvidia.com/gpu\n")
    assert "preset topograph0 (topograph up to 0.5): 4 of 4 nodes carry every level" in out
    assert [SPINE, "1", "4", "0"] in lines
    assert [LEAF, "2", "2", "0"] in lines


def test_the_topology_can_be_applied_as_printed(bare_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(bare_server, *((NODES, node) for node in TWO_LEAVES))
    _, out = diagnose(capsys, bare_server, "-o", "topology")

    fill(bare_server, (TOPOLOGIES, yaml.safe_load(out)))
    _, out = diagnose(capsys, bare_server)

    assert "Topology default: 4 of 4 nodes carry every level" in out
    assert "To use this hierarchy" not in out


def test_a_node_without_a_level_is_named_and_one_without_devices_is_not_meant(
    bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = [make_node("lost", spine="s"), make_node("control-plane", gpus=0)]
    fill(bare_server, *((NODES, node) for node in (*TWO_LEAVES, *others)))

    code, out = diagnose(capsys, bare_server)

    assert code == ExitCode.DONE
    assert f"1 of 5 nodes lack the label {LEAF} and are no part of the topology: lost" in out
    assert "control-plane" not in out
    assert "control-plane" in diagnose(capsys, bare_server, "--all-nodes")[1]


def test_a_webhook_that_kueue_left_behind_is_named_with_the_command_that_removes_it(
    bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(bare_server, (VALIDATING_WEBHOOKS, LEFT_OVER))

    code, out = diagnose(capsys, bare_server)

    assert code == ExitCode.DOES_NOT_HOLD
    assert "kubectl delete validatingwebhookconfigurations kueue-validating-webhook-configuration" in out


def test_a_flavor_of_an_unknown_topology_is_named(
    bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(
        bare_server,
        (
            RESOURCE_FLAVORS,
            {"metadata": {"name": "a100"}, "spec": {"topologyName": "gone", "nodeLabels": {"a": "b"}}},
        ),
    )

    code, out = diagnose(capsys, bare_server)

    assert code == ExitCode.DOES_NOT_HOLD
    assert "ResourceFlavor a100 names the Topology 'gone', which does not exist" in out


@pytest.mark.parametrize(
    ("quota", "want_code", "want"),
    [
        pytest.param(16, ExitCode.DONE, "nodes match quotas", id="as much as the nodes have"),
        pytest.param(
            20,
            ExitCode.DOES_NOT_HOLD,
            "ResourceFlavor a100: quotas add up to 40 nvidia.com/gpu, and its 4 ready nodes have 32",
            id="more than the nodes have",
        ),
    ],
)
def test_quotas_are_compared_with_the_nodes_of_their_flavor(
    quota: int, want_code: ExitCode, want: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flavor = {"metadata": {"name": "a100"}, "spec": {"nodeLabels": {SPINE: "s"}}}
    queues = [
        cluster_queue(name, flavor="a100", nominal={"nvidia.com/gpu": quota}, cohort="c")
        for name in ("speech", "vision")
    ]
    other = make_node("other", spine="another")
    fill(
        bare_server,
        *((NODES, node) for node in (*TWO_LEAVES, other)),
        (RESOURCE_FLAVORS, flavor),
        *((CLUSTER_QUEUES, queue) for queue in queues),
    )

    code, out = diagnose(capsys, bare_server)

    assert code == want_code
    assert want in out


def test_workloads_that_nothing_can_ever_start_are_named(
    bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def workload(number: int, reason: str) -> tuple[Resource, dict[str, Any]]:
        says = {"message": "none of 2 nodes has the hardware", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        condition = {"type": "QuotaReserved", "status": "False", "reason": reason, **says}
        metadata = {"name": f"w{number:02}", "namespace": "default"}
        return WORKLOADS, {"metadata": metadata, "status": {"conditions": [condition]}}

    waiting = workload(99, "WaitingForQuota")
    fill(bare_server, *(workload(number, "Misconfigured") for number in range(12)), waiting)

    code, out = diagnose(capsys, bare_server)

    assert code == ExitCode.DOES_NOT_HOLD
    assert "Workload default/w09 cannot start: none of 2 nodes has the hardware" in out
    assert "2 more Workloads are misconfigured: berth get workloads" in out
    assert "w10" not in out
    assert "w99" not in out


@pytest.mark.parametrize(
    ("base", "want"),
    [
        pytest.param("gone", "spec.base is 'gone', but no valid AdmissionPolicy has this name", id="no base"),
        pytest.param("research", "spec.base leads in a circle: research -> research", id="a circle"),
    ],
)
def test_a_policy_that_is_not_in_force_is_named(
    base: str, want: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(bare_server, (ADMISSION_POLICIES, {"metadata": {"name": "research"}, "spec": {"base": base}}))

    code, out = diagnose(capsys, bare_server)

    assert code == ExitCode.DOES_NOT_HOLD
    assert f"AdmissionPolicy research: {want}" in " ".join(out.split())


def test_what_may_not_be_read_is_not_said_to_be_in_order(
    bare_server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = KubeClient.list

    async def refuse(self: KubeClient, resource: Resource, *given: Any, **named: Any) -> Any:
        if resource in (VALIDATING_WEBHOOKS, TOPOLOGIES):
            raise Forbidden("you may not list them")
        return await listed(self, resource, *given, **named)

    fill(bare_server, (VALIDATING_WEBHOOKS, LEFT_OVER))
    monkeypatch.setattr(KubeClient, "list", refuse)

    code, out = diagnose(capsys, bare_server)
    _, body = diagnose(capsys, bare_server, "-o", "json")

    assert code == ExitCode.DONE
    assert "Nothing that may be read keeps Jobs from starting." in out
    assert "not checked, because you may not list them: topologies, validatingwebhookconfigurations" in out
    assert json.loads(body)["skipped"] == ["topologies", "validatingwebhookconfigurations"]


def test_scripts_read_all_of_it_as_json(bare_server: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(bare_server, *((NODES, node) for node in TWO_LEAVES))

    _, out = diagnose(capsys, bare_server, "-o", "json", "--levels", f"{LEAF},{HOST}")

    found = json.loads(out)
    assert found["devices"] == {"nvidia.com/gpu": 32}
    assert [level["domains"] for level in found["views"][0]["hierarchy"]["levels"]] == [2, 4]
    assert found["views"][0]["topology"]["spec"]["levels"] == [{"nodeLabel": LEAF}, {"nodeLabel": HOST}]


@pytest.mark.parametrize(
    ("flags", "want"),
    [
        pytest.param(
            ["--preset", "azure"], "no label preset is named 'azure'; known are nvl72", id="unknown preset"
        ),
        pytest.param(
            ["--preset", "aws"], "no node carries a label of the preset aws", id="preset without labels"
        ),
        pytest.param(["--levels", "a,,b"], "--levels 'a,,b' has an empty key", id="empty level"),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    flags: list[str], want: str, bare_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--kubeconfig", bare_server, *flags]) == ExitCode.WRONG_USAGE

    assert want in capsys.readouterr().err
