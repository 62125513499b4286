"""Fencing off: a Workload is moved on, so that an admission which may still be on its way meets 409.

An admission carries the resourceVersion that its decision saw. As long as the Workload stands at that
version, a request that nobody waits for any more may be stored late; quota that was given back before could
be held twice then. So before quota of a doubtful admission is given back, the annotation `berth.dev/fence`
is written, with the number of the leader who does it.

The same leader may have to do it more than once on one Workload. Its number alone would change nothing the
second time, and an API server stores no version for a write that changes nothing: so the number is followed
by a count, and the answer is looked at.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from admission.decisions.api_writes import Purpose, Verb, Write
from admission.decisions.decision import DecisionId
from api.keys import FENCE
from api.objects import Meta, NamedObject


def fence_write(decision: DecisionId, *, fence: int, raw: bytes | None) -> Write:
    """Return the write that fences a decision off under this fence; `raw` is the Workload as last seen."""
    key = decision.key
    write = Write(
        verb=Verb.MERGE_PATCH,
        kind="Workload",
        namespace=key.namespace,
        name=key.name,
        body=b"",
        purpose=Purpose.FENCE,
    )
    return refenced(write, fence=fence, raw=raw)


def refenced(write: Write, *, fence: int, raw: bytes | None) -> Write:
    """Return the same write with a value that the Workload `raw` does not carry yet."""
    present = _metadata(raw).annotations if raw is not None else None
    body = {"metadata": {"annotations": {FENCE: _next((present or {}).get(FENCE, ""), fence)}}}
    return replace(write, body=msgspec.json.encode(body))


def is_fenced_off(decision: DecisionId, raw: bytes) -> bool:
    """Return whether the decision's write can no longer be stored, the Workload being as `raw` says."""
    metadata = _metadata(raw)
    # Another uid or another version: either makes the doubtful write a conflict.
    return (metadata.uid, metadata.resource_version) != (decision.uid, decision.resource_version)


def _next(present: str, fence: int) -> str:
    leader, _, count = present.partition(".")
    # Another leader's mark, or none: our number alone is new.
    if leader != str(fence):
        return str(fence)
    # The same again would be no change, and the API server stores no new version for it.
    return f"{fence}.{int(count) + 1 if count.isdecimal() else 1}"


def _metadata(raw: bytes) -> Meta:
    return msgspec.json.decode(raw, type=NamedObject).metadata
