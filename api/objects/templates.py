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
    """One term of required node affinity; terms are alternatives, expressions within one all hold."""

    match_expressions: tuple[WireSelectorRequirement, ...] | None = None
    match_fields: tuple[WireSelectorRequirement, ...] | None = None


class WireNodeSelector(Wire, frozen=True):
    """requiredDuringSchedulingIgnoredDuringExecution."""

    node_selector_terms: tuple[WireNodeSelectorTerm, ...] | None = None


class WireNodeAffinity(Wire, frozen=True):
    """affinity.nodeAffinity; preferred terms are not binding and not read."""

    required_during_scheduling_ignored_during_execution: WireNodeSelector | None = None


class WireAffinity(Wire, frozen=True):
    """affinity."""

    node_affinity: WireNodeAffinity | None = None


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
