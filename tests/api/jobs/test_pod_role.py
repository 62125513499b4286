"""The role of a pod in its group: digit for digit Kueue's, so that a group goes on after a changeover."""

from __future__ import annotations

from typing import Any

import pytest

from api.jobs.pod_role import role_hash, role_of

# What the API server adds to each pod before its webhooks see it.
ADDED: dict[str, Any] = {
    "priority": 0,
    "tolerations": [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ],
}
# Every field that counts, in another order than Go's.
FULL: dict[str, Any] = {
    "containers": [
        {
            "name": "c",
            "image": "i",
            "ports": [
                {"name": "web", "containerPort": 80, "protocol": "TCP", "hostPort": 0},
                {"hostIP": "10.0.0.1", "hostPort": 7, "containerPort": 8},
            ],
            "resources": {
                "limits": {"cpu": "2"},
                "requests": {
                    "memory": "1024Mi",
                    "cpu": "1500m",
                    "nvidia.com/gpu": "8",
                    "ephemeral-storage": "1500000000",
                },
            },
        },
        {"name": "d"},
    ],
    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "0.1"}}}],
    "nodeSelector": {"zone": "b", "a<b": "x&y"},
    "affinity": {
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "podAffinityTerm": {
                        "topologyKey": "zone",
                        "labelSelector": {
                            "matchExpressions": [{"values": ["b", "a"], "operator": "In", "key": "k"}],
                            "matchLabels": {"z": "1", "a": "2"},
                        },
                        "namespaces": ["n"],
                        "namespaceSelector": {},
                    },
                    "weight": 3,
                }
            ]
        },
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"preference": {"matchExpressions": [{"key": "g", "operator": "Exists"}]}, "weight": 1}
            ],
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]
            },
        },
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {},
                    "topologyKey": "host",
                    "mismatchLabelKeys": ["m"],
                    "matchLabelKeys": ["l"],
                }
            ]
        },
    },
    "tolerations": [
        {"effect": "NoExecute", "key": "é", "operator": "Exists", "tolerationSeconds": 0},
        {"value": "v", "key": "k"},
    ],
    "runtimeClassName": "kata",
    "priority": 7,
    "topologySpreadConstraints": [
        {
            "labelSelector": {"matchLabels": {"a": "b"}},
            "maxSkew": 1,
            "topologyKey": "zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "minDomains": 2,
            "nodeTaintsPolicy": "Honor",
            "nodeAffinityPolicy": "Ignore",
            "matchLabelKeys": ["v"],
        }
    ],
    "overhead": {"memory": "120Mi", "cpu": "250m"},
    "resourceClaims": [
        {"resourceClaimTemplateName": "t", "name": "gpu"},
        {"name": "other", "resourceClaimName": "c"},
    ],
    "resources": {"requests": {"cpu": "4"}, "limits": {"cpu": "4"}},
}


def asking(cpu: str) -> dict[str, Any]:
    """Return a pod spec with one container that requests so much."""
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **ADDED}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        # The first two are the pod sets of Kueue's own tests, the third is what Go computes.
        pytest.param(
            {"containers": [{"name": "c"}], **ADDED}, "bf90803c", id="of a pod that requests nothing"
        ),
        pytest.param(asking("1"), "4b0469f7", id="of one that requests a CPU"),
        pytest.param(FULL, "6541f894", id="of one with every field"),
        pytest.param(asking("1000m"), "4b0469f7", id="of the same amount in other words"),
        pytest.param(
            {**asking("1"), "nodeName": "n", "schedulingGates": [{"name": "g"}]}, "4b0469f7", id="on a node"
        ),
    ],
)
def test_a_role_is_kueues(spec: dict[str, Any], want: str) -> None:
    assert role_hash(spec) == want


def test_the_role_that_was_recorded_counts_after_a_start_has_changed_the_pod() -> None:
    annotations = {"kueue.x-k8s.io/role-hash": "recorded"}

    assert role_of({"metadata": {"annotations": annotations}, "spec": asking("2")}) == "recorded"
    assert role_of({"metadata": {}, "spec": asking("1")}) == "4b0469f7"
