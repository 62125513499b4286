"""Which fields the cluster's CustomResourceDefinitions lack, asked once at the start.

The API server removes fields that it does not know: what an author sets there, and what Berth reports there,
is lost without an error. So a controller beside the definitions of an older release says what is missing. It
starts all the same: everything else works. Newer definitions need no notice, because what Berth does not know
survives its writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from admission.controller.runtime.logs import Log
from api.definitions.crds import KINDS, Kind, crd
from api.kube import resources
from api.kube.client import KubeClient
from api.kube.errors import Forbidden, NotFound

log = Log("berth.controller")

# The first ones tell which release the definitions are of.
MOST_NAMED = 10
_NOTE = "the API server removes these fields; apply deploy/crds, then restart"
_UNREAD = "older CustomResourceDefinitions would not be noticed; apply deploy/rbac.yaml"


async def report_older_definitions(client: KubeClient) -> None:
    """Log a line for each kind whose definition lacks fields. Raises KubeError if the server is lost."""
    try:
        served = await asyncio.gather(*(_served(client, kind) for kind in KINDS))
    except Forbidden as refused:
        log.info("definitions-unread", error=refused, note=_UNREAD)
        return
    for kind, definition in zip(KINDS, served, strict=True):
        if definition is not None and (missing := missing_fields(kind, definition)):
            log.warning("definition-older", kind=kind.name, missing=_named(missing), note=_NOTE)


def missing_fields(kind: Kind, served: Mapping[str, Any]) -> list[str]:
    """Return the paths of fields that the definition `served` of the kind lacks, such as "spec.queueName".

    Of a field that is missing, those below it are not named.
    """
    (own,) = crd(kind)["spec"]["versions"]
    schemas = [one["schema"] for one in served["spec"]["versions"] if one["name"] == kind.version]
    # A kind that is not served in this version at all is reported by its watch.
    return list(_missing(own["schema"]["openAPIV3Schema"], schemas[0]["openAPIV3Schema"])) if schemas else []


def _missing(own: Mapping[str, Any], served: Mapping[str, Any], path: str = "") -> Iterator[str]:
    if served.get("x-kubernetes-preserve-unknown-fields"):
        return
    known = served.get("properties", {})
    for name, schema in own.get("properties", {}).items():
        below = f"{path}.{name}" if path else name
        if name in known:
            yield from _missing(schema, known[name], below)
        else:
            yield below
    for form, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if isinstance(own.get(form), dict) and isinstance(served.get(form), dict):
            yield from _missing(own[form], served[form], f"{path}{mark}")


def _named(missing: Sequence[str]) -> str:
    more = len(missing) - MOST_NAMED
    return ", ".join([*missing[:MOST_NAMED], *([f"and {more} more"] if more > 0 else ())])


async def _served(client: KubeClient, kind: Kind) -> dict[str, Any] | None:
    """Return the definition of a kind; None if it is not installed."""
    try:
        raw = await client.get(resources.CRDS, f"{kind.plural}.{kind.group}")
    except NotFound:
        return None
    found: dict[str, Any] = msgspec.json.decode(raw)
    return found
