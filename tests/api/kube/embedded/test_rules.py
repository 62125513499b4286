"""Validation and defaults of built-in kinds, with the same messages on both servers."""

from __future__ import annotations

from typing import Any

import pytest

from .raw import STRATEGIC, RawApi, job, pod

STEERED = {
    "nodeSelector": {"gpu": "a100"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "schedulingGates": [{"name": "rules.berth.dev/gate"}],
}


def affinity(*zones: str) -> dict[str, Any]:
    expression = {"key": "zone", "operator": "In", "values": list(zones)}
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"nodeAffinity": required}


# Jobs


async def test_a_job_gets_its_selector_and_labels(api: RawApi) -> None:
    made = await api.create(api.jobs(), job("j"))

    uid = made["metadata"]["uid"]
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert made["spec"]["template"]["metadata"]["labels"] == {
        "a": "b",
        "job-name": "j",
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
    }


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"spec": {"nodeSelector": {"gpu": "a100"}}}, id="the node selector"),
        pytest.param({"spec": {"affinity": affinity("z1", "z2")}}, id="node affinity"),
        pytest.param({"spec": {"tolerations": STEERED["tolerations"]}}, id="tolerations"),
        pytest.param({"spec": {"schedulingGates": STEERED["schedulingGates"]}}, id="scheduling gates"),
        pytest.param(
            {"metadata": {"labels": {"c": "d"}, "annotations": {"e": "f"}}}, id="labels and annotations"
        ),
    ],
)
async def test_a_suspended_job_can_be_steered(api: RawApi, change: dict[str, Any]) -> None:
    await api.create(api.jobs(), job("j"))

    answer = await api.merge(api.jobs("j"), {"spec": {"template": change}})

    assert answer.status == 200, answer.body


async def test_steering_and_resuming_go_in_one_write(api: RawApi) -> None:
    await api.create(api.jobs(), job("j"))

    patch = {"spec": {"suspend": False, "template": {"spec": STEERED}}}
    answer = await api.merge(api.jobs("j"), patch)

    assert answer.status == 200
    assert answer.body["spec"]["template"]["spec"]["nodeSelector"] == {"gpu": "a100"}


async def test_a_running_job_cannot_be_steered(api: RawApi) -> None:
    await api.create(api.jobs(), job("j", suspend=False))

    answer = await api.merge(api.jobs("j"), {"spec": {"template": {"spec": STEERED}}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message.startswith('Job.batch "j" is invalid: spec.template: Invalid value: ')
    assert answer.message.endswith(": field is immutable")


async def test_a_suspended_job_that_has_started_cannot_be_steered(api: RawApi) -> None:
    await api.create(api.jobs(), job("j", suspend=False))
    started = {"status": {"startTime": "2026-01-01T00:00:00Z"}}
    await api.merge(api.jobs("j", "status"), started)
    await api.merge(api.jobs("j"), {"spec": {"suspend": True}})

    refused = await api.merge(api.jobs("j"), {"spec": {"template": {"spec": STEERED}}})
    await api.merge(api.jobs("j", "status"), {"status": {"startTime": None}})
    allowed = await api.merge(api.jobs("j"), {"spec": {"template": {"spec": STEERED}}})

    assert (refused.status, allowed.status) == (422, 200)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"containers": [{"name": "c", "image": "other"}]}, id="an image"),
        pytest.param({"priorityClassName": "system-node-critical"}, id="the priority class"),
        pytest.param({"restartPolicy": "OnFailure"}, id="the restart policy"),
    ],
)
async def test_the_rest_of_the_template_is_fixed(api: RawApi, change: dict[str, Any]) -> None:
    await api.create(api.jobs(), job("j"))

    body = {"spec": {"template": {"spec": change}}}
    answer = await api.call("PATCH", api.jobs("j"), body, content_type=STRATEGIC)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "spec.template" in answer.message


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"parallelism": -1},
            "spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
            id="a negative count",
        ),
        pytest.param(
            {"completionMode": "Odd"}, 'spec.completionMode: Unsupported value: "Odd"', id="an unknown mode"
        ),
        pytest.param(
            {"completionMode": "Indexed", "completions": None},
            "spec.completions: Required value: when completion mode is Indexed",
            id="indexes without a number",
        ),
    ],
)
async def test_a_job_that_makes_no_sense_is_refused(api: RawApi, spec: dict[str, Any], want: str) -> None:
    answer = await api.call("POST", api.jobs(), job("j", **spec))

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert want in answer.message


