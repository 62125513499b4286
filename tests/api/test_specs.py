"""Conversion of Kueue's kinds to values: defaults, and a sentence for each fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from api.objects.cluster import LimitRangeObject, NamespaceObject, RuntimeClassObject
from api.objects.queues import (
    AdmissionCheckObject,
    ClusterQueueObject,
    CohortObject,
    LocalQueueObject,
    ResourceFlavorObject,
    TopologyObject,
)
from api.parsing.problems import SpecError
from api.queueing import (
    CheckRule,
    ClusterQueue,
    Cohort,
    FungibilityPolicy,
    FungibilityPreference,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceQuota,
    StopPolicy,
)
from api.specs import (
    to_admission_check,
    to_cluster_queue,
    to_cohort,
    to_limit_range,
    to_local_queue,
    to_namespace,
    to_resource_flavor,
    to_runtime_class,
    to_topology,
)

Spec = dict[str, Any]


def read(wire: type[Any], spec: Spec, **fields: Any) -> Any:
    """Return an object as the informer decodes it."""
    body = {"metadata": {"name": "x", "namespace": "team"}, "spec": spec, **fields}
    return msgspec.json.decode(msgspec.json.encode(body), type=wire)


def cluster_queue(**spec: Any) -> ClusterQueue:
    return to_cluster_queue(read(ClusterQueueObject, spec))


def group(**quota: Any) -> Spec:
    resources = [{"name": "cpu", "nominalQuota": "9", **quota}]
    return {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}


def test_an_empty_cluster_queue_has_kueues_defaults() -> None:
    value = cluster_queue()

    assert value.queueing_strategy is QueueingStrategy.BEST_EFFORT_FIFO
    assert value.fungibility.when_can_borrow is FungibilityPolicy.MAY_STOP_SEARCH
    assert value.fungibility.when_can_preempt is FungibilityPolicy.TRY_NEXT_FLAVOR
    assert value.preemption.within_cluster_queue is PreemptionPolicy.NEVER
    assert value.stop_policy is StopPolicy.NONE
    assert (value.cohort, value.namespace_selector, value.fair_weight_milli) == (None, None, 1000)


def test_a_cluster_queue_is_read_in_full() -> None:
    value = cluster_queue(
        cohortName="team",
        queueingStrategy="StrictFIFO",
        namespaceSelector={},
        resourceGroups=[group(borrowingLimit="500m", lendingLimit="1")],
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
        preemption={
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 7},
        },
        admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["f"]}]},
        fairSharing={"weight": "1500m"},
        stopPolicy="Hold",
    )

    assert value.cohort == "team"
    assert value.queueing_strategy is QueueingStrategy.STRICT_FIFO
    assert value.namespace_selector is not None
    quota = value.resource_groups[0].flavors[0].resources["cpu"]
    assert quota == ResourceQuota(nominal=9000, borrowing_limit=500, lending_limit=1000)
    assert value.fungibility.preference is FungibilityPreference.PREEMPTION_OVER_BORROWING
    assert value.preemption.borrow_within_cohort is PreemptionPolicy.LOWER_PRIORITY
    assert value.preemption.borrow_max_priority == 7
    assert value.checks == (CheckRule(name="c", on_flavors=frozenset({"f"})),)
    assert value.fair_weight_milli == 1500
    assert value.stop_policy is StopPolicy.HOLD


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"resourceGroups": [group(nominalQuota="lots")]},
            "spec.resourceGroups[0].flavors[f].resources[cpu].nominalQuota: 'lots' is not a quantity",
            id="a broken quantity",
        ),
        pytest.param(
            {"resourceGroups": [group(nominalQuota=-1)]},
            "nominalQuota is -1, but must not be negative",
            id="a negative quota",
        ),
        pytest.param(
            {"resourceGroups": [{**group(), "coveredResources": ["cpu", "memory"]}]},
            "flavors[f].resources lacks memory; give a quota",
            id="a flavor that leaves out a covered resource",
        ),
        pytest.param(
            {"resourceGroups": [{**group(), "coveredResources": []}]},
            "flavors[f].resources has cpu; add it to coveredResources",
            id="a quota for a resource that is not covered",
        ),
        pytest.param(
            {"queueingStrategy": "LIFO"},
            "spec.queueingStrategy is 'LIFO', but must be one of StrictFIFO, BestEffortFIFO",
            id="a word that is none",
        ),
        pytest.param(
            {"namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "Is"}]}},
            "spec.namespaceSelector: matchExpressions for 'k': operator 'Is' is none of",
            id="a selector operator that is none",
        ),
        pytest.param(
            {"fairSharing": {"weight": -1}}, "spec.fairSharing.weight is -1", id="a negative weight"
        ),
        pytest.param(
            {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}, {"name": "c"}]}},
            "names 'c' twice",
            id="a check named twice",
        ),
    ],
)
def test_an_unusable_cluster_queue_is_reported_by_field_and_value(spec: Spec, want: str) -> None:
    with pytest.raises(SpecError) as caught:
        cluster_queue(**spec)

    assert want in str(caught.value)


def test_a_tiny_weight_does_not_become_none() -> None:
    assert cluster_queue(fairSharing={"weight": "1u"}).fair_weight_milli == 1


def test_a_cohort_is_read_with_parent_and_quota() -> None:
    value = to_cohort(read(CohortObject, {"parentName": "root", "resourceGroups": [group()]}))

    assert value == Cohort(name="x", parent="root", resource_groups=value.resource_groups)
    assert value.resource_groups[0].flavors[0].resources["cpu"].nominal == 9000


def test_a_local_queue_names_its_cluster_queue() -> None:
    value = to_local_queue(read(LocalQueueObject, {"clusterQueue": "q", "stopPolicy": "HoldAndDrain"}))

    assert (value.namespace, value.name, value.cluster_queue, value.is_stopped) == ("team", "x", "q", True)


def test_a_flavor_is_read_with_labels_taints_and_tolerations() -> None:
    value = to_resource_flavor(
        read(
            ResourceFlavorObject,
            {
                "nodeLabels": {"model": "a100"},
                "nodeTaints": [{"key": "gpu", "effect": "NoSchedule"}],
                "tolerations": [{"operator": "Exists"}],
                "topologyName": "t",
            },
        )
    )

    assert value.node_labels == {"model": "a100"}
    assert (value.node_taints[0].key, value.tolerations[0].operator) == ("gpu", "Exists")
    assert value.topology_name == "t"


@pytest.mark.parametrize(
    ("conditions", "without", "want"),
    [
        pytest.param([{"type": "Active", "status": "True"}], False, True, id="Active is active"),
        pytest.param([{"type": "Active", "status": "False"}], True, False, id="not Active is not"),
        pytest.param([], False, False, id="without conditions it is not, on a cluster"),
        pytest.param([], True, True, id="without conditions it is, in files"),
    ],
)
def test_an_admission_check_is_active_by_its_condition(
    conditions: list[Spec], without: bool, want: bool
) -> None:
    wire = read(AdmissionCheckObject, {"controllerName": "c"}, status={"conditions": conditions})

    assert to_admission_check(wire, without_conditions=without).is_active is want


def test_a_namespace_carries_its_own_name_as_a_label() -> None:
    labels = to_namespace(NamespaceObject(metadata=read(NamespaceObject, {}).metadata)).labels

    assert labels == {"kubernetes.io/metadata.name": "x"}


def read_topology(*levels: str) -> Any:
    return to_topology(read(TopologyObject, {"levels": [{"nodeLabel": name} for name in levels]}))


def read_limits() -> Any:
    return to_limit_range(read(LimitRangeObject, {"limits": [{"max": {"cpu": "many"}}]}))


def read_runtime() -> Any:
    return to_runtime_class(read(RuntimeClassObject, {}, overhead={"podFixed": {"cpu": "-1"}}))


@pytest.mark.parametrize(
    ("act", "want"),
    [
        pytest.param(lambda: read_topology(), "spec.levels is empty", id="a Topology without levels"),
        pytest.param(lambda: read_topology("a", "a"), "names 'a' twice", id="a Topology with a level twice"),
        pytest.param(
            lambda: to_local_queue(read(LocalQueueObject, {})),
            "clusterQueue is empty",
            id="a LocalQueue of none",
        ),
        pytest.param(read_limits, "spec.limits[0].max.cpu: 'many'", id="a LimitRange with a broken quantity"),
        pytest.param(
            read_runtime, "overhead.podFixed.cpu is -1", id="a RuntimeClass with a negative overhead"
        ),
    ],
)
def test_other_unusable_kinds_are_reported_likewise(act: Callable[[], Any], want: str) -> None:
    with pytest.raises(SpecError) as caught:
        act()

    assert want in str(caught.value)


def test_levels_come_widest_first() -> None:
    assert read_topology("zone", "rack").levels == ("zone", "rack")
