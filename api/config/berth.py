"""Berth's own settings: the document `ControllerConfig` of berth.dev/v1alpha1.

It is a separate document in the same file as Kueue's `Configuration`, so that Kueue's document needs no
change. The defaults suit a cluster of up to 15,000 Workloads. Each setting states its unit and the
reason for its default.
"""

from typing import Annotated, Literal

from pydantic import Field

from api.config.fields import Section
from api.models.common import DnsLabel

PositiveSeconds = Annotated[float, Field(gt=0, le=3600)]
PositiveNumber = Annotated[int, Field(ge=1, le=1_000_000)]


class Lease(Section):
    """The Lease that elects the leader among several replicas.

    Longer times tolerate slower answers of the API server; shorter times reduce the pause after a leader
    has died without releasing the lease. The defaults are those of Kueue and client-go.
    """

    duration_seconds: PositiveSeconds = 15.0
    """Seconds without a renewal after which another replica may take over. Default 15: with 4, a busy API
    server on two cores cost a leader its lease five times in ten minutes."""
    renew_seconds: PositiveSeconds = 2.0
    """Seconds between renewals. Default 2."""
    deadline_seconds: PositiveSeconds = 10.0
    """Seconds without a successful renewal after which a leader begins no write. Default 10, which leaves
    each write at least 5 s before another replica can lead."""


class Execution(Section):
    """How decisions are written to the API server, and when the cycle waits for the writes."""

    max_in_flight: PositiveNumber = 128
    """Maximum number of concurrent requests to the API server. Default 128; up to that, their number follows
    the latency of the API server, and begins with 32."""
    max_unconfirmed: PositiveNumber = 256
    """Number of decisions not yet confirmed by the API server at which the cycle pauses. Default 256, about
    five seconds of work for an API server on two cores, so that a restart loses little."""
    max_unconfirmed_seconds: PositiveSeconds = 10.0
    """Age in seconds of the oldest unconfirmed decision at which the cycle pauses. Default 10; by then the
    API server is the bottleneck, and further decisions would not help."""
    progress_deadline_seconds: PositiveSeconds = 60.0
    """Seconds within which the control loop finishes what it begins; otherwise the process gives its lease
    back and ends. Default 60: a turn takes less than a second, also with slow servers, and some seconds when
    a term begins with 15,000 Workloads."""


class Events(Section):
    """Kubernetes Events, which report each decision and its reason."""

    per_second: Annotated[float, Field(ge=0, le=10_000)] = 20.0
    """Events per second; 0 disables Events. Default 20, because an Event costs the API server as much as a
    new Workload, and admissions have priority."""
    burst: PositiveNumber = 200
    """Maximum burst above that rate. Default 200, enough for the decisions of one cycle."""


FilterName = Literal["WorkloadType", "NVLinkTopology", "InferenceMemory", "GPUAware"]
ScoreName = Literal["GPUAware", "CostOptimized", "WorkloadIsolation"]


def _asked_for() -> list[FilterName]:
    return ["WorkloadType", "NVLinkTopology"]


