"""An eviction that waits for a checkpoint of the victim, as recorded on the Workload: `berth.dev/eviction`.

The annotation is the only record of the eviction. Every leader reads from it which Workload is evicted, for
which preemptor and until when, so neither the end of a controller nor an empty store loses or repeats an
eviction. Its effects are implemented in `admission.preemption.checkpoint_before_eviction`.

    {"reason": "Preempted", "preemptor": "team/large", "preemptorUid": "…", "requestedAt": "2026-…Z",
     "deadline": "2026-…Z", "reservedAt": "2026-…Z", "askAt": "2026-…Z", "message": "…", …}

`preemptorUid` is what identifies the preemptor. `preemptor` is for people, and omitted if it is of another
namespace: teams learn no names of other teams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from api import keys
from api.parsing.times import to_rfc3339, to_seconds
from api.reasons import ConditionType, EvictionReason, PreemptionReason
from api.workload import OF_ANOTHER_NAMESPACE, Workload, WorkloadKey

Word = TypeVar("Word", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequest:
    """A requested eviction and its reason. Times are in whole Unix seconds.

    Pods are asked for a checkpoint from `ask_at` on, and are stopped at `deadline` at the latest.
    `reserved_at` is the time since when the Workload holds the quota that it is to release; if it has
    reserved quota again since then, the request is obsolete. `preemptor_uid` is empty if the quota is not
    freed for a particular Workload (a drain). `preemptor` is its name, None where the annotation has none:
    for a drain, and for a preemptor of another namespace.
    """

    reason: EvictionReason
    requested_at: float
    deadline: float
    ask_at: float
    reserved_at: float
    message: str = ""
    # The rule of Kueue that allows the preemption; None if no rule is needed (a drain).
    preemption_reason: PreemptionReason | None = None
    preemptor: WorkloadKey | None = None
    preemptor_uid: str = ""
    preempting_cluster_queue: str = ""

    def preemptor_as_seen(self, sees: Callable[[str], bool]) -> str:
        """Return how a message names the preemptor to a reader (`WorkloadKey.as_seen`); empty for a drain."""
        if self.preemptor is not None:
            return self.preemptor.as_seen(sees)
        return OF_ANOTHER_NAMESPACE if self.preemptor_uid else ""


def has_request(workload: Workload) -> bool:
    """Return whether the Workload has a request, valid or not."""
    return keys.EVICTION in workload.annotations


def eviction_request(workload: Workload) -> EvictionRequest | None:
    """Return the request on the Workload, or None if there is none or it is malformed."""
    text = workload.annotations.get(keys.EVICTION)
    if text is None:
        return None
    try:
        return read_request(text)
    except ValueError:
        return None


def current_request(workload: Workload) -> EvictionRequest | None:
    """Return the request that applies to the quota which the Workload holds now and that is not completed.

    None if there is no such request.
    """
    request = eviction_request(workload)
    # A finished Workload has nothing to save, an evicted one has already been stopped, and one without quota
    # has nothing to release.
    if request is None or workload.is_evicted or workload.is_finished or not workload.has_quota_reservation:
        return None
    # Both are whole seconds of the same condition, so they are equal unless the quota was reserved again.
    return request if request.reserved_at == reserved_at_of(workload) else None


def reserved_at_of(workload: Workload) -> float:
    """Return the time since when the Workload has, or lacks, quota.

    0 if it has no QuotaReserved condition.
    """
    condition = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    return condition.at if condition is not None else 0.0


def render_request(request: EvictionRequest, *, namespace: str) -> str:
    """Return the value of the annotation for a Workload of this namespace."""
    preemptor = request.preemptor
    fields: dict[str, Any] = {
        "reason": request.reason.value,
        "preemptor": str(preemptor) if preemptor is not None and preemptor.namespace == namespace else None,
        "preemptorUid": request.preemptor_uid,
        "requestedAt": to_rfc3339(request.requested_at),
        "deadline": to_rfc3339(request.deadline),
        "askAt": to_rfc3339(request.ask_at) if request.ask_at > request.requested_at else None,
        "reservedAt": to_rfc3339(request.reserved_at),
        "preemptionReason": request.preemption_reason.value if request.preemption_reason else None,
        "preemptingClusterQueue": request.preempting_cluster_queue,
        "message": request.message,
    }
    # Empty fields are omitted, because people read the annotation in `kubectl describe`.
    return msgspec.json.encode({key: value for key, value in fields.items() if value}).decode()


def read_request(text: str) -> EvictionRequest:
    """Return the request in the value of the annotation.

    Raises ValueError that names field, value and expectation.
    """
    try:
        found = msgspec.json.decode(text)
    # A tenant may write the annotation, so it may be nested deeper than the parser can follow.
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from error
    # All values must be strings, because the code below uses them as such.
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError("it must be a JSON object of strings")
    requested_at = _instant(found, "requestedAt")
    right = found.get("preemptionReason")
    return EvictionRequest(
        reason=_word(EvictionReason, found, "reason"),
        requested_at=requested_at,
        deadline=_instant(found, "deadline"),
        # Omitted if the pods were asked immediately.
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
        # The enum's own error names a Python class and not the field.
        raise ValueError(f"{field} is {text!r}, but must be one of {', '.join(words)}") from None


def _key(text: str) -> WorkloadKey:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise ValueError(f"preemptor is {text!r}, but must be NAMESPACE/NAME")
    return WorkloadKey(namespace, name)
