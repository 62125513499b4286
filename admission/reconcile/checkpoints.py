"""What reports change in the checkpoint annotations, and which of those the Workload takes over.

    pod ──POST──▶ Job, or pod ──this module's rule──▶ Workload annotations ──▶ losses, evictions
    user ──kubectl annotate──▶ ┘                             ▲
    pod of a group ──POST────────────────────────────────────┘

Users read and annotate the Job, or the pod if it is queued itself. The pods of a group come and go, so what
has to outlast them is stored on their Workload. Measured costs are always stored on the Workload, because
users do not write it: on a Job or pod they would be a claim of its author. Decisions read only Workloads, so
a dry run from files and a controller see the same. One rule holds everywhere: a checkpoint time only moves
forward, and is never in the future. Otherwise a slow or repeated report would replace a newer checkpoint, and
a wrong clock would hide every later checkpoint for as long as it is ahead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from api import keys
from api.jobs.checkpoint_annotations import (
    CLOCK_SKEW_SECONDS,
    KEPT_OBSERVATIONS,
    MOST_SECONDS,
    MeasuredCosts,
    parse_instant,
    parse_measured,
)
from api.parsing.times import to_rfc3339
from api.wire.checkpoint_report import Report

Annotations = Mapping[str, str]
# The least change of an expected completion that is stored.
_LEAST_CHANGE_SECONDS = 60.0
_LEAST_CHANGE_SHARE = 0.05
# Where the known end is as near as this, it could pass before the next report, so a later end is stored at
# once, if by more than work may take to end anyhow (`backfill.endingSeconds` by default).
_NEAR_SECONDS = 120.0
_ENDING_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The changes of an object's annotations that reports cause; empty if nothing is new.

    `saved` are the reports of checkpoints that were not known. `is_outdated`: everything that was reported is
    older than what is known.
    """

    annotations: dict[str, str] = field(default_factory=dict)
    saved: tuple[Report, ...] = ()
    is_outdated: bool = False


def progress(present: Annotations, reports: Sequence[Report], *, now: float) -> Progress:
    """Return what these reports on one subject change in the annotations of the object that stores them.

    `present` are its annotations. The newest checkpoint counts, in whatever order the reports come. A
    repeated report changes nothing. The step may decrease: work that restarts from an older checkpoint
    repeats the steps after it.
    """
    known = _last_credible(present, now)
    saved = tuple(one for one in reports if one.saved_at is not None and int(one.saved_at) > known)
    changed: dict[str, str] = {}
    if saved:
        newest = max(saved, key=lambda one: one.saved_at or 0.0)
        changed[keys.CHECKPOINT_TIME] = to_rfc3339(newest.saved_at or 0.0)
        changed[keys.CHECKPOINT_STEP] = str(newest.step)
    changed |= _completion(present, reports, now)
    reported = [int(one.saved_at) for one in reports if one.saved_at is not None]
    # A report that work has resumed counts, whatever checkpoint it names.
    is_outdated = bool(reported) and max(reported) < known and not any(map(_says_more, reports))
    return Progress(annotations=changed, saved=saved, is_outdated=is_outdated)


def _says_more(report: Report) -> bool:
    return report.resumed_at is not None or report.completes_at is not None


def _completion(present: Annotations, reports: Sequence[Report], now: float) -> dict[str, str]:
    """Return the expected completion that the last of these reports changes; {} for a small change.

    Small is less than a minute, and than a twentieth of the remaining time: promises move with each change.
    """
    at = next((one.completes_at for one in reversed(reports) if one.completes_at is not None), None)
    if at is None:
        return {}
    known = parse_instant(present.get(keys.EXPECTED_COMPLETION_TIME, ""))
    if known is not None and abs(at - known) < _least_change(known, at, now):
        return {}
    return {keys.EXPECTED_COMPLETION_TIME: to_rfc3339(at)}


def _least_change(known: float, at: float, now: float) -> float:
    """Return by how many seconds an end must differ from the known one to be stored."""
    if at > known and known - now < _NEAR_SECONDS:
        return _ENDING_SECONDS
    return max(_LEAST_CHANGE_SECONDS, (at - now) * _LEAST_CHANGE_SHARE)


