"""Placement annotations of a Workload, and their aliases without the berth.dev/ prefix.

A key is looked up on the Workload (which copies it from its Job), then on the pod template; in
each, annotations come before labels. If the policy has `aliases: Articles`, the alias is read
after Berth's own key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from api import keys
from api.jobs.gpu_share import parse_milli
from api.jobs.static_address import CHOICES
from api.parsing.decimals import whole_number
from api.parsing.gpu_generations import generation_of
from api.workload import PodSet, Workload

_BANDWIDTH = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*([MGT])(?:b|bit|bps|bit/s|b/s)?", re.IGNORECASE)
_MBIT = {"M": 1, "G": 1000, "T": 1_000_000}

STRATEGIES = ("consolidated", "distributed", "balanced", "packed")
PARALLELISMS = ("ddp", "tensor", "none")

Metadata = tuple[Mapping[str, str] | None, ...]


def sources_of(workload: Workload, pod_set: PodSet | None) -> Metadata:
    """Return where the keys of a Workload are looked up, for this pod set; None for no template."""
    metadata = pod_set.template.metadata if pod_set is not None else None
    own = (metadata.annotations, metadata.labels) if metadata is not None else ()
    return (workload.annotations, *own)


def read_key(key: str, sources: Sequence[Mapping[str, str] | None], *, with_aliases: bool) -> str:
    """Return the value of the key, or else of its alias, in the first source that has one.

    Empty if none has.
    """
    # Berth's own key is looked up in every source before the alias: an alias on the Workload must not hide
    # Berth's own key on the template.
    names = (key, keys.ALIASES[key]) if with_aliases and key in keys.ALIASES else (key,)
    for name in names:
        for source in sources:
            text = (source or {}).get(name)
            # An empty value means that a template leaves the key unset.
            if text:
                return text
    return ""


def parse_bandwidth(text: str) -> int | None:
    """Return the Mbit/s of "100Gb", "200 Gbps" or "1.6T", or None if the text is not a bandwidth.

    The unit is bits, as usual for networks. An upper-case B is read as bits too, since labels
    often mix the two.
    """
    match = _BANDWIDTH.fullmatch(text.strip())
    # The pattern limits the number of digits, so that float is exact enough for Mbit/s and never overflows.
    return None if match is None else round(float(match[1]) * _MBIT[match[2].upper()])


def annotation_faults(sources: Metadata) -> Iterator[str]:
    """Yield a sentence for each value that cannot be parsed; the key then counts as absent."""
    for key, is_good, expected in _VALUES:
        for name in (key, keys.ALIASES[key]) if key in keys.ALIASES else (key,):
            text = read_key(name, sources, with_aliases=False)
            if text and not is_good(text):
                yield f"{name} is {text!r}, but must be {expected}; it is ignored"


def gpu_count_fault(sources: Metadata, gpus: int) -> str | None:
    """Return a sentence if the declared number of GPUs differs from what all pods request; otherwise None."""
    for name in (keys.GPU_COUNT, keys.ALIASES[keys.GPU_COUNT]):
        text = read_key(name, sources, with_aliases=False)
        declared = whole_number(text)
        if declared is not None and declared != gpus:
            return (
                f"{name} is {text}, but its pods ask for {gpus} GPUs in all; the requests of the pods are"
                " used, so correct one of the two"
            )
    return None


def domain_fault(sources: Metadata, is_domain: Callable[[str], bool]) -> str | None:
    """Return a sentence if the preferred domain is unknown to `is_domain`; otherwise None."""
    for name in (keys.PREFERRED_DOMAIN, keys.ALIASES[keys.PREFERRED_DOMAIN]):
        text = read_key(name, sources, with_aliases=False)
        if text and not is_domain(text):
            return f"{name} is {text!r}, which is no domain of any Topology; it is ignored"
    return None


_VALUES: tuple[tuple[str, Callable[[str], bool], str], ...] = (
    (
        keys.PLACEMENT_STRATEGY,
        lambda text: text.lower() in STRATEGIES,
        "consolidated, distributed, balanced or packed",
    ),
    (keys.NETWORK_BANDWIDTH, lambda text: parse_bandwidth(text) is not None, "a bandwidth such as 100Gb"),
    (keys.LATENCY_SENSITIVE, lambda text: text.lower() in ("true", "false"), "true or false"),
    (keys.GPU_COUNT, lambda text: whole_number(text) is not None, "a whole number"),
    (
        keys.GPU_MILLI,
        lambda text: parse_milli(text) is not None,
        "a whole number from 1 to 1000, the thousandths of a GPU",
    ),
    (keys.GPU_MEMORY_MIB, lambda text: whole_number(text) is not None, "a whole number of MiB"),
    (
        keys.GPU_GENERATION,
        lambda text: generation_of(text) > 0,
        "a number, a model or a family such as ampere",
    ),
    (keys.PARALLELISM, lambda text: text.lower() in PARALLELISMS, "ddp, tensor or none"),
    (
        keys.STATIC_ADDRESS,
        lambda text: text.lower() in ("false", *CHOICES),
        f"false, {', '.join(CHOICES)}",
    ),
)
