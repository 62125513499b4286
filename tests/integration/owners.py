"""Objects of the kinds of the table of owners as users write them, for their real controllers to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from api.jobs.owners.jobset import JOB_SET
from api.jobs.owners.row import OwnerKind
from tests.integration.manifests import QUEUE_NAME, RUNTIME, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A kind, the controller that runs it, and a spec whose pods take `cpus` CPUs in all.

    `spec` is called with how long the pods run.
    """

    row: OwnerKind
    controller: str
    spec: Any
    cpus: int
    pod_sets: Mapping[str, int] = field(default_factory=dict)

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of an object, or of all in a namespace."""
        row = self.row
        collection = f"/apis/{row.group}/{row.version}/namespaces/{namespace}/{row.plural}"
        return f"{collection}/{name}" if name else collection

    def object(self, name: str, seconds: float, **labels: str) -> Object:
        """Return an object in queue main, as a user writes it: nothing says that it is to be suspended."""
        return {
            "apiVersion": self.row.api_version,
            "kind": self.row.kind,
            "metadata": {"name": name, "labels": {QUEUE_NAME: "main", **labels}},
            "spec": self.spec(seconds),
        }


def template(seconds: float, name: str = "main") -> Object:
    """Return a pod template that takes one CPU and runs for so long on a simulated node."""
    container = {"name": name, "image": "none", "resources": {"requests": {"cpu": 1}}}
    return {
        "metadata": {"annotations": {RUNTIME: f"{seconds:g}"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _jobset(seconds: float) -> Object:
    def replicated(name: str, replicas: int, pods: int) -> Object:
        spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template(seconds)}
        return {"name": name, "replicas": replicas, "template": {"spec": spec}}

    return {"replicatedJobs": [replicated("driver", 1, 1), replicated("workers", 2, 1)]}


MANIFESTS = (
    Manifest(row=JOB_SET, controller="jobset", spec=_jobset, cpus=3, pod_sets={"driver": 1, "workers": 2}),
)
