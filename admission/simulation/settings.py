"""What a simulation assumes about the cluster and its Jobs, the same for every policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import msgspec

from admission.hardware.fit import model_misfit
from admission.hardware.node_hardware import is_spot
from admission.simulation.shapes import MOST_GPUS_PER_POD, GangShape, gang_shape
from admission.simulation.traces import TraceError, TraceJob
from api.keys import NODE_GPU_MODEL
from api.policy import CapacityReservation, QuotaWindow


class Queues(StrEnum):
    """One ClusterQueue for all Jobs, or one per tenant with equal quota in one cohort."""

    ONE = "one"
    TENANT = "tenant"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateKind:
    """The run times that policies know: those that Jobs declare, which are `factor` times the true ones.

    If `is_learned`, those of the other Jobs are learned from Jobs that have ended.
    """

    factor: float = 1.0
    is_learned: bool = False

    def __str__(self) -> str:
        if self.is_learned:
            return "learned"
        return "exact" if self.factor == 1.0 else f"x{self.factor:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """The simulated faults. Mean times between them are in hours, None: never; exponential, by `seed`.

    A lost node is back after `repair_seconds`. A crash interrupts one attempt of a Job: its pods restart
    on the same nodes.
    """

    node_mtbf_hours: float | None = None
    repair_seconds: float = 3600.0
    crash_mtbf_gpu_hours: float | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How Jobs save, for policies that preempt.

    The interval of each Job is drawn log-uniformly between the two limits, by `seed`; `publishing_share` of
    the Jobs report their checkpoints. A Job notices a request to save after `notice_seconds`, because the
    kubelet updates annotations in a pod about once a minute. `on_sigterm`: the Jobs that report also save at
    SIGTERM, and declare it.
    """

    least_interval_seconds: float = 600.0
    most_interval_seconds: float = 7200.0
    publishing_share: float = 0.5
    notice_seconds: float = 60.0
    on_sigterm: bool = False
    seed: int = 0


class FlavorSetting(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of the nodes: one ResourceFlavor. `node_mtbf_hours` replaces that of `Faults` for its nodes."""

    name: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
    nodes: Annotated[int, msgspec.Meta(ge=1)]
    labels: Mapping[str, str] = {}
    cost_per_gpu_hour: Annotated[float, msgspec.Meta(ge=0, le=1e6)] | None = None
    node_mtbf_hours: Annotated[float, msgspec.Meta(ge=1)] | None = None

    def may_run(self, job: TraceJob) -> bool:
        """Return whether every policy may run the Job on these nodes, by its model and type."""
        if model_misfit(job.gpu_model, self.labels.get(NODE_GPU_MODEL, "")) is not None:
            return False
        if job.workload_type == "training":
            return job.checkpoint_seconds is not None or not is_spot(self.labels)
        return job.workload_type != "inference" or not is_spot(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The cluster and the costs. Times are seconds.

    `save_seconds`: from an eviction until the pods are gone, with everything saved. `restart_seconds`: from
    the start of every further attempt until useful work continues. `checkpoint_interval_seconds`: the most
    work that is lost by a fault. `min_runtime_seconds`: how long an attempt runs at least before an equal may
    preempt it. `declaring_share`: the share of the Jobs that declare a run time at all, drawn by the seed of
    the faults and each Job's own id; None means all, or none where run times are learned. `quota_windows` and
    `reservations` apply under every policy; their times count from the first submit, which is Unix time 0.
    `flavors` divide the nodes, in the order of the ClusterQueues; empty means one flavor.
    """

    nodes: int
    gpus_per_node: int
    queues: Queues = Queues.ONE
    estimates: EstimateKind = EstimateKind()
    declaring_share: float | None = None
    save_seconds: float = 30.0
    restart_seconds: float = 30.0
    checkpoint_interval_seconds: float = 1800.0
    min_runtime_seconds: float = 600.0
    faults: Faults = Faults()
    checkpoints: Checkpoints = Checkpoints()
    quota_windows: tuple[QuotaWindow, ...] = ()
    reservations: tuple[CapacityReservation, ...] = ()
    flavors: tuple[FlavorSetting, ...] = ()

    def flavor_at(self, node: int) -> FlavorSetting | None:
        """Return the flavor of a node by its number, None where there is one flavor for all."""
        for flavor in self.flavors:
            if node < flavor.nodes:
                return flavor
            node -= flavor.nodes
        return None

    @property
    def share_declaring(self) -> float:
        """The share of the Jobs that declare a run time, from 0 to 1."""
        if self.declaring_share is None:
            return 0.0 if self.estimates.is_learned else 1.0
        return self.declaring_share

    def saves_every(self, job: TraceJob) -> float:
        """Return the seconds between the Job's periodic checkpoints; more than it runs if it saves none."""
        if not self.flavors or not job.workload_type:
            return job.checkpoint_seconds or self.checkpoint_interval_seconds
        return job.checkpoint_seconds or job.duration_seconds + 1

    @property
    def gpus(self) -> int:
        """All GPUs."""
        return self.nodes * self.gpus_per_node

    def shape(self, gpus: int) -> GangShape:
        """Return the pods of a gang on these nodes. Raises ValueError if it can never fit them."""
        shape = gang_shape(gpus, most_per_pod=max(1, min(MOST_GPUS_PER_POD, self.gpus_per_node)))
        # Report this before the run: such a Job would wait forever, and the run would not end.
        is_too_wide = shape.gpus_per_pod > self.gpus_per_node
        if is_too_wide or (shape.whole_nodes and shape.pods > self.nodes):
            raise ValueError(f"{gpus} GPUs never fit {self.nodes} nodes of {self.gpus_per_node}")
        return shape

    def gpus_held(self, gpus: int) -> int:
        """Return the number of GPUs that other Jobs cannot use while the gang runs."""
        shape = self.shape(gpus)
        # On whole nodes, the GPUs that the gang does not use are not available to others.
        return shape.pods * (self.gpus_per_node if shape.whole_nodes else shape.gpus_per_pod)


def check_fits(jobs: tuple[TraceJob, ...], setting: Setting) -> None:
    """Raise TraceError for the first Job that the nodes could never hold."""
    for job in jobs:
        try:
            shape = setting.shape(job.gpus)
            most = max((one.nodes for one in setting.flavors if one.may_run(job)), default=0)
            if setting.flavors and shape.gpus_per_pod and most < (shape.pods if shape.whole_nodes else 1):
                raise ValueError(f"no flavor that it may use has the nodes for {job.gpus} GPUs")
        except ValueError as error:
            raise TraceError(f"Job {job.id} of {job.tenant} can never run: {error}") from None


def loaded(jobs: tuple[TraceJob, ...], load: float) -> tuple[TraceJob, ...]:
    """Return the Jobs submitted `load` times as fast."""
    return tuple(replace(job, submitted_at=job.submitted_at / load) for job in jobs)
