"""The minimum of a gang, as a PodGroup of the scheduler-plugins project gives it to the pods that name it.

    label scheduling.x-k8s.io/pod-group: NAME              the PodGroup NAME of the namespace: spec.minMember
    labels pod-group.scheduling.sigs.k8s.io/name and       no object: the number is a label of the pod
      pod-group.scheduling.sigs.k8s.io/min-available
    label job-name and berth.dev/min-replicas              no object either, for pods that no Job has created

Kueue's own label for groups takes precedence, since it says how many pods there are in total.
Source: scheduler-plugins, apis/scheduling/v1alpha1 and its page on coscheduling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from api import keys
from api.jobs.job import Job
from api.jobs.pod import Pod, claims_job
from api.objects.cluster import PodGroupObject, PodGroupSpec
from api.parsing.decimals import whole_number

_NAMES = (keys.POD_GROUP, keys.POD_GROUP_BEFORE, keys.POD_GROUP_OF_LABELS)
# spec.minMember is a 32-bit field.
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """How many pods of a group must run together. `fault` says what is wrong; `minimum` is then 0.

    `timeout_seconds`: within which they must have nodes after their admission; None: no limit.
    """

    minimum: int = 0
    timeout_seconds: int | None = None
    fault: str = ""


def gang_name(labels: Mapping[str, str]) -> str:
    """Return the PodGroup that these labels name; "" if none, or if Kueue's own label names a group."""
    if labels.get(keys.POD_GROUP_NAME):
        return ""
    return next((labels[key] for key in _NAMES if labels.get(key)), "")


def in_gang(pod: Pod) -> Pod:
    """Return the pod as a member of the PodGroup that it names; the same pod if it names none."""
    name = (gang_name(pod.labels) or _job_name(pod)) if not pod.group else ""
    return replace(pod, gang=name) if name else pod


def _job_name(pod: Pod) -> str:
    """Return the label job-name of a pod that needs others beside it, and that waits for no Job; else ""."""
    # The Job controller writes the label too, and its pods wait through their Job.
    if claims_job(pod.owner):
        return ""
    minimum = whole_number(_min_replicas(pod.annotations, pod.labels))
    # One that may run alone is no gang.
    return pod.labels.get(keys.JOB_NAME, "") if minimum is not None and minimum > 1 else ""


def _min_replicas(annotations: Mapping[str, str], labels: Mapping[str, str]) -> str | None:
    return annotations.get(keys.MIN_REPLICAS) or labels.get(keys.MIN_REPLICAS)


def outside_gang(pod: Pod) -> Pod:
    """Return a member of a gang as a pod by itself."""
    return replace(pod, gang="")


def to_gang(obj: PodGroupObject) -> Gang:
    """Return what a PodGroup asks for. `minAvailable` is read if there is no `minMember`."""
    spec = obj.spec or PodGroupSpec()
    field, found = "minMember", spec.min_member
    if found is None and spec.min_available is not None:
        field, found = "minAvailable", spec.min_available
    if not _is_count(found):
        said = "missing" if found is None else repr(found)
        return Gang(fault=f"spec.{field} is {said}, but must be a whole number from 1")
    timeout = spec.schedule_timeout_seconds
    if timeout is not None and not _is_count(timeout):
        rule = "but must be a whole number of seconds from 1"
        return Gang(fault=f"spec.scheduleTimeoutSeconds is {timeout!r}, {rule}")
    return Gang(minimum=_int(found), timeout_seconds=None if timeout is None else _int(timeout))


def gang_of_texts(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Gang | None:
    """Return the gang whose minimum a pod or Job with these carries itself; None if it carries none."""
    key, text = keys.POD_GROUP_MIN_AVAILABLE, labels.get(keys.POD_GROUP_MIN_AVAILABLE)
    if text is None and not gang_name(labels):
        key, text = keys.MIN_REPLICAS, _min_replicas(annotations, labels)
    if text is None:
        return None
    number = whole_number(text)
    if not _is_count(number):
        return Gang(fault=f"{key} is {text!r}, but must be a whole number from 1")
    return Gang(minimum=_int(number))


def with_minimum(job: Job, gang: Gang | None, *, pods: int = 0) -> Job:
    """Return the Job with the minimum of its gang, as if the Job gave it itself; its own takes precedence.

    A gang as large as the Job leaves it as it is: all of its pods start together anyway. `pods` is how many
    its Workload has, which may be more than the Job has at present.
    """
    if gang is None or keys.JOB_MIN_PARALLELISM in job.annotations:
        return job
    if not 1 <= gang.minimum < max(job.parallelism, pods):
        return job
    return replace(job, annotations={**job.annotations, keys.JOB_MIN_PARALLELISM: str(gang.minimum)})


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
