"""What annotations say of checkpoints after a report, and which of it the Workload takes over.

    pod ──POST──▶ Job, or pod ──this module's rule──▶ Workload annotations ──▶ losses, evictions
    user ──kubectl annotate──▶ ┘                             ▲
    pod of a group ──POST────────────────────────────────────┘

The Job is where users look and write, and so is a pod that is queued itself; the pods of a group come and go,
so what is to outlast them stands on their Workload. Decisions read Workloads alone, so that a dry run from
files and a controller see the same. On all ways one rule holds: an instant only ever goes forward, and none
lies in the future. Without it a slow or repeated report would take a newer checkpoint back, and one wrong
clock would hide every later checkpoint for as long as it is ahead.
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
from api.wire.checkpoint_report import Report
from api.workload import to_rfc3339

Annotations = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What reports make of an object's annotations: those to be written, none where nothing is new.

    `is_outdated`: all that they tell is older than what is known.
    """

    annotations: dict[str, str] = field(default_factory=dict)
    is_outdated: bool = False


def progress(
    present: Annotations, reports: Sequence[Report], *, started_at: float | None, now: float
) -> Progress:
    """Return what these reports of one Workload change where they are stored.

    `present` are the annotations there; `started_at` is when the present attempt started, None for none.

    The newest checkpoint counts, whatever order they come in. A report that comes twice changes nothing.
    Its step may go down: who starts again from an older checkpoint does the steps again.
    """
    known = _believed(present, now)
    saved = [one for one in reports if one.saved_at is not None and int(one.saved_at) > known]
    changed: dict[str, str] = {}
    if saved:
        newest = max(saved, key=lambda one: one.saved_at or 0.0)
        changed[keys.CHECKPOINT_TIME] = to_rfc3339(newest.saved_at or 0.0)
        changed[keys.CHECKPOINT_STEP] = str(newest.step)
    before = parse_measured(present.get(keys.CHECKPOINT_MEASURED, "")) or MeasuredCosts()
    measured = _measure(before, saved, reports, started_at)
    if measured != before:
        changed[keys.CHECKPOINT_MEASURED] = msgspec.json.encode(measured).decode()
    told = [int(one.saved_at) for one in reports if one.saved_at is not None]
    return Progress(annotations=changed, is_outdated=bool(told) and not changed and max(told) < known)


def taken_over(owner: Annotations, workload: Annotations, *, now: float) -> dict[str, str]:
    """Return the annotations that the Workload takes over from its Job or pod since they tell of something
    newer.
    """
    keys_of_progress = (keys.CHECKPOINT_TIME, keys.CHECKPOINT_STEP)
    taken = {}
    if refusal(owner, workload, now=now) is None:
        taken = {
            key: owner[key] for key in keys_of_progress if key in owner and owner[key] != workload.get(key)
        }
    measured = owner.get(keys.CHECKPOINT_MEASURED)
    if measured is not None and measured != workload.get(keys.CHECKPOINT_MEASURED):
        taken[keys.CHECKPOINT_MEASURED] = measured
    return taken


def newest(members: Iterable[Annotations], *, now: float) -> Annotations:
    """Return what that member of a group says which tells of the newest checkpoint; of equals the first.

    {} for a group of nobody.
    """
    return max(members, key=lambda one: _believed(one, now), default={})


def refusal(owner: Annotations, workload: Annotations, *, now: float) -> str | None:
    """Return why the Workload does not take over the checkpoint of its Job or pod; None where it does, or
    has done.
    """
    text = owner.get(keys.CHECKPOINT_TIME)
    if text is None or text == workload.get(keys.CHECKPOINT_TIME):
        return None
    if (said := disbelief(owner, now=now)) is not None:
        return said
    known = _believed(workload, now)
    if _believed(owner, now) < known:
        return (
            f"{keys.CHECKPOINT_TIME} is {text}, which is before {to_rfc3339(known)}, the last one known;"
            " it is passed over"
        )
    return None


def disbelief(annotations: Annotations, *, now: float) -> str | None:
    """Return why a checkpoint cannot be believed whatever is known; None where it can, or there is none."""
    text = annotations.get(keys.CHECKPOINT_TIME)
    if text is None:
        return None
    told = parse_instant(text)
    if told is None:
        return f"{keys.CHECKPOINT_TIME} is {text!r}, which is no RFC 3339 time; it is passed over"
    if told > now + CLOCK_SKEW_SECONDS:
        return f"{keys.CHECKPOINT_TIME} is {text}, which lies in the future; it is passed over"
    return None


def _believed(annotations: Annotations, now: float) -> float:
    """Return the checkpoint that is known, 0 for none: one of the future is none."""
    at = parse_instant(annotations.get(keys.CHECKPOINT_TIME, ""))
    return 0.0 if at is None or at > now + CLOCK_SKEW_SECONDS else at


def _measure(
    before: MeasuredCosts, saved: Sequence[Report], reports: Sequence[Report], started_at: float | None
) -> MeasuredCosts:
    """Return what is measured after these: each new checkpoint's saving, each attempt's restart once."""
    saves = tuple(round(one.save_seconds, 1) for one in saved if one.save_seconds is not None)
    resumed = [one.resumed_at for one in reports if one.resumed_at is not None]
    restarts, restart_of = before.restart, before.restart_of
    if started_at is not None and resumed and restart_of != to_rfc3339(started_at):
        seconds = min(resumed) - started_at
        # Before the start it is another attempt's, and longer than a day nobody starts.
        if 0 <= seconds <= MOST_SECONDS:
            restarts, restart_of = (*restarts, round(seconds, 1)), to_rfc3339(started_at)
    return MeasuredCosts(
        save=(*before.save, *saves)[-KEPT_OBSERVATIONS:],
        restart=restarts[-KEPT_OBSERVATIONS:],
        restart_of=restart_of,
    )
