"""The cluster autoscaler's part on a control plane: the definition of its requests, and its answers to them.

The definition is the autoscaler's own where `make moreowners` has fetched it. Else it has a schema for the
fields that Berth reads or writes alone. Source: cluster-autoscaler, apis.
"""

from __future__ import annotations

from tests.controlplane import AssetsMissing
from tests.controlplane.definitions import install_crds
from tests.controlplane.owner_controllers import MORE_CONTROLLERS, find_controller
from tests.integration.manifests import KUEUE, Object, kueue_object
from tests.integration.scene import Scene

GROUP = "autoscaling.x-k8s.io"
_TEXT: Object = {"type": "string"}
_TEXTS: Object = {"type": "object", "additionalProperties": _TEXT}

_DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"provisioningrequests.{GROUP}",
        # The server refuses definitions in groups of Kubernetes without it.
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "provisioningrequests",
            "singular": "provisioningrequest",
            "kind": "ProvisioningRequest",
            "listKind": "ProvisioningRequestList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "provisioningClassName": _TEXT,
                                    "parameters": {
                                        "type": "object",
                                        "maxProperties": 100,
                                        "additionalProperties": {"type": "string", "maxLength": 255},
                                    },
                                    "podSets": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "properties": {
                                                "count": {"type": "integer"},
                                                "podTemplateRef": {
                                                    "type": "object",
                                                    "properties": {"name": _TEXT},
                                                },
                                            },
                                        },
                                    },
                                },
                            },
                            "status": {
                                "type": "object",
                                "properties": {
                                    "conditions": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "x-kubernetes-preserve-unknown-fields": True,
                                        },
                                    },
                                    "provisioningClassDetails": _TEXTS,
                                },
                            },
                        },
                    }
                },
            }
        ],
    },
}


def definitions() -> list[Object]:
    """Return the definition of the requests: the autoscaler's own, if this machine has it."""
    try:
        return find_controller(MORE_CONTROLLERS["cluster-autoscaler"]).definitions
    except AssetsMissing:
        return [_DEFINITION]


def create_check(scene: Scene, name: str = "capacity", **spec: object) -> str:
    """Define the requests, and create an AdmissionCheck with its settings; return its full name."""
    install_crds(scene.rest, definitions())
    name, root = scene.scoped(name), f"/apis/{KUEUE}"
    settings = {"provisioningClassName": "test-class", **spec}
    scene.rest.create(
        f"{root}/provisioningrequestconfigs",
        kueue_object("ProvisioningRequestConfig", {"name": name}, settings),
    )
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    scene.rest.create(f"{root}/admissionchecks", kueue_object("AdmissionCheck", {"name": name}, check))
    return name


def requests_of(scene: Scene) -> list[Object]:
    """Return the ProvisioningRequests of a scene's namespace."""
    return list(
        scene.rest.get(f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/provisioningrequests")["items"]
    )


def answer(scene: Scene, request: str, type_: str, message: str = "", **details: str) -> None:
    """Write a condition of a request, as the autoscaler does."""
    condition = {
        "type": type_,
        "status": "True",
        "reason": type_,
        "message": message,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"conditions": [condition], "provisioningClassDetails": details}
    path = f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/provisioningrequests/{request}/status"
    scene.rest.patch(path, {"status": status})
