"""The configurations of Kueue's performance runner, as they come with its module, at any scale.

A configuration is what the runner's `--generatorConfig` takes: cohorts, which have sets of ClusterQueues,
which have sets of Workloads with a count each.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]

# CPUs of one ClusterQueue: more than all Workloads of any shape ask for.
_ENOUGH = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A configuration: its folder in Kueue's module, and whether Workloads ask for a place in a topology."""

    folder: str
    has_topology: bool = False


SHAPES = {
    # 5 cohorts of 6 ClusterQueues, 15,000 Workloads.
    "baseline": Shape(folder="baseline"),
    # The same on 640 nodes: each Workload has 2 to 8 pods and asks for one rack.
    "topology": Shape(folder="tas", has_topology=True),
    # 10 cohorts of 100 ClusterQueues, 50,000 Workloads.
    "large": Shape(folder="large-scale"),
}


def scaled(config: Config, scale: float) -> Config:
    """Return the configuration with `scale` times its Workloads, at least one in each set.

    Cohorts, ClusterQueues, nodes and the pace at which a set is created remain.
    """
    result = copy.deepcopy(config)
    for _, workloads in _workload_sets(result):
        workloads["count"] = max(1, round(workloads["count"] * scale))
    return result


def without_limits(config: Config) -> Config:
    """Return the configuration with quota for all Workloads at once.

    Nothing waits and nothing is evicted. What remains is the pace of the API server and of the runner, which
    creates, ends and evicts Workloads one by one: no controller is faster through this runner.
    """
    result = copy.deepcopy(config)
    for cohorts in result["cohorts"]:
        for queues in cohorts["queuesSets"]:
            queues["nominalQuota"] = _ENOUGH
    return result


def workload_count(config: Config) -> int:
    """Return how many Workloads the runner creates."""
    return sum(
        queues * workloads["count"] * len(workloads["workloads"])
        for queues, workloads in _workload_sets(config)
    )


def _workload_sets(config: Config) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield each set of Workloads, with the number of ClusterQueues that have it."""
    for cohorts in config["cohorts"]:
        for queues in cohorts["queuesSets"]:
            for workloads in queues["workloadsSets"]:
                yield cohorts["count"] * queues["count"], workloads
