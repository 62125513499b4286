"""Conversion of objects of Kueue's kinds, as decoded from the API server, to the values that decisions use.

Each function raises SpecError with a sentence for the owner of the object: the field, its value, and what was
expected. The API server already rejects most of these faults, but files and clusters without validation do
not. Source: Kueue, apis/kueue/v1beta2 and pkg/webhooks.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.keys import COST_PER_DEVICE_HOUR
from api.objects.cluster import LimitRangeObject, NamespaceObject, RuntimeClassObject
from api.objects.common import Meta
from api.objects.queues import (
    AdmissionCheckObject,
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    ResourceFlavorObject,
    TopologyObject,
    WireChecksStrategy,
    WireFairSharing,
    WireFlavorQuotas,
    WireFungibility,
    WirePreemption,
    WireResourceGroup,
    WireResourceQuota,
)
from api.parsing.prices import price
from api.parsing.problems import SpecError, read_amount, read_word, require_unique
from api.parsing.quantities import QuantityError, parse
from api.past_usage import read_past_usage
from api.queueing import (
    AdmissionCheck,
    CheckParameters,
    CheckRule,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    FungibilityPolicy,
    FungibilityPreference,
    LocalQueue,
    Namespace,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Topology,
)
from api.selectors import selector_problem

_DEFAULT_WEIGHT = 1000


def to_cluster_queue(wire: ClusterQueueObject) -> ClusterQueue:
    """Return the ClusterQueue. Raises SpecError for an invalid field."""
    spec, meta = wire.spec, wire.metadata
    problem = selector_problem(spec.namespace_selector)
    if problem is not None:
        raise SpecError(f"spec.namespaceSelector: {problem}")
    scope = spec.admission_scope
    return ClusterQueue(
        name=meta.name,
        is_terminating=meta.deletion_timestamp is not None,
        labels=meta.labels or {},
        # Absent and empty both mean that it has no cohort.
        cohort=spec.cohort_name or None,
        resource_groups=_groups(spec.resource_groups),
        queueing_strategy=read_word(
            "spec.queueingStrategy",
            QueueingStrategy,
            spec.queueing_strategy,
            QueueingStrategy.BEST_EFFORT_FIFO,
        ),
        namespace_selector=spec.namespace_selector,
        fungibility=_fungibility(spec.flavor_fungibility or WireFungibility()),
        preemption=_preemption(spec.preemption or WirePreemption()),
        checks=_checks(spec.admission_checks_strategy),
        stop_policy=read_word("spec.stopPolicy", StopPolicy, spec.stop_policy, StopPolicy.NONE),
        fair_weight_milli=_weight(spec.fair_sharing),
        is_admission_fair_sharing=scope is not None
        # The only mode so far; an unknown mode of a newer Kueue is ignored.
        and scope.admission_mode == "UsageBasedAdmissionFairSharing",
        is_concurrent_admission=spec.concurrent_admission_policy is not None,
    )


def to_cohort(wire: CohortObject) -> Cohort:
    """Return the Cohort. Raises SpecError for an invalid field."""
    parent = wire.spec.parent_name or None
    return Cohort(
        name=wire.metadata.name,
        parent=parent,
        resource_groups=_groups(wire.spec.resource_groups),
        fair_weight_milli=_weight(wire.spec.fair_sharing),
    )


def to_local_queue(wire: LocalQueueObject) -> LocalQueue:
    """Return the LocalQueue. Raises SpecError for an invalid field."""
    meta, spec = wire.metadata, wire.spec
    if not spec.cluster_queue:
        raise SpecError("spec.clusterQueue is empty; name the ClusterQueue that serves it")
    return LocalQueue(
        namespace=meta.namespace,
        name=meta.name,
        cluster_queue=spec.cluster_queue,
        stop_policy=read_word("spec.stopPolicy", StopPolicy, spec.stop_policy, StopPolicy.NONE),
        fair_weight_milli=_weight(spec.fair_sharing),
        past_usage=read_past_usage(wire.status),
    )


def to_resource_flavor(wire: ResourceFlavorObject) -> ResourceFlavor:
    """Return the ResourceFlavor; an invalid price counts as absent."""
    spec = wire.spec
    return ResourceFlavor(
        name=wire.metadata.name,
        node_labels=spec.node_labels or {},
        node_taints=spec.node_taints or (),
        tolerations=spec.tolerations or (),
        topology_name=spec.topology_name or None,
        cost_per_device_hour=price((wire.metadata.annotations or {}).get(COST_PER_DEVICE_HOUR)),
    )


def to_topology(wire: TopologyObject) -> Topology:
    """Return the Topology. Raises SpecError if it has no level or a duplicate one."""
    levels = tuple(level.node_label for level in wire.spec.levels)
    if not levels:
        raise SpecError("spec.levels is empty; name the node labels of the levels, the widest first")
    require_unique("spec.levels", levels)
    return Topology(name=wire.metadata.name, levels=levels)


def to_admission_check(wire: AdmissionCheckObject, *, without_conditions: bool = False) -> AdmissionCheck:
    """Return the AdmissionCheck.

    `without_conditions`: whether one without any conditions counts as active.
    """
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    active = [condition.status == "True" for condition in conditions if condition.type == "Active"]
    named = wire.spec.parameters
    return AdmissionCheck(
        name=wire.metadata.name,
        controller_name=wire.spec.controller_name,
        # A check whose controller has not reported yet is not active; for checks in files
        # there is no controller.
        is_active=active[0] if active else without_conditions and not conditions,
        parameters=None
        if named is None
        else CheckParameters(group=named.api_group, kind=named.kind, name=named.name),
    )


def to_namespace(wire: NamespaceObject) -> Namespace:
    """Return the namespace, including the label with its own name that every namespace has."""
    name = wire.metadata.name
    # The API server adds this label to every namespace. A manifest in a file lacks it, but
    # selectors may use it.
    return Namespace(name=name, labels={"kubernetes.io/metadata.name": name, **(wire.metadata.labels or {})})


def to_limit_range(wire: LimitRangeObject) -> LimitRange:
    """Return the limit range. Raises SpecError that names a quantity which cannot be parsed."""
    items = wire.spec.limits or ()
    for index, item in enumerate(items):
        # Parsed once here, so that no quantity of a limit range can raise an error during a decision.
        for field in ("default", "default_request", "min", "max"):
            for resource, quantity in (getattr(item, field) or {}).items():
                read_amount(f"spec.limits[{index}].{field}.{resource}", resource, quantity)
    return LimitRange(namespace=wire.metadata.namespace, name=wire.metadata.name, limits=items)


def to_runtime_class(wire: RuntimeClassObject) -> RuntimeClass:
    """Return the RuntimeClass and its overhead.

    Raises SpecError that names a quantity which cannot be parsed.
    """
    overhead = (wire.overhead.pod_fixed if wire.overhead is not None else None) or {}
    for resource, quantity in overhead.items():
        read_amount(f"overhead.podFixed.{resource}", resource, quantity)
    return RuntimeClass(name=wire.metadata.name, overhead=overhead)


def object_name(kind: str, meta: Meta) -> str:
    """Return the name of an object for messages: its kind, and namespace/name."""
    return f"{kind} {meta.namespace}/{meta.name}" if meta.namespace else f"{kind} {meta.name}"


# --- parts -----------------------------------------------------------------------------------------------


def _groups(wire: tuple[WireResourceGroup, ...] | None) -> tuple[ResourceGroup, ...]:
    return tuple(_group(f"spec.resourceGroups[{index}]", group) for index, group in enumerate(wire or ()))


def _group(field: str, wire: WireResourceGroup) -> ResourceGroup:
    require_unique(f"{field}.flavors", (flavor.name for flavor in wire.flavors))
    return ResourceGroup(
        covered_resources=wire.covered_resources,
        flavors=tuple(
            FlavorQuotas(
                name=flavor.name,
                resources=_quotas(f"{field}.flavors[{flavor.name}]", flavor, wire.covered_resources),
            )
            for flavor in wire.flavors
        ),
    )


def _quotas(field: str, wire: WireFlavorQuotas, covered: tuple[str, ...]) -> dict[str, ResourceQuota]:
    quotas = {quota.name: _quota(f"{field}.resources[{quota.name}]", quota) for quota in wire.resources}
    # In the order of coveredResources, so that the message is easy to compare with the object.
    missing = [name for name in covered if name not in quotas]
    if missing:
        raise SpecError(
            f"{field}.resources lacks {', '.join(missing)}; give a quota for each covered resource"
        )
    extra = [name for name in quotas if name not in covered]
    if extra:
        raise SpecError(f"{field}.resources has {', '.join(extra)}; add it to coveredResources or remove it")
    return quotas


def _quota(field: str, wire: WireResourceQuota) -> ResourceQuota:
    def limit(name: str, quantity: str | int | float | None) -> int | None:
        return None if quantity is None else read_amount(f"{field}.{name}", wire.name, quantity)

    return ResourceQuota(
        nominal=read_amount(f"{field}.nominalQuota", wire.name, wire.nominal_quota),
        borrowing_limit=limit("borrowingLimit", wire.borrowing_limit),
        lending_limit=limit("lendingLimit", wire.lending_limit),
    )


def _fungibility(wire: WireFungibility) -> FlavorFungibility:
    default = FlavorFungibility()
    field = "spec.flavorFungibility"
    preference = None
    if wire.preference:
        # There is no default preference: if it is absent, Kueue's older rules decide (see `queues`).
        fallback = FungibilityPreference.BORROWING_OVER_PREEMPTION
        preference = read_word(f"{field}.preference", FungibilityPreference, wire.preference, fallback)
    return FlavorFungibility(
        when_can_borrow=read_word(
            f"{field}.whenCanBorrow", FungibilityPolicy, wire.when_can_borrow, default.when_can_borrow
        ),
        when_can_preempt=read_word(
            f"{field}.whenCanPreempt", FungibilityPolicy, wire.when_can_preempt, default.when_can_preempt
        ),
        preference=preference,
    )


def _preemption(wire: WirePreemption) -> Preemption:
    def policy(name: str, text: str | None) -> PreemptionPolicy:
        return read_word(f"spec.preemption.{name}", PreemptionPolicy, text, PreemptionPolicy.NEVER)

    borrow = wire.borrow_within_cohort
    return Preemption(
        within_cluster_queue=policy("withinClusterQueue", wire.within_cluster_queue),
        reclaim_within_cohort=policy("reclaimWithinCohort", wire.reclaim_within_cohort),
        borrow_within_cohort=policy(
            "borrowWithinCohort.policy", borrow.policy if borrow is not None else None
        ),
        borrow_max_priority=borrow.max_priority_threshold if borrow is not None else None,
    )


def _checks(wire: WireChecksStrategy | None) -> tuple[CheckRule, ...]:
    rules = (wire.admission_checks if wire is not None else None) or ()
    require_unique("spec.admissionChecksStrategy.admissionChecks", (rule.name for rule in rules))
    return tuple(CheckRule(name=rule.name, on_flavors=frozenset(rule.on_flavors or ())) for rule in rules)


def _weight(wire: WireFairSharing | None) -> int:
    """Return the weight in thousandths, rounded up so that a small weight does not become 0."""
    if wire is None or wire.weight is None:
        return _DEFAULT_WEIGHT
    try:
        weight = parse(wire.weight)
    except QuantityError as error:
        raise SpecError(f"spec.fairSharing.weight: {error}") from error
    if weight < 0:
        raise SpecError(f"spec.fairSharing.weight is {wire.weight}, but must not be negative")
    return ceil(weight * Fraction(1000))
