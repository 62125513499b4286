"""PodGroups of the scheduler-plugins project on a control plane: a definition of the kind, and its objects.

Only the fields that Berth reads have a schema here. Source: scheduler-plugins, apis/scheduling/v1alpha1.
"""

from __future__ import annotations

from typing import Any

from tests.integration.manifests import Object

GROUP = "scheduling.x-k8s.io"
LABEL = f"{GROUP}/pod-group"
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"podgroups.{GROUP}",
        # The server refuses definitions in groups of Kubernetes without it.
        "annotations": {
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
        },
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "podgroups",
            "singular": "podgroup",
            "kind": "PodGroup",
            "listKind": "PodGroupList",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "minMember": {"type": "integer", "format": "int32"},
                                    "scheduleTimeoutSeconds": {"type": "integer", "format": "int32"},
                                },
                            },
                            "status": _ANY,
                        },
                    }
                },
            }
        ],
    },
}


def path(namespace: str) -> str:
    """Return where the PodGroups of a namespace are."""
    return f"/apis/{GROUP}/v1alpha1/namespaces/{namespace}/podgroups"


def make_pod_group(name: str, **spec: Any) -> Object:
    """Return a PodGroup."""
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
