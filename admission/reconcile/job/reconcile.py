"""What a batch/v1 Job and its Workloads need next, as one pure function.

Theory of operation. `reconcile_job` looks at a Job and its own Workloads, and returns the next writes. It is
level-triggered: no step depends on another having run before. The steps are tried in order, and the first
with an answer ends the look. An empty answer means "nothing now, look again after a change".

    Job created ─▶ Workload created ─▶ (queue) ─▶ admitted ─▶ Job started ─▶ finished ─▶ Workload finished
                                          ▲           │
                                          │        evicted ─▶ Job suspended ─▶ restored ─▶ quota released
                                          └────────────────────────────────────────────────────────┘

Quota is released only after the Job has stopped; Evicted alone releases nothing. A Job without a queue is
never touched. Invalid input becomes a Warning Event on the Job and affects no other object.
Source: Kueue, pkg/controller/jobframework/reconciler.go and pkg/controller/jobs/job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from admission.decisions.api_writes import Action, Event, Purpose, Write
from admission.reconcile import checkpoints
from admission.reconcile.job.compose import changed_fields, create, rewrite
from admission.reconcile.job.context import COUNTED, Ancestor, JobContext
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.job_view import JobView
from admission.reconcile.job.owner_view import OwnerView
from admission.reconcile.job.slices import answer_slices
from admission.reconcile.job.start_stop import Answer, start, stop
from admission.reconcile.job.view import View
from admission.reconcile.job.writes import adopt, delete, finish, refusal, suspend, warning
from admission.reconcile.workload_writes import OWNER_GONE, finalizer_off, workload_patch, workload_status
from api import keys
from api.jobs.job import ComposeError, Job
from api.jobs.owners.owner import Owner
from api.jobs.queued_object import QueuedJob
from api.reasons import ConditionType, FinishedReason, PendingReason
from api.workload import Workload
from api.workload_status import WorkloadStatusEdit
from queues.estimates.estimator import completion_problem

_NO_MATCH = "No matching Workload; restoring pod templates according to existent Workload"
_ON_HOLD = "Job is on hold"
_NO_WORKLOAD = "Missing Workload; unable to restore pod templates"


def reconcile_job(
    job: Job,
    raw: bytes,
    workloads: Sequence[tuple[Workload, bytes]],
    context: JobContext,
    *,
    now: float,
) -> tuple[Action, ...]:
    """Return what this Job needs next; () if nothing.

    `workloads` are those that the Job owns (by uid) and the prebuilt one that it names, in any order.
    `raw` is the Job as last seen. Idempotent: once the writes are seen, the same call returns no more
    writes. An Event may be returned as long as its cause persists. Raises msgspec.DecodeError if `raw` is
    not a JSON object.
    """
    return reconcile_view(JobView(job, raw, workloads, context=context, now=now))


def reconcile_queued(
    job: QueuedJob,
    raw: bytes,
    workloads: Sequence[tuple[Workload, bytes]],
    context: JobContext,
    *,
    now: float,
) -> tuple[Action, ...]:
    """Return what a Job or an owner of the table needs next: see `reconcile_job`."""
    if isinstance(job, Owner):
        return reconcile_view(OwnerView(job, raw, workloads, context=context, now=now))
    assert isinstance(job, Job), "every object that is started as a whole is one of the two"
    return reconcile_job(job, raw, workloads, context, now=now)


def reconcile_view(view: View) -> tuple[Action, ...]:
    """Return what the object of a view needs next: see `reconcile_job`."""
    if not _is_managed(view) or view.is_left_alone:
        return ()
    # In addition to the steps: a checkpoint that is ignored stops nothing else.
    notes = (*_note_checkpoint(view), *_note_completion(view), *_note_queue(view))
    for step in _STEPS:
        answer = step(view)
        if answer is not None:
            return (*notes, *answer)
    return notes


# --- which Jobs are managed ----------------------------------------------------------------------


def _is_managed(view: View) -> bool:
    # A Job that owns a Workload stays managed until the Workload is gone, even if its labels were removed,
    # because the Workload may hold quota.
    if view.owned:
        return True
    if not view.context.is_namespace_managed(view.job.namespace):
        return False
    return _is_queued(view) or view.ancestor is not Ancestor.NONE


def _note_checkpoint(view: View) -> tuple[Event, ...]:
    """Report a checkpoint that is older than the last one or in the future. It stops nothing else."""
    if keys.CHECKPOINT_TIME not in view.job.annotations or view.match is None:
        return ()
    said = checkpoints.refusal(view.job.annotations, view.match.workload.annotations, now=view.now)
    return (warning(view, "CheckpointRefused", f"{view.title}: {said}"),) if said is not None else ()


def _note_completion(view: View) -> tuple[Event, ...]:
    """Report a completion time that cannot be read. A running Job may set it at any time."""
    text = view.job.annotations.get(keys.EXPECTED_COMPLETION_TIME)
    said = completion_problem(text, now=view.now) if text is not None and view.match is not None else None
    return (warning(view, "InvalidExpectedRuntime", said),) if said is not None else ()


def _note_queue(view: View) -> tuple[Event, ...]:
    """Report that a running Job names another queue: it stays in the present one."""
    held, wanted = view.match, view.job.queue_name
    if held is None or not held.workload.is_admitted or held.workload.is_finished:
        return ()
    present = held.workload.queue_name
    # A prebuilt Workload names its own queue, and without a name the Job leaves queueing.
    if wanted in ("", present) or view.job.prebuilt_workload or view.job.outcome is not None:
        return ()
    note = (
        f"{view.title} names queue {wanted}, but holds quota of queue {present} and keeps it: it moves to "
        f"{wanted} once it is stopped, for example by spec.active: false on Workload {held.workload.key}"
    )
    return (warning(view, "QueueChangeIgnored", note),)


def _is_queued(view: View) -> bool:
    return bool(view.job.queue_name) or view.context.settings.manages_without_queue_name


def _answer_child(view: View) -> Answer:
    """A child of a queued ancestor waits for its Workload. One that it does not count may have its own."""
    job, manages_all = view.job, view.context.settings.manages_without_queue_name
    if view.ancestor in COUNTED:
        return _counted(view)
    # The Workload of a Job counts only the Job's own pods, so a child in a queue is queued itself, and a Job
    # with a Workload is not released by an owner that is added later.
    if view.owned or job.queue_name:
        return None
    # This step comes first, because such a child has no Workload of its own.
    match view.ancestor:
        case Ancestor.NONE:
            return None
        # Where all Jobs are queued, an owner that does not count the child's pods exempts none of them.
        case Ancestor.ADMITTED | Ancestor.TOO_DEEP if manages_all:
            return None
        case Ancestor.WAITING if _may_run(job):
            return (_suspend_child(view),)
        case Ancestor.TOO_DEEP:
            note = f"{view.title} has too many controllers above it to tell whether one of them is queued"
            return (warning(view, "JobNestingTooDeep", note),)
        case _:
            return ()


def _counted(view: View) -> tuple[Action, ...]:
    """Return what a child needs whose quota its ancestor's Workload has: none of its own, and no start."""
    # It may have been queued before its owner was known. Its finalizer keeps nothing that is in use.
    own = tuple(
        finalizer_off(held.workload, held.raw) if held.workload.deleted_at is not None else delete(view, held)
        for held in view.owned
        if held.workload.deleted_at is None or held.workload.has_finalizer
    )
    if view.ancestor is Ancestor.COUNTED_WAITING and _may_run(view.job):
        return (_suspend_child(view), *own)
    return own


