"""Workload status bodies for PUT .../status, built from the object's last seen bytes.

A status is edited, never re-encoded from our structs: fields that a newer Kueue knows and we do not survive.
The result is the whole object with its resourceVersion, so that a write based on a stale view meets 409. PUT
is taken because it is the cheapest verb that is still safe (a third less API-server CPU than a merge patch).

Conditions follow metav1.Condition: lastTransitionTime moves only when the status changes, observedGeneration
is metadata.generation. Messages are cut at 32 KiB, as the CRD demands.
Source: Kueue, pkg/workload/workload.go and conditions.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.parsing.quantities import to_text
from api.reasons import ConditionType
from api.workload import Admission, PodSetAssignment, TopologyAssignment, to_rfc3339, to_seconds

# Beyond either the API server refuses the status as a whole, and with it the eviction or the
# admission that it tells of.
# Caps of the CRD: a longer message, or one eviction counter more, and the whole status is refused.
_MAX_MESSAGE_BYTES = 32768
_MAX_EVICTION_COUNTERS = 256

_NO_ROOM = "…"


class StatusEdit:
    """One change of a Workload's status, made step by step and encoded once.

    `is_changed` stays False while every step wrote what already stood there: then nothing need be sent.
    Raises msgspec.DecodeError where the bytes are no JSON object.
    """

    __slots__ = ("_generation", "_now", "_object", "is_changed", "status")

    def __init__(self, raw: bytes, *, now: float) -> None:
        self._object: dict[str, Any] = _DECODER.decode(raw)
        self._now = now
        self._generation = int(self._object.get("metadata", {}).get("generation") or 0)
        # A status of another type than an object is no status: the API server would not store
        # one, a stand-in may.
        status = self._object.get("status")
        self.status: dict[str, Any] = status if isinstance(status, dict) else {}
        # Put back at once, so that a status that was missing is written with the first edit and
        # not lost beside it.
        self._object["status"] = self.status
        self.is_changed = False

    @property
    def is_owned(self) -> bool:
        """Whether a controller owns the Workload: a Job, or another program's object."""
        references = self._object.get("metadata", {}).get("ownerReferences") or ()
        return any(reference.get("controller") for reference in references)

    def to_bytes(self) -> bytes:
        """Return the whole object. managedFields are left out: the server keeps its own."""
        # managedFields sent back are compared with the server's and would have to be exact; left
        # out they stay as they are.
        self._object.get("metadata", {}).pop("managedFields", None)
        return msgspec.json.encode(self._object)

    def condition(self, type_: str) -> Mapping[str, Any] | None:
        """Return the condition as it stands now, edits included."""
        return self._find(type_)

    def is_true(self, type_: str) -> bool:
        """Return whether the condition stands and is True."""
        found = self.condition(type_)
        return found is not None and found.get("status") == "True"

    def set_condition(self, type_: str, status: bool, *, reason: str, message: str) -> None:
        """Write a condition. Nothing changes where status, reason, message and generation already stand."""
        found = self._find(type_)
        written = {
            "type": type_,
            "status": "True" if status else "False",
            "reason": reason,
            "message": shortened(message),
            "observedGeneration": self._generation,
        }
        if found is None:
            # A new condition begins now, also where it begins as False: since then it is known.
            self._conditions().append({**written, "lastTransitionTime": to_rfc3339(self._now)})
        elif any(found.get(key) != value for key, value in written.items()):
            if found.get("status") != written["status"]:
                found["lastTransitionTime"] = to_rfc3339(self._now)
            # A new wording under an unchanged status is not a transition: tools that watch lastTransitionTime
            # tell by it how long a Workload has waited.
            # Updated in place: members that we do not know stay.
            found.update(written)
        else:
            return
        self.is_changed = True

    def reset_condition(self, type_: str, *, reason: str) -> None:
        """Turn a True condition False, keeping its message for the reader; others stay as they are."""
        found = self.condition(type_)
        if found is not None and found.get("status") == "True":
            # The reader still learns why it was once so: `Previously: Preempted to accommodate ...`.
            previous = f"Previously: {found.get('message', '')}"
            self.set_condition(type_, False, reason=reason, message=previous)

    def remove_condition(self, type_: str) -> None:
        """Take the condition away."""
        found = self._find(type_)
        if found is not None:
            self._conditions().remove(found)
            self.is_changed = True

    def put(self, field: str, value: object) -> None:
        """Set a field of the status; None takes it away."""
        if value is None:
            # Taking away what is not there is no change and no write.
            self.is_changed |= self.status.pop(field, None) is not None
        elif self.status.get(field) != value:
            self.status[field] = value
            self.is_changed = True

    def count_eviction(self, reason: str, underlying_cause: str) -> None:
        """Add one to the eviction counter of reason and cause."""
        # Copies of what is changed: `put` compares with what stands there, and an edit in place
        # would look like none.
        stats = dict(self.status.get("schedulingStats") or {})
        counters = [dict(entry) for entry in stats.get("evictions") or ()]
        for entry in counters:
            if entry.get("reason") == reason and entry.get("underlyingCause", "") == underlying_cause:
                entry["count"] = int(entry.get("count") or 0) + 1
                break
        else:
            counters.append({"reason": reason, "underlyingCause": underlying_cause, "count": 1})
        # The oldest kind of eviction goes: one too many and the API server would refuse the eviction itself.
        stats["evictions"] = counters[-_MAX_EVICTION_COUNTERS:]
        self.put("schedulingStats", stats)

    def accumulate_execution(self) -> None:
        """Add the time since it was admitted to the execution time of earlier runs."""
        admitted = self.condition(ConditionType.ADMITTED)
        if admitted is None or admitted.get("status") != "True":
            return
        # The whole seconds of Kubernetes' own arithmetic.
        # Clocks of two leaders may differ, so a time in the future counts as no time rather than as negative.
        elapsed = max(0, int(self._now - to_seconds(admitted.get("lastTransitionTime"))))
        past = int(self.status.get("accumulatedPastExecutionTimeSeconds") or 0)
        self.put("accumulatedPastExecutionTimeSeconds", past + elapsed)

    def _conditions(self) -> list[dict[str, Any]]:
        found = self.status.get("conditions")
        if not isinstance(found, list):
            found = self.status["conditions"] = []
        return found

    def _find(self, type_: str) -> dict[str, Any] | None:
        return next((c for c in self._conditions() if c.get("type") == type_), None)


