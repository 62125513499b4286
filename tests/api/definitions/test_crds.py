"""The CRDs are structural, complete, and equal to those in deploy/; for servers see test_crds_served.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.definitions.crds import KINDS, Kind, crd
from tests.api.crd_files import FOLDER, wanted
from tests.api.structural import faults

BY_NAME = {kind.name: kind for kind in KINDS}
SERVED = [
    pytest.param(kind.name, version, id=f"{kind.name} {version['name']}")
    for kind in KINDS
    for version in crd(kind, with_older=True)["spec"]["versions"]
]
each_version = pytest.mark.parametrize(("kind", "version"), SERVED)


def only_version(kind: Kind) -> dict[str, Any]:
    (only,) = crd(kind)["spec"]["versions"]
    assert isinstance(only, dict)
    return only


def schema(version: dict[str, Any]) -> dict[str, Any]:
    found = version["schema"]["openAPIV3Schema"]
    assert isinstance(found, dict)
    return found


def nodes(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schema and all schemas inside it."""
    inner = [*found.get("properties", {}).values()]
    inner += [found[key] for key in ("items", "additionalProperties") if isinstance(found.get(key), dict)]
    return [found, *(node for child in inner for node in nodes(child))]


@each_version
def test_the_schema_is_structural(kind: str, version: dict[str, Any]) -> None:
    assert list(faults(schema(version))) == []


@each_version
def test_every_field_is_described(kind: str, version: dict[str, Any]) -> None:
    """`kubectl explain` is the documentation people have at hand."""
    assert [name for name, text in undescribed(schema(version), kind) if not text] == []


def undescribed(found: dict[str, Any], path: str) -> list[tuple[str, str]]:
    own = []
    for name, child in found.get("properties", {}).items():
        if f"{path}.{name}" != f"{path.split('.')[0]}.metadata":
            own.append((f"{path}.{name}", child.get("description", "")))
            own += undescribed(child, f"{path}.{name}")
    items = found.get("items")
    return own + (undescribed(items, f"{path}[]") if items else [])


@each_version
def test_every_list_says_how_it_merges(kind: str, version: dict[str, Any]) -> None:
    lists = [node for node in nodes(schema(version)) if node.get("type") == "array"]

    assert all(node.get("x-kubernetes-list-type") in ("atomic", "map", "set") for node in lists)


@pytest.mark.parametrize(
    ("kind", "scope", "short_names", "columns"),
    [
        pytest.param(
            "ClusterQueue",
            "Cluster",
            ["cq"],
            ["Cohort", "Strategy (wide)", "Pending Workloads", "Admitted Workloads (wide)", "Age"],
            id="ClusterQueue",
        ),
        pytest.param(
            "LocalQueue",
            "Namespaced",
            ["queue", "queues", "lq"],
            ["ClusterQueue", "Pending Workloads", "Admitted Workloads", "Age"],
            id="LocalQueue",
        ),
        pytest.param(
            "Workload",
            "Namespaced",
            ["kwl", "kueueworkload", "kueueworkloads"],
            ["Queue", "Reserved in", "Admitted", "Finished", "Age"],
            id="Workload",
        ),
        pytest.param("Cohort", "Cluster", ["co"], ["Age"], id="Cohort"),
        pytest.param("ResourceFlavor", "Cluster", ["flavor", "flavors", "rf"], ["Age"], id="ResourceFlavor"),
        pytest.param("Topology", "Cluster", ["topo"], ["Age"], id="Topology"),
        pytest.param("AdmissionCheck", "Cluster", ["ac"], ["Age"], id="AdmissionCheck"),
        pytest.param(
            "ProvisioningRequestConfig", "Cluster", ["prc"], ["Age"], id="ProvisioningRequestConfig"
        ),
        pytest.param(
            "WorkloadPriorityClass", "Cluster", ["wpc"], ["Value", "Age"], id="WorkloadPriorityClass"
        ),
        pytest.param(
            "AdmissionPolicy",
            "Cluster",
            ["apol"],
            ["Precedence", "Accepted", "ClusterQueues", "Open windows", "Message (wide)", "Age"],
            id="AdmissionPolicy",
        ),
    ],
)
def test_names_and_columns_are_those_people_know(
    kind: str, scope: str, short_names: list[str], columns: list[str]
) -> None:
    spec = crd(BY_NAME[kind])["spec"]

    shown = [
        column["name"] + (" (wide)" if column.get("priority") else "")
        for column in spec["versions"][0]["additionalPrinterColumns"]
    ]
    assert (spec["scope"], spec["names"]["shortNames"], shown) == (scope, short_names, columns)


