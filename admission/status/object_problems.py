"""Objects that are of no use as they are: inactive queues, policies not in force, and what cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from admission.cache.cache import Cache
from admission.status.views import inactive_message
from api.node import NodeInfo, PodUsage
from api.policy import AdmissionPolicy
from api.queueing import ClusterQueue

# Where the class of the value is not named as the kind is.
_KINDS: dict[type, str] = {NodeInfo: "Node", PodUsage: "Pod"}


class ObjectProblem(NamedTuple):
    """What is wrong with an object, as a sentence; `namespace` "" where the kind has none."""

    kind: str
    namespace: str
    name: str
    message: str


def object_problems(cache: Cache) -> Iterator[ObjectProblem]:
    """Yield the problems, sorted by kind; changed specs must have taken effect."""
    specs = cache.specs
    for name, problem in sorted(specs.inheritance_faults.items()):
        yield ObjectProblem("AdmissionPolicy", "", name, f"it is not in force: {problem}")
    for name, queue in sorted(cache.queues.items()):
        if queue.inactive:
            yield ObjectProblem("ClusterQueue", "", name, inactive_message(queue))
    for (namespace, name), local_queue in sorted(specs.local_queues.items()):
        if local_queue.cluster_queue not in cache.queues:
            missing = f"its ClusterQueue {local_queue.cluster_queue!r} does not exist; create or correct it"
            yield ObjectProblem("LocalQueue", namespace, name, missing)
    for (kind, key), message in sorted(
        specs.unreadable.items(), key=lambda one: (one[0][0].__name__, str(one[0][1]))
    ):
        # An unreadable ClusterQueue is inactive, and says so above.
        if kind is not ClusterQueue:
            namespace, name = key if isinstance(key, tuple) else ("", str(key))
            prefix = "it is not in force: " if kind is AdmissionPolicy else ""
            yield ObjectProblem(_KINDS.get(kind, kind.__name__), namespace, name, f"{prefix}{message}")
