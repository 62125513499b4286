"""What a simulation assumes about the cluster and its Jobs, whatever the policy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from admission.simulation.shapes import MOST_GPUS_PER_POD, GangShape, gang_shape
from admission.simulation.traces import TraceError, TraceJob
from api.policy import CapacityReservation, QuotaWindow


class Queues(StrEnum):
    """One ClusterQueue for all, or one a tenant of equal quota in one cohort."""

    ONE = "one"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateKind:
    """How well run times are known to policies that read them: `factor` times the truth, or `is_learned`
    from Jobs that have finished.
    """

    factor: float = 1.0
    is_learned: bool = False

    def __str__(self) -> str:
        if self.is_learned:
            return "learned"
        return "exact" if self.factor == 1.0 else f"x{self.factor:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What breaks. Mean times between failures in hours, None: never; both are exponential, by `seed`.

    A node that is lost comes back after `repair_seconds`. A crash ends one attempt of a Job in place: its
    pods start again on the same nodes.
    """

    node_mtbf_hours: float | None = None
    repair_seconds: float = 3600.0
    crash_mtbf_gpu_hours: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How Jobs save by themselves, for policies that preempt: every so many seconds, drawn log-uniformly for
    each Job between the two; `publishing_share` of them tell. Drawn by `seed`. A Job hears `notice_seconds`
    later that it is asked to save: the kubelet brings an annotation into a pod once a minute. `on_sigterm`:
    those that tell save when they are told to end, and say so.
    """

    least_interval_seconds: float = 600.0
    most_interval_seconds: float = 7200.0
    publishing_share: float = 0.5
    notice_seconds: float = 60.0
    on_sigterm: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The cluster and the costs. Times are seconds.

    `save_seconds`: from an eviction until the pods are gone, everything saved. `restart_seconds`: from the
    start of every further attempt until useful work goes on. `checkpoint_interval_seconds`: what is lost at
    most when nothing can be saved any more. `min_runtime_seconds`: what an attempt runs at least before it
    gives way to an equal. `quota_windows` and `reservations` hold under every policy; their instants count
    from the first submit, as seconds of Unix time do from 1970.
    """

    nodes: int
    gpus_per_node: int
    queues: Queues = Queues.ONE
    estimates: EstimateKind = EstimateKind()
    save_seconds: float = 30.0
    restart_seconds: float = 30.0
    checkpoint_interval_seconds: float = 1800.0
    min_runtime_seconds: float = 600.0
    faults: Faults = Faults()
    checkpoints: Checkpoints = Checkpoints()
    quota_windows: tuple[QuotaWindow, ...] = ()
    reservations: tuple[CapacityReservation, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    def shape(self, gpus: int) -> GangShape:
        """Return how a gang is cut into pods on these nodes. Raises ValueError where it never fits them."""
        shape = gang_shape(gpus, most_per_pod=max(1, min(MOST_GPUS_PER_POD, self.gpus_per_node)))
        # Told before anything runs: such a Job would wait to the end of time, and the run with it.
        is_too_wide = shape.gpus_per_pod > self.gpus_per_node
        if is_too_wide or (shape.whole_nodes and shape.pods > self.nodes):
            raise ValueError(f"{gpus} GPUs never fit {self.nodes} nodes of {self.gpus_per_node}")
        return shape

    def gpus_held(self, gpus: int) -> int:
        """Return how many GPUs nobody else can use while the gang runs: on whole nodes all of them."""
        shape = self.shape(gpus)
        # On whole nodes what a gang leaves over of them is nobody else's.
        return shape.pods * (self.gpus_per_node if shape.whole_nodes else shape.gpus_per_pod)


def check_fits(jobs: tuple[TraceJob, ...], setting: Setting) -> None:
    """Raise TraceError for the first Job that the nodes could never hold."""
    for job in jobs:
        try:
            setting.shape(job.gpus)
        except ValueError as error:
            raise TraceError(f"Job {job.id} of {job.tenant} can never run: {error}") from None


def loaded(jobs: tuple[TraceJob, ...], load: float) -> tuple[TraceJob, ...]:
    """Return the Jobs submitted `load` times as fast."""
    return tuple(replace(job, submitted_at=job.submitted_at / load) for job in jobs)
