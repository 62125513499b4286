"""The nodes of training jobs, so that later pods of a job join the NVLink fabric of its first ones.

The state consists of the pods themselves: each pod with the label and a node counts until it ends. A
restart therefore loses nothing, replicas agree, and nothing has to be cleaned up. Some milliseconds pass
between kube-scheduler's choice and the binding that the watch reports, in which the job's next pods may
be evaluated. For them, the fabric chosen for the first pod is kept as an expectation until a pod is
placed or the expectation expires.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from api.node import PodKey
from api.wire.extender import NodeLabels

# How long a job is expected in the fabric of its first pod. kube-scheduler binds within milliseconds; a pod
# that cannot be bound is tried again after up to 10 s.
EXPECTED_SECONDS = 30.0


@dataclass(frozen=True, slots=True, order=True)
class TrainingJob:
    """A job's id within a namespace, because two tenants may use the same id."""

    namespace: str
    id: str


@dataclass(frozen=True, slots=True)
class _Expectation:
    fabric: str
    until: float


class TrainingJobs:
    """The placed pods of all training jobs, and the fabrics expected for jobs without one."""

    def __init__(self) -> None:
        self._placed: dict[PodKey, tuple[TrainingJob, str]] = {}
        self._nodes: dict[TrainingJob, Counter[str]] = {}
        self._expected: dict[TrainingJob, _Expectation] = {}

    def place(self, pod: PodKey, job: TrainingJob, node: str) -> None:
        """Record that the pod is on the node."""
        # A pod that was recorded on another node counts only on this one.
        self.remove(pod)
        self._placed[pod] = (job, node)
        self._nodes.setdefault(job, Counter())[node] += 1
        self._expected.pop(job, None)

    def remove(self, pod: PodKey) -> None:
        """Record that the pod is on no node. No effect where it was on none."""
        placed = self._placed.pop(pod, None)
        if placed is None:
            return
        job, node = placed
        nodes = self._nodes[job]
        nodes[node] -= 1
        if nodes[node] == 0:
            del nodes[node]
        if not nodes:
            del self._nodes[job]

    def fabrics(self, job: TrainingJob, labels: Mapping[str, NodeLabels]) -> frozenset[str]:
        """Return the fabrics of the job's pods. `labels` are those of all nodes, by name."""
        nodes = self._nodes.get(job, ())
        # A node without a fabric label is in no fabric.
        return frozenset(labels[node].fabric for node in nodes if node in labels and labels[node].fabric)

    def expect(self, job: TrainingJob, fabric: str, *, now: float) -> None:
        """Remember for `EXPECTED_SECONDS` that the job's first pod was sent to this fabric."""
        # Expired entries are removed here. There are as many as jobs that started in the last half minute.
        self._expected = {known: one for known, one in self._expected.items() if one.until > now}
        self._expected[job] = _Expectation(fabric, now + EXPECTED_SECONDS)

    def expected(self, job: TrainingJob, *, now: float) -> str:
        """Return the fabric of the job's first pod; empty where none is known, or it has expired."""
        found = self._expected.get(job)
        return found.fabric if found is not None and found.until > now else ""

    def __iter__(self) -> Iterator[tuple[TrainingJob, Mapping[str, int]]]:
        """Yield each job with the number of its pods on each node, by name."""
        for job in sorted(self._nodes):
            yield job, dict(sorted(self._nodes[job].items()))

    def validate(self) -> None:
        """Raise AssertionError where the counts differ from those of the placed pods."""
        counted: dict[TrainingJob, Counter[str]] = {}
        for job, node in self._placed.values():
            counted.setdefault(job, Counter())[node] += 1
        assert counted == self._nodes, f"counted {counted}, kept {self._nodes}"
