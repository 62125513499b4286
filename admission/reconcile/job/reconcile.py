"""What a batch/v1 Job and its Workloads need next, as one pure function.

Theory of operation. `reconcile_job` looks at a Job and the Workloads that are its own, and answers with the
next writes. It is level-triggered: no step remembers that another ran. The steps are tried in order and the
first that has an answer ends the look; an empty answer means "nothing now, look again when it changes".

    Job created ─▶ Workload created ─▶ (queue) ─▶ admitted ─▶ Job started ─▶ finished ─▶ Workload finished
                                          ▲           │
                                          │        evicted ─▶ Job suspended ─▶ restored ─▶ quota released
                                          └────────────────────────────────────────────────────────┘

Quota is released only when the Job has stopped; Evicted alone frees nothing. A Job that nobody put into a
queue is never touched. Bad input becomes a Warning event on the Job and stops nobody else.
Source: Kueue, pkg/controller/jobframework/reconciler.go and pkg/controller/jobs/job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from admission.decisions.api_writes import Action, Event, Purpose, Write
from admission.reconcile import checkpoints, status_bodies
from admission.reconcile.job.compose import changed_fields, create, rewrite
from admission.reconcile.job.context import Ancestor, JobContext
from admission.reconcile.job.view import HeldJob, JobView
from admission.reconcile.job.writes import adopt, delete, finish, job_patch, normal, refusal, suspend, warning
from admission.reconcile.workload_writes import finalizer_off, workload_patch, workload_status
from api import keys
from api.jobs.job import ComposeError, Job
from api.jobs.job_patches import clear_start_time_patch, restored_patch, start_injection, start_patch
from api.jobs.job_workload import is_up_to_date, name_of_workload
from api.jobs.pod_template import StartConflict
from api.reasons import ConditionType, FinishedReason
from api.status_bodies import StatusEdit
from api.workload import Workload
from queues.estimates.estimator import completion_problem

Answer = tuple[Action, ...] | None

_NO_MATCH = "No matching Workload; restoring pod templates according to existent Workload"
_NO_WORKLOAD = "Missing Workload; unable to restore pod templates"


def reconcile_job(
    job: Job,
    raw: bytes,
    workloads: Sequence[tuple[Workload, bytes]],
    context: JobContext,
    *,
    now: float,
) -> tuple[Action, ...]:
    """Return what this Job needs next; () where all is as it should be.

    `workloads` are those that the Job owns (by uid) and the one it names as prebuilt, in any order. `raw` is
    the Job as last seen. Idempotent: once the writes are seen, the same call asks for nothing. Events may
    repeat as long as their cause stands. Raises msgspec.DecodeError where `raw` is no JSON object.
    """
    view = JobView(job, raw, workloads, context=context, now=now)
    if not _is_managed(view):
        return ()
    # Beside whatever comes next: a checkpoint that cannot be taken over stops nothing.
    notes = (*_note_checkpoint(view), *_note_completion(view))
    for step in _STEPS:
        answer = step(view)
        if answer is not None:
            return (*notes, *answer)
    return notes


# --- 1, 2: whose Job it is -----------------------------------------------------------------------


def _is_managed(view: JobView) -> bool:
    # A Job with a Workload of ours stays ours until that is gone, whatever was taken off the Job:
    # it may hold quota.
    if view.owned:
        return True
    job, context = view.job, view.context
    if not context.is_namespace_managed(job.namespace):
        return False
    return _is_queued(view) or context.ancestor(job) is not Ancestor.NONE


def _note_checkpoint(view: JobView) -> tuple[Event, ...]:
    """A checkpoint that goes back or lies in the future is named, and stops nothing else."""
    if keys.CHECKPOINT_TIME not in view.job.annotations or view.match is None:
        return ()
    said = checkpoints.refusal(view.job.annotations, view.match.workload.annotations, now=view.now)
    return (warning(view, "CheckpointRefused", f"Job {view.job}: {said}"),) if said is not None else ()


def _note_completion(view: JobView) -> tuple[Event, ...]:
    """A running Job may say when it will be complete at any time: what cannot be read is named then."""
    text = view.job.annotations.get(keys.EXPECTED_COMPLETION_TIME)
    said = completion_problem(text, now=view.now) if text is not None and view.match is not None else None
    return (warning(view, "InvalidExpectedRuntime", said),) if said is not None else ()


def _is_queued(view: JobView) -> bool:
    return bool(view.job.queue_name) or view.context.settings.manages_without_queue_name


def _answer_child(view: JobView) -> Answer:
    """A child of a managed object follows its ancestor's Workload and has none of its own."""
    job = view.job
    # Ancestors are asked before anything else, for a child has no Workload to look at.
    match view.context.ancestor(job):
        case Ancestor.NONE:
            return None
        case Ancestor.WAITING if not job.is_suspended and job.outcome is None and not job.is_deleted:
            return (suspend(view, "Suspended", "Kueue managed child job suspended", is_restored=False),)
        case Ancestor.TOO_DEEP:
            note = f"Job {job} has too many controllers above it to tell whether one of them is queued"
            return (warning(view, "JobNestingTooDeep", note),)
        case _:
            return ()


