"""The fields that queued objects have in common: their identity, and what their Workload copies.

`QueuedJob` adds what all objects have that are started and stopped as a whole: a Job, and the owners of
`api.jobs.owners`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api import keys
from api.identifiers import prebuilt_workload
from api.objects.common import OwnerReference
from api.workload import NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """An object that is queued itself. `owner` is its controller, None if it has none."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    annotations: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    owner: OwnerReference | None = None
    is_deleted: bool = False
    active_deadline_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def prebuilt_workload(self) -> str:
        """The name of the Workload that another component created for this object; empty if none."""
        return prebuilt_workload(self.labels, self.annotations)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """How a Job finished; `message` is the message of its Complete or Failed condition."""

    is_success: bool
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob(Queued):
    """An object that is started and stopped as a whole.

    `active`: how many of its pods run. `generation` counts the changes of its spec; 0 if the server does not.
    """

    generation: int = 0
    is_suspended: bool = False
    active: int = 0
    outcome: JobOutcome | None = None

    @property
    def queue_name(self) -> str:
        """The LocalQueue that the Job names; empty if none.

        The annotation is Kueue's older form of the label.
        """
        return self.labels.get(keys.QUEUE_NAME) or self.annotations.get(keys.QUEUE_NAME, "")

    @property
    def asks_to_be_elastic(self) -> bool:
        """Whether its number of pods may change while it runs."""
        return self.annotations.get(keys.ELASTIC_JOB) == "true"
