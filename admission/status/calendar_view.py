"""The calendar for statuses: every quota window and reservation of a policy, and its state.

    Upcoming ──▶ Lead ──▶ Active ──▶ Over          a window with a schedule starts over, and is never Over
       Refused: it has no effect, and a message says why

Lead is the time before a window lowers a quota during which no work starts that would still run at that time
(`reclaimLeadSeconds`). A reservation has none: Workloads start until it begins if they will be gone by then.

It is computed only when a status is asked for. The rules that decide are in the two
modules `admission.calendar.quota_windows` and `admission.calendar.advance_reservations`.
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
    """The state of an entry at an instant."""

    UPCOMING = "Upcoming"
    LEAD = "Lead"
    ACTIVE = "Active"
    OVER = "Over"
    REFUSED = "Refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowEntry:
    """A quota window and its state.

    `opens_at` is its next opening while it is closed, `closes_at` its closing while it is open (Unix
    seconds); None: never, or not known.
    """

    window: QuotaWindow
    state: EntryState
    opens_at: float | None = None
    closes_at: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationEntry:
    """A reservation and its state.

    `keeps` is the quota that it reserves, for a domain as much as its `nodes` can use. `users` are the
    Workloads that hold quota and have joined it, by key.
    """

    reservation: CapacityReservation
    state: EntryState
    cluster_queue: str = ""
    keeps: tuple[tuple[FlavorResource, int], ...] = ()
    nodes: int | None = None
    users: tuple[WorkloadKey, ...] = ()
    message: str = ""


def window_entries(cache: Cache, policy: AdmissionPolicy) -> tuple[WindowEntry, ...]:
    """Return all quota windows of the policy, in the order of its list, with their state now."""
    governing = {queue.name: queue.policy for queue in cache.queues.values()}
    return tuple(
        _window_entry(cache, index, window, policy, governing)
        for index, window in enumerate(policy.quota_windows)
    )


def reservation_entries(cache: Cache, policy: AdmissionPolicy) -> tuple[ReservationEntry, ...]:
    """Return all reservations of the policy, in the order of its list, with their state now."""
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
    now, spec = cache.schedule_plan.now, cache.specs.cluster_queues.get(window.cluster_queue)
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
    """Return a message if another open window of the same quota applies instead of this one, else ""."""
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
        problems = (text for text in known.problems.get(policy.name, ()) if text.startswith(path))
        return ReservationEntry(reservation=one, state=EntryState.REFUSED, message=next(problems, ""))
    return ReservationEntry(
        reservation=one,
        state=EntryState.ACTIVE if kept.start_at <= now else EntryState.UPCOMING,
        cluster_queue=kept.queue,
        keeps=tuple(sorted(kept.usage.items())),
        nodes=kept.domain.hosts if kept.domain is not None else None,
        users=tuple(_users(cache, kept)),
    )


def _users(cache: Cache, kept: ReservedCapacity) -> Iterator[WorkloadKey]:
    """Yield the members that hold quota: members stay in the plan's table after they have ended."""
    return (key for key in sorted(cache.schedule_plan.upcoming.members.get(kept.id, ())) if key in cache.held)
