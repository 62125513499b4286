"""The calendar: which quotas are in force now because of quota windows, and when that changes.

    policies' quotaWindows  ─┐                     ┌─▶ ClusterQueues with the quotas in force
    ClusterQueues, now      ─┴─▶ read_windows ────┼─▶ when to read it again (`next_at`)
                                                   └─▶ edges: changes of quota for the capacity profile

A window changes the quota that decisions use, never the object. All code downstream (quota tree, borrowing,
fair shares, reclaim) reads the value in force as if an administrator had edited the ClusterQueue at that
instant. Running work is treated accordingly when a quota falls: it runs on and counts as borrowed, and other
queues take back their own quota by `reclaimWithinCohort`, as after any edit. A separate rule for windows
(evict the excess at once) was rejected: it would stop work whose capacity no Workload needs.

To have the capacity free in time, set `reclaimLeadSeconds`: for that long before the quota falls, no Workload
starts that would still run then and not fit.

The value is frozen and follows from the objects and the instant alone, so a new leader needs no stored state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from api.parsing.quantities import to_text
from api.parsing.times import to_rfc3339
from api.policy import AdmissionPolicy, QuotaWindow
from api.queueing import ClusterQueue, FlavorQuotas, ResourceGroup
from api.workload import WorkloadKey
from queues.profile.capacity_profile import Claim, Edge
from queues.quota.hierarchy import to_quotas
from queues.quota.quota_windows import closes_at, opens_at
from queues.quota.resources import FlavorResource
from queues.quota.window_timeline import QuotaStep, QuotaTimeline

# How far ahead promises and expected starts see changes of quota: a week, the default window of backfill.
# The second constant caps the changes of one quota, as a window that opens every few minutes has thousands.
HORIZON_SECONDS = 7 * 86400.0
_MOST_STEPS = 64

_RELEASE, _BEGIN = -1, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaInForce:
    """A nominal quota that a window has replaced: until `closes_at` it is `amount` instead of `nominal`."""

    window: str
    amount: int
    nominal: int
    closes_at: float


Windows = Mapping[FlavorResource, tuple[QuotaWindow, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """What is in force at the instant of the reading. ClusterQueues without windows appear in no mapping.

    `courses` are handed on from one reading to the next, and are positioned at the instant of the last one.
    `next_at` is when the calendar has to be read again, infinity when it never changes.
    """

    windows: Mapping[str, Windows] = field(default_factory=dict)
    courses: Mapping[str, Mapping[FlavorResource, QuotaTimeline]] = field(default_factory=dict)
    in_force: Mapping[str, Mapping[FlavorResource, QuotaInForce]] = field(default_factory=dict)
    next_at: float = inf

    @property
    def has_lead_windows(self) -> bool:
        """Whether any window has a lead time: its opening matters to admissions before it happens."""
        return any(
            window.reclaim_lead_seconds
            for of_queue in self.windows.values()
            for windows in of_queue.values()
            for window in windows
        )

    def spec_in_force(self, spec: ClusterQueue) -> ClusterQueue:
        """Return the ClusterQueue with the quotas in force; the same object where no window is open."""
        known = self.in_force.get(spec.name)
        if not known:
            return spec
        groups = tuple(_group_in_force(group, known) for group in spec.resource_groups)
        return replace(spec, resource_groups=groups)


NO_WINDOWS = Calendar()


def read_windows(
    specs: Mapping[str, ClusterQueue],
    policies: Mapping[str, AdmissionPolicy],
    *,
    now: float,
    before: Calendar = NO_WINDOWS,
) -> Calendar:
    """Return what is in force at `now`; `policies` are the governing ones by ClusterQueue.

    `before` is an earlier reading that is no longer needed: its timelines are advanced and reused.
    """
    windows: dict[str, Windows] = {}
    # Windows for flavors that the queue does not have are reported in the policy's status, not here.
    for name, policy in policies.items():
        if policy.quota_windows and (found := _windows_of(specs[name], policy)):
            windows[name] = found
    if not windows:
        return NO_WINDOWS
    present: dict[str, dict[FlavorResource, QuotaInForce]] = {}
    courses: dict[str, dict[FlavorResource, QuotaTimeline]] = {}
    next_at = inf
    for name, of_queue in windows.items():
        quotas, known = to_quotas(specs[name].resource_groups), before.courses.get(name, {})
        for pair, listed in of_queue.items():
            course = _course_at(now, known.get(pair), listed, quotas[pair].nominal)
            courses.setdefault(name, {})[pair] = course
            window = course.present.in_force
            if window is not None:
                present.setdefault(name, {})[pair] = _quota_in_force(window, course.nominal, now)
            leads = (lead_begins_at(one, course.amount, at) for one, at in course.present.openings())
            # No decision changes at that instant, but statuses have to show that the lead time has begun.
            leads_at = min((at for at in leads if at > now), default=inf)
            next_at = min(next_at, course.present.next_at(), leads_at)
    # The earliest change of any window: until then the whole calendar holds.
    return Calendar(windows=windows, courses=courses, in_force=present, next_at=next_at)


def _course_at(
    now: float, known: QuotaTimeline | None, windows: tuple[QuotaWindow, ...], nominal: int
) -> QuotaTimeline:
    if known is None or (known.windows, known.nominal) != (windows, nominal):
        return QuotaTimeline(windows, nominal, now=now)
    known.go_to(now)
    return known


def lead_begins_at(window: QuotaWindow, amount: int, opens_at: float) -> float:
    """Return from when on the opening of a closed window affects admissions (Unix seconds), infinity: never.

    Only an opening that lowers the quota from `amount` has a lead time.
    """
    if not window.reclaim_lead_seconds or window.nominal >= amount:
        return inf
    return opens_at - window.reclaim_lead_seconds


def _windows_of(spec: ClusterQueue, policy: AdmissionPolicy) -> Windows:
    declared = to_quotas(spec.resource_groups)
    found: dict[FlavorResource, tuple[QuotaWindow, ...]] = {}
    for window in policy.quota_windows:
        pair = FlavorResource(window.flavor, window.resource)
        if window.cluster_queue == spec.name and pair in declared:
            found[pair] = (*found.get(pair, ()), window)
    # In the order of the list, because of two open windows the later one counts.
    return found


def _quota_in_force(window: QuotaWindow, nominal: int, now: float) -> QuotaInForce:
    # A window that stays open for ever has no end; infinity says so, as distinct from an unknown end.
    end = closes_at(window, now)
    return QuotaInForce(
        window=window.name, amount=window.nominal, nominal=nominal, closes_at=inf if end is None else end
    )


def _group_in_force(group: ResourceGroup, known: Mapping[FlavorResource, QuotaInForce]) -> ResourceGroup:
    return replace(group, flavors=tuple(_flavor_in_force(flavor, known) for flavor in group.flavors))


def _flavor_in_force(flavor: FlavorQuotas, known: Mapping[FlavorResource, QuotaInForce]) -> FlavorQuotas:
    resources = dict(flavor.resources)
    for resource, quota in flavor.resources.items():
        present = known.get(FlavorResource(flavor.name, resource))
        if present is not None:
            resources[resource] = replace(quota, nominal=present.amount)
    return replace(flavor, resources=resources)


def upcoming_rises(calendar: Calendar, cluster_queue: str, pair: FlavorResource) -> tuple[QuotaStep, ...]:
    """Return when the quota of a ClusterQueue will exceed the quota in force, soonest first.

    Used to say to a Workload that requests more than there is now when there will be enough.
    """
    course = calendar.courses.get(cluster_queue, {}).get(pair)
    if course is None:
        return ()
    coming = course.steps(until=course.now + HORIZON_SECONDS, most=_MOST_STEPS)
    return tuple(step for step in coming if step.amount > course.amount)


# --- upcoming changes ------------------------------------------------------------------------------------


def window_edges(calendar: Calendar, cluster_queue: str) -> Iterator[tuple[Edge, str]]:
    """Yield the coming changes of the ClusterQueue's quotas, each with its description.

    A quota that falls begins a claim on the lost amount; one that rises ends such a claim.
    """
    for pair, course in calendar.courses.get(cluster_queue, {}).items():
        amount, until = course.amount, course.now + HORIZON_SECONDS
        for number, step in enumerate(course.steps(until=until, most=_MOST_STEPS)):
            # No Workload has an empty namespace, so the holder never equals one in the profile. The number
            # distinguishes the steps of one quota.
            holder = WorkloadKey("", f"{cluster_queue} {pair} {number}")
            name = step.window.name if step.window is not None else "its end"
            words = (
                f"the quota of {pair.resource} in flavor {pair.flavor} of ClusterQueue {cluster_queue} falls "
                f"to {to_text(pair.resource, step.amount)} at {to_rfc3339(step.at)} (quota window: {name})"
            )
            lead = step.lead_seconds
            # The claim shifts the quota and has no usage: usage may exceed the lowered quota for a while.
            claim = partial(Claim, holder=holder, queue=cluster_queue, usage={}, lead_seconds=lead)
            # Compared with the previous step, not with the declared quota: windows may follow one another.
            if step.amount < amount:
                begun = claim(begins_at=step.at, quota={pair: amount - step.amount})
                yield (step.at, _BEGIN, holder, begun), words
            else:
                ended = claim(ends_at=step.at, quota={pair: step.amount - amount})
                # A claim that already runs and ends then: its amount is missing now and comes back.
                yield (step.at, _RELEASE, holder, ended), words
            amount = step.amount


# --- problems --------------------------------------------------------------------------------------------


def window_problems(
    policy: AdmissionPolicy,
    specs: Mapping[str, ClusterQueue],
    governing: Mapping[str, AdmissionPolicy],
    overlaps: Iterable[tuple[int, int]],
    *,
    now: float,
) -> Iterator[str]:
    """Yield why windows of the policy have no effect, and which of them overlap.

    `overlaps` are index pairs into the policy's list
    (`admission.calendar.window_overlaps`), the earlier first.
    """
    earlier: dict[int, list[QuotaWindow]] = {}
    for one, other in overlaps:
        earlier.setdefault(other, []).append(policy.quota_windows[one])
    for index, window in enumerate(policy.quota_windows):
        path = f"spec.quotaWindows[{index}]"
        spec = specs.get(window.cluster_queue)
        problem = window_refusal(path, window, policy, spec, governing, now=now)
        if problem is not None:
            yield problem
        else:
            # Compared only with earlier windows, so that each pair is reported once, at the one that counts.
            yield from _overlaps(path, window, earlier.get(index, ()), now=now)


def window_refusal(
    path: str,
    window: QuotaWindow,
    policy: AdmissionPolicy,
    spec: ClusterQueue | None,
    governing: Mapping[str, AdmissionPolicy],
    *,
    now: float,
) -> str | None:
    """Return why the window has no effect, None where it has; `spec` is the ClusterQueue that it names."""
    problem = _misfit(path, window, policy, spec, governing)
    # A schedule can be well-formed and still never open (30 February); only a search for a day finds out.
    if problem is None and window.schedule is not None and opens_at(window, now) is None:
        return f'{path}.schedule is "{window.schedule.cron}": there is no such day, it never opens'
    return problem


def _misfit(
    path: str,
    window: QuotaWindow,
    policy: AdmissionPolicy,
    spec: ClusterQueue | None,
    governing: Mapping[str, AdmissionPolicy],
) -> str | None:
    """Return why there is no quota for the window to replace, None where there is."""
    name = window.cluster_queue
    if spec is None:
        return f'{path}.clusterQueue is "{name}": there is no such ClusterQueue'
    ruler = governing.get(name)
    if ruler != policy:
        other = f"policy {ruler.name} does" if ruler is not None and ruler.name else "no policy does"
        # Policies are compared by content: equal policies have the same name.
        return f'{path}.clusterQueue is "{name}": this policy does not govern it, {other}'
    pairs = to_quotas(spec.resource_groups)
    flavors = sorted({pair.flavor for pair in pairs})
    if window.flavor not in flavors:
        has = ", ".join(flavors) or "none"
        return f'{path}.flavor is "{window.flavor}": ClusterQueue {name} has flavors {has}'
    if FlavorResource(window.flavor, window.resource) not in pairs:
        has = ", ".join(sorted(pair.resource for pair in pairs if pair.flavor == window.flavor))
        return (
            f'{path}.resource is "{window.resource}": flavor {window.flavor} of ClusterQueue {name} has '
            f"quota for {has}"
        )
    return None


def _overlaps(path: str, window: QuotaWindow, others: Iterable[QuotaWindow], *, now: float) -> Iterator[str]:
    for other in others:
        # A window that is over no longer conflicts with any other.
        if not _is_over(window, now) and not _is_over(other, now):
            yield (
                f'{path}.name is "{window.name}": overlaps quota window {other.name}; where both are open '
                f"{window.name} counts, as the later in the list"
            )


def _is_over(window: QuotaWindow, now: float) -> bool:
    return window.end_at is not None and window.end_at <= now
