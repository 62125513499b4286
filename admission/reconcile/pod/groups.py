"""The rules that apply only to groups of pods: members that are surplus, missing or failed.

    failed or deleted    is kept by its finalizer until another pod has replaced it
    surplus              is deleted, pods with the least work to lose first
    missing              the Workload waits for replacements, and is in no queue until they exist

Failed pods are kept because they own the Workload. If all of them were removed at once, the Workload would be
garbage-collected, and the group would lose its place in the queue. The object that creates
the pods of a serving group owns the Workload. The group's failed pods are released at once, because the owner
creates the next pod only when the former one of that name is gone.
Source: Kueue, pkg/controller/jobs/pod, and its pages on groups of pods.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from admission.decisions.api_writes import Action, Purpose, Write
from admission.reconcile.pod.view import PodView
from admission.reconcile.pod.writes import delete, normal, release_finalizer, warning
from admission.reconcile.workload_writes import workload_deletion, workload_patch, workload_status
from api import keys
from api.jobs.pod_workload import GroupMember, owner_references
from api.jobs.stateful_set import claims_stateful_set
from api.reasons import ConditionType
from api.workload_status import WorkloadStatusEdit

Answer = tuple[Action, ...] | None


def answer_surplus(view: PodView) -> Answer:
    """Delete the pods beyond the group's size, the youngest first."""
    if not view.group or view.held is None or (view.workload.admission is None and view.missing):
        return None
    if view.first.is_serving:
        # The owner would create another at once.
        return None
    # `kept` begins with the pods that have most to lose, so the surplus are those with least.
    surplus = _surplus(view)
    # A pod that is terminating keeps its place until it has ended, and its successor may exist already.
    leaving = sum(member.pod.is_deleted for member in view.kept)
    # Terminating pods make room for as many others, which are then not deleted.
    excess = (one for one in surplus[leaving:] if not one.pod.is_deleted)
    return tuple(delete(one.pod, "ExcessPodDeleted", _excess_note(view, one)) for one in excess) or None


def _excess_note(view: PodView, member: GroupMember) -> str:
    excess = view.excess_of(member)
    return f"The pod requests {excess} in its admitted group" if excess else "Excess pod deleted"


def answer_waiting_surplus(view: PodView) -> Answer:
    """Report on the gated pods of a serving group that was scaled up beyond its admission."""
    if not view.group or not view.first.is_serving or view.held is None:
        return None
    # Only gated pods wait. The others run, and there is quota for them.
    gated = (one for one in _surplus(view) if one.pod.is_gated)
    return tuple(warning(one.pod, "ScaledBeyondAdmission", _waiting_note(view, one)) for one in gated) or None


def _waiting_note(view: PodView, member: GroupMember) -> str:
    excess = view.excess_of(member)
    why = (
        f"The pod requests {excess} in its admitted group"
        if excess
        else f"The group was admitted with {view.wanted} pods, and all of its quota is in use"
    )
    return f"{why}: scale it to 0 and then up again to have it admitted again"


def _surplus(view: PodView) -> list[GroupMember]:
    kept = {member.pod.uid for member in view.kept}
    return [one for one in view.alive if one.pod.uid not in kept and not one.pod.is_finished]


def answer_dead(view: PodView) -> Answer:
    """Remove the finalizers of failed and deleted members once other pods have replaced them."""
    if not view.group:
        return None
    dead = [one for one in view.members if not one.pod.is_alive and one.pod.has_finalizer]
    # As many are held back as are missing: each keeps the Workload owned until its successor exists.
    first = view.first
    is_owned = first.is_serving and (first.owner is not None or keys.LEADER_WORKER_SET in first.labels)
    held_back = 0 if is_owned else view.missing
    # A pod that never ran has no result, and holds nothing before the group has quota.
    is_waiting = view.held is None or view.workload.admission is None
    unborn = [one for one in dead if one.pod.is_gated and (is_waiting or is_owned)]
    ended = [one for one in dead if one not in unborn]
    leaving = (*unborn, *ended[: max(0, len(ended) - held_back)])
    return tuple(write for member in leaving for write in release_finalizer(member)) or None


