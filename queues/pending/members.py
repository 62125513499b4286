"""The Workloads of one pending queue, and where each is: in the class of its equals, or parked alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from api.workload import WorkloadKey
from queues.pending.entries import Pending
from queues.pending.equivalence_classes import EquivalenceClasses, Reason
from queues.pending.parked_alone import ParkedAlone


class Members:
    """The Workloads by key. Each is in exactly one of `classes` and `parked_alone`."""

    def __init__(self, classes: EquivalenceClasses, parked_alone: ParkedAlone) -> None:
        self._classes = classes
        self._parked_alone = parked_alone
        self._by_key: dict[WorkloadKey, Pending] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def __contains__(self, key: WorkloadKey) -> bool:
        return key in self._by_key

    # --- questions ---------------------------------------------------------------------------------------

    def get(self, key: WorkloadKey) -> Pending | None:
        """Return the Workload's entry, None where it is not here."""
        return self._by_key.get(key)

    def values(self) -> Collection[Pending]:
        """Return all entries."""
        return self._by_key.values()

    def is_active(self, pending: Pending) -> bool:
        """Return whether a member will be tried: it is not parked, neither alone nor with its class."""
        return pending.ticket != 0 and not self._classes.is_parked(pending)

    def is_parked(self, key: WorkloadKey) -> bool:
        """Return whether the Workload is here and parked."""
        pending = self._by_key.get(key)
        return pending is not None and not self.is_active(pending)

    def class_reason(self, pending: Pending) -> Reason | None:
        """Return the reason that was given for a Workload's whole class or limit, None without one."""
        return self._classes.reason_of(pending) if pending.ticket else None

    def reason_of(self, key: WorkloadKey) -> Reason | None:
        """Return the reason that was given for the Workload's whole class or limit, None without one."""
        pending = self._by_key.get(key)
        return None if pending is None else self.class_reason(pending)

    def parked_count(self) -> int:
        """Return how many members are parked."""
        return len(self._parked_alone) + self._classes.parked_count()

    def groups(self) -> Iterator[tuple[Pending, int, bool]]:
        """Yield the members as groups of equal requests: the first queued, their number, whether parked."""
        yield from self._classes.groups()
        for pending in self._parked_alone.values():
            yield pending, 1, True

    # --- changes -----------------------------------------------------------------------------------------

    def add(self, pending: Pending) -> None:
        """Add a Workload to its class. It is parked where that is."""
        self._by_key[pending.key] = pending
        self._classes.add(pending)

    def park(self, pending: Pending) -> None:
        """Add a Workload that is parked alone."""
        self._by_key[pending.key] = pending
        self._parked_alone.add(pending)

    def remove(self, pending: Pending) -> None:
        """Remove a member, wherever it is."""
        del self._by_key[pending.key]
        if not self._parked_alone.discard(pending.key):
            self._classes.discard(pending)

    def pop(self) -> Pending | None:
        """Remove and return the first active member where all are in one lane, None where there is none."""
        head = self._classes.pop()
        if head is not None:
            del self._by_key[head.key]
        return head

    def validate(self) -> None:
        """Raise AssertionError where a member is in no bucket or in two."""
        for key, pending in self._by_key.items():
            in_class = pending.ticket != 0
            alone = key in self._parked_alone
            assert in_class != alone, f"{key} is in {int(in_class) + int(alone)} buckets, not 1"
        held = self._classes.validate()
        assert held + len(self._parked_alone) == len(self), f"classes hold {held} of {len(self)}"
