"""How a kind tells its state by conditions: whether it ended, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from api.jobs.owners.paths import Body, value_at
from api.jobs.queued_object import JobOutcome


def is_true(body: Body, type_: str) -> bool:
    """Return whether a condition of the object's status is True."""
    return any(one.get("type") == type_ for one in _true_conditions(body))


def ends_by(*, success: str, failure: str) -> Callable[[Body], JobOutcome | None]:
    """Return the function that reads how an object ended from conditions of these types.

    Its message is that of the condition, which may be empty.
    """

    def outcome(body: Body) -> JobOutcome | None:
        for one in _true_conditions(body):
            if one.get("type") in (success, failure):
                is_success = one["type"] == success
                fallback = "finished successfully" if is_success else "failed"
                return JobOutcome(is_success=is_success, message=one.get("message") or fallback)
        return None

    return outcome


def _true_conditions(body: Body) -> Sequence[Body]:
    conditions: Any = value_at(body, ("status", "conditions")) or ()
    return [one for one in conditions if one.get("status") == "True"]
