"""Decisions in sentences, for Events, logs and commands."""

from __future__ import annotations

from collections.abc import Callable

from admission.decisions.decision import Admit, Decision, Evict, Plan, Reassign, Wait
from api.eviction import EvictionRequest
from api.parsing.times import to_rfc3339
from queues.profile.planned_start import PlannedStart


def decision_text(decision: Decision | Reassign) -> str:
    """Return the sentence of the decision log, without its subject."""
    match decision:
        case Admit():
            return _admit_text(decision)
        case Evict() | Wait():
            return decision.message
        case Reassign():
            return reassign_text(decision)
        case Plan():
            return plan_text(decision)


def _admit_text(decision: Admit) -> str:
    admission = decision.admission
    flavors = sorted({flavor for pod_set in admission.pod_sets for flavor in pod_set.flavors.values()})
    return f"in ClusterQueue {admission.cluster_queue} on {', '.join(flavors) or 'no flavor'}"


def reassign_text(decision: Reassign) -> str:
    """Return which nodes were lost and which replace them; for a first placement, where the pods go."""
    found = ", ".join(decision.found) or "nodes that it already has"
    if not decision.lost:
        return f"Placed the pods on {found}"
    return f"Moved the pods of {', '.join(decision.lost)} to {found}"


def plan_text(decision: Plan) -> str:
    """Return the sentence for a promise that was made, moved or withdrawn."""
    if decision.planned is None:
        return "is no longer promised a start"
    return planned_text(decision.planned)


def planned_text(planned: PlannedStart) -> str:
    """Return the sentence for a promise, without its subject."""
    where = f" on {planned.domain}" if planned.domain else ""
    borrowed = ", on quota that its owner may take back" if planned.borrows else ""
    moved = f"; moved because of {planned.cause}" if planned.cause is not None else ""
    return f"is promised to start at {to_rfc3339(planned.start_at)}{where}{borrowed}{moved}"


def request_text(request: EvictionRequest, *, sees: Callable[[str], bool]) -> str:
    """Return the sentence for a victim that is to save first: until when, for which Workload, and why.

    `sees`: whether the reader may know the names of Workloads of a namespace.
    """
    preemptor = request.preemptor_as_seen(sees)
    for_preemptor = f" for {preemptor}" if preemptor else ""
    return (
        f"To be evicted{for_preemptor} once it has saved a checkpoint, at {to_rfc3339(request.deadline)} at "
        f"the latest: {request.message}"
    )


def stop_text(grace_seconds: float) -> str:
    """Return the sentence for a victim that saves at SIGTERM."""
    return f"Saves a checkpoint at SIGTERM, within the {grace_seconds:.0f} s that its pods have to end"
