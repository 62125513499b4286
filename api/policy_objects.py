"""Conversion of AdmissionPolicy objects to the frozen values of `api.policy`.

The schema and its defaults come from the model (`api.models.admission_policy`), the rules between fields from
`api.validation`, so that the API server, a manifest in a file and the controller report the same faults.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from math import fsum
from typing import Any

import msgspec

from api.keys import BERTH_VERSION
from api.models.admission_policy import AdmissionPolicySpec
from api.models.policy_placement import DomainRules as DomainRulesModel
from api.models.policy_placement import FlavorChoice as FlavorChoiceModel
from api.models.policy_placement import PlacementSection
from api.models.policy_preemption import PreemptionSection
from api.models.policy_preemption import VictimRules as VictimRulesModel
from api.models.policy_time import Backfill as BackfillModel
from api.models.policy_time import CapacityReservation as ReservationModel
from api.models.policy_time import Ordering as OrderingModel
from api.models.policy_time import QuotaWindow as WindowModel
from api.objects.common import WireSelector
from api.objects.policies import AdmissionPolicyObject
from api.parsing.problems import SpecError
from api.parsing.quantities import amount
from api.policy import (
    AdmissionPolicy,
    Aliases,
    Backfill,
    BackfillMode,
    CapacityReservation,
    Consolidation,
    DomainRules,
    Estimates,
    FlavorPromotion,
    FlavorRules,
    FlavorWeights,
    OnOverrun,
    Ordering,
    OrderingMode,
    PlacementRules,
    PreemptionRules,
    QuotaWindow,
    Recovery,
    Schedule,
    ScoringWeights,
    SizeRule,
    StrategyChoice,
    VictimRules,
)
from api.validation import read_admission_policy

_SECONDS_PER_HOUR = 3600.0


def to_admission_policy(wire: AdmissionPolicyObject) -> AdmissionPolicy:
    """Return the policy. Raises SpecError that names every invalid field."""
    meta = wire.metadata
    obj = {
        "apiVersion": BERTH_VERSION,
        "kind": "AdmissionPolicy",
        "metadata": {"name": meta.name},
        "spec": msgspec.json.decode(wire.spec),
    }
    # All faults are reported at once, so that an administrator can correct them in one edit.
    read = read_admission_policy(obj)
    if isinstance(read, tuple):
        raise SpecError("; ".join(map(str, read)))
    spec = read.spec
    selector = spec.cluster_queues.selector
    return AdmissionPolicy(
        name=meta.name,
        uid=meta.uid,
        precedence=spec.precedence,
        queue_names=frozenset(spec.cluster_queues.names or ()),
        selector=_selector(selector.model_dump(by_alias=True)) if selector is not None else None,
        base=spec.base,
        aliases=Aliases(spec.aliases),
        **_sections(spec),
    )


def _sections(spec: AdmissionPolicySpec) -> dict[str, Any]:
    estimates = spec.estimates
    return {
        "ordering": _ordering(spec.ordering) if spec.ordering else None,
        "backfill": _backfill(spec.backfill) if spec.backfill else None,
        "preemption": _preemption(spec.preemption) if spec.preemption else None,
        "placement": _placement(spec.placement) if spec.placement else None,
        "quota_windows": tuple(_window(window) for window in spec.quota_windows or ()),
        "reservations": tuple(_reservation(one) for one in spec.reservations or ()),
        "estimates": Estimates(**estimates.model_dump()) if estimates else None,
    }


def _ordering(section: OrderingModel) -> Ordering:
    return Ordering(
        mode=OrderingMode(section.mode),
        # In the object, zero disables aging.
        age_seconds=section.age_seconds or None,
        unknown_seconds=section.unknown_seconds,
        level_ends=tuple(hours * _SECONDS_PER_HOUR for hours in section.levels),
    )


def _backfill(section: BackfillModel) -> Backfill:
    mode = BackfillMode(section.mode)
    return Backfill(
        mode=mode,
        # Only Conservative promises more than one start at a time.
        reservation_depth=section.reservation_depth if mode is BackfillMode.CONSERVATIVE else 1,
        window_seconds=section.window_seconds,
        resolution_seconds=section.resolution_seconds,
        ending_seconds=section.ending_seconds,
        max_tested=section.max_tested,
        on_overrun=OnOverrun(section.on_overrun),
        eta_depth=section.eta_depth,
    )


def _preemption(section: PreemptionSection) -> PreemptionRules:
    # The other fields have the same names in the model and in the value: a field that is added to only one of
    # them raises an error here.
    numbers = section.model_dump(exclude={"rules"})
    return PreemptionRules(rules=_victim_rules(section.rules), **numbers)


def _victim_rules(rules: VictimRulesModel) -> VictimRules:
    protected, done, fresh = rules.protect_priority, rules.protect_nearly_done, rules.require_fresh_checkpoint
    inference, uncheckpointed = rules.prefer_inference, rules.protect_uncheckpointed
    return VictimRules(
        protected_priority=protected.min_priority if protected and protected.enabled else None,
        prefers_inference=inference is not None and inference.enabled,
        protected_remaining_seconds=done.remaining_seconds if done and done.enabled else None,
        protects_uncheckpointed=uncheckpointed is not None and uncheckpointed.enabled,
        checkpoint_max_age_seconds=fresh.max_age_seconds if fresh and fresh.enabled else None,
    )


def _placement(section: PlacementSection) -> PlacementRules:
    consolidation = section.consolidation
    return PlacementRules(
        strategy=StrategyChoice(section.strategy),
        domain_rules=_domain_rules(section.domain_rules) if section.domain_rules else None,
        weights=ScoringWeights(**_normalized(section.scoring_weights.model_dump())),
        avoids_fragmentation=section.fragmentation == "Avoid",
        consolidation=Consolidation(**consolidation.model_dump()) if consolidation else None,
        recovery=Recovery(**section.recovery.model_dump()) if section.recovery else None,
        flavors=_flavors(section.flavors) if section.flavors else None,
        bandwidth_label=section.bandwidth_label,
    )


def _domain_rules(rules: DomainRulesModel) -> DomainRules:
    # Sorted by size in whatever order they were written: the first rule that is large enough
    # applies to a gang.
    sizes = sorted(rules.size_rules or (), key=lambda rule: rule.max_nodes)
    return DomainRules(
        leaf_level=rules.leaf_level,
        adjacency_label=rules.adjacency_label,
        max_nodes_per_leaf=rules.max_nodes_per_leaf,
        max_gpus_per_leaf=rules.max_gpus_per_leaf,
        size_rules=tuple(
            SizeRule(
                max_nodes=rule.max_nodes,
                leaves=rule.leaves,
                is_adjacent=rule.adjacent,
                is_complete=rule.complete,
            )
            for rule in sizes
        ),
    )


def _flavors(section: FlavorChoiceModel) -> FlavorRules:
    return FlavorRules(
        weights=FlavorWeights(**_normalized(section.weights.model_dump())),
        spot_for_all=section.spot == "All",
        spot_mean_seconds=section.spot_mean_seconds,
        promote=FlavorPromotion(**section.promote.model_dump()) if section.promote else None,
    )


def _normalized(weights: Mapping[str, float]) -> dict[str, float]:
    # fsum is exact, so that decimal weights which add up to 1 stay unchanged.
    total = fsum(weights.values())
    return {name: value / total for name, value in weights.items()}


def _window(window: WindowModel) -> QuotaWindow:
    schedule = None
    if window.schedule is not None and window.duration_seconds is not None:
        schedule = Schedule(
            cron=window.schedule, time_zone=window.time_zone, duration_seconds=window.duration_seconds
        )
    return QuotaWindow(
        name=window.name,
        cluster_queue=window.cluster_queue,
        flavor=window.flavor,
        resource=window.resource,
        nominal=amount(window.resource, window.nominal_quota),
        start_at=_at(window.start) if window.start is not None else None,
        end_at=_at(window.end) if window.end is not None else None,
        schedule=schedule,
        reclaim_lead_seconds=window.reclaim_lead_seconds,
    )


def _reservation(one: ReservationModel) -> CapacityReservation:
    return CapacityReservation(
        name=one.name,
        local_queue=(one.namespace, one.local_queue),
        start_at=_at(one.start),
        end_at=_at(one.end),
        amounts={
            (each.flavor, each.resource): amount(each.resource, each.amount) for each in one.resources or ()
        },
        domain=tuple(one.domain.split("/")) if one.domain is not None else (),
    )


def _at(text: str) -> float:
    # RFC 3339 allows lower-case letters, which not every Python version parses.
    return datetime.fromisoformat(text.upper()).timestamp()


def _selector(selector: dict[str, Any]) -> WireSelector:
    return msgspec.convert(selector, WireSelector)
