"""Berth's own settings: the document `ControllerConfig` of berth.dev/v1alpha1.

It stands beside Kueue's `Configuration`, in the same file, so that Kueue's file needs no change. Every
setting has a default that serves a cluster of up to 15,000 Workloads; each says its unit and why its default
is what it is.
"""

from typing import Annotated

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
