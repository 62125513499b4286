"""What the brain acts through: a Term that carries decisions out, or an observer that only notes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from admission.controller.writer.executor import ObjectTarget
from admission.decisions.api_writes import Write
from admission.decisions.decision import Decision, Reassign, Wait


class Acting(Protocol):
    """What carries decisions out: a Term, or an observer that only notes them."""

    @property
    def is_paused(self) -> bool:
        """Whether the cycle has to wait."""

    @property
    def unconfirmed(self) -> int:
        """How many decisions have not been answered yet."""

    @property
    def is_alone(self) -> bool:
        """Whether nobody else is to admit: what others admit beyond the quota is evicted."""

    async def carry_out(self, decisions: Sequence[Decision | Reassign]) -> None:
        """Reserve and send."""

    async def flush(self) -> None:
        """Bring the store up to date."""

    def submit(self, write: Write, *, priority: int = 1) -> None:
        """Send a reconciler's write."""

    def tell(self, decision: Wait) -> bool:
        """Say why a Workload waits. Returns False where that is not worth a write just now."""

    def is_busy(self, target: ObjectTarget) -> bool:
        """Whether a write on the object is on its way."""
