"""The policies that a simulation compares: settings of the production engine, no decision code of their own.

`preempts`: the trace's best Jobs may be evicted for the others; `is_loss_aware`: by an AdmissionPolicy with
`preemption`, which knows what those Jobs publish. `is_blind`: its Workloads carry nothing from which their
run time could be told. The oracle is the exception by design: it is given the truth in place of the
Workloads' age, which no cluster knows.
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
    Ordering,
    OrderingMode,
    PreemptionRules,
)
from api.queueing import QueueingStrategy

# What is expected of a Workload of which nothing has been learned yet: rather long, since most are shorter.
_DEFAULT_SECONDS = 14_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is set for one policy. `needs_tenants`: it means nothing without a queue for each tenant."""

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

    def admission_policy(self, setting: Setting) -> AdmissionPolicy | None:
        """Return the AdmissionPolicy that governs every queue, None for Kueue's own decisions.

        With a calendar Kueue's own decisions are made on the quotas in force, and on what is not reserved.
        """
        calendar = AdmissionPolicy(
            name=self.name, quota_windows=setting.quota_windows, reservations=setting.reservations
        )
        # No policy at all where nothing is asked of one: these are to be Kueue's own decisions.
        if self.ordering is None and self.backfill is None and not self.is_loss_aware:
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
            estimates=learned if self.reads_estimates else None,
        )

    def queues_by(self, job: TraceJob) -> float:
        """Return what the Workload says of its age, by which equals are ordered.

        The truth, and for the oracle the run time, so that the shortest is the oldest.
        """
        return job.duration_seconds if self.is_oracle else job.submitted_at

    @property
    def reads_estimates(self) -> bool:
        """Whether it makes use of expected run times; no other policy is told any."""
        is_by_length = self.ordering is not None and self.ordering.mode is OrderingMode.SHORTEST_PREDICTED
        return self.backfill is not None or is_by_length

    def runs_in_hold(self, job: TraceJob) -> bool:
        """Return whether the Job, less than a node, may be stopped, to run in what is held for another.

        So that gangs, whose restart costs most, are those that promises are kept for.
        """
        is_opportunistic = self.backfill is not None and self.backfill.mode is BackfillMode.OPPORTUNISTIC
        return is_opportunistic and job.gpus < MOST_GPUS_PER_POD

    def is_blind(self, setting: Setting) -> bool:
        """Return whether its Workloads carry nothing of their run times."""
        return not self.is_oracle and (setting.estimates.is_learned or not self.reads_estimates)


_ALL = (
    Policy(
        name="fifo",
        summary="StrictFIFO: nobody passes the head",
        strategy=QueueingStrategy.STRICT_FIFO,
    ),
    Policy(
        name="best-effort",
        summary="BestEffortFIFO, Kueue's default: whoever fits passes who does not",
    ),
    Policy(
        name="easy",
        summary="backfill: the head is promised a start, whoever ends before it may run first",
        backfill=Backfill(mode=BackfillMode.EASY),
    ),
    Policy(
        name="conservative",
        summary="backfill: the first hundred are promised a start",
        backfill=Backfill(mode=BackfillMode.CONSERVATIVE, reservation_depth=100),
    ),
    Policy(
        name="opportunistic",
        summary="as easy, but Jobs below a node run in the hold however long, and give way in time",
        backfill=Backfill(mode=BackfillMode.OPPORTUNISTIC),
    ),
    Policy(
        name="shortest-predicted",
        summary="the shortest expected run first, whoever has waited a day before all",
        ordering=Ordering(mode=OrderingMode.SHORTEST_PREDICTED),
    ),
    Policy(
        name="least-attained",
        summary="who has received least GPU time first; others save and give way",
        ordering=Ordering(mode=OrderingMode.LEAST_ATTAINED),
    ),
    Policy(
        name="fair",
        summary="fair sharing: a queue a tenant, the tenant with the smallest share first",
        engine=EngineSettings(fair_sharing=FairPreemption()),
        needs_tenants=True,
    ),
    Policy(
        name="preemption",
        summary="the trace's strict Jobs evict its best ones, the last to start first, as Kueue does",
        preempts=True,
    ),
    Policy(
        name="loss-aware",
        summary="the same, but those are evicted that lose least since their last checkpoint",
        preempts=True,
        is_loss_aware=True,
    ),
    Policy(
        name="sjf-oracle",
        summary="shortest first by the true run time, as a bound: no cluster knows it",
        is_oracle=True,
    ),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.name: policy for policy in _ALL})
# Those that preempt mean something only where a trace says who may be evicted for whom.
COMPARED = tuple(policy.name for policy in _ALL if not policy.preempts)
