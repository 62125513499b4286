"""Jobs and Pods, with the fields that the simulated controllers read."""

from __future__ import annotations

from typing import Final

import msgspec

from api.keys import COMPLETION_INDEX
from api.objects.common import Meta, Wire, WireCondition
from api.objects.templates import WirePodSpec

FINISHED_PHASES: Final = ("Succeeded", "Failed")


class PodMeta(Meta, frozen=True):
    """metadata of a pod, including the field that its kubelet needs to end it."""

    # Set by the deletion; it may be shorter than the grace period of the pod itself.
    deletion_grace_period_seconds: int | None = None


class PodSpec(WirePodSpec, frozen=True):
    """spec of a pod."""

    priority: int | None = None
    # Pods for another scheduler are ignored.
    scheduler_name: str = "default-scheduler"


class PodStatus(Wire, frozen=True):
    """status of a pod."""

    phase: str = "Pending"
    conditions: tuple[WireCondition, ...] | None = None
    start_time: str | None = None


class Pod(Wire, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def is_finished(self) -> bool:
        """Whether its containers have ended permanently."""
        return self.status.phase in FINISHED_PHASES

    @property
    def is_leaving(self) -> bool:
        """Whether its deletion was requested."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_active(self) -> bool:
        """Whether a Job counts it as active."""
        return not self.is_finished and not self.is_leaving

    @property
    def is_ready(self) -> bool:
        """Whether its Ready condition is True."""
        return any(each.type == "Ready" and each.status == "True" for each in self.status.conditions or ())

    @property
    def index(self) -> int | None:
        """Its completion index in an Indexed Job, or None."""
        text = (self.metadata.annotations or {}).get(COMPLETION_INDEX)
        return int(text) if text is not None else None

    @property
    def owner_uid(self) -> str:
        """The uid of its controller, or ""."""
        return next((each.uid for each in self.metadata.owner_references or () if each.controller), "")


class JobSpec(Wire, frozen=True):
    """spec of a Job. The template stays undecoded, because pods are created from all of it."""

    template: msgspec.Raw = msgspec.Raw(b"{}")
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    managed_by: str | None = None


class JobStatus(Wire, frozen=True):
    """status of a Job."""

    active: int = 0
    ready: int | None = None
    terminating: int | None = None
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    conditions: tuple[WireCondition, ...] | None = None


class Job(Wire, frozen=True):
    """A Job."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def condition(self, type_: str) -> WireCondition | None:
        """Return the condition of this type, or None."""
        return next((each for each in self.status.conditions or () if each.type == type_), None)

    def has_condition(self, type_: str) -> bool:
        """Return whether the condition of this type is True."""
        condition = self.condition(type_)
        return condition is not None and condition.status == "True"

    @property
    def is_finished(self) -> bool:
        """Whether it is complete or has failed."""
        return self.has_condition("Complete") or self.has_condition("Failed")
