"""Status bodies for PUT .../status, built from the bytes of the object as last seen.

A status is edited and never encoded from Berth's own structs, so that fields which only a newer Kueue knows
survive. The result is the whole object with its resourceVersion, so that a write based on an outdated version
fails with 409. PUT is used because it is the cheapest verb that is still safe (a third less API-server CPU
than a merge patch).

Conditions follow metav1.Condition: lastTransitionTime changes only with the status, observedGeneration is
metadata.generation. Messages are truncated to 32 KiB, as the CRD requires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from api.parsing.times import to_rfc3339

# The limit of the CRD. Beyond it, the API server rejects the whole status, and with it the eviction or
# admission that it records.
_MAX_MESSAGE_BYTES = 32768

_NO_ROOM = "…"


class StatusEdit:
    """A change of an object's status, made in several steps and encoded once.

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
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the object as seen: it names the version that is edited."""
        found: Mapping[str, Any] = self._object.get("metadata") or {}
        return found

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


_DECODER = msgspec.json.Decoder(dict[str, Any])
