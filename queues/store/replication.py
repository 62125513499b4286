"""What Redis must have done with a write before it counts: sent it to replicas, or had it on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How long replicas and disks are waited for. With `appendfsync everysec` a disk takes a second.
ACKNOWLEDGE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replication:
    """How many replicas must have a write, and whether it must be on disk there and on the primary."""

    replicas: int = 0
    on_disk: bool = False

    def __bool__(self) -> bool:
        """Return whether there is anything to wait for."""
        return self.replicas > 0 or self.on_disk

    @property
    def command(self) -> tuple[str | int, ...]:
        """The command that waits for it."""
        milliseconds = round(ACKNOWLEDGE_SECONDS * 1000)
        if self.on_disk:
            return "WAITAOF", 1, self.replicas, milliseconds
        return "WAIT", self.replicas, milliseconds

    def lacks(self, answer: int | Sequence[int]) -> str:
        """Return what an answer to the command lacks, "" for nothing."""
        local, replicas = (1, answer) if isinstance(answer, int) else answer
        if self.on_disk and not local:
            return "it has the last write not on disk"
        if replicas < self.replicas:
            where = " on disk" if self.on_disk else ""
            return f"{replicas} of {self.replicas} replicas have the last write{where}"
        return ""