def _may_run(job: QueuedJob) -> bool:
    return not job.is_suspended and job.outcome is None and not job.is_deleted


def _suspend_child(view: View) -> Write:
    return suspend(view, "Suspended", "Kueue managed child job suspended")


def _answer_deletion(view: View) -> Answer:
    """Let deleted Workloads go once their Job has stopped, and finish those of a deleted Job."""
    job = view.job
    has_ended = job.is_deleted or job.outcome is not None or view.match is not None
    # A Job that was stopped and restored has no pods that could use the Workload's quota.
    if has_ended or (job.is_suspended and job.active == 0 and not view.is_stopping):
        deleted = (held.workload for held in view.owned if held.workload.deleted_at is not None)
        kept = {workload.uid for workload in deleted if workload.has_finalizer}
        # Finalizers of deleted Workloads are removed only now: earlier, the quota would be
        # free while pods run.
        if kept:
            return tuple(
                finalizer_off(held.workload, held.raw) for held in view.owned if held.workload.uid in kept
            )
    if not job.is_deleted or job.outcome is not None:
        return _unused_slices_off(view) or None
    # Its pods use the quota until they have ended. The garbage collector may come late, or leave the Workload
    # behind: by default a deletion of batch/v1 Jobs orphans what they own.
    return () if job.active > 0 else _ended(view, FinishedReason.OWNER_NOT_FOUND, OWNER_GONE)


