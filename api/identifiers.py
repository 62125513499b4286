"""Where an object names its pod group, and the Workload made for it: in an annotation, or in a label.

The annotation comes first, as in Kueue. Kueue's feature gate WorkloadIdentifierAnnotations says whether it is
read, which holds for a process. A Workload's name that is too long for a label is read in any case.
Source: Kueue, pkg/util/pod/pod.go, pkg/controller/jobframework/utils.go.
"""

from __future__ import annotations

from collections.abc import Mapping

from api import keys

_LONGEST_LABEL = 63

_reads_annotations = True


def set_reads_annotations(is_on: bool) -> None:
    """Say whether annotations name groups and Workloads. Said by the configuration, once for a process."""
    global _reads_annotations
    _reads_annotations = is_on


def pod_group(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the pod group that these name; "" if none."""
    return (
        annotations[keys.POD_GROUP_NAME]
        if names_group_by_annotation(annotations)
        else labels.get(keys.POD_GROUP_NAME, "")
    )


def names_group_by_annotation(annotations: Mapping[str, str]) -> bool:
    """Return whether the annotation names the group, whatever the label says."""
    return _reads_annotations and bool(annotations.get(keys.POD_GROUP_NAME))


def prebuilt_workload(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """Return the Workload that these name as made for their object; "" if none."""
    key = keys.PREBUILT_WORKLOAD_NAME
    named, labelled = annotations.get(key, ""), labels.get(key, "")
    if _reads_annotations:
        return named or labelled
    return labelled or (named if len(named) > _LONGEST_LABEL else "")
