"""Conversion of a Workload to a value."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from api.objects.workloads import WorkloadObject
from api.parsing.problems import SpecError
from api.parsing.times import to_rfc3339
from api.workload import DomainCount, PodRanks, SliceConstraint, Workload, WorkloadKey
from api.workload_decoding import to_workload

Spec = dict[str, Any]
POD_SET: Spec = {"name": "main", "count": 2, "template": {"spec": {"containers": []}}}


def read(spec: Spec | None = None, status: Spec | None = None, **meta: Any) -> WorkloadObject:
    body = {
        "metadata": {"namespace": "team", "name": "w", "uid": "u", "generation": 1, **meta},
        "spec": {"podSets": [POD_SET], **(spec or {})},
        "status": status or {},
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=WorkloadObject)


def topology_of(workload: Workload) -> tuple[DomainCount, ...]:
    assert workload.admission is not None
    topology = workload.admission.pod_sets[0].topology
    assert topology is not None
    return topology.domains


def test_a_new_workload_is_active_pending_and_of_priority_0() -> None:
    workload = to_workload(read({"queueName": "q"}, creationTimestamp="2026-01-15T12:00:00Z"))

    assert workload.key == WorkloadKey("team", "w")
    assert (workload.queue_name, workload.priority, workload.active) == ("q", 0, True)
    assert to_rfc3339(workload.created_at) == "2026-01-15T12:00:00Z"
    assert not workload.has_quota_reservation


def test_status_is_read_in_full() -> None:
    workload = to_workload(
        read(
            spec={"preemptionGates": [{"name": name} for name in "ghi"]},
            status={
                "admission": {
                    "clusterQueue": "q",
                    "podSetAssignments": [
                        {"name": "main", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"}}
                    ],
                },
                "conditions": [
                    {"type": "QuotaReserved", "status": "True"},
                    {"type": "Admitted", "status": "True"},
                ],
                "admissionChecks": [{"name": "c", "state": "Retry", "requeueAfterSeconds": 5}],
                "requeueState": {"count": 2, "requeueAt": "2026-01-15T12:00:00Z"},
                "reclaimablePods": [{"name": "main", "count": 1}],
                "unhealthyNodes": [{"name": "n1"}],
                "preemptionGates": [{"name": "g", "position": "Open"}, {"name": "h", "position": "Closed"}],
            },
        )
    )

    assert workload.is_admitted
    assert workload.admission is not None
    assert workload.admission.pod_sets[0].usage == {"cpu": 3000}
    assert (workload.checks[0].state, workload.checks[0].requeue_after_seconds) == ("Retry", 5)
    assert (workload.requeue_count, workload.reclaimable) == (2, {"main": 1})
    assert (workload.unhealthy_nodes, workload.closed_gates) == (("n1",), frozenset({"h", "i"}))


def test_quota_is_held_only_with_both_admission_and_condition() -> None:
    workload = to_workload(read(status={"admission": {"clusterQueue": "q"}}))

    assert not workload.has_quota_reservation


def test_pod_sets_are_taken_over_while_the_spec_has_not_changed() -> None:
    before = to_workload(read())

    after = to_workload(read(status={"conditions": [{"type": "Evicted", "status": "True"}]}), before)
    edited = to_workload(read({"podSets": [{**POD_SET, "count": 5}]}, generation=2), before)

    assert after.pod_sets is before.pod_sets
    assert edited.pod_sets[0].count == 5


def test_a_topology_request_keeps_slices_of_either_form() -> None:
    asked = {"required": "rack", "podSetSliceRequiredTopology": "host", "podSetSliceSize": 2}
    workload = to_workload(read({"podSets": [{**POD_SET, "topologyRequest": asked}]}))

    request = workload.pod_sets[0].topology_request
    assert request is not None
    assert (request.required, request.slices) == ("rack", (SliceConstraint(topology="host", size=2),))


@pytest.mark.parametrize(
    ("request_", "annotations", "want"),
    [
        pytest.param({"podIndexLabel": "i"}, {}, PodRanks(index_label="i"), id="one group"),
        pytest.param(
            {"podIndexLabel": "i", "subGroupIndexLabel": "g", "subGroupCount": 2},
            {},
            PodRanks(index_label="i", group_label="g", groups=2),
            id="two groups",
        ),
        pytest.param(
            {"podIndexLabel": "i", "subGroupIndexLabel": "g"}, {}, None, id="groups without a number"
        ),
        pytest.param(
            {"podIndexLabel": "i"},
            {"kueue.x-k8s.io/pod-index-offset": "1"},
            PodRanks(index_label="i", offset=1),
            id="numbers from 1",
        ),
        pytest.param({"unconstrained": True}, {}, None, id="no label"),
    ],
)
def test_ranks_alone_request_no_topology(request_: Spec, annotations: Spec, want: PodRanks | None) -> None:
    template = {**POD_SET["template"], "metadata": {"annotations": annotations}}
    (pod_set,) = to_workload(
        read({"podSets": [{**POD_SET, "template": template, "topologyRequest": request_}]})
    ).pod_sets

    assert pod_set.ranks == want
    assert (pod_set.topology_request is not None) is ("unconstrained" in request_)


def test_the_compact_topology_assignment_is_spelled_out() -> None:
    slices = [
        {
            "domainCount": 2,
            "podCounts": {"universal": 3},
            "valuesPerLevel": [{"individual": {"prefix": "host-", "roots": ["1", "2"], "suffix": ".x"}}],
        },
        {
            "domainCount": 2,
            "podCounts": {"individual": [1, 4]},
            "valuesPerLevel": [{"individual": {"roots": ["a", "b"]}}],
        },
    ]
    assignment = {
        "name": "main",
        "topologyAssignment": {"levels": ["kubernetes.io/hostname"], "slices": slices},
    }
    workload = to_workload(
        read(status={"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}})
    )

    assert [(domain.values, domain.count) for domain in topology_of(workload)] == [
        (("host-1.x",), 3),
        (("host-2.x",), 3),
        (("a",), 1),
        (("b",), 4),
    ]


def placed(*, domains: int, values: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the status of a Workload with one slice of this many domains, of one level."""
    part = {"domainCount": domains, "podCounts": {"universal": 1}, "valuesPerLevel": [values]}
    return assigned(topologyAssignment={"levels": ["h"], "slices": [part]}, **fields)


