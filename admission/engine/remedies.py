"""Remedies: which change would let a pending Workload start earlier. Each is tried before it is named.

A trial is the start of the Workload in a cluster that differs by one object (`admission.engine.what_if`).
What does not help is not named, and what does is named with the start that it brings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from admission.engine.engine import Engine
from admission.engine.holders import Lack
from api.keys import EXPECTED_RUNTIME_SECONDS
from api.parsing.quantities import to_text
from api.queueing import ClusterQueue, ResourceQuota
from api.workload import PodSet, TopologyRequest, Workload
from queues.quota.resources import FlavorResource

# The start of the Workload (Unix seconds, infinity for none) if this object replaced the present one.
Trial = Callable[[Workload | ClusterQueue], float]

# Which run times are tried for a Workload of unknown length, the longest first.
_DECLARED_SECONDS = (14400, 3600, 1800, 600)
# An earlier start by less is no help.
_LEAST_GAIN_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What would help, in words, and when the Workload would start then (Unix seconds).

    `kind` is pods, queue, topology, runtime or quota; `changed` is the object with the change made.
    """

    kind: str
    change: str
    changed: Workload | ClusterQueue
    start_at: float


def remedies(
    engine: Engine, workload: Workload, lacking: tuple[Lack, ...], trial: Trial, *, starts_at: float
) -> Iterator[Remedy]:
    """Yield what would let the Workload start before `starts_at` (Unix seconds, infinity for never).

    What its owner can do comes first, what takes an administrator last.
    """
    latest = starts_at - _LEAST_GAIN_SECONDS
    yield from _fewer_pods(workload, trial, latest)
    for kind, change, value in (
        *_other_levels(workload),
        *_other_queues(engine, workload),
        *_declared(engine, workload),
    ):
        at = trial(value)
        if at < latest:
            yield Remedy(kind=kind, change=change, changed=value, start_at=at)
            if kind == "runtime":
                # A shorter time would be no more help.
                break
    queue = engine.queues.spec(engine.queues.cluster_queue_of(workload))
    if queue is not None and lacking:
        raised = _with_quota(queue, {one.pair: _added(one) for one in lacking})
        at = trial(raised)
        if at < latest:
            yield Remedy(kind="quota", change=_quota_text(queue, lacking), changed=raised, start_at=at)


def _fewer_pods(workload: Workload, trial: Trial, latest: float) -> Iterator[Remedy]:
    """Yield the largest number of pods that starts before the whole would."""
    if len(workload.pod_sets) != 1:
        return
    (pod_set,) = workload.pod_sets
    low, high, best, found = 1, pod_set.count - 1, workload, inf
    # As in partial admission: what starts with some pods starts with fewer, too.
    while low <= high:
        count = (low + high) // 2
        fewer = _with_pod_set(workload, replace(pod_set, count=count, min_count=None))
        at = trial(fewer)
        if at < latest:
            best, found, low = fewer, at, count + 1
        else:
            high = count - 1
    if found < inf:
        change = f"ask for {best.pod_sets[0].count} of its {pod_set.count} pods"
        yield Remedy(kind="pods", change=change, changed=best, start_at=found)


def _other_levels(workload: Workload) -> Iterator[tuple[str, str, Workload]]:
    for pod_set in workload.pod_sets:
        asked = pod_set.topology_request
        if asked is not None and asked.required is not None:
            # The same level as a wish: pods may then be in several of its domains.
            wish = replace(asked, required=None, preferred=asked.required)
            change = f"prefer {asked.required} instead of requiring it for pod set {pod_set.name}"
            yield "topology", change, _with_pod_set(workload, replace(pod_set, topology_request=wish))
        if asked is not None and (asked.required is not None or asked.preferred is not None):
            anywhere = TopologyRequest(unconstrained=True)
            change = f"ask for no topology level for pod set {pod_set.name}"
            yield "topology", change, _with_pod_set(workload, replace(pod_set, topology_request=anywhere))


def _other_queues(engine: Engine, workload: Workload) -> Iterator[tuple[str, str, Workload]]:
    for queue in engine.queues.local_queues(workload.key.namespace):
        if queue.name != workload.queue_name:
            yield "queue", f"use LocalQueue {queue.name}", replace(workload, queue_name=queue.name)


def _declared(engine: Engine, workload: Workload) -> Iterator[tuple[str, str, Workload]]:
    if engine.workloads.estimate(workload) is not None:
        return
    for seconds in _DECLARED_SECONDS:
        annotations = {**workload.annotations, EXPECTED_RUNTIME_SECONDS: str(seconds)}
        change = f'declare {EXPECTED_RUNTIME_SECONDS}: "{seconds}" if it runs no longer'
        yield "runtime", change, replace(workload, annotations=annotations)


def _with_pod_set(workload: Workload, changed: PodSet) -> Workload:
    pod_sets = tuple(changed if one.name == changed.name else one for one in workload.pod_sets)
    return replace(workload, pod_sets=pod_sets)


def _added(lack: Lack) -> int:
    """Return how much more quota serves it: what is missing now, or what it may never have."""
    return lack.missing if not lack.is_forever else lack.wanted - min(lack.most, lack.wanted - lack.missing)


def _with_quota(queue: ClusterQueue, added: Mapping[FlavorResource, int]) -> ClusterQueue:
    def raised(flavor: str, resource: str, quota: ResourceQuota) -> ResourceQuota:
        more = added.get(FlavorResource(flavor, resource), 0)
        return replace(quota, nominal=quota.nominal + more)

    groups = tuple(
        replace(
            group,
            flavors=tuple(
                replace(
                    one,
                    resources={name: raised(one.name, name, quota) for name, quota in one.resources.items()},
                )
                for one in group.flavors
            ),
        )
        for group in queue.resource_groups
    )
    return replace(queue, resource_groups=groups)


def _quota_text(queue: ClusterQueue, lacking: tuple[Lack, ...]) -> str:
    amounts = ", ".join(
        f"{to_text(one.pair.resource, _added(one))} {one.pair.resource} in flavor {one.pair.flavor}"
        for one in lacking
    )
    return f"raise the quota of ClusterQueue {queue.name} by {amounts}"
