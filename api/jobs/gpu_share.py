"""The share of a GPU that a pod asks for: `berth.dev/gpu-milli`, and its part of the GPU's memory.

The pod mounts what the cluster shares GPUs by: a slice (`nvidia.com/gpu.shared: 1`, or `nvidia.com/gpu: 1`
with HAMi or with slices under that name), a vGPU of Volcano, or no device at all. A pod with more than one
GPU has whole ones, so that its key counts for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from api import keys
from api.parsing.decimals import whole_number

WHOLE = 1000
"""The milli of one GPU."""

Sources = tuple[Mapping[str, str] | None, ...]


class GpuShare(NamedTuple):
    """What a pod uses of one GPU: thousandths of it, and MiB of its memory; 0 where it does not say."""

    milli: int
    mib: int = 0


def parse_milli(text: str | None) -> int | None:
    """Return the thousandths of a GPU, from 1 to 1000; None for any other text."""
    milli = whole_number(text)
    return milli if milli is not None and 1 <= milli <= WHOLE else None


def gpu_share(sources: Sources, gpus: int) -> GpuShare | None:
    """Return the share that a pod with this number of GPUs asks for; None where it asks for none.

    The first source that has a key decides about it; an empty value leaves it unset.
    """
    text = _read(keys.GPU_MILLI, sources)
    milli = parse_milli(text) if text else None
    if milli is None or gpus > 1:
        return None
    return GpuShare(milli, whole_number(_read(keys.GPU_MEMORY_MIB, sources)) or 0)


def share_in(amounts: Mapping[str, int]) -> GpuShare | None:
    """Return the share of a GPU among what a pod takes of its node; None where it has none."""
    milli = amounts.get(keys.GPU_MILLI)
    return GpuShare(milli, amounts.get(keys.GPU_MEMORY_MIB, 0)) if milli else None


def gpu_ids(annotations: Mapping[str, str], most: int) -> tuple[int, ...]:
    """Return the indexes of the node's GPUs that a pod was given; () where they are not recorded.

    Parts that are not numbers are left out, so that the others still count; an index that is named twice
    counts once. More than `most` GPUs, which the pod requests, count as not recorded: a user that may write
    pods could otherwise keep others off all GPUs of a node.
    """
    parts = annotations.get(keys.GPU_IDS, "").split(",")
    ids = dict.fromkeys(whole_number(part.strip()) for part in parts)
    found = tuple(one for one in ids if one is not None)
    return found if len(found) <= most else ()


def gpu_ids_fault(annotations: Mapping[str, str], most: int) -> str:
    """Return what is wrong with the GPUs that a pod is said to have; "" for nothing. See `gpu_ids`."""
    text = annotations.get(keys.GPU_IDS, "")
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if any(whole_number(part) is None for part in parts):
        return (
            f"{keys.GPU_IDS} is {text!r}, but must be numbers of GPUs such as 0,1; other parts do not count"
        )
    if len({*parts}) > most:
        return f"{keys.GPU_IDS} is {text!r}, but the pod requests {most}; it counts by what it requests"
    return ""


def gpu_share_fault(sources: Sources, gpus: int) -> str | None:
    """Return a sentence where the key contradicts the GPUs that each pod requests; otherwise None."""
    text = _read(keys.GPU_MILLI, sources)
    if not text or parse_milli(text) is None or gpus <= 1:
        return None
    return (
        f"{keys.GPU_MILLI} is {text}, but each pod requests {gpus} GPUs; a share is one of a single GPU, so"
        " it is ignored: remove it, or request at most one"
    )


def _read(key: str, sources: Sources) -> str:
    return next((text for source in sources if source and (text := source.get(key))), "")
