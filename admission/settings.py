"""What a configuration file says about deciding, as the engine takes it."""

from __future__ import annotations

from collections.abc import Sequence

from admission.engine import EngineSettings
from admission.preemption.fair import FairRule, FairSharing
from api.config import ControllerConfig
from queues.admission_fair_sharing import AdmissionFairSharing
from queues.ordering import RequeuingTimestamp


def engine_settings(config: ControllerConfig) -> EngineSettings:
    """Return what the engine is told: resources, place after a late start, fair sharing where it is on."""
    pods_ready = config.kueue.wait_for_pods_ready
    timestamp = pods_ready.requeuing_strategy.timestamp if pods_ready is not None else "Eviction"
    sharing, by_usage = config.kueue.fair_sharing, config.kueue.admission_fair_sharing
    return EngineSettings(
        resources=config.resources,
        requeuing_timestamp=RequeuingTimestamp(timestamp),
        fair_sharing=None if sharing is None else FairSharing(rules=_rules(sharing.preemption_strategies)),
        admission_fair_sharing=None
        if by_usage is None
        else AdmissionFairSharing(
            half_life_seconds=by_usage.usage_half_life_seconds,
            sampling_seconds=by_usage.usage_sampling_seconds,
            resource_weights=by_usage.resource_weights,
        ),
    )


def _rules(names: Sequence[str]) -> tuple[FairRule, ...]:
    return tuple(FairRule(name) for name in names)
