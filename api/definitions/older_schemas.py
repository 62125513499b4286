"""The schema of v1beta1, derived from that of v1beta2: a line for each difference between the two.

v1beta1 has the fields of v1beta2 under their older names, the fields that v1beta2 has dropped, so that old
manifests pass kubectl's strict validation, and the fields that Kueue added to v1beta2 alone, so that nothing
is lost on the way there and back (`older_form`). Rules (CEL) are those of v1beta2 in the older names, because
the API server checks an object by the schema of the version that it was sent in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from api.definitions.bounds import bounded
from api.definitions.conversion import PRIORITY_SOURCES
from api.models.markers import LIST_TYPE, PRESERVE, RULES

Schema = dict[str, Any]

# Fields of v1beta1 that v1beta2 has not. Nothing reads them, so their content is left open.
_OPEN: Schema = {"type": "object", PRESERVE: True}
_ADMISSION_CHECKS: Schema = {
    "description": "Names of AdmissionChecks that apply to every flavor.",
    "type": "array",
    LIST_TYPE: "atomic",
    "items": {"type": "string", "maxLength": 316},
}
_PENDING: Schema = {"description": "No longer reported; see the visibility API.", **_OPEN}
_FLAVORS: Schema = {
    "description": "No longer reported.",
    "type": "array",
    LIST_TYPE: "atomic",
    "items": _OPEN,
}
_PAST_USAGE: Schema = {"description": "No longer reported.", **_OPEN}
_RETRY_DELAY: Schema = {
    "description": "Without effect, as in v1beta2, which has no such field.",
    "type": "integer",
    "format": "int64",
}
_SOURCE: Schema = {
    "description": "What priorityClassName names.",
    "type": "string",
    "default": "",
    "enum": [*PRIORITY_SOURCES, ""],
}
_DOMAINS: Schema = {
    "description": "Domains in which the pods run.",
    "type": "array",
    LIST_TYPE: "atomic",
    "items": {
        "type": "object",
        "required": ["count", "values"],
        "properties": {
            "count": {
                "description": "Number of pods in the domain.",
                "type": "integer",
                "format": "int32",
                "minimum": 1,
            },
            "values": {
                "description": "Values of the domain, one per level.",
                "type": "array",
                "minItems": 1,
                "maxItems": 16,
                LIST_TYPE: "atomic",
                "items": {"type": "string"},
            },
        },
    },
}


def older_schema(kind: str, schema: Schema) -> Schema:
    """Return the schema in v1beta1 of a kind of Kueue's whose schema in v1beta2 is given."""
    older = copy.deepcopy(schema)
    if change := _KINDS.get(kind):
        change(older)
    return bounded(older)


def older_path(kind: str, path: str) -> str:
    """Return the path of a field of v1beta2 in v1beta1, as columns name it (.spec.cohortName)."""
    return _PATHS.get((kind, path), path)


_PATHS: Mapping[tuple[str, str], str] = {("ClusterQueue", ".spec.cohortName"): ".spec.cohort"}


def _admission_check(schema: Schema) -> None:
    _at(schema, "spec")["retryDelayMinutes"] = _RETRY_DELAY


def _cluster_queue(schema: Schema) -> None:
    spec, status = _at(schema, "spec"), _at(schema, "status")
    _rename(spec, "cohortName", "cohort")
    _rename_in_rules(schema["properties"]["spec"], {"self.cohortName": "self.cohort"})
    spec["admissionChecks"] = _ADMISSION_CHECKS
    # v1beta1 accepts a strategy without checks.
    spec["admissionChecksStrategy"].pop("required")
    spec["admissionChecksStrategy"]["properties"]["admissionChecks"].pop("minItems")
    fungibility = _at(schema, "spec", "flavorFungibility")
    fungibility["whenCanBorrow"]["enum"] = [*fungibility["whenCanBorrow"]["enum"], "Borrow"]
    fungibility["whenCanPreempt"]["enum"] = [*fungibility["whenCanPreempt"]["enum"], "Preempt"]
    status["pendingWorkloadsStatus"] = _PENDING
    _cohort(schema)


def _cohort(schema: Schema) -> None:
    _at(schema, "status", "fairSharing")["admissionFairSharingStatus"] = _PAST_USAGE


def _local_queue(schema: Schema) -> None:
    status = _at(schema, "status")
    _rename(status, "flavorsUsage", "flavorUsage")
    status["flavors"] = _FLAVORS


def _workload(schema: Schema) -> None:
    spec, status = _at(schema, "spec"), _at(schema, "status")
    reference = spec.pop("priorityClassRef")
    spec["priorityClassName"] = {
        **reference["properties"]["name"],
        "description": "Name of the class that the priority was taken from.",
    }
    spec["priorityClassSource"] = _SOURCE
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    assignments = _at(schema, "status", "admission")["podSetAssignments"]["items"]
    topology = assignments["properties"]["topologyAssignment"]
    topology.pop(RULES)
    topology["properties"]["domains"] = _DOMAINS
    topology["properties"].pop("slices")
    topology["required"] = ["domains", "levels"]
    _rename_in_rules(schema, _CLASS_NAMES)
    _rename_in_rules(schema["properties"]["spec"], _CLASS_NAMES)


# Longer ones first, because all begin with the last.
_CLASS_NAMES: Mapping[str, str] = {
    "priorityClassRef.kind == 'PriorityClass'": "priorityClassSource == 'scheduling.k8s.io/priorityclass'",
    "priorityClassRef.kind": "priorityClassSource",
    "priorityClassRef.group": "priorityClassSource",
    "priorityClassRef.name": "priorityClassName",
    "priorityClassRef": "priorityClassName",
}
_KINDS: Mapping[str, Callable[[Schema], None]] = {
    "AdmissionCheck": _admission_check,
    "ClusterQueue": _cluster_queue,
    "Cohort": _cohort,
    "LocalQueue": _local_queue,
    "Workload": _workload,
}


def _at(schema: Schema, *path: str) -> Schema:
    """Return the properties of the object at the path."""
    for name in path:
        schema = schema["properties"][name]
    properties: Schema = schema["properties"]
    return properties


def _rename(properties: Schema, old: str, new: str) -> None:
    properties[new] = properties.pop(old)


def _rename_in_rules(schema: Schema, names: Mapping[str, str]) -> None:
    renamed = [{key: _renamed(text, names) for key, text in rule.items()} for rule in schema[RULES]]
    # Rules on two fields of v1beta2 that are one in v1beta1 have become the same.
    schema[RULES] = [rule for index, rule in enumerate(renamed) if rule not in renamed[:index]]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for new, old in names.items():
        text = text.replace(new, old)
    return text
