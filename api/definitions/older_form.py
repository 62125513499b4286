"""Conversion of objects from kueue.x-k8s.io/v1beta2 to v1beta1, for clients of the older version.

Fields that v1beta1 of Kueue does not have stay as they are, and Berth's definition of v1beta1 has them too:
what a client of the older version reads and writes back is then complete. So there and back is the same
object, where Kueue's conversion loses such a field. Malformed fields are left unchanged.

The functions take and return plain objects and never modify their arguments; the result shares unchanged
parts with the argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from api.definitions.conversion import NEW_VERSION, OLD_VERSION, PRIORITY_SOURCES, Object
from api.definitions.fields import Fields, changed, changed_items, moved, without
from api.objects.workloads import WireTopologyAssignment
from api.parsing.problems import SpecError
from api.topology_encoding import to_topology


def to_older(obj: Object) -> Object:
    """Return `obj` in v1beta1 if it is a v1beta2 object of Kueue, otherwise `obj` itself."""
    if obj.get("apiVersion") != NEW_VERSION:
        return obj
    change = _KINDS.get(str(obj.get("kind")))
    older = {**obj, "apiVersion": OLD_VERSION}
    return change(older) if change else older


def _cluster_queue(obj: Fields) -> Fields:
    return changed(obj, "spec", lambda spec: moved(spec, "cohortName", "cohort"))


def _local_queue(obj: Fields) -> Fields:
    return changed(obj, "status", lambda status: moved(status, "flavorsUsage", "flavorUsage"))


def _workload(obj: Fields) -> Fields:
    obj = changed(obj, "spec", _workload_spec)
    return changed(obj, "status", _workload_status)


_SOURCES: Mapping[tuple[str, str], str] = {names: source for source, names in PRIORITY_SOURCES.items()}


def _workload_spec(spec: Fields) -> Fields:
    reference = spec.get("priorityClassRef")
    if not isinstance(reference, dict):
        return spec
    source = _SOURCES.get((str(reference.get("group")), str(reference.get("kind"))))
    if source is None:
        return spec
    named = {"priorityClassName": reference.get("name"), "priorityClassSource": source}
    return {**without(spec, "priorityClassRef"), **named}


def _workload_status(status: Fields) -> Fields:
    # The misspelling is Kueue's.
    status = moved(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    return changed(status, "admission", _admission)


def _admission(admission: Fields) -> Fields:
    return changed_items(
        admission, "podSetAssignments", lambda item: changed(item, "topologyAssignment", _topology_assignment)
    )


def _topology_assignment(assignment: Fields) -> Fields:
    try:
        found = to_topology("", msgspec.convert(assignment, WireTopologyAssignment))
    # A client that writes it back is refused, because v1beta1 requires domains.
    except (msgspec.ValidationError, SpecError):
        return assignment
    domains = [{"values": list(one.values), "count": one.count} for one in found.domains]
    return {**without(assignment, "slices"), "domains": domains}


# Kinds that are not listed have the same fields in both versions, or keep those of v1beta2.
_KINDS: Mapping[str, Callable[[Fields], Fields]] = {
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "Workload": _workload,
}
