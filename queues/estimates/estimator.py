"""How long a Workload is expected to run, from what its object says, its policy, and what earlier runs took.

Sources in order, the first that exists counts: maximumExecutionTimeSeconds, the Job's activeDeadlineSeconds
(which the Workload carries as an annotation, because the Job is not looked at when it is decided on),
`berth.dev/expected-runtime-seconds`, learned runs, the queue's default. The last two only under a policy's
`estimates`.

While it runs, `berth.dev/expected-completion-time` comes before all that nobody enforces: work that knows how
far it is knows better than what was said of it before. It says when others may count on its end, and nothing
else: who was let in on its word is held to the word of then, or would only have to put off its end to stay.
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

# What a pod needs to be gone after its grace has passed: the kubelet's report and the Job controller's count.
TERMINATION_SECONDS = 5.0
_DEFAULT_GRACE_SECONDS = 30
# Ten years: caps what a typing error may do to those who would wait for its end. Limits that are enforced are
# believed whatever they say, for they hold.
_MOST_SECONDS = 10 * 366 * 86_400
_INFERENCE = "inference"
# Of a text that cannot be read so much is quoted.
_MOST_QUOTED = 64


class Estimator:
    """Estimates run times. `learned` is what it learns from; `observe` adds to it."""

    def __init__(self, learned: LearnedRuntimes | None = None) -> None:
        self.learned = learned if learned is not None else LearnedRuntimes()

    def estimate(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        """Return how long the Workload runs from its start, None where nothing says so."""
        enforced = _enforced(workload)
        if enforced is not None:
            return enforced
        declared = declared_seconds(workload)
        if declared is not None:
            return Estimate(seconds=declared, source=Source.DECLARED)
        return self._by_policy(workload, policy)

    def unclaimed_estimate(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        """Return how long the Workload runs by what nobody can merely claim: a limit that is enforced, else
        what earlier runs took. None where there is neither.
        """
        return _enforced(workload) or self._learnt(workload, policy)

    def running_estimate(
        self, workload: Workload, policy: AdmissionPolicy, *, started_at: float
    ) -> Estimate | None:
        """Return how long a Workload that runs since `started_at` is expected to, by its latest word."""
        estimate, told = self.estimate(workload, policy), completion_at(workload)
        # An end before its start, or in years, is a mistake and says nothing.
        if told is None or not started_at < told <= started_at + _MOST_SECONDS:
            return estimate
        seconds = told - started_at
        # At the limit it is stopped, whatever it says of itself.
        if estimate is not None and estimate.is_enforced and estimate.seconds <= seconds:
            return estimate
        return Estimate(seconds=seconds, source=Source.COMPLETION_TIME)

    def observe(self, workload: Workload, seconds: float, key: RunKey) -> None:
        """Learn that the Workload, which has finished and is of this key, ran for so many seconds."""
        at = workload.conditions[ConditionType.FINISHED].at
        self.learned.observe(key, Run(at=at, uid=workload.uid, seconds=seconds))

    def _by_policy(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        rules, learned = policy.estimates, self._learnt(workload, policy)
        if learned is not None or rules is None or rules.default_seconds is None:
            return learned
        return Estimate(seconds=float(rules.default_seconds), source=Source.QUEUE_DEFAULT)

    def _learnt(self, workload: Workload, policy: AdmissionPolicy) -> Estimate | None:
        rules = policy.estimates
        # Asked first, because making a key means encoding the pod sets.
        if rules is None or not len(self.learned):
            return None
        key = key_of(workload)
        # A run or two are an accident, not an experience.
        if self.learned.count(key) < max(1, rules.min_observations):
            return None
        seconds = self.learned.quantile(key, rules.quantile)
        return None if seconds is None else Estimate(seconds=seconds, source=Source.LEARNED)


def _enforced(workload: Workload) -> Estimate | None:
    limit = workload.maximum_execution_time_seconds
    if limit is not None:
        # Earlier runs count against it, and what is left is how long the next one may take.
        left = max(0.0, float(limit - workload.accumulated_execution_seconds))
        return Estimate(seconds=left, source=Source.EXECUTION_LIMIT)
    deadline = _seconds(workload.annotations.get(JOB_DEADLINE_SECONDS))
    return None if deadline is None else Estimate(seconds=deadline, source=Source.JOB_DEADLINE)


def declared_seconds(workload: Workload) -> float | None:
    """Return the expected run time that the Workload or its pod templates declare; of several the longest.

    What cannot be read counts as not there (`runtime_problem` names it).
    """
    values = (_believable(text) for text in _declared(workload))
    return max((value for value in values if value is not None), default=None)


def runtime_problem(text: str) -> str | None:
    """Return the sentence for a declared run time that cannot be read, None where it can."""
    if _believable(text) is not None:
        return None
    return (
        f"{EXPECTED_RUNTIME_SECONDS} is {text[:_MOST_QUOTED]!r}, but must be a whole number of seconds "
        f"above 0 and no more than ten years ({_MOST_SECONDS}); it counts as not given"
    )


def completion_at(workload: Workload) -> float | None:
    """Return when the Workload says that it will be complete (Unix seconds), None where it says nothing."""
    return parse_instant(workload.annotations.get(EXPECTED_COMPLETION_TIME, ""))


def completion_problem(text: str, *, now: float) -> str | None:
    """Return the sentence for an expected completion that cannot be believed, None where it can.

    One that has passed is no fault: work may take longer than it thought.
    """
    told = parse_instant(text)
    if told is not None and told <= now + _MOST_SECONDS:
        return None
    return (
        f"{EXPECTED_COMPLETION_TIME} is {text[:_MOST_QUOTED]!r}, but must be an RFC 3339 time such as "
        "2026-01-31T12:00:00Z, within ten years; it counts as not given"
    )


def length_problems(sources: Iterable[Mapping[str, str]], *, now: float) -> tuple[str, ...]:
    """Return a sentence for each annotation on the length of work that cannot be believed.

    `sources` are the labels and annotations of an object and of its template.
    """
    found: dict[str | None, None] = {}
    for source in sources:
        declared, completion = source.get(EXPECTED_RUNTIME_SECONDS), source.get(EXPECTED_COMPLETION_TIME)
        found[runtime_problem(declared) if declared is not None else None] = None
        found[completion_problem(completion, now=now) if completion is not None else None] = None
    return tuple(said for said in found if said is not None)


def may_be_evicted(workload: Workload) -> bool:
    """Return whether the Workload may be stopped to make way: inference serves somebody, it may not."""
    if workload.annotations.get(WORKLOAD_TYPE) == _INFERENCE:
        return False
    return not any(
        one.template.metadata is not None
        and (one.template.metadata.annotations or {}).get(WORKLOAD_TYPE) == _INFERENCE
        for one in workload.pod_sets
    )


def is_opportunistic(workload: Workload) -> bool:
    """Return whether the Workload offers to run where it will have to give way, and may be stopped."""
    return workload.annotations.get(OPPORTUNISTIC) == "true" and may_be_evicted(workload)


def eviction_seconds(workload: Workload) -> float:
    """Return how long an eviction takes from the decision until the quota is free, by the pods' grace."""
    return max(_graces(workload), default=0) + TERMINATION_SECONDS


