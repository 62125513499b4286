"""The Workloads of an object, with their bytes, and which slice of an elastic Job is which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from api.workload import PodSetAssignment, Workload


class HeldJob:
    """A Workload with the bytes in which it was seen."""

    def __init__(self, workload: Workload, raw: bytes) -> None:
        self.workload = workload
        self.raw = raw

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """Return the decoded object."""
        return _DECODER.decode(self.raw)

    @property
    def pod_sets(self) -> Sequence[Mapping[str, Any]]:
        """Return spec.podSets."""
        return self.body.get("spec", {}).get("podSets") or ()

    @property
    def pod_set(self) -> Mapping[str, Any] | None:
        """Return the only pod set; None if there is not exactly one, which no Workload of a Job has."""
        return self.pod_sets[0] if len(self.pod_sets) == 1 else None

    @property
    def assignments(self) -> tuple[PodSetAssignment, ...]:
        """Return the assignments of the pod sets; () without a reservation."""
        admission = self.workload.admission
        return admission.pod_sets if admission is not None else ()

    @property
    def assignment(self) -> PodSetAssignment | None:
        """Return the assignment of the only pod set; None without a reservation."""
        return next(iter(self.assignments), None)

    @property
    def counts(self) -> dict[str, int]:
        """Return the numbers of pods by pod set, as in spec.podSets."""
        return {str(one.get("name", "")): int(one.get("count", 1)) for one in self.pod_sets}

    @property
    def is_shrunk(self) -> bool:
        """Return whether it is a slice that counts fewer pods than it was admitted with."""
        counts = self.counts
        return self.workload.is_slice and any(one.count > counts.get(one.name, 0) for one in self.assignments)

    @property
    def admitted_count(self) -> int | None:
        """Return how many pods it was admitted with; None while it holds no quota."""
        return None if self.assignment is None else self.assignment.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Slices:
    """The slices of an elastic Job that have not ended.

    `admitted` holds the quota of its pods, None if none does. `current` is the one that is compared with the
    Job: a pending one that replaces `admitted`, else `admitted`, else the newest. `surplus` are the others.
    """

    admitted: HeldJob | None = None
    current: HeldJob | None = None
    surplus: tuple[HeldJob, ...] = ()


def slices_of(live: Sequence[HeldJob]) -> Slices:
    """Return which of an elastic Job's Workloads is which.

    Source: Kueue, pkg/workloadslicing, normalizeActiveSlices.
    """
    ages = sorted(live, key=lambda one: (one.workload.created_at, one.workload.uid))
    slices = [one for one in ages if not one.workload.is_finished]
    if not slices:
        # One that could not be started, say: the Job is stopped for it.
        return Slices(current=ages[-1] if ages else None, surplus=tuple(ages[:-1]))
    staying = [one for one in slices if not one.workload.is_evicted]
    reserved = [one for one in staying if one.workload.has_quota_reservation]
    taken_over = {one.workload.replaces for one in reserved}
    admitted = next((one for one in reversed(reserved) if one.workload.key not in taken_over), None)
    pending = None
    if admitted is not None:
        waiting = (one for one in staying if one.workload.replaces == admitted.workload.key)
        pending = next((one for one in waiting if not one.workload.has_quota_reservation), None)
    current = pending or admitted or (staying or slices)[-1]
    surplus = tuple(one for one in ages if one is not current and one is not admitted)
    return Slices(admitted=admitted, current=current, surplus=surplus)


_DECODER = msgspec.json.Decoder(dict[str, Any])
