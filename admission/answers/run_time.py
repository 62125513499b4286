"""How long a Workload is expected to run: its estimate, what runs like it took, and what promises count with.

Promises count with more than the estimate: the time that work may take to end, and that of an eviction, in
case it runs longer. A learned estimate is a high quantile, so the median is shown beside it.
"""

from __future__ import annotations

from math import inf, isinf
from typing import Any

from admission.engine.workload_queries import RunTime
from api.parsing.durations import seconds_text
from queues.estimates.runtime_estimate import Source

SOURCE_WORDS = {
    Source.EXECUTION_LIMIT: "its maximumExecutionTimeSeconds",
    Source.JOB_DEADLINE: "its Job's activeDeadlineSeconds",
    Source.COMPLETION_TIME: "berth.dev/expected-completion-time",
    Source.DECLARED: "berth.dev/expected-runtime-seconds",
    Source.LEARNED: "what earlier runs took",
    Source.QUEUE_DEFAULT: "the policy's estimates.defaultSeconds",
}


def run_time_line(run_time: RunTime) -> str | None:
    """Return the line of text output; None where nothing is known and nothing is promised."""
    estimate, parts = run_time.estimate, []
    if estimate is not None:
        parts.append(f"{seconds_text(estimate.seconds)} by {SOURCE_WORDS[estimate.source]}")
    elif run_time.promised_seconds is not None:
        parts.append("no source gives one")
    if run_time.median_seconds is not None:
        one = "1 run like it" if run_time.runs == 1 else f"half of {run_time.runs} runs like it"
        parts.append(f"{one} took at most {seconds_text(run_time.median_seconds)}")
    if run_time.promised_seconds == inf:
        parts.append("promises cannot count on its end: it may not be evicted, and no limit ends it")
    elif run_time.promised_seconds is not None:
        parts.append(f"promises count with {seconds_text(run_time.promised_seconds)}, eviction included")
    return f"expected to run: {'; '.join(parts)}" if parts else None


def run_time_json(run_time: RunTime) -> dict[str, Any]:
    """Return the same as JSON: `summary` is the sentence, null is what is not known or has no end."""
    estimate, promised = run_time.estimate, run_time.promised_seconds
    return {
        "summary": run_time_line(run_time) or "",
        "estimateSeconds": None if estimate is None else round(estimate.seconds),
        "source": "" if estimate is None else estimate.source.value,
        "runsLikeIt": run_time.runs,
        "medianSeconds": None if run_time.median_seconds is None else round(run_time.median_seconds),
        "promisesCountSeconds": None if promised is None or isinf(promised) else round(promised),
    }
