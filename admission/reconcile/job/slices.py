"""The slices of an elastic Job: what its Workloads need when its number of pods changes while it runs.

    fewer pods                     its slice counts fewer as its pods end
    more pods, nothing admitted    its slice counts more
    more pods, one admitted        another slice replaces it once that has quota for all of them; until then
                                   what was added waits at its gate (`admission.reconcile.workload.ungate`)

A slice that replaces another differs from it by its counts alone. At most one slice holds quota, and one
waits to replace it. A slice that is evicted while another waits stops the Job as any other Workload does.
Source: Kueue, pkg/workloadslicing, EnsureWorkloadSlices.
"""

from __future__ import annotations

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.job.compose import create, with_counts
from admission.reconcile.job.held_job import HeldJob
from admission.reconcile.job.start_stop import Answer, stop
from admission.reconcile.job.view import View
from admission.reconcile.job.writes import delete
from admission.reconcile.workload_writes import (
    finalizer_off,
    replaced_write,
    slice_end,
    workload_patch,
    workload_status,
)
from api.reasons import FinishedReason
from api.workload_status import WorkloadStatusEdit

_OUT_OF_SYNC = "The workload slice is out of sync with its parent job"


def answer_slices(view: View) -> Answer:
    """Finish the slices that an elastic Job has too many, and make one count the pods that it asks for."""
    if not view.is_elastic:
        return None
    kept = [held for held in view.owned if held.workload.is_superseded and held.workload.has_finalizer]
    if kept:
        # Nothing that it had is in use by itself any more.
        return tuple(finalizer_off(held.workload, held.raw) for held in kept)
    slices = view.slices
    if slices.surplus:
        return _end(view, slices.surplus)
    current = slices.current
    if current is None or view.match is not None:
        return None
    # With other pod sets or templates it is another Job: it is stopped, and queued again. So is one whose
    # pods do not wait for quota.
    if view.is_ungated or not view.has_same_templates(current):
        return None
    if not current.workload.has_quota_reservation or _is_fewer(view.counts, current.counts):
        return _counted_again(view, current)
    named = next((held for held in view.owned if held.workload.key.name == view.workload_name), None)
    if named is not None:
        # One that was out of step, such as after its deactivation, is made again under the same name.
        return (delete(view, named),) if _is_out_of_sync(named) else ()
    return create(view, replaced=current)


def _is_out_of_sync(held: HeldJob) -> bool:
    end = held.workload.end
    return end is not None and end.reason == FinishedReason.OUT_OF_SYNC and held.workload.deleted_at is None


def _end(view: View, surplus: tuple[HeldJob, ...]) -> tuple[Action, ...]:
    """Finish slices. The Job is stopped first for those whose pods may still run on their quota."""
    leaving = next((one for one in surplus if one.workload.is_evicted and one.workload.admission), None)
    if leaving is not None and view.slices.admitted is None:
        evicted = leaving.workload.eviction
        stopped = stop(view, leaving, evicted.message if evicted is not None else "")
        if stopped is not None:
            return stopped
    return tuple(_end_of(view, held) for held in surplus)


def _end_of(view: View, held: HeldJob) -> Write:
    """Return the write that finishes a slice: replaced by another, or out of step with the Job."""
    successors = (one.workload for one in view.live if one.workload.takes_over(held.workload))
    successor = next(successors, None)
    if successor is not None:
        return replaced_write(held.workload, held.raw, successor, now=view.now)
    return slice_end(held.raw, _OUT_OF_SYNC, now=view.now)


def _is_fewer(wanted: dict[str, int], counts: dict[str, int]) -> bool:
    return all(wanted[name] <= count for name, count in counts.items())


def _still_counted(view: View, held: HeldJob) -> dict[str, int]:
    """Return how many pods the slice has to count: those of the Job, and more while others have yet to end.

    Kueue counts fewer at once, so that others are admitted on the quota of pods that still run, and pods
    that are asked for again before they have ended run without quota.
    """
    wanted = view.counts
    if view.slices.admitted is None:
        return wanted
    used, present = view.in_use, held.counts
    return {name: max(count, min(used.get(name, 0), present.get(name, 0))) for name, count in wanted.items()}


def _counted_again(view: View, held: HeldJob) -> tuple[Write, ...]:
    """Return the write that makes a slice count the pods of the Job, after the one that prepares it.

    () where it has to wait for pods that have yet to end.
    """
    wanted = _still_counted(view, held)
    if wanted == held.counts:
        return ()
    known, found = held.workload.reclaimable, view.reclaimable
    if any(count > found.get(name, 0) for name, count in known.items()):
        # Counted for more pods: with fewer it would free quota of pods that still run.
        edit = WorkloadStatusEdit(held.raw, now=view.now)
        edit.put("reclaimablePods", [{"name": name, "count": n} for name, n in found.items() if n])
        return (workload_status(edit, Purpose.SYNC_PODS),)
    patch = {"spec": {"podSets": with_counts(held.pod_sets, wanted)}}
    return (workload_patch(held.workload, patch, Purpose.UPDATE_WORKLOAD),)
