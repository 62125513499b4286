"""Orders to write: a write with its callbacks, how it ended, and what sending it needs of the API server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from admission.controller.writer.priorities import PRIORITIES, Priority
from admission.decisions.api_writes import Write
from api.kube.errors import KubeError


class ObjectTarget(NamedTuple):
    """The object of a write. Writes on one target are sent in the order in which they were submitted."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The server stored the write. `raw` is the object as it is now (b"" after a delete)."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Moot:
    """The object has changed and the write no longer applies. `raw` is the object as read."""

    raw: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Vanished:
    """The object, its namespace or its kind is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The server does not accept this write.

    `may_land_on` is the version of the object on which an earlier attempt may still be stored, "" if
    no attempt can be.
    """

    error: KubeError
    may_land_on: str = ""


Result = Written | Moot | Vanished | Refused


@dataclass(slots=True, kw_only=True)
class WriteOrder:
    """One write and its callbacks.

    `rebuild` builds the write again from the object's present bytes, None when there is nothing left to do.
    Without `rebuild` a conflict ends the order as Moot. `look_up` returns version and bytes of the object as
    last seen; a write that it shows to be outdated is not sent. `before` and `after` mark the step for
    failpoints.
    """

    write: Write
    on_result: Callable[[Result], None]
    rebuild: Callable[[bytes], Write | None] | None = None
    look_up: Callable[[], tuple[str, bytes] | None] | None = None
    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None
    queued_at: float = 0.0

    @property
    def target(self) -> ObjectTarget:
        """Return the object that is written, which names the lane of this order."""
        return ObjectTarget(self.write.kind, self.write.namespace, self.write.name)

    @property
    def priority(self) -> Priority:
        """Return what the purpose of the write says."""
        return PRIORITIES.get(self.write.purpose, Priority.ACT)


class Sender(Protocol):
    """The verbs of the API server that the executor needs. Both methods raise only KubeError."""

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Send one write and return the object in the answer."""

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Return the object's bytes."""
