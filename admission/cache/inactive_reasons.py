"""Inactive reasons: a ClusterQueue is stopped, or an object it names is missing, unreadable or not ready.

Source: Kueue, pkg/cache/scheduler/clusterqueue.go, inactiveReason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from admission.cache.specs import Specs
from admission.snapshot.queue_state import Inactive
from api import keys
from api.queueing import AdmissionCheck, ClusterQueue, Cohort, ResourceFlavor, StopPolicy, Topology
from api.reasons import InactiveReason
from queues.quota.hierarchy import CohortHierarchy


def problems(spec: ClusterQueue, specs: Specs, hierarchy: CohortHierarchy) -> Iterator[Inactive]:
    """Yield why the ClusterQueue is inactive, in Kueue's order of reasons; nothing if it is active.

    `hierarchy` must be built from the same specs.

    All reasons are yielded, of which the condition shows the first as its reason and each in its message.
    """
    if spec.is_terminating:
        yield Inactive(reason=InactiveReason.TERMINATING, message="clusterQueue is terminating")
    if spec.stop_policy is not StopPolicy.NONE:
        advice = f"its spec.stopPolicy is {spec.stop_policy}"
        yield Inactive(reason=InactiveReason.STOPPED, message="is stopped", advice=advice)
    unreadable = specs.unreadable.get((ClusterQueue, spec.name))
    if unreadable is not None:
        yield Inactive(reason=InactiveReason.UNKNOWN, message=unreadable)
    cycle = hierarchy.queue_cycles.get(spec.name)
    if cycle is not None:
        yield Inactive(
            reason=InactiveReason.COHORT_CYCLE,
            message=f"its cohorts form a cycle ({cycle}); change spec.parentName of one of them",
        )
    # Checking all parts one by one is spared where nothing is unreadable, which is nearly always the case.
    if specs.unreadable:
        yield from _unreadable_parts(spec, specs, hierarchy)
    yield from _missing_flavors(spec, specs)
    yield from _missing_checks(spec, specs)
    yield from _clashing_checks(spec, specs)
    yield from _missing_topologies(spec, specs)


def _unreadable_parts(spec: ClusterQueue, specs: Specs, hierarchy: CohortHierarchy) -> Iterator[Inactive]:
    """Yield the cohorts, flavors, topologies and checks that exist but cannot be read.

    Their last readable version does not count: a limit that its owner has removed must not apply.
    """
    flavors = _flavors(spec)
    topologies = (specs.flavors[name].topology_name for name in flavors if name in specs.flavors)
    parts: tuple[tuple[type, Iterable[str | None]], ...] = (
        (Cohort, (node.name for node in hierarchy.queues[spec.name].ancestors())),
        (ResourceFlavor, flavors),
        (Topology, topologies),
        (AdmissionCheck, (rule.name for rule in spec.checks)),
    )
    for kind, names in parts:
        # Each name once and in order: two flavors may name the same topology.
        for name in dict.fromkeys(names):
            sentence = specs.unreadable.get((kind, name))
            if sentence is not None:
                message = f"{kind.__name__} {name} cannot be read: {sentence}"
                yield Inactive(reason=InactiveReason.UNKNOWN, message=message)


def _missing_flavors(spec: ClusterQueue, specs: Specs) -> Iterator[Inactive]:
    """Yield that flavors do not exist."""
    missing = specs.missing(ResourceFlavor, _flavors(spec))
    if missing:
        yield Inactive(
            reason=InactiveReason.FLAVOR_NOT_FOUND,
            message=f"references missing ResourceFlavor(s): {','.join(missing)}",
            advice="create them",
        )


def _missing_topologies(spec: ClusterQueue, specs: Specs) -> Iterator[Inactive]:
    """Yield that the topologies of flavors do not exist. With MultiKueue, other clusters have them."""
    if _checks_of(spec, specs, keys.MULTIKUEUE_CONTROLLER):
        return
    # Each once and in order: several resource groups may name the same flavor.
    for name in dict.fromkeys(_flavors(spec)):
        topology = specs.flavors[name].topology_name if name in specs.flavors else None
        if specs.missing(Topology, [topology]):
            yield Inactive(
                reason=InactiveReason.TOPOLOGY_NOT_FOUND,
                message=f'there is no Topology "{topology}" for TAS flavor "{name}"',
                advice="create it",
            )


def _missing_checks(spec: ClusterQueue, specs: Specs) -> Iterator[Inactive]:
    """Yield that admission checks do not exist or are not active."""
    missing = specs.missing(AdmissionCheck, (rule.name for rule in spec.checks))
    if missing:
        yield Inactive(
            reason=InactiveReason.ADMISSION_CHECK_NOT_FOUND,
            message=f"references missing AdmissionCheck(s): {','.join(missing)}",
            advice="create them",
        )
    known = [specs.checks[rule.name] for rule in spec.checks if rule.name in specs.checks]
    idle = sorted((check for check in known if not check.is_active), key=lambda check: check.name)
    if idle:
        names = ",".join(check.name for check in idle)
        yield Inactive(
            reason=InactiveReason.ADMISSION_CHECK_INACTIVE,
            message=f"references inactive AdmissionCheck(s): {names}",
            advice=_way_out(idle),
        )


def _clashing_checks(spec: ClusterQueue, specs: Specs) -> Iterator[Inactive]:
    """Yield that checks of MultiKueue clash with each other, with flavors, or with ProvisioningRequests."""
    dispatching = _checks_of(spec, specs, keys.MULTIKUEUE_CONTROLLER)
    provisioning = _checks_of(spec, specs, keys.PROVISIONING_CONTROLLER)
    if len(dispatching) > 1:
        yield Inactive(
            reason=InactiveReason.MULTIPLE_MULTIKUEUE_CHECKS,
            message="Cannot use multiple MultiKueue AdmissionChecks on the same ClusterQueue, found: "
            + ",".join(dispatching),
        )
    flavors = frozenset(_flavors(spec))
    partial = {rule.name for rule in spec.checks if rule.on_flavors and rule.on_flavors != flavors}
    if chosen := [name for name in dispatching if name in partial]:
        yield Inactive(
            reason=InactiveReason.MULTIKUEUE_CHECK_PER_FLAVOR,
            message=f"Cannot specify MultiKueue AdmissionCheck per flavor, found: {','.join(chosen)}",
        )
    if dispatching and provisioning:
        yield Inactive(
            reason=InactiveReason.MULTIKUEUE_WITH_PROVISIONING_REQUEST,
            message="Cannot use both MultiKueue and ProvisioningRequest AdmissionChecks together, found: "
            f"{','.join(dispatching)}, {','.join(provisioning)}",
        )


def _checks_of(spec: ClusterQueue, specs: Specs, controller: str) -> list[str]:
    """Return the names of the ClusterQueue's checks that a controller serves, sorted."""
    known = (specs.checks[rule.name] for rule in spec.checks if rule.name in specs.checks)
    return sorted({check.name for check in known if check.controller_name == controller})


def _flavors(spec: ClusterQueue) -> list[str]:
    """Return the flavors of all resource groups, in order."""
    return [flavor.name for group in spec.resource_groups for flavor in group.flavors]


def _way_out(idle: Iterable[AdmissionCheck]) -> str:
    """Return what to do about checks that their controller does not report as active."""
    served_by = {
        keys.MULTIKUEUE_CONTROLLER: "dispatch to other clusters is not served: take the check out",
    }
    advice = [served_by[check.controller_name] for check in idle if check.controller_name in served_by]
    return "; ".join(dict.fromkeys(("see their Active condition", *advice)))
