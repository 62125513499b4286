"""Gathers the answer of `berth explain` for one Workload from an engine with the cluster's objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from admission.answers.holding import AdmissionView, holding_of
from admission.answers.sight import EVERYTHING, Sight
from admission.answers.starts import start_bounds, start_of
from admission.engine.engine import Engine
from admission.engine.holders import Holder, Lack, holders, lacks
from admission.engine.remedies import Remedy
from admission.engine.workload_queries import RunTime
from admission.preemption.checkpoint_before_eviction import is_saving_at_sigterm
from admission.reconcile.decision_texts import request_text, stop_text
from admission.scheduler.flavor_promotion import FlavorMove
from admission.status.explain import PodSetLines
from admission.status.last_eviction import PastEviction, past_eviction
from admission.status.turns import positions
from api.eviction import current_request
from api.keys import PLANNED_START
from api.parsing.times import to_rfc3339, to_seconds
from api.reasons import CANNOT_START, ConditionType
from api.workload import Admission, Workload, WorkloadKey
from queues.estimates.estimator import shortest_grace_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """When a pending Workload is expected to start (RFC 3339, "" if unknown), and whether that is a promise.

    `after` is the latest known start of a Workload ahead of it, "" if unknown. Four of five starts lie
    between `earliest` and `latest` ("" if not known). Of one that depends on others, `after` is the expected
    end of the last of them, which `awaits` names. `can_start` False: not as it is.
    """

    expected: str = ""
    is_promised: bool = False
    after: str = ""
    earliest: str = ""
    latest: str = ""
    awaits: str = ""
    can_start: bool = True

    @property
    def at(self) -> float:
        """The expected start in Unix seconds, infinity if it is not known."""
        try:
            return to_seconds(self.expected) if self.expected else inf
        except ValueError:
            # Another client overwrote the annotation.
            return inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The content of the output.

    `position` counts from 1 and is None if the Workload is in no queue or cannot start. `history` are the
    Events about its promised start, the oldest first. `is_partial`: the reader may not read the queues.
    `hidden_holders` hold what is missing, too, and may not be named. `run_time` is None for one that has
    finished.
    """

    workload: Workload
    cluster_queue: str
    state: str
    position: int | None
    waiting: int
    reason: str
    message: str
    starts: Starts
    eviction: PastEviction | None
    holding: AdmissionView | None
    # The move to a better flavor that would pay now, where the policy promotes.
    move: FlavorMove | None
    pod_sets: tuple[PodSetLines, ...]
    lacking: tuple[Lack, ...] = ()
    holders: tuple[Holder, ...] = ()
    hidden_holders: tuple[Holder, ...] = ()
    run_time: RunTime | None = None
    remedies: tuple[Remedy, ...] = ()
    history: tuple[str, ...] = ()
    is_partial: bool = False


def find_workload(engine: Engine, namespace: str, name: str) -> Workload | None:
    """Return the Workload of this name, or else that of the Job of this name, or None."""
    # Names of Workloads contain a hash; users know the name of the Job.
    return engine.workloads.workload(WorkloadKey(namespace, name)) or _of_job(engine, namespace, name)


def _of_job(engine: Engine, namespace: str, job: str) -> Workload | None:
    """Return the Job's Workload, or None: of several, the one that has not finished, then the latest."""
    own = [
        one
        for one in engine.workloads.workloads()
        if one.key.namespace == namespace and one.owner_name == job
    ]
    return max(own, key=lambda one: (not one.is_finished, one.created_at), default=None)


def whole_answer(engine: Engine, workload: Workload, *, now: float, sight: Sight = EVERYTHING) -> Answer:
    """Return the answer where all that matters may be read. `now` is in Unix seconds.

    Its message names what `sight` shows; `as_seen` leaves out all other names.
    """
    queue = engine.queues.cluster_queue_of(workload)
    order = engine.queues.pending(queue)
    admission = engine.workloads.admission(workload.key)
    reason, message = _why(engine, workload, sight)
    starts = _starts(engine, workload, [one.key for one in order])
    turns = positions((one.key, start_of_key(engine, one.key)) for one in order if one.can_start)
    # A Workload with quota needs no list of flavors; its own usage would count against it there.
    pod_sets = () if workload.is_finished or admission is not None else engine.workloads.explanation(workload)
    lacking = lacks(pod_sets)
    return Answer(
        workload=workload,
        cluster_queue=admission.cluster_queue if admission is not None else queue,
        state=_state(workload, admission),
        position=turns.get(workload.key),
        waiting=len(turns),
        reason=reason,
        message=message,
        starts=replace(starts, can_start=engine.queues.can_start(workload.key)),
        eviction=past_eviction(workload, engine.workloads.key_of),
        holding=holding_of(workload, admission, engine.workloads.estimate(workload))
        if admission is not None
        else None,
        move=engine.promotions.explanation(workload.key, now=now),
        pod_sets=pod_sets,
        lacking=lacking,
        holders=holders(engine, workload, lacking[0].pair) if lacking else (),
        run_time=None if workload.is_finished else engine.workloads.run_time(workload),
    )


