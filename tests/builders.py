"""Values for tests of the core, by keyword and with sane defaults; and a World to drive the engine in.

Amounts are written as people write them: cpu in cores, gpu in devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from admission.decisions.decision import Admit, Decision, Evict, Wait
from admission.engine.engine import Engine, EngineSettings
from api.objects.common import WireSelector, WireToleration
from api.objects.templates import WireContainer, WirePodSpec, WirePodTemplate, WireResources
from api.parsing.quantities import amount
from api.queueing import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    LocalQueue,
    Namespace,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
)
from api.reasons import ConditionType
from api.workload import (
    Admission,
    Condition,
    PodSet,
    PodSetAssignment,
    Workload,
    WorkloadKey,
)
from queues.quota.resources import FlavorResource

NAMESPACE = "team"
GPU = FlavorResource("default", "gpu")
CPU = FlavorResource("default", "cpu")
EVERY_NAMESPACE = WireSelector()


def make_quota(
    nominal: int = 0, *, borrowing: int | None = None, lending: int | None = None, resource: str = "gpu"
) -> ResourceQuota:
    """Return a quota; amounts as people write them."""

    def canonical(value: int) -> int:
        return amount(resource, value)

    return ResourceQuota(
        nominal=canonical(nominal),
        borrowing_limit=None if borrowing is None else canonical(borrowing),
        lending_limit=None if lending is None else canonical(lending),
    )


def make_group(*flavors: str, resource: str = "gpu", **quotas: ResourceQuota | int) -> ResourceGroup:
    """Return a group of one resource. Flavors come in order; `quotas` by flavor, a number is nominal."""
    names = flavors or tuple(quotas)
    return ResourceGroup(
        covered_resources=(resource,),
        flavors=tuple(
            FlavorQuotas(name=name, resources={resource: _quota(quotas[name], resource)}) for name in names
        ),
    )


def _quota(quota: ResourceQuota | int, resource: str) -> ResourceQuota:
    return quota if isinstance(quota, ResourceQuota) else make_quota(quota, resource=resource)


def make_cluster_queue(
    name: str = "queue",
    *,
    quota: ResourceQuota | int = 0,
    groups: tuple[ResourceGroup, ...] | None = None,
    **fields: Any,
) -> ClusterQueue:
    """Return a ClusterQueue for every namespace, with a quota of GPUs in flavor `default`."""
    return ClusterQueue(
        name=name,
        resource_groups=groups if groups is not None else (make_group(default=quota),),
        **{"namespace_selector": EVERY_NAMESPACE, **fields},
    )


def make_cohort(name: str, *, quota: ResourceQuota | int | None = None, **fields: Any) -> Cohort:
    """Return a Cohort, without quota of its own unless it is given."""
    groups = () if quota is None else (make_group(default=quota),)
    return Cohort(name=name, resource_groups=groups, **fields)


def make_template(
    requests: Mapping[str, str | int] | None = None,
    *,
    node_selector: dict[str, str] | None = None,
    tolerations: tuple[WireToleration, ...] | None = None,
    **resources: Any,
) -> WirePodTemplate:
    """Return a pod template of one container."""
    container = WireContainer(name="c", resources=WireResources(requests=dict(requests or {}), **resources))
    return WirePodTemplate(
        spec=WirePodSpec(containers=(container,), node_selector=node_selector, tolerations=tolerations)
    )


def make_pod_set(
    name: str = "main",
    count: int = 1,
    requests: Mapping[str, str | int] | None = None,
    *,
    template: WirePodTemplate | None = None,
    **fields: Any,
) -> PodSet:
    """Return a pod set; one GPU a pod unless `requests` says otherwise."""
    asked = {"gpu": 1} if requests is None else requests
    return PodSet(name=name, count=count, template=template or make_template(asked), **fields)


def make_workload(
    name: str = "w",
    *,
    queue: str = "queue",
    gpus: int = 1,
    at: float = 0.0,
    pod_sets: tuple[PodSet, ...] | None = None,
    **fields: Any,
) -> Workload:
    """Return a pending Workload of one pod with `gpus`, in the LocalQueue named like its ClusterQueue."""
    return Workload(
        key=WorkloadKey(fields.pop("namespace", NAMESPACE), name),
        uid=fields.pop("uid", f"uid-{name}"),
        created_at=at,
        pod_sets=pod_sets if pod_sets is not None else (make_pod_set(requests={"gpu": gpus}),),
        queue_name=queue,
        generation=fields.pop("generation", 1),
        **fields,
    )


def make_condition(type_: str, status: bool = True, **fields: Any) -> Condition:
    """Return a condition."""
    return Condition(type=type_, status=status, **fields)


def with_conditions(workload: Workload, *conditions: Condition, **fields: Any) -> Workload:
    """Return the Workload with conditions set, and other fields replaced."""
    merged = {**workload.conditions, **{one.type: one for one in conditions}}
    return replace(workload, conditions=merged, **fields)


def reserved(
    workload: Workload, *, queue: str | None = None, flavor: str = "default", at: float = 0.0, **fields: Any
) -> Workload:
    """Return the Workload holding quota, as its object would show it, all of it in one flavor."""
    admission = Admission(
        cluster_queue=queue or workload.queue_name,
        pod_sets=tuple(
            PodSetAssignment(
                name=one.name,
                count=one.count,
                flavors=dict.fromkeys(_requests(one), flavor),
                usage={name: value * one.count for name, value in _requests(one).items()},
            )
            for one in workload.pod_sets
        ),
    )
    return admitted(workload, admission, at=at, **fields)


def admitted(workload: Workload, admission: Admission, *, at: float = 0.0, **fields: Any) -> Workload:
    """Return the Workload as it is once an admission has been written."""
    if workload.is_evicted:
        workload = with_conditions(
            workload, make_condition(ConditionType.EVICTED, False, reason="QuotaReserved", at=at)
        )
    return with_conditions(
        workload,
        make_condition(ConditionType.QUOTA_RESERVED, reason="QuotaReserved", at=at),
        make_condition(ConditionType.ADMITTED, reason="Admitted", at=at),
        admission=admission,
        **fields,
    )


def finished(workload: Workload) -> Workload:
    """Return the Workload as it is once its work has ended."""
    return with_conditions(workload, make_condition(ConditionType.FINISHED, reason="Succeeded"))


def released(workload: Workload, *, at: float = 0.0) -> Workload:
    """Return an evicted Workload once its Job has stopped: evicted, without quota, to be queued again."""
    return with_conditions(
        workload,
        make_condition(ConditionType.QUOTA_RESERVED, False, reason="PendingEvaluation", at=at),
        make_condition(ConditionType.ADMITTED, False, reason="NoReservation", at=at),
        make_condition(ConditionType.EVICTED, reason="Preempted", at=at),
        make_condition(ConditionType.REQUEUED, reason="Preempted", at=at),
        admission=None,
    )


def _requests(pod_set: PodSet) -> dict[str, int]:
    spec = pod_set.template.spec
    assert spec is not None
    requests: dict[str, int] = {}
    for container in spec.containers or ():
        for name, text in ((container.resources and container.resources.requests) or {}).items():
            requests[name] = requests.get(name, 0) + amount(name, text)
    return requests


@dataclass(slots=True)
class World:
    """An engine with the objects that tests give it, a clock that moves only when set, and what it decided.

    Every ClusterQueue gets a LocalQueue of the same name in the namespace `team`.
    """

    settings: EngineSettings = field(default_factory=EngineSettings)
    now: float = 1000.0
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.engine = Engine(self.settings)
        self.put(Namespace(name=NAMESPACE), ResourceFlavor(name="default"))

    def put(self, *values: Any) -> World:
        """Upsert the values; check the engine's invariants after each."""
        for value in values:
            self.engine.objects.upsert(value, now=self.now)
            if isinstance(value, ClusterQueue):
                self.engine.objects.upsert(
                    LocalQueue(namespace=NAMESPACE, name=value.name, cluster_queue=value.name), now=self.now
                )
            self.engine.validate()
        return self

    def remove(self, kind: type, key: Any) -> None:
        """Delete an object."""
        self.engine.objects.remove(kind, key, now=self.now)
        self.engine.validate()

    def cycle(self) -> tuple[Decision, ...]:
        """Run one cycle."""
        decisions = self.engine.cycle(now=self.now)
        self.engine.validate()
        return decisions

    def settle(self, most: int = 1000) -> list[Decision]:
        """Run cycles until nothing more can be decided; fail where that never ends."""
        decisions: list[Decision] = []
        for _ in range(most):
            if not self.engine.wake_heads(now=self.now):
                return decisions
            decisions += self.cycle()
        raise AssertionError(f"still deciding after {most} cycles")

    def confirm(self, decisions: Iterable[Decision]) -> None:
        """Let the admissions come back as events."""
        for decision in decisions:
            if isinstance(decision, Admit):
                self.put(admitted(self.get(decision.key.name), decision.admission, at=self.now))

    def carry_out(self, decisions: tuple[Decision, ...]) -> tuple[Decision, ...]:
        """Let the objects show what was decided, as if every evicted Job stopped at once; return it."""
        self.confirm(decisions)
        for decision in decisions:
            if isinstance(decision, Evict):
                evicted = make_condition(ConditionType.EVICTED, reason=decision.reason, at=self.now)
                self.put(with_conditions(released(self.get(decision.key.name), at=self.now), evicted))
        return decisions

    def get(self, name: str) -> Workload:
        """Return a Workload as last seen."""
        workload = self.engine.workloads.workload(WorkloadKey(NAMESPACE, name))
        assert workload is not None, name
        return workload

    def holding(self) -> dict[str, str]:
        """Return which Workloads hold quota, and of which ClusterQueue."""
        return {key.name: admission.cluster_queue for key, admission in self.engine.workloads.admissions()}

    def active(self, queue: str = "queue") -> list[str]:
        """Return which Workloads will be tried, in order."""
        return [one.key.name for one in self.engine.queues.pending(queue) if not one.is_parked]

    def parked(self, queue: str = "queue") -> list[str]:
        """Return which Workloads wait for something to change, in order."""
        return [one.key.name for one in self.engine.queues.pending(queue) if one.is_parked]


def admits(decisions: Iterable[Decision]) -> list[str]:
    """Return the names of those admitted, in the order of the decisions."""
    return [one.key.name for one in decisions if isinstance(one, Admit)]


def evicts(decisions: Iterable[Decision]) -> dict[str, str]:
    """Return those evicted, and by which right."""
    return {one.key.name: str(one.preemption_reason) for one in decisions if isinstance(one, Evict)}


def waits(decisions: Iterable[Decision]) -> dict[str, str]:
    """Return the Workloads that wait, and the last reason for it."""
    return {one.key.name: str(one.reason) for one in decisions if isinstance(one, Wait)}


def messages(decisions: Iterable[Decision]) -> dict[str, str]:
    """Return the Workloads that wait, and the last message that says why."""
    return {one.key.name: one.message for one in decisions if isinstance(one, Wait)}
