"""A cluster without an API server: an engine whose decisions are carried out at once, with every call timed.

Also the parts that the clusters of several benchmarks have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from admission.decisions.decision import Admit
from admission.engine.engine import Engine
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.queueing import FlavorQuotas, ResourceGroup, ResourceQuota
from api.reasons import ConditionType
from api.workload import Admission, Condition, Workload, WorkloadKey

NAMESPACE = "bench"
# The longest that the event loop of a controller may be held up, in milliseconds.
STEP_TARGET_MS = 50.0
Answer = TypeVar("Answer")


@dataclass(slots=True, kw_only=True)
class Cluster:
    """The engine and its Workloads, those that run in the order of their admission.

    `spent` and `longest`, of all steps and of the longest one, are in seconds of CPU since `reset`.
    """

    engine: Engine = field(default_factory=Engine)
    workloads: dict[WorkloadKey, Workload] = field(default_factory=dict)
    running: list[WorkloadKey] = field(default_factory=list)
    admissions: int = 0
    spent: float = 0.0
    longest: float = 0.0

    def reset(self) -> None:
        """Begin to measure."""
        self.spent = self.longest = 0.0

    def put(self, value: Any, now: float) -> None:
        """Add or update an object."""
        if isinstance(value, Workload):
            self.workloads[value.key] = value
        self._timed(lambda: self.engine.objects.upsert(value, now=now))

    def run(self, workload: Workload, admission: Admission, now: float) -> None:
        """Add a Workload that runs, or let one run that was there."""
        self.running.append(workload.key)
        self.put(admitted(workload, admission, now), now)

    def end(self, key: WorkloadKey, now: float) -> None:
        """Finish a Workload, and decide."""
        self.running.remove(key)
        finished = Condition(type=ConditionType.FINISHED, status=True, reason="Succeeded", at=now)
        self.put(with_conditions(self.workloads[key], finished), now)
        self.decide(now)

    def decide(self, now: float) -> None:
        """Decide until nothing is left to decide, in steps as the controller does."""
        engine = self.engine
        self._catch_up(now)
        while self._timed(lambda: engine.wake_heads(now=now)):
            while self._timed(lambda: engine.settle(now=now)):
                pass
            cycle = self._timed(lambda: engine.begin_cycle(now=now))
            while self._timed(cycle.step):
                pass
            for decision in cycle.decisions:
                if isinstance(decision, Admit):
                    self.admissions += 1
                    self.run(self.workloads[decision.key], decision.admission, now)
            self._catch_up(now)

    def _catch_up(self, now: float) -> None:
        while self._timed(lambda: self.engine.catch_up(now=now)):
            pass

    def _timed(self, call: Callable[[], Answer]) -> Answer:
        began = time.process_time()
        answer = call()
        spent = time.process_time() - began
        self.spent += spent
        self.longest = max(self.longest, spent)
        return answer


def resource_groups(resource: str, flavor: str, quota: ResourceQuota) -> tuple[ResourceGroup, ...]:
    """Return the only group of a queue with one resource of one flavor."""
    flavors = (FlavorQuotas(name=flavor, resources={resource: quota}),)
    return (ResourceGroup(covered_resources=(resource,), flavors=flavors),)


def pod_template(resource: str, amount: str) -> WirePodTemplate:
    """Return a template of pods with one container that requests so much."""
    requests = WireResources(requests={resource: amount})
    return WirePodTemplate(spec=WirePodSpec(containers=(WireContainer(name="c", resources=requests),)))


def with_conditions(workload: Workload, *conditions: Condition) -> Workload:
    """Return the Workload with these conditions beside its others."""
    return replace(workload, conditions={**workload.conditions, **{one.type: one for one in conditions}})


def admitted(workload: Workload, admission: Admission, at: float) -> Workload:
    """Return the Workload as it is since its admission at `at` (Unix seconds)."""
    types = (ConditionType.QUOTA_RESERVED, ConditionType.ADMITTED)
    conditions = (Condition(type=type_, status=True, at=at) for type_ in types)
    return replace(with_conditions(workload, *conditions), admission=admission)
