"""The sentences that lead `berth explain`: what becomes of the Workload, what it lacks, what helps."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from admission.answers.explaining.answer import Answer
from admission.answers.starts import interval_text
from admission.engine.holders import Holder, of_unknown_length
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.parsing.durations import seconds_text
from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339, to_seconds
from api.reasons import ConditionType, PendingReason
from api.workload import Workload

# How many Workloads are named that hold what is missing; the others are counted.
_NAMED_HOLDERS = 5


def verdict(answer: Answer, *, now: float) -> str:
    """Return one sentence: what has become or will become of the Workload. `now` is in Unix seconds."""
    if answer.state == "finished":
        return _finished(answer.workload)
    if answer.holding is not None:
        return "It runs." if answer.holding.is_admitted else "It has its quota and waits for its checks."
    if answer.state == "deactivated":
        return "It is deactivated: set spec.active to true, and it queues again."
    if not answer.starts.can_start or any(one.is_forever for one in answer.lacking):
        return f"It cannot start as it is: {_never(answer)}."
    return f"It {_start(answer, now)}{_lacking(answer)}."


def held_lines(answer: Answer, *, now: float) -> Iterator[str]:
    """Yield who holds what is missing, until when, and what keeps it theirs."""
    if not (answer.holders or answer.hidden_holders) or answer.lacking[0].is_forever:
        return
    pair = answer.lacking[0].pair
    yield f"who holds {pair.resource} of flavor {pair.flavor}:"
    for one in answer.holders[:_NAMED_HOLDERS]:
        yield f"  {one.key} ({to_text(pair.resource, one.amount)}), {_until(one, now)}{_kept(one)}"
    others = (*answer.holders[_NAMED_HOLDERS:], *answer.hidden_holders)
    if others:
        amount = to_text(pair.resource, sum(one.amount for one in others))
        yield f"  and {len(others)} more ({amount})"
    unknown = [str(one.key) for one in of_unknown_length(answer.holders)]
    if unknown:
        shown = ", ".join(unknown[:_NAMED_HOLDERS])
        yield (
            f"no start can rely on the end of {shown}: declare {EXPECTED_RUNTIME_SECONDS} on such Jobs, or"
            " set estimates.defaultSeconds in the policy"
        )


def help_lines(answer: Answer, *, now: float) -> Iterator[str]:
    """Yield what would help; each was tried."""
    if not answer.remedies:
        return
    yield "what would help, tried on the present state:"
    for one in answer.remedies:
        yield f"  {one.change}: starts {_when(one.start_at, now)}"


def history_lines(answer: Answer) -> Iterator[str]:
    """Yield what became of its promised start."""
    if answer.history:
        yield "its promised start:"
        yield from (f"  {line}" for line in answer.history)


def _finished(workload: Workload) -> str:
    finished = workload.conditions[ConditionType.FINISHED]
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    said = f"It ended at {to_rfc3339(finished.at)}: {finished.reason}"
    if admitted is None or not admitted.at:
        return f"{said}, and never ran."
    waited = seconds_text(max(0.0, admitted.at - workload.created_at))
    # Admitted turns False only when the quota is released after an eviction; a later end keeps it True.
    ran = seconds_text(max(0.0, finished.at - admitted.at)) if admitted.status else "an unknown time"
    stops = sum(workload.evictions.values())
    stopped = f", was stopped {stops} time{'s' if stops > 1 else ''}" if stops else ""
    return f"{said}. It waited {waited}{stopped}, and ran {ran} in its last attempt."


def _never(answer: Answer) -> str:
    forever = [one for one in answer.lacking if one.is_forever]
    if not forever:
        return answer.message.rstrip(".") or answer.reason or "its queue cannot serve it"
    return "; ".join(
        f"it asks for {to_text(one.pair.resource, one.wanted)} {one.pair.resource}, and ClusterQueue"
        f" {answer.cluster_queue} may use at most {to_text(one.pair.resource, one.most)} of flavor"
        f" {one.pair.flavor}, with all that its cohort lends"
        for one in forever
    )


def _start(answer: Answer, now: float) -> str:
    starts = answer.starts
    if answer.reason == PendingReason.WAITING_FOR_DEPENDENCIES:
        last = ""
        if starts.awaits:
            last = f": {starts.awaits} is expected to end last, at {starts.after}"
            last += f" ({_when(to_seconds(starts.after), now)})"
        return f"waits until what it depends on has succeeded{last}"
    turn = f"is at position {answer.position}" if answer.position else "waits"
    if starts.at < inf:
        word = "promised" if starts.is_promised else "expected"
        within = ""
        if starts.latest and not starts.is_promised:
            within = f", {interval_text(starts.earliest, starts.latest)}"
        return f"{turn} and is {word} to start at {starts.expected} ({_when(starts.at, now)}){within}"
    if starts.after:
        return f"{turn} and is expected to start after {starts.after}, by the order of the queue"
    return f"{turn}; no start is known"


def _lacking(answer: Answer) -> str:
    if not answer.lacking:
        return ""
    return "; it lacks " + ", ".join(
        f"{to_text(one.pair.resource, one.missing)} of {to_text(one.pair.resource, one.wanted)}"
        f" {one.pair.resource} in flavor {one.pair.flavor}"
        for one in answer.lacking
    )


def _until(one: Holder, now: float) -> str:
    if one.ends_at is None:
        return "of unknown length"
    past = "was" if one.ends_at < now else "is"
    return f"{past} expected to end at {to_rfc3339(one.ends_at)}"


def _kept(one: Holder) -> str:
    return f"; not preempted: {one.kept_by}" if one.kept_by else ""


def _when(at: float, now: float) -> str:
    return "now" if at <= now else f"in {seconds_text(at - now)}"
