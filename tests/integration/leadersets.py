"""LeaderWorkerSets on a real control plane: a definition of the kind, and a player of its controller.

What Berth meets of such a set are pods with its labels that come and go through StatefulSets: one for the
leaders of all groups, and one a group for its workers, which goes with its leader. The player makes those;
the StatefulSets and the garbage collector are the server's own. Its API has more fields than are shown here:
only what Berth or the player reads. Source: LWS, docs/concepts and the labels that its pods carry.
"""

from __future__ import annotations

import copy
from typing import Any

from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object
from tests.integration.scene import Scene

GROUP = "leaderworkerset.x-k8s.io"
_LABEL = "leaderworkerset.sigs.k8s.io/"
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"leaderworkersets.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "leaderworkersets",
            "singular": "leaderworkerset",
            "kind": "LeaderWorkerSet",
            "listKind": "LeaderWorkerSetList",
        },
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "replicas": {"type": "integer", "default": 1},
                                    "leaderWorkerTemplate": {
                                        "type": "object",
                                        "properties": {
                                            "size": {"type": "integer", "default": 1},
                                            "leaderTemplate": _ANY,
                                            "workerTemplate": _ANY,
                                        },
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def make_leader_worker_set(name: str, *, replicas: int, size: int) -> Object:
    """Return a LeaderWorkerSet in queue main, whose pods take one CPU each and run for ever."""
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": 1}}}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {RUNTIME: f"{LONG:g}"}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "labels": {QUEUE_NAME: "main"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": size,
                "leaderTemplate": template,
                "workerTemplate": copy.deepcopy(template),
            },
        },
    }


class LeaderWorkerSetPlayer:
    """Does for one set what its controller would: call `play` until what is waited for has come about."""

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene = scene
        self._name = name
        self._sets = f"/apis/{GROUP}/v1/namespaces/{scene.namespace}/leaderworkersets"
        self._stateful = f"/apis/apps/v1/namespaces/{scene.namespace}/statefulsets"

    def create(self, *, replicas: int, size: int) -> None:
        """Create the set."""
        self._scene.rest.create(self._sets, make_leader_worker_set(self._name, replicas=replicas, size=size))

    def scale(self, replicas: int) -> None:
        """Set how many groups it has."""
        self._scene.rest.patch(f"{self._sets}/{self._name}", {"spec": {"replicas": replicas}})

    def play(self) -> None:
        """Make the StatefulSets that are missing, and scale that of the leaders."""
        found = self._scene.rest.get(f"{self._sets}/{self._name}")
        present = {one["metadata"]["name"]: one for one in self._scene.rest.get(self._stateful)["items"]}
        replicas = found["spec"]["replicas"]
        if self._name not in present:
            self._create_stateful(self._name, found, owner=found, replicas=replicas)
        elif present[self._name]["spec"]["replicas"] != replicas:
            self._scene.rest.patch(f"{self._stateful}/{self._name}", {"spec": {"replicas": replicas}})
        for pod in self._scene.rest.get(self._scene.pods)["items"]:
            labels, name = pod["metadata"]["labels"], pod["metadata"]["name"]
            is_leader = labels.get(f"{_LABEL}worker-index") == "0" and labels.get("app") == self._name
            if is_leader and name not in present and "deletionTimestamp" not in pod["metadata"]:
                workers = found["spec"]["leaderWorkerTemplate"]["size"] - 1
                self._create_stateful(name, found, owner=pod, replicas=workers)

    def _create_stateful(self, name: str, found: Object, *, owner: Object, replicas: int) -> None:
        is_of_leaders = name == self._name
        spec = found["spec"]["leaderWorkerTemplate"]
        template = copy.deepcopy(spec["leaderTemplate" if is_of_leaders else "workerTemplate"])
        metadata = template["metadata"]
        role = {f"{_LABEL}worker-index": "0"} if is_of_leaders else {}
        numbered = {} if is_of_leaders else {f"{_LABEL}group-index": name.rpartition("-")[2]}
        metadata["labels"] |= {f"{_LABEL}name": self._name, "group": name, **role, **numbered}
        metadata["annotations"] = {**metadata.get("annotations", {}), f"{_LABEL}size": str(spec["size"])}
        reference = {
            "apiVersion": owner.get("apiVersion", "v1"),
            "kind": owner.get("kind", "Pod"),
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        body: dict[str, Any] = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name, "ownerReferences": [reference]},
            "spec": {
                "replicas": replicas,
                "serviceName": self._name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": {"group": name}},
                "template": template,
                **({} if is_of_leaders else {"ordinals": {"start": 1}}),
            },
        }
        self._scene.rest.create(self._stateful, body)
