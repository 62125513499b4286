"""Gangs with a minimum: that many pods of a PodGroup start together, and those beyond it one by one.

    the oldest `minimum` pods    one Workload with the name of the group, as for any group of pods
    each pod beyond them         a Workload of its own, once that of the group is admitted

So the minimum is admitted as a whole, the rest as room comes, and the quota of each pod returns with its end.
A Workload for all pods with Kueue's `minCount` was rejected: its number is frozen by the admission, so pods
for which there is no room at first would never start.

    the group loses its quota    the pods beyond are stopped too, and their Workloads deleted
    one of the minimum is lost   a pod beyond that still waits takes its place; one that runs goes on
    no nodes in time             the group is evicted (`scheduleTimeoutSeconds`), with a back-off

A group without a known minimum waits at the gate, which holds no quota.
Source: scheduler-plugins, its page on coscheduling, whose Permit holds pods until minMember of them fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.deadlines import PodsReadySettings
from admission.reconcile.decision_writes import evict_by_rule
from admission.reconcile.job.context import JobContext
from admission.reconcile.pod.reconcile import reconcile_pods
from admission.reconcile.pod.view import NOTHING_ELSE, PodView, UnitFacts
from admission.reconcile.pod.writes import warning
from admission.reconcile.workload.look import eviction
from admission.reconcile.workload_writes import finalizer_off, workload_deletion, workload_status
from api.jobs.gang import Gang, outside_gang
from api.jobs.pod import Pod
from api.reasons import ConditionType, EvictionReason
from api.workload import Workload
from api.workload_status import WorkloadStatusEdit

SeenPod = tuple[Pod, bytes]
SeenWorkload = tuple[Workload, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangFacts:
    """What is known of a gang besides its pods and Workloads.

    `gang` None: its PodGroup does not exist. `own`: the Workloads of single pods, by the uid of the pod, and
    `units`: what is known of these pods as units by themselves.
    `backoff`: how long, and how often, the gang stays out of its queue after a time-out.
    """

    gang: Gang | None
    own: Mapping[str, SeenWorkload] = field(default_factory=dict)
    units: Mapping[str, UnitFacts] = field(default_factory=dict)
    backoff: PodsReadySettings = field(default_factory=PodsReadySettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangResult:
    """What to do now, and when to look again (Unix seconds; None: only after a change)."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None


def reconcile_gang(
    pods: Sequence[SeenPod],
    workload: SeenWorkload | None,
    context: JobContext,
    *,
    now: float,
    facts: GangFacts,
) -> GangResult:
    """Return what the pods of a gang and their Workloads need next.

    `pods` are all of them (at least one), and `workload` is the one with the name of the group. Idempotent,
    as `reconcile_pods`, whose rules apply to the pods of the minimum and to each pod beyond it.
    """
    gang = facts.gang
    if workload is None and (gang is None or not gang.minimum):
        return GangResult(actions=_unknown(pods, facts, context, now=now))
    unit = replace(NOTHING_ELSE, replicas=gang.minimum if gang is not None and gang.minimum else None)
    parts = _split(pods, workload, context, unit, facts, now=now)
    actions: list[Action] = []
    wake_at = None
    if parts.core:
        view = PodView(parts.core, workload, context=context, now=now, facts=unit)
        late = _lateness(view, gang, facts)
        wake_at = late.wake_at
        actions += late.actions or reconcile_pods(parts.core, workload, context, now=now, facts=unit)
    elif workload is not None and _is_over(workload[0]) and workload[0].has_finalizer:
        # Its own pods are gone, and the pods beyond are no reason to keep it.
        actions.append(finalizer_off(*workload))
    missing = parts.missing
    for pod, raw in parts.beyond:
        own = facts.own.get(pod.uid)
        taken = missing > 0 and _may_join(pod, own)
        missing -= taken
        may_run = parts.is_met and not taken
        actions += _beyond((pod, raw), facts, context, now=now, may_run=may_run)
    return GangResult(actions=tuple(actions), wake_at=wake_at)


