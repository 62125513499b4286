"""The objects that administrators write, by name: ClusterQueues, Cohorts, flavors, policies and the like.

They come in any order and may be missing or unreadable; what follows from them (trees, who is active and why
not) is `admission.cache.cache`, which works it out when it is next needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from api.disruption_budget import DisruptionBudget
from api.jobs.resource_requests import LimitRange, RuntimeClass
from api.policy import KUEUE, AdmissionPolicy
from api.queueing import AdmissionCheck, ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Topology

Spec = ClusterQueue | Cohort | ResourceFlavor | Topology | AdmissionCheck | AdmissionPolicy


@dataclass(slots=True, eq=False)
class Specs:
    """All known specs by name, and whether one has changed. One task owns it."""

    cluster_queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    local_queues: dict[tuple[str, str], LocalQueue] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    checks: dict[str, AdmissionCheck] = field(default_factory=dict)
    policies: dict[str, AdmissionPolicy] = field(default_factory=dict)
    # Governs ClusterQueues that no policy is bound to.
    default_policy: AdmissionPolicy = KUEUE
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    budgets: dict[tuple[str, str], DisruptionBudget] = field(default_factory=dict)
    runtime_classes: dict[str, RuntimeClass] = field(default_factory=dict)
    limits: dict[str, tuple[LimitRange, ...]] = field(default_factory=dict)
    # Objects that could not be read, by kind and key, with the sentence that says why.
    unreadable: dict[tuple[type, object], str] = field(default_factory=dict)
    # Whether a change of specs has not taken effect yet.
    is_stale: bool = False
    # Whether a flavor, topology, check or policy has changed, which may matter to any queue.
    _wakes_all: bool = False

    def invalidate(self) -> None:
        """Note that a ClusterQueue, Cohort, flavor, topology or check has changed."""
        self.is_stale = True

    def put_spec(self, spec: Spec) -> bool | None:
        """Take in a spec. Returns whether it is new, None where it is known and the same."""
        table = self._table(type(spec))
        known = table.get(spec.name)
        # The same again: the relist of an informer must not rebuild all trees.
        if known == spec:
            return None
        table[spec.name] = spec
        self.is_stale = True
        self._wakes_all |= not isinstance(spec, ClusterQueue | Cohort)
        return known is None

    def remove_spec(self, kind: type, name: str) -> bool:
        """Forget a spec. Returns whether it was known."""
        self.is_stale = True
        # Without its policy a queue may admit what the policy held back.
        self._wakes_all |= kind is AdmissionPolicy
        return self._table(kind).pop(name, None) is not None

    def missing(self, kind: type, names: Iterable[str | None]) -> list[str]:
        """Return the names of objects that do not exist; one that cannot be read is not missing."""
        known = self._table(kind)
        # Who is unreadable is reported as that already, and "create it" would be the wrong advice.
        return [
            one
            for one in names
            if one is not None and one not in known and (kind, one) not in self.unreadable
        ]

    def _table(self, kind: type) -> dict[str, Any]:
        tables: dict[type, dict[str, Any]] = {
            ClusterQueue: self.cluster_queues,
            Cohort: self.cohorts,
            ResourceFlavor: self.flavors,
            Topology: self.topologies,
            AdmissionCheck: self.checks,
            AdmissionPolicy: self.policies,
        }
        try:
            return tables[kind]
        except KeyError:
            raise TypeError(f"the cache knows no {kind.__name__}") from None

    def set_limit_range(self, namespace: str, name: str, limits: LimitRange | None) -> bool:
        """Take in a LimitRange, or forget it. Returns whether anything has changed."""
        known = self.limits.get(namespace, ())
        others = tuple(one for one in known if one.name != name)
        listed = others if limits is None else (*others, limits)
        # By name, as the first that has a default gives it: which one was edited last is known to those alone
        # who saw it, and a leader that starts now must find the same requests.
        self.limits[namespace] = tuple(sorted(listed, key=lambda one: one.name))
        return self.limits[namespace] != known
