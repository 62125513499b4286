"""The section of an AdmissionPolicy that says what an eviction may cost, and whom it spares."""

from typing import Annotated

from pydantic import Field

from api.models.common import Count, Int32, Model
from api.models.markers import EMPTY


class ProtectPriority(Model):
    """Training of high priority is never evicted for another Workload."""

    enabled: bool = True
    """Default true: the rule applies once it is named."""
    min_priority: Int32 = 1000
    """From this priority on. Default 1000."""


class PreferInference(Model):
    """Inference of lower priority is always a candidate, because it restarts cheaply: replica by replica, and
    never below its PodDisruptionBudget or berth.dev/min-replicas."""

    enabled: bool = True
    """Default true: the rule applies once it is named."""


class ProtectNearlyDone(Model):
    """Training that will end soon is spared. Only an enforced limit or a learned estimate is believed."""

    enabled: bool = True
    """Default true: the rule applies once it is named."""
    remaining_seconds: Count = 7200
    """Spared with less left than this. Default two hours."""


class ProtectUncheckpointed(Model):
    """Training that saves no checkpoints is never evicted for another Workload. It rewards hiding them."""

    enabled: bool = True
    """Default true: the rule applies once it is named."""


class RequireFreshCheckpoint(Model):
    """Training is a candidate only for a while after a checkpoint. It rewards hiding them."""

    enabled: bool = True
    """Default true: the rule applies once it is named."""
    max_age_seconds: Count = 1800
    """A candidate while its last checkpoint is younger than this. Default half an hour."""


class VictimRules(Model):
    """Whom preemption spares or prefers; each rule by itself, off when absent."""

    protect_priority: ProtectPriority | None = None
    """Never training of high priority."""
    prefer_inference: PreferInference | None = None
    """Always inference of lower priority."""
    protect_nearly_done: ProtectNearlyDone | None = None
    """Never training that is nearly done."""
    protect_uncheckpointed: ProtectUncheckpointed | None = None
    """Never training without checkpoints."""
    require_fresh_checkpoint: RequireFreshCheckpoint | None = None
    """Only training with a young checkpoint."""


class PreemptionSection(Model):
    """Preemption that takes what loses least since its last checkpoint, among those whom Kueue's rules
    allow."""

    rules: Annotated[VictimRules, EMPTY] = Field(default_factory=VictimRules)
    """Whom preemption spares or prefers."""
    max_counted_loss_seconds: Count = 3600
    """Work since the last checkpoint counts up to this, or twice the declared interval where that is less:
    nobody becomes untouchable by saving seldom. Default an hour."""
    max_declared_seconds: Count = 600
    """Times to save and to restart that a Job declares count up to this. Default ten minutes."""
    default_save_seconds: Count = 30
    """Time to save of Jobs that declare none. Default 30."""
    default_restart_seconds: Count = 30
    """Time to restart of Jobs that declare none. Default 30."""
    grace_seconds: Count = 120
    """How long a victim may take to save before it is stopped. Pods see the request at the kubelet's next
    sync, up to 90 seconds later, so less is pointless. Default 120; 0: SIGTERM is the only request."""
    minimum_runtime_seconds: Count = 600
    """Nobody is evicted for an equal before running this long. Default ten minutes."""
    hold_seconds: Count = 300
    """How long freed capacity is held for the Workload it was freed for, at most. Default five minutes."""
    saved_first: bool = True
    """Who was preempted and tells of its checkpoints goes before others of its priority until it runs again:
    it gives way more often than who tells nothing, and loses least by it. Without effect where the policy
    orders by something else than priority and age, or backfills, and where the newer gives way to the older
    (withinClusterQueue: LowerOrNewerEqualPriority). Default true."""
