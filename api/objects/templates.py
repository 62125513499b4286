"""Pod templates, with the fields that requests and placement need."""

from __future__ import annotations

from typing import Any

from api.objects.common import Meta, Wire, WireSelectorRequirement, WireToleration


class WireResources(Wire, frozen=True):
    """resources of a container or of a pod. Quantities stay text or number until they are summed.

    Requests that are absent default to the limits, as the API server does for pods.
    """

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: tuple[dict[str, Any], ...] | None = None


class WireContainer(Wire, frozen=True):
    """The fields of a container that scheduling needs.

    An init container with the restart policy Always is a sidecar, whose requests add to those of the
    containers.
    """

    name: str = ""
    image: str = ""
    resources: WireResources | None = None
    restart_policy: str | None = None


class WireNodeSelectorTerm(Wire, frozen=True):
    """One term of node affinity; required terms are alternatives, expressions within one all hold."""

    match_expressions: tuple[WireSelectorRequirement, ...] | None = None
    match_fields: tuple[WireSelectorRequirement, ...] | None = None


class WireNodeSelector(Wire, frozen=True):
    """requiredDuringSchedulingIgnoredDuringExecution."""

    node_selector_terms: tuple[WireNodeSelectorTerm, ...] | None = None


class WirePreferredTerm(Wire, frozen=True):
    """One term of preferred node affinity. `weight` is from 1 to 100."""

    weight: int = 0
    preference: WireNodeSelectorTerm | None = None


class WireNodeAffinity(Wire, frozen=True):
    """affinity.nodeAffinity. Preferred terms count where a topology places the pods."""

    required_during_scheduling_ignored_during_execution: WireNodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[WirePreferredTerm, ...] | None = None


class WireAffinity(Wire, frozen=True):
    """affinity."""

    node_affinity: WireNodeAffinity | None = None

    @property
    def has_preferences(self) -> bool:
        """Whether some nodes are preferred to others."""
        nodes = self.node_affinity
        return nodes is not None and bool(nodes.preferred_during_scheduling_ignored_during_execution)


class WirePodSpec(Wire, frozen=True):
    """The fields of the spec of a pod or of a pod template that are read.

    `resources` are those of the whole pod, which take precedence over those of its containers. `overhead` is
    filled in by the API server from the runtime class. Absent grace periods mean 30 seconds.
    """

    containers: tuple[WireContainer, ...] | None = None
    init_containers: tuple[WireContainer, ...] | None = None
    resources: WireResources | None = None
    overhead: dict[str, str | int | float] | None = None
    runtime_class_name: str | None = None
    priority_class_name: str | None = None
    node_selector: dict[str, str] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    affinity: WireAffinity | None = None
    tolerations: tuple[WireToleration, ...] | None = None
    scheduling_gates: tuple[dict[str, str], ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class WirePodTemplate(Wire, frozen=True):
    """core/v1 PodTemplateSpec."""

    metadata: Meta | None = None
    spec: WirePodSpec | None = None
