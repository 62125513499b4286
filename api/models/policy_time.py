"""Sections of an AdmissionPolicy about time: order, backfill, estimates, quota windows, reservations."""

from typing import Annotated, Literal

from pydantic import Field

from api.models.common import (
    Count,
    DnsLabel,
    DnsSubdomain,
    LabelKey,
    Model,
    PositiveCount,
    Quantity,
    Timestamp,
)
from api.models.markers import ATOMIC, list_map, object_rules, rule

Fraction = Annotated[float, Field(strict=True, ge=0, le=1)]
"""A fraction from 0 to 1."""
# A hundred thousand GPUs for more than a year.
GpuHours = Annotated[float, Field(strict=True, gt=0, le=1e9)]

_ONE_TIME = (
    "has(self.schedule) ? has(self.durationSeconds) && !has(self.start) && !has(self.end)"
    " : has(self.start) && has(self.end) && !has(self.durationSeconds)"
)
_ONE_TIME_RULE = rule(_ONE_TIME, "give start and end, or schedule and durationSeconds")


class Ordering(Model):
    """Order in which Workloads of equal priority are tried."""

    mode: Literal["Priority", "ShortestPredicted", "EarliestExpectedEnd", "LeastAttained"] = "Priority"
    """Priority: by creation time, as in Kueue. ShortestPredicted: the shortest estimated run time first.
    EarliestExpectedEnd: the earliest sum of creation time and estimated run time first, so that short
    Workloads pass long ones, and each can be passed only for as long as it runs itself; as under Priority
    where no run time is known, and in a ClusterQueue with withinClusterQueue: LowerOrNewerEqualPriority,
    where the older Workload would stop the shorter one.
    LeastAttained: the least device time received so far first, which needs no estimate; a Workload of a lower
    level may then preempt running ones of a higher level."""
    age_seconds: Count = 86400
    """A Workload that has waited this long is tried before all others of its priority, whatever the mode is,
    so that no Workload starves. Under LeastAttained it moves to the next lower level each time it has waited
    this long, and is tried before all Workloads above the lowest level. Under EarliestExpectedEnd longer
    run times count as this long. 0: never. Default 86400, one day, which is longer than most runs."""
    unknown_seconds: Count | None = None
    """EarliestExpectedEnd: how long a run counts whose time is not known, at most ageSeconds. Default
    ageSeconds, so that a Workload without a run time goes behind all that have one and came in the time
    before; with less it goes before those that run longer than this. A learned run time counts as this long
    at most. Where no run time is known the order is Kueue's, whatever the value is."""
    levels: Annotated[list[GpuHours], Field(min_length=1, max_length=16), ATOMIC] = Field(
        default_factory=lambda: [1.0, 10.0]
    )
    """LeastAttained: upper limits of the levels, in GPU-hours received, ascending. Default 1 and 10, which
    separate trials, short trainings, and longer runs, which take turns by age. With an additional level at
    100, most Workloads wait less, but gangs wait much longer, since few of them stay below it."""


class Backfill(Model):
    """Planned start times, and which Workloads may use the capacity until then."""

    mode: Literal["None", "EASY", "Conservative", "Opportunistic"] = "EASY"
    """None: no start is promised. EASY: the head of the queue is promised a start time. Conservative: the
    first reservationDepth Workloads are. Opportunistic: the head is, and Workloads of lower priority may run
    on the capacity held for it; they are preempted when the head can start."""
    reservation_depth: PositiveCount = 100
    """Conservative: number of Workloads of a ClusterQueue that are promised a start time. Default 100, which
    bounds the cost. The other modes promise one."""
    window_seconds: PositiveCount = 604800
    """How far ahead start times are promised; only the head of a queue is promised a later one. Work of
    unknown length is assumed to run this long. Default 604800, one week."""
    resolution_seconds: PositiveCount = 60
    """Minimum improvement of a promised start time for which it is moved up. Default 60, one minute, which is
    more precise than any estimate."""
    ending_seconds: Count = 5
    """How long work may take to end after its expected run time before that counts as an overrun: its pods
    start some seconds after its admission, and are seen to end some seconds late. Promised start times count
    on its end only then; if it ends earlier, so does the wait. Default 5."""
    max_tested: PositiveCount = 500
    """Maximum number of Workloads of a ClusterQueue that are considered for backfill each time capacity
    becomes free. Default 500."""
    on_overrun: Literal["Evict", "Extend"] = "Evict"
    """What happens to backfilled work that exceeds its estimate when the promised start is due. Evict: it is
    preempted, after a checkpoint if it can save one. Extend: it keeps running, and the broken promise is
    recorded with cause Overrun."""
    eta_depth: Count = 500
    """Number of Workloads of a ClusterQueue whose expected start is computed individually; those behind them
    get a lower bound. Default 500."""


