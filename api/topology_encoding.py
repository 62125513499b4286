"""A topology assignment as it is written to a Workload: in slices, as small as the API allows.

A slice lists the values of a run of domains, level by level. What all of them share is written once: a value
or a number of pods that is the same ("universal"), or the beginning and the end of values that differ. Hosts
are named by pool in most clusters ("a100-node-1"), so neighbouring domains with the same beginning of the
host name make one slice each, where that is shorter than one slice for all.
Source: Kueue, pkg/util/tas/tas_assignment.go; KEP 2724.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

import msgspec

from api.keys import HOSTNAME
from api.objects.workloads import WireSlice, WireTopologyAssignment
from api.parsing.problems import SpecError
from api.workload import DomainCount, TopologyAssignment

# The limits of the CRD: entries in a list of a slice, and slices.
_MOST_DOMAINS = 100_000
_MOST_SLICES = 1_000
# What all values of one assignment may take, in characters: 100,000 hosts of 80 each. A slice writes what its
# values share once, so a small object could otherwise claim gigabytes.
_MOST_CHARACTERS = 8 << 20


def topology_body(topology: TopologyAssignment) -> dict[str, Any]:
    """Return topologyAssignment in the encoding that Kueue would choose.

    That is one slice for each run of hosts with the same beginning, or one slice for all where its JSON is
    shorter.
    """
    by_host = _body(topology, _runs(topology))
    if len(by_host["slices"]) <= 1 or len(topology.domains) > _MOST_DOMAINS:
        return by_host
    whole = _body(topology, [topology.domains])
    return whole if len(msgspec.json.encode(whole)) < len(msgspec.json.encode(by_host)) else by_host


def _body(topology: TopologyAssignment, runs: Sequence[Sequence[DomainCount]]) -> dict[str, Any]:
    levels = range(len(topology.levels))
    return {"levels": list(topology.levels), "slices": [_slice(levels, run) for run in runs if run]}


def _slice(levels: range, domains: Sequence[DomainCount]) -> dict[str, Any]:
    counts = [domain.count for domain in domains]
    is_even = all(count == counts[0] for count in counts)
    return {
        "domainCount": len(domains),
        "valuesPerLevel": [_values([domain.values[level] for domain in domains]) for level in levels],
        "podCounts": {"universal": counts[0]} if is_even else {"individual": counts},
    }


def _values(values: Sequence[str]) -> dict[str, Any]:
    """Return the values of one level. What they begin and end with in common is written once."""
    prefix = _beginning(values)
    if len(prefix) == max(map(len, values)):
        return {"universal": prefix}
    suffix = _beginning([value[::-1] for value in values])[::-1]
    # In "ababa" and "aba" the common beginning and end overlap; the end counts.
    shortest = min(map(len, values))
    prefix = prefix[: max(0, shortest - len(suffix))]
    body: dict[str, Any] = {}
    if prefix:
        body["prefix"] = prefix
    if suffix:
        body["suffix"] = suffix
    body["roots"] = [value[len(prefix) : len(value) - len(suffix)] for value in values]
    return {"individual": body}


def _beginning(values: Sequence[str]) -> str:
    """Return what all values begin with."""
    # Of sorted texts the first and the last have the least in common, so only these two are compared.
    first, last = min(values), max(values)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(letter for letter, _ in same)


def _runs(topology: TopologyAssignment) -> list[Sequence[DomainCount]]:
    """Return the domains in runs with the same beginning of the host name, in as few slices as are allowed.

    The longest beginning that occurs twice counts, up to a hyphen. Where that makes too many runs, shorter
    ones are tried.
    """
    domains = topology.domains
    if len(domains) < 2 or not topology.levels or topology.levels[-1] != HOSTNAME:
        return list(_chunks(domains))
    beginnings = [_beginnings(domain.values[-1]) for domain in domains]
    seen = Counter(one for some in beginnings for one in some)
    for depth in range(max(map(len, beginnings)), 0, -1):
        keys = [next((one for one in reversed(some[:depth]) if seen[one] > 1), "") for some in beginnings]
        runs: list[Sequence[DomainCount]] = []
        for _, run in groupby(range(len(domains)), key=keys.__getitem__):
            indices = list(run)
            runs += _chunks(domains[indices[0] : indices[-1] + 1])
        if len(runs) <= _MOST_SLICES:
            return runs
    return list(_chunks(domains))


def _beginnings(host: str) -> list[str]:
    """Return what the host name begins with, up to each hyphen except one at its end."""
    return [host[: end + 1] for end, letter in enumerate(host[:-1]) if letter == "-"]


def _chunks(domains: Sequence[DomainCount]) -> Iterator[Sequence[DomainCount]]:
    """Yield the domains in parts that fit into one slice each."""
    for start in range(0, len(domains), _MOST_DOMAINS):
        yield domains[start : start + _MOST_DOMAINS]


def to_topology(field_name: str, wire: WireTopologyAssignment) -> TopologyAssignment:
    """Return the domains of the compact encoding, slice by slice. Raises SpecError if it is malformed."""
    try:
        # Before anything is expanded: a few bytes can claim billions of domains.
        for one in wire.slices:
            _check_count(one)
        characters = sum(map(_characters, wire.slices))
        if characters > _MOST_CHARACTERS:
            raise ValueError(f"its values have {characters:,} characters, more than {_MOST_CHARACTERS:,}")
        domains = [domain for one in wire.slices for domain in _domains(one)]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise SpecError(f"{field_name}.topologyAssignment cannot be read: {error}") from error
    return TopologyAssignment(levels=wire.levels, domains=tuple(domains))


def _check_count(wire: WireSlice) -> None:
    """Raise ValueError if the lists of a slice do not have as many entries as it claims domains.

    Two domains differ in a level, so a slice of several has at least one list.
    """
    levels = [values["individual"]["roots"] for values in wire.values_per_level if values.get("individual")]
    counts = wire.pod_counts.get("individual")
    lengths = {len(one) for one in (*levels, *([counts] if counts is not None else []))} or {1}
    if lengths != {wire.domain_count}:
        said = ", ".join(map(str, sorted(lengths)))
        raise ValueError(
            f"domainCount is {wire.domain_count}, and the lists of the slice have {said} entries"
        )


def _characters(wire: WireSlice) -> int:
    """Return how many characters the values of all domains of the slice have."""
    total = 0
    for values in wire.values_per_level:
        universal = values.get("universal")
        if universal is not None:
            total += wire.domain_count * len(universal)
        else:
            one = values["individual"]
            shared = len(one.get("prefix") or "") + len(one.get("suffix") or "")
            total += wire.domain_count * shared + sum(map(len, one["roots"]))
    return total


def _domains(wire: WireSlice) -> Iterator[DomainCount]:
    columns = [_column(values, wire.domain_count) for values in wire.values_per_level]
    universal = wire.pod_counts.get("universal")
    # Either one number for all domains or one per domain; the encoding is compact for thousands of hosts.
    counts = wire.pod_counts["individual"] if universal is None else [universal] * wire.domain_count
    for values, count in zip(zip(*columns, strict=True), counts, strict=True):
        yield DomainCount(values=values, count=count)


def _column(values: Mapping[str, Any], count: int) -> list[str]:
    universal = values.get("universal")
    if universal is not None:
        return [universal] * count
    one = values["individual"]
    prefix, suffix = one.get("prefix") or "", one.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in one["roots"]]