def assigned(**fields: Any) -> Spec:
    assignment = {"name": "main", **fields}
    return {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param({"podSets": []}, {}, "spec.podSets is empty", id="no pod set"),
        pytest.param({"podSets": [POD_SET, POD_SET]}, {}, "names 'main' twice", id="a pod set named twice"),
        pytest.param(
            {"podSets": [{**POD_SET, "count": -1}]},
            {},
            "spec.podSets[main].count is -1",
            id="a negative count",
        ),
        pytest.param(
            {"podSets": [{**POD_SET, "minCount": 3}]},
            {},
            "minCount is 3, but must be from 1 to count 2",
            id="too high a floor",
        ),
        pytest.param(
            {"podSets": [{**POD_SET, "template": {"spec": 5}}]},
            {},
            "spec.podSets[main].template cannot be read",
            id="a template that is none",
        ),
        pytest.param(
            {"podSets": [{**POD_SET, "topologyRequest": {"required": "a", "preferred": "b"}}]},
            {},
            "sets required and preferred; set one of them",
            id="two topology options at once",
        ),
        pytest.param(
            {},
            assigned(resourceUsage={"cpu": "x"}),
            "status.admission.podSetAssignments[main].resourceUsage.cpu: 'x' is not a quantity",
            id="a usage that is no quantity",
        ),
        pytest.param(
            {},
            assigned(
                topologyAssignment={
                    "levels": ["h"],
                    "slices": [{"domainCount": 1, "podCounts": {}, "valuesPerLevel": [{"universal": "n"}]}],
                }
            ),
            "topologyAssignment cannot be read",
            id="a topology without counts",
        ),
        pytest.param(
            {},
            placed(domains=2**31 - 1, values={"universal": "n"}),
            "domainCount is 2147483647, and the lists of the slice have 1 entries",
            id="two thousand million domains without a list of them",
        ),
        pytest.param(
            {},
            placed(domains=2**31 - 1, values={"individual": {"roots": ["1", "2"]}}),
            "domainCount is 2147483647, and the lists of the slice have 2 entries",
            id="two thousand million domains with a list of two",
        ),
        pytest.param(
            {},
            placed(domains=-1, values={"universal": "n"}),
            "domainCount is -1",
            id="a negative number of domains",
        ),
    ],
)
def test_an_unusable_workload_is_reported_by_field_and_value(spec: Spec, status: Spec, want: str) -> None:
    with pytest.raises(SpecError) as caught:
        to_workload(read(spec, status))

    assert want in str(caught.value)


def test_a_time_that_is_none_is_named() -> None:
    with pytest.raises(ValueError, match="'noon' is no RFC 3339 time"):
        to_workload(read(creationTimestamp="noon"))


@pytest.mark.parametrize(
    ("status", "reason", "want"),
    [
        pytest.param("True", "Preempted", (True, True), id="one that was preempted and has not run since"),
        pytest.param("True", "NodeFailures", (True, False), id="one that lost its nodes was not preempted"),
        pytest.param("False", "Preempted", (False, False), id="an eviction that is over is none"),
    ],
)
def test_an_eviction_holds_until_the_next_admission(
    status: str, reason: str, want: tuple[bool, bool]
) -> None:
    condition = {"type": "Evicted", "status": status, "reason": reason}

    workload = to_workload(read(status={"conditions": [condition]}))

    assert (workload.eviction is not None, workload.preemption is not None) == want
