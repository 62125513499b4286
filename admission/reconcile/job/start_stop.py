"""The next step of starting an object as admitted, and of stopping it."""

from __future__ import annotations

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.view import View
from admission.reconcile.job.writes import finish, job_patch, normal, suspend
from api.jobs.pod_template import StartConflict
from api.reasons import FinishedReason

Answer = tuple[Action, ...] | None


def start(view: View, held: HeldJob) -> tuple[Write, ...]:
    """Return the write that starts an object on a Workload's admission; () if it runs as admitted."""
    admission = held.workload.admission
    if admission is None:
        return ()
    try:
        patch = view.start(held)
    except StartConflict as conflict:
        message = f"{view.title}: {conflict}; then delete Workload {held.workload.key} to queue it again"
        # The Job's owner has to act, and the quota must not be held until then: the Workload finishes.
        return (finish(view, held, FinishedReason.FAILED_TO_START, message),)
    if patch is None:
        return ()
    event = normal(view, "Started", f"Admitted by clusterQueue {admission.cluster_queue}", "Start")
    return (job_patch(view, patch, Purpose.START_JOB, event),)


def stop(view: View, source: HeldJob | None, note: str = "") -> Answer:
    """Return the next step of stopping the Job; None once it has stopped and its template is restored.

    An empty answer waits for the cluster. The template is restored from `source` if there is one.
    """
    job = view.job
    if not job.is_suspended:
        # In any state at once: the Job must not run any longer. The rest of the stop follows.
        return (suspend(view, "Stopped", note, source=source),)
    # () and not None: later steps must not release quota that pods still use.
    if job.active > 0 or _is_ending(view, source):
        return ()
    if not view.is_stopping:
        return None
    frozen = view.thaw()
    if frozen is not None:
        # A frozen template cannot be restored. On newer servers it becomes changeable by itself.
        return frozen
    return (job_patch(view, view.restoration(source), Purpose.RESTORE_JOB),)


def _is_ending(view: View, source: HeldJob | None) -> bool:
    """Return whether pods of the Job are still terminating and its Workload's quota has to wait for them.

    A pod that saves within its grace period uses its devices until it is gone, but no longer counts
    as active. Kueue releases the quota at once, so that for the length of the grace period two Jobs
    may use one device.
    """
    if source is None or not view.terminating or source.workload.admission is None:
        return False
    return view.context.awaits_ends(source.workload)
