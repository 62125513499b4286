"""The manifests of examples/, as both API servers take them: strictly, a misspelt field is an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.controlplane import Rest
from tests.integration.conftest import Cluster
from tests.integration.manifests import Object

pytestmark = pytest.mark.xdist_group("examples")
EXAMPLES = Path(__file__).parents[2] / "examples"


def manifests() -> Iterator[pytest.ParameterSet]:
    """Yield each object of each file."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        for number, obj in enumerate(yaml.safe_load_all(file.read_text()), start=1):
            yield pytest.param(obj, id=f"{file.stem}-{number}-{obj['kind']}")


@pytest.fixture(scope="module")
def rest(cluster: Cluster) -> Rest:
    """Give a server that knows Berth's kinds."""
    return cluster.new_scene().rest


def collection(rest: Rest, obj: Object, namespace: str) -> str:
    """Return the path at which objects of this kind are created."""
    version = obj["apiVersion"]
    base = f"/apis/{version}" if "/" in version else f"/api/{version}"
    found = rest.get(base)["resources"]
    kind = next(one for one in found if one["kind"] == obj["kind"] and "/" not in one["name"])
    return f"{base}/namespaces/{namespace}/{kind['name']}" if kind["namespaced"] else f"{base}/{kind['name']}"


@pytest.mark.parametrize("obj", tuple(manifests()))
def test_the_server_takes(obj: Object, rest: Rest) -> None:
    # A reader of the tutorial has created the namespaces first; here any will do.
    metadata = {key: value for key, value in obj["metadata"].items() if key != "namespace"}
    path = collection(rest, obj, "default")

    made = rest.create(f"{path}?dryRun=All&fieldValidation=Strict", {**obj, "metadata": metadata})

    assert made["kind"] == obj["kind"]
