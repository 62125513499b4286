"""The sections of an AdmissionPolicy that concern time: order, backfill, estimates, quota windows,
reservations."""

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
"""A part of a whole, from 0 to 1."""
PositiveNumber = Annotated[float, Field(strict=True, gt=0)]

_ONE_TIME = (
    "has(self.schedule) ? has(self.durationSeconds) && !has(self.start) && !has(self.end)"
    " : has(self.start) && has(self.end) && !has(self.durationSeconds)"
)
_ONE_TIME_RULE = rule(_ONE_TIME, "give start and end, or schedule and durationSeconds")


class Ordering(Model):
    """In which order Workloads of equal priority are tried."""

    mode: Literal["Priority", "ShortestPredicted", "LeastAttained"] = "Priority"
    """Priority: by time of creation, as Kueue does. ShortestPredicted: the shortest estimated run first.
    LeastAttained: who has received the least device time so far first, which needs no estimate; Workloads of
    a lower level may then take the place of running ones of a higher level."""
    age_seconds: Count = 86400
    """Who has waited so long goes before all others of the priority, whatever the mode says, so that nobody
    starves; under LeastAttained it climbs one level each time that it has, and goes before all above the
    lowest. 0: never. Default a day: longer than most runs, shorter than patience."""
    levels: Annotated[list[PositiveNumber], Field(min_length=1, max_length=16), ATOMIC] = Field(
        default_factory=lambda: [1.0, 10.0]
    )
    """LeastAttained: upper ends of the levels, in GPU-hours received, rising. Default 1 and 10: trials,
    short trainings, and all that is longer, which takes its turns by age. With a level more at 100 most wait
    less and gangs far longer, since few of them stay below it."""


class Backfill(Model):
    """Promised starts, and who may fill the gap before them."""

    mode: Literal["None", "EASY", "Conservative", "Opportunistic"] = "EASY"
    """None: nothing is promised. EASY: the head of the queue is promised a start. Conservative: the first
    reservationDepth are. Opportunistic: the head is, and whoever is of lower priority may run in what is held
    for it and gives way when it is ready."""
    reservation_depth: PositiveCount = 100
    """Conservative: how many Workloads of a ClusterQueue are promised a start. Default 100: deep enough for
    everybody who asks when it is their turn, and bounded in cost. The other modes promise one."""
    window_seconds: PositiveCount = 604800
    """How far ahead promises reach: only the head of a queue is promised a later start. Work of unknown
    length is taken to run so long. Default a week."""
    resolution_seconds: PositiveCount = 60
    """By how much a promised start must come nearer to be moved up. Default a minute: finer than any
    estimate."""
    max_tested: PositiveCount = 500
    """Workloads of a ClusterQueue that are looked at for backfill each time that capacity comes free.
    Default 500."""
    on_overrun: Literal["Evict", "Extend"] = "Evict"
    """What happens to backfilled work that outruns its estimate up to the promised start. Evict: it gives
    way, saved first where it can. Extend: it goes on, and the broken promise is recorded with cause
    Overrun."""
    eta_depth: Count = 500
    """Workloads of a ClusterQueue whose expected start is worked out one by one; those behind have a lower
    bound. Default 500."""


class Estimates(Model):
    """How long Workloads run that do not say so themselves."""

    default_seconds: PositiveCount | None = None
    """Estimate of last resort. Absent: who says nothing and was never seen before is taken to run for the
    window of backfill, and so starts only where it is in no promise's way."""
    quantile: Fraction = 0.9
    """Which quantile of the measured run times of like Workloads is taken. Default 0.9: nine of ten end in
    time."""
    min_observations: PositiveCount = 3
    """Measured runs that it takes before they are believed. Default 3."""
    raise_percent: PositiveCount = 50
    """By how much an estimate is raised each time it is outrun. Default 50."""


class QuotaWindow(Model):
    """A time in which a ClusterQueue has another nominal quota. The ClusterQueue itself is not written."""

    model_config = object_rules(_ONE_TIME_RULE)

    name: DnsLabel
    """Name of the window, for events and messages."""
    cluster_queue: DnsSubdomain
    """ClusterQueue whose quota changes; the policy must govern it."""
    flavor: DnsSubdomain
    """Flavor of the quota."""
    resource: LabelKey
    """Resource of the quota."""
    nominal_quota: Quantity
    """Quota in force while the window is open. Of overlapping windows the later in the list counts."""
    start: Timestamp | None = None
    """When it opens; with end, and without schedule."""
    end: Timestamp | None = None
    """When it closes."""
    schedule: Annotated[str, Field(min_length=9, max_length=128)] | None = None
    """When it opens again and again: minute, hour, day of month, month, day of week, as cron writes them."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of the schedule, by its IANA name. Default UTC."""
    duration_seconds: PositiveCount | None = None
    """How long it stays open after each time of the schedule, in real seconds when clocks are set."""
    reclaim_lead_seconds: Count = 0
    """So long before the quota falls, because this window opens or closes, nothing is admitted that may still
    run then and would not fit. Default 0: running work is never asked, and reclaimed as usual."""


class QuotaAmount(Model):
    """An amount of one resource of one flavor."""

    flavor: DnsSubdomain
    """Flavor."""
    resource: LabelKey
    """Resource."""
    amount: Quantity
    """How much of it."""


class CapacityReservation(Model):
    """Capacity kept free for one LocalQueue from a start to an end: a calendar entry."""

    model_config = object_rules(
        rule("has(self.resources) != has(self.domain)", "give resources or a domain, not both"),
    )

    name: DnsLabel
    """Name by which Workloads join: the annotation berth.dev/reservation."""
    namespace: DnsLabel
    """Namespace of the LocalQueue."""
    local_queue: DnsSubdomain
    """LocalQueue whose Workloads may use it."""
    start: Timestamp
    """When the capacity is there."""
    end: Timestamp
    """When it is given back."""
    resources: (
        Annotated[list[QuotaAmount], Field(min_length=1, max_length=64), list_map("flavor", "resource")]
        | None
    ) = None
    """How much is kept."""
    domain: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """A topology domain that is kept whole, by its label values from the widest level on, with / between: all
    nodes in it, and as much of the ClusterQueue's quota as they have use for. Its members run inside it."""


QuotaWindows = Annotated[list[QuotaWindow], Field(max_length=64), list_map("name")]
Reservations = Annotated[list[CapacityReservation], Field(max_length=64), list_map("name")]
