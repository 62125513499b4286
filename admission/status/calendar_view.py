"""The calendar's entries as people ask for them: every quota window and reservation, and where it stands.

    Upcoming ──▶ Lead ──▶ Active ──▶ Over          a window by a schedule goes round, and is never over
       Refused: it has no effect, and a sentence says why

Lead is the time before a window lowers a quota in which nothing starts any more that would be in the way
(`reclaimLeadSeconds`). A reservation has none: others start until it begins, where they are gone by then.

For statuses alone, so it is worked out when somebody asks; what decides is in `calendar` and `advance`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from admission.cache.cache import Cache
from admission.calendar.advance_reservations import ReservationId, ReservedCapacity
from admission.calendar.quota_windows import QuotaInForce, lead_begins_at, window_refusal
from api.policy import AdmissionPolicy, CapacityReservation, QuotaWindow
from api.workload import WorkloadKey
from queues.quota.hierarchy import to_quotas
from queues.quota.quota_windows import closes_at, opens_at
from queues.quota.resources import FlavorResource


class EntryState(StrEnum):
    """Where an entry stands at an instant."""

    UPCOMING = "Upcoming"
    LEAD = "Lead"
    ACTIVE = "Active"
    OVER = "Over"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEntry:
    """A quota window. `opens_at` is its next opening while it is closed, `closes_at` when it closes while it
    is open (Unix seconds); None: never, or not known.
    """

    window: QuotaWindow
    state: EntryState
    opens_at: float | None = None
    closes_at: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationEntry:
    """A reservation. `keeps` is the quota that it keeps, of a domain as much as its `nodes` have use for.

    `users` hold quota and have joined it, in order of key.
    """

    reservation: CapacityReservation
    state: EntryState
    cluster_queue: str = ""
    keeps: tuple[tuple[FlavorResource, int], ...] = ()
    nodes: int | None = None
    users: tuple[WorkloadKey, ...] = ()
    message: str = ""


def window_entries(cache: Cache, policy: AdmissionPolicy) -> tuple[WindowEntry, ...]:
    """Return all quota windows of the policy, in the order of its list, as they stand now."""
    governing = {queue.name: queue.policy for queue in cache.queues.values()}
    return tuple(
        _window_entry(cache, index, window, policy, governing)
        for index, window in enumerate(policy.quota_windows)
    )


def reservation_entries(cache: Cache, policy: AdmissionPolicy) -> tuple[ReservationEntry, ...]:
    """Return all reservations of the policy, in the order of its list, as they stand now."""
    return tuple(
        _reservation_entry(cache, index, one, policy) for index, one in enumerate(policy.reservations)
    )


def _window_entry(
    cache: Cache,
    index: int,
    window: QuotaWindow,
    policy: AdmissionPolicy,
    governing: Mapping[str, AdmissionPolicy],
) -> WindowEntry:
    now, spec = cache.schedule_plan.now, cache.cluster_queues.get(window.cluster_queue)
    refusal = window_refusal(f"spec.quotaWindows[{index}]", window, policy, spec, governing, now=now)
    if refusal is not None or spec is None:
        return WindowEntry(window=window, state=EntryState.REFUSED, message=refusal or "")
    pair = FlavorResource(window.flavor, window.resource)
    present = cache.calendar.in_force.get(window.cluster_queue, {}).get(pair)
    closes, opens = closes_at(window, now), opens_at(window, now)
    if closes is not None:
        covered = _covered_by(window, present)
        return WindowEntry(window=window, state=EntryState.ACTIVE, closes_at=closes, message=covered)
    if opens is None:
        return WindowEntry(window=window, state=EntryState.OVER)
    amount = present.amount if present is not None else to_quotas(spec.resource_groups)[pair].nominal
    is_led = lead_begins_at(window, amount, opens) <= now
    return WindowEntry(
        window=window, state=EntryState.LEAD if is_led else EntryState.UPCOMING, opens_at=opens
    )


def _covered_by(window: QuotaWindow, present: QuotaInForce | None) -> str:
    if present is None or present.window == window.name:
        return ""
    return f"quota window {present.window} is open too and counts, as the later in the list"


def _reservation_entry(
    cache: Cache, index: int, one: CapacityReservation, policy: AdmissionPolicy
) -> ReservationEntry:
    now, known = cache.schedule_plan.now, cache.reservations
    if one.end_at <= now:
        return ReservationEntry(reservation=one, state=EntryState.OVER)
    wanted = ReservationId(policy.name, one.name)
    kept = next((each for each in known.kept if each.id == wanted), None)
    if kept is None:
        path = f"spec.reservations[{index}]"
        told = (text for text in known.problems.get(policy.name, ()) if text.startswith(path))
        return ReservationEntry(reservation=one, state=EntryState.REFUSED, message=next(told, ""))
    return ReservationEntry(
        reservation=one,
        state=EntryState.ACTIVE if kept.start_at <= now else EntryState.UPCOMING,
        cluster_queue=kept.queue,
        keeps=tuple(sorted(kept.usage.items())),
        nodes=kept.domain.hosts if kept.domain is not None else None,
        users=tuple(_users(cache, kept)),
    )


def _users(cache: Cache, kept: ReservedCapacity) -> Iterator[WorkloadKey]:
    """Yield who holds quota and has joined: members stay on the keeper's list when they end."""
    return (key for key in sorted(cache.schedule_plan.ahead.members.get(kept.id, ())) if key in cache.held)
