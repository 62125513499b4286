"""What only groups of pods have: members that are too many, that are missing, that failed.

    failed or deleted    stays, held by the finalizer, until another pod has taken its place
    too many             are deleted, those that have least to lose first
    missing              the Workload waits for replacements: it is in no queue until they are there

The dead are kept because they own the Workload: were all of them taken at once, the Workload would go with
them, and with it the group's place in the queue. A serving group is owned by whoever keeps it up, and its
dead are let go at once: the next pod is made only when the one of that name is gone.
Source: Kueue, pkg/controller/jobs/pod, and its pages on groups of pods.
"""

from __future__ import annotations

from collections.abc import Sequence

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile import status_bodies
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import delete, let_go, normal, warning
from admission.reconcile.workload_writes import workload_deletion, workload_patch, workload_status
from api.jobs.pod import Pod
from api.jobs.pod_workload import GroupMember, owner_references
from api.reasons import ConditionType
from api.status_bodies import StatusEdit

Answer = tuple[Action, ...] | None


def answer_surplus(view: PodView) -> Answer:
    """Pods beyond what the group is to have are deleted, the youngest first."""
    if not view.group or view.held is None or (view.workload.admission is None and view.missing):
        return None
    if view.first.is_serving:
        # Its keeper would make another at once.
        return None
    # Who has least to lose comes last in `kept`, and so is what is left over.
    surplus = _surplus(view)
    # Who is about to go has its place to itself until then, and its successor may have come already.
    leaving = sum(member.pod.is_deleted for member in view.kept)
    # Pods on their way out make room for as many, which are not told to go as well.
    excess = (pod for pod in surplus[leaving:] if not pod.is_deleted)
    return tuple(delete(pod, "ExcessPodDeleted", "Excess pod deleted") for pod in excess) or None


def answer_waiting_surplus(view: PodView) -> Answer:
    """Pods that a serving group was scaled up by wait at the gate, and are told why."""
    if not view.group or not view.first.is_serving or view.held is None:
        return None
    note = (
        f"The group was admitted with {view.wanted} pods, and all of its quota is in use:"
        " scale it to 0 and then up again to have it admitted anew"
    )
    # Only those at the gate wait for anything; the others run, and the quota for them is held.
    gated = (pod for pod in _surplus(view) if pod.is_gated)
    return tuple(warning(pod, "ScaledBeyondAdmission", note) for pod in gated) or None


def _surplus(view: PodView) -> list[Pod]:
    kept = {member.pod.uid for member in view.kept}
    return [one.pod for one in view.alive if one.pod.uid not in kept and not one.pod.is_finished]


def answer_dead(view: PodView) -> Answer:
    """Members that ended otherwise than they should are let go once another has their place."""
    if not view.group:
        return None
    dead = [one for one in view.members if not one.pod.is_alive and one.pod.has_finalizer]
    # As many of the dead are held as are missing: each keeps the Workload owned until its successor is there.
    held_back = 0 if view.members[0].pod.is_serving else view.missing
    # Who never ran holds nothing and tells nothing.
    unborn = [one for one in dead if one.pod.is_gated]
    ended = [one for one in dead if not one.pod.is_gated]
    leaving = (*unborn, *ended[: max(0, len(ended) - held_back)])
    return tuple(write for member in leaving for write in let_go(member)) or None


def answer_abandoned(view: PodView) -> Answer:
    """A group whose pods somebody has deleted, every one of them, is let go with its Workload's quota.

    Pods that we stopped ourselves are to come again, made by whoever made them; but for a group that its
    LeaderWorkerSet was scaled down by. While that is there the Workload would be, too: it is deleted.
    """
    keeper = view.facts.keeper
    is_dropped = keeper is not None and not keeper.has_place
    # By whoever deleted them: pods that an eviction told to end come again.
    is_left = all(one.pod.is_deleted and (is_dropped or not one.pod.is_told_to_end) for one in view.members)
    if not view.group or not is_left or not view.is_stopped:
        return None
    released = tuple(write for member in view.members for write in let_go(member))
    # The Workload first: were the pods let go alone, their next would find it and wait in its place.
    if is_dropped and view.held is not None:
        return (workload_deletion(view.workload), *released)
    return released or None


def answer_owners(view: PodView) -> Answer:
    """Every member owns the Workload, so that it is there for as long as one of them is."""
    if not view.group or view.held is None:
        return None
    present = view.held.body.get("metadata", {}).get("ownerReferences") or ()
    # By uid: a pod of the same name that was made anew is another owner.
    known = {reference.get("uid") for reference in present}
    wanted = owner_references(view.members, is_group=True, keeper=view.keeper)
    added = [reference for reference in wanted if reference["uid"] not in known]
    if not added:
        return None
    # Those that are there stay, also those of pods that are gone: the garbage collector reads them all.
    patch = {"metadata": {"ownerReferences": [*present, *added]}}
    event = normal(view.first, "OwnerReferencesAdded", f"Added {len(added)} owner reference(s)", "Adopt")
    return (workload_patch(view.workload, patch, Purpose.ADOPT_WORKLOAD, event),)


def answer_replacements(view: PodView) -> Answer:
    """WaitingForReplacementPods tells whether members have to come again before the group may queue."""
    if not view.group or view.held is None:
        return None
    edit = StatusEdit(view.raw, now=view.now)
    type_, workload = ConditionType.WAITING_FOR_REPLACEMENT_PODS, view.workload
    if view.missing:
        evicted = workload.eviction
        # The reason of the eviction, where it was one: an observer looks for that, not for pods that failed.
        reason = evicted.reason if evicted is not None else "PodsFailed"
        if not workload.is_true(type_):
            status_bodies.await_replacements(edit, reason)
    elif workload.is_true(type_):
        edit.set_condition(type_, False, reason="PodsReady", message="No pods need replacement")
    return (workload_status(workload, edit.to_bytes(), Purpose.SYNC_PODS),) if edit.is_changed else None


def ended_message(members: Sequence[GroupMember], wanted: int) -> tuple[bool, str] | None:
    """Return whether a group that has ended did so in success, and what to say of it; None: it goes on.

    It ends when all have succeeded, or when none runs any more and one says that none is to take its place.
    """
    # What serves has no end: its pods are made anew whatever they ended with.
    if members[0].pod.is_serving:
        return None
    succeeded = sum(member.pod.is_succeeded for member in members)
    message = f"Pods succeeded: {succeeded}/{wanted}."
    if succeeded >= wanted:
        return True, message
    # One that is about to be deleted need not be waited for; it will say nothing more.
    is_over = all(one.pod.is_finished or one.pod.is_deleted for one in members)
    is_final = any(not one.pod.is_retriable for one in members)
    is_active = any(one.pod.is_active for one in members)
    return (False, message) if is_over and is_final and not is_active else None


def all_let_go(view: PodView) -> tuple[Write, ...]:
    """Return the patches that let all members go that take of nothing any more."""
    return tuple(write for one in view.members if not one.pod.is_active for write in let_go(one))
