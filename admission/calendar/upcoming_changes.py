"""Upcoming changes of the calendar: the edges that promises, expected starts and admissions have to respect.

Edges of running work and of promises are kept in the schedule plan's profile, because they change with every
decision. The edges here follow from the objects, those of reservations also from what their members use
already. The edges of quota windows are computed on first use, and discarded at the next change of specs or
the next boundary of the calendar.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from admission.calendar.advance_reservations import (
    NO_RESERVATIONS,
    ReservationId,
    Reservations,
    ReservedCapacity,
)
from admission.calendar.quota_windows import NO_WINDOWS, Calendar, window_edges
from api.workload import Workload, WorkloadKey
from queues.profile.capacity_profile import CapacityProfile, Claim, Edge, Spot
from queues.quota.resources import FlavorResource

_RELEASE, _BEGIN = -1, 1


@dataclass(slots=True, kw_only=True)
class UpcomingChanges:
    """Changes of quota after the instant of the calendar, and what reservations keep.

    `words` describes each change by the holder of its claim, filled once `edges` has returned it.
    """

    calendar: Calendar = NO_WINDOWS
    reservations: Reservations = NO_RESERVATIONS
    words: dict[WorkloadKey, str] = field(default_factory=dict)
    # Workloads that use what a reservation keeps, or may soon.
    members: dict[ReservationId, dict[WorkloadKey, None]] = field(default_factory=dict)
    _windows: dict[str, list[Edge]] = field(default_factory=dict)

    @property
    def affects_admissions(self) -> bool:
        """Whether admissions have to respect the calendar even where there are no promises."""
        return bool(self.reservations.kept) or self.calendar.has_lead_windows

    def join(self, workload: Workload) -> None:
        """Note that the Workload holds quota, and count it as a member where it names a reservation."""
        kept = self.reservations.joined_by(workload)
        if kept is not None:
            self.members.setdefault(kept.id, {})[workload.key] = None

    def edges(
        self, queues: Collection[str], profile: CapacityProfile, *, joining: Workload | None = None
    ) -> list[Edge]:
        """Return the edges that concern these ClusterQueues, in no order, as seen by the Workload `joining`.

        The reservation that `joining` is a member of is left out: it does not restrict its members.
        """
        if not self.calendar.windows and not self.reservations.kept:
            return []
        edges = [edge for name in queues for edge in self._of_windows(name)] if self.calendar.windows else []
        own = self.reservations.joined_by(joining) if joining is not None else None
        for kept in self.reservations.kept:
            # Quota is shared within a quota tree, nodes by all trees.
            if kept is not own and (kept.domain is not None or kept.queue in queues):
                edges += self._of_reservation(kept, profile)
        return edges

    def left_of(self, kept: ReservedCapacity, profile: CapacityProfile) -> dict[FlavorResource, int]:
        """Return the part of the reservation that its members do not use yet, without zero amounts."""
        left = dict(kept.usage)
        for key in self.members.get(kept.id, ()):
            claim = profile.get(key)
            for pair, amount in claim.usage.items() if claim is not None and claim.is_running else ():
                if pair in left:
                    left[pair] = max(0, left[pair] - amount)
        return {pair: amount for pair, amount in left.items() if amount}

    def domains_of_others(self, workload: Workload, *, begun_by: float) -> dict[Spot, Mapping[str, int]]:
        """Return the pod places reserved for others in domains whose reservation begins by `begun_by`."""
        spots: dict[Spot, Mapping[str, int]] = {}
        for kept in self.reservations.kept:
            is_own = kept.is_joined_by(workload)
            if kept.domain is not None and not is_own and kept.start_at <= begun_by:
                spots.update(kept.domain.spots)
        return spots

    def clearing_times(self, eviction_times: Collection[float]) -> Iterator[float]:
        """Yield the instants at which Workloads in a reservation's way have to be evicted (Unix seconds).

        `eviction_times` are the seconds that their evictions take.
        """
        for kept in self.reservations.kept:
            yield kept.start_at
            yield from (kept.start_at - seconds for seconds in eviction_times)

    def _of_reservation(self, kept: ReservedCapacity, profile: CapacityProfile) -> list[Edge]:
        left = self.left_of(kept, profile)
        spots = kept.domain.spots if kept.domain is not None else {}
        if not left and not spots:
            return []
        holder = kept.holder
        self.words[holder] = kept.description
        claim = Claim(
            holder=holder,
            queue=kept.queue,
            usage=left,
            spots=spots,
            begins_at=kept.start_at,
            ends_at=kept.end_at,
        )
        return [(kept.start_at, _BEGIN, holder, claim), (kept.end_at, _RELEASE, holder, claim)]

    def _of_windows(self, name: str) -> list[Edge]:
        known = self._windows.get(name)
        if known is None:
            known = self._windows[name] = []
            for edge, words in window_edges(self.calendar, name):
                known.append(edge)
                self.words[edge[2]] = words
        return known