def shortened(message: str) -> str:
    """Return the message cut to what a condition holds, at a character's end, marked by an ellipsis."""
    # Bytes count for the API server's own limit on characters as well: there are never
    # more characters than bytes.
    encoded = message.encode()
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return message
    room = _MAX_MESSAGE_BYTES - len(_NO_ROOM.encode())
    # A cut through a character leaves bytes that are no text; they are dropped.
    return encoded[:room].decode(errors="ignore") + _NO_ROOM


def admission_body(admission: Admission) -> dict[str, Any]:
    """Return status.admission for an Admission. Quantities are canonical, as the API server prints them."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [_assignment_body(assignment) for assignment in admission.pod_sets],
    }


def requests_body(requests: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return status.resourceRequests: what each pod set was found to ask for."""
    return [{"name": name, "resources": _amounts(amounts)} for name, amounts in requests.items()]


def topology_body(topology: TopologyAssignment) -> dict[str, Any]:
    """Return topologyAssignment as one slice: per level the values of all domains, in order.

    A level whose value is the same everywhere, and a pod count that is, are written once ("universal").
    Source: Kueue, pkg/util/tas; the smaller encodings with prefix and suffix are a reader's matter.
    """
    domains = topology.domains
    levels = range(len(topology.levels))
    counts = [domain.count for domain in domains]
    return {
        "levels": list(topology.levels),
        "slices": [
            {
                "domainCount": len(domains),
                "valuesPerLevel": [_level_values([d.values[level] for d in domains]) for level in levels],
                "podCounts": {"universal": counts[0]} if _is_same(counts) else {"individual": counts},
            }
        ],
    }


def _assignment_body(assignment: PodSetAssignment) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": assignment.name,
        "flavors": dict(assignment.flavors),
        "resourceUsage": _amounts(assignment.usage),
        "count": assignment.count,
    }
    if assignment.topology is not None:
        body["topologyAssignment"] = topology_body(assignment.topology)
    if assignment.delayed_topology_request is not None:
        body["delayedTopologyRequest"] = assignment.delayed_topology_request
    return body


def _amounts(amounts: Mapping[str, int]) -> dict[str, str]:
    # Sorted by resource: the same admission gives the same bytes, so that a replayed one can be compared.
    return {resource: to_text(resource, amount) for resource, amount in sorted(amounts.items())}


def _level_values(values: Sequence[str]) -> dict[str, Any]:
    return {"universal": values[0]} if _is_same(values) else {"individual": {"roots": list(values)}}


def _is_same(values: Sequence[object]) -> bool:
    return len(values) > 0 and all(value == values[0] for value in values)


_DECODER = msgspec.json.Decoder(dict[str, Any])
