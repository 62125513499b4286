"""Manifests that demo and replay create: flavors, queues, and Jobs that simulated nodes can run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.simulation.shapes import GangShape
from api.keys import EXPECTED_RUNTIME_SECONDS, QUEUE_NAME
from queues.quota.resources import FlavorResource

Manifest = dict[str, Any]

GPU = "nvidia.com/gpu"
CPU = "cpu"
# How long the simulated kubelet lets a pod run, in its own seconds.
RUNTIME_ANNOTATION = "berth.dev/simulated-runtime-seconds"
# This taint keeps other users' pods off simulated nodes; the flavor adds the toleration.
SIMULATED_KEY = "berth.dev/simulated"
# Only this run's pods go to this run's nodes; the flavor adds the node selector.
NODE_POOL_LABEL = "berth.dev/node-pool"
# Simulated nodes never pull this image. On real nodes it is a small image that exists.
IMAGE = "registry.k8s.io/pause:3.10"
TOLERATION = {"key": SIMULATED_KEY, "operator": "Exists", "effect": "NoSchedule"}
_LONGEST_NAME = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A Job to create: `shape` defines its pods, `run_seconds` how long each pod runs once started.

    `node_cpus`: the CPUs that a pod on a whole node requests, so that no other pod fits beside it.
    `declared_seconds`: the run time that its owner declares; None: none is declared.
    """

    name: str
    namespace: str
    queue: str
    shape: GangShape
    run_seconds: float
    cpus_per_gpu: int = 0
    node_cpus: int = 0
    declared_seconds: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    """Return a Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": _metadata(name, labels=labels)}


def topology(name: str, levels: Iterable[str]) -> Manifest:
    """Return a Topology of these node labels, the widest domain first."""
    return _kueue("Topology", _metadata(name), {"levels": [{"nodeLabel": level} for level in levels]})


def resource_flavor(
    name: str, *, node_pool: str, labels: Mapping[str, str] | None = None, topology_name: str | None = None
) -> Manifest:
    """Return a ResourceFlavor that selects the simulated nodes of one pool."""
    spec: Manifest = {"nodeLabels": {NODE_POOL_LABEL: node_pool}, "tolerations": [TOLERATION]}
    if topology_name is not None:
        spec["topologyName"] = topology_name
    return _kueue("ResourceFlavor", _metadata(name, labels=labels), spec)


def cluster_queue(
    name: str,
    *,
    flavor: str,
    nominal: Mapping[str, int],
    cohort: str | None,
    labels: Mapping[str, str] | None = None,
) -> Manifest:
    """Return a ClusterQueue of one flavor that selects every namespace; `nominal` is quota by resource.

    If it has a cohort, it borrows and lends without limits.
    """
    spec: dict[str, Any] = {"namespaceSelector": {}, "resourceGroups": [_group(flavor, nominal)]}
    if cohort is not None:
        spec["cohortName"] = cohort
    return _kueue("ClusterQueue", _metadata(name, labels=labels), spec)


def cohort(
    name: str, *, flavor: str, nominal: Mapping[str, int], labels: Mapping[str, str] | None = None
) -> Manifest:
    """Return a Cohort with quota of its own, which all its ClusterQueues can borrow."""
    return _kueue("Cohort", _metadata(name, labels=labels), {"resourceGroups": [_group(flavor, nominal)]})


def local_queue(name: str, namespace: str, cluster_queue: str) -> Manifest:
    """Return a LocalQueue of `namespace` that leads to `cluster_queue`."""
    return _kueue("LocalQueue", _metadata(name, namespace), {"clusterQueue": cluster_queue})


def job(new_job: NewJob) -> Manifest:
    """Return a suspended Job of `new_job.shape`, which finishes when all its pods have succeeded."""
    requests = _requests(new_job)
    container = {
        "name": "main",
        "image": IMAGE,
        # Devices cannot be overcommitted: the API server requires the limit to equal the request.
        "resources": {"requests": requests, "limits": {k: v for k, v in requests.items() if k == GPU}},
    }
    annotations = {RUNTIME_ANNOTATION: f"{new_job.run_seconds:g}"}
    if new_job.declared_seconds is not None:
        annotations[EXPECTED_RUNTIME_SECONDS] = str(new_job.declared_seconds)
    template = {
        "metadata": {"annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }
    labels = {QUEUE_NAME: new_job.queue, **new_job.labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(new_job.name, new_job.namespace, labels=labels),
        "spec": {
            "suspend": True,
            "parallelism": new_job.shape.pods,
            "completions": new_job.shape.pods,
            "completionMode": "Indexed" if new_job.shape.pods > 1 else "NonIndexed",
            "backoffLimit": 0,
            "template": template,
        },
    }


def gpu_of(flavor: str) -> FlavorResource:
    """Return the flavor-resource in which the GPUs of a flavor are counted."""
    return FlavorResource(flavor, GPU)


def dns_name(text: str, *, prefix: str = "") -> str:
    """Return `text` as a DNS label: lower-case letters, digits and dashes, at most 63 characters."""
    name = re.sub(r"[^a-z0-9]+", "-", f"{prefix}{text}".lower()).strip("-")
    return name[:_LONGEST_NAME].strip("-") or "x"


def dns_names(texts: Iterable[str], *, prefix: str = "") -> dict[str, str]:
    """Return a DNS label for each text. Texts with the same label get a number appended."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for text in texts:
        name, number = dns_name(text, prefix=prefix), 1
        while name in taken:
            number += 1
            name = f"{dns_name(text, prefix=prefix)[: _LONGEST_NAME - 6]}-{number}"
        taken.add(name)
        names[text] = name
    return names


def _requests(new_job: NewJob) -> dict[str, int]:
    requests = {GPU: new_job.shape.gpus_per_pod} if new_job.shape.gpus_per_pod else {}
    if new_job.shape.whole_nodes and new_job.node_cpus:
        return {CPU: new_job.node_cpus, **requests}
    if new_job.cpus_per_gpu:
        # A pod without a GPU requests a CPU. Otherwise it would request nothing and get no flavor.
        return {CPU: max(1, new_job.shape.gpus_per_pod * new_job.cpus_per_gpu), **requests}
    return requests


def _group(flavor: str, nominal: Mapping[str, int]) -> Manifest:
    quotas = [{"name": resource, "nominalQuota": quota} for resource, quota in nominal.items()]
    return {"coveredResources": list(nominal), "flavors": [{"name": flavor, "resources": quotas}]}


def _kueue(kind: str, metadata: Manifest, spec: Manifest) -> Manifest:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, "spec": spec}


def _metadata(
    name: str, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
) -> Manifest:
    metadata: Manifest = {"name": name}
    if namespace is not None:
        metadata["namespace"] = namespace
    if labels:
        metadata["labels"] = dict(labels)
    return metadata
