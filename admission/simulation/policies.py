"""The policies that a simulation compares. They are settings of the production engine without code to decide.

`preempts`: the trace's best Jobs may be preempted by the others. `is_loss_aware`: with an AdmissionPolicy
with `preemption`, which uses the checkpoints that Jobs report. `lacks_run_times`: its Workloads have no data
about their run time. The oracle is an exception by design: the true run time, which no cluster knows,
replaces the age of its Workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from admission.engine.engine import EngineSettings
from admission.preemption.fair_sharing import FairPreemption
from admission.simulation.settings import Setting
from admission.simulation.shapes import MOST_GPUS_PER_POD
from admission.simulation.traces import TraceJob
from api.policy import (
    AdmissionPolicy,
    Backfill,
    BackfillMode,
    Estimates,
    FlavorPromotion,
    FlavorRules,
    Ordering,
    OrderingMode,
    PlacementRules,
    PreemptionRules,
    StrategyChoice,
)
from api.queueing import QueueingStrategy

# Orders that need run times.
_BY_LENGTH = (OrderingMode.SHORTEST_PREDICTED, OrderingMode.EARLIEST_EXPECTED_END)
# Simulated work ends at the very second of its run time, so `ending_seconds` is 0 in each policy.
# The estimate for a Workload without earlier runs. It is rather long, because most Workloads are shorter.
_DEFAULT_SECONDS = 14_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of one policy. `needs_tenants`: it has no effect without one queue per tenant."""

    name: str
    summary: str
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    engine: EngineSettings = field(default_factory=EngineSettings)
    ordering: Ordering | None = None
    backfill: Backfill | None = None
    needs_tenants: bool = False
    is_oracle: bool = False
    preempts: bool = False
    is_loss_aware: bool = False
    placement: PlacementRules | None = None

    def admission_policy(self, setting: Setting) -> AdmissionPolicy | None:
        """Return the AdmissionPolicy that governs every queue, or None for Kueue's own decisions.

        With a calendar, Kueue's own decisions use the quotas in force and the capacity that is not reserved.
        """
        calendar = AdmissionPolicy(
            name=self.name, quota_windows=setting.quota_windows, reservations=setting.reservations
        )
        # Without settings there must be no policy at all, so that the decisions are Kueue's own.
        sections = (self.ordering, self.backfill, self.placement)
        if not any(sections) and not self.is_loss_aware:
            return calendar if calendar.quota_windows or calendar.reservations else None
        costs = PreemptionRules(
            default_save_seconds=round(setting.save_seconds),
            default_restart_seconds=round(setting.restart_seconds),
            minimum_runtime_seconds=round(setting.min_runtime_seconds),
        )
        learned = Estimates(default_seconds=_DEFAULT_SECONDS) if setting.estimates.is_learned else None
        return replace(
            calendar,
            ordering=self.ordering,
            preemption=costs,
            backfill=self.backfill,
            placement=self.placement,
            estimates=learned if self.reads_estimates else None,
        )

    def queues_by(self, job: TraceJob) -> float:
        """Return the creation time of the Workload, by which equals are ordered.

        For the oracle it is the run time instead, so that the shortest Workload is the oldest.
        """
        return job.duration_seconds if self.is_oracle else job.submitted_at

    @property
    def reads_estimates(self) -> bool:
        """Return whether the policy uses expected run times. Other policies get none."""
        is_by_length = self.ordering is not None and self.ordering.mode in _BY_LENGTH
        return self.backfill is not None or is_by_length or self.placement is not None

    def runs_in_hold(self, job: TraceJob) -> bool:
        """Return whether the Job is opportunistic: it may run in held capacity, and be stopped for a promise.

        These are the Jobs smaller than a node, so that promises go to gangs, whose restart costs the most.
        """
        is_opportunistic = self.backfill is not None and self.backfill.mode is BackfillMode.OPPORTUNISTIC
        return is_opportunistic and job.gpus < MOST_GPUS_PER_POD

    def lacks_run_times(self, setting: Setting) -> bool:
        """Return whether its Workloads have no data about their run times."""
        return not self.is_oracle and not (self.reads_estimates and setting.share_declaring)


_ALL = (
    Policy(
        name="fifo",
        summary="StrictFIFO: no Workload passes the head",
        strategy=QueueingStrategy.STRICT_FIFO,
    ),
    Policy(
        name="best-effort",
        summary="BestEffortFIFO, Kueue's default: Workloads that fit pass those that do not",
    ),
    Policy(
        name="easy",
        summary="backfill: the head is promised a start, Jobs that end before it may run first",
        backfill=Backfill(ending_seconds=0, mode=BackfillMode.EASY),
    ),
    Policy(
        name="conservative",
        summary="backfill: the first hundred are promised a start",
        backfill=Backfill(ending_seconds=0, mode=BackfillMode.CONSERVATIVE, reservation_depth=100),
    ),
    Policy(
        name="opportunistic",
        summary="as easy, but Jobs below a node run in held capacity until it is needed",
        backfill=Backfill(ending_seconds=0, mode=BackfillMode.OPPORTUNISTIC),
    ),
    Policy(
        name="shortest-predicted",
        summary="shortest expected run time first, but Jobs that have waited a day before all",
        ordering=Ordering(mode=OrderingMode.SHORTEST_PREDICTED),
    ),
    Policy(
        name="expected-end",
        summary="earliest sum of submit and expected run time first",
        ordering=Ordering(
            mode=OrderingMode.EARLIEST_EXPECTED_END, age_seconds=604_800, unknown_seconds=43_200
        ),
    ),
    Policy(
        name="least-attained",
        summary="least received GPU time first; others save and are preempted",
        ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED),
    ),
    Policy(
        name="fair",
        summary="fair sharing: a queue per tenant, the tenant with the smallest share first",
        engine=EngineSettings(fair_sharing=FairPreemption()),
        needs_tenants=True,
    ),
    Policy(
        name="flavor-score",
        summary="as best-effort, but the best flavor by score instead of the first (with --flavors)",
        placement=PlacementRules(strategy=StrategyChoice.KUEUE, flavors=FlavorRules()),
    ),
    Policy(
        name="flavor-promote",
        summary="as flavor-score, and running Jobs move to a better flavor (with --flavors)",
        placement=PlacementRules(
            strategy=StrategyChoice.KUEUE, flavors=FlavorRules(promote=FlavorPromotion())
        ),
    ),
    Policy(
        name="preemption",
        summary="the trace's strict Jobs preempt its best ones, latest start first, as Kueue does",
        preempts=True,
    ),
    Policy(
        name="loss-aware",
        summary="the same, but victims are those that lose the least since their last checkpoint",
        preempts=True,
        is_loss_aware=True,
    ),
    Policy(
        name="sjf-oracle",
        summary="shortest true run time first, for comparison: no cluster knows it",
        is_oracle=True,
    ),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
# Not compared by default: policies that preempt need a trace with a `job_type`, and a score needs flavors.
COMPARED = tuple(policy.name for policy in _ALL if not policy.preempts and policy.placement is None)
