"""What the dashboards of deploy/dashboards show: for each reader a list of panels, a panel a question.

Gauges of queues are served by followers too, so the queries select the leader. Counters and histograms stay
with the replica that counted, so the queries sum over all replicas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The windows of the queries: an hour of waits, as few Workloads start in a minute; Grafana's own for rates.
_HOUR, _RATE, _RANGE = "1h", "$__rate_interval", "$__range"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `queries` are by the legend of their series; `unit` is Grafana's name of a unit."""

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    about: str = ""
    is_number: bool = False
    # Twenty-fourths of the dashboard.
    width: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One dashboard: its sections, and its variables as name, title and query."""

    name: str
    title: str
    variables: tuple[tuple[str, str, str], ...]
    sections: Mapping[str, tuple[Panel, ...]]

    @property
    def panels(self) -> tuple[Panel, ...]:
        """Return the panels of all sections."""
        return tuple(panel for section in self.sections.values() for panel in section)


def _number(title: str, query: str, unit: str = "short", about: str = "", width: int = 6) -> Panel:
    return Panel(title=title, queries={"": query}, unit=unit, about=about, is_number=True, width=width)


def _lines(
    title: str, queries: Mapping[str, str], *, unit: str = "short", about: str = "", width: int = 8
) -> Panel:
    return Panel(title=title, queries=queries, unit=unit, about=about, width=width)


def _quantile(share: float, histogram: str, matchers: str, *by: str, window: str = _HOUR) -> str:
    labels = ", ".join((*by, "le"))
    selected = f"{histogram}_bucket{{{matchers}}}" if matchers else f"{histogram}_bucket"
    return f"histogram_quantile({share:g}, sum by ({labels}) (rate({selected}[{window}])))"


def _sum(labels: str, metric: str) -> str:
    return f"sum by ({labels}) ({metric})"


def _grown(labels: str, counter: str, window: str = _RANGE) -> str:
    return f"sum by ({labels}) (increase({counter}[{window}]))"


def _rated(labels: str, counter: str) -> str:
    return f"sum by ({labels}) (rate({counter}[{_RATE}]))"


_LEADER = 'replica_role="leader"'
_RESOURCE = ("resource", "Resource", "label_values(kueue_cluster_queue_nominal_quota, resource)")

# --- a team --------------------------------------------------------------------------------------------

_MINE = 'namespace=~"$namespace",name=~"$queue"'
_MINE_NOW = f"{_LEADER},{_MINE}"
_LQ = "kueue_local_queue"

TEAM = Dashboard(
    name="team",
    title="Berth: my queues",
    variables=(
        ("namespace", "Namespace", f"label_values({_LQ}_status, namespace)"),
        ("queue", "LocalQueue", f'label_values({_LQ}_status{{namespace=~"$namespace"}}, name)'),
        _RESOURCE,
    ),
    sections={
        "Now": (
            _number("Pending", f"sum({_LQ}_pending_workloads{{{_MINE_NOW}}})"),
            _number("Running", f"sum({_LQ}_admitted_active_workloads{{{_MINE_NOW}}})"),
            _number("$resource in use", f'sum({_LQ}_resource_usage{{{_MINE_NOW},resource="$resource"}})'),
            _number("Half started within", _quantile(0.5, f"{_LQ}_admission_wait_time_seconds", _MINE), "s"),
        ),
        "Waiting": (
            _lines(
                "Pending by queue",
                {"{{name}} {{status}}": _sum("name, status", f"{_LQ}_pending_workloads{{{_MINE_NOW}}}")},
                about="active: will be tried; inadmissible: waits until something changes",
            ),
            _lines(
                "Why they wait",
                {
                    "{{underlying_cause}}": _sum(
                        "underlying_cause", f"{_LQ}_unadmitted_workloads{{{_MINE_NOW}}}"
                    )
                },
                about="docs/troubleshooting.md explains each reason",
            ),
            _lines(
                "From queueing to start",
                {
                    "half within": _quantile(0.5, f"{_LQ}_admission_wait_time_seconds", _MINE),
                    "95% within": _quantile(0.95, f"{_LQ}_admission_wait_time_seconds", _MINE),
                },
                unit="s",
            ),
            _lines(
                "Waits of the last gangs",
                {
                    "{{job_name}}": "max by (job_name) (gang_scheduling_wait_seconds_sum"
                    '{namespace=~"$namespace",local_queue=~"$queue"})'
                },
                unit="s",
                about="Workloads with more than one pod; the last hundred",
            ),
            _lines(
                "Started and finished",
                {
                    "started": f"sum(increase({_LQ}_admitted_workloads_total{{{_MINE}}}[{_HOUR}]))",
                    "finished": f"sum(increase({_LQ}_finished_workloads_total{{{_MINE}}}[{_HOUR}]))",
                },
                about="in an hour",
            ),
            _lines(
                "Evictions",
                {"{{reason}}": _grown("reason", f"{_LQ}_evicted_workloads_total{{{_MINE}}}", _HOUR)},
                about="in an hour, by reason",
            ),
        ),
        "Running": (
            _lines(
                "$resource in use by queue",
                {
                    "{{name}} {{flavor}}": _sum(
                        "name, flavor", f'{_LQ}_resource_usage{{{_MINE_NOW},resource="$resource"}}'
                    )
                },
            ),
            _lines(
                "$resource reserved by queue",
                {
                    "{{name}} {{flavor}}": _sum(
                        "name, flavor", f'{_LQ}_resource_reservation{{{_MINE_NOW},resource="$resource"}}'
                    )
                },
                about="quota that is held, also by Workloads that wait for admission checks",
            ),
            _lines(
                "Run time",
                {
                    "half within": _quantile(0.5, f"{_LQ}_execution_time_seconds", _MINE),
                    "95% within": _quantile(0.95, f"{_LQ}_execution_time_seconds", _MINE),
                },
                unit="s",
            ),
        ),
    },
)

# --- a quota admin -------------------------------------------------------------------------------------

_QUEUE = 'cluster_queue=~"$queue"'
_QUEUE_NOW = f"{_LEADER},{_QUEUE}"
_OF_RESOURCE = f'{_QUEUE_NOW},resource="$resource"'
_CQ, _COHORT = "kueue_cluster_queue", "kueue_cohort_subtree"
_USED = _sum("cluster_queue, flavor", f"{_CQ}_resource_usage{{{_OF_RESOURCE}}}")
_NOMINAL = _sum("cluster_queue, flavor", f"{_CQ}_nominal_quota{{{_OF_RESOURCE}}}")
_IN_COHORT = f'{_LEADER},resource="$resource"'
_WAIT = "kueue_admission_wait_time_seconds"

QUOTA = Dashboard(
    name="quota",
    title="Berth: quota and promises",
    variables=(("queue", "ClusterQueue", f"label_values({_CQ}_info, cluster_queue)"), _RESOURCE),
    sections={
        "Now": (
            _number("Quota in use", f"100 * sum({_USED}) / sum({_NOMINAL})", "percent"),
            _number(
                "$resource pending",
                f"sum({_CQ}_resource_pending{{{_OF_RESOURCE}}})",
            ),
            _number("Longest wait at a head", f"max(berth_head_of_line_age_seconds{{{_QUEUE_NOW}}})", "s"),
            _number(
                "Promises kept",
                f'100 * sum(increase(berth_promises_total{{{_QUEUE},event="kept"}}[{_RANGE}]))'
                f' / sum(increase(berth_promises_total{{{_QUEUE},event=~"kept|late"}}[{_RANGE}]))',
                "percent",
                "of the promised starts that have come",
            ),
        ),
        "Quota": (
            _lines(
                "Quota in use",
                {"{{cluster_queue}} {{flavor}}": f"100 * {_USED} / ({_NOMINAL} > 0)"},
                unit="percent",
            ),
            _lines(
                "Borrowed",
                {"{{cluster_queue}} {{flavor}}": f"clamp_min({_USED} - {_NOMINAL}, 0)"},
                about="used beyond the nominal quota",
            ),
            _lines(
                "Not in use",
                {"{{cluster_queue}} {{flavor}}": f"clamp_min({_NOMINAL} - {_USED}, 0)"},
                about="nominal quota that is lent or idle",
            ),
            _lines(
                "Requested by pending Workloads",
                {"{{cluster_queue}}": _sum("cluster_queue", f"{_CQ}_resource_pending{{{_OF_RESOURCE}}}")},
            ),
            _lines(
                "Cohorts: reserved and quota",
                {
                    "{{cohort}} {{flavor}}": f"{_COHORT}_resource_reservations{{{_IN_COHORT}}}",
                    "quota of: {{cohort}} {{flavor}}": f"{_COHORT}_quota{{{_IN_COHORT}}}",
                },
            ),
            _lines(
                "Why Workloads wait",
                {
                    "{{underlying_cause}}": _sum(
                        "underlying_cause", f"kueue_unadmitted_workloads{{{_QUEUE_NOW}}}"
                    )
                },
            ),
        ),
        "Waits": (
            _lines(
                "Half started within",
                {"{{cluster_queue}}": _quantile(0.5, _WAIT, _QUEUE, "cluster_queue")},
                unit="s",
            ),
            _lines(
                "95% started within",
                {"{{cluster_queue}}": _quantile(0.95, _WAIT, _QUEUE, "cluster_queue")},
                unit="s",
            ),
            _lines(
                "Age of the head of the queue",
                {"{{cluster_queue}}": f"berth_head_of_line_age_seconds{{{_QUEUE_NOW}}}"},
                unit="s",
            ),
        ),
        "Promised starts": (
            _lines(
                "Outcomes",
                {"{{event}}": _grown("event", f"berth_promises_total{{{_QUEUE}}}")},
                about="kept, late by more than a second, moved, withdrawn: in the time shown",
            ),
            _lines(
                "Moved later, by cause",
                {"{{cause}}": _grown("cause", f"berth_promise_moves_total{{{_QUEUE}}}")},
                about="Overrun: estimates are too short; NodeLost: look at the nodes",
            ),
            _lines(
                "Start against first promise",
                {
                    "half within": _quantile(0.5, "berth_promise_error_seconds", _QUEUE),
                    "90% within": _quantile(0.9, "berth_promise_error_seconds", _QUEUE),
                },
                unit="s",
            ),
            _lines(
                "Run time ÷ estimate",
                {
                    "half: {{source}}": _quantile(0.5, "berth_runtime_estimate_ratio", "", "source"),
                    "90%: {{source}}": _quantile(0.9, "berth_runtime_estimate_ratio", "", "source"),
                },
                about="far below 1: estimates prevent backfill; above 1: promises move",
            ),
            _lines(
                "Started ahead of a promise",
                {
                    "{{cluster_queue}}": _grown(
                        "cluster_queue", f"berth_backfilled_workloads_total{{{_QUEUE}}}", _HOUR
                    )
                },
                about="backfill: Workloads in an hour",
            ),
            _lines(
                "Preemptions",
                {
                    "{{preempting_cluster_queue}} {{reason}}": _grown(
                        "preempting_cluster_queue, reason",
                        'kueue_preempted_workloads_total{preempting_cluster_queue=~"$queue"}',
                        _HOUR,
                    )
                },
                about="by the queue that preempts, and the reason, in an hour",
            ),
        ),
        "Work lost by evictions": (
            _lines(
                "Device-hours lost",
                {
                    "{{cluster_queue}} {{reason}}": _grown(
                        "cluster_queue, reason", f"berth_evicted_device_seconds_lost_total{{{_QUEUE}}}"
                    )
                    + " / 3600"
                },
                about="work since the last checkpoint, in the time shown",
            ),
            _lines(
                "Cost of it",
                {
                    "{{cluster_queue}} {{reason}}": _grown(
                        "cluster_queue, reason", f"berth_evicted_cost_lost_total{{{_QUEUE}}}"
                    )
                },
                about="by the prices of nodes and flavors, in the time shown",
            ),
            _lines(
                "Checkpoints before evictions",
                {"{{outcome}}": _grown("outcome", f"berth_eviction_saves_total{{{_QUEUE}}}")},
                about="requested, then kept, missed or cancelled: in the time shown",
            ),
        ),
    },
)

# --- the operator --------------------------------------------------------------------------------------

_IS_LEADER = f"{{{_LEADER}}}"
_PLACED = "topology_scheduler"

OPERATOR = Dashboard(
    name="operator",
    title="Berth: controller and topology",
    variables=(),
    sections={
        "Now": (
            _number("Leaders", "sum(berth_leader)", about="must be 1"),
            _number("Redis answers", f"min(berth_store_up{_IS_LEADER})"),
            _number("Decisions paused", f"max(berth_cycle_paused{_IS_LEADER})"),
            _number("Inactive queues", f'sum({_CQ}_status{{{_LEADER},status!="active"}})'),
        ),
        "Decisions": (
            _lines(
                "Attempts",
                {
                    "{{workload_type}} {{result}}": _rated(
                        "workload_type, result", "ai_scheduler_attempts_total"
                    )
                },
                unit="ops",
            ),
            _lines(
                "Cycles, 99% within",
                {
                    "{{result}}": _quantile(
                        0.99, "kueue_admission_attempt_duration_seconds", "", "result", window=_RATE
                    )
                },
                unit="s",
            ),
            _lines("Unconfirmed decisions", {"unconfirmed": f"berth_unconfirmed_decisions{_IS_LEADER}"}),
        ),
        "API server": (
            _lines("Writes", {"{{purpose}}": _rated("purpose", "berth_writes_total")}, unit="ops"),
            _lines("Results of writes", {"{{result}}": _rated("result", "berth_writes_total")}, unit="ops"),
            _lines(
                "Time of a write",
                {
                    "average": f"berth_api_latency_seconds{_IS_LEADER}",
                    "99%: {{purpose}}": _quantile(
                        0.99, "berth_write_duration_seconds", "", "purpose", window=_RATE
                    ),
                },
                unit="s",
            ),
            _lines("Writes in flight, limit", {"limit": f"berth_writes_in_flight_limit{_IS_LEADER}"}),
            _lines(
                "Events",
                {
                    "sent": f"sum(rate(berth_events_sent_total[{_RATE}]))",
                    "dropped": f"sum(rate(berth_events_dropped_total[{_RATE}]))",
                },
                unit="ops",
            ),
            _lines(
                "Refused requests",
                {"{{port}} {{reason}}": _grown("port, reason", "berth_http_requests_refused_total")},
            ),
        ),
        "Mistakes of users": (
            _lines("Warnings", {"{{reason}}": _grown("reason", "berth_warnings_total")}),
            _lines(
                "Objects that cannot be read", {"{{kind}}": _grown("kind", "berth_unreadable_objects_total")}
            ),
            _lines("Checkpoint reports", {"{{result}}": _grown("result", "berth_checkpoint_reports_total")}),
        ),
        "Topology": (
            _lines(
                "GPUs in use",
                {"{{domain}}": "max by (domain) (topology_gpu_allocation_ratio)"},
                unit="percentunit",
            ),
            _lines(
                "Nodes in use",
                {"{{domain}}": "max by (domain) (topology_domain_utilization_ratio)"},
                unit="percentunit",
            ),
            _lines(
                "Partly used nodes",
                {"{{domain}}": f"max by (domain) ({_PLACED}_domain_fragmentation_ratio)"},
                unit="percentunit",
                about="high while gangs wait: fragmentation",
            ),
            _lines(
                "Placements",
                {"{{strategy}} {{result}}": _grown("strategy, result", "topology_placement_decisions_total")},
            ),
            _lines(
                "Time to a placement, 99% within",
                {
                    "found: {{strategy}}": _quantile(
                        0.99, f"{_PLACED}_placement_duration_seconds", "", "strategy"
                    ),
                    "written: {{strategy}}": _quantile(0.99, f"{_PLACED}_latency_seconds", "", "strategy"),
                },
                unit="s",
            ),
            _lines(
                "Recovery from failed nodes, 99% within",
                {"{{result}}": _quantile(0.99, f"{_PLACED}_recovery_duration_seconds", "", "result")},
                unit="s",
            ),
        ),
        "Processes": (
            _lines(
                "CPU", {"{{instance}}": f"rate(process_cpu_seconds_total[{_RATE}])"}, about="cores", width=6
            ),
            _lines("Memory", {"{{instance}}": "process_resident_memory_bytes"}, width=6, unit="bytes"),
            _lines("Open files", {"{{instance}}": "process_open_fds"}, width=6),
            _lines(
                "Event loop: lag",
                {
                    "lag": _quantile(0.99, "berth_event_loop_lag_seconds", "", window=_RATE),
                    "unfinished turn": "max(berth_control_loop_unfinished_seconds)",
                },
                width=6,
                unit="s",
            ),
        ),
    },
)

DASHBOARDS = (TEAM, QUOTA, OPERATOR)
