"""An eviction that waits for its victim's checkpoint, as it stands on the Workload: `berth.dev/eviction`.

The annotation is the state of the eviction and the only place that has it: whoever leads reads there who is
to leave, for whom and until when, so that neither the end of a controller nor an empty store loses or repeats
one. What follows from it is `admission.preemption.checkpoint_before_eviction`.

    {"reason": "Preempted", "preemptor": "team/large", "preemptorUid": "…", "requestedAt": "2026-…Z",
     "deadline": "2026-…Z", "reservedAt": "2026-…Z", "askAt": "2026-…Z", "message": "…", …}
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from api import keys
from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import Workload, WorkloadKey, to_rfc3339, to_seconds

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """Who is to leave and why. Instants in Unix seconds, whole ones.

    Pods are asked for a checkpoint from `ask_at` on and stopped at `deadline` at the latest. `reserved_at` is
    since when the Workload held the quota that it is to give back: on a Workload that has got another since,
    the request is over. `preemptor` is None where nobody in particular gets the quota (a drain).
    """

    reason: EvictionReason
    requested_at: float
    deadline: float
    ask_at: float
    reserved_at: float
    message: str = ""
    # Which of Kueue's rules let the preemptor take it; None where no rule was needed (a drain).
    preemption_reason: PreemptionReason | None = None
    preemptor: WorkloadKey | None = None
    preemptor_uid: str = ""
    preempting_cluster_queue: str = ""


def has_request(workload: Workload) -> bool:
    """Return whether the Workload carries a request, readable or not."""
    return keys.EVICTION in workload.annotations


def eviction_request(workload: Workload) -> EvictionRequest | None:
    """Return the request on the Workload, None where there is none or it cannot be read."""
    text = workload.annotations.get(keys.EVICTION)
    if text is None:
        return None
    try:
        return read_request(text)
    except ValueError:
        return None


def standing_request(workload: Workload) -> EvictionRequest | None:
    """Return the request that the Workload is to follow: on the quota that it holds, not carried out yet."""
    request = eviction_request(workload)
    # A finished one has nothing left to save, an evicted one is past asking, and one without quota
    # has nothing to give back.
    if request is None or workload.is_evicted or workload.is_finished or not workload.has_quota_reservation:
        return None
    # Instants of one condition in whole seconds, both read from the object: equal, or of another reservation.
    return request if request.reserved_at == reserved_at_of(workload) else None


def reserved_at_of(workload: Workload) -> float:
    """Return since when the Workload has, or has lost, its quota; 0 where nothing says so."""
    condition = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    return condition.at if condition is not None else 0.0


def render_request(request: EvictionRequest) -> str:
    """Return the annotation's value."""
    fields: dict[str, Any] = {
        "reason": request.reason.value,
        "preemptor": str(request.preemptor) if request.preemptor is not None else None,
        "preemptorUid": request.preemptor_uid,
        "requestedAt": to_rfc3339(request.requested_at),
        "deadline": to_rfc3339(request.deadline),
        "askAt": to_rfc3339(request.ask_at) if request.ask_at > request.requested_at else None,
        "reservedAt": to_rfc3339(request.reserved_at),
        "preemptionReason": request.preemption_reason.value if request.preemption_reason else None,
        "preemptingClusterQueue": request.preempting_cluster_queue,
        "message": request.message,
    }
    # Empty fields are left out: the annotation is read by people, in `kubectl describe`.
    return msgspec.json.encode({key: value for key, value in fields.items() if value}).decode()


def read_request(text: str) -> EvictionRequest:
    """Return the request in an annotation's value. Raises ValueError naming field, value and expectation."""
    try:
        found = msgspec.json.decode(text)
    # Nested deeper than the reader follows is no request either; a tenant may have written it.
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is no JSON ({error})") from error
    # Texts alone, so that every field below may be taken for one.
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("it must be a JSON object of texts")
    requested_at = _instant(found, "requestedAt")
    right = found.get("preemptionReason")
    return EvictionRequest(
        reason=_word(EvictionReason, found, "reason"),
        requested_at=requested_at,
        deadline=_instant(found, "deadline"),
        # Left out where its pods were asked at once.
        ask_at=_instant(found, "askAt") if "askAt" in found else requested_at,
        reserved_at=_instant(found, "reservedAt"),
        message=found.get("message", ""),
        preemption_reason=_word(PreemptionReason, found, "preemptionReason") if right else None,
        preemptor=_key(found["preemptor"]) if found.get("preemptor") else None,
        preemptor_uid=found.get("preemptorUid", ""),
        preempting_cluster_queue=found.get("preemptingClusterQueue", ""),
    )


def _instant(found: dict[str, str], field: str) -> float:
    text = found.get(field, "")
    try:
        at = to_seconds(text)
    except (ValueError, OverflowError):
        at = 0.0
    if at <= 0:
        raise ValueError(f"{field} is {text!r}, but must be a time such as 2026-01-31T12:00:00Z")
    return at


def _word(words: type[Word], found: dict[str, str], field: str) -> Word:
    text = found.get(field, "")
    try:
        return words(text)
    except ValueError:
        # The enum's own error names a Python class and no field.
        raise ValueError(f"{field} is {text!r}, but must be one of {', '.join(words)}") from None


def _key(text: str) -> WorkloadKey:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ValueError(f"preemptor is {text!r}, but must be NAMESPACE/NAME")
    return WorkloadKey(namespace, name)