def test_status_is_a_subresource_where_there_is_one() -> None:
    with_status = {kind.name for kind in KINDS if only_version(kind).get("subresources") == {"status": {}}}

    assert with_status == {
        "AdmissionCheck",
        "AdmissionPolicy",
        "ClusterQueue",
        "Cohort",
        "LocalQueue",
        "Workload",
    }


def test_workloads_can_be_selected_by_their_cluster_queue() -> None:
    assert only_version(BY_NAME["Workload"])["selectableFields"] == [
        {"jsonPath": ".status.admission.clusterQueue"}
    ]


def test_both_versions_of_kueues_kinds_are_served_and_the_newer_one_is_stored() -> None:
    served = {
        kind.name: {one["name"]: one["storage"] for one in crd(kind, with_older=True)["spec"]["versions"]}
        for kind in KINDS
    }

    assert served.pop("AdmissionPolicy") == {"v1alpha1": True}
    assert all(versions == {"v1beta2": True, "v1beta1": False} for versions in served.values())


def test_only_kinds_whose_fields_differ_depend_on_the_controller() -> None:
    """The others are served in both versions while no controller runs."""
    strategies = {kind.name: crd(kind, with_older=True)["spec"]["conversion"]["strategy"] for kind in KINDS}

    assert {name for name, strategy in strategies.items() if strategy == "Webhook"} == {
        "ClusterQueue",
        "LocalQueue",
        "Workload",
    }


def test_kubectl_can_apply_the_definitions() -> None:
    """It keeps what was applied in an annotation, and all annotations of an object have 256 KiB."""
    largest = max(len(json.dumps(crd(kind, with_older=True))) for kind in KINDS)

    assert largest < 200 << 10


def test_deploy_holds_what_the_models_say() -> None:
    """If this fails, run `python -m tests.api.crd_files`."""
    assert {path.name: path.read_text() for path in FOLDER.iterdir()} == wanted()


@each_version
def test_every_list_map_text_and_number_has_a_bound(kind: str, version: dict[str, Any]) -> None:
    # Those of the whole object are the API server's own.
    own = {f"{kind}.{name}" for name in ("apiVersion", "kind", "metadata")}

    unbounded = {path for path, node in paths(schema(version), kind) if not is_bounded(node)}

    assert sorted(unbounded - own) == []


def paths(found: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the schema and all schemas inside it with their paths."""
    inner = [(f"{path}.{name}", child) for name, child in found.get("properties", {}).items()]
    for key, sign in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(found.get(key), dict):
            inner.append((f"{path}{sign}", found[key]))
    return [(path, found), *(one for name, child in inner for one in paths(child, name))]


def is_bounded(node: dict[str, Any]) -> bool:
    if "x-kubernetes-int-or-string" in node:
        return "maxLength" in node
    match node.get("type"):
        case "array":
            return "maxItems" in node
        case "object":
            return "maxProperties" in node or "additionalProperties" not in node
        case "string":
            return bool(node.keys() & {"maxLength", "enum", "format"})
        # The server refuses what the format of an integer cannot hold.
        case "integer":
            return node.get("format") in ("int32", "int64")
        case "number":
            return {"minimum", "maximum"} <= node.keys()
        case _:
            return True