class ExtenderScore(Section):
    """One score function of a profile."""

    name: ScoreName
    """Name of the score function."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """Weight relative to the other scores of the profile. Default 1."""


class ExtenderProfile(Section):
    """The filters and scores for pods with a given scheduler name."""

    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)]
    """spec.schedulerName of the pods; a profile of kube-scheduler must have the same name."""
    filters: list[FilterName] = Field(default_factory=_asked_for)
    """Filters, in the order in which they run. Default: the filters that pods request with annotations or
    labels of their own."""
    scores: list[ExtenderScore] = Field(default_factory=list)
    """Scores. Default none: nodes are scored by NUMA node and fabric."""
    percentage_of_nodes_to_score: Annotated[int, Field(ge=0, le=100)] = 100
    """Percentage of the requested nodes that is sufficient: the filter stops when this many have passed, but
    not below 100 nodes. 0 derives it from the number of nodes, from 50% of 100 to 10% of 5,000, and at least
    5%. Default 100, which checks all nodes, because kube-scheduler has already sampled them."""


class ExtenderSettings(Section):
    """The scheduler extender: which filters and scores apply to which pods."""

    required_topologies: list[str] = Field(default_factory=lambda: ["nvlink", "nvswitch"])
    """Values of the node label nvidia.com/gpu-topology that are fast enough for tensor parallelism. Default:
    both fast fabrics, nvlink and nvswitch."""
    min_gpu_memory_gb: Annotated[int, Field(ge=0, le=100_000)] = 8
    """Minimum memory in GB of the GPUs to which GPUAware admits pods. Default 8; smaller GPUs
    are meant for graphics."""
    profiles: list[ExtenderProfile] = Field(default_factory=list)
    """Profiles in addition to the built-in ones; a profile with the name of a built-in one
    replaces it. Default none."""


class ExternalSign(Section):
    """What shows a state of an object: a condition that is True, or one of some values at a path."""

    condition: str = ""
    """Type of a condition in status.conditions that is True."""
    path: str = ""
    """Path of a value, such as .status.phase; in place of condition."""
    values: list[str] = Field(default_factory=list)
    """Values at the path that show the state."""


class ExternalPodSet(Section):
    """Where a kind has a pod set. Paths are written as kubectl writes them: .spec.groups[0].template."""

    name: str = ""
    """Name of the pod set; with `each` the path of its name, by default the key of the entry."""
    template: str
    """Path of its pod template."""
    count: str | Annotated[int, Field(ge=0)] = 1
    """Number of its pods, or the path of that number; a path without a value counts as 1. Default 1."""
    each: str = ""
    """Path of a list or an object. Each of its entries has a pod set, and the other paths are within it."""


class ExternalKind(Section):
    """A kind that is started and stopped by a field of its own, and what Berth reads and writes of it."""

    kind: str
    """The kind, as Kind.version.group."""
    plural: str = ""
    """Its name in URLs. Default: the kind in lower case with an s."""
    suspend: str = ".spec.suspend"
    """Path of the field that suspends an object: true or false. Default .spec.suspend."""
    pod_sets: Annotated[list[ExternalPodSet], Field(min_length=1, max_length=18)]
    """Its pod sets, in the order of the Workload."""
    active: str = ""
    """Path of the number, or the list, of what still runs: quota is given back when it is 0 or empty. Default
    none: quota is given back as soon as the object is suspended."""
    ready: ExternalSign | None = None
    """What shows that all pods are ready. Needed with waitForPodsReady, which counts an object without it as
    never ready."""
    succeeded: ExternalSign | None = None
    """What shows that it has succeeded. Absent for a kind that has no end."""
    failed: ExternalSign | None = None
    """What shows that it has failed."""
    message: str = ""
    """Path of the text that says how it ended."""
    priority_class: str = ""
    """Path of the name of a PriorityClass. Default: that of the first pod template with one."""


class OwnIntegrations(Section):
    """Kinds beside those of Kueue's integrations."""

    external: list[ExternalKind] = Field(default_factory=list)
    """Kinds that Berth starts and stops as these rows say. Default none."""


class Settings(Section):
    """Berth's own settings."""

    shard: DnsLabel = "default"
    """Name of the shard. Controllers with different shards use separate Leases and Redis keys. Default
    "default": one controller for the whole cluster."""
    lease: Lease = Field(default_factory=Lease)
    """The Lease that elects the leader among several replicas."""
    execution: Execution = Field(default_factory=Execution)
    """How decisions are written to the API server."""
    events: Events = Field(default_factory=Events)
    """Kubernetes Events."""
    pod_groups: bool = False
    """Whether pods and Jobs that name a PodGroup of scheduling.x-k8s.io start with its minMember. Default
    false: as in Kueue, the label has no effect, so that another scheduler may act on it."""
    provisioning_requests: bool = True
    """Whether AdmissionChecks of kueue.x-k8s.io/provisioning-request ask the cluster's autoscaler for nodes.
    Default true, as in Kueue; false leaves them to another controller."""
    extender: ExtenderSettings = Field(default_factory=ExtenderSettings)
    """The filters and scores of the scheduler extender."""
    integrations: OwnIntegrations = Field(default_factory=OwnIntegrations)
    """Kinds beside those of Kueue's integrations, each described by a row."""
