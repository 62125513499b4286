"""The expected run time of a Workload: from its object, its policy, and earlier runs.

The first source that exists is used: maximumExecutionTimeSeconds, the Job's activeDeadlineSeconds (which
the Workload carries as an annotation, because decisions do not read the Job),
`berth.dev/expected-runtime-seconds`, learned run times, the queue's default. The last two apply only where
a policy sets `estimates`.

While a Workload runs, `berth.dev/expected-completion-time` takes precedence over everything that is not
enforced: running work knows its progress better than any earlier estimate. The annotation changes only when
other Workloads may count on the end of this one. It does not extend a start that was granted on a shorter
estimate; otherwise a Workload could stay simply by postponing its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from api.jobs.checkpoint_annotations import parse_instant
from api.keys import (
    EXPECTED_COMPLETION_TIME,
    EXPECTED_RUNTIME_SECONDS,
    JOB_DEADLINE_SECONDS,
    OPPORTUNISTIC,
    WORKLOAD_TYPE,
)
from api.parsing.decimals import whole_number
from api.policy import AdmissionPolicy
from api.reasons import ConditionType
from api.workload import Workload
from queues.estimates.run_history import Run
from queues.estimates.runtime_estimate import Estimate, LearnedRuntimes, RunKey, Source, name_stem, run_key

# Seconds from the end of a pod's grace period until it is gone: the kubelet's report and
# the Job controller's count.
TERMINATION_SECONDS = 5.0
_DEFAULT_GRACE_SECONDS = 30
# Ten years. Caps how long a typing error can make other Workloads wait. Enforced limits are not capped,
# because the work really is stopped at them.
_MOST_SECONDS = 10 * 366 * 86_400
_INFERENCE = "inference"
# At most this many characters of an unreadable text are quoted.
_MOST_QUOTED = 64


class Estimator:
    """Estimates run times. `learned` is what it learns from; `observe` adds to it."""

    def __init__(self) -> None:
        self.learned = LearnedRuntimes()

    def estimate(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        """Return the expected run time from the Workload's start, None where no source gives one."""
        enforced = _enforced(workload)
        if enforced is not None:
            return enforced
        declared = declared_seconds(workload)
        if declared is not None:
            return Estimate(seconds=declared, source=Source.DECLARED)
        return self._by_policy(workload, policy)

    def unclaimed_estimate(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        """Return the expected run time without the user's own declarations.

        That is an enforced limit, otherwise what earlier runs took. None where there is neither.
        """
        return _enforced(workload) or self._learnt(workload, policy)

    def running_estimate(
        self, workload: Workload, policy: AdmissionPolicy, *, started_at: float
    ) -> Estimate | None:
        """Return the expected run time of a Workload running since `started_at`, by its annotations now."""
        estimate, completion = self.estimate(workload, policy), completion_at(workload)
        # A completion before the start, or years ahead, is a mistake and is ignored.
        if completion is None or not started_at < completion <= started_at + _MOST_SECONDS:
            return estimate
        seconds = completion - started_at
        # An enforced limit stops the work earlier, whatever the annotation says.
        if estimate is not None and estimate.is_enforced and estimate.seconds <= seconds:
            return estimate
        return Estimate(seconds=seconds, source=Source.COMPLETION_TIME)

    def observe(self, workload: Workload, seconds: float, key: RunKey) -> None:
        """Learn that the finished Workload, which belongs to `key`, ran for `seconds`."""
        at = workload.conditions[ConditionType.FINISHED].at
        self.learned.observe(key, Run(at=at, uid=workload.uid, seconds=seconds))

    def _by_policy(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        rules, learned = policy.estimates, self._learnt(workload, policy)
        if learned is not None or rules is None or rules.default_seconds is None:
            return learned
        return Estimate(seconds=float(rules.default_seconds), source=Source.QUEUE_DEFAULT)

    def _learnt(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        rules = policy.estimates
        # Checked first, because computing the key encodes the pod sets.
        if rules is None or not len(self.learned):
            return None
        key = key_of(workload)
        # One or two runs may be exceptions, so a minimum number is required.
        if self.learned.count(key) < max(1, rules.min_observations):
            return None
        seconds = self.learned.quantile(key, rules.quantile)
        return None if seconds is None else Estimate(seconds=seconds, source=Source.LEARNED)


def _enforced(workload: Workload) -> Estimate | None:
    limit = workload.maximum_execution_time_seconds
    if limit is not None:
        # The limit covers all runs together, so the next run may take only what earlier ones left.
        left = max(0.0, float(limit - workload.accumulated_execution_seconds))
        return Estimate(seconds=left, source=Source.EXECUTION_LIMIT)
    deadline = _seconds(workload.annotations.get(JOB_DEADLINE_SECONDS))
    return None if deadline is None else Estimate(seconds=deadline, source=Source.JOB_DEADLINE)


def declared_seconds(workload: Workload) -> float | None:
    """Return the longest expected run time that the Workload or its pod templates declare, in seconds.

    None where none is declared. An unreadable value is ignored (`runtime_problem` describes it).
    """
    values = (_believable(text) for text in _declared(workload))
    return max((value for value in values if value is not None), default=None)


def runtime_problem(text: str) -> str | None:
    """Return a sentence about a declared run time that cannot be used, None where it can."""
    if _believable(text) is not None:
        return None
    return (
        f"{EXPECTED_RUNTIME_SECONDS} is {text[:_MOST_QUOTED]!r}, but must be a whole number of seconds "
        f"above 0 and no more than ten years ({_MOST_SECONDS}); the annotation is ignored"
    )


def completion_at(workload: Workload) -> float | None:
    """Return the Workload's declared completion (Unix seconds), None where none is declared."""
    return parse_instant(workload.annotations.get(EXPECTED_COMPLETION_TIME, ""))


def completion_problem(text: str, *, now: float) -> str | None:
    """Return a sentence about an expected completion that cannot be used, None where it can.

    An instant in the past is not a problem: work may take longer than it declared.
    """
    instant = parse_instant(text)
    if instant is not None and instant <= now + _MOST_SECONDS:
        return None
    return (
        f"{EXPECTED_COMPLETION_TIME} is {text[:_MOST_QUOTED]!r}, but must be an RFC 3339 time such as "
        "2026-01-31T12:00:00Z, within ten years; the annotation is ignored"
    )


def length_problems(sources: Iterable[Mapping[str, str]], *, now: float) -> tuple[str, ...]:
    """Return one sentence for each annotation on run time or completion that cannot be used.

    `sources` are the labels and annotations of an object and of its template.
    """
    found: dict[str | None, None] = {}
    for source in sources:
        declared, completion = source.get(EXPECTED_RUNTIME_SECONDS), source.get(EXPECTED_COMPLETION_TIME)
        found[runtime_problem(declared) if declared is not None else None] = None
        found[completion_problem(completion, now=now) if completion is not None else None] = None
    return tuple(problem for problem in found if problem is not None)


def may_be_evicted(workload: Workload) -> bool:
    """Return whether the Workload may be evicted for another. False for inference, which serves users."""
    if workload.annotations.get(WORKLOAD_TYPE) == _INFERENCE:
        return False
    return not any(
        one.template.metadata is not None
        and (one.template.metadata.annotations or {}).get(WORKLOAD_TYPE) == _INFERENCE
        for one in workload.pod_sets
    )


def is_opportunistic(workload: Workload) -> bool:
    """Return whether the Workload accepts starts that end in an eviction, and may be evicted."""
    return workload.annotations.get(OPPORTUNISTIC) == "true" and may_be_evicted(workload)


def eviction_seconds(workload: Workload) -> float:
    """Return how many seconds an eviction takes until the quota is free, by the pods' grace periods."""
    return max(_graces(workload), default=0) + TERMINATION_SECONDS


def shortest_grace_seconds(workload: Workload) -> float:
    """Return how many seconds every pod of the Workload may run after SIGTERM; 0 without pods."""
    return min(_graces(workload), default=0)


def _graces(workload: Workload) -> Iterator[int]:
    """Yield the grace period of each pod template that has running pods.

    A template without pods, or whose pods are all done, ends nothing and is left out.
    """
    admission = workload.admission
    admitted = {one.name: one.count for one in admission.pod_sets} if admission is not None else {}
    for pod_set in workload.pod_sets:
        # A partially admitted pod set runs fewer pods than its count.
        if admitted.get(pod_set.name, pod_set.count) <= workload.reclaimable.get(pod_set.name, 0):
            continue
        spec = pod_set.template.spec
        grace = spec.termination_grace_period_seconds if spec is not None else None
        yield _DEFAULT_GRACE_SECONDS if grace is None else grace


def measured_seconds(workload: Workload) -> float | None:
    """Return how many seconds a successful Workload was admitted in its last run, None for any other."""
    finished = workload.conditions.get(ConditionType.FINISHED)
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    if finished is None or admitted is None or not finished.status or not admitted.status:
        return None
        # A failed run measures only how long failing took.
    if finished.reason != "Succeeded":
        return None
    return max(0.0, finished.at - admitted.at)


def kind_of(workload: Workload) -> tuple[str, str]:
    """Return namespace and name stem. Workloads with equal `key_of` have equal results; this is cheaper."""
    return workload.key.namespace, name_stem(workload.owner_name or workload.key.name)


def key_of(workload: Workload) -> RunKey:
    """Return the key under which the Workload's runs are remembered: its owner's name stem and its pods."""
    # Requests are part of the key: the same training on twice the GPUs has another run time.
    pods = [(one.name, one.count, _requested(one.template.spec)) for one in workload.pod_sets]
    name = workload.owner_name or workload.key.name
    return run_key(workload.key.namespace, name, _ENCODER.encode(pods))


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _requested(spec: object) -> list[object]:
    containers = getattr(spec, "containers", None) or ()
    return [one.resources.requests if one.resources is not None else None for one in containers]


def _declared(workload: Workload) -> Iterator[str]:
    # The object's own annotation takes precedence: templates may have been copied from elsewhere.
    own = workload.annotations.get(EXPECTED_RUNTIME_SECONDS)
    if own is not None:
        yield own
        return
    for pod_set in workload.pod_sets:
        metadata = pod_set.template.metadata
        text = (metadata.annotations or {}).get(EXPECTED_RUNTIME_SECONDS) if metadata is not None else None
        if text is not None:
            yield text


def _believable(text: str) -> float | None:
    seconds = _seconds(text)
    return seconds if seconds is not None and seconds <= _MOST_SECONDS else None


def _seconds(text: str | None) -> float | None:
    seconds = whole_number(text)
    return float(seconds) if seconds else None
