"""Fencing off: a Workload is moved to a new version, so that an admission still in flight meets 409.

An admission carries the resourceVersion that its decision saw. While the Workload is at that version, a
request that was given up may still be stored. If the quota were given back before that, it could be used
twice. So before the quota of such an admission is given back, the annotation `berth.dev/fence` is written
with the fence of the leader that does it.

The same leader may have to fence off one Workload more than once. Its fence alone would change nothing the
second time, and an API server stores no new version for a write that changes nothing. So a count follows the
fence, and the answer is checked.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from admission.decisions.api_writes import Purpose, Verb, Write
from admission.decisions.decision import DecisionId
from api.keys import FENCE
from api.objects.common import Meta, NamedObject
from api.parsing.decimals import whole_number


def fence_write(decision: DecisionId, *, fence: int, raw: bytes | None) -> Write:
    """Return the write that fences off a decision under this fence. `raw` is the Workload as last seen."""
    key = decision.key
    write = Write(
        verb=Verb.MERGE_PATCH,
        kind="Workload",
        namespace=key.namespace,
        name=key.name,
        body=b"",
        purpose=Purpose.FENCE,
    )
    return _with_new_value(write, fence, raw)


def refenced(write: Write, decision: DecisionId, *, fence: int, raw: bytes) -> Write | None:
    """Return the same write for the Workload as it is now, `raw`; None if it is fenced off already."""
    return None if is_fenced_off(decision, raw) else _with_new_value(write, fence, raw)


def _with_new_value(write: Write, fence: int, raw: bytes | None) -> Write:
    present = _metadata(raw).annotations if raw is not None else None
    body = {"metadata": {"annotations": {FENCE: _next((present or {}).get(FENCE, ""), fence)}}}
    return replace(write, body=msgspec.json.encode(body))


def is_fenced_off(decision: DecisionId, raw: bytes) -> bool:
    """Return whether the decision's write can no longer be stored on the Workload that `raw` shows."""
    metadata = _metadata(raw)
    # Another uid or another version: either makes the write in flight a conflict.
    return (metadata.uid, metadata.resource_version) != (decision.uid, decision.resource_version)


def _next(present: str, fence: int) -> str:
    leader, _, count = present.partition(".")
    # No value, or that of another leader: our fence alone is a new value.
    if leader != str(fence):
        return str(fence)
    # The same value would be no change, and the API server would store no new version.
    return f"{fence}.{(whole_number(count) or 0) + 1}"


def _metadata(raw: bytes) -> Meta:
    return msgspec.json.decode(raw, type=NamedObject).metadata
