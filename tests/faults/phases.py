"""The named phases of the protocol, by which faults are aimed: what a request or a store call is about."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from api.keys import FENCE
from queues.store import lua
from tests.faults.etcd import Object


class Phase(StrEnum):
    """What a replica has just sent. IDLE: nothing is on its way."""

    IDLE = "idle"
    ACQUIRE = "acquire"
    RENEW = "renew"
    LIST = "list"
    RECOVER = "recover"
    CREATE = "create"
    RESERVE = "reserve"
    ADMIT = "admit"
    CONFIRM = "confirm"
    START = "start"
    EVICT = "evict"
    STOP = "stop"
    RELEASE = "release"
    FENCE = "fence"
    FINISH = "finish"
    READ_AGAIN = "read again"
    WRITE_BACK = "write back"


def is_true(item: Object, condition: str) -> bool:
    """Return whether the condition is there and True."""
    found = (one for one in item.get("status", {}).get("conditions") or () if one["type"] == condition)
    return any(one["status"] == "True" for one in found)


def has_admission(item: Object | None) -> bool:
    """Return whether a Workload holds quota: admitted by a queue, and not finished."""
    if item is None or not item.get("status", {}).get("admission"):
        return False
    return is_true(item, "QuotaReserved") and not is_true(item, "Finished")


def phase_of_request(
    method: str, plural: str, *, is_named: bool, body: Object, before: Object | None
) -> Phase | None:
    """Return the phase that a request is of; None for one that none is named for."""
    match method, plural:
        case "GET", "workloads":
            return Phase.READ_AGAIN if is_named else Phase.LIST
        case "POST" | "PUT", "leases":
            is_renewal = before is not None and _holder(before) == _holder(body)
            return Phase.RENEW if is_renewal else Phase.ACQUIRE
        case "POST", "workloads":
            return Phase.CREATE
        case "PUT", "workloads":
            return _phase_of_status(body, before)
        case "PATCH", "workloads" if FENCE in (body.get("metadata", {}).get("annotations") or {}):
            return Phase.FENCE
        case "PATCH", "jobs" if "suspend" in body.get("spec", {}):
            return Phase.STOP if body["spec"]["suspend"] else Phase.START
    return None


def _holder(lease: Object) -> str:
    return str(lease["spec"].get("holderIdentity") or "")


def _phase_of_status(body: Object, before: Object | None) -> Phase | None:
    if is_true(body, "Finished"):
        return Phase.FINISH
    if has_admission(body) and not has_admission(before):
        return Phase.ADMIT
    if has_admission(before) and not has_admission(body):
        return Phase.RELEASE
    if is_true(body, "Evicted") and before is not None and not is_true(before, "Evicted"):
        return Phase.EVICT
    return None


_PHASES = {
    lua.COMMIT.name: Phase.RESERVE,
    lua.LIVE.name: Phase.RECOVER,
    lua.SEED.name: Phase.RECOVER,
}


def phase_of_script(name: str, arguments: Sequence[Any]) -> Phase | None:
    """Return the phase that a call of the store is of. `arguments`: those after the keys, the fence first."""
    # Without a field, it presents the fence before the reservations are read.
    if name == lua.REMOVE.name:
        return Phase.CONFIRM if len(arguments) > 1 else Phase.RECOVER
    # A leader confirms and gives back by stating the result. What it states beyond that, the store has lost.
    if name == lua.RESTORE.name:
        return Phase.CONFIRM if arguments[1] == 0 and len(arguments) > 2 else Phase.WRITE_BACK
    return _PHASES.get(name)
