"""Engine settings: what a configuration file says about scheduling, in the engine's own types."""

from __future__ import annotations

from collections.abc import Sequence

from admission.engine.engine import EngineSettings
from admission.hardware.settings import hardware_rules
from admission.placement.topology.node_health import NodeFailureSettings
from admission.placement.topology.request import PlacementGates
from admission.preemption.fair_sharing import FairPreemption, FairRule
from api.config.loading import ControllerConfig
from api.policy import KUEUE
from queues.pending.admission_fair_sharing import AdmissionFairSharing
from queues.pending.ordering import RequeuingTimestamp


def engine_settings(config: ControllerConfig) -> EngineSettings:
    """Return the engine's settings; fair sharing is off where the configuration does not mention it.

    The configuration has been validated when it was loaded, so nothing is raised here. What it does not
    mention has the defaults of Kueue.
    """
    pods_ready = config.kueue.wait_for_pods_ready
    timestamp = pods_ready.requeuing_strategy.timestamp if pods_ready is not None else "Eviction"
    sharing, by_usage = config.kueue.fair_sharing, config.kueue.admission_fair_sharing
    return EngineSettings(
        resources=config.resources,
        requeuing_timestamp=RequeuingTimestamp(timestamp),
        boosts_priorities=config.kueue.feature_gates.get("PriorityBoost", False),
        node_failures=node_failure_settings(config),
        placement=_placement_gates(config),
        hardware=hardware_rules(config.berth.extender),
        default_policy=config.default_policy or KUEUE,
        blocks_admission=pods_ready is not None and pods_ready.block_admission,
        heeds_gates=config.kueue.feature_gates.get("MultiKueueOrchestratedPreemption", False),
        fair_sharing=None if sharing is None else FairPreemption(rules=_rules(sharing.preemption_strategies)),
        admission_fair_sharing=None
        if by_usage is None
        else AdmissionFairSharing(
            half_life_seconds=by_usage.usage_half_life_seconds,
            sampling_seconds=by_usage.usage_sampling_seconds,
            resource_weights=by_usage.resource_weights,
        ),
    )


def node_failure_settings(config: ControllerConfig) -> NodeFailureSettings:
    """Return when failed nodes are replaced, by Kueue's feature gates.

    The gate for replacement after a fixed time is Kueue's older rule and takes precedence if it is on.

    Gates that are not mentioned keep the default of `NodeFailureSettings`.
    """
    gates, ours = config.kueue.feature_gates, NodeFailureSettings()
    by_time = gates.get("TASReplaceNodeDueToNotReadyOverFixedTime", False)
    return NodeFailureSettings(
        is_on=gates.get("TASFailedNodeReplacement", ours.is_on),
        fails_fast=gates.get("TASFailedNodeReplacementFailFast", ours.fails_fast),
        awaits_pods=gates.get("TASReplaceNodeOnPodTermination", ours.awaits_pods) and not by_time,
        heeds_taints=gates.get("TASReplaceNodeOnNodeTaints", ours.heeds_taints),
        skips_pods=gates.get("SkipReassignmentForPodOwnedWorkloads", ours.skips_pods),
    )


def _placement_gates(config: ControllerConfig) -> PlacementGates:
    """Return which of Kueue's optional placement algorithms are on."""
    gates, ours = config.kueue.feature_gates, PlacementGates()
    return PlacementGates(
        is_mixed=gates.get("TASProfileMixed", ours.is_mixed),
        is_balanced=gates.get("TASBalancedPlacement", ours.is_balanced),
        prefers_nodes=gates.get("TASRespectNodeAffinityPreferred", ours.prefers_nodes),
    )


def _rules(names: Sequence[str]) -> tuple[FairRule, ...]:
    return tuple(FairRule(name) for name in names)
