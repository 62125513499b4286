"""The numbers of workers of an elastic RayJob or RayService, which the autoscaler writes into RayClusters.

KubeRay copies `enableInTreeAutoscaling` to the RayCluster that it creates, and the autoscaler changes that
alone. So what pods there are is read from the cluster, for as long as there is one. An upgrade of a
RayService has two clusters, and the pods of both need quota.
Source: Kueue, pkg/controller/jobs/raycluster/common.go, UpdatePodSets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api import keys
from api.jobs.owners.paths import Body, Path, replaced, value_at
from api.jobs.owners.row import Read
from api.jobs.pod_template import has_gate

# Where an object as scaled has the metadata of its RayClusters. No object of the API has such a field.
_CLUSTERS = "rayClusters"


def as_scaled(body: Body, read: Read, at: Path, names: Iterable[str | None]) -> Body:
    """Return an object with the numbers of workers of its RayClusters; as it is while it has none.

    `at` is the path of the specification of a RayCluster in it, and `names` are those of its clusters.
    """
    spec = value_at(body, at)
    annotations = value_at(body, ("metadata", "annotations")) or {}
    if annotations.get(keys.ELASTIC_JOB) != "true" or not (spec or {}).get("enableInTreeAutoscaling"):
        return body
    namespace = body["metadata"].get("namespace", "")
    found = (read("RayCluster", namespace, name) for name in dict.fromkeys(names) if name)
    clusters = [one for one in found if one is not None and _has_pods_of(one, body)]
    if not clusters:
        return body
    head = _gated_as(spec["headGroupSpec"], [one["spec"]["headGroupSpec"] for one in clusters])
    groups = [_scaled(group, clusters) for group in spec.get("workerGroupSpecs") or ()]
    scaled = replaced(body, at, {**spec, "headGroupSpec": head, "workerGroupSpecs": groups})
    return {**scaled, _CLUSTERS: [one["metadata"] for one in clusters]}


def heads(body: Body) -> int:
    """Return how many heads an object as scaled has: one for each of its RayClusters."""
    return max(1, len(body.get(_CLUSTERS) or ()))


def slice_suffixes(body: Body) -> tuple[str, ...]:
    """Return the generations of its RayClusters, as Kueue has them in the name of a slice, and their uids.

    A cluster that replaces another begins with its first generation again.
    """
    fields = ("generation", "uid") if (found := body.get(_CLUSTERS)) else ()
    return tuple("_".join(str(one[field]) for one in found or ()) for field in fields)


def _has_pods_of(cluster: Body, body: Body) -> bool:
    """Return whether the cluster is one of this object, not another of its name, and not suspended."""
    if value_at(cluster, ("spec", "suspend")):
        return False
    owners = value_at(cluster, ("metadata", "ownerReferences")) or ()
    return any(one.get("controller") and one.get("uid") == body["metadata"].get("uid") for one in owners)


def _scaled(group: Body, clusters: Sequence[Body]) -> Body:
    name = group["groupName"]
    found = (one for each in clusters for one in each["spec"].get("workerGroupSpecs") or ())
    theirs = [one for one in found if one["groupName"] == name]
    counts = [one["replicas"] for one in theirs if one.get("replicas") is not None]
    return {**_gated_as(group, theirs), **({"replicas": sum(counts)} if counts else {})}


def _gated_as(group: Body, theirs: Sequence[Body]) -> Body:
    """Return a group without its gate if its pods have none in a cluster: they would run without quota."""
    if all(has_gate(one["template"], keys.ELASTIC_GATE) for one in theirs):
        return group
    at = ("template", "spec", "schedulingGates")
    gates = [one for one in value_at(group, at) or () if one.get("name") != keys.ELASTIC_GATE]
    ungated: Body = replaced(group, at, gates)
    return ungated