def shortest_grace_seconds(workload: Workload) -> float:
    """Return for how long each pod of the Workload may run on after SIGTERM, 0 without pods."""
    return min(_graces(workload), default=0)


def _graces(workload: Workload) -> Iterator[int]:
    """Yield the grace of each template that pods run by: one that has none, or whose pods are done, ends
    nothing.
    """
    admission = workload.admission
    admitted = {one.name: one.count for one in admission.pod_sets} if admission is not None else {}
    for pod_set in workload.pod_sets:
        # Admitted with fewer pods than it asks for, it runs fewer.
        if admitted.get(pod_set.name, pod_set.count) <= workload.reclaimable.get(pod_set.name, 0):
            continue
        spec = pod_set.template.spec
        told = spec.termination_grace_period_seconds if spec is not None else None
        yield _DEFAULT_GRACE_SECONDS if told is None else told


def measured_seconds(workload: Workload) -> float | None:
    """Return how long a Workload that ended well was admitted in its last run, None for any other."""
    finished = workload.conditions.get(ConditionType.FINISHED)
    admitted = workload.conditions.get(ConditionType.ADMITTED)
    if finished is None or admitted is None or not finished.status or not admitted.status:
        return None
    # A run that failed says how long failing took.
    if finished.reason != "Succeeded":
        return None
    return max(0.0, finished.at - admitted.at)


def kind_of(workload: Workload) -> tuple[str, str]:
    """Return namespace and name stem: Workloads of one key are of one kind, and it costs much less."""
    return workload.key.namespace, name_stem(workload.owner_name or workload.key.name)


def key_of(workload: Workload) -> RunKey:
    """Return under which key the Workload's runs are remembered: its owner's name stem, and its pods."""
    # The requests with the name: the same training on twice the GPUs is another length.
    pods = [(one.name, one.count, _requested(one.template.spec)) for one in workload.pod_sets]
    name = workload.owner_name or workload.key.name
    return run_key(workload.key.namespace, name, _ENCODER.encode(pods))


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _requested(spec: object) -> list[object]:
    containers = getattr(spec, "containers", None) or ()
    return [one.resources.requests if one.resources is not None else None for one in containers]


def _declared(workload: Workload) -> Iterator[str]:
    # The object's own word before its templates', which may have been copied from elsewhere.
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
