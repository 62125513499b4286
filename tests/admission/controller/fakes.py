"""A clock that is set by hand, and a sender that answers what the test has scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from admission.decisions.api_writes import Purpose, Verb, Write
from api.kube.errors import KubeError
from api.kube.events import EventRecorder
from api.object_events import EventType, ObjectRef

Answer = bytes | KubeError


class FakeClock:
    """Both clocks move only when they are set."""

    def __init__(self, at: float = 1_000.0) -> None:
        self.at = at

    def now(self) -> float:
        """Return the set time."""
        return self.at

    def monotonic(self) -> float:
        """Return the set time."""
        return self.at


@dataclass
class FakeSender:
    """Answers each send with the next scripted answer (b"{}" when there is none) and records the writes."""

    answers: list[Answer] = field(default_factory=list)
    reads: list[Answer] = field(default_factory=list)
    sent: list[Write] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)
    gate: asyncio.Event | None = None
    in_flight: int = 0
    most_in_flight: int = 0
    on_send: Callable[[Write], None] | None = None

    async def send(self, write: Write, *, timeout_seconds: float) -> bytes:
        """Record and answer."""
        assert timeout_seconds > 0
        self.sent.append(write)
        self.timeouts.append(timeout_seconds)
        if self.on_send is not None:
            self.on_send(write)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return _give(self.answers.pop(0) if self.answers else b"{}")
        finally:
            self.in_flight -= 1

    async def read(self, kind: str, namespace: str, name: str, *, timeout_seconds: float) -> bytes:
        """Answer with the next scripted read."""
        assert kind
        assert name
        assert timeout_seconds > 0
        return _give(self.reads.pop(0))


def _give(answer: Answer) -> bytes:
    if isinstance(answer, KubeError):
        raise answer
    return answer


def make_write(name: str = "x", body: bytes = b"1", **changes: object) -> Write:
    """Return a status PUT of a Workload; keyword arguments replace fields."""
    fields: dict[str, object] = {
        "verb": Verb.REPLACE,
        "kind": "Workload",
        "namespace": "team",
        "name": name,
        "body": body,
        "purpose": Purpose.ADMIT,
    }
    return Write(**{**fields, **changes})  # type: ignore[arg-type]  # fields are checked by Write itself


class FakeRecorder(EventRecorder):
    """Keeps the Events that it is given, and sends none."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        # What was said last for each reason.
        self.notes: dict[str, str] = {}
        self.sent, self.dropped = 0, 0

    def record(
        self,
        regarding: ObjectRef,
        type_: EventType,
        reason: str,
        note: str,
        action: str = "",
        *,
        is_folded: bool = False,
    ) -> None:
        """Keep the object's name and the reason."""
        self.events.append((regarding.name, reason))
        self.notes[reason] = note
