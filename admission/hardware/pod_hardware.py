"""What a pod's keys say about hardware, wherever a user may write them.

The pod's own metadata comes first, because kube-scheduler and its extender see nothing else; a key that it
does not have is read on its Job. In each place annotations come before labels, and Berth's key before its
alias. A value that cannot be understood counts as absent, because rules must not guess.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from api import keys
from api.jobs.checkpoint_annotations import WORKLOAD_TYPES
from api.jobs.gpu_share import parse_milli
from api.jobs.placement_annotations import read_key
from api.parsing.decimals import whole_number
from api.parsing.gpu_generations import generation_of

TENSOR = "tensor"
CPU_INTENSIVE, GPU_INTENSIVE = "CPU-intensive", "GPU-intensive"
_TYPE_ALIAS = keys.ALIASES[keys.WORKLOAD_TYPE]

Texts = Mapping[str, str]
_NONE: Texts = {}


class PodHardware(msgspec.Struct, frozen=True, kw_only=True):
    """What a pod asks of hardware; empty texts and 0 ask for nothing.

    `memory_mib` is for all GPUs of the pod together, `gpu_milli` its share of one GPU, `generation` the least
    one. `kind` is training, inference or batch; `intensity` is CPU-intensive, GPU-intensive or empty.
    `interconnect` and `parallelism` are in lower case.
    """

    model: str = ""
    memory_mib: int = 0
    generation: int = 0
    interconnect: str = ""
    parallelism: str = ""
    kind: str = ""
    intensity: str = ""
    gpu_milli: int = 0
    has_checkpoints: bool = False

    @property
    def may_be_interrupted(self) -> bool:
        """Whether the pod may lose its node: not inference, and not training without checkpoints."""
        # Batch pods, and pods that do not say, can be started again elsewhere.
        return self.has_checkpoints if self.kind == "training" else self.kind != "inference"


_ASKS_NOTHING = PodHardware()


def read_pod(
    annotations: Texts | None, labels: Texts | None, *, job: Texts = _NONE, reads_aliases: bool = False
) -> PodHardware:
    """Return what a pod with these annotations and labels asks.

    `job` holds what its Job says, labels and annotations together; aliases are read there only if
    `reads_aliases`. On the pod itself they are always read, as by the extender.
    """
    own, of_job = (annotations or _NONE, labels or _NONE), job or _NONE
    # Most pods carry none of the keys, and this is called for each placement.
    if not any(not keys.HARDWARE_KEYS.isdisjoint(one) for one in (*own, of_job)):
        return _ASKS_NOTHING

    def read(key: str) -> str:
        of_pod = read_key(key, own, with_aliases=True)
        return of_pod or read_key(key, (of_job,), with_aliases=reads_aliases)

    kind = read(keys.WORKLOAD_TYPE).lower()
    return PodHardware(
        model=read(keys.WANTED_GPU_MODEL),
        memory_mib=whole_number(read(keys.GPU_MEMORY_MIB)) or 0,
        generation=generation_of(read(keys.GPU_GENERATION)),
        interconnect=read(keys.GPU_INTERCONNECT).lower(),
        parallelism=read(keys.PARALLELISM).lower(),
        kind=kind if kind in WORKLOAD_TYPES else "",
        intensity=_intensity((*reversed(own), of_job) if reads_aliases else tuple(reversed(own))),
        gpu_milli=parse_milli(read(keys.GPU_MILLI)) or 0,
        has_checkpoints=any(not keys.SAVING_KEYS.isdisjoint(one) for one in (own[0], of_job)),
    )


def _intensity(sources: tuple[Texts, ...]) -> str:
    """Return the value of `workload-type` that names a resource, which is beside Berth's own key."""
    values = (source.get(_TYPE_ALIAS, "") for source in sources)
    return next((value for value in values if value in (CPU_INTENSIVE, GPU_INTENSIVE)), "")
