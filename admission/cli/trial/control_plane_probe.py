"""Detects whether an API server has a Job controller and a scheduler, by giving each a small task."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from admission.cli.common.job_manifests import CPU, IMAGE, NODE_POOL_LABEL, RUNTIME_ANNOTATION, TOLERATION
from admission.cli.trial.embedded_cluster import create
from api.kube.client import Body, KubeClient
from api.kube.errors import NotFound
from api.kube.resources import JOBS, LEASES, PODS
from api.parsing.times import to_seconds

# Idle clusters react within a second; a busy one gets ten.
_PATIENCE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_NAME = "berth-probe"
# The leases by which the real components elect their leaders, and how old the lease of a live one may be.
_LEASES = ("kube-controller-manager", "kube-scheduler")
_LIVING_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """The components that do not react."""

    job_controller: bool
    scheduler: bool

    def __str__(self) -> str:
        words = ["Job controller"] * self.job_controller + ["scheduler"] * self.scheduler
        return " and no ".join(words)

    def __bool__(self) -> bool:
        return self.job_controller or self.scheduler


async def find_missing(client: KubeClient, *, namespace: str, pool: str) -> Missing:
    """Return which components are missing: does a Job get a pod, and a pod a node of `pool`?

    Takes up to ten seconds if a component is missing. Deletes its objects afterwards.
    """
    template = _pod_template(pool)
    job = {"backoffLimit": 0, "template": template}
    try:
        await create(client, PODS, _object("v1", "Pod", namespace, template["spec"]))
        await create(client, JOBS, _object("batch/v1", "Job", namespace, job))
        has_pods, has_node = await asyncio.gather(
            _wait_for(lambda: _has_pods(client, namespace)), _wait_for(lambda: _has_node(client, namespace))
        )
    finally:
        await _clean(client, namespace)
    return Missing(job_controller=not has_pods, scheduler=not has_node)


async def has_control_plane(client: KubeClient) -> bool:
    """Return whether a real Job controller or scheduler holds its lease, even if it is too slow to react."""
    for name in _LEASES:
        with suppress(NotFound):
            lease = json.loads(await client.get(LEASES, name, "kube-system"))
            renewed = lease.get("spec", {}).get("renewTime")
            if renewed and time.time() - to_seconds(renewed) < _LIVING_SECONDS:
                return True
    return False


async def _has_pods(client: KubeClient, namespace: str) -> bool:
    params = {"labelSelector": f"job-name={_NAME}"}
    return bool(json.loads(await client.request("GET", PODS.path(namespace), params=params))["items"])


async def _has_node(client: KubeClient, namespace: str) -> bool:
    return bool(json.loads(await client.get(PODS, _NAME, namespace))["spec"].get("nodeName"))


async def _wait_for(condition: Callable[[], Awaitable[bool]]) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(_POLL_SECONDS)
    return False


async def _clean(client: KubeClient, namespace: str) -> None:
    with suppress(NotFound):
        await client.delete(JOBS, _NAME, namespace)
    # Delete the Job's pods as well: without a garbage collector they would remain.
    options = json.dumps({"gracePeriodSeconds": 0}).encode()
    await client.request("DELETE", PODS.path(namespace), body=Body(options))


def _pod_template(pool: str) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {RUNTIME_ANNOTATION: "3600"}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "nodeSelector": {NODE_POOL_LABEL: pool},
            "tolerations": [TOLERATION],
            "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": {CPU: "1"}}}],
        },
    }


def _object(api_version: str, kind: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": _NAME, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