def _unused_slices_off(view: View) -> tuple[Write, ...]:
    """Return the writes that let deleted slices go which wait while another has the Job's quota and pods."""
    if not view.is_elastic or view.slices.admitted is None:
        return ()
    return tuple(
        finalizer_off(held.workload, held.raw)
        for held in view.owned
        if held.workload.deleted_at is not None
        and held.workload.admission is None
        and held.workload.has_finalizer
    )


# --- the Job has ended ---------------------------------------------------------------------------


def _answer_end(view: View) -> Answer:
    """Finish the Workloads of a finished Job, and then remove their finalizers."""
    outcome = view.job.outcome
    if outcome is None:
        return None
    reason = FinishedReason.SUCCEEDED if outcome.is_success else FinishedReason.FAILED
    return _ended(view, reason, outcome.message)


def _ended(view: View, reason: FinishedReason, message: str) -> tuple[Write, ...]:
    """Return the writes that finish the Workloads of a Job, and then remove their finalizers."""
    return tuple(
        finalizer_off(held.workload, held.raw)
        # In two writes, so that the Workload shows how it ended before its finalizer is removed.
        if held.workload.is_finished
        else finish(view, held, reason, message)
        for held in view.live
        if not held.workload.is_finished or held.workload.has_finalizer
    )


# --- which Workload is the Job's own -------------------------------------------------------------


def _answer_abandoned(view: View) -> Answer:
    """A suspended Job that has left its queue has its Workloads deleted."""
    job = view.job
    if _is_queued(view) or not job.is_suspended or job.prebuilt_workload:
        return None
    stopped = stop(view, view.match or _source(view, view.live))
    # Stopped first: without a Workload the Job's template could not be restored.
    return stopped if stopped is not None else tuple(delete(view, held) for held in view.live)


def _answer_prebuilt(view: View) -> Answer:
    """Adopt a Workload that the Job names, or report that it does not match."""
    job, held = view.job, view.prebuilt
    if not job.prebuilt_workload:
        return None
    if held is None or held.workload.deleted_at is not None:
        # The Job waits for a Workload that a user or program has yet to create. () ends the look, so that no
        # other Workload is created instead.
        return stop(view, held, _NO_WORKLOAD) or ()
    workload = held.workload
    if workload.owner_uid is None:
        return (adopt(view, held),)
    if workload.owner_uid != job.uid:
        note = (
            f"{view.title}: Workload {workload.key}, named by {keys.PREBUILT_WORKLOAD_NAME}, belongs to"
            f" {workload.owner_kind} {workload.owner_name}; name another one"
        )
        # The Workload of another Job cannot restore this Job's template, so nothing is restored.
        return (*(stop(view, None, note) or ()), warning(view, "ErrWorkloadCompose", note))
    if workload.is_finished or view.is_match(held):
        return None
    stopped = stop(view, held, _NO_MATCH)
    if stopped is not None:
        return stopped
    message = "The prebuilt workload is out of sync with its user job"
    # The Job was edited afterwards: its Workload is for other pods, and its author has to create another.
    return (finish(view, held, FinishedReason.OUT_OF_SYNC, message),)


