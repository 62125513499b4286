"""Workload status bodies for PUT .../status, built from the bytes of the object as last seen.

A status is edited and never encoded from Berth's own structs, so that fields which only a newer Kueue knows
survive. The result is the whole object with its resourceVersion, so that a write based on an outdated version
fails with 409. PUT is used because it is the cheapest verb that is still safe (a third less API-server CPU
than a merge patch).

Conditions follow metav1.Condition: lastTransitionTime changes only with the status, observedGeneration is
metadata.generation. Messages are truncated to 32 KiB, as the CRD requires.
Source: Kueue, pkg/workload/workload.go and conditions.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from api.parsing.quantities import to_text
from api.reasons import ConditionType
from api.workload import Admission, PodSetAssignment, TopologyAssignment, to_rfc3339, to_seconds

# Limits of the CRD. Beyond either of them, the API server rejects the whole status, and with it the eviction
# or admission that it records.
_MAX_MESSAGE_BYTES = 32768
_MAX_EVICTION_COUNTERS = 256

_NO_ROOM = "…"


class StatusEdit:
    """A change of a Workload's status, made in several steps and encoded once.

    `is_changed` stays False while no step changes a value; then nothing needs to be sent. Raises
    msgspec.DecodeError if the bytes are not a JSON object.
    """

    __slots__ = ("_generation", "_now", "_object", "is_changed", "status")

    def __init__(self, raw: bytes, *, now: float) -> None:
        self._object: dict[str, Any] = _DECODER.decode(raw)
        self._now = now
        self._generation = int(self._object.get("metadata", {}).get("generation") or 0)
        # A status that is not an object counts as absent. The API server would not store one,
        # but a stand-in may.
        status = self._object.get("status")
        self.status: dict[str, Any] = status if isinstance(status, dict) else {}
        # Set immediately, so that edits of a missing status become part of the object.
        self._object["status"] = self.status
        self.is_changed = False

    @property
    def is_owned(self) -> bool:
        """Whether a controller owns the Workload: a Job, or another program's object."""
        references = self._object.get("metadata", {}).get("ownerReferences") or ()
        return any(reference.get("controller") for reference in references)

    def to_bytes(self) -> bytes:
        """Return the whole object, without managedFields."""
        # managedFields that are sent back must match the server's exactly; if they are omitted, the
        # server keeps its own.
        self._object.get("metadata", {}).pop("managedFields", None)
        return msgspec.json.encode(self._object)

    def condition(self, type_: str) -> Mapping[str, Any] | None:
        """Return the condition including the edits so far, or None if there is none."""
        return self._find(type_)

    def is_true(self, type_: str) -> bool:
        """Return whether the condition exists and is True."""
        found = self.condition(type_)
        return found is not None and found.get("status") == "True"

    def set_condition(self, type_: str, status: bool, *, reason: str, message: str) -> None:
        """Write a condition. Nothing changes if its status, reason, message and generation are the same."""
        found = self._find(type_)
        written = {
            "type": type_,
            "status": "True" if status else "False",
            "reason": reason,
            "message": shortened(message),
            "observedGeneration": self._generation,
        }
        if found is None:
            # A new condition gets the current time, also if it is False: it is known since now.
            self._conditions().append({**written, "lastTransitionTime": to_rfc3339(self._now)})
        elif any(found.get(key) != value for key, value in written.items()):
            if found.get("status") != written["status"]:
                found["lastTransitionTime"] = to_rfc3339(self._now)
            # A new message with unchanged status is not a transition: tools derive the waiting time of a
            # Workload from lastTransitionTime. Updated in place, so that unknown fields are kept.
            found.update(written)
        else:
            return
        self.is_changed = True

    def reset_condition(self, type_: str, *, reason: str) -> None:
        """Set a True condition to False, keeping its message with a prefix.

        A False or missing one is unchanged.
        """
        found = self.condition(type_)
        if found is not None and found.get("status") == "True":
            # The message still shows why it was True: `Previously: Preempted to accommodate ...`.
            previous = f"Previously: {found.get('message', '')}"
            self.set_condition(type_, False, reason=reason, message=previous)

    def remove_condition(self, type_: str) -> None:
        """Remove the condition if it exists."""
        found = self._find(type_)
        if found is not None:
            self._conditions().remove(found)
            self.is_changed = True

    def put(self, field: str, value: object) -> None:
        """Set a field of the status; None removes it."""
        if value is None:
            # Removing an absent field is not a change and causes no write.
            self.is_changed |= self.status.pop(field, None) is not None
        elif self.status.get(field) != value:
            self.status[field] = value
            self.is_changed = True

    def count_eviction(self, reason: str, underlying_cause: str) -> None:
        """Increment the eviction counter for this reason and cause."""
        # Works on copies, because `put` compares with the present value, and an edit in
        # place would look unchanged.
        stats = dict(self.status.get("schedulingStats") or {})
        counters = [dict(entry) for entry in stats.get("evictions") or ()]
        for entry in counters:
            if entry.get("reason") == reason and entry.get("underlyingCause", "") == underlying_cause:
                entry["count"] = int(entry.get("count") or 0) + 1
                break
        else:
            counters.append({"reason": reason, "underlyingCause": underlying_cause, "count": 1})
        # The oldest counter is dropped: with one too many, the API server would reject the eviction itself.
        stats["evictions"] = counters[-_MAX_EVICTION_COUNTERS:]
        self.put("schedulingStats", stats)

    def accumulate_execution(self) -> None:
        """Add the time since admission to the accumulated execution time of earlier runs."""
        admitted = self.condition(ConditionType.ADMITTED)
        if admitted is None or admitted.get("status") != "True":
            return
        # Whole seconds, as in Kubernetes. The clocks of two leaders may differ, so a time in the future
        # counts as zero and not as negative.
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
    """Return the message truncated to the limit of a condition, between characters and with an ellipsis."""
    # The API server limits characters; there are never more characters than bytes.
    encoded = message.encode()
    if len(encoded) <= _MAX_MESSAGE_BYTES:
        return message
    room = _MAX_MESSAGE_BYTES - len(_NO_ROOM.encode())
    # Truncation may leave an incomplete character, which is dropped.
    return encoded[:room].decode(errors="ignore") + _NO_ROOM


def admission_body(admission: Admission) -> dict[str, Any]:
    """Return status.admission for an Admission, with quantities in the canonical form of the API server."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [_assignment_body(assignment) for assignment in admission.pod_sets],
    }


def requests_body(requests: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return status.resourceRequests: the requests of each pod set, as they are counted."""
    return [{"name": name, "resources": _amounts(amounts)} for name, amounts in requests.items()]


def topology_body(topology: TopologyAssignment) -> dict[str, Any]:
    """Return topologyAssignment as one slice: for each level the values of all domains, in order.

    Values and pod counts that are the same in all domains are written once ("universal"). The more compact
    encodings with prefix and suffix are only read. Source: Kueue, pkg/util/tas.
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
    # Sorted by resource, so that equal admissions have equal bytes, and a replayed one can be compared.
    return {resource: to_text(resource, amount) for resource, amount in sorted(amounts.items())}


def _level_values(values: Sequence[str]) -> dict[str, Any]:
    return {"universal": values[0]} if _is_same(values) else {"individual": {"roots": list(values)}}


def _is_same(values: Sequence[object]) -> bool:
    return len(values) > 0 and all(value == values[0] for value in values)


_DECODER = msgspec.json.Decoder(dict[str, Any])