@pytest.mark.parametrize("policy", ["Always", None], ids=["Always", "none given"])
async def test_a_job_says_what_happens_to_failed_pods(api: RawApi, policy: str | None) -> None:
    body = job("j")
    body["spec"]["template"]["spec"]["restartPolicy"] = policy

    answer = await api.call("POST", api.jobs(), body)

    want = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert answer.status == 422
    assert want in answer.message


@pytest.mark.parametrize(
    ("amount", "status", "want"),
    [
        pytest.param("lots", 400, "quantities must match the regular expression", id="no quantity"),
        pytest.param("-1", 422, "must be greater than or equal to 0", id="less than nothing"),
    ],
)
async def test_broken_amounts_are_refused(api: RawApi, amount: str, status: int, want: str) -> None:
    body = job("j")
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": amount}}

    answer = await api.call("POST", api.jobs(), body)

    assert answer.status == status
    assert want in answer.message


async def test_a_number_where_a_text_belongs_is_refused_by_its_field(api: RawApi) -> None:
    body = job("j")
    body["spec"]["parallelism"] = "two"

    answer = await api.call("POST", api.jobs(), body)

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == (
        'Job in version "v1" cannot be handled as a Job: json: cannot unmarshal string into Go struct field '
        "JobSpec.spec.parallelism of type int32"
    )


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "a" * 254])
async def test_names_are_those_of_dns(api: RawApi, name: str) -> None:
    answer = await api.call("POST", api.jobs(), job(name))

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert any(cause["field"] == "metadata.name" for cause in answer.body["details"]["causes"])


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"labels": {"a b": "c"}}, "metadata.labels"),
        ({"labels": {"a": "b c"}}, "metadata.labels"),
        ({"annotations": {"a/b/c": "d"}}, "metadata.annotations"),
        ({"finalizers": ["no domain!"]}, "metadata.finalizers"),
        (
            {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]},
            "metadata.ownerReferences",
        ),
    ],
    ids=["a label's key", "a label's value", "an annotation's key", "a finalizer", "an owner without uid"],
)
async def test_metadata_has_rules(api: RawApi, metadata: dict[str, Any], field: str) -> None:
    body = job("j")
    body["metadata"].update(metadata)

    answer = await api.call("POST", api.jobs(), body)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert all(cause["field"].startswith(field) for cause in answer.body["details"]["causes"])


# Pods