# --- which pods are the minimum ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The pods of the minimum, those beyond, and how many of the minimum a pod beyond has to replace.

    `is_met`: the minimum is admitted, or has finished.
    """

    core: tuple[SeenPod, ...]
    beyond: tuple[SeenPod, ...]
    missing: int
    is_met: bool


def _split(
    pods: Sequence[SeenPod],
    workload: SeenWorkload | None,
    context: JobContext,
    unit: UnitFacts,
    facts: GangFacts,
    *,
    now: float,
) -> _Parts:
    is_over = workload is not None and workload[0].is_finished
    # A pod with a Workload of its own stays beyond. Of a finished group, pods that wait came later.
    beyond = [one for one in pods if one[0].uid in facts.own or (is_over and one[0].is_gated)]
    apart = {pod.uid for pod, _ in beyond}
    others = [one for one in pods if one[0].uid not in apart]
    missing = 0
    if others and not is_over:
        view = PodView(others, workload, context=context, now=now, facts=unit)
        kept = {member.pod.uid for member in view.kept}
        more = {one.pod.uid for one in view.alive} - kept
        beyond += [one for one in others if one[0].uid in more]
        others = [one for one in others if one[0].uid not in more]
        missing = view.missing
    return _Parts(
        core=tuple(others),
        beyond=tuple(sorted(beyond, key=lambda one: (one[0].created_at, one[0].name))),
        missing=missing,
        is_met=workload is not None and _is_met(workload[0]),
    )


def _is_met(workload: Workload) -> bool:
    if workload.deleted_at is not None:
        return False
    return workload.is_finished or (workload.is_admitted and not workload.is_evicted)


def _is_over(workload: Workload) -> bool:
    return workload.deleted_at is not None or workload.is_finished


def _is_leaving(workload: Workload) -> bool:
    """Return whether the Workload has ended, or gives its quota back for another reason already."""
    is_marked = workload.is_true(ConditionType.DEACTIVATION_TARGET)
    return _is_over(workload) or workload.is_evicted or is_marked or not workload.active


# --- pods beyond the minimum ---------------------------------------------------------------------


def _may_join(pod: Pod, own: SeenWorkload | None) -> bool:
    """Return whether a pod beyond may take a place in the minimum: it waits, and holds no quota."""
    return pod.is_gated and not pod.is_deleted and (own is None or own[0].admission is None)


def _beyond(
    seen: SeenPod, facts: GangFacts, context: JobContext, *, now: float, may_run: bool
) -> tuple[Action, ...]:
    """Return what a pod beyond needs as a unit by itself; it loses its Workload while it may not run."""
    pod, raw = seen
    own = facts.own.get(pod.uid)
    is_ending = own is not None and (own[0].deleted_at is not None or own[0].is_finished)
    if own is not None and not may_run and not is_ending:
        # Its pod is stopped because of the deletion, before the quota is free.
        return (workload_deletion(own[0]),)
    if own is None and not may_run and not (pod.is_active or pod.is_deleted or pod.is_finished):
        # It waits at its gate, as if it did not exist yet.
        return ()
    unit = facts.units.get(pod.uid, NOTHING_ELSE)
    return reconcile_pods([(outside_gang(pod), raw)], own, context, now=now, facts=unit)


# --- time-outs -----------------------------------------------------------------------------------


def _lateness(view: PodView, gang: Gang | None, facts: GangFacts) -> GangResult:
    """Return the eviction of a gang whose pods have no nodes in time, or when that will be.

    While pods are missing before the admission there is nothing to release: only an Event says so.
    """
    limit = gang.timeout_seconds if gang is not None else None
    if limit is None or (view.held is not None and _is_leaving(view.workload)):
        return GangResult()
    if view.held is None or not view.workload.is_admitted:
        return _incomplete(view, limit)
    placed = sum(bool(one.pod.node) or one.pod.is_succeeded for one in view.kept)
    if placed >= view.expected:
        return GangResult()
    due = _late_since(view) + limit
    if due > view.now:
        return GangResult(wake_at=due)
    field = "spec.scheduleTimeoutSeconds of the PodGroup"
    note = f"{placed} of {view.expected} pods had nodes after {limit} s ({field})"
    return GangResult(actions=(_timed_out(view, facts.backoff, note),))


def _timed_out(view: PodView, backoff: PodsReadySettings, note: str) -> Write:
    """Return the eviction with its back-off, or the deactivation after the last retry that is allowed."""
    count = view.workload.requeue_count + 1
    if backoff.backoff_limit is not None and count > backoff.backoff_limit:
        edit = WorkloadStatusEdit(view.raw, now=view.now)
        message = "exceeding the maximum number of re-queuing retries"
        edit.target_deactivation("RequeuingLimitExceeded", message)
        return workload_status(edit, Purpose.DEACTIVATE)
    decision = eviction(view.workload, EvictionReason.PODS_READY_TIMEOUT, note, cause="WaitForMinMember")
    requeue_at = view.now + backoff.backoff_seconds(count)
    return evict_by_rule(decision, view.raw, now=view.now, requeue_at=requeue_at, requeue_count=count)


def _late_since(view: PodView) -> float:
    """Return since when pods may lack nodes: the admission, or the last change of what is to be replaced."""
    replaced = view.workload.conditions.get(ConditionType.WAITING_FOR_REPLACEMENT_PODS)
    admitted = view.workload.conditions[ConditionType.ADMITTED].at
    return admitted if replaced is None else max(admitted, replaced.at)


def _incomplete(view: PodView, limit: int) -> GangResult:
    if not view.missing or not view.kept:
        return GangResult()
    due = min(one.pod.created_at for one in view.kept) + limit
    if due > view.now:
        return GangResult(wake_at=due)
    note = (
        f"{len(view.kept)} of the {view.wanted} pods that must start together exist after {limit} s;"
        " they wait at their gates and hold no quota: create the others,"
        " or lower spec.minMember of the PodGroup"
    )
    event = warning(view.first, "PodGroupTimeout", note)
    # The Event is no answer: a step of the pods themselves may still be due.
    rest = reconcile_pods(
        [(one.pod, one.raw) for one in view.members],
        None if view.held is None else (view.workload, view.raw),
        view.context,
        now=view.now,
        facts=view.facts,
    )
    return GangResult(actions=(event, *rest))


def _unknown(
    pods: Sequence[SeenPod], facts: GangFacts, context: JobContext, *, now: float
) -> tuple[Action, ...]:
    """Return the Event of a gang whose minimum is unknown, and what its pods need to end."""
    view = PodView(pods, None, context=context, now=now)
    name = f"PodGroup {view.first.namespace}/{view.group}"
    if facts.gang is None:
        said = f"{name} does not exist: create it with spec.minMember, or remove the label from the pods"
    else:
        said = f"{name}: {facts.gang.fault}"
    ended: list[Action] = []
    for seen in pods:
        ended += _beyond(seen, facts, context, now=now, may_run=False)
    waiting = next((pod for pod, _ in pods if pod.is_gated and not pod.is_deleted), None)
    return tuple(ended) if waiting is None else (warning(waiting, "PodGroupUnknown", said), *ended)
