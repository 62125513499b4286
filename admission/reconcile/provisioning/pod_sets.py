"""Which pods of a Workload a request is for, and which pod sets share a template in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from api.jobs.pod_template import Template, has_same_needs
from api.provisioning import MergePolicy, ProvisioningConfig
from api.workload import PodSetAssignment, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedPods:
    """The pods of one pod set that are admitted, with their template."""

    name: str
    template: Template
    assignment: PodSetAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """The pods that share a template in a request, the pod set first that gives it its name."""

    pod_sets: tuple[AdmittedPods, ...]

    @property
    def lead(self) -> AdmittedPods:
        """Return the pod set whose template and name count."""
        return self.pod_sets[0]

    @property
    def count(self) -> int:
        """Return the number of pods."""
        return sum(one.assignment.count for one in self.pod_sets)


def requested_pods(
    workload: Workload, body: Mapping[str, Any], config: ProvisioningConfig
) -> tuple[PodGroup, ...]:
    """Return what a request of the Workload is for; () if its autoscaler has nothing to provide.

    `body` is the Workload's object. Pod sets that are admitted without pods, or that request none of the
    managed resources, are left out.
    """
    groups: list[tuple[AdmittedPods, ...]] = []
    for pods in _admitted(workload, body):
        if not _uses(pods.template, config.managed_resources):
            continue
        for index, group in enumerate(groups):
            if _may_share(group[0].template, pods.template, config.merge_policy):
                groups[index] = (*group, pods)
                break
        else:
            groups.append((pods,))
    return tuple(PodGroup(pod_sets=group) for group in groups)


def _admitted(workload: Workload, body: Mapping[str, Any]) -> Iterator[AdmittedPods]:
    assigned = (
        {one.name: one for one in workload.admission.pod_sets} if workload.admission is not None else {}
    )
    for pod_set in (body.get("spec") or {}).get("podSets") or ():
        found = assigned.get(str(pod_set.get("name", "main")))
        if found is not None and found.count > 0 and pod_set.get("count", 0) > 0:
            yield AdmittedPods(name=found.name, template=pod_set.get("template") or {}, assignment=found)


def _uses(template: Template, resources: frozenset[str]) -> bool:
    """Return whether a container requests, or is limited in, one of the resources; True for none."""
    spec = template.get("spec") or {}
    containers: Sequence[Mapping[str, Any]] = (
        *(spec.get("initContainers") or ()),
        *(spec.get("containers") or ()),
    )
    return not resources or any(
        resource in resources
        for container in containers
        for amounts in (container.get("resources") or {}).values()
        for resource in amounts or ()
    )


def _may_share(one: Template, other: Template, policy: MergePolicy) -> bool:
    match policy:
        case MergePolicy.NONE:
            return False
        case MergePolicy.IDENTICAL_TEMPLATES:
            return one == other
        case MergePolicy.IDENTICAL_REQUIREMENTS:
            return has_same_needs(one, other)
