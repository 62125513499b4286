"""Rules of ClusterQueues and Cohorts that a schema cannot express.

Source: Kueue, pkg/webhooks/clusterqueue_webhook.go and cohort_webhook.go.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain

from api.models.cluster_queue import ClusterQueue, ClusterQueueSpec, ConcurrentAdmissionPolicy
from api.models.cohort import Cohort
from api.models.common import FairSharing, Quantity
from api.models.quotas import FlavorQuotas, ResourceGroup, ResourceQuota
from api.parsing.faults import ABSENT, FieldError
from api.parsing.quantities import parse
from api.validation.names import LABEL_KEY_RULE, duplicates, is_label_key, selector_errors

# Kueue's limits; they bound the cost of a scheduling cycle for one object.
_MOST_FLAVORS = 256
_MOST_RESOURCES = 256
_MOST_QUOTAS_OF_A_GROUP = 512
_MOST_CONCURRENT_FLAVORS = 16

_LEAST_WEIGHT = Fraction(1, 10**9)
_GROUPS = "spec.resourceGroups"


def cluster_queue_errors(queue: ClusterQueue) -> Iterator[FieldError]:
    """Yield the faults of a ClusterQueue."""
    spec = queue.spec
    groups = spec.resource_groups or []
    # Without a cohort there is nothing to lend to or borrow from, so limits would silently have no effect.
    yield from _group_errors(groups, parent="cohortName" if not spec.cohort_name else "")
    yield from _lending_errors(groups)
    yield from _weight_errors(spec.fair_sharing)
    yield from selector_errors("spec.namespaceSelector", spec.namespace_selector)
    yield from _policy_errors(spec)
    yield from _check_errors(spec, groups)
    if spec.concurrent_admission_policy is not None:
        yield from _concurrency_errors(spec, spec.concurrent_admission_policy, groups)


def cohort_errors(cohort: Cohort) -> Iterator[FieldError]:
    """Yield the faults of a Cohort. Unlike a ClusterQueue, it may lend more than its nominal quota."""
    spec = cohort.spec
    yield from _group_errors(spec.resource_groups or [], parent="parentName" if not spec.parent_name else "")
    yield from _weight_errors(spec.fair_sharing)
    # Longer cycles are visible only together with the other Cohorts; the status of
    # their ClusterQueues reports them.
    if spec.parent_name and spec.parent_name == cohort.metadata.name:
        yield FieldError(
            path="spec.parentName", value=spec.parent_name, rule="a Cohort cannot be its own parent"
        )


def _group_errors(groups: list[ResourceGroup], *, parent: str) -> Iterator[FieldError]:
    """Yield the faults of resource groups.

    `parent` is the missing field that limits require; empty if it is set.
    """
    for index, group in enumerate(groups):
        yield from _group(f"{_GROUPS}[{index}]", group, parent)
    resources = list(chain.from_iterable(group.covered_resources for group in groups))
    flavors = [flavor.name for group in groups for flavor in group.flavors]
    # If two groups covered one resource, both would have to be asked for it, in no defined order.
    for name in duplicates(resources):
        yield FieldError(path=_GROUPS, value=name, rule="a resource must be covered only once")
    for name in duplicates(flavors):
        yield FieldError(path=_GROUPS, value=name, rule="a flavor must be in one group only")
    yield from _size(_GROUPS, len(flavors), _MOST_FLAVORS, "flavors in all")
    yield from _size(_GROUPS, len(resources), _MOST_RESOURCES, "covered resources in all")


def _size(path: str, count: int, most: int, what: str) -> Iterator[FieldError]:
    if count > most:
        yield FieldError(path=path, value=count, rule=f"must be at most {most} {what}")


def _group(path: str, group: ResourceGroup, parent: str) -> Iterator[FieldError]:
    for index, name in enumerate(group.covered_resources):
        if not is_label_key(name):
            yield FieldError(path=f"{path}.coveredResources[{index}]", value=name, rule=LABEL_KEY_RULE)
    quotas = len(group.covered_resources) * len(group.flavors)
    yield from _size(path, quotas, _MOST_QUOTAS_OF_A_GROUP, "flavors times resources in a group")
    for index, flavor in enumerate(group.flavors):
        yield from _flavor(f"{path}.flavors[{index}]", flavor, group.covered_resources, parent)


def _flavor(path: str, flavor: FlavorQuotas, covered: list[str], parent: str) -> Iterator[FieldError]:
    names = [quota.name for quota in flavor.resources]
    # The order matters too: users compare flavors line by line, and Kueue rejects any other order.
    if names != covered:
        yield FieldError(
            path=f"{path}.resources",
            value=names,
            rule=f"must list the covered resources in their order: {', '.join(covered)}",
        )
    for index, quota in enumerate(flavor.resources):
        yield from _quota(f"{path}.resources[{index}]", quota, parent)


def _quota(path: str, quota: ResourceQuota, parent: str) -> Iterator[FieldError]:
    limits = {"borrowingLimit": quota.borrowing_limit, "lendingLimit": quota.lending_limit}
    for name, value in {"nominalQuota": quota.nominal_quota, **limits}.items():
        # The schema cannot express this, because it treats quantities as strings.
        if value is not None and parse(value) < 0:
            yield FieldError(path=f"{path}.{name}", value=value, rule="must not be negative")
    for name, value in limits.items():
        if value is not None and parent:
            yield FieldError(path=f"{path}.{name}", value=value, rule=f"needs spec.{parent}")


def _lending_errors(groups: list[ResourceGroup]) -> Iterator[FieldError]:
    for path, quota in _quotas(groups):
        limit = quota.lending_limit
        # A ClusterQueue cannot lend more than it has.
        if limit is not None and parse(limit) > parse(quota.nominal_quota):
            rule = f"must be at most nominalQuota ({quota.nominal_quota})"
            yield FieldError(path=f"{path}.lendingLimit", value=limit, rule=rule)


def _quotas(groups: list[ResourceGroup]) -> Iterator[tuple[str, ResourceQuota]]:
    for g, group in enumerate(groups):
        for f, flavor in enumerate(group.flavors):
            for r, quota in enumerate(flavor.resources):
                yield f"{_GROUPS}[{g}].flavors[{f}].resources[{r}]", quota


def _weight_errors(sharing: FairSharing | None) -> Iterator[FieldError]:
    weight: Quantity = sharing.weight if sharing else 1
    # Shares are divided by the weight, and a smaller one would exceed their precision. 0 is allowed and
    # means that the queue is served after all others.
    if parse(weight) != 0 and parse(weight) <= _LEAST_WEIGHT:
        yield FieldError(path="spec.fairSharing.weight", value=weight, rule="must be 0 or more than 1e-9")


def _policy_errors(spec: ClusterQueueSpec) -> Iterator[FieldError]:
    preemption, fungibility = spec.preemption, spec.flavor_fungibility
    borrow = preemption.borrow_within_cohort.policy
    # A queue that may not even reclaim its own quota must not preempt Workloads of others while it borrows.
    if preemption.reclaim_within_cohort == "Never" and borrow != "Never":
        yield FieldError(
            path="spec.preemption.borrowWithinCohort.policy",
            value=borrow,
            rule="must be Never while reclaimWithinCohort is Never",
        )
    words = (fungibility.when_can_borrow, fungibility.when_can_preempt)
    if fungibility.preference and words != ("TryNextFlavor", "TryNextFlavor"):
        yield FieldError(
            path="spec.flavorFungibility.preference",
            value=fungibility.preference,
            rule="needs whenCanBorrow and whenCanPreempt to be TryNextFlavor",
        )


def _check_errors(spec: ClusterQueueSpec, groups: list[ResourceGroup]) -> Iterator[FieldError]:
    strategy = spec.admission_checks_strategy
    known = {flavor.name for group in groups for flavor in group.flavors}
    for c, check in enumerate(strategy.admission_checks if strategy else ()):
        for f, name in enumerate(check.on_flavors or ()):
            # With a misspelt flavor the check would never apply, without any message.
            if name not in known:
                yield FieldError(
                    path=f"spec.admissionChecksStrategy.admissionChecks[{c}].onFlavors[{f}]",
                    value=name,
                    rule="must be a flavor of spec.resourceGroups",
                )


def _concurrency_errors(
    spec: ClusterQueueSpec, policy: ConcurrentAdmissionPolicy, groups: list[ResourceGroup]
) -> Iterator[FieldError]:
    path = "spec.concurrentAdmissionPolicy"
    if len(groups) != 1:
        yield FieldError(path=_GROUPS, value=len(groups), rule=f"{path} needs exactly one resource group")
    flavors = [flavor.name for group in groups for flavor in group.flavors]
    yield from _size(_GROUPS, len(flavors), _MOST_CONCURRENT_FLAVORS, f"flavors beside {path}")
    if spec.queueing_strategy == "StrictFIFO":
        yield FieldError(
            path="spec.queueingStrategy", value="StrictFIFO", rule=f"cannot be combined with {path}"
        )
    yield from _migration_errors(f"{path}.migration", policy, flavors)


def _migration_errors(
    path: str, policy: ConcurrentAdmissionPolicy, flavors: list[str]
) -> Iterator[FieldError]:
    constraints = policy.migration.constraints
    if constraints is None:
        return
    # Only TryPreferredFlavors tries flavors in an order that a constraint could end.
    if policy.migration.mode != "TryPreferredFlavors":
        yield FieldError(
            path=f"{path}.mode", value=policy.migration.mode, rule="constraints need TryPreferredFlavors"
        )
    last = constraints.last_acceptable_flavor_name
    if last not in flavors:
        yield FieldError(
            path=f"{path}.constraints.lastAcceptableFlavorName",
            value=ABSENT if last is None else last,
            rule="must be a flavor of the resource group",
        )