def _answer_deletion(view: JobView) -> Answer:
    """Deleted Workloads go once their Job no longer runs on them; a deleted Job gets nothing new."""
    job = view.job
    has_ended = job.is_deleted or job.outcome is not None or view.match is not None
    # A Job that was stopped and restored has no pods that could run on the Workload's quota.
    if has_ended or (job.is_suspended and job.active == 0 and not job.is_stopping):
        deleted = (held.workload for held in view.owned if held.workload.deleted_at is not None)
        kept = {workload.uid for workload in deleted if workload.has_finalizer}
        # Finalizers of Workloads that are being deleted go only now; before, quota would be
        # free while pods run.
        if kept:
            return tuple(
                finalizer_off(held.workload, held.raw) for held in view.owned if held.workload.uid in kept
            )
    # Nothing more is done for a deleted Job; its Workload goes with it by the garbage collector.
    return () if job.is_deleted else None


# --- 4: the Job has ended ------------------------------------------------------------------------


def _answer_end(view: JobView) -> Answer:
    """A finished Job finishes its Workloads, and then lets them go."""
    outcome = view.job.outcome
    if outcome is None:
        return None
    reason = FinishedReason.SUCCEEDED if outcome.is_success else FinishedReason.FAILED
    return tuple(
        finalizer_off(held.workload, held.raw)
        # First finished, then let go: between the two the Workload shows how it ended.
        if held.workload.is_finished
        else finish(view, held, reason, outcome.message)
        for held in view.live
        if not held.workload.is_finished or held.workload.has_finalizer
    )


# --- 3, 5: one Workload --------------------------------------------------------------------------


def _answer_abandoned(view: JobView) -> Answer:
    """A Job that left its queue while it was suspended takes its Workloads out with it."""
    job = view.job
    if _is_queued(view) or not job.is_suspended or job.prebuilt_workload:
        return None
    stopped = _stop(view, view.match or _sole(view.live))
    # Stopped first: without a Workload its template could never be restored.
    return stopped if stopped is not None else tuple(delete(view, held) for held in view.live)


def _answer_prebuilt(view: JobView) -> Answer:
    """A Workload that the Job names is adopted, or found not to fit."""
    job, held = view.job, view.prebuilt
    if not job.prebuilt_workload:
        return None
    if held is None or held.workload.deleted_at is not None:
        # It waits for a Workload that somebody has yet to make; () ends the look, so that none is
        # composed in its place.
        return _stop(view, held, _NO_WORKLOAD) or ()
    workload = held.workload
    if workload.owner_uid is None:
        return (adopt(view, held),)
    if workload.owner_uid != job.uid:
        note = (
            f"Job {job}: Workload {workload.key}, named by {keys.PREBUILT_WORKLOAD_NAME}, belongs to"
            f" {workload.owner_kind} {workload.owner_name}; name another one"
        )
        # Another's Workload cannot restore our template, so nothing is restored.
        return (*(_stop(view, None, note) or ()), warning(view, "ErrWorkloadCompose", note))
    if workload.is_finished or view.is_match(held):
        return None
    stopped = _stop(view, held, _NO_MATCH)
    if stopped is not None:
        return stopped
    message = "The prebuilt workload is out of sync with its user job"
    # An edit after the fact: the Workload was made for other pods, and its maker has to make another.
    return (finish(view, held, FinishedReason.OUT_OF_SYNC, message),)


