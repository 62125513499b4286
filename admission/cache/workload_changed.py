"""The event that a Workload's object is new or has changed, for what acts on the difference.

`admission.cache.workload_store` sends it to its observers in an order that it states. What follows for the
Workload itself, where it waits or what it holds, is not their subject.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from api.workload import Workload


class WorkloadChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Two versions of one Workload; `before` is None where it is new."""

    before: Workload | None
    after: Workload

    @property
    def finished(self) -> Workload | None:
        """The Workload if it finished by this change; None also at later events of a finished one."""
        if not self.after.is_finished or (self.before is not None and self.before.is_finished):
            return None
        return self.after


Observer = Callable[[WorkloadChanged], None]
