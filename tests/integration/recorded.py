"""Recorded clusters, created again on a real API server: many at once, each under names of its own.

A case is a cluster described by its objects, with Workloads that wait and Workloads that hold quota. Its
names get the case's number as prefix, so that a hundred clusters exist side by side and one controller serves
all.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.controlplane import Rest, RestError
from tests.integration.manifests import KUEUE, Object

# Where recorded cases may lie, `*.cases.jsonl.gz`: as the environment says, else beside the checkout.
FOLDER = Path(
    os.environ.get("BERTH_RECORDED_CASES") or Path(__file__).resolve().parents[3] / "shared" / "conformance"
)
_PLURALS = {
    "ResourceFlavor": "resourceflavors",
    "Cohort": "cohorts",
    "ClusterQueue": "clusterqueues",
    "LocalQueue": "localqueues",
    "Workload": "workloads",
}
# What comes first is needed by what follows.
_KINDS = ("Namespace", *_PLURALS)


def recorded_cases(count: int, *, fair_sharing: bool) -> Sequence[Object]:
    """Return `count` cases without topology, spread evenly over all; fewer where there are not as many."""
    found = [case for case in _all_cases() if _is_suitable(case) and case["fairSharing"] is fair_sharing]
    step = max(1, len(found) // count)
    return found[::step][:count]


def _all_cases() -> Iterator[Object]:
    for path in sorted(FOLDER.glob("*.cases.jsonl.gz")):
        with gzip.open(path, "rt") as lines:
            yield from map(json.loads, lines)


def _is_suitable(case: Object) -> bool:
    """Return whether a case is made of what can be created here."""
    kinds = {one["kind"] for one in case["objects"]}
    return "Workload" in kinds and kinds.issubset(_KINDS)


def create_case(rest: Rest, case: Object, prefix: str) -> bool:
    """Create the objects of a case under prefixed names. Returns False where the API refuses one of them.

    Of objects that the API refuses nothing is left behind that could admit or wait: queues come before
    Workloads, and Workloads that were created already are deleted.
    """
    objects = sorted(
        case["objects"],
        key=lambda one: (_KINDS.index(one["kind"]), one["metadata"].get("creationTimestamp", "")),
    )
    created: list[str] = []
    try:
        for one in objects:
            _create(rest, _renamed(one, prefix), created)
    except RestError as error:
        if error.status != 422:
            raise
        for path in created:
            rest.delete(path)
        return False
    return True


def _create(rest: Rest, obj: Object, created: list[str]) -> None:
    metadata = obj["metadata"]
    if obj["kind"] == "Namespace":
        rest.create("/api/v1/namespaces", obj)
        return
    within = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    collection = f"/apis/{KUEUE}/{within}{_PLURALS[obj['kind']]}"
    # The status is kept apart: a create does not take it.
    stored = rest.create(collection, obj)
    path = f"{collection}/{metadata['name']}"
    if obj["kind"] == "Workload":
        created.append(path)
        if status := obj.get("status"):
            rest.request("PUT", f"{path}/status", {**stored, "status": _complete(status)})


def _complete(status: Object) -> Object:
    """Return a Workload's status with what the API asks of conditions."""
    conditions = [
        {**one, "message": one.get("message") or "recorded"} for one in status.get("conditions", ())
    ]
    return {**status, "conditions": conditions}


def _renamed(obj: Object, prefix: str) -> Object:
    metadata = {
        key: value
        for key, value in obj["metadata"].items()
        if key not in ("uid", "creationTimestamp", "generation")
    }
    metadata["name"] = prefix + metadata["name"]
    if "namespace" in metadata:
        metadata["namespace"] = prefix + metadata["namespace"]
    renamed = {key: _rename_references(value, prefix) for key, value in obj.items() if key != "metadata"}
    return {**renamed, "metadata": metadata}


def _rename_references(value: Any, prefix: str) -> Any:
    """Prefix every name that a spec or status says of another object."""
    if isinstance(value, list):
        return [_rename_references(one, prefix) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _renamed_field(key, one, prefix) for key, one in value.items()}


def _renamed_field(key: str, value: Any, prefix: str) -> Any:
    if key in ("cohortName", "parentName", "clusterQueue", "queueName"):
        return prefix + value if value else value
    if key == "flavors" and isinstance(value, dict):
        return {resource: prefix + flavor for resource, flavor in value.items()}
    if key == "flavors":
        return [{**flavor, "name": prefix + flavor["name"]} for flavor in value]
    return _rename_references(value, prefix)
