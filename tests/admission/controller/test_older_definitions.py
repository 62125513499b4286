"""Which fields a cluster's CustomResourceDefinitions lack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from admission.controller.older_definitions import missing_fields
from api.definitions.crds import KINDS, crd

Schema = dict[str, Any]
(WORKLOAD,) = (kind for kind in KINDS if kind.name == "Workload")


def without(*path: str) -> Callable[[Schema], object]:
    """Return a change that removes the last step of a path through the schema."""

    def change(schema: Schema) -> None:
        for step in path[:-1]:
            schema = schema[step]
        del schema[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param(lambda _: None, [], id="nothing of its own definition"),
        pytest.param(
            without("properties", "status", "properties", "unhealthyNodes"),
            ["status.unhealthyNodes"],
            id="a field",
        ),
        pytest.param(without("properties", "status"), ["status"], id="a part, without what is below it"),
        pytest.param(
            without("properties", "spec", "properties", "podSets", "items", "properties", "minCount"),
            ["spec.podSets[].minCount"],
            id="a field of the entries of a list",
        ),
        pytest.param(
            lambda schema: schema["properties"]["status"].update(
                {"properties": {}, "x-kubernetes-preserve-unknown-fields": True}
            ),
            [],
            id="nothing where the server keeps unknown fields",
        ),
        pytest.param(
            lambda schema: schema["properties"]["spec"]["properties"].update(ofTheFuture={"type": "string"}),
            [],
            id="nothing where there is more",
        ),
    ],
)
def test_what_a_definition_lacks_is_named_by_its_path(
    change: Callable[[Schema], object], want: list[str]
) -> None:
    served = copy.deepcopy(crd(WORKLOAD))
    change(served["spec"]["versions"][0]["schema"]["openAPIV3Schema"])

    assert missing_fields(WORKLOAD, served) == want


def test_a_definition_of_another_version_alone_is_left_to_the_watch() -> None:
    served = copy.deepcopy(crd(WORKLOAD))
    served["spec"]["versions"][0]["name"] = "v1beta9"

    assert missing_fields(WORKLOAD, served) == []
