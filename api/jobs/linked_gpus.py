"""Whether the GPUs of a pod must be linked: `berth.dev/parallelism: ddp`, and more than one GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api import keys

DDP = "ddp"
"""Data parallelism: each pod's GPUs exchange gradients, so they must be in one NVLink island."""


def asks_for_links(sources: Sequence[Mapping[str, str] | None], gpus: int) -> bool:
    """Return whether a pod with this number of GPUs asks for links between them.

    The first source that has the key decides; an empty value leaves it unset. A profile of the extender may
    leave out the filter that checks it.
    """
    found = (text for source in sources if source and (text := source.get(keys.PARALLELISM)))
    return gpus > 1 and next(found, "").lower() == DDP
