"""Berth's own settings: the document `ControllerConfig` of berth.dev/v1alpha1.

It stands beside Kueue's `Configuration`, in the same file, so that Kueue's file needs no change. Every
setting has a default that serves a cluster of up to 15,000 Workloads; each says its unit and why its default
is what it is.
"""

from typing import Annotated, Literal

from pydantic import Field

from api.config.fields import Section
from api.models.common import DnsLabel

PositiveSeconds = Annotated[float, Field(gt=0, le=3600)]
PositiveNumber = Annotated[int, Field(ge=1, le=1_000_000)]


class Lease(Section):
    """The Lease by which one of several replicas decides. Longer times bear longer outages of the API server;
    shorter ones mean a shorter pause when a leader dies."""

    duration_seconds: PositiveSeconds = 4.0
    """Seconds that a silent leader is believed in. Default 4: no admission waits longer for a dead leader."""
    renew_seconds: PositiveSeconds = 1.0
    """Seconds between renewals. Default 1: two may fail before the deadline."""
    deadline_seconds: PositiveSeconds = 2.5
    """Seconds without renewal after which a leader stops by itself. Default 2.5: that leaves 1.5 s, more than
    any of its requests may take, before another can lead."""


class Execution(Section):
    """How decisions are carried out, and when the cycle waits for them."""

    max_in_flight: PositiveNumber = 32
    """Requests to the API server at once. Default 32: more did not raise throughput on a busy API server."""
    max_unconfirmed: PositiveNumber = 256
    """Decisions not yet seen back from the API server at which the cycle pauses. Default 256: about five
    seconds of work at the speed that an API server on two cores reaches, so little is lost to a restart."""
    max_unconfirmed_seconds: PositiveSeconds = 10.0
    """Age in seconds of the oldest such decision at which the cycle pauses. Default 10: by then the API
    server, and not the queue, needs attention."""


class Events(Section):
    """Kubernetes Events, which tell people what was decided and why."""

    per_second: Annotated[float, Field(ge=0, le=10_000)] = 20.0
    """Events per second, 0 for none. Default 20: an Event costs the API server as much as a new Workload, and
    admissions go first."""
    burst: PositiveNumber = 200
    """Events above that rate at once. Default 200: a cycle's worth of decisions is told at once."""


FilterName = Literal["WorkloadType", "NVLinkTopology", "InferenceMemory", "GPUAware"]
ScoreName = Literal["GPUAware", "CostOptimized", "WorkloadIsolation"]


def _asked_for() -> list[FilterName]:
    return ["WorkloadType", "NVLinkTopology"]


class ExtenderScore(Section):
    """One score of a profile."""

    name: ScoreName
    """Which one."""
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """How much it counts beside the profile's others. Default 1."""


class ExtenderProfile(Section):
    """The rules for pods of one scheduler name."""

    scheduler_name: Annotated[str, Field(min_length=1, max_length=253)]
    """spec.schedulerName of the pods; a profile of kube-scheduler must bear this name, too."""
    filters: list[FilterName] = Field(default_factory=_asked_for)
    """Filters in the order in which they are asked. Default: those that pods ask for by keys of their own."""
    scores: list[ExtenderScore] = Field(default_factory=list)
    """Scores. Default none: by NUMA node and fabric."""
    percentage_of_nodes_to_score: Annotated[int, Field(ge=0, le=100)] = 100
    """Percent of the nodes asked about that are enough: the filter stops once so many have passed, but not
    below 100 nodes. 0 goes by their number, from 50% of 100 to 10% of 5,000, never below 5%. Default 100,
    which is all: kube-scheduler has taken its own sample before it asks."""


class ExtenderSettings(Section):
    """The scheduler extender: which rules it asks for whose pods."""

    required_topologies: list[str] = Field(default_factory=lambda: ["nvlink", "nvswitch"])
    """Values of the node label nvidia.com/gpu-topology on which tensor parallelism runs. Default both fast
    fabrics."""
    min_gpu_memory_gb: Annotated[int, Field(ge=0, le=100_000)] = 8
    """Memory in GB of the GPUs that GPUAware lets pods on, at least. Default 8: what is smaller is for
    screens."""
    profiles: list[ExtenderProfile] = Field(default_factory=list)
    """Profiles besides the built-in ones; one of the same name takes its place. Default none."""


class Settings(Section):
    """Berth's own settings."""

    shard: DnsLabel = "default"
    """Name of the shard. Controllers with different shards have Leases and keys in Redis of their own.
    Default "default": one controller for the whole cluster."""
    lease: Lease = Field(default_factory=Lease)
    """The Lease by which one of several replicas decides."""
    execution: Execution = Field(default_factory=Execution)
    """How decisions are carried out."""
    events: Events = Field(default_factory=Events)
    """Kubernetes Events."""
    extender: ExtenderSettings = Field(default_factory=ExtenderSettings)
    """The scheduler extender's rules."""
