"""What a term of leadership needs of its process."""

from __future__ import annotations

from dataclasses import dataclass

from admission.controller.runtime.clock import Clock
from admission.controller.runtime.failpoints import Failpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The clock, and the failpoint at which a crash test ends the process."""

    clock: Clock
    failpoint: Failpoint