def _answer_surplus(view: View) -> Answer:
    """Keep the Workload that matches. If none matches, update one that waits, and delete the others."""
    if view.match is not None:
        # Several match if an edit was reverted. The first by precedence stays: one that holds quota.
        kept = (view.match, view.running)
        return tuple(delete(view, held) for held in view.live if held not in kept) or None
    if not view.live:
        return None
    # With several Workloads it is unknown which of them the template was changed for.
    stopped = stop(view, _source(view, view.live), _NO_MATCH)
    if stopped is not None:
        # The Job must not run on a Workload that describes something else.
        return stopped
    first, *rest = view.live
    if first.workload.admission is not None or first.workload.is_finished:
        # A Workload that holds quota or has finished is not rewritten: it was admitted for other pods.
        return tuple(delete(view, held) for held in view.live)
    return (*rewrite(view, first), *(delete(view, held) for held in rest))


def _answer_missing(view: View) -> Answer:
    """Create the Workload of a Job that has none. The Job does not run until it is admitted."""
    if view.match is not None:
        return None
    # `owned` and not `live`: a template can be restored from a Workload that is being deleted.
    stopped = stop(view, _source(view, view.owned), _NO_WORKLOAD)
    name = view.workload_name
    if stopped == () or any(held.workload.key.name == name for held in view.owned):
        # Pods of an earlier run still exist, or the Workload of this name is being deleted: look again later.
        return stopped or ()
    if stopped and view.is_elastic:
        # Its suspension is a generation of its own, by which its slice is named: at once, it would get two.
        return stopped
    # Both writes in one answer if possible: the Job is suspended, and its Workload is created.
    return (*(stopped or ()), *create(view))


# --- the Workload follows the Job, and the Job the Workload --------------------------------------


def _answer_finished_workload(view: View) -> Answer:
    """A Workload that finished before its Job (because it could not start, say) leaves the Job stopped."""
    held = _matched(view)
    end = held.workload.end
    if end is None:
        return None
    stopped = stop(view, held, end.message)
    # The Job is stopped and restored first. Then the finished Workload loses its finalizer.
    if stopped is not None:
        return stopped
    return (finalizer_off(held.workload, held.raw),) if held.workload.has_finalizer else ()


def _answer_hold(view: View) -> Answer:
    """Release the quota of an object that its controller refuses to run, and queue it once it does not."""
    held = _matched(view)
    if not (view.is_on_hold or held.workload.is_on_hold):
        return None
    edit = WorkloadStatusEdit(held.raw, now=view.now)
    if not view.is_on_hold:
        edit.queue_again(view.context.settings.words.released)
        return (workload_status(edit, Purpose.RELEASE),)
    stopped = stop(view, held, _ON_HOLD)
    if stopped is not None:
        return stopped
    if held.workload.admission is None:
        return () if held.workload.is_on_hold else None
    edit.release(PendingReason.ON_HOLD, _ON_HOLD)
    return (workload_status(edit, Purpose.RELEASE),)


def _answer_eviction(view: View) -> Answer:
    """Stop the Job of an evicted Workload, and only then release the quota."""
    held = _matched(view)
    evicted = held.workload.eviction
    if evicted is None:
        return None
    stopped = stop(view, held, evicted.message)
    if stopped is not None:
        return stopped
    if held.workload.admission is None:
        # The quota has been released already, so later steps may go on.
        return None
    edit = WorkloadStatusEdit(held.raw, now=view.now)
    edit.release(view.context.settings.words.released)
    return (workload_status(edit, Purpose.RELEASE),)


def _answer_changes(view: View) -> Answer:
    """Copy changes of the Job's template, queue, priority class, limits and keys to its Workload."""
    held, job = _matched(view), view.job
    if not job.is_suspended and not (held.workload.is_admitted or view.goes_on):
        # It has to be stopped first: an unreadable label must not let it run on.
        return None
    if _is_outdated(view, held):
        return rewrite(view, held)
    try:
        patches = [(one, changed_fields(view, one)) for one in dict.fromkeys((held, view.running or held))]
    except ComposeError as error:
        # Reported on the Job and not written: the Workload stays as it was queued.
        return (refusal(view, error),)
    writes = [workload_patch(one.workload, patch, Purpose.UPDATE_WORKLOAD) for one, patch in patches if patch]
    return tuple(writes) or None


