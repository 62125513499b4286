"""The section `preemption` of an AdmissionPolicy: the cost of an eviction, and what is protected from it."""

from typing import Annotated

from pydantic import Field

from api.models.common import Count, Int32, Model
from api.models.markers import EMPTY


class ProtectPriority(Model):
    """Training Workloads of high priority are never preempted."""

    enabled: bool = True
    """Whether the rule applies. Default true."""
    min_priority: Int32 = 1000
    """Lowest priority that is protected. Default 1000."""


class PreferInference(Model):
    """Inference Workloads of lower priority are always candidates, because they restart cheaply. They are
    preempted replica by replica, and never below their PodDisruptionBudget or berth.dev/min-replicas."""

    enabled: bool = True
    """Whether the rule applies. Default true."""


class ProtectNearlyDone(Model):
    """Training Workloads that end soon are protected. Only an enforced time limit or a learned
    estimate counts as evidence."""

    enabled: bool = True
    """Whether the rule applies. Default true."""
    remaining_seconds: Count = 7200
    """Workloads with less remaining run time than this are protected. Default 7200, two hours."""


class ProtectUncheckpointed(Model):
    """Training Workloads that save no checkpoints are never preempted. Note that this rewards Jobs that do
    not report their checkpoints."""

    enabled: bool = True
    """Whether the rule applies. Default true."""


class RequireFreshCheckpoint(Model):
    """Training Workloads are candidates only for a while after a checkpoint. Note that this rewards Jobs that
    do not report their checkpoints."""

    enabled: bool = True
    """Whether the rule applies. Default true."""
    max_age_seconds: Count = 1800
    """A Workload is a candidate while its last checkpoint is younger than this. Default
    1800, half an hour."""


class VictimRules(Model):
    """Which Workloads preemption avoids or prefers. Each rule is independent, and off while it is absent."""

    protect_priority: ProtectPriority | None = None
    """Protects training of high priority."""
    prefer_inference: PreferInference | None = None
    """Makes inference of lower priority a candidate in every case."""
    protect_nearly_done: ProtectNearlyDone | None = None
    """Protects training that ends soon."""
    protect_uncheckpointed: ProtectUncheckpointed | None = None
    """Protects training that saves no checkpoints."""
    require_fresh_checkpoint: RequireFreshCheckpoint | None = None
    """Limits candidates to training with a recent checkpoint."""


class PreemptionSection(Model):
    """Preemption that chooses the victims which lose the least work since their last checkpoint, among the
    candidates that Kueue's rules allow."""

    rules: Annotated[VictimRules, EMPTY] = Field(default_factory=VictimRules)
    """Which Workloads preemption avoids or prefers."""
    max_counted_loss_seconds: Count = 3600
    """Maximum of the work since the last checkpoint that is counted as lost; twice the declared checkpoint
    interval if that is less. The cap keeps a Job from becoming exempt from preemption by saving rarely.
    Default 3600, one hour."""
    max_declared_seconds: Count = 600
    """Maximum of the save and restart times that a Job may declare; higher values are capped.
    Default 600, ten minutes."""
    default_save_seconds: Count = 30
    """Time to save a checkpoint that is assumed for Jobs which declare none. Default 30."""
    default_restart_seconds: Count = 30
    """Time to restart that is assumed for Jobs which declare none. Default 30."""
    grace_seconds: Count = 120
    """How long a victim may take to save a checkpoint before it is stopped. Pods see the request at the
    kubelet's next sync, up to 90 seconds later, so lower values have no effect. Default 120. With 0, SIGTERM
    is the only request."""
    minimum_runtime_seconds: Count = 600
    """Minimum time that a Workload runs before one of equal priority may preempt it, and the longest that a
    preemptor awaits a promised start to spare its victims. Default 600, ten minutes."""
    hold_seconds: Count = 300
    """Maximum time for which freed capacity is held for the Workload that it was freed for.
    Default 300, five minutes."""
    saved_first: bool = True
    """Whether a preempted Workload that reports its checkpoints is tried before others of its
    priority until it runs again. It loses the least when it is preempted, so it is preempted more
    often than Workloads that report nothing. Without effect if the policy orders by anything but
    priority and age, if it backfills, or if newer Workloads are preempted by older ones
    (withinClusterQueue: LowerOrNewerEqualPriority). Default true."""
