"""Rules for new Workloads that a schema cannot express: for the spec, and for the status if one is given.

Source: Kueue, pkg/webhooks/workload_webhook.go.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from api import keys
from api.models.common import Quantity
from api.models.pod_template import Container, PodTemplate, ResourceRequirements
from api.models.topology_assignment import AssignmentSlice, TopologyAssignment
from api.models.workload import PodSet, PriorityClassRef, TopologyRequest, Workload
from api.models.workload_status import AdmissionCheckState, PodSetAssignment, WorkloadStatus
from api.parsing.faults import ABSENT, FieldError
from api.parsing.quantities import amount, parse
from api.validation.gates import gate_errors
from api.validation.names import annotation_errors, label_errors, toleration_errors

_INT32 = re.compile(r"[+-]?[0-9]{1,10}")
_PODS = "pods"


def workload_errors(workload: Workload) -> Iterator[FieldError]:
    """Yield the faults of a new Workload."""
    spec, annotations = workload.spec, workload.metadata.annotations or {}
    pod_sets = spec.pod_sets or []
    if spec.priority_class_ref is not None:
        yield from _priority_errors(spec.priority_class_ref, spec.priority)
    for index, pod_set in enumerate(pod_sets):
        yield from _pod_set_errors(f"spec.podSets[{index}]", pod_set)
    yield from _partial_errors(pod_sets, is_elastic=annotations.get(keys.ELASTIC_JOB) == "true")
    yield from gate_errors(annotations)
    yield from _boost_errors(annotations.get(keys.PRIORITY_BOOST))
    if workload.status is not None:
        yield from _status_errors(workload.status, {pod_set.name: pod_set for pod_set in pod_sets})


def _priority_errors(ref: PriorityClassRef, priority: int | None) -> Iterator[FieldError]:
    if priority is None:
        yield FieldError(path="spec.priority", value=ABSENT, rule="spec.priorityClassRef needs it")
    wanted = "WorkloadPriorityClass" if ref.group == keys.KUEUE_GROUP else "PriorityClass"
    if ref.kind != wanted:
        yield FieldError(
            path="spec.priorityClassRef.kind", value=ref.kind, rule=f"must be {wanted} for group {ref.group}"
        )


def _pod_set_errors(path: str, pod_set: PodSet) -> Iterator[FieldError]:
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        yield FieldError(
            path=f"{path}.minCount", value=pod_set.min_count, rule=f"must be at most count ({pod_set.count})"
        )
    yield from _template_errors(f"{path}.template", pod_set.template)
    if pod_set.topology_request is not None:
        yield from _topology_errors(f"{path}.topologyRequest", pod_set.topology_request)


def _template_errors(path: str, template: PodTemplate) -> Iterator[FieldError]:
    if template.metadata is not None:
        yield from label_errors(f"{path}.metadata.labels", template.metadata.labels)
        yield from annotation_errors(f"{path}.metadata.annotations", template.metadata.annotations)
    spec = template.spec
    if spec is None:
        return
    yield from _container_errors(f"{path}.spec.containers", spec.containers)
    yield from _container_errors(f"{path}.spec.initContainers", spec.init_containers or [])
    yield from _resource_errors(f"{path}.spec.resources", spec.resources)
    yield from _amount_errors(f"{path}.spec.overhead", spec.overhead)


def _container_errors(path: str, containers: list[Container]) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        yield from _resource_errors(f"{path}[{index}].resources", container.resources)


def _resource_errors(path: str, resources: ResourceRequirements | None) -> Iterator[FieldError]:
    if resources is not None:
        yield from _amount_errors(f"{path}.requests", resources.requests)
        yield from _amount_errors(f"{path}.limits", resources.limits)


def _amount_errors(path: str, amounts: Mapping[str, Quantity] | None) -> Iterator[FieldError]:
    for name, quantity in (amounts or {}).items():
        if name == _PODS:
            rule = "pods are counted automatically and cannot be requested"
            yield FieldError(path=f"{path}[{name}]", value=quantity, rule=rule)
        if parse(quantity) < 0:
            yield FieldError(path=f"{path}[{name}]", value=quantity, rule="must not be negative")


def _topology_errors(path: str, request: TopologyRequest) -> Iterator[FieldError]:
    level, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    if (level is None) != (size is None):
        missing = "podSetSliceRequiredTopology" if level is None else "podSetSliceSize"
        rule = "podSetSliceRequiredTopology and podSetSliceSize go together"
        yield FieldError(path=f"{path}.{missing}", value=ABSENT, rule=rule)


def _partial_errors(pod_sets: list[PodSet], *, is_elastic: bool) -> Iterator[FieldError]:
    partial = [index for index, pod_set in enumerate(pod_sets) if pod_set.min_count is not None]
    for index in partial[1:]:
        yield FieldError(
            path=f"spec.podSets[{index}].minCount",
            value=pod_sets[index].min_count,
            rule="at most one pod set may have it",
        )
    if is_elastic and partial:
        yield FieldError(
            path=f"spec.podSets[{partial[0]}].minCount",
            value=pod_sets[partial[0]].min_count,
            rule="cannot be combined with an elastic job, which grows and shrinks by itself",
        )


def _boost_errors(boost: str | None) -> Iterator[FieldError]:
    if boost is not None and not (_INT32.fullmatch(boost) and -(2**31) <= int(boost) < 2**31):
        path = f"metadata.annotations[{keys.PRIORITY_BOOST}]"
        yield FieldError(path=path, value=boost, rule="must be a whole number of 32 bits")


def _status_errors(status: WorkloadStatus, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    conditions = {condition.type: condition.status for condition in status.conditions or ()}
    is_reserved = conditions.get("QuotaReserved") == "True"
    if is_reserved and status.admission is None:
        yield FieldError(path="status.admission", value=ABSENT, rule="QuotaReserved=True needs it")
    assignments = (status.admission.pod_set_assignments or []) if status.admission else []
    if is_reserved and status.admission is not None and len(assignments) != len(pod_sets):
        yield FieldError(
            path="status.admission.podSetAssignments",
            value=[assignment.name for assignment in assignments],
            rule=f"must have one entry for each of the {len(pod_sets)} podSets",
        )
    for index, assignment in enumerate(assignments):
        path = f"status.admission.podSetAssignments[{index}]"
        yield from _assignment_errors(path, assignment, pod_sets)
    yield from _reclaimable_errors(status, pod_sets)
    for index, check in enumerate(status.admission_checks or ()):
        yield from _check_errors(f"status.admissionChecks[{index}]", check, pod_sets)
    if status.cluster_name and status.nominated_cluster_names:
        rule = "clusterName and nominatedClusterNames exclude each other"
        yield FieldError(path="status.clusterName", value=status.cluster_name, rule=rule)


def _unknown(path: str, name: str, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    if name not in pod_sets:
        yield FieldError(
            path=f"{path}.name", value=name, rule=f"must be one of the podSets: {', '.join(pod_sets)}"
        )


def _assignment_errors(
    path: str, assignment: PodSetAssignment, pod_sets: Mapping[str, PodSet]
) -> Iterator[FieldError]:
    yield from _unknown(path, assignment.name, pod_sets)
    count = assignment.count or 0
    for name, quantity in (assignment.resource_usage or {}).items():
        if count > 0 and amount(name, quantity) % count:
            rule = f"must be divisible by count ({count})"
            yield FieldError(path=f"{path}.resourceUsage[{name}]", value=quantity, rule=rule)
    if assignment.topology_assignment is not None:
        yield from _placement_errors(f"{path}.topologyAssignment", assignment.topology_assignment)


def _placement_errors(path: str, placement: TopologyAssignment) -> Iterator[FieldError]:
    for index, part in enumerate(placement.slices):
        place = f"{path}.slices[{index}]"
        if len(part.values_per_level) != len(placement.levels):
            yield FieldError(
                path=f"{place}.valuesPerLevel",
                value=len(part.values_per_level),
                rule=f"must have one entry for each of the {len(placement.levels)} levels",
            )
        yield from _slice_errors(place, part)


def _slice_errors(path: str, part: AssignmentSlice) -> Iterator[FieldError]:
    counts, wanted = part.pod_counts, part.domain_count
    if wanted > 1 and not counts.individual and not any(one.individual for one in part.values_per_level):
        rule = "must be 1 without a list of individual values: two domains differ in a level"
        yield FieldError(path=f"{path}.domainCount", value=wanted, rule=rule)
    yield from _form_errors(f"{path}.podCounts", counts.universal, counts.individual, wanted)
    for index, values in enumerate(part.values_per_level):
        roots = values.individual.roots if values.individual else None
        yield from _form_errors(f"{path}.valuesPerLevel[{index}]", values.universal, roots, wanted)


def _form_errors(
    path: str, universal: object, individual: Sequence[object] | None, wanted: int
) -> Iterator[FieldError]:
    """Yield the faults of a field that holds either one value for all domains or one value per domain."""
    if (universal is None) == (individual is None):
        value = ABSENT if universal is None else universal
        rule = "exactly one of universal and individual must be set"
        yield FieldError(path=path, value=value, rule=rule)
    elif individual is not None and len(individual) != wanted:
        rule = f"must have domainCount ({wanted}) entries"
        yield FieldError(path=f"{path}.individual", value=len(individual), rule=rule)


def _reclaimable_errors(status: WorkloadStatus, pod_sets: Mapping[str, PodSet]) -> Iterator[FieldError]:
    for index, reclaimable in enumerate(status.reclaimable_pods or ()):
        path = f"status.reclaimablePods[{index}]"
        yield from _unknown(path, reclaimable.name, pod_sets)
        pod_set = pod_sets.get(reclaimable.name)
        if pod_set is not None and reclaimable.count > pod_set.count:
            rule = f"must be at most the pod set's count ({pod_set.count})"
            yield FieldError(path=f"{path}.count", value=reclaimable.count, rule=rule)


def _check_errors(
    path: str, check: AdmissionCheckState, pod_sets: Mapping[str, PodSet]
) -> Iterator[FieldError]:
    for index, update in enumerate(check.pod_set_updates or ()):
        place = f"{path}.podSetUpdates[{index}]"
        yield from _unknown(place, update.name, pod_sets)
        yield from label_errors(f"{place}.labels", update.labels)
        yield from annotation_errors(f"{place}.annotations", update.annotations)
        yield from label_errors(f"{place}.nodeSelector", update.node_selector)
        yield from toleration_errors(f"{place}.tolerations", update.tolerations)