def _answer_surplus(view: JobView) -> Answer:
    """Of several Workloads the one that matches stays; without one, a waiting one is brought up to date."""
    if view.match is not None:
        # Several match after an edit was taken back. The first by precedence stays: who holds quota.
        return tuple(delete(view, held) for held in view.live if held is not view.match) or None
    if not view.live:
        return None
    # After several edits nobody can say from which Workload the template came.
    stopped = _stop(view, _sole(view.live), _NO_MATCH)
    if stopped is not None:
        # Whatever the Job is by now, it does not run on a Workload that says otherwise.
        return stopped
    first, *rest = view.live
    if first.workload.admission is not None or first.workload.is_finished:
        # What holds quota, or has ended, is not rewritten: quota was weighed for other pods.
        return tuple(delete(view, held) for held in view.live)
    return (*rewrite(view, first), *(delete(view, held) for held in rest))


def _answer_missing(view: JobView) -> Answer:
    """A Job without a Workload gets one, and does not run until that is admitted."""
    if view.match is not None:
        return None
    # Owned and not live: a template can be restored from a Workload that is being deleted.
    stop = _stop(view, _sole(view.owned), _NO_WORKLOAD)
    name = name_of_workload(view.job)
    if stop == () or any(held.workload.key.name == name for held in view.owned):
        # Pods of the past still run, or the one of that name is being deleted: the next look is later.
        return stop or ()
    # Both in one answer where both can be: suspended at once, and a Workload to queue by.
    return (*(stop or ()), *create(view))


# --- 6, 7: keeping in step -----------------------------------------------------------------------


def _answer_finished_workload(view: JobView) -> Answer:
    """A Workload that ended before its Job (it could not start, say) leaves the Job stopped."""
    held = _matched(view)
    finished = held.workload.conditions.get(ConditionType.FINISHED)
    if finished is None or not finished.status:
        return None
    stopped = _stop(view, held, finished.message)
    # A Job that could not start is left stopped and restored, and finished Workloads are let go.
    if stopped is not None:
        return stopped
    return (finalizer_off(held.workload, held.raw),) if held.workload.has_finalizer else ()


def _answer_eviction(view: JobView) -> Answer:
    """An evicted Workload's Job is stopped; only then is its quota free."""
    held = _matched(view)
    evicted = held.workload.eviction
    if evicted is None:
        return None
    stopped = _stop(view, held, evicted.message)
    if stopped is not None:
        return stopped
    if held.workload.admission is None:
        # Its quota is gone already: nothing more is to be released, and later steps may go on.
        return None
    return (workload_status(held.workload, status_bodies.release(held.raw, now=view.now), Purpose.RELEASE),)


def _answer_changes(view: JobView) -> Answer:
    """Template, queue, priority class, limits and copied keys of the Job reach its Workload."""
    held, job = _matched(view), view.job
    if not job.is_suspended and not held.workload.is_admitted:
        # It is stopped first: an unreadable label must not let it run on.
        return None
    if _is_outdated(view, held):
        return rewrite(view, held)
    try:
        patch = changed_fields(view, held)
    except ComposeError as error:
        # Named on the Job and not written: the Workload stays as it was queued.
        return (refusal(view, error),)
    return (workload_patch(held.workload, patch, Purpose.UPDATE_WORKLOAD),) if patch else None


def _is_outdated(view: JobView, held: HeldJob) -> bool:
    """Return whether a waiting Workload lacks an edit of its Job that does not make it another one."""
    job, pod_set = view.job, held.pod_set
    if pod_set is None or held.workload.admission is not None or job.is_stopping or job.prebuilt_workload:
        return False
    return not is_up_to_date(job, view.body, pod_set)


def _answer_pods(view: JobView) -> Answer:
    """PodsReady and the quota that the Job will not need again are told to the Workload."""
    held, job = _matched(view), view.job
    if not held.workload.is_admitted or job.is_suspended:
        return None
    edit = StatusEdit(held.raw, now=view.now)
    if view.context.settings.waits_for_pods:
        # PodsReady is reported only where waitForPodsReady asks for it: a condition that flaps costs writes.
        status_bodies.report_pods(edit, is_ready=job.has_pods_ready)
    assignment = held.assignment
    # It may only grow while quota is held: what was given back may be somebody else's by now.
    if assignment and job.reclaimable_pods > held.workload.reclaimable.get(assignment.name, 0):
        edit.put("reclaimablePods", [{"name": assignment.name, "count": job.reclaimable_pods}])
    return (workload_status(held.workload, edit.to_bytes(), Purpose.SYNC_PODS),) if edit.is_changed else None


