"""Pods that are queued themselves, as the webhook leaves them, and the words in which tests speak of them."""

from __future__ import annotations

from typing import Any

from tests.integration.manifests import LONG, QUEUE_NAME, RUNTIME, Object, condition
from tests.integration.scene import Scene
from tests.integration.waiting import wait_for

KUEUE = "kueue.x-k8s.io/"
GATE = KUEUE + "admission"
# A Configuration with the integration of pods switched on.
CONFIG = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
integrations:
  frameworks: [batch/job, pod]
"""


def make_pod(
    name: str,
    *,
    queue: str | None = "main",
    cpus: object = 1,
    seconds: float = LONG,
    is_held: bool = True,
    labels: Object | None = None,
    annotations: Object | None = None,
    **spec: Any,
) -> Object:
    """Return a pod as the webhook leaves it; `is_held` False: as one without a gate."""
    held = {KUEUE + "managed": "true"} if is_held else {}
    named = {QUEUE_NAME: queue} if queue is not None else {}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpus}}}
    gates = {"schedulingGates": [{"name": GATE}]} if is_held else {}
    metadata: Object = {
        "name": name,
        "labels": {**held, **named, **(labels or {})},
        "annotations": {RUNTIME: f"{seconds:g}", **(annotations or {})},
    }
    if is_held:
        metadata["finalizers"] = [KUEUE + "managed"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **gates,
            **spec,
        },
    }


def member(name: str, group: str, total: int, **fields: Any) -> Object:
    """Return a pod of a group."""
    labels = {KUEUE + "pod-group-name": group, **fields.pop("labels", {})}
    annotations = {KUEUE + "pod-group-total-count": str(total), **fields.pop("annotations", {})}
    return make_pod(name, labels=labels, annotations=annotations, **fields)


def create(scene: Scene, *pods: Object) -> None:
    """Create pods."""
    for pod in pods:
        scene.rest.create(scene.pods, pod)


def pod_of(scene: Scene, name: str) -> Object | None:
    """Return a pod, None where there is none of this name."""
    return next((one for one in scene.rest.get(scene.pods)["items"] if one["metadata"]["name"] == name), None)


def is_gated(pod: Object) -> bool:
    """Return whether a pod waits at the gate."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def wait_pod(scene: Scene, name: str, phase: str) -> Object:
    """Return a pod once it is in this phase."""

    def probe() -> Object | None:
        pod = pod_of(scene, name)
        return pod if pod is not None and pod["status"]["phase"] == phase else None

    return wait_for(probe, f"pod {name} {phase}")


def wait_gone(scene: Scene, *names: str) -> None:
    """Return when none of these pods is there."""
    for name in names:
        wait_for(lambda name=name: pod_of(scene, name) is None, f"pod {name} gone")  # type: ignore[misc]


def wait_condition(scene: Scene, workload: str, type_: str, *, status: str = "True") -> Object:
    """Return a Workload once its condition has this status."""

    def probe() -> Object | None:
        items = scene.rest.get(scene.workloads)["items"]
        found = next((one for one in items if one["metadata"]["name"] == workload), None)
        return found if condition(found, type_).get("status") == status else None

    return wait_for(probe, f"Workload {workload} {type_}={status}")


def is_running(scene: Scene, *names: str) -> bool:
    """Return whether all these pods run."""
    pods = [pod_of(scene, name) for name in names]
    return all(pod is not None and pod["status"]["phase"] == "Running" for pod in pods)
