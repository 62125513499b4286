"""The body of POST /v1/checkpoints: a running job's report of its checkpoints, validated field by field.

    {"step": 1200, "time": "2026-01-31T12:00:00Z", "saveSeconds": 28.4}     a checkpoint is complete
    {"resumedAt": "2026-01-31T12:05:00Z"}                                   useful work has started (again)
    {"remainingSeconds": 5400}                                              the job's own estimate of its end

One report may contain several forms. An unknown field is rejected instead of ignored: a misspelt one would be
lost silently, and the sender is a program that has no other way to detect it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from api.jobs.checkpoint_annotations import CLOCK_SKEW_SECONDS, MOST_SECONDS, MOST_STEPS, parse_instant

# A report has less than 200 bytes, so a much larger body is not a report.
MAX_REPORT_BYTES = 4096
FIELDS = ("step", "time", "saveSeconds", "resumedAt", "remainingSeconds")
# Ten years; `expected-completion-time` is ignored beyond them.
MOST_REMAINING_SECONDS = 10 * 365 * 86_400
_INSTANT = "an RFC 3339 time such as 2026-01-31T12:00:00Z"
_T = TypeVar("_T")


class BadReportError(ValueError):
    """A report is rejected: `status` is the HTTP status of the response, the message names the field."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One report, with times in Unix seconds. None means not given.

    `saved_at` and `step` are given together.
    """

    saved_at: float | None = None
    step: int | None = None
    save_seconds: float | None = None
    resumed_at: float | None = None
    completes_at: float | None = None


def read_report(body: bytes | bytearray, *, now: float) -> Report:
    """Return the report in the body.

    Raises BadReportError: 413 if too large, 400 if not JSON, 422 if invalid.

    A time in the future, but within the tolerated clock skew, counts as `now`, so that the next report of the
    same job is not considered older.
    """
    if len(body) > MAX_REPORT_BYTES:
        raise BadReportError(413, f"a report has up to {MAX_REPORT_BYTES} bytes, this one {len(body)}")
    given = _decode(body)
    unknown = sorted(given.keys() - set(FIELDS))
    if unknown:
        # One name is enough to find the mistake; it is the first in order, so that
        # the message is deterministic.
        raise BadReportError(422, f"{unknown[0]!r} is no field of a report; there are {', '.join(FIELDS)}")
    remaining = _field(given, "remainingSeconds", _remaining, f"seconds from 0 to {MOST_REMAINING_SECONDS}")
    report = Report(
        saved_at=_field(given, "time", lambda value: _instant(value, now), _INSTANT),
        step=_field(given, "step", _step, f"a whole number from 0 to {MOST_STEPS}"),
        save_seconds=_field(given, "saveSeconds", _length, f"seconds from 0 to {MOST_SECONDS:.0f}"),
        resumed_at=_field(given, "resumedAt", lambda value: _instant(value, now), _INSTANT),
        # Counted from now, so that the clock of the job does not matter.
        completes_at=None if remaining is None else now + remaining,
    )
    # Checked after all fields are parsed, so that an invalid field is reported before a missing one.
    _check_whole(report)
    return report


def _decode(body: bytes | bytearray) -> Mapping[str, Any]:
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadReportError(400, f"the body is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadReportError(422, "the body must be a JSON object with the fields " + ", ".join(FIELDS))
    return given


def _field(given: Mapping[str, Any], name: str, read: Callable[[Any], _T | None], expected: str) -> _T | None:
    value = given.get(name)
    if value is None:
        return None
    found = read(value)
    if found is None:
        shown = msgspec.json.encode(value).decode()[:80]
        raise BadReportError(422, f"{name} is {shown}, but must be {expected}")
    return found


def _instant(value: Any, now: float) -> float | None:
    at = parse_instant(value) if isinstance(value, str) else None
    if at is not None and at > now + CLOCK_SKEW_SECONDS:
        ahead = at - now
        raise BadReportError(
            422,
            f"{value} lies {ahead:.0f} s in the future; a clock may be ahead by {CLOCK_SKEW_SECONDS:.0f} s",
        )
    return None if at is None or at <= 0 else min(at, now)


def _step(value: Any) -> int | None:
    # `type() is int`, because True is an instance of int.
    return value if type(value) is int and 0 <= value <= MOST_STEPS else None


def _length(value: Any) -> float | None:
    # JSON cannot represent NaN.
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_SECONDS else None


def _remaining(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and 0 <= value <= MOST_REMAINING_SECONDS else None


def _check_whole(report: Report) -> None:
    if (report.step is None) != (report.saved_at is None):
        raise BadReportError(422, "a checkpoint has both: step, and the time when it was complete")
    if report.saved_at is None and report.resumed_at is None and report.completes_at is None:
        raise BadReportError(
            422, "a report needs step and time of a checkpoint, resumedAt, or remainingSeconds"
        )
    if report.saved_at is None and report.save_seconds is not None:
        raise BadReportError(422, "saveSeconds belongs to a checkpoint: report its step and time as well")
