"""Installs kinds on a server, Berth's or a test's own, so that tests can create their objects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from api.definitions.crds import KINDS, crd
from tests.controlplane.rest import Rest, RestError

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Some definitions have a megabyte, which a busy server takes long to check: as long as it gives any request.
_PATIENCE_SECONDS = 60.0


def install_definitions(rest: Rest) -> None:
    """Create every CustomResourceDefinition that is not there, and return when all kinds can be listed."""
    install_crds(rest, map(crd, KINDS))


def install_crds(rest: Rest, definitions: Iterable[Mapping[str, Any]]) -> None:
    """Create those CustomResourceDefinitions that are not there, and return when their kinds can be listed.

    Raises RestError for one that the server refuses, AssertionError for one that it does not serve.
    """
    for definition in (wanted := list(definitions)):
        try:
            rest.request("POST", CRDS, definition, timeout_seconds=_PATIENCE_SECONDS)
        except RestError as error:
            if error.reason != "AlreadyExists":
                raise
    # An established kind still answers 429 for a moment, until its storage is ready.
    for definition in wanted:
        for collection in _served_collections(definition["spec"]):
            rest.wait(collection, lambda found: "items" in found)


def _served_collections(spec: Mapping[str, Any]) -> list[str]:
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in versions]
