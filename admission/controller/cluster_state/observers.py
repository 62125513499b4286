"""What is reported of the objects that come in: changed Workloads, ungated pods, objects that cannot be read.

Counts, marks, pending evictions and metrics all depend on how a Workload changes. The code that takes in a
Workload reports one `WorkloadTransition` and does not know its observers, which compare the two versions. So
each step is seen once, whichever client wrote it, by the watch or by the answer to a write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from admission.controller.cluster_state.object_cache import ObjectKey
from api.workload import Workload

# The name of a spec, with its namespace if it has one.
SpecKey = str | ObjectKey


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTransition:
    """A Workload was created, changed or deleted, as seen at `at` (Unix seconds).

    `before` None: it is seen for the first time. `after` None: it was deleted. If another Workload has taken
    its name, both are set and differ in their uid.
    """

    before: Workload | None
    after: Workload | None
    at: float

    @property
    def workload(self) -> Workload:
        """Return the latest version; the last known one if the Workload was deleted."""
        latest = self.after if self.after is not None else self.before
        assert latest is not None, "a change has at least one version"
        return latest


@dataclass(frozen=True, slots=True, kw_only=True)
class Observers:
    """The lists of observers, which are called in order, from the control loop's task alone.

    `workload_changed`: after the object cache and the engine have taken the change. `pod_ungated`: with the
    scheduling gate, the admitted Workload of the pod, and the time (Unix seconds). `spec_changed`: with the
    kind and the new value of a queue, flavor or other spec; None if it was deleted. `spec_gone`: with kind
    and key of one that was deleted. `object_unreadable`: with kind, full name ("" if unknown) and error of an
    object that cannot be read.
    """

    workload_changed: list[Callable[[WorkloadTransition], None]] = field(default_factory=list)
    pod_ungated: list[Callable[[str, Workload, float], None]] = field(default_factory=list)
    spec_changed: list[Callable[[type, object | None], None]] = field(default_factory=list)
    spec_gone: list[Callable[[type, SpecKey], None]] = field(default_factory=list)
    object_unreadable: list[Callable[[str, str, str], None]] = field(default_factory=list)

    def report_workload(self, change: WorkloadTransition) -> None:
        """Report that a Workload has changed."""
        for observe in self.workload_changed:
            observe(change)

    def report_ungated(self, gate: str, workload: Workload, at: float) -> None:
        """Report that a pod of an admitted Workload has lost its scheduling gate."""
        for observe in self.pod_ungated:
            observe(gate, workload, at)

    def report_spec(self, kind: type, value: object | None) -> None:
        """Report a new or changed spec, or the deletion of one (None)."""
        for observe in self.spec_changed:
            observe(kind, value)

    def report_gone(self, kind: type, key: SpecKey) -> None:
        """Report the deletion of a spec."""
        for observe in self.spec_gone:
            observe(kind, key)

    def report_unreadable(self, kind: str, namespace: str, name: str, error: str) -> None:
        """Report that an object cannot be read. `namespace` is "" for a kind without namespaces."""
        full_name = f"{namespace}/{name}" if namespace else name
        for observe in self.object_unreadable:
            observe(kind, full_name, error)
