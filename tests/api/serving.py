"""Creating sample objects on a server, and reading the stored objects."""

from __future__ import annotations

import pytest

from api.definitions.crds import KINDS, Kind
from tests.api.samples import Object, full
from tests.controlplane import Rest, RestError

KIND_BY_NAME = {kind.name: kind for kind in KINDS}


def collection(kind: str) -> str:
    found: Kind = KIND_BY_NAME[kind]
    room = "/namespaces/default" if found.namespaced else ""
    return f"/apis/{found.group}/{found.version}{room}/{found.plural}"


def create(rest: Rest, obj: Object) -> Object:
    """Create the object under a name of its own, and return it as kept."""
    obj["metadata"] = {**obj["metadata"], "generateName": "test-", "name": None}
    created: Object = rest.create(collection(obj["kind"]), obj)
    return created


def path_of(obj: Object) -> str:
    return f"{collection(obj['kind'])}/{obj['metadata']['name']}"


def content(obj: Object) -> Object:
    """Return the object without what the server adds to metadata."""
    metadata = {key: obj["metadata"][key] for key in ("labels", "annotations") if key in obj["metadata"]}
    return {**obj, "metadata": metadata}


def refusal(rest: Rest, method: str, path: str, obj: Object) -> str:
    with pytest.raises(RestError) as refused:
        rest.request(method, path, obj)
    assert refused.value.status == 422
    return str(refused.value)


def admitted(rest: Rest) -> Object:
    """Return a Workload with quota, as kept."""
    created = create(rest, full("Workload"))
    kept: Object = rest.request(
        "PUT", f"{path_of(created)}/status", {**created, "status": full("Workload")["status"]}
    )
    return kept
