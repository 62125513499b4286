"""The statuses that a kubelet writes during the run of a pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from api.kube.embedded.standins.objects import Pod

# Exit code of a process that was ended by SIGTERM: 128 plus the number of the signal.
EXIT_AFTER_SIGTERM: Final = 143


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How the run of a pod is simulated."""

    seconds: float
    exit_code: int
    shutdown_seconds: float


def running(pod: Pod, *, pod_ip: str, host_ip: str, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have started."""
    states = [_container(each.name, each.image, {"running": {"startedAt": now}}) for each in _containers(pod)]
    return {
        "phase": "Running",
        "startTime": now,
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "containerStatuses": states,
        "conditions": _conditions("True", None, now),
    }


def ended(pod: Pod, *, exit_code: int, now: str) -> dict[str, Any]:
    """Return the status of a pod whose containers have ended with `exit_code`."""
    reason = "Completed" if exit_code == 0 else "Error"
    started = pod.status.start_time or now
    state = {"terminated": {"exitCode": exit_code, "reason": reason, "startedAt": started, "finishedAt": now}}
    states = [_container(each.name, each.image, state) for each in _containers(pod)]
    phase = "Succeeded" if exit_code == 0 else "Failed"
    why = "PodCompleted" if exit_code == 0 else "PodFailed"
    return {"phase": phase, "containerStatuses": states, "conditions": _conditions("False", why, now)}


def _containers(pod: Pod) -> Sequence[Any]:
    return pod.spec.containers or ()


def _container(name: str, image: str, state: dict[str, Any]) -> dict[str, Any]:
    is_running = "running" in state
    return {
        "name": name,
        "image": image,
        "imageID": "",
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _conditions(ready: str, reason: str | None, now: str) -> list[dict[str, Any]]:
    """Return the conditions that the kubelet owns.

    The patch keeps that of the scheduler, which has another type.
    """
    return [
        _condition("Initialized", "True", reason if ready == "False" else None, now),
        _condition("Ready", ready, reason, now),
        _condition("ContainersReady", ready, reason, now),
    ]


def _condition(type_: str, status: str, reason: str | None, now: str) -> dict[str, Any]:
    condition = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": now}
    return condition if reason is None else {**condition, "reason": reason}
