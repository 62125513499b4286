"""Which writes are sent first if not all can be sent at once."""

from __future__ import annotations

from enum import IntEnum

from admission.decisions.api_writes import Purpose


class Priority(IntEnum):
    """For how many seconds a write stands back behind admissions.

    So no write waits for ever while admissions come without end. An object with a write that waits is not
    reconciled, whatever that write is about. ACT is what starts or stops something and is not named below.
    """

    ADMIT = 0
    FREE_QUOTA = 1
    ACT = 2
    STATUS = 10
    REASON = 20

    @property
    def is_report(self) -> bool:
        """Return whether a write of this priority only reports."""
        return self >= Priority.STATUS


PRIORITIES = {
    Purpose.ADMIT: Priority.ADMIT,
    # Other nodes for pods that run: until then their quota is idle.
    Purpose.REASSIGN: Priority.ADMIT,
    Purpose.EVICT: Priority.FREE_QUOTA,
    Purpose.REQUEST_EVICTION: Priority.FREE_QUOTA,
    Purpose.STOP_JOB: Priority.FREE_QUOTA,
    Purpose.STOP_POD: Priority.FREE_QUOTA,
    Purpose.EVICT_POD: Priority.FREE_QUOTA,
    Purpose.RELEASE: Priority.FREE_QUOTA,
    Purpose.FINISH: Priority.FREE_QUOTA,
    Purpose.FENCE: Priority.FREE_QUOTA,
    Purpose.QUEUE_STATUS: Priority.STATUS,
    # Until it is there, a queue in use may be deleted like any other.
    Purpose.ADD_FINALIZER: Priority.STATUS,
    # The annotations of promised and expected starts. Promises themselves are in the store.
    Purpose.PLAN: Priority.STATUS,
    Purpose.WAIT: Priority.REASON,
}
