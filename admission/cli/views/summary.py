"""The summary of demo and replay: a table of waits, and sentences about quota and promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from admission.cli.common.job_manifests import gpu_of
from admission.cli.views.report import RunReport, WaitFigures
from admission.cli.views.tables import make_table, print_table
from admission.simulation.audit import Audit, UsageInterval
from admission.simulation.promises import Promised
from api.parsing.durations import seconds_text

_SECONDS_PER_HOUR = 3600.0
# How many violations are printed one by one.
_PRINTED_BREACHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """A tenant and the ClusterQueue and flavor in which its quota is."""

    tenant: str
    cluster_queue: str
    flavor: str


def print_waits(
    console: Console, report: RunReport, audit: Audit, tenancies: list[Tenancy], pace: float
) -> None:
    """Print waits, GPU-hours and borrowing per tenant and in total. `pace`: run seconds per real second."""
    table = make_table(
        *("TENANT", "JOBS", "MEAN WAIT", "P50", "P90", "LONGEST", "GPU-HOURS", "BORROWED", "MOST GPUS"),
        right=("JOBS", "MEAN WAIT", "P50", "P90", "LONGEST", "GPU-HOURS", "BORROWED", "MOST GPUS"),
    )
    # Do not add up the peaks of tenants, because they occurred at different times.
    whole = UsageInterval()
    for tenancy in tenancies:
        usage = audit.usage.get((tenancy.cluster_queue, gpu_of(tenancy.flavor)), UsageInterval())
        whole.borrowed_seconds += usage.borrowed_seconds
        # A team without Jobs has no waits to show.
        if tenancy.tenant in report.tenants:
            _add_row(table, tenancy.tenant, report.tenants[tenancy.tenant], usage, pace, str(usage.peak_used))
    _add_row(table, "all", report.everyone, whole, pace, "")
    print_table(console, table)


def checks(audit: Audit, *, gaps: int) -> Iterator[str]:
    """Yield the result of the audit of the recorded objects, in sentences."""
    if audit.exceeded:
        yield f"Quota was exceeded {len(audit.exceeded)} times:"
        yield from (f"  {breach}" for breach in audit.exceeded[:_PRINTED_BREACHES])
    else:
        yield f"No quota was exceeded at any time (checked after each of {audit.versions} object versions)."
    # Always report gaps: the audit covers only the versions that were recorded.
    if gaps:
        yield f"A watch was restarted {gaps} times; changes in between were not recorded."


def promises_sentence(promised: Sequence[Promised], pace: float) -> str:
    """Return a sentence on how many promised starts were kept. `pace`: run seconds per real second."""
    if not promised:
        return "No job needed a promised start."
    is_one = len(promised) == 1
    who = f"{len(promised)} {'job' if is_one else 'jobs'} that had to wait"
    # This is worse than a late start, so it is the only thing to report.
    never = sum(one.started_at is None for one in promised)
    if never:
        return f"Of {who}, {never} never started."
    # Include only broken promises: a start within the tolerance is on time.
    late = [-one.early_seconds for one in promised if one.is_broken]
    if late:
        return (
            f"Of {who}, {len(late)} started later than promised, by {seconds_text(max(late) * pace)} at most."
        )
    # Within the tolerance a start may be later than promised; do not report that as early.
    early = seconds_text(max(0.0, sum(one.early_seconds for one in promised) / len(promised)) * pace)
    if is_one:
        return f"{who} was promised a start and kept it: {early} early."
    return f"{who} were promised a start, and all kept it: {early} early on average."


def percent_text(share: float) -> str:
    """Return a share as whole percent, and a small one with one decimal."""
    return f"{share * 100:.1f}%" if 0 < share < 0.1 else f"{share * 100:.0f}%"


def _add_row(
    table: Table, name: str, figures: WaitFigures, usage: UsageInterval, pace: float, most: str
) -> None:
    borrowed_hours = usage.borrowed_seconds * pace / _SECONDS_PER_HOUR
    table.add_row(
        name,
        str(figures.jobs),
        seconds_text(figures.mean_wait_seconds),
        seconds_text(figures.p50_wait_seconds),
        seconds_text(figures.p90_wait_seconds),
        seconds_text(figures.longest_wait_seconds),
        _hours_text(figures.gpu_hours),
        _hours_text(borrowed_hours),
        most,
    )


def _hours_text(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 100 else f"{hours:.2f}"
