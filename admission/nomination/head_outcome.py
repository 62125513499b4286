"""The outcome of a head, and how it is made for a head that waits for what its nomination has found.

The outcomes of heads whose turn has come in the cycle are in `admission.scheduler.outcomes`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec
from msgspec.structs import replace

from admission.decisions.assignment import Mode
from admission.decisions.decision import Admit, Evict, Wait
from admission.nomination.nominate import Entry
from admission.placement.topology.place import Place
from admission.preemption.lost_work import EvictionLosses
from admission.snapshot.queue_state import QueueState
from api.reasons import PendingReason
from api.workload import Admission, WorkloadKey
from queues.pending.pending_queue import FlavorScan, Pending, RequeueCause
from queues.profile.planned_start import BackfillLease
from queues.quota.resources import Quantities


class Recomputation(StrEnum):
    """What a second search for targets gave, after another head took one. The values are metric labels."""

    NEW_TARGETS = "new_targets"
    DEFERRED_FIT = "deferred_fit"
    SKIPPED = "skipped"


class HeadOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided for one head: admitted (`requeue` is None), or back to its queue for a cause.

    `evictions` make room for it in a later cycle. `scan` is where its next search of flavors begins.
    `is_preemption_skipped`: it had targets, but another head of this cycle prevented their preemption.
    `lacks_only_quota`: it is requeued for want of quota in its tree, whatever nodes are free.
    """

    queue: QueueState
    pending: Pending
    decision: Admit | Wait
    requeue: RequeueCause | None = None
    scan: FlavorScan | None = None
    evictions: tuple[Evict, ...] = ()
    # The Workloads it waits for: those in `evictions`, and those already being evicted, for it or others.
    awaits: tuple[WorkloadKey, ...] = ()
    # Evictions of Workloads that already save a checkpoint for another preemptor. They go on for this one if
    # that other preemptor no longer needs them.
    joins: tuple[Evict, ...] = ()
    is_preemption_skipped: bool = False
    lacks_only_quota: bool = False
    # Its places were taken only by heads of other trees, which reserve them for this cycle but do not start.
    is_displaced: bool = False
    # When a Workload that a policy spares for now may be evicted for it; infinity: time alone does not help.
    spared_until: float | None = None
    recomputation: Recomputation | None = None
    # What an admission charges, with pairs of zero amount. For a preemption: what it will charge, where, and
    # how its admission will be recorded in its status.
    usage: Quantities = msgspec.field(default_factory=dict)
    places: tuple[Place, ...] = ()
    admission: Admission | None = None
    lease: BackfillLease | None = None
    # How many seconds it would conflict with promises. Work of equal requests as long as this
    # need not be tried.
    seconds: float | None = None


def inadmissible(entry: Entry) -> HeadOutcome:
    """Return the outcome of an entry that fits neither now nor after evictions it may ask for.

    No start is promised to it.
    """
    if entry.assignment.mode is not Mode.NO_FIT:
        return waiting(entry, RequeueCause.PREEMPTION_NO_CANDIDATES)
    is_misfit = entry.assignment.pending_reason() is PendingReason.MISCONFIGURED
    return waiting(entry, RequeueCause.HARDWARE_MISFIT if is_misfit else RequeueCause.NO_FIT)


def waiting(entry: Entry, requeue: RequeueCause) -> HeadOutcome:
    """Return the outcome of an entry that does not fit; its next search goes on where this one ended."""
    message, reason = entry.assignment.message(), entry.assignment.pending_reason()
    strategy = entry.assignment.strategy if reason is PendingReason.TOPOLOGY_PLACEMENT_FAILED else ""
    return HeadOutcome(
        queue=entry.queue,
        pending=entry.pending,
        decision=to_wait(entry.pending, reason, message, strategy=strategy),
        requeue=requeue,
        scan=entry.next_scan,
    )


def lost(entry: Entry, reason: PendingReason, message: str, requeue: RequeueCause) -> HeadOutcome:
    """Return the outcome of an entry that goes back to its queue and is searched from its first flavor."""
    decision = to_wait(entry.pending, reason, message)
    return HeadOutcome(queue=entry.queue, pending=entry.pending, decision=decision, requeue=requeue)


def with_protection(outcome: HeadOutcome, entry: Entry, losses: EvictionLosses) -> HeadOutcome:
    """Return the outcome, with the Workloads that policies and budgets protect added to its message.

    The outcome is unchanged unless the entry waits and no Workload is evicted for it.
    """
    decision = outcome.decision
    if entry.will_fit or not isinstance(decision, Wait):
        return outcome
    words = losses.protection_message(entry.pending.key)
    if not words:
        return outcome
    return replace(outcome, decision=replace(decision, message=f"{decision.message}. {words}"))


def to_wait(pending: Pending, reason: PendingReason, message: str, *, strategy: str = "") -> Wait:
    """Return the decision that records why the head waits, with its requests by pod set in total."""
    return Wait(
        key=pending.key,
        uid=pending.workload.uid,
        reason=reason,
        message=message,
        requests={requests.name: requests.total() for requests in pending.requests},
        strategy=strategy,
    )
