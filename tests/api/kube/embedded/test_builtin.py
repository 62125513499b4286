"""Built-in objects are decoded as by Go structs: pruning, defaults, canonical forms, rejection."""

from __future__ import annotations

from typing import Any

import pytest

from api.kube.embedded.apply.builtin_types import DecodeError, Decoder, builtin_schema
from api.kube.embedded.kinds.defaults import Defaulter


def decoded(kind: str, body: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    decoder = Decoder(builtin_schema(kind))
    return decoder.decode(body), decoder.unknown


def container(**fields: Any) -> dict[str, Any]:
    body, _ = decoded("Pod", {"spec": {"containers": [{"name": "c", **fields}]}})
    found: dict[str, Any] = body["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param({"stdin": False}, {}, id="a plain false is dropped"),
        pytest.param({"stdin": True}, {"stdin": True}, id="a true stays"),
        pytest.param({"command": []}, {}, id="an empty list is dropped"),
        pytest.param({"image": ""}, {}, id="an empty text is dropped"),
        pytest.param({"image": None}, {}, id="a null is dropped"),
        pytest.param({"restartPolicy": ""}, {"restartPolicy": ""}, id="an empty text behind a pointer stays"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}}},
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}},
            id="quantities take their canonical form",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": 0.5}}},
            {"resources": {"requests": {"cpu": "500m"}}},
            id="a number is a quantity",
        ),
    ],
)
def test_fields_of_a_container(given: dict[str, Any], want: dict[str, Any]) -> None:
    assert container(**given) == {"name": "c", "resources": {}, **want}


def test_pointers_keep_zero() -> None:
    body, _ = decoded("Job", {"spec": {"suspend": False, "parallelism": 0, "template": {}}})

    assert body["spec"]["suspend"] is False
    assert body["spec"]["parallelism"] == 0


def test_structs_always_appear() -> None:
    body, _ = decoded("Job", {})

    assert body == {
        "metadata": {},
        "spec": {"template": {"metadata": {}, "spec": {"containers": None}}},
        "status": {},
    }


def test_unknown_fields_are_named_by_their_path() -> None:
    _, unknown = decoded("Job", {"spec": {"x": 1, "template": {"spec": {"containers": [{"y": 2}]}}}, "z": 3})

    assert unknown == ["spec.x", "spec.template.spec.containers[0].y", "z"]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        (
            {"spec": {"parallelism": "two"}},
            "json: cannot unmarshal string into Go struct field JobSpec.spec.parallelism of type int32",
        ),
        (
            {"spec": {"suspend": 1}},
            "json: cannot unmarshal number into Go struct field JobSpec.spec.suspend of type bool",
        ),
        ({"spec": []}, "json: cannot unmarshal array into Go struct field Job.spec of type v1.JobSpec"),
        (
            {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels.a of type string",
        ),
        ({"spec": {"parallelism": 2**40}}, "Go struct field JobSpec.spec.parallelism of type int32"),
        (
            {"spec": {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "much"}}}]}}}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ({"status": {"startTime": "noon"}}, 'parsing time "noon" as "2006-01-02T15:04:05Z07:00"'),
    ],
)
def test_what_has_a_wrong_form_is_refused(body: dict[str, Any], want: str) -> None:
    with pytest.raises(DecodeError) as refused:
        decoded("Job", body)

    assert want in str(refused.value)


def test_times_are_kept_in_utc_and_in_their_precision() -> None:
    lease, _ = decoded("Lease", {"spec": {"renewTime": "2026-01-01T02:00:00.5+02:00"}})
    job, _ = decoded("Job", {"status": {"startTime": "2026-01-01T02:00:00.5+02:00"}})

    assert lease["spec"]["renewTime"] == "2026-01-01T00:00:00.500000Z"
    assert job["status"]["startTime"] == "2026-01-01T00:00:00Z"


def filled(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    schema = builtin_schema(kind)
    item = Decoder(schema).decode(body)
    Defaulter(schema).fill(item)
    return item


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, {"parallelism": 1, "completions": 1, "backoffLimit": 6}, id="one pod"),
        pytest.param({"parallelism": 3}, {"parallelism": 3, "completions": None}, id="a work queue"),
        pytest.param({"completions": 3}, {"parallelism": 1, "completions": 3}, id="one after the other"),
        pytest.param({}, {"suspend": False, "completionMode": "NonIndexed"}, id="plain and running"),
    ],
)
def test_defaults_of_jobs(spec: dict[str, Any], want: dict[str, Any]) -> None:
    job = filled("Job", {"spec": spec})

    assert {key: job["spec"].get(key) for key in want} == want


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1.36", "IfNotPresent"),
        ("registry:5000/a/b", "Always"),
        ("registry:5000/a/b:1", "IfNotPresent"),
        ("busybox@sha256:0123", "IfNotPresent"),
    ],
)
def test_an_image_is_pulled_by_its_tag(image: str, want: str) -> None:
    pod = filled("Pod", {"spec": {"containers": [{"name": "c", "image": image}]}})

    assert pod["spec"]["containers"][0]["imagePullPolicy"] == want


def test_limits_are_requests_where_none_are_given() -> None:
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}
    pod = filled("Pod", {"spec": {"containers": [{"name": "c", "resources": resources}]}})

    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_templates_are_defaulted_wherever_they_are() -> None:
    template = {"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 80}]}]}}
    cron_job = filled("CronJob", {"spec": {"jobTemplate": {"spec": {"template": template}}}})

    spec = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP"}]
