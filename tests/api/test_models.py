"""Models keep objects unchanged, accept newer ones, and report the field of an invalid one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from api.definitions.crds import KINDS
from api.models.common import OpenModel
from tests.api.changes import put
from tests.api.samples import Object, full

MODELS: dict[str, type[BaseModel]] = {kind.name: kind.model for kind in KINDS}


def read(obj: Object) -> BaseModel:
    return MODELS[obj["kind"]].model_validate(obj)


def refusals(obj: Object) -> dict[str, str]:
    """Return the message for each refused field, by its path."""
    with pytest.raises(ValidationError) as refused:
        read(obj)
    return {".".join(map(str, error["loc"])): error["msg"] for error in refused.value.errors()}


@pytest.mark.parametrize("kind", MODELS)
def test_a_full_object_comes_out_as_it_went_in(kind: str) -> None:
    assert read(full(kind)).model_dump(by_alias=True, exclude_unset=True) == full(kind)


@pytest.mark.parametrize("kind", MODELS)
def test_the_sample_sets_every_field_of_the_model(kind: str) -> None:
    """So that the round trips, here and on API servers, leave nothing out."""
    assert set(unset_fields(MODELS[kind], [full(kind)], kind)) == ALLOWED_UNSET.get(kind, set())


# clusterName excludes it. Pod templates are open, so their fields are not counted.
ALLOWED_UNSET = {"Workload": {"Workload.status.nominatedClusterNames"}}


def unset_fields(model: type[BaseModel], values: list[Any], path: str) -> set[str]:
    """Return the paths of fields that are set in none of `values`, the objects found at `path`."""
    unset: set[str] = set()
    for field in model.model_fields.values():
        alias = field.alias or ""
        found = [value[alias] for value in values if alias in value]
        if not found:
            unset.add(f"{path}.{alias}")
        for inner in inner_models(field.annotation):
            items = [item for value in found for item in (value if isinstance(value, list) else [value])]
            unset |= unset_fields(inner, items, f"{path}.{alias}")
    return unset


def inner_models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, OpenModel):
        return []
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in getattr(annotation, "__args__", ()) for model in inner_models(argument)]


@pytest.mark.parametrize("kind", MODELS)
def test_fields_of_a_newer_version_are_not_refused(kind: str) -> None:
    newer = full(kind)
    newer["future"] = newer["metadata"]["future"] = {"a": 1}
    for part in ("spec", "status"):
        if part in newer:
            newer[part]["future"] = ["x"]

    read(newer)


def test_whatever_a_pod_template_holds_is_kept() -> None:
    workload = full("Workload")
    put(workload, "spec.podSets.0.template.spec.future", {"deep": [1, {"er": None}]})
    put(workload, "spec.podSets.0.template.spec.containers.0.future", "x")

    assert read(workload).model_dump(by_alias=True, exclude_unset=True) == workload


def test_defaults_are_kueues() -> None:
    queue = read({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {}})

    spec = queue.model_dump(by_alias=True, exclude_none=True)["spec"]

    assert spec == {
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
    }


@pytest.mark.parametrize(
    ("kind", "path", "value", "want"),
    [
        pytest.param(
            "ClusterQueue",
            "apiVersion",
            "kueue.x-k8s.io/v1beta1",
            "Input should be 'kueue.x-k8s.io/v1beta2'",
            id="an older version, which must be converted first",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.cohortName",
            "Research",
            "must be a DNS subdomain: lower-case letters, digits, '-' and '.'",
            id="a name in capitals",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.cohortName",
            "a" * 254,
            "String should have at most 253 characters",
            id="a name too long",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.fairSharing.weight",
            "heavy",
            "'heavy' is not a quantity: expected a number with an optional suffix,"
            ' such as "500m", "2", "1.5Gi" or "1e3"',
            id="a weight that is no number",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.fairSharing.weight",
            1.5,
            'must be a quantity such as "500m", "2" or "1.5Gi"',
            id="a number with a fraction, which the API server does not take either",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.queueingStrategy",
            "LIFO",
            "Input should be 'StrictFIFO' or 'BestEffortFIFO'",
            id="a word that is no choice",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold",
            2**31,
            "Input should be less than or equal to 2147483647",
            id="a number beyond int32",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.resourceGroups.0.flavors.1.name",
            "a100",
            "holds a100 more than once",
            id="a flavor twice in a list distinguished by names",
        ),
        pytest.param(
            "ClusterQueue",
            "spec.admissionChecksStrategy.admissionChecks.0.onFlavors",
            ["a", "b", "a"],
            "holds a more than once",
            id="a value twice in a set",
        ),
        pytest.param(
            "Workload", "spec.podSets.0.count", -1, "Input should be greater than or equal to 0", id="count"
        ),
        pytest.param(
            "Workload", "spec.podSets.0.count", "3", "Input should be a valid integer", id="a number as text"
        ),
        pytest.param(
            "Workload",
            "status.requeueState.requeueAt",
            "tomorrow",
            "must be an RFC 3339 time such as 2026-01-31T12:00:00Z",
            id="a time that is none",
        ),
        pytest.param(
            "Workload",
            "status.requeueState.requeueAt",
            "2026-02-30T12:00:00Z",
            "must be an RFC 3339 time such as 2026-01-31T12:00:00Z",
            id="a day that is none",
        ),
        pytest.param(
            "Topology",
            "spec.levels.0.nodeLabel",
            "a/b/c",
            "must be a label key: an optional DNS prefix and '/', then a name",
            id="a label key with two slashes",
        ),
    ],
)
def test_a_broken_field_is_refused(kind: str, path: str, value: Any, want: str) -> None:
    refused = refusals(put(full(kind), path, value))

    assert list(refused.values()) == [want]
    assert path.startswith(next(iter(refused)))


def test_a_missing_field_is_named() -> None:
    topology = full("Topology")
    del topology["spec"]["levels"]

    assert refusals(topology) == {"spec.levels": "Field required"}
