"""The answer of `berth explain` as JSON."""

from __future__ import annotations

from admission.answers.api_keys import to_api_keys
from admission.answers.explaining.answer import Answer
from admission.answers.explaining.verdict import verdict
from admission.answers.holding import holding_json
from admission.answers.items import instant
from admission.answers.run_time import run_time_json
from admission.engine.holders import Holder, Lack
from admission.engine.remedies import Remedy
from admission.scheduler.flavor_promotion import FlavorMove
from admission.status.last_eviction import eviction_json
from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339


def to_body(answer: Answer, *, now: float) -> dict[str, object]:
    """Return the answer; unknown values are empty or null. `now` is in Unix seconds."""
    return {
        "verdict": verdict(answer, now=now),
        "namespace": answer.workload.key.namespace,
        "name": answer.workload.key.name,
        "clusterQueue": answer.cluster_queue,
        "state": answer.state,
        "position": answer.position,
        "waiting": answer.waiting,
        "reason": answer.reason,
        "message": answer.message,
        "expectedStart": answer.starts.expected,
        "earliestStart": answer.starts.earliest,
        "latestStart": answer.starts.latest,
        "expectedAfter": answer.starts.after,
        "isPromised": answer.starts.is_promised,
        "lastEviction": eviction_json(answer.eviction),
        "evictions": sum(answer.workload.evictions.values()),
        "holding": holding_json(answer.holding) if answer.holding is not None else None,
        "runTime": run_time_json(answer.run_time) if answer.run_time is not None else None,
        "betterFlavor": _move_json(answer.move) if answer.move is not None else None,
        "canStart": answer.starts.can_start,
        "lacks": [_lack_json(one) for one in answer.lacking],
        "heldBy": [_holder_json(one, answer.lacking[0].pair.resource) for one in answer.holders],
        "heldByHidden": _hidden_json(answer),
        "help": [_remedy_json(one) for one in answer.remedies],
        "history": list(answer.history),
        "isPartial": answer.is_partial,
        "podSets": [to_api_keys(one) for one in answer.pod_sets],
    }


def _move_json(move: FlavorMove) -> dict[str, object]:
    return {
        "from": list(move.former),
        "to": list(move.flavors),
        "gain": move.gain,
        "lostSeconds": move.lost_seconds,
    }


def _lack_json(one: Lack) -> dict[str, object]:
    resource = one.pair.resource
    return {
        "flavor": one.pair.flavor,
        "resource": resource,
        "wanted": to_text(resource, one.wanted),
        "missing": to_text(resource, one.missing),
        "most": to_text(resource, one.most),
    }


def _holder_json(one: Holder, resource: str) -> dict[str, object]:
    return {
        "namespace": one.key.namespace,
        "name": one.key.name,
        "clusterQueue": one.cluster_queue,
        "amount": to_text(resource, one.amount),
        "expectedEnd": instant(one.ends_at),
        "keptBy": one.kept_by,
    }


def _hidden_json(answer: Answer) -> dict[str, object] | None:
    """Return how many Workloads hold what is missing and may not be named, and how much together."""
    if not answer.hidden_holders:
        return None
    amount = sum(one.amount for one in answer.hidden_holders)
    return {
        "count": len(answer.hidden_holders),
        "amount": to_text(answer.lacking[0].pair.resource, amount),
    }


def _remedy_json(one: Remedy) -> dict[str, object]:
    return {"kind": one.kind, "change": one.change, "startsAt": to_rfc3339(one.start_at)}
