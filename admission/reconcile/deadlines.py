"""The instants at which something is due on a Workload: back-off, time-outs, retention.

Each is computed from the object alone, so a restart loses none. None means that nothing will be due.
Source: Kueue, pkg/controller/core/workload_controller.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from api.reasons import ConditionType, EvictionReason
from api.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsReadySettings:
    """waitForPodsReady. Defaults are Kueue's: on, half an hour, requeued without limit.

    `recovery_timeout_seconds` 0 never evicts for pods that were ready once. `backoff_limit` None: no limit.
    """

    timeout_seconds: float = 1800.0
    recovery_timeout_seconds: float = 1800.0
    backoff_limit: int | None = None
    backoff_base_seconds: float = 60.0
    backoff_max_seconds: float = 3600.0

    def backoff_seconds(self, count: int) -> float:
        """Return how long a Workload stays out of its queue after its `count`th time-out (from 1).

        Kueue adds a jitter of up to one ten-thousandth, which whole seconds do not show. It is left out here.
        """
        # The exponent is capped: with it every maximum has long been reached.
        return min(self.backoff_base_seconds * 2.0 ** min(count - 1, 64), self.backoff_max_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings:
    """objectRetentionPolicies, in seconds. None keeps objects forever, 0 deletes them at once."""

    after_finished_seconds: float | None = None
    after_deactivated_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadinessDeadline:
    """Until when the pods of a running Workload must be ready, and the cause of an eviction after that."""

    at: float
    cause: str


def readiness_deadline(workload: Workload, settings: PodsReadySettings | None) -> ReadinessDeadline | None:
    """Return until when the pods may be unready; None unless the Workload runs and its pods are not ready."""
    found = workload.conditions.get(ConditionType.PODS_READY)
    if settings is None or (found is not None and found.status) or not _is_running(workload):
        return None
    # The pods were never ready, or what creates them does not report it: the time runs from the admission.
    if found is None or found.reason != "WaitForRecovery":
        admitted = workload.conditions[ConditionType.ADMITTED]
        return ReadinessDeadline(at=admitted.at + settings.timeout_seconds, cause="WaitForStart")
    if not settings.recovery_timeout_seconds:
        return None
    # The pods were ready once: the time runs from when they ceased to be.
    return ReadinessDeadline(at=found.at + settings.recovery_timeout_seconds, cause="WaitForRecovery")


def execution_deadline(workload: Workload) -> float | None:
    """Return when the Workload reaches its maximum execution time, earlier runs included; None: never."""
    limit = workload.maximum_execution_time_seconds
    if limit is None or not _is_running(workload):
        return None
    # The limit is for the work as a whole, so earlier runs have used up part of it.
    return workload.conditions[ConditionType.ADMITTED].at + limit - workload.accumulated_execution_seconds


def retention_deadline(workload: Workload, settings: RetentionSettings) -> float | None:
    """Return when a Workload is to be deleted (or the Job of one that Berth deactivated); None: never."""
    if workload.is_finished:
        seconds, condition = settings.after_finished_seconds, ConditionType.FINISHED
    elif is_deactivated_by_us(workload):
        seconds, condition = settings.after_deactivated_seconds, ConditionType.EVICTED
    else:
        return None
    return None if seconds is None else workload.conditions[condition].at + seconds


def is_deactivated_by_us(workload: Workload) -> bool:
    """Return whether a time-out, a limit or a check deactivated the Workload, rather than a user."""
    evicted = workload.eviction
    if workload.active or evicted is None:
        return False
    # Decided by the reason: a user who sets spec.active to false leaves a reason without a cause.
    return evicted.reason.startswith(f"{EvictionReason.DEACTIVATED}DueTo")


def next_deadline(
    workload: Workload, *, pods_ready: PodsReadySettings | None, retention: RetentionSettings, now: float
) -> float | None:
    """Return the earliest instant after `now` at which the Workload must be looked at again; None: never."""
    readiness = readiness_deadline(workload, pods_ready)
    due = (
        workload.requeue_at,
        readiness.at if readiness is not None else None,
        execution_deadline(workload),
        retention_deadline(workload, retention),
    )
    # An instant that has passed is handled in the present look, so it needs no other.
    return min((at for at in due if at is not None and at > now), default=None)


def _is_running(workload: Workload) -> bool:
    return workload.is_admitted and not workload.is_evicted and not workload.is_finished