def answer_abandoned(view: PodView) -> Answer:
    """Remove the finalizers of a group whose pods were all deleted by others, which frees its quota.

    Pods that Berth stopped are expected to be created again, except in a group that was removed when its
    LeaderWorkerSet was scaled down. Its Workload would live as long as the set, so it is deleted here.
    """
    keeper = view.facts.keeper
    is_dropped = keeper is not None and not keeper.has_place
    # Pods that were ended by an eviction are created again; pods that others deleted are not.
    is_left = all(
        one.pod.is_deleted and (is_dropped or not one.pod.has_termination_condition) for one in view.members
    )
    if not view.group or not is_left or not view.is_stopped:
        return None
    released = tuple(write for member in view.members for write in release_finalizer(member))
    # The Workload goes first: if the pods were released first, new ones could find it and take its place.
    if is_dropped and view.held is not None:
        return (workload_deletion(view.workload), *released)
    return released or None


def answer_owners(view: PodView) -> Answer:
    """Make every member an owner of the Workload, so that it lives as long as one of them."""
    if not view.group or view.held is None:
        return None
    present = view.held.body.get("metadata", {}).get("ownerReferences") or ()
    # Compared by uid: a pod that was created again under the same name is another owner.
    known = {reference.get("uid") for reference in present}
    wanted = owner_references(view.members, is_group=True, keeper=view.owner)
    # A set that it was made for, and that owns it no more, has left it behind (`--cascade=orphan`). Its pods
    # may still name the set, and the garbage collector would delete the Workload with an owner that is gone.
    known.add(view.workload.labels.get(keys.JOB_UID))
    added = [reference for reference in wanted if reference["uid"] not in known]
    if not added:
        return None
    # Present owners stay, including pods that are gone: the garbage collector checks all of them.
    metadata: dict[str, Any] = {"ownerReferences": [*present, *added]}
    if view.owner is not None and claims_stateful_set(view.owner):
        metadata["labels"] = {keys.JOB_UID: view.owner.uid}
    patch = {"metadata": metadata}
    event = normal(view.first, "OwnerReferencesAdded", f"Added {len(added)} owner reference(s)", "Adopt")
    return (workload_patch(view.workload, patch, Purpose.ADOPT_WORKLOAD, event),)


def answer_replacements(view: PodView) -> Answer:
    """Set WaitingForReplacementPods while members have to be replaced before the group may queue."""
    if not view.group or view.held is None:
        return None
    edit = WorkloadStatusEdit(view.raw, now=view.now)
    type_, workload = ConditionType.WAITING_FOR_REPLACEMENT_PODS, view.workload
    if view.missing:
        evicted = workload.eviction
        # What the eviction says, if there was one: the pods did not fail by themselves.
        if evicted is not None:
            edit.await_replacements(evicted.reason, evicted.message)
        elif not workload.is_true(type_):
            edit.await_replacements("PodsFailed", "Some Failed pods need replacement")
    elif workload.is_true(type_):
        edit.set_condition(type_, False, reason="PodsReady", message="No pods need replacement")
    return (workload_status(edit, Purpose.SYNC_PODS),) if edit.is_changed else None


def ended_message(members: Sequence[GroupMember], wanted: int) -> tuple[bool, str] | None:
    """Return whether a group that has ended succeeded, with the message; None while it has not ended.

    It ends when all members have succeeded, or when none runs any more and one says that it
    must not be replaced.
    """
    # A serving group has no end: its pods are created again however they ended.
    if members[0].pod.is_serving:
        return None
    succeeded = sum(member.pod.is_succeeded for member in members)
    message = f"Pods succeeded: {succeeded}/{wanted}."
    if succeeded >= wanted:
        return True, message
    # A pod that is being deleted counts as ended: its result no longer matters.
    is_over = all(one.pod.is_finished or one.pod.is_deleted for one in members)
    is_final = any(not one.pod.is_retriable for one in members)
    is_active = any(one.pod.is_active for one in members)
    return (False, message) if is_over and is_final and not is_active else None


def release_finalizers(view: PodView) -> tuple[Write, ...]:
    """Return the patches that remove the finalizers of all members that use no quota any more."""
    return tuple(write for one in view.members if not one.pod.is_active for write in release_finalizer(one))
