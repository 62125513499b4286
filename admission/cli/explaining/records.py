"""What Events tell: the history of a promised start, and why a Job has no Workload."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from api import keys
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound
from api.kube.resources import EVENTS, JOBS
from api.objects.common import Meta, Wire

_PROMISES = ("StartPlanned", "PlannedStartMoved")
# How similar a key must be to count as a typing error.
_LEAST_SIMILARITY = 0.7


class _Regarding(Wire, frozen=True):
    kind: str = ""
    name: str = ""


class EventObject(Wire, frozen=True):
    """The fields of an Event that are read."""

    metadata: Meta
    regarding: _Regarding = _Regarding()
    type: str = ""
    reason: str = ""
    note: str = ""
    event_time: str | None = None
    deprecated_last_timestamp: str | None = None

    @property
    def at(self) -> str:
        """When it happened last (RFC 3339, whole seconds where the server says so)."""
        return (self.deprecated_last_timestamp or self.event_time or "")[:19]


async def promise_history(client: KubeClient, namespace: str, workload: str) -> tuple[str, ...]:
    """Return the Events about the promised start of a Workload, the oldest first; () if unreadable."""
    events = await _events(client, namespace, "Workload", workload)
    return tuple(f"{one.at}: {one.note}" for one in events if one.reason in _PROMISES)


async def job_without_workload(client: KubeClient, namespace: str, name: str) -> str | None:
    """Return why a Job has no Workload, None if there is no such Job. Raises KubeError."""
    try:
        job = msgspec.json.decode(await client.get(JOBS, name, namespace))
    except NotFound:
        return None
    said = list(_label_problems(job))
    events = await _events(client, namespace, "Job", name)
    said += [f"{one.reason}: {one.note}" for one in events if one.type == "Warning"]
    why = "; ".join(said) or "the controller has not seen it yet, or does not manage its namespace"
    return f"Job {namespace}/{name} has no Workload: {why}"


def _label_problems(job: dict[str, Any]) -> Iterator[str]:
    """Yield that the Job names no queue, with the key that looks like a typing error."""
    labels = job["metadata"].get("labels") or {}
    annotations = job["metadata"].get("annotations") or {}
    if labels.get(keys.QUEUE_NAME):
        return
    yield f"it has no label {keys.QUEUE_NAME}"
    if keys.QUEUE_NAME in annotations:
        yield f"it has an annotation {keys.QUEUE_NAME}, which must be a label"
    similar = difflib.get_close_matches(keys.QUEUE_NAME, labels, n=1, cutoff=_LEAST_SIMILARITY)
    if similar:
        yield f"its label {similar[0]} looks like a typing error"


async def _events(client: KubeClient, namespace: str, kind: str, name: str) -> Sequence[EventObject]:
    # Chosen here: not every API server can select Events by what they regard.
    try:
        found = await client.list(EVENTS, namespace, type_=EventObject)
    except (Forbidden, NotFound):
        return ()
    about = (one for one in found.items if (one.regarding.kind, one.regarding.name) == (kind, name))
    return sorted(about, key=lambda one: one.at)