class Estimates(Model):
    """Run-time estimates for Workloads that declare none."""

    default_seconds: PositiveCount | None = None
    """Estimate of last resort. Absent: a Workload without a declared or learned run time is assumed to run
    for windowSeconds of backfill, and so starts only where it delays no promised start."""
    quantile: Fraction = 0.9
    """Quantile of the measured run times of similar Workloads that is used as the estimate. Default 0.9: nine
    of ten Workloads end in time."""
    min_observations: PositiveCount = 3
    """Minimum number of measured runs before they are used. Default 3."""
    raise_percent: PositiveCount = 50
    """Percentage by which an estimate is raised each time a Workload exceeds it. Default 50."""


class QuotaWindow(Model):
    """A period in which a ClusterQueue has another nominal quota. The ClusterQueue itself is not changed."""

    model_config = object_rules(_ONE_TIME_RULE)

    name: DnsLabel
    """Name of the window, used in events and messages."""
    cluster_queue: DnsSubdomain
    """ClusterQueue whose quota changes; the policy must govern it."""
    flavor: DnsSubdomain
    """Flavor of the quota."""
    resource: LabelKey
    """Resource of the quota."""
    nominal_quota: Quantity
    """Quota in force while the window is open. If windows overlap, the later one in the list applies."""
    start: Timestamp | None = None
    """When the window opens; used with end, and not with schedule."""
    end: Timestamp | None = None
    """When the window closes."""
    schedule: Annotated[str, Field(min_length=9, max_length=128)] | None = None
    """When the window opens repeatedly, in cron syntax: minute, hour, day of month, month, day of week."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of the schedule, by its IANA name. Default UTC."""
    duration_seconds: PositiveCount | None = None
    """How long the window stays open after each time of the schedule, in elapsed seconds, also across changes
    of daylight saving time."""
    reclaim_lead_seconds: Count = 0
    """Lead time before the quota falls because this window opens or closes. During it, no Workload is
    admitted that may still run then and would not fit. Default 0: admission ignores the change, and quota
    is reclaimed as usual."""


class QuotaAmount(Model):
    """An amount of one resource of one flavor."""

    flavor: DnsSubdomain
    """Flavor."""
    resource: LabelKey
    """Resource."""
    amount: Quantity
    """How much of it."""


class CapacityReservation(Model):
    """Capacity reserved for one LocalQueue from a start time to an end time."""

    model_config = object_rules(
        rule("has(self.resources) != has(self.domain)", "give resources or a domain, not both"),
    )

    name: DnsLabel
    """Name by which Workloads join, in the annotation berth.dev/reservation."""
    namespace: DnsLabel
    """Namespace of the LocalQueue."""
    local_queue: DnsSubdomain
    """LocalQueue whose Workloads may use the capacity."""
    start: Timestamp
    """When the capacity is available."""
    end: Timestamp
    """When the capacity is released."""
    resources: (
        Annotated[list[QuotaAmount], Field(min_length=1, max_length=64), list_map("flavor", "resource")]
        | None
    ) = None
    """Amounts that are reserved."""
    domain: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Topology domain that is reserved as a whole, given by its label values from the widest level on,
    separated by /. All of its nodes are reserved, and as much quota of the ClusterQueue as they can use.
    Workloads that join run inside the domain."""


QuotaWindows = Annotated[list[QuotaWindow], Field(max_length=64), list_map("name")]
Reservations = Annotated[list[CapacityReservation], Field(max_length=64), list_map("name")]