async def test_a_pod_gets_what_the_cluster_adds(api: RawApi) -> None:
    made = await api.create(api.path("pods"), pod("p", priorityClassName="system-node-critical"))

    spec = made["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (2_000_001_000, "PreemptLowerPriority")
    assert [each["key"] for each in spec["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    assert made["status"]["phase"] == "Pending"


async def test_a_priority_class_that_does_not_exist_is_reported(api: RawApi) -> None:
    answer = await api.call("POST", api.path("pods"), pod("p", priorityClassName="nope"))

    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == 'pods "p" is forbidden: no PriorityClass with name nope was found'


@pytest.mark.parametrize(
    ("resources", "want"),
    [
        ({}, "BestEffort"),
        ({"requests": {"cpu": "1"}}, "Burstable"),
        ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
        ({"limits": {"example.com/gpu": "1"}}, "BestEffort"),
    ],
    ids=["nothing", "requests", "limits of both", "devices do not count"],
)
async def test_the_quality_of_service_follows_the_resources(
    api: RawApi, resources: dict[str, Any], want: str
) -> None:
    body = pod("p")
    body["spec"]["containers"][0]["resources"] = resources

    made = await api.create(api.path("pods"), body)

    assert made["status"]["qosClass"] == want


async def test_a_limit_range_fills_requests_and_limits(api: RawApi) -> None:
    limit = {"type": "Container", "defaultRequest": {"cpu": "250m"}, "default": {"cpu": "2"}}
    body = {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}
    await api.create(api.path("limitranges"), {"apiVersion": "v1", "kind": "LimitRange", **body})

    made = await api.create(api.path("pods"), pod("p"))

    resources = made["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "250m"}, "limits": {"cpu": "2"}}


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({"containers": []}, "spec.containers: Required value", id="no container"),
        pytest.param(
            {"containers": [{"name": "c", "image": "x"}, {"name": "c", "image": "x"}]},
            'spec.containers[1].name: Duplicate value: "c"',
            id="two of a name",
        ),
        pytest.param(
            {"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value", id="no image"
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes"',
            id="an unknown policy",
        ),
        pytest.param(
            {
                "containers": [
                    {"name": "c", "image": "x", "resources": {"requests": {"example.com/gpu": "1"}}}
                ]
            },
            "Limit must be set for non overcommitable resources",
            id="a device without a limit",
        ),
        pytest.param(
            {
                "containers": [
                    {"name": "c", "image": "x", "resources": {"limits": {"example.com/gpu": "500m"}}}
                ]
            },
            "must be an integer",
            id="half a device",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Equal"}]},
            "operator must be Exists when `key` is empty",
            id="a toleration of anything equal",
        ),
    ],
)
async def test_a_pod_that_makes_no_sense_is_refused(api: RawApi, spec: dict[str, Any], want: str) -> None:
    answer = await api.call("POST", api.path("pods"), pod("p", **spec))

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert want in answer.message


# Others


async def test_a_new_node_takes_no_pods_before_its_kubelet_has_spoken(api: RawApi) -> None:
    name = f"{api.namespace}-node"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}

    made = await api.create("/api/v1/nodes", body)
    await api.call("DELETE", f"/api/v1/nodes/{name}")

    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]


async def test_put_creates_a_lease(api: RawApi) -> None:
    path = api.path("leases", "l", api="apis/coordination.k8s.io/v1")
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {"holderIdentity": "me", "renewTime": "2026-01-01T00:00:00.123456Z"},
    }

    answer = await api.call("PUT", path, body)

    assert answer.status == 201
    assert answer.body["spec"]["renewTime"] == "2026-01-01T00:00:00.123456Z"


async def test_the_value_of_a_priority_class_is_fixed(api: RawApi) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = f"{api.namespace}-class"
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 5,
    }
    made = await api.create(path, body)

    answer = await api.merge(f"{path}/{name}", {"value": 6})
    await api.call("DELETE", f"{path}/{name}")

    assert made["preemptionPolicy"] == "PreemptLowerPriority"
    assert (answer.status, answer.reason) == (422, "Invalid")


async def test_an_immutable_config_map_keeps_its_data(api: RawApi) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "immutable": True}
    await api.create(api.path("configmaps"), body | {"data": {"a": "1"}})

    refused = await api.merge(api.path("configmaps", "c"), {"data": {"a": "2"}})
    labelled = await api.merge(api.path("configmaps", "c"), {"metadata": {"labels": {"a": "b"}}})

    assert (refused.status, labelled.status) == (422, 200)


async def test_secrets_of_plain_text_are_encoded(api: RawApi) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "hello"}}

    made = await api.create(api.path("secrets"), body)

    assert made["data"] == {"a": "aGVsbG8="}
    assert "stringData" not in made
    assert made["type"] == "Opaque"


async def test_broken_secret_data_is_refused(api: RawApi) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"a": "not base64!"}}

    answer = await api.call("POST", api.path("secrets"), body)

    assert (answer.status, answer.reason) == (400, "BadRequest")