def partial_answer(engine: Engine, workload: Workload, cluster_queue: str, place: int | None) -> Answer:
    """Return the answer for a reader of one namespace: what the Workload's own object says.

    `place` is its position in the ClusterQueue as the visibility API shows it, None if that is not known.
    """
    holds = workload.admission if workload.has_quota_reservation else None
    reason, message = _of_object(workload)
    expected = start_of(workload.annotations)
    is_promised = PLANNED_START in workload.annotations
    can_start = is_promised or reason not in CANNOT_START
    estimate = engine.workloads.estimate(workload)
    return Answer(
        workload=workload,
        cluster_queue=cluster_queue,
        state=_state(workload, holds),
        position=place if can_start else None,
        waiting=0,
        reason=reason,
        message=message,
        starts=Starts(expected=expected if can_start else "", is_promised=is_promised, can_start=can_start),
        eviction=past_eviction(workload, engine.workloads.key_of),
        holding=holding_of(workload, holds, estimate) if holds is not None else None,
        move=None,
        pod_sets=(),
        is_partial=True,
    )


def start_of_key(engine: Engine, key: WorkloadKey) -> str | None:
    """Return the start that the engine knows, or else the Workload's annotations name (RFC 3339), or None."""
    known, workload = engine.promises.expected_start(key), engine.workloads.workload(key)
    # An engine that was built from objects alone has made no plan.
    if known is not None:
        return to_rfc3339(known)
    return (start_of(workload.annotations) or None) if workload is not None else None


def _starts(engine: Engine, workload: Workload, order: Sequence[WorkloadKey]) -> Starts:
    if workload.key not in order:
        awaited = engine.promises.awaited_end(workload.key)
        return Starts() if awaited is None else Starts(after=to_rfc3339(awaited.at), awaits=awaited.name)
    # Collect the starts of the whole queue: the latest known one ahead is a lower bound for this Workload.
    starts = [start_of_key(engine, key) or "" for key in order]
    place = order.index(workload.key)
    interval = engine.promises.start_interval(workload.key)
    return Starts(
        earliest=to_rfc3339(interval.earliest_at) if interval is not None else "",
        latest=to_rfc3339(interval.latest_at) if interval is not None else "",
        expected=starts[place],
        is_promised=engine.promises.planned(workload.key) is not None
        or PLANNED_START in workload.annotations,
        after=start_bounds(starts)[place],
    )


def _state(workload: Workload, admission: Admission | None) -> str:
    if workload.is_finished:
        return "finished"
    if admission is None:
        return "pending" if workload.active else "deactivated"
    return "admitted" if workload.is_true(ConditionType.ADMITTED) else "holds quota"


def _why(engine: Engine, workload: Workload, sight: Sight) -> tuple[str, str]:
    """Return reason and message: what keeps it from being tried, or else the result of the last attempt."""
    # A problem of the queue takes precedence, because the condition may be older.
    problem = engine.workloads.queue_problem(workload)
    if problem is not None and not workload.is_finished and not engine.workloads.is_holding(workload.key):
        return str(problem[0]), problem[1]
    request = current_request(workload)
    if request is not None:
        return request.reason.value, request_text(engine.workloads.named(request), sees=sight.sees)
    if is_saving_at_sigterm(workload):
        evicted = workload.conditions[ConditionType.EVICTED]
        return evicted.reason, f"{stop_text(shortest_grace_seconds(workload))}: {evicted.message}"
    allowed = workload.conditions.get(ConditionType.DISRUPTION_ALLOWED)
    if workload.is_evicted and allowed is not None and not allowed.status:
        # It is to be evicted, but a PodDisruptionBudget or the API server holds the eviction back.
        evicted = workload.conditions[ConditionType.EVICTED]
        return evicted.reason, f"{allowed.message}: {evicted.message}"
    return _of_object(workload)


def _of_object(workload: Workload) -> tuple[str, str]:
    """Return how it ended, or else why it waits, as its conditions say."""
    finished = workload.conditions.get(ConditionType.FINISHED)
    if finished is not None and finished.status:
        return finished.reason, finished.message
    condition = workload.conditions.get(ConditionType.QUOTA_RESERVED)
    if condition is None or condition.status:
        return "", ""
    return condition.reason, condition.message


def as_seen(answer: Answer, sight: Sight) -> Answer:
    """Return the answer without the names of Workloads that the caller may not see."""
    past = answer.eviction
    if past is not None and past.preemptor is not None and not sight.sees(past.preemptor.namespace):
        past = replace(past, preemptor=None)
    return replace(
        answer,
        eviction=past,
        holders=tuple(one for one in answer.holders if sight.sees(one.key.namespace)),
        hidden_holders=tuple(one for one in answer.holders if not sight.sees(one.key.namespace)),
    )
