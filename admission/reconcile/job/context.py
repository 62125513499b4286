"""The state of the cluster and the configuration on which the reconciliation of Jobs depends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from api.jobs.gang import Gang
from api.jobs.job_workload import NO_KEYS, CopiedKeys
from api.jobs.owners.row import Read
from api.jobs.pod import Pod
from api.jobs.queued_object import QueuedJob
from api.objects.common import WireToleration
from api.reason_words import ReasonWords
from api.workload import PodSetAssignment, Workload, WorkloadKey

FlavorInjection = Callable[[PodSetAssignment], tuple[Mapping[str, str], Sequence[WireToleration]]]


class Ancestor(StrEnum):
    """The state of the topmost queued ancestor of a Job in its chain of controllers.

    COUNTED: the quota of the ancestor's Workload includes the Job, as that of a JobSet includes its Jobs.
    """

    NONE = "None"
    WAITING = "Waiting"
    ADMITTED = "Admitted"
    COUNTED_WAITING = "CountedWaiting"
    COUNTED_ADMITTED = "CountedAdmitted"
    TOO_DEEP = "TooDeep"


COUNTED = frozenset({Ancestor.COUNTED_WAITING, Ancestor.COUNTED_ADMITTED})


class PodOwner(StrEnum):
    """Whether the Job, or other owner, that a new pod names as its controller waits for the pod.

    Any user who may create pods can name any owner, so the reference alone proves nothing.
    """

    # The pod names no Job.
    NONE = "None"
    # The Job controller may have created the pod, and keeps no more pods than the Job has.
    COUNTED = "Counted"
    NOT_COUNTED = "NotCounted"
    # No such Job is known.
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClass:
    """A scheduling.k8s.io PriorityClass."""

    value: int
    is_global_default: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """The configuration for Jobs. The defaults are Kueue's.

    `queues_plain_pods`: whether pods are queued that do not serve for a Deployment or the like. `gates_off`:
    Kueue's feature gates that are switched off. `copied`: labels and annotations that a Workload copies.
    `waits_for_pods` (waitForPodsReady): whether PodsReady is reported. `reclaims_pods` (feature gate
    ReclaimablePods): whether quota that a Job needs no more is given back before its end.
    `has_class_defaults` (feature gate WorkloadPriorityClassDefaulting): whether a WorkloadPriorityClass named
    default applies to Jobs and pods that name none. `has_slices`
    (feature gate ElasticJobsViaWorkloadSlices): whether elastic Jobs get slices; otherwise they are queued
    like any other. `requeues_single_pods`: whether the Workload of a pod that was evicted queues again,
    though the pod has ended. `words`: what conditions call reasons.
    """

    manages_without_queue_name: bool = False
    queues_plain_pods: bool = True
    gates_off: frozenset[str] = frozenset()
    copied: CopiedKeys = NO_KEYS
    waits_for_pods: bool = True
    reclaims_pods: bool = True
    has_class_defaults: bool = False
    has_slices: bool = True
    requeues_single_pods: bool = False
    words: ReasonWords = field(default_factory=ReasonWords)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """What a Job's reconciliation needs to know. The mappings may be live, and are only read.

    `injection` returns node labels and tolerations of the flavors assigned to a pod set.
    `is_namespace_managed` evaluates managedJobsNamespaceSelector, and `is_pod_selected` evaluates
    integrations.podOptions on the namespace and labels of a pod that is queued itself. `is_domain`
    returns whether a value names a domain of any topology. `awaits_ends` returns whether a Workload's
    quota is kept until the last pod of its Job has ended. `saved_at` returns when a Job's last checkpoint
    was complete, as its pods report. `pods_in_use` returns how many pods of each pod set of an elastic Job,
    by its first slice, run or have yet to end. `may_use_class` returns whether a WorkloadPriorityClass may be
    used in a namespace, `may_use_pod_class` the same of a PriorityClass. `ancestor` and `pod_owner` judge the
    controllers that a Job and a new pod name. `gang` returns what the PodGroup of these labels in a
    namespace asks for; None: PodGroups are not read. `read` returns an object that an
    owner refers to for what its pods are.
    """

    injection: FlavorInjection
    settings: JobSettings = field(default_factory=JobSettings)
    is_namespace_managed: Callable[[str], bool] = lambda _: True
    is_pod_selected: Callable[[str, Mapping[str, str]], bool] = lambda *_: True
    is_domain: Callable[[str], bool] = lambda _: True
    saved_at: Callable[[QueuedJob], float | None] = lambda _: None
    pods_in_use: Callable[[WorkloadKey], Mapping[str, int]] = lambda _: {}
    awaits_ends: Callable[[Workload], bool] = lambda _: False
    ancestor: Callable[[QueuedJob], Ancestor] = lambda _: Ancestor.NONE
    pod_owner: Callable[[Pod], PodOwner] = lambda _: PodOwner.NONE
    gang: Callable[[str, Mapping[str, str]], Gang | None] | None = None
    read: Read = lambda *_: None
    workload_priority_classes: Mapping[str, int] = field(default_factory=dict)
    may_use_class: Callable[[str, str], bool] = lambda *_: True
    may_use_pod_class: Callable[[str, str], bool] = lambda *_: True
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
