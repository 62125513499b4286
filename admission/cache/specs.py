"""Specs: the objects that administrators write, by name: ClusterQueues, Cohorts, flavors and policies.

They arrive in any order and may be missing or unreadable. What follows from them (quota trees, which queues
are inactive and why) is computed by `admission.cache.cache` when it is next needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from api.devices.catalog import DeviceCatalog
from api.disruption_budget import DisruptionBudget
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.policy import KUEUE, AdmissionPolicy
from api.policy_inheritance import inherited
from api.provisioning import ProvisioningConfig
from api.queueing import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology

Spec = (
    ClusterQueue | Cohort | ResourceFlavor | Topology | AdmissionCheck | AdmissionPolicy | ProvisioningConfig
)


@dataclass(slots=True, kw_only=True)
class SpecChanges:
    """What has changed: `queues` are the names of ClusterQueues, also of those that are gone.

    `are_queues_only`: nothing else has. `concern_all`: a flavor, topology, check or policy has changed, which
    may matter to any queue. Where only ClusterQueues and Cohorts have, only the trees that are built
    differently can admit more than before.
    """

    queues: set[str] = field(default_factory=set)
    are_queues_only: bool = True
    concern_all: bool = False


@dataclass(slots=True, eq=False)
class Specs:
    """All known specs by name, and whether one has changed. One task owns it."""

    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    local_queues: dict[tuple[str, str], LocalQueue] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    checks: dict[str, AdmissionCheck] = field(default_factory=dict)
    provisioning_configs: dict[str, ProvisioningConfig] = field(default_factory=dict)
    # Whether the cluster has the kind ProvisioningRequest.
    is_provisioning_served: bool = False
    # As they are written, and those in force with what they inherit; why the others are not.
    written_policies: dict[str, AdmissionPolicy] = field(default_factory=dict)
    policies: Mapping[str, AdmissionPolicy] = field(default_factory=dict)
    inheritance_faults: Mapping[str, str] = field(default_factory=dict)
    # Governs ClusterQueues that no policy is bound to.
    default_policy: AdmissionPolicy = KUEUE
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    budgets: dict[tuple[str, str], DisruptionBudget] = field(default_factory=dict)
    runtime_classes: dict[str, RuntimeClass] = field(default_factory=dict)
    limits: dict[str, tuple[LimitRange, ...]] = field(default_factory=dict)
    devices: DeviceCatalog = field(default_factory=DeviceCatalog)
    # Objects that could not be read, by kind and key, with a message that says why.
    unreadable: dict[tuple[type, object], str] = field(default_factory=dict)
    # How often a LocalQueue has been added or changed.
    local_queue_changes: int = 0
    # Whether specs have changed since the cache last computed what follows from them.
    is_stale: bool = False
    # What has changed since then.
    _changes: SpecChanges = field(default_factory=SpecChanges)

    def invalidate(self) -> None:
        """Record that a ClusterQueue, Cohort, flavor, topology or check has changed."""
        self.is_stale = True
        self._changes.are_queues_only = False

    def take_changes(self) -> SpecChanges:
        """Return what has changed since the last call, and begin to let it take effect."""
        changes, self.is_stale, self._changes = self._changes, False, SpecChanges()
        return changes

    def put_spec(self, spec: Spec) -> bool:
        """Take in a spec. Return whether it is new; an equal one changes nothing.

        A changed spec marks the specs as stale, and the trees are built again when they are next needed.
        """
        table = self._table(type(spec))
        known = table.get(spec.name)
        # A spec that was unreadable takes effect again even if it is the same as before.
        self.note_readable(type(spec), spec.name)
        # An unchanged object, as in the relist of an informer, must not rebuild all trees.
        if known == spec:
            return False
        table[spec.name] = spec
        self._inherit(type(spec))
        self._note_change(type(spec), spec.name)
        self._changes.concern_all |= not isinstance(spec, ClusterQueue | Cohort)
        return known is None

    def _note_change(self, kind: type, name: str) -> None:
        """Record that a spec was added, changed or removed."""
        if kind is ClusterQueue:
            self.is_stale = True
            self._changes.queues.add(name)
        else:
            self.invalidate()

    def put_local_queue(self, local_queue: LocalQueue) -> bool:
        """Take in a LocalQueue. Return whether it is new or has changed, or was unreadable before."""
        key = (local_queue.namespace, local_queue.name)
        was_unreadable = self.unreadable.pop((LocalQueue, key), None) is not None
        if self.local_queues.get(key) == local_queue and not was_unreadable:
            return False
        self.local_queues[key] = local_queue
        self.local_queue_changes += 1
        self._note_owner(key)
        return True

    def remove_local_queue(self, key: tuple[str, str]) -> None:
        """Forget a LocalQueue; no error where it was not known."""
        self.local_queues.pop(key, None)
        self._note_owner(key)

    def _note_owner(self, local_queue: tuple[str, str]) -> None:
        """Record that reservations of a LocalQueue may change that was added, removed or changed."""
        policies = self.policies.values()
        if any(one.local_queue == local_queue for policy in policies for one in policy.reservations):
            self.invalidate()

    def note_unreadable(self, kind: type, key: object, message: str) -> None:
        """Record that an object exists but cannot be read, and why.

        An AdmissionPolicy is not in force from then on. Other specs keep their last readable version, and a
        queue that has none gets an empty one, since its status is shown.
        """
        self.unreadable[(kind, key)] = message
        self.invalidate()
        if kind is ClusterQueue:
            name = str(key)
            self.cluster_queues.setdefault(name, ClusterQueue(name=name))
        elif kind is LocalQueue and isinstance(key, tuple):
            namespace, name = key
            unknown = LocalQueue(namespace=namespace, name=name, cluster_queue="")
            self.local_queues.setdefault((namespace, name), unknown)
        elif kind is AdmissionPolicy:
            # What is in force must follow from the objects alone, so that a new leader decides like one that
            # has seen the edit.
            self.remove_spec(kind, str(key))

    def note_readable(self, kind: type, key: object) -> None:
        """Forget that an object was unreadable, if it was: it is readable now, or is gone."""
        if self.unreadable.pop((kind, key), None) is not None:
            self.invalidate()

    def remove_spec(self, kind: type, name: str) -> bool:
        """Forget a spec. Return whether it was known.

        Workloads that hold quota of a removed ClusterQueue keep it on record, but it counts in no tree.
        """
        self._note_change(kind, name)
        # Without its policy a queue may admit what the policy did not allow.
        self._changes.concern_all |= kind is AdmissionPolicy
        was_known = self._table(kind).pop(name, None) is not None
        self._inherit(kind)
        return was_known

    def _inherit(self, kind: type) -> None:
        """Work out which policies are in force, and with which sections, if one has changed."""
        if kind is AdmissionPolicy:
            self.policies, self.inheritance_faults = inherited(self.written_policies)

    def missing(self, kind: type, names: Iterable[str | None]) -> list[str]:
        """Return the names of objects that do not exist; one that cannot be read is not missing.

        In the given order; None entries are passed over, since the field that names the object is optional.
        """
        known = self._table(kind)
        # An unreadable object is reported as such, and "create it" would be the wrong advice.
        return [
            one
            for one in names
            if one is not None and one not in known and (kind, one) not in self.unreadable
        ]

    def _table(self, kind: type) -> dict[str, Any]:
        """Return the table for this kind of spec. Raise TypeError if there is none."""
        tables: dict[type, dict[str, Any]] = {
            ClusterQueue: self.cluster_queues,
            Cohort: self.cohorts,
            ResourceFlavor: self.flavors,
            Topology: self.topologies,
            AdmissionCheck: self.checks,
            ProvisioningConfig: self.provisioning_configs,
            AdmissionPolicy: self.written_policies,
        }
        try:
            return tables[kind]
        except KeyError:
            raise TypeError(f"the cache knows no {kind.__name__}") from None

    def set_limit_range(self, namespace: str, name: str, limits: LimitRange | None) -> bool:
        """Take in a LimitRange, or forget it if `limits` is None. Return whether anything has changed.

        The caller computes the requests of the namespace's Workloads again then.
        """
        known = self.limits.get(namespace, ())
        others = tuple(one for one in known if one.name != name)
        listed = others if limits is None else (*others, limits)
        # Sorted by name, since the first with a default decides. Only a process that saw the edits knows
        # their order, and a new leader must compute the same requests.
        self.limits[namespace] = tuple(sorted(listed, key=lambda one: one.name))
        return self.limits[namespace] != known
