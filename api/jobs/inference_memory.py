"""The GPU memory that a pod of inference uses: `berth.dev/gpu-memory-mib` beside its workload type.

Such pods often request no GPU: several models share GPUs that their runtime opens by itself. What they use of
a node's GPU memory is then known by this key alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from api import keys
from api.jobs.placement_annotations import Metadata, read_key
from api.parsing.decimals import whole_number

INFERENCE = "inference"
# The resource by which nodes and pods count it, in MiB. No object names it, and no quota counts it.
INFERENCE_MEMORY = "inference-gpu-memory"
_NONE: Mapping[str, str] = {}


def inference_mib(own: Metadata, job: Mapping[str, str] = _NONE) -> int:
    """Return the MiB of GPU memory that a pod of inference uses; 0 for other pods, and if it does not say.

    `own` are the annotations and labels of the pod or its template, where the alias of the workload type
    counts as well. `job` is what its Job says; the start writes Berth's keys of it to the pods.
    """
    # Most pods carry none of the keys, and this is called for each of them.
    if not any(one and keys.GPU_MEMORY_MIB in one for one in (*own, job)):
        return 0
    of_job = (job,)
    kind = read_key(keys.WORKLOAD_TYPE, own, with_aliases=True)
    if (kind or read_key(keys.WORKLOAD_TYPE, of_job, with_aliases=False)).lower() != INFERENCE:
        return 0
    return whole_number(read_key(keys.GPU_MEMORY_MIB, (*own, *of_job), with_aliases=False)) or 0