def _is_outdated(view: View, held: HeldJob) -> bool:
    """Return whether a waiting Workload lacks an edit of its Job that leaves it the same Workload."""
    job, workload = view.job, held.workload
    if workload.admission is not None or view.is_stopping or job.prebuilt_workload or view.goes_on:
        return False
    # A slice that waits has the templates of the admitted one, without what the start has added.
    if view.is_elastic and view.slices.admitted is not None:
        return False
    return not view.is_up_to_date(held)


def _answer_pods(view: View) -> Answer:
    """Report on the Workload whether pods are ready and how much quota the Job no longer needs."""
    held, job = _matched(view), view.job
    if not held.workload.is_admitted or job.is_suspended:
        return None
    edit = WorkloadStatusEdit(held.raw, now=view.now)
    if view.context.settings.waits_for_pods:
        # Only if waitForPodsReady is on: a condition that changes often costs writes.
        edit.report_pods(is_ready=view.has_pods_ready)
    known = held.workload.reclaimable
    found = view.reclaimable if view.context.settings.reclaims_pods else {}
    # It may only grow while quota is held: quota that was given back may be in use by another Workload.
    counts = found if held.is_shrunk else {name: max(n, known.get(name, 0)) for name, n in found.items()}
    if any(count != known.get(name, 0) for name, count in counts.items()):
        rows = [{"name": name, "count": count} for name, count in counts.items() if count]
        edit.put("reclaimablePods", rows)
    return (workload_status(edit, Purpose.SYNC_PODS),) if edit.is_changed else None


# --- start and stop ------------------------------------------------------------------------------


def _answer_start(view: View) -> Answer:
    """Start the Job of an admitted Workload, and stop a Job that runs without admission.

    An elastic Job runs on the slice that is admitted, while another waits.
    """
    held, job = view.running or _matched(view), view.job
    if view.goes_on:
        return None
    if not held.workload.is_admitted:
        stopped = stop(view, held, "Not admitted by cluster queue") or ()
        return (*stopped, *_unready(view, held))
    if not job.is_suspended:
        return None
    if view.is_elastic and job.active > 0:
        # They may have started without a gate.
        return ()
    # If another admission interrupted a stop, the stop has to be finished first. Otherwise the template would
    # keep the node labels of the old flavor.
    unsettled = stop(view, held) if view.has_leftovers(held) else view.thaw()
    return unsettled if unsettled is not None else start(view, held)


def _unready(view: View, held: HeldJob) -> tuple[Write, ...]:
    """Return the write that reports the pods of a Workload without admission as not ready, if it says else.

    The admission may have been taken away by another writer than Berth, which resets the condition itself.
    """
    present = held.workload.conditions.get(ConditionType.PODS_READY)
    if present is None or not view.context.settings.waits_for_pods:
        return ()
    if (present.status, present.reason) == (False, "WaitForStart"):
        # Also after an edit of the Workload: what it says still holds for its new generation.
        return ()
    edit = WorkloadStatusEdit(held.raw, now=view.now)
    edit.await_start()
    return (workload_status(edit, Purpose.SYNC_PODS),)


_STEPS: tuple[Callable[[View], Answer], ...] = (
    # Whether the Job is managed here, deleted or finished; then which Workload is its own; then what that
    # needs. Each step relies on those before it.
    _answer_child,
    _answer_deletion,
    _answer_end,
    _answer_abandoned,
    _answer_prebuilt,
    answer_slices,
    _answer_surplus,
    _answer_missing,
    _answer_finished_workload,
    _answer_hold,
    _answer_eviction,
    _answer_changes,
    _answer_pods,
    _answer_start,
)


def _matched(view: View) -> HeldJob:
    # `_answer_missing` answers whenever there is no match, so all later steps have one.
    assert view.match is not None, "a step before this one answers for a Job without a Workload"
    return view.match


def _source(view: View, held: Sequence[HeldJob]) -> HeldJob | None:
    """Return the Workload that has the templates as they were, None where that is not known."""
    # With several it is unknown which one the template was changed for. Slices differ by their counts alone.
    return held[0] if len(held) == 1 or (held and view.is_elastic) else None