# --- 8, 9: start and stop ------------------------------------------------------------------------


def _answer_start(view: JobView) -> Answer:
    """An admitted Workload's Job is started, one that runs unadmitted is stopped."""
    held, job = _matched(view), view.job
    if not held.workload.is_admitted:
        return _stop(view, held, "Not admitted by cluster queue")
    if not job.is_suspended:
        return None
    # A stop that was interrupted by another admission has to be ended before the start, or the
    # template would keep the old flavor's labels.
    unsettled = _stop(view, held) if job.is_stopping else _thaw(view)
    return unsettled if unsettled is not None else _start(view, held)


_STEPS: tuple[Callable[[JobView], Answer], ...] = (
    # The order is the theory: whose Job it is, whether it goes, whether it has ended, which
    # Workload is its own, and only then what it needs.
    _answer_child,
    _answer_deletion,
    _answer_end,
    _answer_abandoned,
    _answer_prebuilt,
    _answer_surplus,
    _answer_missing,
    _answer_finished_workload,
    _answer_eviction,
    _answer_changes,
    _answer_pods,
    _answer_start,
)


def _start(view: JobView, held: HeldJob) -> tuple[Write, ...]:
    admission, assignment = held.workload.admission, held.assignment
    if admission is None or assignment is None:
        # An admission without a pod set is no admission; its writer has yet to complete it.
        return ()
    node_labels, tolerations = view.context.injection(assignment)
    try:
        injection = start_injection(held.workload, assignment, node_labels, tolerations)
        patch = start_patch(view.job, view.template, injection, assignment.count)
    except StartConflict as conflict:
        message = f"Job {view.job}: {conflict}; then delete Workload {held.workload.key} to queue it again"
        # The Job's owner has to act, and until then the quota is nobody's: the Workload ends.
        return (finish(view, held, FinishedReason.FAILED_TO_START, message),)
    event = normal(view, "Started", f"Admitted by clusterQueue {admission.cluster_queue}", "Start")
    return (job_patch(view, patch, Purpose.START_JOB, event),)


def _stop(view: JobView, source: HeldJob | None, note: str = "") -> Answer:
    """Return the next step of stopping the Job, None once it has stopped and is as it was created.

    An empty answer waits for the cluster. The template is restored from `source`, as far as there is one.
    """
    job = view.job
    if not job.is_suspended:
        # From any state at once: what must not run must not run on for a second, and the rest
        # of the stop follows.
        return (suspend(view, "Stopped", note, is_restored=source is not None),)
    # () and not None: later steps must not release quota that pods still use.
    if job.active > 0 or _is_ending(view, source):
        return ()
    if not job.is_stopping:
        return None
    frozen = _thaw(view)
    if frozen is not None:
        # A frozen template cannot be restored; on newer servers it thaws by itself.
        return frozen
    pod_set = None if source is None else source.pod_set
    return (job_patch(view, restored_patch(job, view.template, pod_set), Purpose.RESTORE_JOB),)


def _is_ending(view: JobView, source: HeldJob | None) -> bool:
    """Return whether pods of the Job still end, and its Workload's quota is to wait for them.

    A pod that saves in its grace has its devices until it is gone, and is no longer counted as active. Kueue
    gives its quota away meanwhile, so that two Jobs meet on one device for as long as the grace is.
    """
    if source is None or not view.job.terminating or source.workload.admission is None:
        return False
    return view.context.awaits_ends(source.workload)


def _thaw(view: JobView) -> Answer:
    """Return what makes a suspended Job's template changeable; None when it is, () to wait."""
    job = view.job
    # The API server refuses a change of the template while pods are active.
    if job.active > 0:
        return ()
    if not job.has_start_time:
        return None
    # The Job controller is about to clear it: whoever comes first makes the other's write fail.
    if job.waits_for_controller:
        return ()
    return (job_patch(view, clear_start_time_patch(), Purpose.CLEAR_START_TIME, subresource="status"),)


def _matched(view: JobView) -> HeldJob:
    # `_answer_missing` answers wherever there is no match, so all steps behind it have one.
    assert view.match is not None, "a step before this one answers for a Job without a Workload"
    return view.match


def _sole(held: Sequence[HeldJob]) -> HeldJob | None:
    # Of several nobody knows which one the template came from.
    return held[0] if len(held) == 1 else None