def measured_costs(
    workload: Annotations, reports: Sequence[Report], saved: Sequence[Report], *, started_at: float | None
) -> dict[str, str]:
    """Return what these reports change in the measured costs, an annotation of the Workload.

    `saved` are those of them with a new checkpoint, from `progress`. `started_at` is when the present attempt
    started, None if it has not.
    """
    before = parse_measured(workload.get(keys.CHECKPOINT_MEASURED, "")) or MeasuredCosts()
    measured = _measure(before, saved, reports, started_at)
    if measured == before:
        return {}
    return {keys.CHECKPOINT_MEASURED: msgspec.json.encode(measured).decode()}


def taken_over(owner: Annotations, workload: Annotations, *, now: float) -> dict[str, str]:
    """Return the annotations that the Workload takes over from its Job or pod because they are newer."""
    if refusal(owner, workload, now=now) is not None:
        return {}
    keys_of_progress = (keys.CHECKPOINT_TIME, keys.CHECKPOINT_STEP)
    return {key: owner[key] for key in keys_of_progress if key in owner and owner[key] != workload.get(key)}


def newest(members: Iterable[Annotations], *, now: float) -> Annotations:
    """Return the annotations of the group member with the newest checkpoint; of a tie the first.

    {} for an empty group.
    """
    return max(members, key=lambda one: _last_credible(one, now), default={})


def refusal(owner: Annotations, workload: Annotations, *, now: float) -> str | None:
    """Return why the Workload ignores the checkpoint of its Job or pod; None if it takes or has it."""
    text = owner.get(keys.CHECKPOINT_TIME)
    if text is None or text == workload.get(keys.CHECKPOINT_TIME):
        return None
    if (said := rejection_reason(owner, now=now)) is not None:
        return said
    known = _last_credible(workload, now)
    if _last_credible(owner, now) < known:
        return (
            f"{keys.CHECKPOINT_TIME} is {text}, which is before {to_rfc3339(known)}, the last one known;"
            " it is ignored"
        )
    return None


def rejection_reason(annotations: Annotations, *, now: float) -> str | None:
    """Return why a checkpoint is rejected in any case; None if it is credible, or if there is none."""
    text = annotations.get(keys.CHECKPOINT_TIME)
    if text is None:
        return None
    reported = parse_instant(text)
    if reported is None:
        return f"{keys.CHECKPOINT_TIME} is {text!r}, which is no RFC 3339 time; it is ignored"
    if reported > now + CLOCK_SKEW_SECONDS:
        return f"{keys.CHECKPOINT_TIME} is {text}, which is in the future; it is ignored"
    return None


def _last_credible(annotations: Annotations, now: float) -> float:
    """Return the time of the known checkpoint; 0 if there is none, or if its time is in the future."""
    at = parse_instant(annotations.get(keys.CHECKPOINT_TIME, ""))
    return 0.0 if at is None or at > now + CLOCK_SKEW_SECONDS else at


def _measure(
    before: MeasuredCosts, saved: Sequence[Report], reports: Sequence[Report], started_at: float | None
) -> MeasuredCosts:
    """Return the costs measured so far: each new checkpoint's save, and each attempt's restart once."""
    saves = tuple(round(one.save_seconds, 1) for one in saved if one.save_seconds is not None)
    resumed = [one.resumed_at for one in reports if one.resumed_at is not None]
    restarts, restart_of = before.restart, before.restart_of
    if started_at is not None and resumed and restart_of != to_rfc3339(started_at):
        seconds = min(resumed) - started_at
        # A time before the start belongs to another attempt, and no restart takes longer than a day.
        if 0 <= seconds <= MOST_SECONDS:
            restarts, restart_of = (*restarts, round(seconds, 1)), to_rfc3339(started_at)
    return MeasuredCosts(
        save=(*before.save, *saves)[-KEPT_OBSERVATIONS:],
        restart=restarts[-KEPT_OBSERVATIONS:],
        restart_of=restart_of,
    )
